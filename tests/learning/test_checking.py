"""What a check of labelled photos finds, on pictures with planted faults."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import tiny
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.encoders.loading import load_encoder
from visvm.errors import InputError, ModelFileError
from visvm.learning.findings import sentences

OPTIONS = {"n_components": 60, "cache": False, "ridge": 1.0, "layers": (1, 3)}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return load_encoder(str(tiny.write_encoder(tmp_path_factory.mktemp("encoder"))))


@pytest.fixture
def photos(tmp_path):
    return tiny.write_photos(tmp_path / "photos", n=12)


def names(found):
    return [each.path.rsplit("/", 2)[-2:] for each in found]


def test_clean_photos_are_fine(photos, encoder):
    check = ImageClassifier(encoder, **OPTIONS).check(photos)
    assert (check.n, check.n_classes) == (36, 3)
    assert check.wrong == check.unlike == check.unreadable == check.few == ()
    assert not any(group.exact for group in check.duplicates)


def test_planted_faults_are_found(photos, encoder):
    (photos / "red" / "0-3.png").rename(photos / "green" / "wrong.png")
    (photos / "blue" / "copy.png").write_bytes((photos / "blue" / "0-5.png").read_bytes())
    (photos / "green" / "copy.png").write_bytes((photos / "blue" / "0-5.png").read_bytes())
    (photos / "red" / "broken.png").write_bytes(b"no picture")
    (photos / "odd").mkdir()
    Image.new("RGB", (20, 20), (230, 220, 30)).save(photos / "odd" / "only.png")
    check = ImageClassifier(encoder, **OPTIONS).check(photos)
    wrong = {(each.path.rsplit("/", 1)[-1], each.label, each.suggested) for each in check.wrong}
    assert wrong == {("wrong.png", "green", "red"), ("copy.png", "green", "blue")}
    assert all(each.confidence >= check.sure for each in check.wrong)
    (same,) = (group for group in check.duplicates if group.exact)
    assert names(same.photos) == [["blue", "0-5.png"], ["blue", "copy.png"], ["green", "copy.png"]]
    assert same.across
    assert check.again == {same.photos[1].place}
    (broken,) = check.unreadable
    assert "known format" in broken.reason
    assert [(each.label, each.n) for each in check.few] == [("odd", 1)]


@pytest.mark.parametrize("known", [False, True])
def test_wrong_labels_are_found_where_every_photo_is_there_twice(photos, encoder, tmp_path, known):
    (photos / "red" / "0-3.png").rename(photos / "green" / "wrong.png")
    (photos / "blue" / "0-4.png").rename(photos / "red" / "wrong.png")
    for path in sorted(photos.rglob("*.png")):
        path.with_name(f"{path.stem} copy.png").write_bytes(path.read_bytes())
    model = ImageClassifier(encoder, **OPTIONS)
    if known:
        model.learn(tiny.write_photos(tmp_path / "others", n=30, seed=3))
    assert sorted(names(model.check(photos).wrong)) == [
        ["green", "wrong copy.png"],
        ["green", "wrong.png"],
        ["red", "wrong copy.png"],
        ["red", "wrong.png"],
    ]


def test_a_class_of_copies_takes_nothing_from_what_is_sure(photos, encoder):
    (photos / "red" / "0-3.png").rename(photos / "green" / "wrong.png")
    model = ImageClassifier(encoder, **OPTIONS)
    before = model.check(photos).wrong[0].confidence
    for label in ("odd", "even"):  # under two labels, so neither class can be learned
        (photos / label).mkdir()
        for number in range(4):
            Image.new("RGB", (20, 20), (230, 220, 30)).save(photos / label / f"{number}.png")
    assert model.check(photos).wrong[0].confidence == pytest.approx(before, abs=1e-9)


def test_nearly_the_same_picture_and_one_unlike_all(photos, encoder):
    picture = Image.open(photos / "red" / "0-0.png")
    picture.resize((52, 40)).save(photos / "red" / "larger.jpg", quality=95)
    noise = np.random.default_rng(0).integers(0, 2, size=(8, 8, 3)) * 255
    Image.fromarray(noise.astype(np.uint8)).resize((40, 40), 0).save(photos / "blue" / "noise.png")
    check = ImageClassifier(encoder, **OPTIONS).check(photos)
    assert ["red", "larger.jpg"] in [names(group.photos)[-1] for group in check.duplicates]
    assert check.again == frozenset()
    assert names(check.unlike) == [["blue", "noise.png"]]
    assert check.unlike[0].distance > 2


def test_a_model_judges_by_all_classes_it_knows(photos, encoder, tmp_path):
    model = ImageClassifier(encoder, **OPTIONS)
    model.learn(tiny.write_photos(tmp_path / "many", n=40, seed=5))
    model.learn(photos)
    before = model.model_
    new = tiny.write_photos(tmp_path / "new", ("yellow", "blue"), n=6, seed=1)
    (new / "blue" / "1-0.png").rename(new / "yellow" / "blue.png")
    (new / "yellow" / "red.png").write_bytes((photos / "red" / "0-0.png").read_bytes())
    check = model.check(new)
    assert {(each.label, each.suggested) for each in check.mislabelled} == {
        ("yellow", "blue"),
        ("yellow", "red"),
    }
    assert model.model_ is before


def test_photos_learned_already_are_left_out_in_turn(photos, encoder):
    (photos / "red" / "0-3.png").rename(photos / "green" / "wrong.png")
    model = ImageClassifier(encoder, **OPTIONS)
    model.learn(photos)
    assert names(model.check(photos).wrong) == [["green", "wrong.png"]]
    model.learn(photos)  # now both copies say that it is green, and only one is left out
    assert names(model.check(photos).wrong) == [["green", "wrong.png"]]


def test_copies_of_photos_learned_already_are_known_by_the_sums(photos, encoder, tmp_path):
    model = ImageClassifier(encoder, **OPTIONS)
    model.learn(photos)
    before = model.check(photos)
    copies = Path(shutil.copytree(photos, tmp_path / "copies"))
    (copies / "red" / "0-3.png").unlink()
    tiny.write_photos(copies, ("red",), n=2, seed=9)
    check = model.check(copies)
    assert (before.n_learned, check.n_learned) == (before.n, before.n - 1)
    assert f"{check.n_learned} photos were learned by the model already." in sentences(check)


def test_copies_do_not_confirm_their_own_label(photos, encoder, tmp_path):
    (photos / "red" / "0-3.png").rename(photos / "green" / "wrong.png")
    model = ImageClassifier(encoder, **OPTIONS)
    model.learn(photos)
    found = model.check(Path(shutil.copytree(photos, tmp_path / "copies"))).mislabelled
    assert [each.confidence for each in found] == pytest.approx(
        [each.confidence for each in model.check(photos).mislabelled]
    )


def test_photos_whose_class_was_renamed_meanwhile_are_checked(photos, encoder):
    (photos / "red" / "0-3.png").rename(photos / "green" / "wrong.png")
    model = ImageClassifier(encoder, **OPTIONS)
    model.learn(photos)
    model.rename_class("blue", "navy")
    found = {(each.label, each.suggested) for each in model.check(photos).mislabelled}
    assert found == {("green", "red"), ("blue", "navy")}


def test_views_are_left_out_together(photos, encoder):
    (photos / "red" / "0-3.png").rename(photos / "green" / "wrong.png")
    model = ImageClassifier(encoder, views="mirror", **OPTIONS)
    model.learn(photos)
    assert names(model.check(photos).wrong) == [["green", "wrong.png"]]


def test_one_class_and_nothing_readable(photos, encoder, tmp_path):
    model = ImageClassifier(encoder, **OPTIONS)
    files = sorted((photos / "red").iterdir())
    assert model.check(files, ["red"] * 12).mislabelled == ()
    check = model.check([b"no picture", b"nor this"], [1, 2])
    assert [each.path for each in check.unreadable] == ["photo 1", "photo 2"]
    assert [(each.label, each.n) for each in check.few] == [(1, 0), (2, 0)]


def test_what_cannot_be_checked(photos, encoder, tmp_path):
    model = ImageClassifier(encoder, **OPTIONS)
    model.learn(photos)
    with refused("labels-other-kind", InputError):
        model.check([b"x"], [1])
    model.export(tmp_path / "m.visvm")
    with refused("sums-missing", ModelFileError):
        ImageClassifier.load(tmp_path / "m.visvm", encoder=encoder).check(photos)
