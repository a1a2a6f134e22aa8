"""The demo's figure: accuracy over sessions, above the photos that were learned in each."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from visvm.bench.report.formats import shortened
from visvm.bench.report.style import BLUE, INK, ORANGE, PALE
from visvm.cli.demo_results import Demo
from visvm.cli.figures import drawn_to
from visvm.encoders.encoder import Preprocessing
from visvm.encoders.images import decode
from visvm.encoders.sources import Source, as_source, content_of
from visvm.encoders.transform import Transform
from visvm.model.formats import percent

_PLAIN = Transform("crop", Preprocessing(180, 180, (0.0,) * 3, (1.0,) * 3))
_WIDTH, _HEIGHT = 8.6, 5.7  # inches
_LEFT, _COLUMN, _PHOTO = 0.62, 1.12, 1.0  # inches: of the plot, of a session, of a photo
_GAP = 17.0  # per cent of the axis: the least between two labels
_BESIDE = 20  # letters beside a photo


def draw_demo(demo: Demo, path: Path) -> None:
    """Draw accuracy over sessions of three heads, above two photos of each session."""
    with drawn_to(path, _WIDTH, _HEIGHT, photos=True) as figure:
        figure.set_layout_engine("none")
        n = len(demo.sessions)
        column = _COLUMN * 5 / n
        right = _LEFT + column * n
        axes = _placed(figure, _LEFT, 2.74, right - _LEFT, 2.3)
        title = f"{demo.sessions[-1].n_known} classes, learned a few at a time"
        figure.text(0.012, 0.955, title, fontsize=13, fontweight="bold", color=INK)
        said = "Accuracy on the test photos of all classes learned so far (%)"
        figure.text(0.012, 0.915, said, fontsize=9.5, color=INK)
        _lines(axes, demo)
        for place, session in enumerate(demo.sessions):
            middle = _LEFT + column * (place + 0.5)
            for row, label in enumerate(session.classes[:2]):
                bottom = 1.5 - row * 1.24
                box = _placed(figure, middle - _PHOTO / 2, bottom, _PHOTO, _PHOTO)
                _picture(box, demo.sample(label))
                _say(figure, middle, bottom - 0.04, shortened(label, 15), ha="center")
        _beside(figure, right + 0.14, demo)


def _lines(axes: Axes, demo: Demo) -> None:
    """Draw the accuracies, each line with its name at its end."""
    last = demo.sessions[-1]
    heads = (
        ("visvm", "from new photos only", BLUE, "o-", 5.5, [s.ours for s in demo.sessions]),
        (
            *("linear probe", f"retrained on all {last.n_kept} photos", INK, "D:", 1.8),
            [s.probe for s in demo.sessions],
        ),
        (
            *("head that forgets", "from new photos only", ORANGE, "s--", 1.6),
            [s.forgetting for s in demo.sessions],
        ),
    )
    places = list(range(len(demo.sessions)))
    below = np.inf
    for name, how, colour, line, width, values in sorted(heads, key=lambda head: -head[-1][-1]):
        marks: Any = {"markersize": 11 if name == "visvm" else 5, "markeredgecolor": "white"}
        axes.plot(places, [100 * v for v in values], line, color=colour, linewidth=width, **marks)
        below = min(100 * values[-1], below - _GAP)
        at: Any = {"xy": (1.015, below), "xycoords": ("axes fraction", "data"), "va": "center"}
        score = f"{name} {percent(values[-1], 0)}"
        axes.annotate(score, **at, color=colour, fontsize=10.5, fontweight="bold")
        under: Any = {"xytext": (0, -11), "textcoords": "offset points"}
        axes.annotate(how, **at, **under, color=INK, fontsize=8)
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_ylim(0, 106)
    axes.set_yticks(range(0, 101, 25))
    counts = [each.n_known for each in demo.sessions]
    axes.set_xticks(places, [f"{n} classes" for n in counts], fontsize=9)
    axes.tick_params(length=0, labelcolor=INK)
    axes.grid(axis="y", color="#e3e6e8")
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    axes.spines["bottom"].set_color(PALE)


def _beside(figure: Figure, left: float, demo: Demo) -> None:
    """Show a stranger and the wrong label at the right of the photos."""
    stranger, wrong = demo.strangers[0], demo.planted
    closest = f"(closest: {stranger.answer.label})"
    said = ("none of these", closest) if stranger.answer.unknown else ("taken for", closest[10:-1])
    looks = ("not found", "") if wrong.found is None else ("looks like", wrong.found.suggested)
    rows = (
        ("A stranger:", stranger.answer.path, said),
        ("Labelled", wrong.path, (f"{wrong.label}:", *looks)),
    )
    for row, (head, photo, lines) in enumerate(rows):
        bottom = 1.5 - row * 1.24
        _picture(_placed(figure, left, bottom, 0.86, _PHOTO), as_source(photo))
        for number, text in enumerate((head, *lines)):
            weight = "bold" if number else "normal"
            where = left + 0.94, bottom + 0.9 - 0.2 * number
            _say(figure, *where, shortened(text, _BESIDE), weight=weight, size=8)


def _placed(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Add axes at a place in inches."""
    box = left / _WIDTH, bottom / _HEIGHT, width / _WIDTH, height / _HEIGHT
    return figure.add_axes(box)


def _say(figure: Figure, left: float, top: float, text: str, **how: Any) -> None:
    options: Any = {"va": "top", "fontsize": how.pop("size", 9), "color": INK, **how}
    figure.text(left / _WIDTH, top / _HEIGHT, text, **options)


def _picture(axes: Axes, photo: Source) -> None:
    pixels: NDArray[np.float32] = decode(content_of(photo), _PLAIN).transpose(1, 2, 0)
    axes.imshow(pixels.clip(0, 1), interpolation="lanczos")
    axes.axis("off")
