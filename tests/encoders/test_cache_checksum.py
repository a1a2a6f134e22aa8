"""A cached feature that is not as it was written is not believed: the image is encoded again."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from visvm.encoders.cache import FeatureCache, clear

KEY, OTHER = b"k" * 32, b"o" * 32
FEATURES = np.arange(6, dtype=np.float32)


@pytest.fixture
def path(tmp_path):
    with FeatureCache(tmp_path / "cache.sqlite") as cache:
        cache.put({KEY: FEATURES, OTHER: 2 * FEATURES})
    return tmp_path / "cache.sqlite"


def change(path, statement, *values):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement, values)


def value(path, key):
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT value FROM features WHERE key = ?", (key,)).fetchone()[0]


def found(path):
    with FeatureCache(path) as cache:
        return cache.get(KEY)


def test_what_was_put_in_comes_out(path):
    np.testing.assert_array_equal(found(path), FEATURES)


def test_every_flipped_bit_is_a_miss(path):
    whole = value(path, KEY)
    for place in range(len(whole)):
        altered = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        change(path, "UPDATE features SET value = ? WHERE key = ?", altered, KEY)
        assert found(path) is None


@pytest.mark.parametrize("other", [b"", b"abc", b"\0" * 16, "text", 5, 0.5])
def test_what_is_no_feature_is_a_miss(path, other):
    change(path, "UPDATE features SET value = ? WHERE key = ?", other, KEY)
    assert found(path) is None


def test_the_features_of_another_image_are_a_miss(path):
    change(path, "UPDATE features SET value = ? WHERE key = ?", value(path, OTHER), KEY)
    assert found(path) is None


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_features_that_are_not_finite_are_a_miss(path, number):
    with FeatureCache(path) as cache:
        cache.put({KEY: np.array([1.0, number], dtype=np.float32)})
        assert cache.get(KEY) is None


def test_a_miss_is_mended_by_the_next_one_that_encodes(path):
    change(path, "UPDATE features SET value = 'x' WHERE key = ?", KEY)
    with FeatureCache(path) as cache:
        assert cache.get(KEY) is None
        cache.put({KEY: FEATURES})
        np.testing.assert_array_equal(cache.get(KEY), FEATURES)
        assert cache.info().n_images == 2


def test_entries_of_an_older_version_are_encoded_again(tmp_path):
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE features (key BLOB PRIMARY KEY, used INTEGER NOT NULL, "
            "value BLOB NOT NULL)"
        )
        database.execute("INSERT INTO features VALUES (?, 1, ?)", (KEY, FEATURES.tobytes()))
    assert found(path) is None
    with FeatureCache(path) as cache:
        cache.put({KEY: FEATURES})
    np.testing.assert_array_equal(found(path), FEATURES)
    assert clear(path) >= 0
