"""Inputs that people have: images in memory, tables, folders; and what notebooks show."""

import copy
import io
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests import tiny
from tests.refusals import refused
from visvm import ImageClassifier, IncrementalLSSVC, VisClassifier
from visvm.encoders.memory import MemoryImage
from visvm.encoders.sources import listed, sources_of
from visvm.errors import ImageError, InputError
from visvm.head.calibration import probabilities
from visvm.learning.labelled import read_labelled
from visvm.progress import watched


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    tiny.write_model(folder)
    return folder


@pytest.fixture
def model(place):
    return ImageClassifier.load(place / "m.visvm", cache=False)


@pytest.fixture(scope="module")
def paths(place):
    return sorted((place / "photos").rglob("*.png"))


def pixels(content):
    with Image.open(io.BytesIO(content)) as image:
        image.load()
        return image


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "F"])
def test_an_image_of_pillow_is_kept_as_it_is(mode):
    generator = np.random.default_rng(0)
    image = Image.fromarray(generator.integers(0, 256, (9, 7, 3), dtype=np.uint8))
    image = image.convert("I").convert(mode) if mode == "I;16" else image.convert(mode)
    again = pixels(MemoryImage(image).read_bytes())
    assert again.mode == mode
    assert again.tobytes() == image.tobytes()


@pytest.mark.parametrize(
    ("shape", "kind"),
    [((5, 4, 3), "uint8"), ((5, 4, 4), "uint8"), ((5, 4, 1), "uint8"), ((5, 4), "uint8"),
     ((5, 4), "uint16")],
)  # fmt: skip
def test_an_array_is_kept_as_it_is(shape, kind):
    array = np.random.default_rng(0).integers(0, 250, shape).astype(kind)
    again = np.asarray(pixels(MemoryImage(array).read_bytes()))
    np.testing.assert_array_equal(again, array.squeeze(axis=-1) if shape[-1] == 1 else array)


@pytest.mark.parametrize(
    "array", [np.zeros((4, 4, 3)), np.zeros((3, 4, 5), "uint8"), np.zeros((0, 4, 3), "uint8")]
)
def test_other_arrays_are_refused(model, array):
    with refused("image-array", InputError):
        model.predict(array)


@pytest.mark.parametrize("kind", ["closed", "closed file", "La"])
def test_what_pillow_cannot_give_is_named_by_its_place(model, paths, kind):
    good = np.zeros((4, 4, 3), dtype=np.uint8)
    image = Image.new("LA", (4, 4)).convert("La") if kind == "La" else Image.open(paths[0])
    if kind == "closed":
        image.load()
    if kind != "La":
        image.close()
    for ask in (model.predict, lambda images: model.learn(images, ["red", "red"])):
        with refused("images-unreadable", ImageError) as caught:
            ask([good, image])
        assert "photo 2 of those given" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_array_of_one_path_is_one_path():
    assert listed(np.array("a.jpg")) == ["a.jpg"]
    assert listed(np.array("a.jpg", dtype=object)) == ["a.jpg"]


@pytest.mark.parametrize("thing", [5, None, float("nan"), {"a": 1}])
def test_other_things_are_refused(model, thing):
    with refused("image-kind", InputError):
        model.predict([thing])


def test_a_picture_is_answered_alike_in_whatever_form_it_comes(model, paths):
    arrays = [np.asarray(Image.open(path)) for path in paths]
    forms = [
        [str(path) for path in paths],
        [path.read_bytes() for path in paths],
        [Image.open(path) for path in paths],
        arrays,
        np.stack(arrays),
        np.array([str(path) for path in paths]),
        pd.Series([str(path) for path in paths]),
        paths[0].parents[1],  # the folder
    ]
    told = [[(each.label, each.score) for each in model.predict(form)] for form in forms]
    assert all(each == told[0] for each in told)
    (alone,) = model.predict(arrays[3])
    assert (alone.label, alone.path) == (told[0][3][0], "an image in memory")


def test_the_orientation_that_pillow_read_is_applied(model):
    upright = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), "uint8"))
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    upright.transpose(Image.Transpose.ROTATE_90).save(file, "PNG", exif=exif)
    turned = Image.open(io.BytesIO(file.getvalue()))
    np.testing.assert_allclose(model.predict_proba(turned), model.predict_proba(upright))


