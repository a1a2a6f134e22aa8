"""The sections of a report that look closer: seeds, sensitivity, costs, confused classes; None where there are no rows for it."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from visvm.bench.report import plots, plots_analysis
from visvm.bench.report.comparison import (
    AVERAGE,
    FINAL,
    KINDS,
    Material,
    count,
    ranked,
    table_percent,
)
from visvm.bench.report.grouping import (
    SENSITIVE,
    Seeds,
    Setting,
    lines,
    option,
    repeated,
    sensitivity,
)
from visvm.bench.report.pages import Block, Cell, Column, Picture, Section, Table, TableRow
from visvm.bench.report.plots_analysis import digits
from visvm.bench.report.published import Numbers
from visvm.bench.report.summary import OURS, FinishedRun, environments, spread

_MOST_PAIRS, _MOST_CLASSES = 15, 20
_SEEDS: dict[Seeds, tuple[str, str]] = {
    "class_order_seed": ("class orders", "order by order"),
    "seed": ("feature seeds", "seed by seed"),
}
_PLUS_MINUS = "Mean ± sample standard deviation"


def class_orders(material: Material) -> Section | None:
    """Mean and deviation over class orders."""
    blocks: list[Block] = []
    for setting in material.settings:
        groups = repeated(setting, "class_order_seed")
        if groups:
            means = [_mean_line(label, group) for label, group in groups.items()]
            drawing = plots.curves(setting.label, means, material.look)
            caption = f"{setting.label}: mean over class orders; the band (vis) and the bars (others) are one standard deviation."
            blocks += [
                _spread_table(setting.label, groups, "class_order_seed", 2),
                Picture(f"class-orders-{material.names[setting.label]}", caption, drawing),
            ]
    intro = f"{_PLUS_MINUS} over class orders, the methods' own seed being 0."
    return Section("Class orders", [intro, *blocks]) if blocks else None


def random_features(material: Material) -> Section | None:
    """Mean and deviation over the methods' own seeds."""
    blocks: list[Block] = []
    for setting in material.settings:
        groups = repeated(setting, "seed")
        if groups:
            blocks.append(
                _spread_table(setting.label, groups, "seed", 3, material.numbers(setting).get(OURS))
            )
    intro = (
        f"{_PLUS_MINUS} over the seeds of the methods' own random numbers, the class order being 1993. Where the deviation is "
        "0, the method draws none. A seed decides the random map, and of vis also the split by which λ and blocks are chosen and "
        "how the mixer starts; the paper, whose numbers are in brackets where they apply, varies the map alone."
    )
    return Section("Random features", [intro, *blocks]) if blocks else None


def _mean_line(label: str, group: Sequence[FinishedRun]) -> plots.Line:
    over = spread([each.accuracies for each in group])
    return plots.Line(
        label, group[0].run.method, group[0].seen, list(100 * over.mean), list(100 * over.std)
    )


def _spread_table(
    caption: str,
    groups: dict[str, list[FinishedRun]],
    seeds: Seeds,
    decimals: int,
    published: Numbers | None = None,
) -> Table:
    def write(mean: float, std: float) -> str:
        return f"{mean:.{decimals}f} ± {std:.{decimals}f}"

    methods = [group[0].run.method for group in groups.values()]
    cells = [
        [Cell(label), Cell(", ".join(str(getattr(each.run, seeds)) for each in group))]
        for label, group in groups.items()
    ]
    asides = (None, None) if published is None else (published.average_seeds, published.final_seeds)
    for value, aside in zip((AVERAGE.value, FINAL.value), asides, strict=True):
        spreads = [spread([value(each) for each in group]) for group in groups.values()]
        column = ranked(
            methods, [each.mean for each in spreads], lambda mean: f"{100 * mean:.{decimals}f}"
        )
        for line, label, cell, each in zip(cells, groups, column, spreads, strict=True):
            beside = write(*aside) if aside and label == OURS else ""
            line.append(Cell(write(100 * each.mean, 100 * each.std), cell.mark, beside))
    ours = next((group for group in groups.values() if group[0].run.method == OURS), [])
    for line, group in zip(cells, groups.values(), strict=True):
        line.append(Cell("" if group is ours else _lead(ours, group, seeds, decimals)))
    which, one_by_one = _SEEDS[seeds]
    columns = (
        *(Column("method", words=True), Column(which, words=True), Column("Ā"), Column("A_B")),
        Column(f"A_B of {OURS} less this, {one_by_one}"),
    )
    rows = (
        TableRow(tuple(line), KINDS.get(method, ""))
        for line, method in zip(cells, methods, strict=True)
    )
    return Table(caption, columns, tuple(rows))


