"""Figures of the diagnosis, like the paper's: gap and gain, training, gradients, and a map."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from visvm.bench.diagnoses import Diagnosis
from visvm.bench.diagnosis import Curve
from visvm.bench.report.style import BLUE, INK, ORANGE, PALE, drawn, set_title

_LOOK = {
    "text": {"color": ORANGE, "linestyle": "--", "marker": "s"},
    "image": {"color": BLUE, "linestyle": "-", "marker": "o"},
}
_SAID = {"text": "from class names", "image": "from class means"}


@drawn
def gap_and_gain(title: str, diagnosis: Diagnosis) -> Figure:
    """Draw the gain of means over names by the gap of each class, and its line."""
    figure = Figure(figsize=(3.6, 2.8))
    axes = figure.add_subplot()
    gaps = np.array(diagnosis.gaps)
    gain = 100 * (np.array(diagnosis.image_accuracy) - np.array(diagnosis.text_accuracy))
    axes.scatter(gaps, gain, s=12, color=BLUE, alpha=0.7, linewidths=0)
    line = diagnosis.correlations["gain"]
    ends = np.array([gaps.min(), gaps.max()])
    axes.plot(ends, 100 * (line.intercept + line.slope * ends), color=ORANGE, linestyle="--")
    axes.axhline(0, color=PALE, linewidth=0.8)
    axes.set_xlabel("gap of the class, 1 − cosine of name and mean")
    axes.set_ylabel("gain of the mean (points)")
    axes.annotate(f"r = {line.r:.2f}", (0.03, 0.93), xycoords="axes fraction", color=INK)
    set_title(figure, title)
    return figure


@drawn
def training(title: str, curves: Sequence[Curve]) -> Figure:
    """Draw loss and accuracy by epoch, from names and from means."""
    figure = Figure(figsize=(6.4, 2.7))
    left, right = figure.subplots(1, 2)
    for curve in curves:
        epochs = np.arange(1, len(curve.loss) + 1)
        look = {**_LOOK[curve.start], "markevery": max(1, len(epochs) // 10), "markersize": 3}
        left.plot(epochs, curve.loss, label=_SAID[curve.start], **look)
        right.plot(epochs, 100 * np.array(curve.accuracy), label=_SAID[curve.start], **look)
    left.set_ylabel("training loss")
    right.set_ylabel("accuracy on classes seen (%)")
    for axes in (left, right):
        axes.set_xlabel("epoch, over all sessions")
    right.legend()
    set_title(figure, title)
    return figure


@drawn
def gradients(title: str, diagnosis: Diagnosis) -> Figure:
    """Draw how the cosines between the gradients of classes are spread."""
    figure = Figure(figsize=(3.6, 2.7))
    axes = figure.add_subplot()
    for start, found in diagnosis.cosines.items():
        edges = np.linspace(-1, 1, len(found.counts) + 1)
        shares = 100 * np.array(found.counts) / max(sum(found.counts), 1)
        look = _LOOK[start]
        axes.stairs(
            shares,
            edges,
            color=look["color"],
            linestyle=look["linestyle"],
            label=_SAID[start],
            linewidth=1.5,
        )
    axes.set_xlabel("cosine between two classes\u2019 gradients")
    axes.set_ylabel("pairs of classes (%)")
    axes.legend()
    set_title(figure, title)
    return figure


@drawn
def joint_space(title: str, diagnosis: Diagnosis) -> Figure:
    """Draw images, class means and class names in one t-SNE map."""
    figure = Figure(figsize=(4.6, 4.2))
    axes = figure.add_subplot()
    looks = {
        "images": ("images", BLUE, "o", 5, 0.4),
        "means": ("class means", "#882255", "^", 18, 0.9),
        "texts": ("class names", "#e69f00", "*", 34, 0.95),
    }
    for name, (label, colour, marker, size, alpha) in looks.items():
        x, y = np.array(diagnosis.map[name]).T
        axes.scatter(x, y, s=size, c=colour, marker=marker, alpha=alpha, linewidths=0, label=label)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(loc="best")
    set_title(figure, title)
    return figure
