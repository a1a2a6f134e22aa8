"""Commands for researchers: ``visvm bench`` and ``visvm report``."""

from collections.abc import Iterator
from dataclasses import replace as altered
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visvm.cli.options import Quiet, home, require_drawing
from visvm.errors import EncoderError, InputError, VisvmError

if TYPE_CHECKING:
    from visvm.bench.plan import RunGroup
    from visvm.bench.recipe import Recipe
    from visvm.bench.rows import Results, Row
    from visvm.bench.runner import Failure
    from visvm.encoders.encoder import Encoder
    from visvm.progress import Progress


def _option(text: str, default: str = "the recipe's", least: int | None = None) -> Any:
    return typer.Option(help=text, show_default=default, min=least)


_OUT = typer.Option("--out", help="Folder for results.jsonl.", metavar="DIR", callback=home)
_DIR = typer.Argument(help="Folder with results.jsonl.", metavar="DIR", callback=home)
_RECIPES = typer.Argument(
    help="Names of recipes, or .toml files; none lists them.", metavar="RECIPE…"
)
_PROTOCOL = _option("'B0', 'B-half', 'B50 Inc10' or 'sessions 5,3,2'.")
_COMPONENTS = _option("D of every method that has one.", "each method's own", least=1)
_TRAIN = _option("Use the first so many training images of a class.", least=1)
_TEST = _option("Use the first so many test images of a class.", least=1)
_DRY_RUN = typer.Option("--dry-run", help="Show the plan with its cost, and run nothing.")


def bench(
    context: typer.Context,
    recipes: Annotated[list[str] | None, _RECIPES] = None,
    methods: Annotated[str | None, _option("Methods to run, separated by commas.")] = None,
    datasets: Annotated[str | None, _option("Data sets, or folders with train/ and test/.")] = None,
    protocol: Annotated[str | None, _PROTOCOL] = None,
    encoder: Annotated[str | None, _option("Encoders, separated by commas.")] = None,
    seeds: Annotated[str | None, _option("Seeds of the class order.")] = None,
    feature_seeds: Annotated[str | None, _option("Seeds of the methods' random numbers.")] = None,
    components: Annotated[int | None, _COMPONENTS] = None,
    train_per_class: Annotated[int | None, _TRAIN] = None,
    test_per_class: Annotated[int | None, _TEST] = None,
    text: Annotated[str | None, _option("Text features of the classes, a file.", "none")] = None,
    data: Annotated[Path | None, _option("Folder of the data sets.", "VISVM_DATA")] = None,
    output: Annotated[Path, _OUT] = Path("results"),
    dry_run: Annotated[bool, _DRY_RUN] = False,
    quiet: Quiet = False,
) -> None:
    """Run benchmarks of the paper. What is in results.jsonl already is not run again."""
    from visvm.bench.rows import open_for_appending
    from visvm.cli.terminal import out, progress_bars

    if not recipes:
        _list_recipes(context)
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
        "text": text,
    }
    chosen, insist = _read(recipes, changes, components), methods is not None
    with progress_bars(quiet) as progress:
        if dry_run:
            for recipe in chosen:
                _show_plan(recipe, data, output, progress, insist=insist)
            return
        with open_for_appending(output) as results:
            failures: list[Failure] = []
            for group in _groups(chosen, data, results, progress, insist=insist):
                failures += _run(group, results, output, progress, quiet)
    _require_none(failures)
    if not quiet:
        complete = f"{output / 'results.jsonl'} is complete"
        out().print(f"{complete}; for tables and figures: visvm report {output}", markup=False)


