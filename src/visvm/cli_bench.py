"""Commands for researchers: ``visvm bench`` and ``visvm report``."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visvm.cli_upkeep import Quiet
from visvm.errors import EncoderError, InputError

if TYPE_CHECKING:
    from visvm.bench.features import Progress
    from visvm.bench.recipe import Recipe
    from visvm.bench.rows import Results, Row
    from visvm.bench.runner import Job
    from visvm.encoders.encoder import Encoder


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str | None, option: str) -> list[int] | None:
    parts = _listed(text)
    if parts is not None and not all(part.isdecimal() for part in parts):
        raise InputError(f"{option} must be whole numbers, separated by commas; got {text!r}: correct it")
    return None if parts is None else [int(part) for part in parts]


def bench(
    recipes: Annotated[
        list[str] | None, typer.Argument(help="Names of recipes, or .toml files; none lists them.", metavar="RECIPE…")
    ] = None,
    methods: Annotated[str | None, typer.Option(help="Methods to run, separated by commas.", show_default="the recipe's")] = None,
    datasets: Annotated[
        str | None, typer.Option(help="Data sets, or folders with train/ and test/ in them.", show_default="the recipe's")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="'B0', 'B-half', 'B50 Inc10' or 'sessions 5,3,2'.", show_default="the recipe's")
    ] = None,
    encoder: Annotated[str | None, typer.Option(help="Encoders, separated by commas.", show_default="the recipe's")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds of the class order.", show_default="the recipe's")] = None,
    feature_seeds: Annotated[
        str | None, typer.Option(help="Seeds of the methods' random numbers.", show_default="the recipe's")
    ] = None,
    components: Annotated[
        int | None, typer.Option(min=1, help="D of every method that has one.", show_default="each method's own")
    ] = None,
    train_per_class: Annotated[int | None, typer.Option(min=1, help="Use the first so many training images of a class.")] = None,
    test_per_class: Annotated[int | None, typer.Option(min=1, help="Use the first so many test images of a class.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets.", show_default="VISVM_DATA")] = None,
    output: Annotated[Path, typer.Option("--out", help="Folder for results.jsonl.", metavar="DIR")] = Path("results"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan with its cost, and do nothing.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run benchmarks of the paper. What is in results.jsonl already is not run again."""
    from visvm.bench import recipe as recipe_files
    from visvm.bench.rows import open_for_appending
    from visvm.terminal import out, progress_bars, table

    if not recipes:
        rows = [(recipe.name, recipe.title, recipe.paper) for recipe in recipe_files.built_in().values()]
        out().print(table("recipes", ["name", "what", "in the paper"], rows))
        return
    chosen = []
    for name in recipes:
        recipe = recipe_files.read_recipe(name)
        changed = recipe.with_changes(
            methods=_listed(methods),
            datasets=_listed(datasets),
            protocols=None if protocol is None else [protocol],
            encoders=_listed(encoder),
            class_order_seeds=_numbers(seeds, "--seeds"),
            seeds=_numbers(feature_seeds, "--feature-seeds"),
            options=None if components is None else {**recipe.options, "n_components": components},
            train_per_class=train_per_class,
            test_per_class=test_per_class,
        )
        chosen.append(changed)
    with progress_bars(quiet) as progress:
        if dry_run:
            for recipe in chosen:
                _show_plan(recipe, data, output, progress)
            return
        with open_for_appending(output) as results:
            for recipe in chosen:
                for job in _jobs(recipe, data, progress, insist=methods is not None):
                    _run(job, results, progress, quiet)
    if not quiet:
        out().print(f"{output / 'results.jsonl'} is complete; for tables and figures: visvm report {output}", markup=False)


