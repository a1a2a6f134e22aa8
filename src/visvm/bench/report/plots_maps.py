"""Figures of where accuracy is lost: session by session, and between which classes."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from visvm.bench.report.formats import shortened
from visvm.bench.report.style import INK, drawn, set_title
from visvm.head.products import Array

# Light to dark without a turn: readable in grey. The lightest is not the page's white. With more
# shades their bar becomes pixels.
_MAP = ListedColormap(matplotlib.colormaps["Blues"](np.linspace(0.1, 1.0, 25)))


@drawn
def session_maps(title: str, panels: Sequence[tuple[str, Sequence[Sequence[float]]]]) -> Figure:
    """Draw accuracy on each session's classes after it and all later ones: a triangle a panel.

    A panel is its title, of one line or two, and after each session the accuracy on the classes of
    each session so far, in percent.
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
    bar = figure.colorbar(mesh, ax=list(every), label="accuracy (%)", shrink=0.85, pad=0.01)
    bar.outline.set_visible(False)
    return figure


@drawn
def confusion_map(title: str, names: Sequence[str], shares: Array) -> Figure:
    """Draw percent of a class's images, by row, that were taken for each class, by column."""
    side = 1.9 + 0.235 * len(names)
    figure = Figure(figsize=(side + 0.5, side))
    axes = figure.add_subplot()
    mesh = _mesh(axes, np.where(shares >= 0.5, shares, math.nan), 0, size=5.5)
    short = [shortened(name, 28) for name in names]
    axes.set_xticks(range(len(names)), short, rotation=90, fontsize=6.5)
    axes.set_yticks(range(len(names)), short, fontsize=6.5)
    axes.set_xlabel("taken for")
    axes.set_ylabel("class")
    bar = figure.colorbar(mesh, ax=axes, label="images of the class (%)", shrink=0.6, pad=0.02)
    bar.outline.set_visible(False)
    set_title(figure, title)
    return figure


def _mesh(axes: Axes, table: Array, low: float, size: float) -> QuadMesh:
    """Draw coloured cells with their numbers, the first row on top; NaN is left out."""
    edges = np.arange(len(table) + 1) - 0.5
    mesh = axes.pcolormesh(edges, edges, np.ma.masked_invalid(table), cmap=_MAP, vmin=low, vmax=100)
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": size, "in_layout": False}
    for row, column in np.argwhere(~np.isnan(table)):
        value = table[row, column]
        colour = "white" if value > low + 0.6 * (100 - low) else INK
        axes.text(column, row, f"{value:.0f}", color=colour, **middle)
    axes.set_aspect("equal")
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return mesh
