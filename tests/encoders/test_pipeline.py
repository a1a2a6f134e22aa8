"""Files → features, compared with decoding and encoding one file after the other."""

import gc
import shutil
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import tiny
from tests.refusals import refused
from visvm.encoders import pipeline
from visvm.encoders.cache import FeatureCache
from visvm.encoders.images import decode
from visvm.encoders.loading import load_encoder
from visvm.encoders.pipeline import BATCH_SIZE, Unreadable, encode_files, encode_stream
from visvm.encoders.transform import Transform
from visvm.errors import EncoderError, VisvmError
from visvm.progress import silent

pytestmark = pytest.mark.slow

MOST_AHEAD = 64  # images of 224 × 224: 39 MB


class Counted:
    """The tiny encoder, counting the images of every call."""

    def __init__(self, encoder):
        self.name, self.digest = encoder.name, encoder.digest
        self.layer_dims, self.preprocessing = encoder.layer_dims, encoder.preprocessing
        self._encoder, self.calls = encoder, []

    def encode(self, pixels):
        self.calls.append(len(pixels))
        return self._encoder.encode(pixels)


@pytest.fixture
def encoder(tmp_path):
    (tmp_path / "encoder").mkdir()
    return Counted(load_encoder(str(tiny.write_encoder(tmp_path / "encoder"))))


@pytest.fixture
def cache(tmp_path):
    with FeatureCache(tmp_path / "features.sqlite") as cache:
        yield cache


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    before = set(threading.enumerate())
    yield

    def left():
        return [thread for thread in threading.enumerate() if thread not in before]

    if left():
        gc.collect()  # which takes its time, so only where it can change anything
    assert left() == []


def transform_of(encoder, kind="crop"):
    return Transform(kind, encoder.preprocessing)