def _jobs(recipe: "Recipe", data: Path | None, progress: "Progress", *, insist: bool) -> "Iterator[Job]":
    from visvm.bench.runner import plan
    from visvm.encoders.loading import load_encoder
    from visvm.terminal import note

    def load(name: str) -> "Encoder":
        return load_encoder(name, lambda done, total: progress("fetching weights", done, total))

    for job in plan(recipe, data, load):
        for method, reason in job.refused.items():
            if insist:
                raise EncoderError(reason)
            note(f"{method} is left out: {reason}")
        yield job


def _run(job: "Job", results: "Results", progress: "Progress", quiet: bool) -> None:
    from visvm.bench.runner import execute
    from visvm.encoders.cache import FeatureCache

    accuracies: list[float] = []
    with FeatureCache() as cache:
        for row in execute(job, results, cache, progress):
            accuracies.append(row.accuracy)
            if row.session == row.n_sessions:
                if not quiet:
                    _show_run(row, accuracies)
                accuracies = []


def _show_run(row: "Row", accuracies: list[float]) -> None:
    from visvm.bench.metrics import average_accuracy
    from visvm.terminal import note

    run = row.run
    whole = len(accuracies) == row.n_sessions  # or else the run was begun before
    average = f"Ā {100 * average_accuracy(accuracies):.2f}  " if whole else ""
    options = "".join(f" {name}={value}" for name, value in run.options.items())
    note(
        f"{run.dataset} {run.protocol} order {run.class_order_seed} {run.encoder}: {run.method}{options} seed {run.seed}  "
        f"{average}A_B {100 * row.accuracy:.2f}"
    )


def _show_plan(recipe: "Recipe", data: Path | None, output: Path, progress: "Progress") -> None:
    from visvm.bench.estimate import estimate, operations_per_second
    from visvm.bench.features import count_missing, seconds_per_image
    from visvm.bench.rows import FILE_NAME, Results, read_rows
    from visvm.bench.runner import missing_runs
    from visvm.encoders.cache import FeatureCache
    from visvm.head.memory import human_bytes
    from visvm.terminal import out, table

    results = Results(output / FILE_NAME, read_rows(output) if (output / FILE_NAME).exists() else [])
    speed, lines, total, most = operations_per_second(), [], 0.0, 0
    for job in _jobs(recipe, data, progress, insist=False):
        runs = missing_runs(job, results)
        with FeatureCache() as cache:
            n_missing = count_missing(job.data, job.encoder, job.transform, cache) if runs else 0
        encoding = n_missing * seconds_per_image(job.data, job.encoder, job.transform) if n_missing else 0.0
        costs = [estimate(job, run, speed) for run in runs]
        n_images = len(job.data.train.images) + len(job.data.test.images)
        features = 4 * n_images * sum(job.encoder.layer_dims)
        seconds = sum(cost.seconds for cost in costs)
        memory = features + max((cost.n_bytes for cost in costs), default=0)
        total, most = total + encoding + seconds, max(most, memory)
        protocols = ", ".join(dict.fromkeys(run.protocol for run in job.runs))
        lines.append(
            (
                f"{job.data.name} {protocols}",
                job.encoder.name,
                f"{len(runs)} of {len(job.runs)}",
                f"{n_missing} of {n_images}",
                _minutes(encoding),
                _minutes(seconds),
                human_bytes(memory),
            )
        )
    columns = ["data", "encoder", "runs to do", "images to encode", "encoding", "methods", "memory"]
    out().print(table(f"{recipe.name}: {recipe.title}", columns, lines, right=columns[2:]))
    out().print(f"about {_minutes(total)} and {human_bytes(most)} of memory on this machine; nothing was run", markup=False)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def report(
    folder: Annotated[Path, typer.Argument(help="Folder with results.jsonl.", metavar="DIR")] = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Write report.html, report.md and figures from results.jsonl."""
    from visvm.bench.report.write import write_report
    from visvm.terminal import out

    written = write_report(folder)
    if not quiet:
        pages = [path for path in written if path.suffix in (".html", ".md")]
        out().print("\n".join(map(str, pages)), markup=False)
