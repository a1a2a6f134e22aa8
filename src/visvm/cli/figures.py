"""Figures: accuracy by class, confusions, accuracy over sessions."""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure  # without pyplot: no global state, no display needed

from visvm.bench.report.formats import shortened
from visvm.bench.report.style import BLUE, COLOURS, ORANGE, styled
from visvm.encoders.files import replacing
from visvm.errors import InputError, shown
from visvm.model.formats import percent
from visvm.model.labels import Label
from visvm.model.over_time import Moment
from visvm.model.results import Evaluation

_SUFFIXES = (".png", ".pdf", ".svg")
_MOST_CLASSES, _MOST_PAIRS = 30, 15
_MOST_LETTERS = 28
_LEAST_SHARE = 0.05  # of a class that is drawn over time, at its best moment


def check_figure_name(path: Path) -> None:
    """Refuse a file that no figure can be written to, before work is spent on it."""
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(
            f"{shown(path.name)!r} is not the name of a figure. "
            f"Give it one of the endings {', '.join(_SUFFIXES)}.",
            code="figure-kind-unknown",
        )
    if not path.absolute().parent.is_dir():
        advice = f"The folder of {shown(path)} does not exist. Make it, or choose another one."
        raise InputError(advice, code="figure-folder-missing")


def draw_evaluation(result: Evaluation, path: Path) -> None:
    """Draw accuracy by class, worst first, beside the most frequent confusions."""
    worst = sorted(result.per_class.items(), key=lambda item: (item[1].accuracy, str(item[0])))
    classes, pairs = dict(worst[:_MOST_CLASSES]), result.confusions[:_MOST_PAIRS]
    with _drawn(path, 10, 1.4 + 0.26 * max(len(classes), len(pairs), 4)) as figure:
        left, right = figure.subplots(1, 2)
        _bars(left, map(_short, classes), [100 * each.accuracy for each in classes.values()], BLUE)
        left.set_xlim(0, 100)
        left.set_xlabel("accuracy (%)")
        few = f": the {len(classes)} worst of {len(worst)}" if len(classes) < len(worst) else ""
        left.set_title(f"By class{few}", loc="left", fontsize=10)
        if pairs:
            names = (f"{_short(pair.label)} → {_short(pair.predicted)}" for pair in pairs)
            _bars(right, names, [pair.n for pair in pairs], ORANGE)
            right.xaxis.get_major_locator().set_params(integer=True)
            right.set_xlabel("images")
            right.set_title("Most frequent confusions: class → taken for", loc="right", fontsize=10)
        else:
            right.axis("off")
            right.text(0.5, 0.5, "no confusions", ha="center", va="center")
        title = f"{percent(result.accuracy)} of {result.n} images recognised"
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")


def draw_demo(
    seen: Sequence[int],
    ours: Sequence[float],
    theirs: Sequence[float],
    samples: Sequence[tuple[object, Any]],
    path: Path,
) -> None:
    """Draw accuracy over sessions of a head that remembers and of one that forgets.

    Parameters
    ----------
    seen : sequence of int
        Classes seen after each session.
    ours, theirs : sequences of float
        Accuracy after each session, from 0 to 1, on all of them.
    samples : sequence of (label, image array)
        A picture of each class to show below, in the order in which they are learned.
    """
    with _drawn(path, 8, 4.6) as figure:
        grid = figure.add_gridspec(2, len(samples), height_ratios=[4.2, 1])
        axes = figure.add_subplot(grid[0, :])
        for values, colour, line, label in (
            (ours, BLUE, "o-", "visvm"),
            (theirs, ORANGE, "s--", "the same features, head trained by gradient"),
        ):
            axes.plot(seen, [100 * value for value in values], line, color=colour)
            said, end = f"{label}: {percent(values[-1], 0)}", (seen[-1], 100 * values[-1])
            below: Any = {"textcoords": "offset points", "xytext": (0, -18), "ha": "right"}
            axes.annotate(said, end, color=colour, fontweight="bold", **below)
        axes.set_xticks(seen)
        axes.set_xlabel("classes learned so far")
        axes.set_ylabel("accuracy on all of them (%)")
        axes.set_ylim(0, 105)
        axes.grid(axis="y", alpha=0.3)
        for place, (name, image) in enumerate(samples):
            picture = figure.add_subplot(grid[1, place])
            picture.imshow(image)
            picture.set_title(shortened(name, 10), fontsize=8)
            picture.axis("off")


def draw_moments(moments: Sequence[Moment], path: Path, *, raw: bool) -> None:
    """Draw the likeliest classes of a video over time; grey where it shows none of them.

    The answers should name all classes, or so many that the others have nearly no probability.
    """
    best: dict[Label, float] = {}
    for moment in moments:
        for label, score in moment.answer.top:
            best[label] = max(score, best.get(label, -math.inf))
    seen = [label for label in best if raw or best[label] >= _LEAST_SHARE]
    chosen = sorted(seen or best, key=lambda label: -best[label])[: len(COLOURS)]
    times = [moment.seconds for moment in moments]
    with _drawn(path, 8, 3.6) as figure:
        axes = figure.add_subplot()
        for label, colour in zip(chosen, COLOURS, strict=False):
            heights = [_height(each, label, raw=raw) for each in moments]
            axes.plot(times, heights, ".-", color=colour, label=_short(label))
        for moment, end in zip(moments, [*times[1:], *times[-1:]], strict=True):
            if moment.answer.unknown:
                axes.axvspan(moment.seconds, end, color="0.9", zorder=0)
        axes.set_xlabel("seconds (grey: none of these)")
        axes.set_ylabel("score" if raw else "probability (%)")
        if not raw:
            axes.set_ylim(0, 105)
        if chosen:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _height(moment: Moment, label: Label, *, raw: bool) -> float:
    """Return how high a class is drawn; one that is not named then has nearly no probability."""
    return dict(moment.answer.top).get(label, math.nan if raw else 0.0) * (1 if raw else 100)


@contextmanager
def _drawn(path: Path, width: float, height: float) -> Iterator[Figure]:
    """Give an empty figure to draw on, and write it, in one step."""
    check_figure_name(path)
    with styled({}):
        figure = Figure(figsize=(width, height))
        yield figure
        content = io.BytesIO()
        figure.savefig(content, format=path.suffix[1:].lower(), dpi=150)
    with replacing(path.resolve()) as file:  # a link stays a link
        file.write(content.getvalue())


def _bars(axes: Axes, names: Iterator[str], values: Sequence[float], colour: str) -> None:
    """Draw bars from top to bottom, by place: two names may be the same once shortened."""
    axes.barh(range(len(values)), values, color=colour, height=0.7)
    axes.set_yticks(range(len(values)), list(names))
    axes.invert_yaxis()


def _short(label: object) -> str:
    return shortened(label, _MOST_LETTERS)
