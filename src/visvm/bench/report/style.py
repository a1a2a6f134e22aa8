"""How figures look: fonts, colours, and one style for each method.

Colour-blind people can tell the colours apart (most are Okabe's and Ito's), and every method has a
line style and a marker of its own, so that figures can be read in grey. The same input gives the
same bytes.
"""

import functools
import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec

import matplotlib.style
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from visvm.bench.report.formats import shortened
from visvm.bench.report.summary import BASELINES, ORACLE, OURS

INK, PALE = "#22262a", "#8a9097"
BLUE, ORANGE = "#0072b2", "#d55e00"
"""The colour of our method, and of the first that it is compared with."""

RC = {
    "font.size": 8,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": PALE,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
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
    # in inches: laid out once, letters are not of the same width in all files
    "figure.constrained_layout.w_pad": 0.1,
    "savefig.dpi": 180,
    "svg.fonttype": "path",  # no font is needed to show it
    "svg.hashsalt": "visvm",
}
_RC_OF_ALL = {
    "text.parse_math": False,  # names may hold dollars
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
}
_WIDE_FONTS = ("Noto Sans CJK JP", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Hiragino Sans")

COLOURS = (
    *(ORANGE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b7177"),
    *("#8c6d1f", "#882255", "#332288", "#117733"),
)
DASHES: tuple[Any, ...] = ("--", "-.", ":", (0, (6, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("s", "^", "v", "D", "P", "X", "<", ">", "h", "p", "d")
_HATCHES = ("///", "\\\\\\", "xxx", "---", "|||", "+++", "//", "\\\\")

P = ParamSpec("P")


@dataclass(frozen=True)
class Drawing:
    """A figure as files: SVG text, and the bytes of a PNG."""

    svg: str
    png: bytes


@dataclass(frozen=True)
class Style:
    """How a method is drawn, the same in all figures."""

    colour: str
    dash: Any = "-"
    marker: str = "o"
    hatch: str = ""
    width: float = 1.1

    @property
    def line(self) -> dict[str, Any]:
        """Options of matplotlib for a line."""
        return {"color": self.colour, "linestyle": self.dash, "marker": self.marker}


Styles = Mapping[str, Style]


def styles(methods: Iterable[str]) -> Styles:
    """Return a style for every method.

    A method that comes with visvm always has the same one; the others follow in the order given.
    """
    others = [name for name in dict.fromkeys((*BASELINES, *methods)) if name not in (OURS, ORACLE)]
    cycles = (COLOURS, DASHES, MARKERS, _HATCHES)  # of 10, 5, 11 and 8: no two methods are alike
    found = {
        method: Style(*(cycle[place % len(cycle)] for cycle in cycles))
        for place, method in enumerate(others)
    }
    return {**found, OURS: Style(BLUE, width=2.2), ORACLE: Style("#000000", (0, (1, 1)), "*")}


def fonts() -> list[str]:
    """Name the font that comes with matplotlib, then fonts here with letters that it lacks."""
    here = {(font.name, font.weight) for font in fontManager.ttflist}
    # matplotlib warns of a missing font on every use
    return ["DejaVu Sans", *(name for name in _WIDE_FONTS if {(name, 400), (name, 700)} <= here)]


@contextmanager
def styled(rc: Mapping[str, Any]) -> Iterator[None]:
    """Draw with these settings whatever the user's own are, and without warnings of letters."""
    settings = {**_RC_OF_ALL, "font.family": fonts(), **rc}
    with matplotlib.style.context(["default", settings]), warnings.catch_warnings():
        # a box in its place says as much
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def drawn(draw: Callable[P, Figure]) -> Callable[P, Drawing]:
    """Make a function that draws a figure return its files instead, in the report's style."""

    @functools.wraps(draw)
    def files(*args: P.args, **kwargs: P.kwargs) -> Drawing:
        svg, png = io.BytesIO(), io.BytesIO()
        with styled(RC):
            figure = draw(*args, **kwargs)
            figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
            figure.set_layout_engine("none")  # as it was laid out for the first
            figure.savefig(png, format="png", metadata={"Software": None})
        return Drawing(svg.getvalue().decode(), png.getvalue())

    return files


def set_title(figure: Figure, title: str) -> None:
    """Put a title at the left edge, cut to the width of the figure."""
    most = int(11 * figure.get_size_inches()[0])
    figure.suptitle(shortened(title, most), x=0.01, ha="left", fontsize=9, fontweight="bold")
