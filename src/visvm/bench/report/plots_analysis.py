"""Figures of what accuracy costs and where it is lost: parameters and state, time and memory, sessions, confused classes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from visvm.bench.report.plots import (
    INK,
    PALE,
    Line,
    Styles,
    drawn,
    label_ends,
    set_title,
    shortened,
)
from visvm.bench.report.summary import OURS

# Light to dark without a turn: readable in grey. The lightest is not the page's white. With more
# shades their bar becomes pixels.
_MAP = ListedColormap(matplotlib.colormaps["Blues"](np.linspace(0.1, 1.0, 25)))


@dataclass(frozen=True)
class Measured:
    """What a method reached, in percent, and at what price; None where it was not measured."""

    label: str
    method: str
    average: float
    trainable_parameters: int
    state_bytes: int
    learn_seconds: float
    predict_milliseconds: float
    peak_memory: int | None


@drawn
def trade_offs(title: str, methods: Sequence[Measured], look: Styles) -> Figure:
    """Average accuracy against trainable parameters, and against the size of the state.

    A method is as high on the left as on the right, so that one column of names does for both.
    """
    height = max(2.5, 0.16 * len(methods))  # of the axes, in inches
    figure = Figure(figsize=(7.6, height + 0.8))
    left, right = figure.subplots(1, 2, sharey=True)
    panels = [
        (
            left,
            "parameters trained by gradient descent",
            [each.trainable_parameters for each in methods],
            short_count,
        ),
        (
            right,
            "state kept between sessions",
            [each.state_bytes for each in methods],
            lambda count: short_count(count, "B"),
        ),
    ]
    for axes, name, counts, write in panels:
        for each, x in zip(methods, _set_log_axis(axes, counts, write), strict=True):
            style, ours = look[each.method], each.method == OURS
            axes.plot(
                x,
                each.average,
                style.marker,
                color=style.colour,
                markersize=9 if ours else 5.5,
                markeredgecolor="white",
                markeredgewidth=0.4,
                zorder=2 if ours else 3,  # what lies where ours lies is seen on it
            )
        axes.set_xlabel(name)
        axes.margins(y=0.12)
    left.set_ylabel("average accuracy (%)")
    set_title(figure, title)
    edge = right.get_xlim()[1]
    label_ends(
        right,
        height,
        [Line(each.label, each.method, [edge], [each.average]) for each in methods],
        look,
    )
    return figure


@drawn
def overhead(title: str, methods: Sequence[Measured], look: Styles) -> Figure:
    """Bars of time and memory: a panel for each, a line for each method."""
    panels: tuple[tuple[str, Callable[[Measured], float | None]], ...] = (
        ("learning (s)", lambda each: each.learn_seconds),
        ("predicting (ms an image)", lambda each: each.predict_milliseconds),
        (
            "peak memory (MB)",
            lambda each: None if each.peak_memory is None else each.peak_memory / 1e6,
        ),
        ("state (MB)", lambda each: each.state_bytes / 1e6),
    )
    figure = Figure(figsize=(7.6, 1.0 + 0.2 * len(methods)))
    every = figure.subplots(1, len(panels), sharey=True)
    for axes, (name, cost) in zip(every, panels, strict=True):
        values = [cost(each) for each in methods]
        widths = [math.nan if value is None else value for value in values]
        colours = [look[each.method].colour for each in methods]
        hatches = [look[each.method].hatch for each in methods]
        shown = axes.barh(
            range(len(methods)),
            widths,
            height=0.72,
            color=colours,
            hatch=hatches,
            edgecolor="white",
        )
        axes.bar_label(
            shown,
            ["" if value is None else digits(value) for value in values],
            fontsize=6.5,
            padding=2,
        )
        axes.set_xlim(
            0, 1.38 * max((value for value in values if value is not None), default=1) or 1
        )
        axes.xaxis.get_major_locator().set_params(nbins=3)
        axes.set_xlabel(name)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
    every[0].set_yticks(range(len(methods)), [shortened(each.label, 30) for each in methods])
    every[0].invert_yaxis()
    set_title(figure, title)
    return figure


@drawn
def session_maps(title: str, panels: Sequence[tuple[str, Sequence[Sequence[float]]]]) -> Figure:
    """How well each session's classes are recognised after it and all later ones: a triangle for each panel.

    Parameters
    ----------
    title : str
    panels : sequence of (str, list of lists of float)
        Title, of one line or two, and after each session the accuracy on the classes of each
        session so far, in percent.
    """
    across = min(3, len(panels))
    down = math.ceil(len(panels) / across)
    figure = Figure(figsize=(0.7 + 2.75 * across, 0.4 + 3.0 * down))
    every = figure.subplots(down, across, squeeze=False).ravel()
    lowest = min(99.0, min(value for _, rows in panels for row in rows for value in row))
    for axes, (stream, rows) in zip(every, panels, strict=False):
        n = len(rows)
        table = np.full((n, n), math.nan)
        for session, row in enumerate(rows):
            table[: len(row), session] = row
        mesh = _mesh(axes, table, lowest, size=min(6.5, 60 / n))
        axes.set_title("\n".join(shortened(line, 30) for line in stream.splitlines()), fontsize=8)
        axes.set_xlabel("after session")
        axes.set_ylabel("classes of session")
        ticks = range(0, n, max(1, n // 10))
        axes.set_xticks(ticks, [str(tick + 1) for tick in ticks])
        axes.set_yticks(ticks, [str(tick + 1) for tick in ticks])
    for axes in every[len(panels) :]:
        axes.axis("off")
    set_title(figure, title)
    figure.colorbar(
        mesh, ax=list(every), label="accuracy (%)", shrink=0.85, pad=0.01
    ).outline.set_visible(False)
    return figure


@drawn
def confusion_map(title: str, names: Sequence[str], shares: NDArray[np.float64]) -> Figure:
    """What the images of some classes were taken for.

    Parameters
    ----------
    title : str
    names : sequence of str
    shares : array of shape (n, n)
        Percent of a class's images, by row, that were taken for each class, by column.
    """
    side = 1.9 + 0.235 * len(names)
    figure = Figure(figsize=(side + 0.5, side))
    axes = figure.add_subplot()
    mesh = _mesh(axes, np.where(shares >= 0.5, shares, math.nan), 0, size=5.5)
    short = [shortened(name, 28) for name in names]
    axes.set_xticks(range(len(names)), short, rotation=90, fontsize=6.5)
    axes.set_yticks(range(len(names)), short, fontsize=6.5)
    axes.set_xlabel("taken for")
    axes.set_ylabel("class")
    figure.colorbar(
        mesh, ax=axes, label="images of the class (%)", shrink=0.6, pad=0.02
    ).outline.set_visible(False)
    set_title(figure, title)
    return figure


def digits(value: float) -> str:
    """Three digits that count, without an exponent.

    Examples
    --------
    >>> digits(0), digits(0.01234), digits(1.5), digits(12.34), digits(123456.7)
    ('0', '0.0123', '1.50', '12.3', '123 457')
    """
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(float(f"{abs(value):.2e}"))))
    return f"{value:,.{decimals}f}".replace(",", " ")


def short_count(count: float, unit: str = "") -> str:
    """A round number with a unit.

    Examples
    --------
    >>> short_count(0), short_count(1000), short_count(10**7), short_count(1.5e9, "B")
    ('0', '1 k', '10 M', '1.5 GB')
    """
    place = min(3, max(0, int(math.log10(count)) // 3)) if count else 0
    return f"{count / 1000**place:.3g} {('', 'k', 'M', 'G')[place]}{unit}".strip()


def _mesh(axes: Axes, table: NDArray[np.float64], low: float, size: float) -> QuadMesh:
    """Coloured cells, first row on top, with the numbers in them; NaN is left out."""
    edges = np.arange(len(table) + 1) - 0.5
    mesh = axes.pcolormesh(edges, edges, np.ma.masked_invalid(table), cmap=_MAP, vmin=low, vmax=100)
    for row, column in np.argwhere(~np.isnan(table)):
        value = table[row, column]
        dark = value > low + 0.6 * (100 - low)
        axes.text(
            column,
            row,
            f"{value:.0f}",
            ha="center",
            va="center",
            fontsize=size,
            color="white" if dark else INK,
            in_layout=False,
        )
    axes.set_aspect("equal")
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return mesh


def _set_log_axis(axes: Axes, counts: Sequence[int], write: Callable[[float], str]) -> list[float]:
    """Make the x axis one of powers of ten that also has a place for 0, and give the place of every count."""
    positive = [math.log10(count) for count in counts if count]
    low, high = (math.floor(min(positive)), math.ceil(max(positive))) if positive else (0, 0)
    zero = low - 0.8
    decades = [*range(low, high + 1, 1 + (high - low) // 5)] if positive else []
    ticks = [(zero, "0")] * (0 in counts) + [
        (float(decade), write(10.0**decade)) for decade in decades
    ]
    axes.set_xticks([place for place, _ in ticks], [text for _, text in ticks])
    first = zero if 0 in counts else low
    axes.set_xlim(first - 0.3, max(high, first) + 0.3)
    if 0 in counts and positive:
        # the axis is broken here
        axes.axvline(low - 0.4, color=PALE, linewidth=0.8, linestyle=(0, (2, 3)))
    return [math.log10(count) if count else zero for count in counts]