def _lead(
    ours: Sequence[FinishedRun], others: Sequence[FinishedRun], seeds: Seeds, decimals: int
) -> str:
    """How far ours is ahead after the last session, of the seeds that both have, and how often."""
    finals = {getattr(each.run, seeds): each.final for each in ours}
    leads = [
        100 * (finals[seed] - each.final)
        for each in others
        if (seed := getattr(each.run, seeds)) in finals
    ]
    if len(leads) < 2:
        return "–"
    over = spread(leads)
    return f"{over.mean:+.{decimals}f} ± {over.std:.{decimals}f}, ahead in {sum(lead > 0 for lead in leads)} of {len(leads)}"


def sensitivities(material: Material) -> Section | None:
    """Accuracy over the two options studied."""
    blocks: list[Block] = []
    for setting in material.settings:
        for number, (label, group) in enumerate(sensitivity(setting).items(), start=1):
            panels = [panel for name in SENSITIVE if (panel := _sweep(group, name)) is not None]
            if panels:
                drawing = plots.sweeps(f"{label}, {setting.label}", panels)
                over = " and over ".join(panel.option for panel in panels)
                caption = f"{label}, {setting.label}: accuracy after the last session over {over}."
                blocks.append(
                    Picture(
                        f"sensitivity-{number}-{material.names[setting.label]}", caption, drawing
                    )
                )
                blocks += [
                    _sweep_table(f"{label}, {setting.label}, over {panel.option}", panel)
                    for panel in panels
                ]
    intro = (
        "Accuracy after the last session on a fifth of the training images, the rest being learned. identity_weight is the "
        "paper's λ_adapt, n_components its D; where one is varied the other has its default, unless a legend says otherwise. "
        "Where there are several seeds or class orders, it is their mean, with one standard deviation."
    )
    return Section("Sensitivity", [intro, *blocks]) if blocks else None


def _sweep(group: Sequence[FinishedRun], name: str) -> plots.Sweep | None:
    """Final accuracy over one option; a line for each value of the other."""
    (other,) = (each for each in SENSITIVE if each != name)
    by_other = lines(group, name)
    values = sorted({option(each, name) for line in by_other.values() for each in line})
    drawn = {}
    for value, line in by_other.items():
        finals = {
            place: [100 * each.final for each in line if option(each, name) == place]
            for place in values
        }
        spreads = {place: spread(found) for place, found in finals.items() if found}
        drawn[f"{other} = {plots.plain(value)}"] = [
            (spreads[place].mean, spreads[place].std) if place in spreads else None
            for place in values
        ]
    return plots.Sweep(name, values, drawn) if drawn else None


def _sweep_table(caption: str, panel: plots.Sweep) -> Table:
    """The numbers of a panel: a line for each of its lines."""

    def write(point: tuple[float, float] | None) -> str:
        if point is None:
            return "–"
        mean, std = point
        return f"{mean:.2f} ± {std:.2f}" if std else f"{mean:.2f}"

    rows = (
        TableRow((Cell(name), *(Cell(write(point)) for point in points)))
        for name, points in panel.lines.items()
    )
    return Table(
        caption,
        (Column("A_B with", words=True), *(Column(plots.plain(value)) for value in panel.values)),
        tuple(rows),
    )


