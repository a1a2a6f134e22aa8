"""Tables that compare methods: what all sections of a report build theirs from."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from visvm.bench.datasets import DATASETS
from visvm.bench.metrics import percent
from visvm.bench.report.grouping import Setting, settings
from visvm.bench.report.pages import Cell, Column, Table, TableRow
from visvm.bench.report.plots import Styles, styles
from visvm.bench.report.published import Numbers, Published
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

KINDS: dict[str, Literal["ours", "apart"]] = {OURS: "ours", ORACLE: "apart"}
"""How the line of a method stands in a table, where it is not an ordinary one."""


@dataclass(frozen=True)
class Material:
    """What a report is made of.

    Parameters
    ----------
    rows : list of Row
    finished : list of FinishedRun
    unfinished : list of UnfinishedRun
    settings : list of Setting
    published : Published
    look : Styles
        By method.
    names : dict of str
        Label of a setting or an encoder → what file names of its figures end in.
    """

    rows: list[Row]
    finished: list[FinishedRun]
    unfinished: list[UnfinishedRun]
    settings: list[Setting]
    published: Published
    look: Styles
    names: Mapping[str, str]

    @property
    def by_encoder(self) -> dict[str, list[Setting]]:
        """Settings that have runs for the main comparison."""
        return grouped([each for each in self.settings if each.standard], lambda each: each.encoder)

    def numbers(self, setting: Setting) -> dict[str, Numbers]:
        """What is published of a setting; nothing where encoder or transform are not the paper's."""
        run = setting.first
        if run.transform != self.published.transform:
            return {}
        return self.published.numbers(
            self.published.encoder(run.encoder), run.dataset, run.protocol
        )


@dataclass(frozen=True)
class Measure:
    """A number to compare methods by.

    Parameters
    ----------
    name : str
    value : callable
        Gives it for a run, as a share; None where there is none.
    published : callable
        Picks it from what is published, in percent.
    lowest : bool
        Whether less is better.
    """

    name: str
    value: Callable[[FinishedRun], float | None]
    published: Callable[[Numbers], float | None] = field(default=lambda _: None)
    lowest: bool = False


AVERAGE = Measure("Ā", lambda each: each.average, lambda numbers: numbers.average)
FINAL = Measure("A_B", lambda each: each.final, lambda numbers: numbers.final)


def gather(rows: list[Row], published: Published) -> Material:
    """Prepare rows for the sections."""
    finished, unfinished = collect(rows)
    found = settings(finished, published.datasets)
    look = styles(each.run.method for each in in_order(finished))
    names = _file_names(
        dict.fromkeys(label for each in found for label in (each.encoder, each.label))
    )
    return Material(rows, finished, unfinished, found, published, look, names)


def compare(
    material: Material,
    caption: str,
    compared: Sequence[Setting],
    measures: Sequence[Measure],
    group: Callable[[Setting], str] = lambda setting: setting.stream,
    only_ran: bool = False,
) -> Table:
    """A line for each method, and in each setting a column for each measure; published numbers beside ours where there are some.

    Parameters
    ----------
    material : Material
    caption : str
    compared : sequence of Setting
    measures : sequence of Measure
    group : callable
        What stands above the columns of a setting.
    only_ran : bool
        Leave out methods of which there is nothing but published numbers.
    """
    lines = {
        each.label: each.run.method
        for each in in_order(run for setting in compared for run in setting.standard.values())
    }
    numbers = [material.numbers(setting) for setting in compared]
    columns, cells = [Column("method", words=True)], {label: [Cell(label)] for label in lines}
    for setting, known in zip(compared, numbers, strict=True):
        beside = {
            row: each
            for method, each in known.items()
            for row in material.published.row_methods(method)
        }
        for measure in measures:
            columns.append(Column(measure.name, group(setting)))
            for label, cell in _column(setting, measure, lines, beside).items():
                cells[label].append(cell)
    rows = [TableRow(tuple(cells[label]), KINDS.get(method, "")) for label, method in lines.items()]
    if not only_ran:
        rows += _published_only(material, numbers, measures, set(lines.values()))
    return Table(caption, tuple(columns), tuple(rows))


