"""Figures: accuracy by class, confusions, accuracy over sessions. Colours are told apart by the colour-blind, and in grey."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visvm.bench.report.fonts import fonts
from visvm.errors import InputError
from visvm.model.results import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS, THEIRS = "#0072b2", "#d55e00"
_SUFFIXES = (".png", ".pdf", ".svg")
_MOST_CLASSES = 30
# Chinese, Japanese, Korean


def check_figure_name(path: Path) -> None:
    """Refuse a file name whose ending says no kind of figure, or whose folder is not there, before work is spent on it."""
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(
            f"a figure must end in {', '.join(_SUFFIXES)}; got {path.name!r}: rename it"
        )
    if not path.absolute().parent.is_dir():
        raise InputError(
            f"the folder of {path} must exist; it does not: make it, or choose another place"
        )


def draw_evaluation(result: Evaluation, path: Path) -> None:
    """Draw accuracy by class, worst first, beside the most frequent confusions.

    Parameters
    ----------
    result : Evaluation
    path : Path
        Ends in .png, .pdf or .svg.
    """
    check_figure_name(path)
    worst = sorted(result.per_class.items(), key=lambda item: (item[1].accuracy, str(item[0])))
    shown, pairs = worst[:_MOST_CLASSES], result.confusions[:15]
    rows = max(len(shown), len(pairs), 4)
    figure = _figure(10, 1.4 + 0.26 * rows)
    left, right = figure.subplots(1, 2)
    _bars(
        left,
        [_short(label) for label, _ in shown],
        [100 * each.accuracy for _, each in shown],
        OURS,
    )
    left.set_xlim(0, 100)
    left.set_xlabel("accuracy (%)")
    few = f": the {len(shown)} worst of {len(worst)}" if len(shown) < len(worst) else ""
    left.set_title(f"By class{few}", loc="left", fontsize=10)
    if pairs:
        names = [f"{_short(pair.label)} → {_short(pair.predicted)}" for pair in pairs]
        _bars(right, names, [pair.n for pair in pairs], THEIRS)
        right.xaxis.get_major_locator().set_params(integer=True)
        right.set_xlabel("images")
        right.set_title("Most frequent confusions: class → taken for", loc="right", fontsize=10)
    else:
        right.axis("off")
        right.text(0.5, 0.5, "no confusions", ha="center", va="center")
    figure.suptitle(
        f"{100 * result.accuracy:.1f} % of {result.n} images recognised",
        x=0.01,
        ha="left",
        fontweight="bold",
    )
    _save(figure, path)


def draw_demo(
    seen: Sequence[int],
    ours: Sequence[float],
    theirs: Sequence[float],
    samples: Sequence[Any],
    path: Path,
) -> None:
    """Draw accuracy over sessions of the head that remembers and of the one that forgets, above a picture of every class.

    Parameters
    ----------
    seen : sequence of int
        Classes seen after each session.
    ours, theirs : sequences of float
        Accuracy after each session, from 0 to 1, on all of them.
    samples : sequence of (label, image array)
        One for each class, in the order in which they are learned.
    path : Path
    """
    check_figure_name(path)
    figure = _figure(8, 4.6)
    grid = figure.add_gridspec(2, len(samples), height_ratios=[4.2, 1])
    axes = figure.add_subplot(grid[0, :])
    for values, colour, marker, label in (
        (ours, OURS, "o", "visvm"),
        (theirs, THEIRS, "s", "the same features, head trained by gradient"),
    ):
        axes.plot(
            seen,
            [100 * value for value in values],
            color=colour,
            marker=marker,
            linestyle="-" if marker == "o" else "--",
        )
        height = 100 * values[-1]
        axes.annotate(
            f"{label}: {height:.0f} %",
            (seen[-1], height),
            textcoords="offset points",
            xytext=(0, -18),
            ha="right",
            color=colour,
            fontweight="bold",
        )
    axes.set_xticks(seen)
    axes.set_xlabel("classes learned so far")
    axes.set_ylabel("accuracy on all of them (%)")
    axes.set_ylim(0, 105)
    axes.grid(axis="y", alpha=0.3)
    for place, (label, image) in enumerate(samples):
        picture = figure.add_subplot(grid[1, place])
        picture.imshow(image)
        picture.set_title(_short(label, 10), fontsize=8)
        picture.axis("off")
    _save(figure, path)


def _bars(axes: "Axes", names: Sequence[str], values: Sequence[float], colour: str) -> None:
    """Bars from top to bottom; by place and not by name, as two names may be shortened to one."""
    axes.barh(range(len(names)), values, color=colour, height=0.7)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure  # without pyplot: no global state, no display needed

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: "Figure", path: Path) -> None:
    from matplotlib.text import Text

    families = fonts()
    for text in figure.findobj(Text):
        text.set_fontfamily(families)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    with warnings.catch_warnings():
        # a box in its place says as much
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(path, dpi=150)


def _short(label: object, most: int = 28) -> str:
    text = str(label).replace("$", r"\$")
    return text if len(text) <= most else f"{text[: most - 1]}…"
