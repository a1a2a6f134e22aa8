"""The sections of a report that follow the paper's main tables and figures; each gives None where there are no rows for it."""

from collections.abc import Sequence
from typing import Any

from visvm.bench.methods import METHODS
from visvm.bench.report import plots, plots_analysis
from visvm.bench.report.comparison import (
    AVERAGE,
    FINAL,
    Material,
    Measure,
    about_published,
    compare,
    count,
    in_parts,
    table_percent,
)
from visvm.bench.report.grouping import Setting, elsewhere
from visvm.bench.report.pages import Block, Cell, Column, Picture, Section, Table, TableRow
from visvm.bench.report.summary import (
    ORACLE,
    RELATIVES,
    FinishedRun,
    environments,
    grouped,
    with_options,
)
from visvm.bench.rows import Run

_ABLATION = ("zs-clip", "visual-lssvm", "visual-lssvm+kernel", "vis-paper", "vis")
_CLASSIFIERS = ("ncm", "ridge", "vis")


def what_was_run(material: Material) -> Section:
    """Data sets, encoders, machines, dates, and runs that are not finished."""
    days = sorted(row.measured_at[:10] for row in material.rows)
    methods = ", ".join(dict.fromkeys(sorted(row.run.method for row in material.rows)))
    machine = environments(material.rows)
    several = [name for name, values in machine.items() if len(values) > 1]
    runs = f"{count(len(material.finished))} runs are finished, {count(len(material.unfinished))} are not"
    one, many = (
        "All rows come from one machine and one set of versions.",
        "The rows do not all come from one machine and one set of versions",
    )
    blocks: list[Block] = [
        f"{count(len(material.rows))} rows, measured from {days[0]} to {days[-1]}: {runs}. Methods: {methods}."
        + _outdated(material),
        *(
            [_data_table(material), _encoder_table(material)]
            if material.settings
            else ["No run is finished: there is nothing to compare yet."]
        ),
        f"{many}: there are several values of {', '.join(several)}. Times and memory must not be compared across them."
        if several
        else one,
        _plain_table(
            "Where it was measured",
            ("what", "value"),
            [(name, "; ".join(values)) for name, values in machine.items()],
        ),
    ]
    if material.unfinished:
        header = (
            "method",
            "data set",
            "protocol",
            "encoder",
            "class order",
            "seed",
            "split",
            "sessions there",
        )
        lines = [
            (*_identity(each.run), f"{len(each.sessions)} of {each.n_sessions}")
            for each in material.unfinished
        ]
        blocks += [
            "Of these runs sessions are missing; their numbers are nowhere in this report.",
            _plain_table("Unfinished runs", header, lines),
        ]
    return Section("What was run", blocks)


def _outdated(material: Material) -> str:
    """How many rows are left out because their method's code has changed since."""
    used = {
        run.key: run
        for run in [each.run for each in material.finished]
        + [each.run for each in material.unfinished]
    }
    n = sum(row.run.key not in used for row in material.rows)
    said = f" {count(n)} rows that older code of a method had measured are left out." if n else ""
    by_method = grouped(used.values(), lambda run: run.method)
    mixed = [
        method
        for method, runs in sorted(by_method.items())
        if len({run.revision for run in runs}) > 1
    ]
    other = f" Code has changed between settings: of {', '.join(mixed)} these must not be compared with each other."
    return said + (other if mixed else "")


def main_table(material: Material) -> Section | None:
    """Ā and A_B of every method on every data set and protocol."""
    blocks: list[Block] = []
    for encoder, found in material.by_encoder.items():
        blocks += about_published(material, found)
        blocks += [
            compare(material, encoder, part, (AVERAGE, FINAL)) for part in in_parts(found, 6)
        ]
    ceiling = any(
        run.run.method == ORACLE
        for setting in material.settings
        for run in setting.standard.values()
    )
    intro = (
        "Average accuracy over sessions (Ā) and accuracy after the last session (A_B), in percent: class order 1993, seed 0 (or "
        "the least there are), test images, default options; a method that was run with other options only has them behind its "
        "name. The best is bold, the second underlined."
    )
    oracle = f" {ORACLE} keeps all images seen and learns them anew after every session: a ceiling, not a competitor."
    return (
        Section("Accuracy", [intro + _widths(material) + (oracle if ceiling else ""), *blocks])
        if blocks
        else None
    )