def ranked(
    methods: Sequence[str],
    values: Sequence[float | None],
    write: Callable[[float], str],
    lowest: bool = False,
) -> list[Cell]:
    """The cells of a column with the best and the second marked; the oracle takes no part.

    Parameters
    ----------
    methods : sequence of str
        Of each line.
    values : sequence of float or None
    write : callable
        Gives the text of a value.
    lowest : bool
        Whether less is better.
    """
    texts = ["–" if value is None else write(value) for value in values]
    competing = [
        None if method == ORACLE else value for method, value in zip(methods, values, strict=True)
    ]
    return [
        Cell(text, mark) for text, mark in zip(texts, marks(competing, texts, lowest), strict=True)
    ]


def _column(
    setting: Setting, measure: Measure, lines: Mapping[str, str], beside: Mapping[str, Numbers]
) -> dict[str, Cell]:
    runs = setting.standard
    values = [measure.value(runs[label]) if label in runs else None for label in lines]
    cells = dict(
        zip(lines, ranked(list(lines.values()), values, table_percent, measure.lowest), strict=True)
    )
    for label in lines:  # what has other options has another label, and nothing published beside it
        published = measure.published(beside[label]) if label in beside else None
        if published is not None:
            cells[label] = replace(cells[label], aside=f"{published:.2f}")
    return cells


def _published_only(
    material: Material,
    numbers: Sequence[Mapping[str, Numbers]],
    measures: Sequence[Measure],
    ran: set[str],
) -> list[TableRow]:
    """Lines of methods that the paper has and these runs have not."""
    rows = []
    for method in material.published.methods:
        places = [(known.get(method), measure) for known in numbers for measure in measures]
        values = [None if known is None else measure.published(known) for known, measure in places]
        if ran.isdisjoint(material.published.row_methods(method)) and any(
            value is not None for value in values
        ):
            cells = [
                Cell("–") if value is None else Cell("", aside=f"{value:.2f}") for value in values
            ]
            rows.append(
                TableRow(
                    (Cell(f"{material.published.printed(method)}, published"), *cells), "apart"
                )
            )
    return rows


def about_published(material: Material, compared: Sequence[Setting]) -> list[str]:
    """What must be said about published numbers above tables of one encoder."""
    numbers = {setting.label: material.numbers(setting) for setting in compared}
    if not any(numbers.values()):
        encoders, transform = ", ".join(material.published.encoders), material.published.transform
        what = f"{encoders} with the transform {transform}, on the paper's data sets and protocols"
        return [
            f"Published numbers are for {what}; these runs are for another encoder or other data, so none are put beside ours."
        ]
    said = ["In brackets: what the paper prints."]
    ran = {run.run.method for setting in compared for run in setting.standard.values()}
    known = {
        method
        for each in numbers.values()
        for method in each
        if not ran.isdisjoint(material.published.row_methods(method))
    }
    said += [note for method in sorted(known) if (note := material.published.note(method))]
    for setting in compared:
        one = next(iter(setting.standard.values()))
        ours, learned = one.rows[-1].n_test, sum(row.n_train for row in one.rows)
        theirs = (
            material.published.test_images(setting.first.dataset)
            if numbers[setting.label]
            else ours
        )
        splits = DATASETS[setting.first.dataset].splits if numbers[setting.label] else ()
        # of the split they are about
        trained = [split.train for split in splits if _about(split.test.n, theirs)]
        if trained and not any(known.admits(learned) for known in trained):
            published = " or ".join(map(str, trained))
            said.append(
                f"{setting.data} was learned from {count(learned)} images here, from {published} by the published code."
            )
        if not _about(ours, theirs):
            said.append(
                f"{setting.data} was tested on {count(ours)} images here, on about {count(theirs)} by the published code."
            )
    return [" ".join(dict.fromkeys(said))]


def _about(number: int, published: int) -> bool:
    return abs(number - published) <= 0.02 * published


table_percent = partial(percent, decimals=2, unit="")


def count(number: int) -> str:
    """A whole number, thousands apart."""
    return f"{number:,}".replace(",", "\N{NO-BREAK SPACE}")


def in_parts(items: Sequence[Setting], size: int) -> list[Sequence[Setting]]:
    """So many at a time."""
    return [items[first : first + size] for first in range(0, len(items), size)]


def _file_names(labels: Iterable[str]) -> dict[str, str]:
    """A file name for each label, none twice."""
    names: dict[str, str] = {}
    for label in labels:
        name = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
        names[label] = name if name not in names.values() else f"{name}-{len(names)}"
    return names
