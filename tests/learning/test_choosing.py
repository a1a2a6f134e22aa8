"""What a first session chooses by its own photos."""

import numpy as np
import pytest

from tests import tiny
from tests.encoders.pictures import encoded
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.encoders.cache import FeatureCache
from visvm.encoders.loading import load_encoder
from visvm.encoders.transform import DEFAULT_TRANSFORM, TRANSFORMS
from visvm.errors import ImageError
from visvm.learning import choosing
from visvm.model.results import TransformChoice

SIDE = 16


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return load_encoder(str(tiny.write_encoder(tmp_path_factory.mktemp("encoder"))))


def wide(n, telling, seed=0):
    """Photos of 7:1, seven squares, whose class is the colour of the middle one, or of the ends."""
    generator = np.random.default_rng(seed)
    told = {"centre": [3], "ends": [0, 1, 5, 6]}[telling]
    contents, labels = [], []
    for name, colour in tiny.COLOURS.items():
        for _ in range(n):
            squares = generator.integers(0, 256, (7, 3), dtype=np.uint8)
            squares[told] = colour
            contents.append(encoded(np.kron(squares[None], np.ones((SIDE, SIDE, 1), np.uint8))))
            labels.append(name)
    return contents, labels


class Counting:
    """An encoder that counts the images it is given."""

    def __init__(self, encoder):
        self.name, self.digest = encoder.name, encoder.digest
        self.layer_dims, self.preprocessing = encoder.layer_dims, encoder.preprocessing
        self.project, self._encode, self.n = encoder.project, encoder.encode, 0

    def encode(self, pixels):
        self.n += len(pixels)
        return self._encode(pixels)


@pytest.mark.parametrize(("telling", "chosen"), [("centre", "crop"), ("ends", "squash")])
def test_the_transform_that_shows_the_subject_is_chosen(encoder, telling, chosen):
    model = ImageClassifier(encoder, n_components=60, cache=False)
    report = model.learn(*wide(60, telling))
    assert report.transform.transform == model.transform == chosen
    assert model.model_.encoder.transform == chosen
    assert set(report.transform.accuracies) == set(TRANSFORMS)
    other = {"crop": "squash", "squash": "crop"}[chosen]
    assert report.transform.accuracies[chosen] > report.transform.accuracies[other]


@pytest.mark.parametrize("cached", [False, True])
def test_it_costs_a_third_more_encoding_at_most(encoder, cached, tmp_path):
    photos = wide(60, "centre")
    counting = Counting(encoder)
    with FeatureCache(tmp_path / "features.sqlite") as cache:
        model = ImageClassifier(counting, n_components=60, cache=cache if cached else False)
        report = model.learn(*photos)
    tried = report.transform.n
    assert 12 <= tried <= len(photos[1]) / 6
    assert counting.n == len(photos[1]) + 2 * tried


def test_a_given_transform_is_not_tried(encoder):
    counting = Counting(encoder)
    model = ImageClassifier(counting, n_components=60, cache=False, transform="pad")
    assert model.learn(*wide(20, "centre")).transform is None
    assert (model.transform, counting.n) == ("pad", 80)


def test_few_photos_take_the_default(encoder):
    model = ImageClassifier(encoder, n_components=60, cache=False)
    assert model.learn(*wide(5, "centre")).transform == TransformChoice(DEFAULT_TRANSFORM)
    alone = ImageClassifier(encoder, n_components=60, cache=False)
    contents, labels = wide(90, "centre")
    assert alone.learn(contents[:90], labels[:90]).transform == TransformChoice(DEFAULT_TRANSFORM)


def test_later_sessions_and_files_keep_it(encoder, tmp_path):
    model = ImageClassifier(encoder, n_components=60, cache=False)
    chosen = model.learn(*wide(60, "centre")).transform
    assert model.learn(*wide(60, "ends", seed=1)).transform is None
    model.save(tmp_path / "m.visvm")
    again = ImageClassifier.load(tmp_path / "m.visvm", encoder=encoder)
    assert again.transform == model.transform == "crop"
    assert again.history_[0]["transform"] == {
        "transform": "crop",
        "n": chosen.n,
        "accuracies": chosen.accuracies,
    }


def test_photos_that_cannot_be_read_do_not_stop_the_trial(encoder):
    contents, labels = wide(60, "centre")
    broken = [b"no image" if place % 7 == 0 else each for place, each in enumerate(contents)]
    model = ImageClassifier(encoder, n_components=60, cache=False)
    with refused("images-unreadable"):
        model.learn(broken, labels)
    assert (model.transform, model.model_) == ("auto", None)
    assert model.learn(broken, labels, skip_unreadable=True).transform.transform == "crop"


def test_a_lead_within_chance_is_none():
    right = np.array([1.0] * 15 + [0.0] * 5)
    ahead = {"squash": right, "crop": np.r_[right[:-1], 1.0]}
    assert choosing.winner(ahead, "squash") == "squash"
    assert choosing.winner({"squash": right, "crop": np.ones(20)}, "squash") == "crop"
    assert choosing.winner({"squash": np.ones(20), "pad": np.ones(20)}, "squash") == "squash"


def test_a_sample_that_cannot_be_read_is_refused_by_learning(tmp_path):
    for label in ("robin", "wren"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(60):
            (tmp_path / "photos" / label / f"{number}.png").write_bytes(b"no image")
    model = ImageClassifier(str(tiny.write_encoder(tmp_path)), 50, cache=False)
    with refused("images-unreadable", ImageError):
        model.learn(tmp_path / "photos")
