"""The accuracy that learning estimates, against models that have never learned the photo."""

import copy
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import tiny
from visvm import ImageClassifier
from visvm.encoders.loading import load_encoder
from visvm.encoders.sources import content_of
from visvm.head.scatter import DenseScatter, ThinScatter
from visvm.learning import checking, session
from visvm.learning.estimating import copies_among
from visvm.learning.labelled import Labelled
from visvm.model import file as model_file
from visvm.model.estimate import ClassEstimate, estimate_notes

FORMS = {"thin": (200, ThinScatter), "dense": (8, DenseScatter)}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Photos that are hard to tell apart, in two sessions."""
    folder = tmp_path_factory.mktemp("photos")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "first", n=5)
    tiny.write_photos(folder / "second", ("yellow", "red"), n=4, seed=1)
    for part, label, number in (("first", "red", "0-1"), ("second", "red", "1-2")):
        wrong = folder / part / "green" if part == "first" else folder / part / "yellow"
        (folder / part / label / f"{number}.png").rename(wrong / "wrong.png")
    return folder


@pytest.fixture(scope="module")
def encoder(place):
    return load_encoder(str(place / "tiny.onnx"))


def made(encoder, form, **options):
    given = {"n_components": FORMS[form][0], "cache": False, "ridge": 1.0, "layers": (1, 3)}
    return ImageClassifier(encoder, **given, **options)


def slow(model, photos):
    """The share of photos that a model is right about which has forgotten them."""
    right = {}
    for path in sorted(photos.rglob("*.png")):
        without = copy.copy(model)
        without.forget([path], [path.parent.name])
        answer = without.predict(path)[0].label
        right.setdefault(path.parent.name, []).append(answer == path.parent.name)
    return right


@pytest.mark.parametrize("views", ["one", "mirror"])
@pytest.mark.parametrize("form", FORMS)
def test_it_is_that_of_models_without_the_photo(place, encoder, form, views):
    model = made(encoder, form, views=views)
    for part in ("first", "second", "first"):  # a new one, a later one, known classes only
        report = model.learn(place / part)
        right = slow(model, place / part)
        all_of_them = [each for some in right.values() for each in some]
        assert report.estimate.n == len(all_of_them)
        assert report.estimate.accuracy == pytest.approx(np.mean(all_of_them))
        worst = {each.label: (each.n, each.accuracy) for each in report.estimate.worst}
        expected = {label: (len(some), np.mean(some)) for label, some in right.items()}
        assert worst == {label: each for label, each in expected.items() if each[1] < 1}
    assert isinstance(model.model_.head.statistics.scatter, FORMS[form][1])


def test_a_factor_that_is_shared_changes_nothing(place, encoder, monkeypatch):
    models = []
    for keep in (True, False):
        if not keep:
            monkeypatch.setattr(session.Head, "factor_kept", lambda _: nullcontext())
        model = made(encoder, "dense")
        reports = [model.learn(place / part) for part in ("first", "second")]
        models.append((model, [each.estimate for each in reports]))
    (kept, estimates), (apart, others) = models
    assert estimates == others
    assert np.array_equal(kept.model_.head.coefficients, apart.model_.head.coefficients)
    matrices = [each.model_.head.statistics.scatter.to_matrix() for each in (kept, apart)]
    assert np.array_equal(*matrices)


def test_doubtful_photos_and_copies_are_counted(place, encoder, tmp_path):
    photos = tiny.write_photos(tmp_path / "many", n=30, seed=4)
    (photos / "red" / "4-1.png").rename(photos / "green" / "wrong.png")
    (photos / "blue" / "again.png").write_bytes((photos / "blue" / "4-1.png").read_bytes())
    estimate = made(encoder, "thin").learn(photos).estimate
    assert (estimate.n_wrong, estimate.n_again) == (1, 1)
    assert "1 of 91 photos looks mislabelled and 1 is there twice" in estimate_notes(estimate)[-1]


@pytest.mark.parametrize("views", ["one", "mirror"])
@pytest.mark.parametrize("form", FORMS)
def test_labels_that_look_wrong_are_those_that_a_check_names(encoder, tmp_path, form, views):
    counted = []
    for seed in range(8):
        photos = tmp_path / str(seed)
        generator = np.random.default_rng(seed)
        centres = generator.uniform(60, 190, (5, 2, 2, 3))  # hard to tell apart
        for place in range(75):
            pixels = (centres[place % 5] + 25 * generator.normal(size=(2, 2, 3))).clip(0, 255)
            (photos / f"class {place % 5}").mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray(pixels.astype(np.uint8)).resize((16, 16))
            picture.save(photos / f"class {place % 5}" / f"{place}.png")
        model = made(encoder, form, views=views)
        n_wrong = model.learn(photos).estimate.n_wrong
        assert n_wrong == len(model.check(photos).wrong)
        counted.append(n_wrong)
    assert sum(counted) > 3


def test_photos_learned_before_are_counted(place, encoder, tmp_path, monkeypatch):
    model = made(encoder, "thin")
    assert model.learn(place / "first").estimate.n_learned == 0
    copies = Path(shutil.copytree(place / "first", tmp_path / "copies"))
    tiny.write_photos(copies, ("red",), n=2, seed=77)
    estimate = copy.deepcopy(model).learn(copies).estimate
    assert 0 < estimate.n_learned == estimate.n - 2
    assert "learned before" in estimate_notes(estimate)[-1]
    monkeypatch.setattr(session, "_is_cheap", lambda _: False)  # of larger sums it would cost much
    assert model.learn(copies).estimate.n_learned == 0


def test_counting_copies_reads_no_file_of_a_size_of_its_own(tmp_path, monkeypatch):
    contents = {"a": b"one", "b": b"three", "c": b"two", "d": b"one", "e": b"eleven"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    read = []

    def noted(source):
        read.append(source if isinstance(source, bytes) else source.name)
        return content_of(source)

    monkeypatch.setattr(checking, "content_of", noted)
    paths = [tmp_path / name for name in (*contents, "gone")]
    assert checking.same_contents(paths) == [[0, 3]]
    assert copies_among(Labelled(paths, ["x"] * 6)) == 1
    assert set(read) == {"a", "c", "d"}


def test_a_class_of_one_photo_says_nothing(encoder, tmp_path):
    photos = tiny.write_photos(tmp_path / "alone", ("red", "green"), n=1)
    assert made(encoder, "thin").learn(photos).estimate is None


def test_the_file_keeps_it(place, encoder, tmp_path):
    model = made(encoder, "thin")
    report = model.learn(place / "first")
    model.save(tmp_path / "m.visvm")
    (read,) = model_file.read_header(tmp_path / "m.visvm").sessions
    assert read.estimate == report.estimate
    assert isinstance(read.estimate.worst[0], ClassEstimate)
    assert ImageClassifier.load(tmp_path / "m.visvm", encoder=encoder).history_[0]["estimate"]