def _list_recipes(context: typer.Context) -> None:
    """List the recipes, unless options ask for more than that."""
    from visvm.bench.recipe import built_in
    from visvm.cli.terminal import out, table

    options = [each for each in context.command.params if each.name != "quiet"]
    sources = {each.opts[0]: context.get_parameter_source(str(each.name)) for each in options}
    given = [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
    if given:
        fact = f"{', '.join(given)} needs a recipe."
        raise InputError(f"{fact} Name one; 'visvm bench' lists them.", code="recipe-missing")
    rows = [(recipe.name, recipe.title, recipe.paper) for recipe in built_in().values()]
    out().print(table("recipes", ["name", "what", "in the paper"], rows))


def _listed(text: str | None, option: str) -> list[str] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        advice = "Name something, or leave it out."
        raise InputError(f"{option} names nothing: {text!r}. {advice}", code="option-empty")
    return parts


def _seeds(text: str | None, option: str) -> list[int] | None:
    from visvm.bench.recipe import MAX_SEED

    parts = _listed(text, option)
    if parts is None:
        return None
    if not all(part.isdecimal() and int(part) <= MAX_SEED for part in parts):
        wanted = f"whole numbers from 0 to {MAX_SEED}, separated by commas"
        raise InputError(f"{option} takes {wanted}, not {text!r}.", code="seeds-invalid")
    return [int(part) for part in parts]


def _read(recipes: list[str], changes: dict[str, Any], components: int | None) -> "list[Recipe]":
    """Read all recipes and check them: a mistake in the last should not show up after hours."""
    from visvm.bench.methods import METHODS
    from visvm.bench.plan import check_methods
    from visvm.bench.recipe import read_recipe

    chosen = [read_recipe(name).with_changes(**changes) for name in recipes]
    width = {} if components is None else {"n_components": components}
    chosen = [recipe.with_changes(options={**recipe.options, **width}) for recipe in chosen]
    if changes.get("methods"):  # which may leave nothing of what the recipe varies
        chosen = [recipe.with_changes(vary=_varied(recipe)) for recipe in chosen]
    for recipe in chosen:
        check_methods(recipe)
    methods = [method for recipe in chosen for method in recipe.methods]
    if width and not any("n_components" in METHODS[method].options for method in methods):
        fact = f"--components sets D, which {', '.join(methods)} do not have."
        raise InputError(f"{fact} Leave it out.", code="option-unused")
    return chosen


def _varied(recipe: "Recipe") -> dict[str, Any]:
    """Return what a recipe varies that one of its methods has."""
    from visvm.bench.methods import METHODS

    methods = (METHODS[method] for method in recipe.methods if method in METHODS)
    known = {name for method in methods for name in method.options}
    return {name: values for name, values in recipe.vary.items() if name in known}


def _groups(
    recipes: "list[Recipe]",
    data: Path | None,
    results: "Results",
    progress: "Progress",
    *,
    insist: bool,
    fetch: bool = True,
) -> "Iterator[RunGroup]":
    """Plan recipes, with a note on what is not run as one might think."""
    from visvm.bench.plan import plan
    from visvm.cli.terminal import note
    from visvm.encoders.loading import load_encoder, require_local

    def load(name: str) -> "Encoder":
        try:
            if not fetch:
                require_local(name)
            return load_encoder(name, progress)
        except EncoderError as error:
            if name in str(error):
                raise
            raise EncoderError(f"encoder {name}: {error}", code=error.code) from None

    for group in chain.from_iterable(plan(recipe, data, load, progress) for recipe in recipes):
        name, n_runs = group.data.name, len(group.runs)
        if n_outdated := sum(map(results.is_outdated, group.runs)):
            note(f"{n_outdated} of {n_runs} runs on {name} are of another revision: run again")
        for protocol, n_left in group.n_classes_left().items():
            left = f"{n_left} of its {len(group.data.classes)} classes"
            note(f"{protocol} of {name} leaves {left} out")
        for method, reason in group.refused.items():
            if insist:
                fact = reason.rstrip(".")
                raise EncoderError(f"{fact}. Leave this method out.", code="method-refused")
            note(f"{method} is left out: {reason}")
        yield group


def _run(
    group: "RunGroup", results: "Results", output: Path, progress: "Progress", quiet: bool
) -> "Iterator[Failure]":
    """Run a group, with a line for every run that is finished, and write its diagnosis."""
    from visvm.bench.runner import Failure, execute
    from visvm.cli.terminal import note
    from visvm.encoders.cache import FeatureCache
    from visvm.head.memory import human_bytes

    say = (lambda _: None) if quiet else note
    name = group.data.name
    with FeatureCache() as cache:
        if group.feature_bytes() > cache.limit:
            say(
                f"the features of {name} take {human_bytes(group.feature_bytes())}, "
                f"the cache holds {human_bytes(cache.limit)}: raise VISVM_CACHE_LIMIT, "
                "or images are encoded again each time"
            )
        if group.n_shared:
            share = f"{group.n_shared} of {len(group.data.test.images)} test images of {name}"
            say(f"{share} are training images too: accuracies may be off")
        for outcome in execute(group, results, cache, progress):
            if isinstance(outcome, Failure):
                say(_said(outcome))
                yield outcome
            elif outcome.session == outcome.n_sessions:
                say(_summary(outcome, list(results.accuracies(outcome.run).values())))
    yield from _diagnose(group, output, progress)


def _diagnose(group: "RunGroup", output: Path, progress: "Progress") -> "Iterator[Failure]":
    """Write the diagnosis of a group where its recipe asks for one and there is none yet."""
    from visvm.bench.diagnoses import diagnosis_of, is_there, path_of, write_diagnosis
    from visvm.bench.features import encode_data
    from visvm.bench.runner import Failure
    from visvm.encoders.cache import FeatureCache

    run = next((run for run in group.runs if run.text), None)
    if not group.analysis or run is None or is_there(output, run):
        return
    with FeatureCache() as cache:
        data = encode_data(group.data, group.encoder, group.transform, cache, progress)
    try:
        found = diagnosis_of(altered(data, texts=group.texts), group.setup(run), run, progress)
    except EncoderError as error:
        yield Failure(run, str(error))
        return
    write_diagnosis(path_of(output, run), found)


def _require_none(failures: "list[Failure]") -> None:
    if failures:
        said = f"Runs failed: {len(failures)}; the others are complete. The first: "
        raise VisvmError(said + _said(failures[0]), code="runs-failed")


def _said(failure: "Failure") -> str:
    run = failure.run
    return f"{run.method} on {run.dataset} {run.protocol} failed: {failure.reason}"


def _summary(row: "Row", accuracies: list[float]) -> str:
    from visvm.bench.metrics import average_accuracy
    from visvm.model.formats import percent

    run = row.run
    options = "".join(f" {name}={value}" for name, value in run.options.items())
    return (
        f"{run.dataset} {run.protocol} order {run.class_order_seed} {run.encoder}: "
        f"{run.method}{options} seed {run.seed}  "
        f"Ā {percent(average_accuracy(accuracies), 2, '')}  A_B {percent(row.accuracy, 2, '')}"
    )


def _show_plan(
    recipe: "Recipe", data: Path | None, output: Path, progress: "Progress", *, insist: bool
) -> None:
    from visvm.bench.estimate import operations_per_second
    from visvm.bench.rows import FILE_NAME, Results, read_rows
    from visvm.cli.terminal import note, out, table
    from visvm.head.memory import available_bytes, human_bytes

    path = output / FILE_NAME
    results = Results(path, read_rows(output) if path.exists() else [])
    speed = operations_per_second()
    groups = _groups([recipe], data, results, progress, insist=insist, fetch=False)
    costs = [_cost(group, results, speed) for group in groups]
    lines = [line for line, _, _ in costs]
    columns = ["data", "encoder", "runs to do", "images to encode", "encoding", "methods", "memory"]
    title = f"{recipe.name}: {recipe.title}"
    out().print(table(title, columns, lines, right=columns[2:]))
    total = _duration(sum(seconds for _, seconds, _ in costs))
    most = max((n_bytes for _, _, n_bytes in costs), default=0)
    needed = f"about {total} and {human_bytes(most)} of memory on this machine"
    out().print(f"{needed}; nothing was run", markup=False)
    free = available_bytes()
    if free is not None and most > free:
        advice = "take a smaller --components, or a machine with more memory"
        note(f"only {human_bytes(free)} are free: {advice}")


def _cost(
    group: "RunGroup", results: "Results", speed: float
) -> tuple[tuple[str, ...], float, int]:
    """Return the line of a group of runs in the table, and its seconds and bytes."""
    from visvm.bench.estimate import estimate
    from visvm.bench.features import count_missing, seconds_per_image
    from visvm.bench.methods import METHODS
    from visvm.bench.runner import missing_runs
    from visvm.encoders.cache import FeatureCache
    from visvm.head.memory import human_bytes, peak_bytes

    runs, encoded_by = missing_runs(group, results), (group.data, group.encoder, group.transform)
    with FeatureCache() as cache:
        n_missing = count_missing(*encoded_by, cache) if runs else 0
    timed = n_missing or any(METHODS[run.method].traits.trains for run in runs)
    each = seconds_per_image(*encoded_by) if timed else 0.0
    encoding = n_missing * each
    costs = [estimate(group, run, speed, each) for run in runs]
    learning = sum(cost.seconds for cost in costs)
    most = max((cost.n_bytes for cost in costs), default=0)
    n_bytes = (peak_bytes() or 0) + group.feature_bytes() + most
    protocols = ", ".join(dict.fromkeys(run.protocol for run in group.runs))
    line = (
        f"{group.data.name} {protocols}",
        group.encoder.name,
        f"{len(runs)} of {len(group.runs)}",
        f"{n_missing} of {group.n_images}",
        _duration(encoding),
        _duration(learning),
        human_bytes(n_bytes),
    )
    return line, encoding + learning, n_bytes


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def report(folder: Annotated[Path, _DIR] = Path("results"), quiet: Quiet = False) -> None:
    """Write report.html, report.md and figures from results.jsonl."""
    require_drawing()
    from visvm.bench.report.write import write_report
    from visvm.cli.terminal import out

    written = write_report(folder)
    if not quiet:
        pages = [path for path in written if path.suffix in (".html", ".md")]
        out().print("\n".join(map(str, pages)), markup=False)
