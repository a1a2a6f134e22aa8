"""Figures: accuracy by class, confusions, answers over a video."""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure  # without pyplot: no global state, no display needed
from PIL import Image

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
    with drawn_to(path, 10, 1.4 + 0.26 * max(len(classes), len(pairs), 4)) as figure:
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
    with drawn_to(path, 8, 3.6) as figure:
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
def drawn_to(path: Path, width: float, height: float, *, photos: bool = False) -> Iterator[Figure]:
    """Give an empty figure to draw on, and write it, in one step; with photos in 256 colours."""
    check_figure_name(path)
    with styled({}):
        figure = Figure(figsize=(width, height))
        yield figure
        content = io.BytesIO()
        figure.savefig(content, format=path.suffix[1:].lower(), dpi=150)
    if photos:  # a third of the bytes
        image = Image.open(content).convert("RGB")
        image = image.quantize(palette=image.quantize(256))  # this way it is dithered
        content = io.BytesIO()
        image.save(content, "PNG", optimize=True)
    with replacing(path.resolve()) as file:  # a link stays a link
        file.write(content.getvalue())


def _bars(axes: Axes, names: Iterator[str], values: Sequence[float], colour: str) -> None:
    """Draw bars from top to bottom, by place: two names may be the same once shortened."""
    axes.barh(range(len(values)), values, color=colour, height=0.7)
    axes.set_yticks(range(len(values)), list(names))
    axes.invert_yaxis()


def _short(label: object) -> str:
    return shortened(label, _MOST_LETTERS)
