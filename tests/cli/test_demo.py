import re

import pytest
from rich.console import Console

from tests import tiny
from tests.refusals import refused
from visvm import ImageClassifier, InputError
from visvm.cli import demo
from visvm.progress import silent

pytestmark = pytest.mark.slow


@pytest.fixture
def encoder(tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    return str(tiny.write_encoder(tmp_path))


def run(tmp_path, encoder, folder=None):
    console = Console(record=True, width=400)
    demo.run(console, silent, tmp_path / "out", folder, encoder)
    return console.export_text()


def test_the_demo_shows_one_head_that_remembers_and_one_that_forgets(tmp_path, encoder):
    text = run(tmp_path, encoder)
    rows = re.findall(r"│ (\d) +│ [^│]+│ +(\d+) │ +([\d.]+) % │ +([\d.]+) %", text)
    assert [(int(session), int(known)) for session, known, *_ in rows] == [
        (1, 2),
        (2, 4),
        (3, 6),
        (4, 8),
        (5, 10),
    ]
    ours, theirs = ([float(row[column]) for row in rows] for column in (2, 3))
    assert ours[-1] > 50  # even through a random projection
    assert theirs[-1] < 40
    assert (tmp_path / "out" / "figure.png").read_bytes().startswith(b"\x89PNG")
    model = ImageClassifier.load(tmp_path / "out" / "digits.visvm")
    assert len(model.classes_) == 10
    assert f"visvm predict {tmp_path / 'out' / 'digits.visvm'}" in text


def test_the_demo_takes_ones_own_folder(tmp_path, encoder):
    text = run(
        tmp_path, encoder, tiny.write_photos(tmp_path / "photos", classes=tuple(tiny.COLOURS), n=7)
    )
    assert "20 images to learn, 8 to test with" in text
    assert (tmp_path / "out" / "demo.visvm").exists()


@pytest.mark.parametrize(
    ("classes", "n", "code"),
    [(("red",), 5, "demo-classes-few"), (("red", "blue"), 1, "demo-images-few")],
)
def test_folders_too_small_are_refused(tmp_path, encoder, classes, n, code):
    with refused(code, InputError):
        run(tmp_path, encoder, tiny.write_photos(tmp_path / "photos", classes=classes, n=n))