def trade_offs(material: Material) -> Section | None:
    """Accuracy against parameters and state."""
    pictures = []
    for settings in material.by_encoder.values():
        for setting in (each for each in settings if len(each.standard) > 1):
            caption = f"{setting.label}: average accuracy against trainable parameters (left) and size of the state (right)."
            drawing = plots_analysis.trade_offs(setting.label, _costs(setting), material.look)
            pictures.append(
                Picture(f"trade-offs-{material.names[setting.label]}", caption, drawing)
            )
    intro = (
        "Trainable parameters are those found by gradient descent. The state is all that must be kept to learn the next session "
        "and to predict, the encoder not counted. Their axes are logarithmic, with a place of its own for 0."
    )
    return (
        Section("Accuracy against parameters and state", [intro, *pictures]) if pictures else None
    )


def overhead(material: Material) -> Section | None:
    """Time and memory."""
    blocks: list[Block] = []
    for settings in material.by_encoder.values():
        for setting in settings:
            machines = environments(row for each in setting.standard.values() for row in each.rows)
            several = [name for name in ("cpu", "threads") if len(machines.get(name, [])) > 1]
            if several:
                blocks.append(
                    f"{setting.label}: measured with more than one {' and '.join(several)}; its times cannot be compared."
                )
            busy = _busy(setting)
            blocks += busy
            caption = f"{setting.label}: time and memory."
            drawing = plots_analysis.overhead(setting.label, _costs(setting), material.look)
            blocks += [
                _overhead_table(setting, rank_times=not busy and not several),
                Picture(f"overhead-{material.names[setting.label]}", caption, drawing),
            ]
            blocks += _published_overhead(material, setting)
    intro = (
        "All sessions together: learning, predicting all test images after every session, and both. The head's time for an image "
        "does not include the encoder's, which stands beside it. Peak memory is the whole process's, all features included."
    )
    return Section("Time and memory", [intro, *blocks]) if blocks else None


def _busy(setting: Setting) -> list[Block]:
    """A warning where other work ran beside."""
    rows = [row for each in setting.standard.values() for row in each.rows]
    loads = [
        row.load_average / row.environment.get("cores", row.environment.get("threads", 1))
        for row in rows
        if row.load_average is not None
    ]
    if len(loads) < len(rows):
        return [
            f"{setting.label}: whether other work ran beside is not known of all sessions; their times may be too long."
        ]
    if max(loads) <= _BUSY:
        return []
    share = 100 * sum(load > _BUSY for load in loads) / len(loads)
    most = f"up to {max(loads):.1f} times what the CPU can do at once"
    return [
        f"{setting.label}: other work ran beside {share:.0f} % of these sessions, {most}; times measured then are too long."
    ]


# processes that want to run, by the number of cores: from here on they wait for each other
_BUSY = 1.5

_OVERHEAD: tuple[tuple[str, str, Callable[[FinishedRun], float | None]], ...] = (
    ("total", "time (s)", lambda each: each.learn_seconds + each.predict_seconds),
    ("learn", "time (s)", lambda each: each.learn_seconds),
    ("predict", "time (s)", lambda each: each.predict_seconds),
    ("head", "ms an image", lambda each: 1000 * each.predict_seconds_per_image),
    (
        "encoder",
        "ms an image",
        lambda each: (
            None if each.encode_seconds_per_image is None else 1000 * each.encode_seconds_per_image
        ),
    ),
    (
        "peak",
        "memory (MB)",
        lambda each: None if each.peak_memory is None else each.peak_memory / 1e6,
    ),
    ("state", "memory (MB)", lambda each: each.rows[-1].state_bytes / 1e6),
)


def _overhead_table(setting: Setting, rank_times: bool) -> Table:
    runs = list(setting.standard.values())
    methods = [each.run.method for each in runs]
    columns = [
        [Cell(each.label) for each in runs],
        ranked(methods, [each.average for each in runs], table_percent),
        *(
            # The encoder is no merit of a method, and of times that cannot be compared none is the
            # best.
            _cost_column(
                methods,
                [value(each) for each in runs],
                marked=name != "encoder" and (rank_times or "memory" in kind),
            )
            for name, kind, value in _OVERHEAD
        ),
        [Cell(count(each.rows[-1].trainable_parameters)) for each in runs],
    ]
    heads = (
        Column("method", words=True),
        Column("Ā"),
        *(Column(name, group) for name, group, _ in _OVERHEAD),
        Column("trainable"),
    )
    rows = (
        TableRow(line, KINDS.get(method, ""))
        for line, method in zip(zip(*columns, strict=True), methods, strict=True)
    )
    return Table(setting.label, heads, tuple(rows))


