import io
import itertools
import xml.etree.ElementTree as ET

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from PIL import Image

from tests.bench.make_rows import METHODS, make_rows, make_run
from tests.bench.written import both
from visvm.bench.report import plots, plots_costs, plots_maps
from visvm.bench.report.sections import accuracy
from visvm.bench.report.style import RC, Drawing, styled, styles
from visvm.bench.report.summary import FinishedRun

pytestmark = pytest.mark.slow


def test_the_legend_of_few_bars_is_inside():
    look = styles(METHODS)
    methods = ["visual-lssvm", "visual-lssvm+kernel", "vis-paper", "vis"]
    with styled(RC):
        figure = plots.bars.__wrapped__(
            "t", [("digits", dict.fromkeys(methods, 70.0))], methods, look
        )
        FigureCanvasAgg(figure).draw()
        extent = figure.legends[0].get_window_extent()
    assert extent.x0 >= 0
    assert extent.x1 <= figure.bbox.x1


@pytest.fixture
def drawn(monkeypatch):
    """Groups of bars that would be drawn."""
    groups = []

    def keep(title, given, *_):
        groups.append(given)
        return Drawing("<svg></svg>", b"")

    monkeypatch.setattr(plots, "bars", keep)
    return groups


def test_bars_of_other_options_are_left_out(drawn):
    runs = [
        ("visual-lssvm", [0.5]),
        ("visual-lssvm+kernel", [0.6]),
        (make_run("vis", options={"n_components": 5}), [0.7]),
    ]
    both(accuracy.ablation, *runs)
    assert drawn
    assert all(
        set(heights) == {"visual-lssvm", "visual-lssvm+kernel"}
        for groups in drawn
        for _, heights in groups
    )


def test_bars_of_one_set_of_options_are_drawn(drawn):
    runs = [
        (make_run(method, options={"n_components": 5}), [0.7])
        for method in ("visual-lssvm+kernel", "vis")
    ]
    both(accuracy.ablation, ("visual-lssvm", [0.5]), *runs)
    ((name, heights),) = drawn[0]
    assert "n_components=5" in name
    assert list(heights) == ["visual-lssvm", "visual-lssvm+kernel", "vis"]


@pytest.mark.parametrize(
    ("ours", "said", "shown"),
    [(0.8, "5.00 points ahead of", "+5.00"), (0.7, "5.00 points behind", "−5.00")],
)
def test_gap_at_the_end_of_the_curves(monkeypatch, ours, said, shown):
    labels = []
    monkeypatch.setattr(plots, "label_ends", lambda *given: labels.append(given[-1]))
    runs = ("vis", [1.0, ours]), ("mine", [1.0, 0.75]), ("vis-oracle", [1.0, 0.99])
    _, markdown = both(accuracy.curves, *runs)
    assert f"In the end vis is {said} mine, the best other method." in markdown
    assert set(labels) == {f" ({shown} on mine)"}
    _, markdown = both(accuracy.curves, *runs, ("ncm", [1.0, 0.75]))
    assert f"{said} mine, the best other method, and {said} ncm, the best relative." in markdown


def test_styles_stay_with_their_methods():
    few, many = styles(["ncm", "mine", "vis"]), styles([*METHODS, "mine"])
    assert few["ncm"] == many["ncm"]
    assert few["vis"] == many["vis"]
    looks = [
        (style.colour, style.dash, style.marker)
        for style in styles(f"method {n}" for n in range(60)).values()
    ]
    assert len(set(looks)) == len(looks)


def overlaps(figure, texts):
    """Pairs of texts whose boxes share some area."""
    figure.canvas.draw()
    boxes = [
        (text.get_text(), Text.get_window_extent(text).shrunk(0.98, 0.9))
        for text in texts
        if text.get_text()
    ]
    return [(a, b) for (a, one), (b, two) in itertools.combinations(boxes, 2) if one.overlaps(two)]


def test_labels_do_not_overlap():
    look = styles(METHODS)
    lines = [
        plots.Line(name, name, [1, 2], [90, 100 * final]) for name, (final, *_) in METHODS.items()
    ]
    runs = [
        FinishedRun(
            run := make_run(name),
            tuple(make_rows(run, [final], trainable_parameters=n, state_bytes=size)),
        )
        for name, (final, n, size, _) in METHODS.items()
    ]
    with styled(RC):
        curves = plots.draw_curves.__wrapped__("t", lines, look)
        FigureCanvasAgg(curves)
        assert overlaps(curves, curves.axes[0].texts) == []
        inside = curves.bbox
        assert all(inside.x1 >= text.get_window_extent().x1 for text in curves.axes[0].texts)
        assert [text.get_text() for text in curves.axes[0].texts if "vis " in text.get_text()] == [
            "vis 82.01 (+1.41 on ranpac-head)"
        ]
        scatter = plots_costs.draw_trade_offs.__wrapped__("t", runs, look)
        FigureCanvasAgg(scatter)
        assert overlaps(scatter, scatter.axes[1].texts) == []
        named = [text.get_text() for text in scatter.axes[1].texts if text.get_text()]
        assert named == [f"{name} {100 * final:.2f}" for name, (final, *_) in METHODS.items()]
        assert all(scatter.bbox.x1 >= text.get_window_extent().x1 for text in scatter.axes[1].texts)


@pytest.mark.parametrize("n_panels", [1, 2, 3, 4])
def test_maps_of_sessions_are_whole(n_panels):
    panels = [("colours\nB0 Inc2", [[90.0], [80.0, 85.0], [70.0, 80.0, 0.0]])] * n_panels
    with styled(RC):
        figure = plots_maps.session_maps.__wrapped__("vis, dinov2-s14", panels)
        figure.savefig(io.BytesIO(), format="svg")
        # it is laid out once: a second time, faults of the first would vanish
        figure.set_layout_engine("none")
        FigureCanvasAgg(figure)
        maps = figure.axes[:n_panels]
        texts = [
            text
            for axes in maps
            for text in (axes._left_title, axes.title, axes.xaxis.label, axes.yaxis.label)
        ]
        assert overlaps(figure, [figure._suptitle, *texts]) == []
        assert all(
            figure.bbox.containsx(box.x0) and figure.bbox.containsy(box.y0)
            for box in map(Text.get_window_extent, texts)
        )


def test_drawing_is_a_picture():
    drawing = plots.sweeps(
        "$t",
        [
            plots.Sweep(
                "a", [0, 1e-4, 15000], {"x": [(1.0, 0.0), None, (2.0, 0.1)], "y": [(1.0, 0.0)] * 3}
            )
        ],
    )
    ET.fromstring(drawing.svg)
    assert Image.open(io.BytesIO(drawing.png)).format == "PNG"