def _widths(material: Material) -> str:
    """D of the methods that were run with their defaults, which is not the same for all."""
    shown = {
        each.run.method
        for setting in material.settings
        for each in setting.standard.values()
        if not each.run.options
    }
    defaults = {
        method: METHODS[method].options.get("n_components", 0)
        for method in METHODS
        if method in shown
    }
    by_width: dict[int, list[str]] = grouped(
        (method for method, width in defaults.items() if width), defaults.__getitem__
    )
    said = "; ".join(
        f"{count(width)} of {', '.join(methods)}"
        for width, methods in sorted(by_width.items(), reverse=True)
    )
    return f" D is each method's own: {said}." if said else ""


def curves(material: Material) -> Section | None:
    """Accuracy over classes seen."""
    found = [setting for settings in material.by_encoder.values() for setting in settings]
    pictures = [
        _curves_of(material, setting)
        for setting in found
        if any(len(each.rows) > 1 for each in setting.standard.values())
    ]
    intro = (
        "Accuracy on all classes seen, after every session. Behind each name is the accuracy after the last session; in brackets "
        "behind vis, by how many points it is ahead of the best other method (a minus: behind it). The oracle is none, and the "
        "relatives of vis (parts left out, trained otherwise, another classifier) are told apart, below."
    )
    return Section("Accuracy over classes seen", [intro, *pictures]) if pictures else None


def _curves_of(material: Material, setting: Setting) -> Picture:
    runs = list(setting.standard.values())
    lines = [
        plots.Line(
            each.label, each.run.method, each.seen, [100 * value for value in each.accuracies]
        )
        for each in runs
    ]
    gaps = {
        "best other method": plots.gap(lines),
        "best relative": plots.gap(lines, RELATIVES.__contains__),
    }
    told = {kind: gap for kind, gap in gaps.items() if gap is not None}
    where = [f"{_distance(gap.points)} {gap.other}, the {kind}" for kind, gap in told.items()]
    said = (
        f" In the end {next(iter(told.values())).ours} is {', and '.join(where)}." if told else ""
    )
    drawing = plots.curves(setting.label, lines, material.look)
    return Picture(
        f"curves-{material.names[setting.label]}",
        f"{setting.label}: accuracy over classes seen.{said}",
        drawing,
    )


def _distance(points: float) -> str:
    shown = f"{abs(points):.2f}"
    if shown == "0.00":
        return "level with"
    return f"{shown} points {'ahead of' if points > 0 else 'behind'}"


def ablation(material: Material) -> Section | None:
    """The parts of ours, added one by one."""
    intro = "Accuracy after the last session: a linear LS-SVM on the last block's feature, with the kernel map, with fused blocks."
    ran = {each.run.method for each in material.finished}
    without = " zs-clip, the paper's first bar, is left out: it needs the text encoder of CLIP, and only image encoders were run."
    return _bars_section(
        material, "Ablation", intro + ("" if "zs-clip" in ran else without), _ABLATION
    )


def classifiers(material: Material) -> Section | None:
    """Three classifiers on the same features."""
    intro = "Accuracy after the last session of class means, one-hot ridge and LS-SVM on the same fused and lifted features."
    return _bars_section(material, "Choice of classifier", intro, _CLASSIFIERS)


