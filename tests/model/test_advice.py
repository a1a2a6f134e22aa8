"""``suggest`` and ``explain``: in Python, on the command line, and what they refuse."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from tests import tiny
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.encoders.images import aspect_of
from visvm.encoders.occlusion import CELLS, PASSES, heat_map, occluded
from visvm.errors import ImageError, InputError, ModelFileError
from visvm.model import advice


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model that knows red and green well, a folder without labels, and a half-and-half photo."""
    folder = tmp_path_factory.mktemp("advice")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "photos", ("red", "green"), n=10)
    given = {"n_components": 150, "cache": False, "layers": (3,), "ridge": 3.0}
    model = ImageClassifier(str(folder / "tiny.onnx"), transform="squash", **given)
    model.learn(folder / "photos")
    model.save(folder / "m.visvm")
    tiny.write_photos(folder / "new", ("red", "green"), n=3, seed=1)
    tiny.write_photos(folder / "new", ("yellow",), n=1, seed=2)
    return folder


@pytest.fixture
def model(place):
    return ImageClassifier.load(place / "m.visvm", cache=False)


def test_what_is_least_like_what_was_learned_is_suggested_first(model, place):
    found = model.suggest(place / "new", 3)
    assert "yellow" in found[0].path
    again = model.suggest(sorted((place / "new").rglob("*.png")), 3)
    assert again == found
    paths = sorted((place / "new").rglob("*.png"))
    for each in found:
        assert str(paths[each.place]) == each.path
        (answer,) = model.predict(paths[each.place])
        assert (answer.label, answer.score) == (each.label, pytest.approx(each.score))


def test_a_photo_and_its_copy_are_not_suggested_together(model, place):
    photo = (place / "new/yellow/2-0.png").read_bytes()
    assert [each.place for each in model.suggest([photo] * 3, 3)] == [0]


def test_it_survives_forgetting_and_merging(model, place):
    model.export_for_site(place / "s.visvm")
    other = ImageClassifier.load(place / "s.visvm", cache=False)
    other.learn(sorted((place / "new/yellow").iterdir()), ["yellow"])
    model.merge(other)
    assert "yellow" not in model.suggest(place / "new", 1)[0].path
    model.forget(sorted((place / "new/yellow").iterdir()), ["yellow"])
    assert "yellow" in model.suggest(place / "new", 1)[0].path


def test_what_cannot_be_suggested_is_refused(model, place, tmp_path):
    for wrong in (0, -1, 1.5, True):
        with refused("parameter-n", InputError):
            model.suggest(place / "new", wrong)
    (tmp_path / "empty").mkdir()
    with refused("images-missing", InputError):
        model.suggest(tmp_path / "empty")
    photo = (place / "new/red/1-0.png").read_bytes()
    with refused("images-unreadable", ImageError):
        model.suggest([photo, b"no image"])
    assert [each.place for each in model.suggest([b"", photo], skip_unreadable=True)] == [1]
    with refused("sums-missing", ModelFileError):
        ImageClassifier.load(place / "m.visvm", for_prediction=True).suggest(place / "new")


def test_suggest_on_the_command_line(place, visvm):
    given = ("suggest", place / "m.visvm", place / "new", "-n", 2, "--no-cache")
    code, out, _ = visvm(*given)
    assert code == 0
    assert "Label these 2 of 7 photos next" in out
    said = json.loads(visvm(*given, "--json")[1])
    assert [set(each) for each in said] == [{"path", "place", "label", "score", "unknown"}] * 2
    assert visvm("suggest", place / "m.visvm", place / "new", "-n", 0)[0] == 2


