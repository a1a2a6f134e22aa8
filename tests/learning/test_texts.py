"""Learning with texts of classes: what a model keeps of them, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.refusals import refused
from tests.tiny import COLOURS, WIDTH, write_encoder, write_photos
from visvm import ImageClassifier
from visvm.encoders.joint import Tail
from visvm.encoders.texts import TextFeatures, unit, write_texts
from visvm.errors import EncoderError, InputError, ModelFileError
from visvm.head.head import Head
from visvm.head.settle import HeadOptions, settle
from visvm.head.texts import TextSamples
from visvm.learning.texts import require_kin
from visvm.model.file import read_header

CLASSES = tuple(COLOURS)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    write_encoder(folder)
    write_photos(folder / "one", CLASSES, 1, seed=0)
    write_photos(folder / "many", CLASSES, 6, seed=1)
    rows = features_of(learned(folder), folder)[:, -WIDTH:]
    means = rows.reshape(4, -1, WIDTH).mean(axis=1)
    said = unit(means - means.mean(axis=0)).astype(np.float32)[:, None]
    texts = TextFeatures(tuple(sorted(CLASSES)), said)
    for name, changed in {
        "good": {},
        "narrow": {"features": unit(said[..., :7])},
        "foreign": {"image_digest": "ab" * 32},
        "short": {"names": texts.names[:3], "features": said[:3]},
    }.items():
        write_texts(folder / f"{name}.npz", replace(texts, **changed))
    return folder


def features_of(model, folder):
    return model.layer_features(sorted((folder / "many").glob("*/*")))


@pytest.fixture(autouse=True)
def tail(monkeypatch):
    """The tiny encoder has no projection: here it is the identity."""
    monkeypatch.setattr("visvm.learning.texts.tail_of", lambda _: Tail(np.eye(WIDTH)))


def learned(place, folder="one", **given):
    options = {"n_components": 50, "transform": "squash", "renew_ridge": False, "cache": False}
    model = ImageClassifier(str(place / "tiny.onnx"), **options)
    model.learn(place / folder, **given)
    return model


def test_texts_change_answers_and_stay_in_the_model_file(place, tmp_path):
    plain, model = learned(place), learned(place, text=place / "good.npz")
    features = features_of(plain, place)
    assert not np.allclose(plain.model_.scores(features), model.model_.scores(features))
    assert model.class_counts_ == plain.class_counts_ == (1, 1, 1, 1)
    model.save(tmp_path / "m.visvm")
    again = ImageClassifier.load(tmp_path / "m.visvm", cache=False)
    assert np.array_equal(again.model_.scores(features), model.model_.scores(features))
    for each in (model, again):
        each.learn(place / "many")
    assert np.array_equal(again.model_.scores(features), model.model_.scores(features))
    assert read_header(tmp_path / "m.visvm").head.text_classes == sorted(CLASSES)
    model.export(tmp_path / "small.visvm")
    assert read_header(tmp_path / "small.visvm").head.text_classes == []
    model.export_for_site(tmp_path / "site.visvm")
    assert read_header(tmp_path / "site.visvm").head.text_classes == []


def test_photos_that_are_forgotten_leave_the_answers_of_text_and_the_rest(place):
    model = learned(place, text=place / "good.npz")
    features = features_of(model, place)
    wanted = model.model_.scores(features)
    model.learn(place / "many")
    model.forget(place / "many")
    assert model.model_.scores(features) == pytest.approx(wanted, abs=1e-6)


def test_a_model_takes_over_texts_of_classes_that_had_none(place, tmp_path):
    base = learned(place)
    base.save(tmp_path / "base.visvm")
    other = ImageClassifier.load(tmp_path / "base.visvm", cache=False)
    base.export_for_site(tmp_path / "site.visvm")
    site = ImageClassifier.load(tmp_path / "site.visvm", cache=False)
    site.learn(place / "many", text=place / "good.npz")
    other.merge(site)
    assert other.model_.head.settled.texts.classes == tuple(sorted(CLASSES))
    features = features_of(base, place)
    base.learn(place / "many", text=place / "good.npz")
    assert other.model_.scores(features) == pytest.approx(base.model_.scores(features), abs=1e-6)


@pytest.mark.parametrize(
    ("text", "code", "kind"),
    [
        ("narrow", "text-mismatch", EncoderError),
        ("foreign", "text-mismatch", EncoderError),
        ("short", "text-names-missing", InputError),
        ("none", "text-file-missing", InputError),
    ],
)
def test_texts_that_do_not_fit_are_refused_and_nothing_is_learned(place, text, code, kind):
    model = ImageClassifier(str(place / "tiny.onnx"), n_components=50, cache=False)
    with refused(code, kind):
        model.learn(place / "one", text=place / f"{text}.npz")
    assert model.model_ is None


def test_texts_must_be_nearer_to_their_own_classes_than_chance_has_them():
    generator = np.random.default_rng(0)
    names, centres = tuple(f"{each:02}" for each in range(30)), generator.normal(size=(30, 6))
    X = np.repeat(centres, 3, axis=0) + 0.3 * generator.normal(size=(90, 6))
    y = np.repeat(names, 3)
    head = Head.blank(settle(X, y, HeadOptions(n_components=100, fused=False))).learned(X, y)
    require_kin(TextSamples(names, centres), head)
    require_kin(TextSamples((*names, "new"), np.vstack([centres, centres[:1]])), head)
    with refused("text-at-chance", EncoderError):
        require_kin(TextSamples(names, np.roll(centres, 1, axis=0)), head)


def test_texts_at_chance_are_refused(place, monkeypatch):
    monkeypatch.setattr("visvm.learning.texts.is_chance", lambda *_: True)
    with refused("text-at-chance", EncoderError):
        learned(place, text=place / "good.npz")


def test_an_encoder_without_a_projection_is_refused(place, monkeypatch):
    monkeypatch.setattr("visvm.learning.texts.tail_of", lambda _: None)
    with refused("tail-missing", EncoderError):
        learned(place, text=place / "good.npz")


@pytest.mark.parametrize(
    "changed", [{"text_weight": -1.0}, {"text_classes": ["red"]}, {"text_weight": 1e300}]
)
def test_damaged_texts_in_a_file_are_refused(place, tmp_path, changed):
    from visvm.model import file as model_file
    from visvm.model.container import replace_file

    path = tmp_path / "m.visvm"
    header, tensors = model_file.packed(learned(place, text=place / "good.npz").model_)
    header["head"] |= changed
    replace_file(path, header, tensors)
    with refused("file-altered", ModelFileError):
        ImageClassifier.load(path, cache=False)


def test_the_command_line_takes_texts_and_info_tells_of_them(visvm, place, tmp_path):
    model, folder = tmp_path / "m.visvm", place / "one"
    given = ("--encoder", place / "tiny.onnx", "--components", 50, "--transform", "squash")
    given += ("--no-cache", "--text", place / "good.npz", "--quiet")
    assert visvm("learn", model, folder, *given) == (0, "", "")
    assert "text of 4 classes, each as 32 photos" in visvm("info", model)[1]
    found = json.loads(visvm("info", model, "--json")[1])["texts"]
    assert found == {"classes": sorted(CLASSES), "weight": 32.0}
    sums = ("--statistics-only", tmp_path / "s", "--text", place / "good.npz")
    code, _, err = visvm("learn", model, folder, *sums)
    assert (code, "--text" in err) == (2, True)
