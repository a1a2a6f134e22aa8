"""What was run and where, what the methods chose, and runs that no comparison takes in."""

from visvm.bench.report.comparison import Material, in_percent
from visvm.bench.report.formats import count
from visvm.bench.report.grouping import Setting, elsewhere
from visvm.bench.report.pages import Block, Section, Table, section, text_table
from visvm.bench.report.summary import FinishedRun, environments, grouped, with_options
from visvm.bench.rows import Run

_IDENTITY = ("method", "data set", "protocol", "encoder", "class order", "seed", "split")


def what_was_run(material: Material) -> Section:
    """List data sets, encoders, machines, dates, and runs that are not finished."""
    days = sorted(row.measured_at[:10] for row in material.rows)
    methods = ", ".join(sorted({row.run.method for row in material.rows}))
    finished, unfinished = len(material.finished), len(material.unfinished)
    said = (
        f"{count(len(material.rows))} rows, measured from {days[0]} to {days[-1]}: "
        f"{count(finished)} runs are finished, {count(unfinished)} are not. "
        f"Methods: {methods}.{_outdated(material)}"
    )
    blocks: list[Block] = [said]
    if material.settings:
        blocks += [_data_table(material), _encoder_table(material)]
    else:
        blocks.append("No run is finished: there is nothing to compare yet.")
    blocks += _machines(material)
    if material.unfinished:
        lines = [
            (*_identity(each.run), f"{len(each.sessions)} of {each.n_sessions}")
            for each in material.unfinished
        ]
        blocks += [
            "These runs lack sessions; their numbers appear nowhere in this report.",
            text_table("Unfinished runs", (*_IDENTITY, "sessions there"), lines),
        ]
    return Section("What was run", blocks)


def _outdated(material: Material) -> str:
    """Say how many rows are left out because their method's code has changed since."""
    runs = [each.run for each in material.finished] + [each.run for each in material.unfinished]
    used = {run.key: run for run in runs}
    n = sum(row.run.key not in used for row in material.rows)
    said = f" {count(n)} rows measured by older code of a method are left out." if n else ""
    by_method = grouped(used.values(), lambda run: run.method)
    revisions = {name: {run.revision for run in runs} for name, runs in by_method.items()}
    mixed = ", ".join(name for name, found in sorted(revisions.items()) if len(found) > 1)
    if mixed:
        said += f" The code of {mixed} has changed between settings: do not compare these."
    return said


def _machines(material: Material) -> list[Block]:
    machine = environments(material.rows)
    several = [name for name, values in machine.items() if len(values) > 1]
    said = "All rows come from one machine and one set of versions."
    if several:
        said = (
            "The rows do not all come from one machine and one set of versions: there are several "
            f"values of {', '.join(several)}. Do not compare times and memory across them."
        )
    lines = [(name, "; ".join(values)) for name, values in machine.items()]
    return [said, text_table("Where it was measured", ("what", "value"), lines)]


def _data_table(material: Material) -> Table:
    header = ("data set", "protocols", "classes", "learned", "tested")
    by_data = grouped(material.settings, lambda setting: setting.data)
    lines = [(name, *_data_line(settings)) for name, settings in by_data.items()]
    return text_table("Data sets", (*header, "test images among those learned", "digest"), lines)


def _data_line(settings: list[Setting]) -> tuple[str, ...]:
    runs = [each for setting in settings for each in setting.runs]
    largest = max(runs, key=lambda each: each.n_images)
    learned, tested = sum(row.n_train for row in largest.rows), largest.rows[-1].n_test
    sizes = len(largest.class_names), learned, tested
    protocols = ", ".join(dict.fromkeys(setting.first.protocol for setting in settings))
    shared = [row.n_shared for each in runs for row in each.rows if row.n_shared is not None]
    known = count(shared[0]) if shared else "unknown"
    return protocols, *map(count, sizes), known, largest.run.data_digest[:8]


def _encoder_table(material: Material) -> Table:
    first = {setting.encoder: setting.first for setting in material.settings}
    lines = [
        (label, run.encoder, run.weights_digest[:8], run.transform) for label, run in first.items()
    ]
    header = ("encoder", "as given", "digest of the weights", "transform")
    return text_table("Encoders", header, lines)


def choices(material: Material) -> Section | None:
    """List what the methods chose themselves."""
    blocks = []
    for setting in material.compared:
        runs = [each for each in setting.standard.values() if each.rows[-1].choices]
        lines = [(each.label, _choices(each)) for each in runs]
        if lines:
            blocks.append(text_table(setting.label, ("method", "settled on"), lines))
    intro = (
        "What each method chose from the training images it had seen; "
        "where it chose again later, the last choice."
    )
    return section("Choices", intro, blocks)


def _choices(each: FinishedRun) -> str:
    """Write the choices of a run after its last session in words."""

    def text(value: object) -> str:
        if isinstance(value, float):
            return f"{value:.4g}"
        return " ".join(map(str, value)) if isinstance(value, list) else str(value).lower()

    found = each.rows[-1].choices.items()
    return ", ".join(
        f"{name.replace('_', ' ')} {text(value)}" for name, value in found if value is not None
    )


def other_runs(material: Material) -> Section | None:
    """List finished runs that no comparison takes in."""
    runs = [each for setting in material.settings for each in elsewhere(setting)]
    if not runs:
        return None
    lines = [
        (*_identity(each.run), in_percent(each.average), in_percent(each.final)) for each in runs
    ]
    table = text_table("Other runs", (*_IDENTITY, "Ā", "A_B"), lines)
    return Section(
        "Other runs", ["Finished runs that are in none of the comparisons above.", table]
    )


def _identity(run: Run) -> tuple[str, ...]:
    seeds = (str(run.class_order_seed), str(run.seed))
    method = with_options(run.method, run.options)
    return method, run.dataset, run.protocol, run.encoder, *seeds, run.split
