"""Figures of accuracy: curves over classes, bars, and sweeps over the values of an option."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation
from scipy.optimize import isotonic_regression

from visvm.bench.report.formats import plain, shortened, signed
from visvm.bench.report.style import (
    BLUE,
    COLOURS,
    DASHES,
    INK,
    MARKERS,
    Style,
    Styles,
    drawn,
    set_title,
)
from visvm.bench.report.summary import OURS, competes


@dataclass(frozen=True)
class Line:
    """Accuracy of a method over classes seen, in percent; `std` where it is a mean over runs."""

    label: str
    method: str
    x: Sequence[int]
    y: Sequence[float]
    std: Sequence[float] | None = None


@dataclass(frozen=True)
class Gap:
    """How many points ours is ahead of the best of some other methods in the end."""

    points: float  # negative where it is behind
    ours: str
    other: str


def gap(lines: Sequence[Line], among: Callable[[str], bool] = competes) -> Gap | None:
    """Return how far ours ends ahead of the best of those methods; None if a side is missing."""
    ours = [line for line in lines if line.method == OURS]
    others = [line for line in lines if among(line.method)]
    if not ours or not others:
        return None
    best = max(others, key=lambda line: line.y[-1])
    return Gap(ours[0].y[-1] - best.y[-1], ours[0].label, best.label)


@drawn
def draw_curves(title: str, lines: Sequence[Line], look: Styles) -> Figure:
    """Draw accuracy over classes seen, each line named at its end together with its last value.

    Our name is followed by how far it is ahead of the best competitor in the end.
    """
    height = max(2.25, 0.16 * len(lines))  # of the axes, in inches
    ahead = gap(lines)
    lead = f" ({signed(ahead.points)} on {shortened(ahead.other, 16)})" if ahead else ""
    longest = max(len(line.label) + len(lead) * (line.method == OURS) for line in lines)
    # names with options are long
    figure = Figure(figsize=(5.8 + 0.07 * max(0, min(longest, 60) - 26), height + 0.85))
    axes = figure.add_subplot()
    for line in sorted(lines, key=lambda line: line.method == OURS):  # ours on top
        style = look[line.method]
        axes.plot(line.x, line.y, linewidth=style.width, markersize=3.6, **style.line)
        if line.std is not None:
            _draw_std(axes, line, style.colour)
    set_title(figure, title)
    axes.set_xlabel("classes seen")
    axes.set_ylabel("accuracy (%)")
    axes.margins(x=0.02)
    ticks = max((line.x for line in lines), key=len)
    if len(ticks) <= 12:
        axes.set_xticks(ticks)
    label_ends(axes, height, lines, look, lead)
    return figure


def _draw_std(axes: Axes, line: Line, colour: str) -> None:
    y, std = np.asarray(line.y), np.asarray(line.std)
    if line.method == OURS:
        axes.fill_between(line.x, y - std, y + std, color=colour, alpha=0.18, linewidth=0)
    else:
        caps: dict[str, Any] = {"elinewidth": 0.7, "capsize": 1.6, "capthick": 0.7}
        axes.errorbar(line.x, y, std, fmt="none", ecolor=colour, **caps)


def label_ends(
    axes: Axes, height: float, lines: Sequence[Line], look: Styles, after_ours: str = ""
) -> None:
    """Name lines beyond their right ends: each name with its marker, tied to its line.

    Names are moved apart as little as the height of the axes, in inches, allows.
    """
    low, high = axes.get_ylim()
    ends = [line.y[-1] for line in lines]
    places = apart(ends, 0.14 * (high - low) / height, low, high)
    column = axes.transAxes + ScaledTranslation(12 / 72, 0, axes.figure.dpi_scale_trans)
    for line, end, place in zip(lines, ends, places, strict=True):
        ours, style = line.method == OURS, look[line.method]
        colour, marker = style.colour, style.marker
        y = (place - low) / (high - low)
        tie = {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 3, "shrinkB": 2}
        outside: dict[str, Any] = {"arrowprops": tie, "annotation_clip": False}
        axes.annotate("", (line.x[-1], end), xytext=(1, y), textcoords=column, **outside)
        axes.plot(1, y, marker, color=colour, markersize=3.6, transform=column, clip_on=False)
        axes.annotate(
            f"{shortened(line.label, 40)} {end:.2f}{after_ours if ours else ''}",
            (1, y),
            xycoords="axes fraction",
            xytext=(17, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color=colour if ours else INK,
            fontweight="bold" if ours else "normal",
            annotation_clip=False,
        )
    axes.set_ylim(low, high)


def apart(wanted: Sequence[float], distance: float, low: float, high: float) -> list[float]:
    """Move places as little as needed to be this far from each other, within bounds if possible.

    Examples
    --------
    >>> apart([1.0, 1.0, 5.0], distance=1.0, low=0.0, high=10.0)
    [0.5, 1.5, 5.0]
    """
    order = np.argsort(wanted, kind="stable")
    steps = distance * np.arange(len(wanted))
    # least squares with this order kept
    fitted = isotonic_regression(np.asarray(wanted, dtype=float)[order] - steps).x
    places = np.empty(len(wanted))
    places[order] = np.clip(fitted, low, max(low, high - steps[-1])) + steps
    return [float(place) for place in places]


BarGroup = tuple[str, Mapping[str, float]]
"""What is written below a group of bars, and the height of each method's bar."""