def _bars_section(
    material: Material, title: str, intro: str, methods: Sequence[str]
) -> Section | None:
    pictures = []
    for encoder, settings in material.by_encoder.items():
        groups = [group for setting in settings if len((group := _bars(setting, methods))[1]) > 1]
        shown = [method for method in methods if any(method in heights for _, heights in groups)]
        if groups:
            drawing = plots.bars(encoder, groups, shown, material.look)
            name = f"{title.lower().replace(' ', '-')}-{material.names[encoder]}"
            pictures.append(
                Picture(
                    name,
                    f"{title} with {encoder}: {', '.join(shown)}; accuracy after the last session.",
                    drawing,
                )
            )
    return Section(title, [intro, *pictures]) if pictures else None


def _bars(setting: Setting, methods: Sequence[str]) -> tuple[str, dict[str, float]]:
    """What stands below a group of bars, and their heights: of as many methods as were run with the same options."""
    runs = [each for each in setting.standard.values() if each.run.method in methods]

    def alike(options: dict[str, Any]) -> dict[str, float]:
        same = [
            each for each in runs if each.run.options == METHODS[each.run.method].changed(options)
        ]
        return {each.run.method: 100 * each.final for each in same}

    options = max(
        (each.run.options for each in runs),
        key=lambda options: (len(alike(options)), -len(options)),
        default={},
    )
    return with_options(setting.stacked, options), alike(options)


def backbones(material: Material) -> Section | None:
    """The same images and sessions, seen by several encoders."""
    usable = [setting for settings in material.by_encoder.values() for setting in settings]
    blocks: list[Block] = []
    for stream, settings in grouped(usable, lambda setting: setting.stream).items():
        for part in in_parts(settings, 6) if len(settings) > 1 else []:
            blocks.append(
                compare(
                    material,
                    stream,
                    part,
                    (AVERAGE, FINAL),
                    lambda setting: setting.encoder,
                    only_ran=True,
                )
            )
    intro = "The same images in the same sessions, seen by different encoders. In brackets, where they apply: numbers of the paper."
    return Section("Encoders", [intro, *blocks]) if blocks else None


def forgetting(material: Material) -> Section | None:
    """F_B, and each session's classes over time."""
    measure = Measure(
        "F_B", lambda each: each.forgetting, lambda numbers: numbers.forgetting, lowest=True
    )
    blocks: list[Block] = []
    for encoder, found in material.by_encoder.items():
        settings = [
            setting
            for setting in found
            if any(len(each.rows) > 1 for each in setting.standard.values())
        ]
        for number, part in enumerate(in_parts(settings, 6), start=1):
            blocks.append(compare(material, encoder, part, (measure,)))
            focus = {
                setting.stacked: each for setting in part if (each := setting.focus) is not None
            }
            if focus:
                panels = [
                    (stream, [[100 * value for value in row.group_accuracy] for row in each.rows])
                    for stream, each in focus.items()
                ]
                labels = ", ".join(dict.fromkeys(each.label for each in focus.values()))
                name = f"sessions-{number}-{material.names[encoder]}"
                caption = f"{encoder}, {labels}: accuracy on each session's classes (in percent) after it and after every later one."
                blocks.append(
                    Picture(
                        name, caption, plots_analysis.session_maps(f"{labels}, {encoder}", panels)
                    )
                )
    intro = (
        "F_B, in points: how far the accuracy on each session's classes has fallen from its best before the last session to the "
        "end, averaged over all sessions but the last. Lower is better; below 0, it has risen. Some of it is no loss of memory: "
        "with more classes there is more to confuse."
    )
    return Section("Forgetting", [intro, *blocks]) if blocks else None


