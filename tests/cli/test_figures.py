from pathlib import Path

import numpy as np
import pytest
from matplotlib.font_manager import FontEntry, fontManager
from PIL import Image

from tests.refusals import refused
from visvm import InputError
from visvm.bench.report.style import fonts
from visvm.cli.figures import check_figure_name, draw_evaluation
from visvm.model.results import evaluate_labels

pytestmark = pytest.mark.slow


def is_drawn(path):
    """Whether a picture holds more than its background."""
    with Image.open(path) as image:
        return np.asarray(image.convert("L")).std() > 5


@pytest.mark.parametrize("n_classes", [1, 2, 60])
def test_evaluation(tmp_path, n_classes):
    labels = [f"a class with a rather long name, number ${place}" for place in range(n_classes)] * 3
    predicted = labels[:1] * len(labels)
    draw_evaluation(evaluate_labels(labels, predicted), tmp_path / "a.png")
    assert is_drawn(tmp_path / "a.png")


def test_vector_figures(tmp_path):
    result = evaluate_labels(["cat", "dog"], ["cat", "cat"])
    for name, start in (("a.svg", b"<?xml"), ("a.pdf", b"%PDF")):
        draw_evaluation(result, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a", "figure-kind-unknown"),
        ("a.docx", "figure-kind-unknown"),
        ("nowhere/a.png", "figure-folder-missing"),
    ],
)
def test_names_that_cannot_be_drawn_to(tmp_path, name, code):
    with refused(code, InputError) as caught:
        check_figure_name(Path(tmp_path, name))
    assert name in str(caught.value)


def test_letters_that_the_usual_font_lacks(monkeypatch):
    both = [FontEntry(name="Noto Sans CJK JP", weight=weight) for weight in (400, 700)]
    monkeypatch.setattr(
        fontManager,
        "ttflist",
        [*both, FontEntry(name="Yu Gothic", weight=400), FontEntry(name="Arial", weight=400)],
    )
    assert fonts() == ["DejaVu Sans", "Noto Sans CJK JP"]
