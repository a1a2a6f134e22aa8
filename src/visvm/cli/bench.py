"""Commands for researchers: ``visvm bench`` and ``visvm report``."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visvm.cli.shared import Quiet
from visvm.errors import EncoderError, InputError, VisvmError

if TYPE_CHECKING:
    from visvm.bench.recipe import Recipe
    from visvm.bench.rows import Results, Row
    from visvm.bench.runner import Failure, Job
    from visvm.encoders.encoder import Encoder
    from visvm.progress import Progress


def _listed(text: str | None, option: str) -> list[str] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise InputError(f"{option} must name something; got {text!r}: correct it, or leave it out")
    return parts


def _seeds(text: str | None, option: str) -> list[int] | None:
    from visvm.bench.recipe import is_seed

    parts = _listed(text, option)
    if parts is not None and not all(part.isdecimal() and is_seed(int(part)) for part in parts):
        raise InputError(
            f"{option} must be whole numbers from 0 to 4294967295, separated by commas; got {text!r}: correct it"
        )
    return None if parts is None else [int(part) for part in parts]


def _home(path: Path) -> Path:
    from visvm.encoders.sources import expanded

    return expanded(path)


def bench(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of recipes, or .toml files; none lists them.", metavar="RECIPE…"
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Methods to run, separated by commas.", show_default="the recipe's"),
    ] = None,
    datasets: Annotated[
        str | None,
        typer.Option(
            help="Data sets, or folders with train/ and test/ in them.", show_default="the recipe's"
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="'B0', 'B-half', 'B50 Inc10' or 'sessions 5,3,2'.", show_default="the recipe's"
        ),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Encoders, separated by commas.", show_default="the recipe's")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds of the class order.", show_default="the recipe's")
    ] = None,
    feature_seeds: Annotated[
        str | None,
        typer.Option(help="Seeds of the methods' random numbers.", show_default="the recipe's"),
    ] = None,
    components: Annotated[
        int | None,
        typer.Option(
            min=1, help="D of every method that has one.", show_default="each method's own"
        ),
    ] = None,
    train_per_class: Annotated[
        int | None, typer.Option(min=1, help="Use the first so many training images of a class.")
    ] = None,
    test_per_class: Annotated[
        int | None, typer.Option(min=1, help="Use the first so many test images of a class.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of the data sets.", show_default="VISVM_DATA")
    ] = None,
    output: Annotated[
        Path, typer.Option("--out", help="Folder for results.jsonl.", metavar="DIR", callback=_home)
    ] = Path("results"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan with its cost, and run nothing.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Run benchmarks of the paper. What is in results.jsonl already is not run again."""
    from visvm.bench import recipe as recipe_files
    from visvm.bench.rows import open_for_appending
    from visvm.cli.terminal import out, progress_bars, table

    if not recipes:
        rows = [
            (recipe.name, recipe.title, recipe.paper) for recipe in recipe_files.built_in().values()
        ]
        out().print(table("recipes", ["name", "what", "in the paper"], rows))
        return
    changes = {
        "methods": _listed(methods, "--methods"),
        "datasets": _listed(datasets, "--datasets"),
        "protocols": None if protocol is None else [protocol],
        "encoders": _listed(encoder, "--encoder"),
        "class_order_seeds": _seeds(seeds, "--seeds"),
        "feature_seeds": _seeds(feature_seeds, "--feature-seeds"),
        "train_per_class": train_per_class,
        "test_per_class": test_per_class,
    }
    chosen = [recipe_files.read_recipe(name).with_changes(**changes) for name in recipes]
    if components is not None:
        chosen = [
            recipe.with_changes(options={**recipe.options, "n_components": components})
            for recipe in chosen
        ]
    _check(chosen, components)
    with progress_bars(quiet) as progress:
        if dry_run:
            for recipe in chosen:
                _show_plan(recipe, data, output, progress, insist=methods is not None)
            return
        failures: list[Failure] = []
        with open_for_appending(output) as results:
            for recipe in chosen:
                for job in _jobs(recipe, data, results, progress, insist=methods is not None):
                    failures += _run(job, results, progress, quiet)
    if failures:
        first = failures[0]
        raise VisvmError(
            f"runs failed: {len(failures)}; what did not fail is complete; the first is {first.run.method} on "
            f"{first.run.dataset} {first.run.protocol}: {first.reason}"
        )
    if not quiet:
        out().print(
            f"{output / 'results.jsonl'} is complete; for tables and figures: visvm report {output}",
            markup=False,
        )


def _check(chosen: "list[Recipe]", components: int | None) -> None:
    """A mistake in the last recipe should not come to light after the first has run for hours."""
    from visvm.bench.runner import check_methods, default_options

    for recipe in chosen:
        check_methods(recipe)
    methods = [method for recipe in chosen for method in recipe.methods]
    if components is not None and not any(
        "n_components" in default_options(method) for method in methods
    ):
        raise InputError(
            f"--components is for methods that have a D; {', '.join(methods)} have none: leave it out"
        )