@drawn
def bars(title: str, groups: Sequence[BarGroup], methods: Sequence[str], look: Styles) -> Figure:
    """Draw final accuracies side by side, about four groups in a line."""
    across = min(len(groups), max(1, 16 // len(methods)))
    down = math.ceil(len(groups) / across)
    width = max(3.4, 1.0 + across * (0.25 + 0.4 * len(methods)))
    figure = Figure(figsize=(width, 0.8 + 2.1 * down))
    top = max(value for _, heights in groups for value in heights.values())
    for place, axes in enumerate(figure.subplots(down, 1, squeeze=False)[:, 0]):
        _draw_groups(axes, groups[place * across : (place + 1) * across], methods, look)
        axes.set_xlim(-0.6, across - 0.4)
        axes.set_ylim(0, 1.08 * top)
        axes.set_ylabel("final accuracy (%)")
    wide = max(map(len, methods)) * 0.075 + 0.55  # of an entry, in inches
    columns = min(len(methods), max(1, int(width / wide)))
    entries = figure.axes[0].get_legend_handles_labels()
    figure.legend(*entries, loc="outside lower left", ncols=columns)
    set_title(figure, title)
    return figure


def _draw_groups(
    axes: Axes, groups: Sequence[BarGroup], methods: Sequence[str], look: Styles
) -> None:
    n = len(methods)
    for number, method in enumerate(methods):
        style = look[method]
        x = [group + (number - (n - 1) / 2) * 0.8 / n for group in range(len(groups))]
        y = [heights.get(method, math.nan) for _, heights in groups]
        texts = ["" if math.isnan(value) else f"{value:.2f}" for value in y]
        shown = axes.bar(
            x, y, 0.72 / n, color=style.colour, hatch=style.hatch, edgecolor="white", label=method
        )
        axes.bar_label(shown, texts, fontsize=6.5, padding=1.5)
    axes.set_xticks(range(len(groups)), [name for name, _ in groups])
    axes.grid(visible=False, axis="x")
    axes.tick_params(axis="x", length=0)


@dataclass(frozen=True)
class Sweep:
    """Accuracy over the values of an option: a line for each value that the other option had."""

    option: str
    values: Sequence[float]  # on the x axis, at even distances
    # mean and deviation in percent at each value, by the line's name; None where it was not run
    lines: Mapping[str, Sequence[tuple[float, float] | None]]


@drawn
def sweeps(title: str, panels: Sequence[Sweep]) -> Figure:
    """Draw sensitivity: a panel for each option, with one y axis."""
    figure = Figure(figsize=(3.3 * len(panels), 2.7))
    cycle = [Style(BLUE), *map(Style, COLOURS, DASHES, MARKERS)]
    every = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(every, panels, strict=True):
        for number, (name, points) in enumerate(panel.lines.items()):
            there = [(place, *point) for place, point in enumerate(points) if point is not None]
            x, y, std = zip(*there, strict=True)
            line = cycle[number % len(cycle)].line
            axes.errorbar(
                x, y, std if any(std) else None, label=name, markersize=4, capsize=2, **line
            )
        axes.set_xticks(range(len(panel.values)), [plain(value) for value in panel.values])
        axes.set_xlabel(panel.option)
        axes.margins(x=0.08, y=0.25)
        if len(panel.lines) > 1:
            axes.legend(fontsize=6.5)
    every[0].set_ylabel("accuracy after the last session (%)")
    set_title(figure, title)
    return figure
