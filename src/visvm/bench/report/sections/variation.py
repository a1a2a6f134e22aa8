"""Sections about what seeds, class orders and options change."""

from collections.abc import Sequence

from visvm.bench.report import plots
from visvm.bench.report.comparison import AVERAGE, FINAL, Material, method_table, ranked
from visvm.bench.report.formats import plain
from visvm.bench.report.grouping import SENSITIVE, Seeds, lines, option, repeated, sensitivity
from visvm.bench.report.pages import Block, Cell, Column, Picture, Section, Table, TableRow, section
from visvm.bench.report.summary import OURS, FinishedRun, spread

_SEEDS: dict[Seeds, tuple[str, str, int]] = {  # what they are, one at a time, decimals to show
    "class_order_seed": ("class orders", "order by order", 2),
    "seed": ("feature seeds", "seed by seed", 3),
}
_PLUS_MINUS = "Mean ± sample standard deviation"
_Pair = tuple[float, float]


def class_orders(material: Material) -> Section | None:
    """Compare means and deviations over class orders."""
    blocks: list[Block] = []
    for setting in material.settings:
        groups = repeated(setting, "class_order_seed")
        if groups:
            means = [_mean_line(label, group) for label, group in groups.items()]
            drawing = plots.draw_curves(setting.label, means, material.look)
            caption = (
                f"{setting.label}: mean over class orders; the band (vis) and the bars (others) "
                "are one standard deviation."
            )
            picture = Picture(f"class-orders-{material.names[setting.label]}", caption, drawing)
            blocks += [_spread_table(setting.label, groups, "class_order_seed"), picture]
    intro = f"{_PLUS_MINUS} over class orders, the methods' own seed being 0."
    return section("Class orders", intro, blocks)


def random_features(material: Material) -> Section | None:
    """Compare means and deviations over the methods' own seeds."""
    blocks = []
    for setting in material.settings:
        groups = repeated(setting, "seed")
        if groups:
            known = material.numbers(setting).get(OURS)
            published = (known.average_seeds, known.final_seeds) if known else (None, None)
            blocks.append(_spread_table(setting.label, groups, "seed", published))
    intro = (
        f"{_PLUS_MINUS} over the seeds of the methods' own random numbers, the class order being "
        "1993. Where the deviation is 0, the method draws none. A seed decides the random map, and "
        "of vis also the split by which λ and blocks are chosen and how the mixer starts; the "
        "paper, whose numbers are in brackets where they apply, varies the map alone."
    )
    return section("Random features", intro, blocks)


def _mean_line(label: str, group: Sequence[FinishedRun]) -> plots.Line:
    over = spread([each.accuracies for each in group])
    mean, std = list(100 * over.mean), list(100 * over.std)
    return plots.Line(label, group[0].run.method, group[0].seen, mean, std)


def _spread_table(
    caption: str,
    groups: dict[str, list[FinishedRun]],
    seeds: Seeds,
    published: tuple[_Pair | None, _Pair | None] = (None, None),
) -> Table:
    which, one_by_one, decimals = _SEEDS[seeds]
    runs = list(groups.values())
    methods = [group[0].run.method for group in runs]
    given = [", ".join(str(getattr(each.run, seeds)) for each in group) for group in runs]
    columns = [
        (Column("method", words=True), list(map(Cell, groups))),
        (Column(which, words=True), list(map(Cell, given))),
    ]
    for measure, known in zip((AVERAGE, FINAL), published, strict=True):
        spreads = [spread([measure.value(each) for each in group]) for group in runs]
        means = [100 * each.mean for each in spreads]
        order = ranked(methods, means, lambda mean: f"{mean:.{decimals}f}")
        aside = _mean_std(*known, decimals) if known else ""
        cells = [
            Cell(_mean_std(mean, 100 * each.std, decimals), cell.mark, aside * (label == OURS))
            for label, mean, each, cell in zip(groups, means, spreads, order, strict=True)
        ]
        columns.append((Column(measure.name), cells))
    ours = next((group for group in runs if group[0].run.method == OURS), [])
    leads = [Cell("" if group is ours else _lead(ours, group, seeds, decimals)) for group in runs]
    columns.append((Column(f"A_B of {OURS} less this, {one_by_one}"), leads))
    return method_table(caption, methods, columns)


def _mean_std(mean: float, std: float, decimals: int, sign: str = "") -> str:
    return f"{mean:{sign}.{decimals}f} ± {std:.{decimals}f}"


def _lead(
    ours: Sequence[FinishedRun], others: Sequence[FinishedRun], seeds: Seeds, decimals: int
) -> str:
    """Say how far ours is ahead after the last session, over the seeds of both, and how often."""
    finals = {getattr(each.run, seeds): each.final for each in ours}
    leads = [
        100 * (finals[seed] - each.final)
        for each in others
        if (seed := getattr(each.run, seeds)) in finals
    ]
    if len(leads) < 2:
        return "–"
    over, ahead = spread(leads), sum(lead > 0 for lead in leads)
    return f"{_mean_std(over.mean, over.std, decimals, '+')}, ahead in {ahead} of {len(leads)}"


def sensitivities(material: Material) -> Section | None:
    """Draw accuracy over the two options studied, and list it."""
    blocks: list[Block] = []
    for setting in material.settings:
        for number, (label, group) in enumerate(sensitivity(setting).items(), start=1):
            name = f"sensitivity-{number}-{material.names[setting.label]}"
            blocks += _sensitivity(name, f"{label}, {setting.label}", group)
    intro = (
        "Accuracy after the last session on a fifth of the training images, the rest being "
        "learned. identity_weight is the paper's λ_adapt, n_components its D; where one is varied "
        "the other has its default, unless a legend says otherwise. Where there are several seeds "
        "or class orders, it is their mean, with one standard deviation."
    )
    return section("Sensitivity", intro, blocks)


def _sensitivity(name: str, title: str, group: Sequence[FinishedRun]) -> list[Block]:
    panels = [panel for option in SENSITIVE if (panel := _sweep(group, option)) is not None]
    if not panels:
        return []
    over = " and over ".join(panel.option for panel in panels)
    caption = f"{title}: accuracy after the last session over {over}."
    tables = [_sweep_table(f"{title}, over {panel.option}", panel) for panel in panels]
    return [Picture(name, caption, plots.sweeps(title, panels)), *tables]


def _sweep(group: Sequence[FinishedRun], name: str) -> plots.Sweep | None:
    """Return final accuracy over one option, a line for each value of the other."""
    (other,) = (each for each in SENSITIVE if each != name)
    by_other = lines(group, name)
    values = sorted({option(each, name) for line in by_other.values() for each in line})

    def point(line: Sequence[FinishedRun], value: float) -> _Pair | None:
        finals = [100 * each.final for each in line if option(each, name) == value]
        return (spread(finals).mean, spread(finals).std) if finals else None

    drawn = {
        f"{other} = {plain(key)}": [point(line, value) for value in values]
        for key, line in by_other.items()
    }
    return plots.Sweep(name, values, drawn) if drawn else None


def _sweep_table(caption: str, panel: plots.Sweep) -> Table:
    """List the numbers of a panel: a row for each of its lines."""

    def write(point: _Pair | None) -> str:
        if point is None:
            return "–"
        mean, std = point
        return _mean_std(mean, std, 2) if std else f"{mean:.2f}"

    rows = tuple(
        TableRow((Cell(name), *(Cell(write(point)) for point in points)))
        for name, points in panel.lines.items()
    )
    columns = (Column("A_B with", words=True), *(Column(plain(each)) for each in panel.values))
    return Table(caption, columns, rows)