def _jobs(
    recipe: "Recipe",
    data: Path | None,
    results: "Results",
    progress: "Progress",
    *,
    insist: bool,
    fetch: bool = True,
) -> "Iterator[Job]":
    from visvm.bench.runner import plan
    from visvm.cli.terminal import note
    from visvm.encoders.loading import load_encoder, require_local

    def load(name: str) -> "Encoder":
        try:
            if not fetch:
                require_local(name)
            return load_encoder(name, progress)
        except EncoderError as error:
            raise (
                error if name in str(error) else EncoderError(f"encoder {name}: {error}")
            ) from None

    for job in plan(recipe, data, load, progress):
        n_outdated = sum(map(results.is_outdated, job.runs))
        if n_outdated:
            note(
                f"{n_outdated} of {len(job.runs)} runs on {job.data.name} are there from other code only: they count as missing"
            )
        for protocol, n_left in job.n_classes_left().items():
            note(
                f"{protocol} of {job.data.name} leaves {n_left} of its {len(job.data.classes)} classes out"
            )
        for method, reason in job.refused.items():
            if insist:
                raise EncoderError(f"{reason}: leave this method out")
            note(f"{method} is left out: {reason}")
        yield job


def _run(job: "Job", results: "Results", progress: "Progress", quiet: bool) -> "list[Failure]":
    from visvm.bench.runner import Failure, execute
    from visvm.cli.terminal import note
    from visvm.encoders.cache import FeatureCache
    from visvm.head.memory import human_bytes

    failures: list[Failure] = []
    with FeatureCache() as cache:
        needed = job.feature_bytes()
        if needed > cache.limit and not quiet:
            sizes = f"{human_bytes(needed)}, the cache {human_bytes(cache.limit)} at most"
            note(
                f"the features of {job.data.name} take {sizes}: raise VISVM_CACHE_LIMIT, or images are encoded again each time"
            )
        if job.n_shared and not quiet:
            share = f"{job.n_shared} of {len(job.data.test.images)} test images of {job.data.name}"
            note(f"{share} are training images too: accuracies may be off")
        for outcome in execute(job, results, cache, progress):
            if isinstance(outcome, Failure):
                if not quiet:
                    note(
                        f"{outcome.run.method} on {outcome.run.dataset} {outcome.run.protocol} failed: {outcome.reason}"
                    )
                failures.append(outcome)
            elif outcome.session == outcome.n_sessions and not quiet:
                _show_run(outcome, list(results.accuracies(outcome.run).values()))
    return failures


def _show_run(row: "Row", accuracies: list[float]) -> None:
    from visvm.bench.metrics import average_accuracy
    from visvm.cli.terminal import note

    run = row.run
    options = "".join(f" {name}={value}" for name, value in run.options.items())
    note(
        f"{run.dataset} {run.protocol} order {run.class_order_seed} {run.encoder}: {run.method}{options} seed {run.seed}  "
        f"Ā {100 * average_accuracy(accuracies):.2f}  A_B {100 * row.accuracy:.2f}"
    )


def _show_plan(
    recipe: "Recipe", data: Path | None, output: Path, progress: "Progress", *, insist: bool
) -> None:
    from visvm.bench.estimate import estimate, operations_per_second
    from visvm.bench.features import count_missing, seconds_per_image
    from visvm.bench.rows import FILE_NAME, Results, read_rows
    from visvm.bench.runner import missing_runs
    from visvm.cli.terminal import note, out, table
    from visvm.encoders.cache import FeatureCache
    from visvm.head.memory import available_bytes, human_bytes, peak_bytes

    results = Results(
        output / FILE_NAME, read_rows(output) if (output / FILE_NAME).exists() else []
    )
    speed, lines, total, most = operations_per_second(), [], 0.0, 0
    for job in _jobs(recipe, data, results, progress, insist=insist, fetch=False):
        runs = missing_runs(job, results)
        with FeatureCache() as cache:
            n_missing = count_missing(job.data, job.encoder, job.transform, cache) if runs else 0
        encoding = (
            n_missing * seconds_per_image(job.data, job.encoder, job.transform)
            if n_missing
            else 0.0
        )
        costs = [estimate(job, run, speed) for run in runs]
        n_images = len(job.data.train.images) + len(job.data.test.images)
        seconds = sum(cost.seconds for cost in costs)
        memory = (
            (peak_bytes() or 0)
            + job.feature_bytes()
            + max((cost.n_bytes for cost in costs), default=0)
        )
        total, most = total + encoding + seconds, max(most, memory)
        protocols = ", ".join(dict.fromkeys(run.protocol for run in job.runs))
        lines.append(
            (
                f"{job.data.name} {protocols}",
                job.encoder.name,
                f"{len(runs)} of {len(job.runs)}",
                f"{n_missing} of {n_images}",
                _duration(encoding),
                _duration(seconds),
                human_bytes(memory),
            )
        )
    columns = ["data", "encoder", "runs to do", "images to encode", "encoding", "methods", "memory"]
    out().print(table(f"{recipe.name}: {recipe.title}", columns, lines, right=columns[2:]))
    out().print(
        f"about {_duration(total)} and {human_bytes(most)} of memory on this machine; nothing was run",
        markup=False,
    )
    free = available_bytes()
    if free is not None and most > free:
        note(
            f"only {human_bytes(free)} are free: take a smaller --components, or a machine with more memory"
        )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def report(
    folder: Annotated[
        Path, typer.Argument(help="Folder with results.jsonl.", metavar="DIR", callback=_home)
    ] = Path("results"),
    quiet: Quiet = False,
) -> None:
    """Write report.html, report.md and figures from results.jsonl."""
    from visvm.bench.report.write import write_report
    from visvm.cli.terminal import out

    written = write_report(folder)
    if not quiet:
        pages = [path for path in written if path.suffix in (".html", ".md")]
        out().print("\n".join(map(str, pages)), markup=False)
