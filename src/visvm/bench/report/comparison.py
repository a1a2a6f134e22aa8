"""Tables that compare methods: what all sections of a report build theirs from."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from visvm.bench.datasets import DATASETS
from visvm.bench.report.formats import count
from visvm.bench.report.grouping import Setting, settings
from visvm.bench.report.pages import Cell, Column, Table, TableRow
from visvm.bench.report.published import Numbers, Published
from visvm.bench.report.style import Styles, styles
from visvm.bench.report.summary import (
    ORACLE,
    OURS,
    FinishedRun,
    UnfinishedRun,
    collect,
    grouped,
    in_order,
    marks,
)
from visvm.bench.rows import Row
from visvm.model.formats import percent

_KINDS: dict[str, Literal["ours", "apart"]] = {OURS: "ours", ORACLE: "apart"}

in_percent = partial(percent, decimals=2, unit="")
"""Write a share as tables have it, whose captions say that it is in percent."""


@dataclass(frozen=True)
class Material:
    """What a report is made of."""

    rows: list[Row]
    finished: list[FinishedRun]
    unfinished: list[UnfinishedRun]
    settings: list[Setting]
    published: Published
    look: Styles  # by method
    names: Mapping[str, str]  # label of a setting or an encoder → the end of its figures' names

    @property
    def compared(self) -> list[Setting]:
        """Settings that have runs for the main comparison."""
        return [each for each in self.settings if each.standard]

    @property
    def by_encoder(self) -> dict[str, list[Setting]]:
        """The same by their encoders."""
        return grouped(self.compared, lambda each: each.encoder)

    def numbers(self, setting: Setting) -> dict[str, Numbers]:
        """Return what is published of a setting: nothing unless encoder and transform agree."""
        run = setting.first
        if run.transform != self.published.transform:
            return {}
        encoder = self.published.encoder(run.encoder)
        return self.published.numbers(encoder, run.dataset, run.protocol)


def gather(rows: list[Row], published: Published) -> Material:
    """Prepare rows for the sections."""
    finished, unfinished = collect(rows)
    found = settings(finished, published.datasets)
    look = styles(each.run.method for each in in_order(finished))
    names: dict[str, str] = {}
    for label in dict.fromkeys(label for each in found for label in (each.encoder, each.label)):
        name = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
        names[label] = f"{name}-{len(names)}" if name in names.values() else name
    return Material(rows, finished, unfinished, found, published, look, names)


@dataclass(frozen=True)
class Measure:
    """A number to compare methods by."""

    name: str
    value: Callable[[FinishedRun], float | None]  # as a share; None where there is none
    published: Callable[[Numbers], float | None] = lambda _: None  # in percent
    lowest: bool = False  # whether less is better


AVERAGE = Measure("Ā", lambda each: each.average, lambda numbers: numbers.average)
FINAL = Measure("A_B", lambda each: each.final, lambda numbers: numbers.final)


def compare(
    material: Material,
    caption: str,
    compared: Sequence[Setting],
    measures: Sequence[Measure],
    group: Callable[[Setting], str] = lambda setting: setting.stream,
    only_ran: bool = False,
) -> Table:
    """Make a table with a row for each method, and for each setting a column for each measure.

    Published numbers stand beside ours. `group` gives what stands above the columns of a setting;
    `only_ran` leaves out methods of which there is nothing but published numbers.
    """
    runs = in_order(run for setting in compared for run in setting.standard.values())
    lines = {each.label: each.run.method for each in runs}
    columns = [(Column("method", words=True), [Cell(label) for label in lines])]
    for setting in compared:
        beside = {
            row: numbers
            for method, numbers in material.numbers(setting).items()
            for row in material.published.row_methods(method)
        }
        for measure in measures:
            cells = _compared(setting.standard, measure, lines, beside)
            columns.append((Column(measure.name, group(setting)), cells))
    table = method_table(caption, list(lines.values()), columns)
    if only_ran:
        return table
    others = _published_only(material, compared, measures, set(lines.values()))
    return replace(table, rows=(*table.rows, *others))


def method_table(
    caption: str, methods: Sequence[str], columns: Sequence[tuple[Column, Sequence[Cell]]]
) -> Table:
    """Make a table with a row for each method, ours and the oracle set off."""
    heads, cells = zip(*columns, strict=True)
    lines = zip(methods, zip(*cells, strict=True), strict=True)
    rows = tuple(TableRow(line, _KINDS.get(method, "")) for method, line in lines)
    return Table(caption, heads, rows)


def ranked(
    methods: Sequence[str],
    values: Sequence[float | None],
    write: Callable[[float], str] = in_percent,
    lowest: bool = False,
) -> list[Cell]:
    """Make the cells of a column, a method each, with the best and the second marked.

    The oracle takes no part; `lowest` means that less is better.
    """
    texts = ["–" if value is None else write(value) for value in values]
    pairs = zip(methods, values, strict=True)
    competing = [None if method == ORACLE else value for method, value in pairs]
    return list(map(Cell, texts, marks(competing, texts, lowest)))


def _compared(
    runs: Mapping[str, FinishedRun],
    measure: Measure,
    lines: Mapping[str, str],
    beside: Mapping[str, Numbers],
) -> list[Cell]:
    values = [measure.value(runs[label]) if label in runs else None for label in lines]
    cells = ranked(list(lines.values()), values, lowest=measure.lowest)
    # what has other options has another label, and nothing published beside it
    published = [measure.published(beside[each]) if each in beside else None for each in lines]
    return [
        cell if value is None else replace(cell, aside=f"{value:.2f}")
        for cell, value in zip(cells, published, strict=True)
    ]


def _published_only(
    material: Material,
    compared: Sequence[Setting],
    measures: Sequence[Measure],
    ran: set[str],
) -> Iterator[TableRow]:
    """Make rows of methods that the paper has and these runs have not."""
    numbers = [material.numbers(setting) for setting in compared]
    for method in material.published.methods:
        places = [(known.get(method), measure) for known in numbers for measure in measures]
        values = [None if known is None else measure.published(known) for known, measure in places]
        cells = [Cell("–") if value is None else Cell("", aside=f"{value:.2f}") for value in values]
        absent = ran.isdisjoint(material.published.row_methods(method))
        if absent and any(value is not None for value in values):
            name = Cell(f"{material.published.printed(method)}, published")
            yield TableRow((name, *cells), "apart")


def about_published(material: Material, compared: Sequence[Setting]) -> str:
    """Say what must be said about published numbers above tables of one encoder."""
    published = material.published
    numbers = [(setting, material.numbers(setting)) for setting in compared]
    if not any(known for _, known in numbers):
        encoders = ", ".join(published.encoders)
        return (
            f"Published numbers are for {encoders} with the transform {published.transform}, on "
            "the paper's data sets and protocols; these runs are for another encoder or other "
            "data, so none are put beside ours."
        )
    ran = {run.run.method for setting in compared for run in setting.standard.values()}
    beside = {
        method
        for _, known in numbers
        for method in known
        if not ran.isdisjoint(published.row_methods(method))
    }
    said = ["In brackets: what the paper prints."]
    said += [note for method in sorted(beside) if (note := published.note(method))]
    for setting, known in numbers:
        said += _other_counts(setting, published) if known else []
    return " ".join(dict.fromkeys(said))


def _other_counts(setting: Setting, published: Published) -> Iterator[str]:
    """Say where other numbers of images were learned or tested than by the published code."""
    rows = next(iter(setting.standard.values())).rows
    ours, learned = rows[-1].n_test, sum(row.n_train for row in rows)
    theirs = published.test_images(setting.first.dataset)
    splits = DATASETS[setting.first.dataset].splits
    # of the split they are about
    trained = [split.train for split in splits if _about(split.test.n, theirs)]
    if trained and not any(known.admits(learned) for known in trained):
        yield (
            f"{setting.data} was learned from {count(learned)} images here, "
            f"from {' or '.join(map(str, trained))} by the published code."
        )
    if not _about(ours, theirs):
        yield (
            f"{setting.data} was tested on {count(ours)} images here, "
            f"on about {count(theirs)} by the published code."
        )


def _about(number: int, published: int) -> bool:
    return abs(number - published) <= 0.02 * published


def in_parts(items: Sequence[Setting], size: int) -> Iterable[Sequence[Setting]]:
    """Cut a list into parts of at most this size."""
    return (items[first : first + size] for first in range(0, len(items), size))


def has_sessions(setting: Setting) -> bool:
    """Return whether some run of the main comparison has more than one session."""
    return any(len(each.rows) > 1 for each in setting.standard.values())
