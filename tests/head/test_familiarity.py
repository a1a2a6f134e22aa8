"""How familiar images look: the spread of scores by brute force, shares, strangers."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import reference
from visvm import IncrementalLSSVC
from visvm.head.familiarity import (
    DISTANCES,
    MOST_CLASSES,
    ScoreSpread,
    known_shares,
    spread_of,
    tallied,
)


def brute_spread(phi, y, ridge, svm_cost):
    """Mean scores of every class, and the scatter within classes, image by image."""
    classes = sorted(set(y.tolist()))
    weights = reference.coefficients(phi, reference.signs(y, classes), ridge, svm_cost)
    scores = reference.augmented(phi) @ weights
    centres = np.array([scores[y == label].mean(axis=0) for label in classes])
    rest = scores - centres[np.searchsorted(classes, y)]
    return centres, rest.T @ rest / max(len(y) - len(classes), 1), scores


def drawn(seed, n, n_classes, d):
    generator = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), generator.integers(0, n_classes, n)])
    return generator.normal(size=(len(y), d)) + 2 * generator.normal(size=(n_classes, d))[y], y


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(3, 40),
    n_classes=st.integers(1, 5),
    width=st.none() | st.integers(3, 20) | st.integers(100, 120),
    ridge=st.floats(0, 3).map(lambda power: 10.0**power),
)
def test_the_spread_is_that_of_the_learned_images(seed, n, n_classes, width, ridge):
    X, y = drawn(seed, n, n_classes, d=4)
    head = IncrementalLSSVC(n_components=width, ridge=ridge).fit(X, y).head_
    chosen = np.arange(n_classes)
    spread = spread_of(head.statistics, head.coefficients, ridge / 10, chosen)
    centres, within, scores = brute_spread(head.settled.lift(X), y, ridge, 10.0)
    assert spread.centres == pytest.approx(centres, abs=1e-7)
    metric = 0.5 * within + 0.5 * np.trace(within) / n_classes * np.eye(n_classes)
    inverse, asked = np.linalg.inv(metric), scores + 0.3
    away = asked[:, None] - centres
    slow = np.sqrt(np.einsum("ncd,de,nce->nc", away, inverse, away) / n_classes)
    assert spread.distances(asked) == pytest.approx(slow, rel=1e-4, abs=1e-4)


def test_an_image_left_out_is_not_in_the_centre_of_its_class():
    X, y = drawn(0, 30, 3, d=4)
    head = IncrementalLSSVC(n_components=None, ridge=10.0).fit(X, y).head_
    spread = spread_of(head.statistics, head.coefficients, 1.0, np.arange(3))
    fitted, unseen = head.scores(X), head.leave_one_out_scores(X, y)
    counts = head.statistics.class_counts
    found = spread.unlearned_distances(unseen, fitted, y, counts)
    for place in range(len(y)):
        centres = spread.centres.copy()
        others = (y == y[place]) & (np.arange(len(y)) != place)
        centres[y[place]] = fitted[others].mean(axis=0)
        slow = ScoreSpread(centres, spread.root).distances(unseen[[place]]).min()
        assert found[place] == pytest.approx(slow, abs=1e-9)


def test_an_image_that_is_alone_in_its_class_leaves_it_as_it_is():
    spread = ScoreSpread(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.eye(2))
    fitted = np.array([[1.0, -1.0]])
    distances = spread.unlearned_distances(
        np.array([[0.0, 0.0]]), fitted, np.array([0]), np.array([1.0, 3.0])
    )
    assert distances == pytest.approx([1.0])


def test_too_many_classes_or_none_have_no_spread():
    head = IncrementalLSSVC(n_components=None, ridge=1.0).fit(*drawn(0, 9, 2, d=2)).head_
    for n in (0, MOST_CLASSES + 1):
        chosen = np.zeros(n, dtype=np.intp)
        assert spread_of(head.statistics, head.coefficients, 0.1, chosen) is None


def test_classes_in_another_order():
    spread = spread_of_stream()
    order, scores = np.array([2, 0, 1]), np.random.default_rng(1).normal(size=(5, 3))
    moved = spread.reordered(order).distances(scores[:, order])
    assert moved == pytest.approx(spread.distances(scores)[:, order])


def spread_of_stream():
    head = IncrementalLSSVC(n_components=20, ridge=10.0).fit(*drawn(3, 30, 3, d=4)).head_
    return spread_of(head.statistics, head.coefficients, 1.0, np.arange(3))


@pytest.mark.parametrize("labels", [[0] * 6, [0, 0, 0, 1, 1, 1], [0, 1, 2, 3, 4, 5]])
@pytest.mark.parametrize("ridge", [1e-6, 10.0])
def test_images_without_any_scatter_have_finite_distances(labels, ridge):
    y, same = np.array(labels), np.tile([[1.0, 2.0]], (6, 1))
    for X in (same, np.zeros((6, 2)), np.arange(12.0).reshape(6, 2)):
        head = IncrementalLSSVC(n_components=30, ridge=ridge).fit(X, y).head_
        places = np.arange(len(head.classes))
        spread = spread_of(head.statistics, head.coefficients, ridge / 10, places)
        unseen, counts = head.leave_one_out_scores(X, y), head.statistics.class_counts
        distances = spread.unlearned_distances(unseen, head.scores(X), y, counts)
        assert np.isfinite(spread.distances(head.scores(X + 1.0))).all()
        assert tallied(distances).sum() == len(X)


# Shares


def test_distances_beyond_the_grid_count_at_its_ends():
    assert tallied(np.array([0.0, 1e-9, 1e9])).nonzero()[0].tolist() == [0, len(DISTANCES) - 1]
    assert tallied(DISTANCES).tolist() == [1.0] * len(DISTANCES)


def test_shares_are_those_of_the_images_further_away():
    distances = np.random.default_rng(0).lognormal(0.2, 0.4, size=4000)
    asked = np.array([0.5, 1.0, 1.5, 2.5])
    slow = [(distances > each).mean() for each in asked]
    assert known_shares(asked, tallied(distances)) == pytest.approx(slow, abs=0.02)


def test_shares_of_nothing_are_none():
    assert known_shares(np.ones(2), np.zeros(len(DISTANCES))) is None


@given(st.lists(st.floats(0.5, 50.0), min_size=1, max_size=30))
@example([0.5, 0.5, 50.0])  # few and far apart: each stands for a wide range
def test_shares_fall_with_the_distance_and_stay_between_0_and_1(distances):
    asked = np.geomspace(1e-3, 1e6, 50)
    shares = known_shares(asked, tallied(np.array(distances)))
    assert (np.diff(shares) <= 1e-12).all()
    assert shares[0] == pytest.approx(1.0, abs=0.1)
    assert shares[-1] == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize(("n_classes", "n"), [(1, 12), (2, 12), (8, 20), (30, 8)])
def test_strangers_are_refused_and_known_images_as_often_as_said(n_classes, n):
    known, strange = [], []
    for seed in range(12):
        generator = np.random.default_rng(seed)
        centres = 1.5 * generator.normal(size=(n_classes + 5, 20))
        y = np.repeat(np.arange(n_classes), n)

        def images(labels, centres=centres, generator=generator):
            return centres[labels] + 0.5 * generator.normal(size=(len(labels), 20))

        X = images(y)
        head = IncrementalLSSVC(n_components=300, ridge=30.0).fit(X, y).head_
        spread = spread_of(head.statistics, head.coefficients, 3.0, np.arange(n_classes))
        unseen = head.leave_one_out_scores(X, y), head.scores(X), y, head.statistics.class_counts
        sums = tallied(spread.unlearned_distances(*unseen))

        def share(labels, head=head, spread=spread, sums=sums, images=images):
            nearest = spread.distances(head.scores(images(labels))).min(axis=1)
            return (known_shares(nearest, sums) < 0.05).mean()

        known.append(share(np.arange(200) % n_classes))
        strange.append(share(n_classes + np.arange(200) % 5))
    assert np.mean(known) < 0.1
    assert np.mean(strange) > 0.8
