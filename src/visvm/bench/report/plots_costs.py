"""Figures of what accuracy costs: parameters and state, time and memory."""

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from visvm.bench.report.formats import digits, short_count, shortened
from visvm.bench.report.plots import Line, label_ends
from visvm.bench.report.style import PALE, Styles, drawn, set_title
from visvm.bench.report.summary import OURS, FinishedRun


@drawn
def draw_trade_offs(title: str, runs: Sequence[FinishedRun], look: Styles) -> Figure:
    """Draw average accuracy against trainable parameters, and against the size of the state.

    A method is as high on the left as on the right, so that one column of names does for both.
    """
    height = max(2.5, 0.16 * len(runs))  # of the axes, in inches
    figure = Figure(figsize=(7.6, height + 0.8))
    left, right = figure.subplots(1, 2, sharey=True)
    parameters = [each.rows[-1].trainable_parameters for each in runs]
    state = [each.rows[-1].state_bytes for each in runs]
    for axes, name, counts, unit in (
        (left, "parameters trained by gradient descent", parameters, ""),
        (right, "state kept between sessions", state, "B"),
    ):
        for each, x in zip(runs, _set_log_axis(axes, counts, unit), strict=True):
            style, ours = look[each.run.method], each.run.method == OURS
            axes.plot(
                x,
                100 * each.average,
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
    ends = [Line(each.label, each.run.method, [edge], [100 * each.average]) for each in runs]
    label_ends(right, height, ends, look)
    return figure


@drawn
def draw_overhead(title: str, runs: Sequence[FinishedRun], look: Styles) -> Figure:
    """Draw bars of time and memory: a panel for each, a row for each method."""
    panels: tuple[tuple[str, Callable[[FinishedRun], float]], ...] = (
        ("learning (s)", lambda each: each.learn_seconds),
        ("predicting (ms an image)", lambda each: 1000 * each.predict_seconds_per_image),
        ("peak memory (MB)", lambda each: (each.peak_memory or math.nan) / 1e6),
        ("state (MB)", lambda each: each.rows[-1].state_bytes / 1e6),
    )
    figure = Figure(figsize=(7.6, 1.0 + 0.2 * len(runs)))
    every = figure.subplots(1, len(panels), sharey=True)
    places, looks = range(len(runs)), [look[each.run.method] for each in runs]
    colours, hatches = [each.colour for each in looks], [each.hatch for each in looks]
    for axes, (name, cost) in zip(every, panels, strict=True):
        values = [cost(each) for each in runs]
        known = [value for value in values if not math.isnan(value)]
        shown = axes.barh(places, values, 0.72, color=colours, hatch=hatches, edgecolor="white")
        texts = ["" if math.isnan(value) else digits(value) for value in values]
        axes.bar_label(shown, texts, fontsize=6.5, padding=2)
        axes.set_xlim(0, 1.38 * max(known, default=1) or 1)
        axes.xaxis.get_major_locator().set_params(nbins=3)
        axes.set_xlabel(name)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
    every[0].set_yticks(places, [shortened(each.label, 30) for each in runs])
    every[0].invert_yaxis()
    set_title(figure, title)
    return figure


def _set_log_axis(axes: Axes, counts: Sequence[int], unit: str) -> list[float]:
    """Make the x axis one of powers of ten with a place for 0; return the place of every count."""
    positive = [math.log10(count) for count in counts if count]
    low, high = (math.floor(min(positive)), math.ceil(max(positive))) if positive else (0, 0)
    zero = low - 0.8
    decades = range(low, high + 1, 1 + (high - low) // 5) if positive else ()
    ticks = {zero: "0"} if 0 in counts else {}
    ticks |= {decade: short_count(10.0**decade, unit) for decade in decades}
    axes.set_xticks([*ticks], [*ticks.values()])
    first = min(ticks)
    axes.set_xlim(first - 0.3, max(high, first) + 0.3)
    if 0 in counts and positive:
        # the axis is broken here
        axes.axvline(low - 0.4, color=PALE, linewidth=0.8, linestyle=(0, (2, 3)))
    return [math.log10(count) if count else zero for count in counts]
