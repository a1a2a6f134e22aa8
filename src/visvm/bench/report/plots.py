"""Figures of accuracy, as vectors and as pixels: curves, bars, sensitivity. Here too are the styles that all figures share.

Colours are told apart by the colour-blind (most are Okabe's and Ito's), and every method has a line
style and a marker of its own, so that figures can be read in grey. The same input gives the same
bytes.
"""

import functools
import io
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation
from scipy.optimize import isotonic_regression

from visvm.bench.report.fonts import fonts
from visvm.bench.report.summary import BASELINES, ORACLE, OURS, competes

INK, PALE = "#22262a", "#8a9097"

_RC = {
    "font.size": 8,
    "text.color": INK,
    "text.parse_math": False,  # names may hold dollars
    "axes.labelcolor": INK,
    "axes.edgecolor": PALE,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e6e8",
    "grid.linewidth": 0.6,
    "xtick.color": PALE,
    "ytick.color": PALE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    # in inches: laid out once, letters are not of the same width in all files
    "figure.constrained_layout.w_pad": 0.1,
    "savefig.dpi": 180,
    "svg.fonttype": "path",  # no font is needed to show it
    "svg.hashsalt": "visvm",
}

_COLOURS = (
    *("#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b7177"),
    *("#8c6d1f", "#882255", "#332288", "#117733"),
)
_DASHES: tuple[Any, ...] = ("--", "-.", ":", (0, (6, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
_MARKERS = ("s", "^", "v", "D", "P", "X", "<", ">", "h", "p", "d")
_HATCHES = ("///", "\\\\\\", "xxx", "---", "|||", "+++", "//", "\\\\")

P = ParamSpec("P")


@dataclass(frozen=True)
class Drawing:
    """A figure as files: SVG text, and the bytes of a PNG."""

    svg: str
    png: bytes


@dataclass(frozen=True)
class Style:
    """How a method is drawn, in all figures alike."""

    colour: str
    dash: Any = "-"
    marker: str = "o"
    hatch: str = ""
    width: float = 1.1


Styles = Mapping[str, Style]


@dataclass(frozen=True)
class Line:
    """Accuracy of a method over classes seen, in percent; `std` where several runs were averaged."""

    label: str
    method: str
    x: Sequence[int]
    y: Sequence[float]
    std: Sequence[float] | None = None


@dataclass(frozen=True)
class Gap:
    """How far ours is ahead of the best of some other methods in the end, in points; negative where it is behind."""

    points: float
    ours: str
    other: str


def gap(lines: Sequence[Line], among: Callable[[str], bool] = competes) -> Gap | None:
    """How far ours is ahead in the end of the best of those methods; None where one side is missing."""
    ours = [line for line in lines if line.method == OURS]
    others = [line for line in lines if among(line.method)]
    if not ours or not others:
        return None
    best = max(others, key=lambda line: line.y[-1])
    return Gap(ours[0].y[-1] - best.y[-1], ours[0].label, best.label)


def styles(methods: Iterable[str]) -> Styles:
    """A style for every method: always the same for one that comes with visvm, and for the rest in the order given."""
    others = [
        method for method in dict.fromkeys((*BASELINES, *methods)) if method not in (OURS, ORACLE)
    ]
    cycles = (_COLOURS, _DASHES, _MARKERS, _HATCHES)  # of 10, 5, 11 and 8: no two methods are alike
    found = {
        method: Style(*(cycle[place % len(cycle)] for cycle in cycles))
        for place, method in enumerate(others)
    }
    return {**found, OURS: Style("#0072b2", width=2.2), ORACLE: Style("#000000", (0, (1, 1)), "*")}


def drawn(draw: Callable[P, Figure]) -> Callable[P, Drawing]:
    """Make a function that makes a figure give its files instead, in the style of this module whatever the user's is."""

    @functools.wraps(draw)
    def files(*args: P.args, **kwargs: P.kwargs) -> Drawing:
        svg, png = io.BytesIO(), io.BytesIO()
        with (
            matplotlib.style.context(["default", _RC | {"font.family": fonts()}]),
            warnings.catch_warnings(),
        ):
            # a box in its place says as much
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure = draw(*args, **kwargs)
            figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
            figure.set_layout_engine("none")  # as it was laid out for the first
            figure.savefig(png, format="png", metadata={"Software": None})
        return Drawing(svg.getvalue().decode(), png.getvalue())

    return files


@drawn
def curves(title: str, lines: Sequence[Line], look: Styles) -> Figure:
    """Accuracy over classes seen: a line for each method, named at its end together with its last value.

    Behind ours is how far it is ahead of the best competitor in the end.

    Parameters
    ----------
    title : str
    lines : sequence of Line
    look : Styles
    """
    height = max(2.25, 0.16 * len(lines))  # of the axes, in inches
    ahead = gap(lines)
    after_ours = (
        "" if ahead is None else f" ({signed(ahead.points)} on {shortened(ahead.other, 16)})"
    )
    longest = max(
        len(line.label) + (len(after_ours) if line.method == OURS else 0) for line in lines
    )
    # names with options are long
    figure = Figure(figsize=(5.8 + 0.07 * max(0, min(longest, 60) - 26), height + 0.85))
    axes = figure.add_subplot()
    for line in sorted(lines, key=lambda line: line.method == OURS):  # ours on top
        style = look[line.method]
        axes.plot(
            line.x,
            line.y,
            color=style.colour,
            linestyle=style.dash,
            linewidth=style.width,
            marker=style.marker,
            markersize=3.6,
        )
        if line.std is not None:
            _draw_std(axes, line, style)
    set_title(figure, title)
    axes.set_xlabel("classes seen")
    axes.set_ylabel("accuracy (%)")
    axes.margins(x=0.02)
    ticks = max((line.x for line in lines), key=len)
    if len(ticks) <= 12:
        axes.set_xticks(ticks)
    label_ends(axes, height, lines, look, after_ours)
    return figure


def _draw_std(axes: Axes, line: Line, style: Style) -> None:
    y, std = np.asarray(line.y), np.asarray(line.std)
    if line.method == OURS:
        axes.fill_between(line.x, y - std, y + std, color=style.colour, alpha=0.18, linewidth=0)
    else:
        axes.errorbar(
            line.x,
            y,
            std,
            fmt="none",
            ecolor=style.colour,
            elinewidth=0.7,
            capsize=1.6,
            capthick=0.7,
        )


def label_ends(
    axes: Axes, height: float, lines: Sequence[Line], look: Styles, after_ours: str = ""
) -> None:
    """Names beyond the right end of the lines, moved apart as little as possible, each with its marker, tied to its line.

    Parameters
    ----------
    axes : Axes
    height : float
        Of the axes, in inches.
    lines : sequence of Line
    look : Styles
    after_ours : str
        What to write behind our name and number.
    """
    low, high = axes.get_ylim()
    ends = [line.y[-1] for line in lines]
    places = apart(ends, 0.14 * (high - low) / height, low, high)
    column = axes.transAxes + ScaledTranslation(12 / 72, 0, axes.figure.dpi_scale_trans)
    for line, end, place in zip(lines, ends, places, strict=True):
        ours, style = line.method == OURS, look[line.method]
        y = (place - low) / (high - low)
        tie = {
            "arrowstyle": "-",
            "color": style.colour,
            "linewidth": 0.7,
            "shrinkA": 3,
            "shrinkB": 2,
        }
        axes.annotate(
            "",
            (line.x[-1], end),
            xytext=(1, y),
            textcoords=column,
            arrowprops=tie,
            annotation_clip=False,
        )
        axes.plot(
            1, y, style.marker, color=style.colour, markersize=3.6, transform=column, clip_on=False
        )
        axes.annotate(
            f"{shortened(line.label, 40)} {end:.2f}{after_ours if ours else ''}",
            (1, y),
            xycoords="axes fraction",
            xytext=(17, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color=style.colour if ours else INK,
            fontweight="bold" if ours else "normal",
            annotation_clip=False,
        )
    axes.set_ylim(low, high)


@drawn
def bars(
    title: str,
    groups: Sequence[tuple[str, Mapping[str, float]]],
    methods: Sequence[str],
    look: Styles,
) -> Figure:
    """Final accuracy of several methods side by side, group by group, about four groups in a line.

    Parameters
    ----------
    title : str
    groups : sequence of (str, dict of float)
        What is under a group of bars, and the height of each method's bar.
    methods : sequence of str
        From left to right.
    look : Styles
    """
    across = min(len(groups), max(1, 16 // len(methods)))
    down = math.ceil(len(groups) / across)
    figure = Figure(
        figsize=(max(3.4, 1.0 + across * (0.25 + 0.4 * len(methods))), 0.8 + 2.1 * down)
    )
    top = max(value for _, heights in groups for value in heights.values())
    for place, axes in enumerate(figure.subplots(down, 1, squeeze=False)[:, 0]):
        shown = groups[place * across : (place + 1) * across]
        for number, method in enumerate(methods):
            style = look[method]
            x = [
                group + (number - (len(methods) - 1) / 2) * 0.8 / len(methods)
                for group in range(len(shown))
            ]
            y = [heights.get(method, math.nan) for _, heights in shown]
            drawn_bars = axes.bar(
                x,
                y,
                0.72 / len(methods),
                color=style.colour,
                hatch=style.hatch,
                edgecolor="white",
                label=method,
            )
            axes.bar_label(
                drawn_bars,
                ["" if math.isnan(value) else f"{value:.2f}" for value in y],
                fontsize=6.5,
                padding=1.5,
            )
        axes.set_xticks(range(len(shown)), [name for name, _ in shown])
        axes.set_xlim(-0.6, across - 0.4)
        axes.set_ylim(0, 1.08 * top)
        axes.grid(visible=False, axis="x")
        axes.tick_params(axis="x", length=0)
        axes.set_ylabel("final accuracy (%)")
    wide = max(map(len, methods)) * 0.075 + 0.55  # of an entry, in inches
    columns = min(len(methods), max(1, int(figure.get_figwidth() / wide)))
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=columns
    )
    set_title(figure, title)
    return figure


@dataclass(frozen=True)
class Sweep:
    """Accuracy over the values of an option: a line for each value that the other option had.

    Parameters
    ----------
    option : str
    values : sequence of float
        On the x axis, at even distances.
    lines : dict of list of (mean, std) or None
        Name of the line → percent at each value, None where it was not run.
    """

    option: str
    values: Sequence[float]
    lines: Mapping[str, Sequence[tuple[float, float] | None]]


@drawn
def sweeps(title: str, panels: Sequence[Sweep]) -> Figure:
    """Sensitivity: a panel for each option, with one y axis."""
    figure = Figure(figsize=(3.3 * len(panels), 2.7))
    colours = (
        Style("#0072b2", width=1.8),
        *(Style(*each) for each in zip(_COLOURS, _DASHES, _MARKERS, strict=False)),
    )
    every = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(every, panels, strict=True):
        for (name, points), style in zip(
            panel.lines.items(), colours * math.ceil(len(panel.lines) / len(colours)), strict=False
        ):
            there = [(place, *point) for place, point in enumerate(points) if point is not None]
            x, y, std = (list(part) for part in zip(*there, strict=True))
            errors = std if any(std) else None
            axes.errorbar(
                x,
                y,
                errors,
                color=style.colour,
                linestyle=style.dash,
                marker=style.marker,
                markersize=4,
                label=name,
                capsize=2,
            )
        axes.set_xticks(range(len(panel.values)), [plain(value) for value in panel.values])
        axes.set_xlabel(panel.option)
        axes.margins(x=0.08, y=0.25)
        if len(panel.lines) > 1:
            axes.legend(fontsize=6.5)
    every[0].set_ylabel("accuracy after the last session (%)")
    set_title(figure, title)
    return figure


def set_title(figure: Figure, title: str) -> None:
    """A title from the left edge on, as long as the figure is wide."""
    most = int(11 * figure.get_size_inches()[0])
    figure.suptitle(shortened(title, most), x=0.01, ha="left", fontsize=9, fontweight="bold")


def apart(wanted: Sequence[float], distance: float, low: float, high: float) -> list[float]:
    """Move places so that each is at least so far from the next, as little as possible, and within bounds if they can be.

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


def signed(points: float) -> str:
    """A difference with its sign, to two decimals; the minus is a true one."""
    return f"{points:+.2f}".replace("-", "−")


def plain(value: float) -> str:
    """A number as one writes it: 0, 1e-4, 0.01, 15 000."""
    if 0 < abs(value) < 1e-2:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:,.12g}".replace(",", " ")


def shortened(label: str, most: int) -> str:
    """A label that is not longer than this."""
    return label if len(label) <= most else f"{label[: most - 1]}…"
