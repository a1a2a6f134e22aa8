"""Labels against leave-one-out scores, and samples that are alike, against slow references."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from visvm.head import doubts
from visvm.head.calibration import inverse_temperature, log_likelihoods
from visvm.head.doubts import (
    doubts_of,
    far_off,
    joined,
    likeness_of,
    unlearned_affinities,
)


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 40))
def test_the_suggested_class_is_the_best_of_the_others(seed, n_classes, n):
    generator = np.random.default_rng(seed)
    scores, targets = generator.normal(size=(n, n_classes)), generator.integers(n_classes, size=n)
    found = doubts_of(scores, targets)
    for row, target, suggested, loses in zip(
        scores, targets, found.suggested, found.loses, strict=True
    ):
        others = [place for place in range(n_classes) if place != target]
        assert suggested == max(others, key=lambda place: row[place])
        assert loses == (row[suggested] > row[target])
    order = np.argsort(found.confidence)  # a photo whose label has the lowest share comes last
    beta = inverse_temperature(log_likelihoods(scores, targets))
    own = np.exp(beta * scores)[np.arange(n), targets] / np.exp(beta * scores).sum(axis=1)
    assert np.all(np.diff(own[order]) <= 1e-12)


def test_one_class_leaves_nothing_to_suggest():
    found = doubts_of(np.ones((3, 1)), np.zeros(3, dtype=int))
    assert found.suggested.tolist() == [-1] * 3
    assert not found.confidence.any()


@given(st.integers(0, 2**32 - 1), st.integers(2, 30))
def test_joined_groups_are_those_that_can_be_reached(seed, n):
    generator = np.random.default_rng(seed)
    pairs = generator.integers(n, size=(n // 2, 2))
    groups = {place: {place} for place in range(n)}
    for first, second in pairs.tolist():
        together = groups[first] | groups[second]
        for place in together:
            groups[place] = together
    expected = {tuple(sorted(group)) for group in groups.values() if len(group) > 1}
    assert [tuple(group) for group in joined(n, pairs)] == sorted(expected)


def test_copies_are_found_among_classes_that_are_close_together():
    generator = np.random.default_rng(0)
    centres = 30.0 * generator.normal(size=(3, 40))
    labels = np.repeat(np.arange(3), 1000)  # more than are compared at once
    X = centres[labels] + generator.normal(size=(3000, 40))
    X[2500] = X[7] + 0.1 * generator.normal(size=40)
    assert likeness_of(X, labels).groups == [[7, 2500]]


def test_nothing_is_far_off_among_equals():
    assert not far_off(np.ones(5)).any()
    assert far_off(np.zeros(0)).shape == (0,)


@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_gaps_are_those_to_the_three_nearest(seed, n):
    X = np.random.default_rng(seed).normal(size=(n, 5))
    found = likeness_of(X, np.zeros(n, dtype=int))
    units = X - X.mean(axis=0)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    for place, gap in enumerate(found.gaps):
        others = sorted(1 - units[place] @ units[other] for other in range(n) if other != place)
        assert np.isclose(gap, np.mean(others[:3]), atol=1e-5)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(2, 12), st.booleans())
def test_affinities_are_those_of_classes_without_the_sample(seed, n_classes, width, some):
    generator = np.random.default_rng(seed)
    n = 6 * n_classes
    targets = np.tile(np.arange(n_classes), 6)
    X = generator.normal(size=(n, width)) + 2.0 * targets[:, None]
    learned = np.arange(n) >= 2 * n_classes if some else np.ones(n, dtype=bool)
    found = unlearned_affinities(X, targets, learned)

    def scatter(kept):
        parts = [X[kept & (targets == each)] for each in range(n_classes)]
        return sum((part - part.mean(axis=0)).T @ (part - part.mean(axis=0)) for part in parts)

    whole, share = scatter(learned), 1.0 - doubts.SHRINKAGE
    # how it is scaled, and what it shrinks towards, are not measured anew for every sample
    freedom = max(learned.sum() - n_classes, 1)
    target = doubts.SHRINKAGE * np.trace(whole) / width / freedom * np.eye(width)
    squares = np.empty((n, n_classes))
    for place in range(n):
        kept = learned & (np.arange(n) != place)
        metric = np.linalg.inv(share * scatter(kept) / freedom + target)
        for each in range(n_classes):
            away = X[place] - X[kept & (targets == each)].mean(axis=0)
            squares[place, each] = away @ metric @ away
    scale = found[0, 0] / squares[0, 0]
    assert scale < 0
    assert np.allclose(found, scale * squares, rtol=1e-6)