def old_and_new(material: Material) -> Section | None:
    """Accuracy on old and on new classes after the last session."""
    measures = (
        Measure("old", lambda each: each.rows[-1].old_accuracy),
        Measure("new", lambda each: each.rows[-1].new_accuracy),
        Measure("harmonic", lambda each: each.rows[-1].harmonic_mean),
    )

    def told(each: FinishedRun) -> bool:
        return each.rows[-1].harmonic_mean is not None

    blocks = []
    for encoder, found in material.by_encoder.items():
        settings = [setting for setting in found if any(map(told, setting.standard.values()))]
        blocks += [compare(material, encoder, part, measures) for part in in_parts(settings, 4)]
    intro = "After the last session: accuracy on the classes of earlier sessions, on those of the last, and their harmonic mean."
    return Section("Old and new classes", [intro, *blocks]) if blocks else None


def choices(material: Material) -> Section | None:
    """What the methods settled on by themselves."""
    blocks: list[Block] = []
    for settings in material.by_encoder.values():
        for setting in settings:
            lines = [
                (each.label, _told(each))
                for each in setting.standard.values()
                if each.rows[-1].choices
            ]
            if lines:
                blocks.append(_plain_table(setting.label, ("method", "settled on"), lines))
    intro = "What each method chose by itself from the training images it had seen; where it chose anew, the last choice."
    return Section("Choices", [intro, *blocks]) if blocks else None


def _told(each: FinishedRun) -> str:
    """The choices of a run after its last session, in words."""

    def value(said: object) -> str:
        if isinstance(said, float):
            return f"{said:.4g}"
        return " ".join(map(str, said)) if isinstance(said, list) else str(said).lower()

    return ", ".join(
        f"{name.replace('_', ' ')} {value(said)}"
        for name, said in each.rows[-1].choices.items()
        if said is not None
    )


def _data_table(material: Material) -> Table:
    lines = []
    for settings in grouped(material.settings, lambda setting: setting.data).values():
        largest = max(
            (each for setting in settings for each in setting.runs), key=lambda each: each.n_images
        )
        trained, tested = sum(row.n_train for row in largest.rows), largest.rows[-1].n_test
        protocols = ", ".join(dict.fromkeys(setting.first.protocol for setting in settings))
        digest = largest.run.data_digest[:8]
        counts = [
            row.n_shared
            for setting in settings
            for each in setting.runs
            for row in each.rows
            if row.n_shared is not None
        ]
        told = count(counts[0]) if counts else "not told"
        lines.append(
            (
                settings[0].data,
                protocols,
                *map(count, (len(largest.class_names), trained, tested)),
                told,
                digest,
            )
        )
    header = (
        "data set",
        "protocols",
        "classes",
        "learned",
        "tested",
        "test images among those learned",
        "digest",
    )
    return _plain_table("Data sets", header, lines)


def _encoder_table(material: Material) -> Table:
    first = {setting.encoder: setting.first for setting in material.settings}
    lines = [
        (label, run.encoder, run.weights_digest[:8], run.transform) for label, run in first.items()
    ]
    return _plain_table(
        "Encoders", ("encoder", "as given", "digest of the weights", "transform"), lines
    )


def _plain_table(caption: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    rows = tuple(TableRow(tuple(map(Cell, line))) for line in lines)
    return Table(caption, tuple(Column(name, words=True) for name in header), rows)


def _identity(run: Run) -> tuple[str, ...]:
    return (
        with_options(run.method, run.options),
        run.dataset,
        run.protocol,
        run.encoder,
        str(run.class_order_seed),
        str(run.seed),
        run.split,
    )


def other_runs(material: Material) -> Section | None:
    """Finished runs that no comparison takes in."""
    header = (
        "method",
        "data set",
        "protocol",
        "encoder",
        "class order",
        "seed",
        "split",
        "Ā",
        "A_B",
    )
    runs = [each for setting in material.settings for each in elsewhere(setting)]
    lines = [
        (*_identity(each.run), table_percent(each.average), table_percent(each.final))
        for each in runs
    ]
    return (
        Section(
            "Other runs",
            [
                "Finished runs that none of the comparisons above takes in.",
                _plain_table("Other runs", header, lines),
            ],
        )
        if runs
        else None
    )
