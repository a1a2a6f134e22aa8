"""Photos that a model remembers by salted digests, where its sums cannot tell them any more."""

import copy
import shutil
from pathlib import Path

import pytest

from tests import tiny
from tests.model.raw import rewrite
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.encoders.loading import load_encoder
from visvm.errors import ModelFileError
from visvm.head.scatter import DenseScatter
from visvm.model.estimate import estimate_notes
from visvm.model.file import read_header

OPTIONS = {"n_components": 8, "cache": False, "ridge": 1.0, "layers": (1, 3)}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return load_encoder(str(tiny.write_encoder(tmp_path_factory.mktemp("encoder"))))


@pytest.fixture
def photos(tmp_path):
    return tiny.write_photos(tmp_path / "photos", n=12)


@pytest.fixture
def copies(photos, tmp_path):
    """All photos but one under other names, and two new ones."""
    folder = Path(shutil.copytree(photos, tmp_path / "copies"))
    (folder / "red" / "0-3.png").unlink()
    (folder / "red" / "0-4.png").rename(folder / "red" / "another name.png")
    tiny.write_photos(folder, ("red",), n=2, seed=9)
    return folder


def learned(encoder, photos, **given):
    model = ImageClassifier(encoder, **OPTIONS)
    model.learn(photos, **given)
    assert isinstance(model.model_.head.statistics.scatter, DenseScatter)
    return model


def test_a_dense_model_knows_photos_again_only_if_it_remembers_them(encoder, photos, copies):
    model = learned(encoder, photos)
    assert model.check(copies).n_learned == 0
    assert model.learn(copies).estimate.n_learned == 0
    model = learned(encoder, photos, remember=True)
    assert model.check(copies).n_learned == 35
    estimate = model.learn(copies).estimate
    assert (estimate.n_learned, estimate.n_compared) == (35, 37)
    assert "35 of 37 photos were learned before" in estimate_notes(estimate)[-1]
    assert len(model.model_.photos.digests) == 38
    assert model.check(photos).n_learned == 36  # which later sessions add to


def test_all_photos_of_a_session_are_compared(encoder, photos, copies, monkeypatch):
    monkeypatch.setattr("visvm.learning.work.MOST_CALIBRATION_IMAGES", 5)
    estimate = learned(encoder, photos, remember=True).learn(copies).estimate
    assert (estimate.n, estimate.n_learned, estimate.n_compared) == (5, 35, 37)


def test_what_was_forgotten_is_not_remembered(encoder, photos):
    model = learned(encoder, photos, remember=True)
    some = sorted((photos / "red").iterdir())[:4]
    model.forget(some, ["red"] * 4)
    assert len(model.model_.photos.digests) == 32
    assert model.check(some, ["red"] * 4).n_learned == 0


def test_it_begins_and_ends_with_any_session(encoder, photos, copies):
    model = learned(encoder, photos)
    model.learn(copies, remember=True)
    assert len(model.model_.photos.digests) == 37
    model.learn(tiny.write_photos(photos.parent / "more", n=1, seed=5), remember=False)
    assert model.model_.photos is None


def test_unreadable_files_are_not_remembered(encoder, photos):
    (photos / "red" / "broken.png").write_bytes(b"no picture")
    model = learned(encoder, photos, remember=True, skip_unreadable=True)
    assert len(model.model_.photos.digests) == 36


def test_files_keep_it_and_what_is_given_away_does_not(encoder, photos, tmp_path):
    model, path = learned(encoder, photos, remember=True), tmp_path / "m.visvm"
    model.save(path)
    assert ImageClassifier.load(path, encoder=encoder).model_.photos == model.model_.photos
    model.export(tmp_path / "exported.visvm")
    model.export_for_site(tmp_path / "site.visvm")
    site = ImageClassifier.load(tmp_path / "site.visvm", encoder=encoder)
    site.learn_statistics(photos).save(tmp_path / "sums.visvm", reveal_features=True)
    for name in ("exported", "site", "sums"):
        assert read_header(tmp_path / f"{name}.visvm").photos is None


def test_salts_differ_and_hide_the_content(encoder, photos):
    one, other = (learned(encoder, photos, remember=True).model_.photos for _ in range(2))
    assert one.salt != other.salt
    assert not set(one.digests) & set(other.digests)


def test_merging_keeps_those_of_the_model_itself(encoder, photos, tmp_path):
    model = learned(encoder, photos, remember=True)
    other = copy.deepcopy(model)
    more = tiny.write_photos(tmp_path / "more", n=2, seed=3)
    model.export_for_site(tmp_path / "site.visvm")
    site = ImageClassifier.load(tmp_path / "site.visvm", encoder=encoder)
    merged = other.merge(site.learn_statistics(more))
    assert merged.model_.photos == model.model_.photos


@pytest.mark.parametrize(
    "photos_header",
    [{"salt": "x", "digests": []}, {"salt": "0" * 32, "digests": ["g" * 16]}, {"salt": 1}],
)
def test_crafted_digests_are_refused(encoder, photos, tmp_path, photos_header):
    path = tmp_path / "m.visvm"
    learned(encoder, photos, remember=True).save(path)
    rewrite(path, lambda header, _: header.update(photos=photos_header))
    with refused("file-altered", ModelFileError):
        ImageClassifier.load(path, encoder=encoder)
