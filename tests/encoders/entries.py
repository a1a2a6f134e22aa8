"""Entries of a feature cache that can be told apart."""

import numpy as np

from visvm.encoders.cache import (
    feature_key,
)

WIDTH = 300


def key(number):
    return feature_key(str(number).encode(), "weights", "transform")


def row(number, width=WIDTH):
    """Features that tell which entry they belong to."""
    return np.random.default_rng(number).normal(size=width).astype(np.float32)


def rows(numbers, width=WIDTH):
    return {key(number): row(number, width) for number in numbers}


def held(cache, numbers):
    """Those of the entries that are there, each checked bit for bit."""
    found = []
    for number in numbers:
        features = cache.get(key(number))
        if features is not None:
            assert np.array_equal(features, row(number, len(features)))
            found.append(number)
    return found