def photos(folder, n=40):
    """Files in an order that is not that of their names."""
    tiny.write_photos(folder, classes=("red", "blue"), n=n // 2)
    files = sorted(folder.rglob("*.png"))
    return [files[place] for place in np.random.default_rng(0).permutation(len(files))]


def slow_reference(files, encoder, transform):
    """Features of one view of every file, (n, 1, width)."""
    return np.stack([encoder.encode(decode(file.read_bytes(), transform)[None]) for file in files])


def encode(files, encoder, cache=None, kind="crop", progress=silent):
    return encode_files(files, encoder, [transform_of(encoder, kind)], cache, progress, "a stage")


def test_features_are_those_of_one_file_after_the_other(tmp_path, encoder, cache):
    files = photos(tmp_path / "photos")
    expected = slow_reference(files, encoder, transform_of(encoder))
    for given in (cache, None):
        encoded = encode(files, encoder, given)
        assert encoded.places == list(range(len(files)))
        assert encoded.unreadable == []
        assert encoded.features.dtype == np.float32
        # A batch is one product with another blocking than a single image has.
        np.testing.assert_allclose(encoded.features, expected, rtol=1e-5, atol=1e-6)
    assert np.linalg.norm(expected - expected[::-1], axis=2).min() > 0.1  # the order is told apart


def test_stream_gives_every_file_in_order(tmp_path, encoder, cache):
    files = photos(tmp_path / "photos")
    files[3:3] = [tmp_path / "none.png"]
    outcomes = [
        outcome
        for some in encode_stream(files, encoder, [transform_of(encoder)], cache)
        for outcome in some
    ]
    named = [
        outcome.path if isinstance(outcome, Unreadable) else outcome[0] for outcome in outcomes
    ]
    assert named == [str(file) for file in files]
    assert [place for place, outcome in enumerate(outcomes) if isinstance(outcome, Unreadable)] == [
        3
    ]


def test_every_view_has_features_of_its_own_and_its_own_place_in_the_cache(
    tmp_path, encoder, cache
):
    files = photos(tmp_path / "photos")
    views = transform_of(encoder, "squash").views("crops")
    expected = np.concatenate([slow_reference(files, encoder, view) for view in views], axis=1)
    encode(files[:7], encoder, cache, "squash")  # the whole picture is there already
    for given in (cache, cache, None):
        encoded = encode_files(files, encoder, views, given)
        np.testing.assert_allclose(encoded.features, expected, rtol=1e-5, atol=1e-6)
    assert cache.info().n_images == 5 * len(files)
    assert np.linalg.norm(expected - np.roll(expected, 1, axis=1), axis=2).min() > 1e-3


def test_order_is_kept_when_decoding_takes_different_times(tmp_path, encoder, monkeypatch):
    files = photos(tmp_path / "photos", n=24)
    waits = iter(np.random.default_rng(1).uniform(0, 0.01, size=len(files)))

    def dawdle(content, transform):
        time.sleep(next(waits))
        return decode(content, transform)

    expected = slow_reference(files, encoder, transform_of(encoder))
    monkeypatch.setattr(pipeline, "decode", dawdle)
    np.testing.assert_allclose(encode(files, encoder).features, expected, rtol=1e-5, atol=1e-6)


def test_images_are_encoded_in_batches(tmp_path, encoder):
    encode(many(tmp_path, 2 * BATCH_SIZE + 3), encoder)
    assert encoder.calls == [BATCH_SIZE, BATCH_SIZE, 3]


def test_second_pass_asks_the_cache_and_is_the_same_bit_for_bit(tmp_path, encoder, cache):
    files = photos(tmp_path / "photos")
    first = encode(files, encoder, cache)
    assert sum(encoder.calls) == len(files)
    encoder.calls.clear()
    second = encode(files, encoder, cache)
    assert encoder.calls == []
    assert first.features.tobytes() == second.features.tobytes()


def test_known_images_are_not_decoded(tmp_path, encoder, cache, monkeypatch):
    files = photos(tmp_path / "photos")
    encode(files, encoder, cache)

    def refuse(content, transform):
        raise AssertionError("decoded")

    monkeypatch.setattr(pipeline, "decode", refuse)
    assert encode(files, encoder, cache).places == list(range(len(files)))


def test_known_and_new_images_mix(tmp_path, encoder, cache):
    files = photos(tmp_path / "photos")
    expected = encode(files, encoder).features
    encode(files[::3], encoder, cache)
    encoder.calls.clear()
    mixed = encode(files, encoder, cache)
    np.testing.assert_allclose(mixed.features, expected, rtol=1e-5, atol=1e-6)
    assert sum(encoder.calls) == len(files) - len(files[::3])


def test_moved_file_is_known_and_another_transform_or_encoder_is_not(tmp_path, encoder, cache):
    files = photos(tmp_path / "photos")
    first = encode(files, encoder, cache)
    shutil.move(tmp_path / "photos", tmp_path / "moved")
    files = [tmp_path / "moved" / file.relative_to(tmp_path / "photos") for file in files]
    encoder.calls.clear()
    assert np.array_equal(encode(files, encoder, cache).features, first.features)
    assert encoder.calls == []
    squashed = encode(files, encoder, cache, kind="squash")
    assert sum(encoder.calls) == len(files)
    assert not np.allclose(squashed.features, first.features)
    encoder.calls.clear()
    encoder.digest = "another"
    encode(files, encoder, cache)
    assert sum(encoder.calls) == len(files)


def test_entry_of_another_width_is_not_taken(tmp_path, encoder, cache):
    files = photos(tmp_path / "photos", n=4)
    expected = encode(files, encoder).features
    encoder.layer_dims = (5,)
    for file in files:
        name = pipeline.feature_key(file.read_bytes(), encoder.digest, transform_of(encoder).key)
        cache.put({name: np.ones(5, dtype=np.float32)})
    encoder.layer_dims = (tiny.WIDTH,) * 3
    assert np.array_equal(encode(files, encoder, cache).features, expected)


def broken_files(folder, good):
    """Paths that give no image, with a word of the reason."""
    folder.mkdir()
    (folder / "folder.jpg").mkdir()
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.jpg").write_text("no picture")
    (folder / "cut.png").write_bytes(good.read_bytes()[:200])
    (folder / "dangling.png").symlink_to(folder / "gone")
    words = {
        "folder.jpg": "directory",
        "empty.png": "empty",
        "text.jpg": "not an image",
        "cut.png": "truncated",
    }
    return {
        folder / name: word
        for name, word in {
            **words,
            "dangling.png": "No such file",
            "none.png": "No such file",
        }.items()
    }


@pytest.mark.parametrize("cached", [True, False])
def test_unreadable_files_are_named_and_the_rest_is_encoded(tmp_path, encoder, cache, cached):
    files = photos(tmp_path / "photos", n=10)
    broken = broken_files(tmp_path / "broken", files[0])
    mixed = [*files[:1], *list(broken)[:3], *files[1:], *list(broken)[3:]]
    expected = encode(files, encoder).features
    for _ in range(2):
        encoded = encode(mixed, encoder, cache if cached else None)
        assert [mixed[place] for place in encoded.places] == files
        np.testing.assert_allclose(encoded.features, expected, rtol=1e-5, atol=1e-6)
        assert [each.path for each in encoded.unreadable] == [str(path) for path in broken]
        for each in encoded.unreadable:
            assert broken[Path(each.path)] in each.reason
            assert "\n" not in each.reason


def test_only_unreadable_files(tmp_path, encoder, cache):
    encoded = encode([tmp_path / f"{number}.png" for number in range(100)], encoder, cache)
    assert encoded.places == []
    assert encoded.features.shape == (0, 1, 3 * tiny.WIDTH)
    assert len(encoded.unreadable) == 100
    assert encoder.calls == []


def test_no_files(encoder, cache):
    told = []
    encoded = encode([], encoder, cache, progress=lambda *call: told.append(call))
    assert encoded.places == encoded.unreadable == []
    assert encoded.features.shape == (0, 1, 3 * tiny.WIDTH)
    assert set(told) == {("a stage", 0, 0)}
    assert list(encode_stream([], encoder, [transform_of(encoder)], None)) == []


def test_one_file_many_times(tmp_path, encoder, cache):
    (file, other) = photos(tmp_path / "photos", n=2)
    files = [file] * 20 + [other] + [file] * 5
    expected = slow_reference(files, encoder, transform_of(encoder))
    for given in (None, cache, cache):
        encoded = encode(files, encoder, given)
        assert encoded.places == list(range(26))
        np.testing.assert_allclose(encoded.features, expected, rtol=1e-5, atol=1e-6)
    assert cache.info().n_images == 2


def test_progress_goes_from_nothing_to_all(tmp_path, encoder):
    told = []
    files = [*photos(tmp_path / "photos"), tmp_path / "none.png"]
    encode(files, encoder, progress=lambda *call: told.append(call))
    done = [number for _, number, _ in told]
    assert done[0] == 0
    assert done[-1] == len(files)
    assert done == sorted(done)
    assert {(stage, total) for stage, _, total in told} == {("a stage", len(files))}


def many(tmp_path, n):
    """One small file, n times: what is counted is how many are read."""
    file = tmp_path / "one.png"
    Image.new("RGB", (9, 9), "red").save(file)
    return [file] * n


def wait_until_still(counter):
    """Until no worker has counted any more for a while."""
    before = -1
    while counter() != before:
        before = counter()
        time.sleep(0.1)


def test_few_images_are_decoded_ahead(tmp_path, encoder, monkeypatch):
    decoded, ahead = [], []

    def count(content, transform):
        decoded.append(1)
        return decode(content, transform)

    monkeypatch.setattr(pipeline, "decode", count)
    consumed = 0
    for place, outcomes in enumerate(
        encode_stream(many(tmp_path, 400), encoder, [transform_of(encoder)], None)
    ):
        consumed += len(outcomes)
        if place in (0, 5, 12):
            wait_until_still(lambda: len(decoded))
        ahead.append(len(decoded) - consumed)
    assert consumed == len(decoded) == 400
    assert BATCH_SIZE < max(ahead) <= MOST_AHEAD


def test_stream_over_known_images_yields_before_the_end(tmp_path, encoder, cache):
    files = many(tmp_path, 300)
    encode(files[:1], encoder, cache)
    lengths = [
        len(outcomes) for outcomes in encode_stream(files, encoder, [transform_of(encoder)], cache)
    ]
    assert sum(lengths) == 300
    assert max(lengths) <= MOST_AHEAD


def test_encoder_that_fails_is_heard_and_leaves_no_threads(tmp_path, encoder, cache):
    def fail(pixels):
        raise VisvmError("The encoder failed.", code="encoder-failed")

    files = photos(tmp_path / "photos")
    sound, encoder.encode = encoder.encode, fail
    with refused("encoder-failed"):
        encode(files, encoder, cache)
    assert cache.info().n_images == 0
    encoder.encode = sound
    assert encode(files, encoder, cache).places == list(range(len(files)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_that_are_not_finite_are_refused_and_not_kept(tmp_path, encoder, cache, value):
    def spoil(pixels):
        features = sound(pixels)
        features[0, 3] = value
        return features

    files = photos(tmp_path / "photos")
    sound, encoder.encode = encoder.encode, spoil
    with refused("features-not-finite", EncoderError) as caught:
        encode(files, encoder, cache)
    assert str(files[0]) in str(caught.value)
    assert cache.info().n_images == 0


def test_failure_in_a_reading_thread_is_heard(tmp_path, encoder, monkeypatch):
    def fail(content, transform):
        raise ZeroDivisionError

    monkeypatch.setattr(pipeline, "decode", fail)
    with pytest.raises(ZeroDivisionError):
        encode(photos(tmp_path / "photos"), encoder)


def test_failing_cache_is_heard(tmp_path, encoder):
    cache = FeatureCache(tmp_path / "closed.sqlite")
    cache.close()
    with refused("cache-unusable"):
        encode(photos(tmp_path / "photos"), encoder, cache)


def test_stream_that_is_closed_early_reads_no_further(tmp_path, encoder, monkeypatch):
    decoded = []

    def count(content, transform):
        decoded.append(1)
        time.sleep(0.005)
        return decode(content, transform)

    monkeypatch.setattr(pipeline, "decode", count)
    with closing(
        encode_stream(many(tmp_path, 1000), encoder, [transform_of(encoder)], None)
    ) as stream:
        next(stream)
    after = len(decoded)
    assert after < MOST_AHEAD // 2  # two at a time, while one batch was waited for
    assert not any(thread.name.startswith("visvm-decode") for thread in threading.enumerate())
    time.sleep(0.05)
    assert len(decoded) == after


def test_stream_that_is_forgotten_leaves_no_threads(tmp_path, encoder):
    stream = encode_stream(many(tmp_path, 200), encoder, [transform_of(encoder)], None)
    next(stream)
    del stream  # the fixture looks for threads


def test_what_was_encoded_before_an_interruption_is_kept(tmp_path, encoder, cache):
    files = photos(tmp_path / "photos")
    with closing(encode_stream(files, encoder, [transform_of(encoder)], cache)) as stream:
        done = len(next(stream))
    encoder.calls.clear()
    encode(files, encoder, cache)
    assert sum(encoder.calls) == len(files) - done