def beside(*colours):
    """A picture with these colours side by side."""
    width = 40 // len(colours)
    columns = [np.full((40, width, 3), tiny.COLOURS[each], dtype=np.uint8) for each in colours]
    file = io.BytesIO()
    Image.fromarray(np.concatenate(columns, axis=1)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(("colours", "half"), [(("red", "green"), 0), (("green", "red"), 1)])
def test_the_evidence_for_a_colour_is_where_it_is(model, colours, half):
    """The linear part of the tiny encoder gives every pixel its own say."""
    red, green = (model.explain(beside(*colours), label) for label in ("red", "green"))
    halves = [np.hsplit(each.heat, 2) for each in (red, green)]
    assert halves[0][half].sum() > halves[0][1 - half].sum()
    assert halves[1][1 - half].sum() > halves[1][half].sum()
    assert red.heat == pytest.approx(-green.heat)  # with two classes, one's loss is the other's
    likeliest = model.explain(beside(*colours))
    (answer,) = model.predict(beside(*colours))
    assert (likeliest.label, likeliest.score) == (answer.label, pytest.approx(answer.score))


def test_what_looks_like_none_of_the_classes_is_said(model, place, monkeypatch):
    photo = place / "new/red/1-0.png"
    (answer,) = model.predict(photo)
    for rate in (0.0, 1.0):
        monkeypatch.setattr(advice, "UNKNOWN", rate)
        unknown = answer.known < rate
        assert model.explain(photo).unknown is unknown
        assert [each.unknown for each in model.suggest([photo], 1)] == [unknown]


def test_the_picture_shows_the_heat_on_the_photo(model, place):
    found = model.explain(place / "new/red/1-0.png")
    with Image.open(io.BytesIO(found.picture)) as picture:
        assert (picture.format, picture.mode) == ("PNG", "RGB")
        assert picture.width / picture.height == pytest.approx(26 / 20, rel=0.01)
    assert found.heat.shape == (CELLS, CELLS)


def test_the_heat_of_a_cell_is_the_mean_loss_where_it_was_hidden():
    pixels = np.random.default_rng(0).normal(size=(3, 13, 13)).astype(np.float32)
    shown = np.concatenate(list(occluded(pixels, 8)))
    assert shown.shape == (PASSES, 3, 13, 13)
    assert PASSES <= 64
    assert np.array_equal(shown[0], pixels)
    values = np.random.default_rng(1).normal(size=PASSES)
    heat = heat_map(values)
    edges = np.rint(np.linspace(0, 13, CELLS + 1)).astype(int)
    for row in range(CELLS):
        for column in range(CELLS):
            cell = shown[1:, 0, edges[row], edges[column]] == 0.0
            assert heat[row, column] == pytest.approx((values[0] - values[1:][cell]).mean())


def test_a_model_of_one_class_can_be_explained(place, tmp_path):
    tiny.write_photos(tmp_path / "photos", ("red",), n=4)
    given = {"n_components": 50, "cache": False, "layers": (3,), "ridge": 3.0}
    model = ImageClassifier(str(place / "tiny.onnx"), **given)
    model.learn(tmp_path / "photos")
    assert np.abs(model.explain(beside("red", "green")).heat).max() > 0
    assert len(model.suggest(place / "new", 2)) == 2


def test_what_cannot_be_explained_is_refused(model, place):
    with refused("class-unknown", InputError):
        model.explain(place / "new/red/1-0.png", "purple")
    for wrong in (b"no image", place / "none.png", place):
        with refused("images-unreadable", ImageError):
            model.explain(wrong)


def test_an_upright_photo_has_the_shape_that_is_seen(place):
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (30, 20)).save(file, "JPEG", exif=exif)
    assert aspect_of(file.getvalue()) == pytest.approx(20 / 30)
    file = io.BytesIO()
    Image.new("RGB", (30, 20)).save(file, "TIFF", tiffinfo={0x0112: 6})
    assert aspect_of(file.getvalue()) == pytest.approx(20 / 30)


def test_explain_on_the_command_line(place, visvm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ("explain", place / "m.visvm", place / "new/red/1-0.png")
    code, out, _ = visvm(*given)
    assert (code, (tmp_path / "1-0-explained.png").read_bytes()[:4]) == (0, b"\x89PNG")
    assert "1-0-explained.png" in out
    said = json.loads(visvm(*given, "--label", "green", "--out", "g.png", "--json")[1])
    assert (said["label"], np.array(said["heat"]).shape) == ("green", (CELLS, CELLS))
    before = (tmp_path / "g.png").read_bytes()
    for more, code in (
        (("--out", "g.png"), "file-exists"),
        (("--out", "g.jpg"), "picture-kind-unknown"),
        (("--out", "no/g.png"), "picture-folder-missing"),
        (("--out", "h.png", "--label", "purple"), "class-unknown"),
    ):
        outcome = visvm(*given, *more)
        assert (outcome[0], outcome.error_code) == (2, code)
    assert (tmp_path / "g.png").read_bytes() == before
    assert not (tmp_path / "h.png").exists()
    outcome = visvm("explain", place / "m.visvm", place / "new")
    assert (outcome[0], outcome.error_code) == (2, "image-kind")
    assert visvm(*given, "--out", "g.png", "--force")[0] == 0
