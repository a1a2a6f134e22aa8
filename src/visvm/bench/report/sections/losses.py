"""Sections about what is forgotten, and what is taken for what."""

import numpy as np

from visvm.bench.report import plots_maps
from visvm.bench.report.comparison import Material, Measure, compare, has_sessions, in_parts
from visvm.bench.report.formats import count
from visvm.bench.report.grouping import Setting
from visvm.bench.report.pages import Block, Cell, Column, Picture, Section, Table, TableRow, section
from visvm.bench.report.summary import FinishedRun
from visvm.head.products import Array

_MOST_PAIRS, _MOST_CLASSES = 15, 20
_FORGETTING = Measure(
    "F_B", lambda each: each.forgetting, lambda numbers: numbers.forgetting, lowest=True
)
_OLD_AND_NEW = (
    Measure("old", lambda each: each.rows[-1].old_accuracy),
    Measure("new", lambda each: each.rows[-1].new_accuracy),
    Measure("harmonic", lambda each: each.rows[-1].harmonic_mean),
)


def what_is_forgotten(material: Material) -> Section | None:
    """Compare F_B, and draw the accuracy on each session's classes over time."""
    blocks: list[Block] = []
    for encoder, found in material.by_encoder.items():
        settings = [setting for setting in found if has_sessions(setting)]
        for number, part in enumerate(in_parts(settings, 6), start=1):
            blocks.append(compare(material, encoder, part, (_FORGETTING,)))
            focus = {each.stacked: each.focus for each in part}
            runs = {stream: each for stream, each in focus.items() if each is not None}
            if runs:
                name = f"sessions-{number}-{material.names[encoder]}"
                blocks.append(_session_maps(name, encoder, runs))
    intro = (
        "F_B, in points: how far the accuracy on each session's classes has fallen from its best "
        "before the last session to the end, averaged over all sessions except the last. Lower is "
        "better; below 0, it has risen. Some of it is no loss of memory: with more classes there "
        "is more to confuse."
    )
    return section("Forgetting", intro, blocks)


def _session_maps(name: str, encoder: str, runs: dict[str, FinishedRun]) -> Picture:
    panels = [
        (stream, [[100 * value for value in row.group_accuracy] for row in each.rows])
        for stream, each in runs.items()
    ]
    labels = ", ".join(dict.fromkeys(each.label for each in runs.values()))
    caption = (
        f"{encoder}, {labels}: accuracy on each session's classes (in percent) after it and after "
        "every later one."
    )
    return Picture(name, caption, plots_maps.session_maps(f"{labels}, {encoder}", panels))


def old_and_new(material: Material) -> Section | None:
    """Compare accuracy on old and on new classes after the last session."""

    def has_both(setting: Setting) -> bool:
        return any(each.rows[-1].harmonic_mean is not None for each in setting.standard.values())

    blocks = [
        compare(material, encoder, part, _OLD_AND_NEW)
        for encoder, found in material.by_encoder.items()
        for part in in_parts([setting for setting in found if has_both(setting)], 4)
    ]
    intro = (
        "After the last session: accuracy on the classes of earlier sessions, on those of the "
        "last, and their harmonic mean."
    )
    return section("Old and new classes", intro, blocks)


def confused_classes(material: Material) -> Section | None:
    """List and draw the most frequent confusions."""
    blocks: list[Block] = []
    for setting in material.compared:
        focus = setting.focus
        if focus is not None and focus.rows[-1].confusions:
            title = f"{focus.label}, {setting.label}"
            caption = (
                f"{title}: the classes of the most frequent confusions; percent of a class's "
                "images, row by row."
            )
            drawing = plots_maps.confusion_map(title, *_confused(focus))
            name = f"confusions-{material.names[setting.label]}"
            blocks += [_pairs_table(title, focus), Picture(name, caption, drawing)]
    intro = (
        "After the last session: which classes were most often taken for which, by number of test "
        "images."
    )
    return section("Most confused classes", intro, blocks)


def _pairs_table(caption: str, run: FinishedRun) -> Table:
    names, last = run.class_names, run.rows[-1]
    rows = []
    for label, taken, images in last.confusions[:_MOST_PAIRS]:
        of = last.class_counts[label]
        texts = names[label], names[taken], count(images), count(of), f"{100 * images / of:.1f}"
        rows.append(TableRow(tuple(map(Cell, texts))))
    words = Column("class", words=True), Column("taken for", words=True)
    return Table(caption, (*words, Column("images"), Column("of"), Column("%")), tuple(rows))


def _confused(run: FinishedRun) -> tuple[list[str], Array]:
    """Name the classes of the most frequent confusions, and give a table of their shares."""
    last = run.rows[-1]
    involved = list(dict.fromkeys(label for pair in last.confusions for label in pair[:2]))
    place = {label: number for number, label in enumerate(involved[:_MOST_CLASSES])}
    shares = np.zeros((len(place), len(place)))
    for label, number in place.items():
        shares[number, number] = 100 * last.class_correct[label] / last.class_counts[label]
    for label, taken, images in last.confusions:
        if label in place and taken in place:
            shares[place[label], place[taken]] = 100 * images / last.class_counts[label]
    return [run.class_names[label] for label in place], shares