def _cost_column(
    methods: Sequence[str], values: Sequence[float | None], marked: bool
) -> list[Cell]:
    cells = ranked(methods, values, digits, lowest=True)
    return cells if marked else [Cell(cell.text) for cell in cells]


def _published_overhead(material: Material, setting: Setting) -> list[Table]:
    known = material.published.overhead
    if not material.numbers(setting) or (setting.first.dataset, setting.first.protocol) != (
        known["dataset"],
        known["protocol"],
    ):
        return []
    names = (
        "Ā",
        "total (min)",
        "training (min)",
        "evaluation (min)",
        "peak GPU memory (GB)",
        "ms an image, encoder included",
    )
    rows = [
        TableRow(
            (Cell(material.published.printed(method)), *(Cell(f"{value:.2f}") for value in values)),
            KINDS.get(method, ""),
        )
        for method, values in known["methods"].items()
    ]
    caption = f"{setting.stream} in the paper, on {known['hardware']}: another kind of machine, so not to be compared with the above"
    return [Table(caption, (Column("method", words=True), *map(Column, names)), tuple(rows))]


def _costs(setting: Setting) -> list[plots_analysis.Measured]:
    return [
        plots_analysis.Measured(
            label=each.label,
            method=each.run.method,
            average=100 * each.average,
            trainable_parameters=each.rows[-1].trainable_parameters,
            state_bytes=each.rows[-1].state_bytes,
            learn_seconds=each.learn_seconds,
            predict_milliseconds=1000 * each.predict_seconds_per_image,
            peak_memory=each.peak_memory,
        )
        for each in setting.standard.values()
    ]


def confused_classes(material: Material) -> Section | None:
    """The most frequent confusions."""
    blocks: list[Block] = []
    for settings in material.by_encoder.values():
        for setting in settings:
            focus = setting.focus
            if focus is not None and focus.rows[-1].confusions:
                names, shares = _confused(focus)
                title = f"{focus.label}, {setting.label}"
                caption = f"{title}: the classes of the most frequent confusions; percent of a class's images, line by line."
                drawing = plots_analysis.confusion_map(title, names, shares)
                blocks += [
                    _pairs_table(title, focus),
                    Picture(f"confusions-{material.names[setting.label]}", caption, drawing),
                ]
    intro = "After the last session: which classes were most often taken for which, by number of test images."
    return Section("Most confused classes", [intro, *blocks]) if blocks else None


def _pairs_table(caption: str, run: FinishedRun) -> Table:
    names, last = run.class_names, run.rows[-1]
    rows = []
    for label, taken, images in last.confusions[:_MOST_PAIRS]:
        of = last.class_counts[label]
        rows.append(
            TableRow(
                (
                    Cell(names[label]),
                    Cell(names[taken]),
                    Cell(count(images)),
                    Cell(count(of)),
                    Cell(f"{100 * images / of:.1f}"),
                )
            )
        )
    columns = (
        Column("class", words=True),
        Column("taken for", words=True),
        Column("images"),
        Column("of"),
        Column("%"),
    )
    return Table(caption, columns, tuple(rows))


def _confused(run: FinishedRun) -> tuple[list[str], NDArray[np.float64]]:
    """Names of the classes of the most frequent confusions, pairs side by side, and what they were taken for, in percent."""
    last = run.rows[-1]
    involved = list(dict.fromkeys(label for pair in last.confusions for label in pair[:2]))[
        :_MOST_CLASSES
    ]
    place = {label: number for number, label in enumerate(involved)}
    shares = np.zeros((len(involved), len(involved)))
    for label, number in place.items():
        shares[number, number] = 100 * last.class_correct[label] / last.class_counts[label]
    for label, taken, images in last.confusions:
        if label in place and taken in place:
            shares[place[label], place[taken]] = 100 * images / last.class_counts[label]
    return [run.class_names[label] for label in involved], shares