def test_images_in_memory_are_learned_and_forgotten(model, paths):
    before = model.class_counts_
    arrays = np.stack([np.asarray(Image.open(path)) for path in paths])
    labels = np.array([path.parent.name for path in paths])
    model.learn(arrays, labels)
    assert model.class_counts_ == tuple(2 * n for n in before)
    assert not model.has_learned(arrays, labels)
    assert model.forget([Image.open(path) for path in paths], labels) == len(paths)
    assert model.class_counts_ == before
    assert model.evaluate(arrays, labels).accuracy == 1.0


def test_a_table_has_a_column_of_paths_and_one_of_labels(model, paths):
    labels = [path.parent.name for path in paths]
    table = pd.DataFrame({"n": 1, "label": labels, "path": [str(path) for path in paths]})
    assert read_labelled(table) == read_labelled([str(path) for path in paths], labels)
    assert model.evaluate(table).accuracy == 1.0
    with refused("table-columns", InputError):
        read_labelled(table.rename(columns={"path": "file"}))
    with refused("labels-without-list", InputError):
        read_labelled(table, labels)
    table.loc[0, "label"] = None
    with refused("label-kind", InputError):
        read_labelled(table)


def test_an_empty_folder_is_refused(tmp_path):
    with refused("images-missing", InputError):
        sources_of(tmp_path)


def test_probabilities_are_those_of_predict(model, paths):
    found = model.predict_proba(paths)
    assert found.shape == (len(paths), 3)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    for row, each in zip(found, model.predict(paths, unknown=None), strict=True):
        assert dict(zip(model.classes_, row, strict=True)) == pytest.approx(dict(each.top))
    head = model.head_.predict_proba(model.layer_features(paths))
    np.testing.assert_allclose(head, found)


def test_a_pickle_and_a_deep_copy_answer_alike_and_go_their_own_way(model, paths):
    expected = model.predict_proba(paths)
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        np.testing.assert_array_equal(twin.predict_proba(paths), expected)
        twin.rename_class("red", "crimson")
        assert "red" in model.classes_
    assert copy.deepcopy(model).model_.head.coefficients is not model.model_.head.coefficients
    assert ImageClassifier().__getstate__()["_encoder"] is None


def test_what_a_notebook_shows_takes_no_name_for_html(model, paths):
    report = model.learn(paths[:2], ["<script>", "<script>"])
    result = model.evaluate(paths[:2], ["<script>", "<script>"])
    for shown in (model, report, result):
        assert "<script>" not in shown._repr_html_()
        assert "&lt;script&gt;" in shown._repr_html_()
        assert shown._repr_html_().startswith("<table>")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_python_shows_progress_on_a_terminal_only_and_leaves_no_trace(model, paths, monkeypatch):
    for stream, told in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(watched, "_next", 0.0)
        model.evaluate(paths, [path.parent.name for path in paths])
        assert ("encoding" in stream.getvalue()) == told
        assert not stream.getvalue().rpartition("\r")[2].strip()
    monkeypatch.setenv("VISVM_PROGRESS", "off")
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    model.predict(paths)
    assert not stream.getvalue()


@pytest.mark.parametrize("kind", [IncrementalLSSVC, VisClassifier])
def test_probabilities_of_the_estimators_are_calibrated_and_merge(kind):
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(4, 6))
    y = generator.integers(0, 4, 400)
    X = centres[y] + generator.normal(scale=1.2, size=(400, 6))
    model = (
        kind(n_components=60, ridge=1.0).fit(X[:100], y[:100]).partial_fit(X[100:200], y[100:200])
    )
    found = model.predict_proba(X[200:])
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert (found.argmax(axis=1) == np.searchsorted(model.classes_, model.predict(X[200:]))).all()
    right = model.predict(X[200:]) == y[200:]
    assert abs(found.max(axis=1).mean() - right.mean()) < 0.1  # as sure as it is right
    first = kind(n_components=60, ridge=1.0).fit(X[:100], y[:100])
    noted, other = first.likelihoods_, copy.deepcopy(first)
    first.merge(other)
    np.testing.assert_allclose(first.likelihoods_, 2 * noted)
    np.testing.assert_allclose(first.unmerge(other).likelihoods_, noted)
    by_hand = probabilities(first._scores(X[200:]), noted)
    np.testing.assert_allclose(first.predict_proba(X[200:]), by_hand)


def test_a_model_says_in_short_what_it_knows(tmp_path):
    tiny.write_photos(tmp_path / "photos", ("red",), n=2)
    clf = ImageClassifier(str(tiny.write_encoder(tmp_path)), n_components=20, cache=False)
    assert repr(clf).endswith("0 classes, 0 sessions)")
    clf.learn(tmp_path / "photos")
    assert repr(clf).endswith("1 class, 1 session)")
