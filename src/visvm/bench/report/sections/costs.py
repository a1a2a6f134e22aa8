"""Sections about what accuracy costs: parameters, state, time and memory."""

from collections.abc import Callable, Iterator

from visvm.bench.report import plots_costs
from visvm.bench.report.comparison import Material, method_table, ranked
from visvm.bench.report.formats import count, digits
from visvm.bench.report.grouping import Setting
from visvm.bench.report.pages import Block, Cell, Column, Picture, Section, Table, section
from visvm.bench.report.summary import FinishedRun, environments

_BUSY = 1.5  # processes that want to run, for each core: above it they wait for each other


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else factor * value


_OVERHEAD: tuple[tuple[str, str, Callable[[FinishedRun], float | None]], ...] = (
    ("total", "time (s)", lambda each: each.learn_seconds + each.predict_seconds),
    ("learn", "time (s)", lambda each: each.learn_seconds),
    ("predict", "time (s)", lambda each: each.predict_seconds),
    ("head", "ms an image", lambda each: 1000 * each.predict_seconds_per_image),
    ("encoder", "ms an image", lambda each: _times(1000, each.encode_seconds_per_image)),
    ("peak", "memory (MB)", lambda each: _times(1e-6, each.peak_memory)),
    ("state", "memory (MB)", lambda each: each.rows[-1].state_bytes / 1e6),
)
_PUBLISHED = (
    *("Ā", "total (min)", "training (min)", "evaluation (min)", "peak GPU memory (GB)"),
    "ms an image, encoder included",
)


def trade_offs(material: Material) -> Section | None:
    """Draw accuracy against parameters and state."""
    pictures = []
    for setting in (each for each in material.compared if len(each.standard) > 1):
        runs = list(setting.standard.values())
        caption = (
            f"{setting.label}: average accuracy against trainable parameters (left) and size of "
            "the state (right)."
        )
        drawing = plots_costs.draw_trade_offs(setting.label, runs, material.look)
        pictures.append(Picture(f"trade-offs-{material.names[setting.label]}", caption, drawing))
    intro = (
        "Trainable parameters are those found by gradient descent. The state is all that must be "
        "kept to learn the next session and to predict, without the encoder. Their axes are "
        "logarithmic, with a place of its own for 0."
    )
    return section("Accuracy against parameters and state", intro, pictures)


def overhead(material: Material) -> Section | None:
    """List and draw time and memory."""
    blocks: list[Block] = []
    for setting in material.compared:
        warnings, runs = list(_warnings(setting)), list(setting.standard.values())
        name = f"overhead-{material.names[setting.label]}"
        drawing = plots_costs.draw_overhead(setting.label, runs, material.look)
        blocks += [
            *warnings,
            _overhead_table(setting, rank_times=not warnings),
            Picture(name, f"{setting.label}: time and memory.", drawing),
            *_published_overhead(material, setting),
        ]
    intro = (
        "All sessions together: learning, predicting all test images after every session, and "
        "both. The head's time for an image does not include the encoder's, which stands beside "
        "it. Peak memory is that of the whole process, all features included."
    )
    return section("Time and memory", intro, blocks)


def _warnings(setting: Setting) -> Iterator[str]:
    """Say why times cannot be compared: other machines, or other work on them."""
    rows = [row for each in setting.standard.values() for row in each.rows]
    machines = environments(rows)
    several = [name for name in ("cpu", "threads") if len(machines.get(name, [])) > 1]
    if several:
        names = " and ".join(several)
        yield f"{setting.label}: measured with more than one {names}; do not compare its times."
    loads = [
        row.load_average / row.environment.get("cores", row.environment.get("threads", 1))
        for row in rows
        if row.load_average is not None
    ]
    if len(loads) < len(rows):
        yield (
            f"{setting.label}: some sessions do not say whether other work ran on the machine; "
            "their times may be too long."
        )
    elif max(loads) > _BUSY:
        share = 100 * sum(load > _BUSY for load in loads) / len(loads)
        yield (
            f"{setting.label}: other work ran during {share:.0f} % of these sessions, up to "
            f"{max(loads):.1f} times what the CPU can do at once; times measured then are too long."
        )


def _overhead_table(setting: Setting, rank_times: bool) -> Table:
    runs = list(setting.standard.values())
    methods = [each.run.method for each in runs]
    columns = [
        (Column("method", words=True), [Cell(each.label) for each in runs]),
        (Column("Ā"), ranked(methods, [each.average for each in runs])),
    ]
    for name, group, value in _OVERHEAD:
        cells = ranked(methods, [value(each) for each in runs], digits, lowest=True)
        # A method does not choose the encoder, and of times that cannot be compared none is best.
        if name == "encoder" or not (rank_times or "memory" in group):
            cells = [Cell(cell.text) for cell in cells]
        columns.append((Column(name, group), cells))
    parameters = [Cell(count(each.rows[-1].trainable_parameters)) for each in runs]
    columns.append((Column("trainable"), parameters))
    return method_table(setting.label, methods, columns)


def _published_overhead(material: Material, setting: Setting) -> list[Table]:
    published, where = material.published.overhead, (setting.first.dataset, setting.first.protocol)
    if not material.numbers(setting) or where != (published["dataset"], published["protocol"]):
        return []
    methods = list(published["methods"])
    names = [Cell(material.published.printed(method)) for method in methods]
    columns = [(Column("method", words=True), names)]
    for place, name in enumerate(_PUBLISHED):
        values = [numbers[place] for numbers in published["methods"].values()]
        columns.append((Column(name), [Cell(f"{value:.2f}") for value in values]))
    caption = (
        f"{setting.stream} in the paper, on {published['hardware']}: another kind of machine, so "
        "not to be compared with the above"
    )
    return [method_table(caption, methods, columns)]
