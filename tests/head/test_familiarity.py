"""How familiar images look: the spread of scores by brute force, shares, strangers."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.refusals import refused
from visvm import IncrementalLSSVC
from visvm.errors import NeverLearnedError
from visvm.head import nearness
from visvm.head.familiarity import (
    DISTANCES,
    known_shares,
    learned_spread,
    smoothing,
    strangeness,
    tallied,
    unlearned_strangeness,
)


def drawn(seed, n, n_classes, d):
    generator = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), generator.integers(0, n_classes, n)])
    return generator.normal(size=(len(y), d)) + 2 * generator.normal(size=(n_classes, d))[y], y


def spread_of(head, chosen=None):
    places = np.arange(len(head.classes)) if chosen is None else chosen
    return learned_spread(head.statistics, head.settled.lift.kernel_map.back, places)


def recovered(head, X):
    """Features from lifted ones, by R alone."""
    matrix = head.settled.lift.kernel_map.matrix
    if matrix is None:
        return X
    return np.maximum(X @ matrix, 0.0) @ matrix.T * (2.0 * X.shape[1] / matrix.shape[1])


def squares(asked, features, y, classes):
    """Squared distances of features from classes, image by image."""
    centres = np.array([features[y == label].mean(axis=0) for label in classes])
    rest = features - centres[np.searchsorted(classes, y)]
    within = rest.T @ rest / max(len(y) - len(classes), 1)
    d = len(within)
    inverse = np.linalg.inv(0.3 * within + 0.7 * np.trace(within) / d * np.eye(d))
    away = asked[:, None] - centres
    return np.einsum("ncd,de,nce->nc", away, inverse, away) / d


def test_a_scatter_that_no_images_could_have_is_refused():
    with refused("sums-impossible", NeverLearnedError):
        nearness.spread_of(np.zeros((2, 3)), -np.eye(3), 1.0, 0.7)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(3, 40),
    n_classes=st.integers(1, 5),
    width=st.none() | st.integers(3, 20) | st.integers(100, 120),
)
def test_the_spread_is_that_of_the_learned_images(seed, n, n_classes, width):
    X, y = drawn(seed, n, n_classes, d=4)
    head = IncrementalLSSVC(n_components=width, ridge=1.0).fit(X, y).head_
    asked, features = recovered(head, X) + 0.3, recovered(head, X)
    slow = squares(asked, features, y, sorted(set(y.tolist())))
    assert spread_of(head).squares(asked) == pytest.approx(slow, rel=1e-6, abs=1e-6)
    assert head.looks(X)[1] == pytest.approx(features)
    assert head.looks(X)[0] == pytest.approx(head.scores(X))


def test_a_wide_map_gives_the_features_back():
    X, y = drawn(0, 30, 3, d=4)
    errors = []
    for width in (100, 10_000):
        head = IncrementalLSSVC(n_components=width, ridge=1.0).fit(X, y).head_
        errors.append(np.linalg.norm(head.looks(X)[1] - X) / np.linalg.norm(X))
    assert errors[1] < 0.04 < 0.1 < errors[0] < 0.5


@pytest.mark.parametrize("width", [None, 50])
def test_an_image_left_out_is_in_neither_mean_nor_scatter(width):
    X, y = drawn(0, 30, 3, d=4)
    head = IncrementalLSSVC(n_components=width, ridge=10.0).fit(X, y).head_
    features, unseen = recovered(head, X), head.leave_one_out_scores(X, y)
    counts = head.statistics.class_counts
    parts = spread_of(head), head.statistics, features[:, None], unseen, y, counts
    found = unlearned_strangeness(*parts)
    for place in range(len(y)):
        left = np.arange(len(y)) != place
        # the share of the scatter stays that of all images, and so does its trace
        centres = np.array([features[left & (y == label)].mean(axis=0) for label in range(3)])
        every = np.array([features[y == label].mean(axis=0) for label in range(3)])
        rest, whole = features[left] - centres[y[left]], features - every[y]
        n = len(y) - 3
        level = 0.7 * np.trace(whole.T @ whole) / n / 4
        inverse = np.linalg.inv(0.3 * rest.T @ rest / n + level * np.eye(4))
        away = features[place] - centres
        near = np.einsum("cd,de,ce->c", away, inverse, away).min() / 4
        wanted = np.sqrt(near * np.exp(-min(unseen[place].max(), 2.0)))
        assert found[place] == pytest.approx(wanted, rel=1e-6)


def test_views_are_left_out_together():
    X, y = drawn(1, 20, 2, d=3)
    head = IncrementalLSSVC(n_components=None, ridge=10.0).fit(X, y).head_
    sums, spread, unseen = head.statistics, spread_of(head), np.zeros((len(y), 2))
    views = np.stack([X + 0.5, X - 0.5], axis=1)  # whose mean is what was learned
    counts = sums.class_counts
    found = unlearned_strangeness(spread, sums, views, unseen, y, counts)
    part = 0.3 / (len(y) - 2)
    wanted = spread.unlearned_squares(X + 0.5, X, y, counts, part).min(axis=1)
    assert found == pytest.approx(np.sqrt(wanted))


def test_the_only_image_of_a_class_tells_nothing():
    X, y = np.array([[0.0], [1.0], [9.0]]), np.array([0, 0, 1])
    head = IncrementalLSSVC(n_components=None, ridge=1.0).fit(X, y).head_
    parts = X[:, None], np.zeros((3, 2)), y, head.statistics.class_counts
    assert len(unlearned_strangeness(spread_of(head), head.statistics, *parts)) == 2


def test_a_high_score_makes_an_image_more_familiar():
    near, scores = np.array([[4.0, 9.0]]), np.array([[0.0, 1.0]])
    assert strangeness(near, 0.0 * scores) == pytest.approx([2.0])
    assert strangeness(near, scores) == pytest.approx([2.0 * np.exp(-0.5)])
    assert strangeness(near, 1e9 * scores) == pytest.approx([2.0 / np.e])


def test_no_class_has_no_spread():
    head = IncrementalLSSVC(n_components=None, ridge=1.0).fit(*drawn(0, 9, 2, d=2)).head_
    assert spread_of(head, np.zeros(0, dtype=np.intp)) is None
    assert len(spread_of(head, np.array([1])).centres) == 1


def test_a_dense_scatter_is_the_same_also_while_its_factor_is_held():
    X, y = drawn(2, 60, 3, d=4)
    head = IncrementalLSSVC(n_components=12, ridge=1.0).fit(X, y).head_
    wanted = spread_of(head).root
    with head.factor_kept():
        held = head.solved()
        assert spread_of(held).root == pytest.approx(wanted)
    assert squares(recovered(head, X), recovered(head, X), y, [0, 1, 2]) == pytest.approx(
        spread_of(head).squares(recovered(head, X)), abs=1e-8
    )


@pytest.mark.parametrize("labels", [[0] * 6, [0, 0, 0, 1, 1, 1], [0, 1, 2, 3, 4, 5]])
@pytest.mark.parametrize("ridge", [1e-6, 10.0])
def test_images_without_any_scatter_have_finite_distances(labels, ridge):
    y, same = np.array(labels), np.tile([[1.0, 2.0]], (6, 1))
    for X in (same, np.zeros((6, 2)), np.arange(12.0).reshape(6, 2)):
        head = IncrementalLSSVC(n_components=30, ridge=ridge).fit(X, y).head_
        spread, sums = spread_of(head), head.statistics
        unseen, features = head.leave_one_out_scores(X, y), recovered(head, X)
        parts = features[:, None], unseen, y, sums.class_counts
        distances = unlearned_strangeness(spread, sums, *parts)
        assert np.isfinite(spread.squares(features + 1.0)).all()
        assert tallied(distances).sum() == (0 if len(set(labels)) == 6 else 6)


@pytest.mark.parametrize("size", [1e-3, 3.0, 1e4])
@pytest.mark.parametrize("n", [5, 200])
def test_one_image_of_each_class_leaves_rounding_of_any_size(size, n):
    X = size * np.random.default_rng(0).normal(1.0, 1.0, size=(n, 64))
    head = IncrementalLSSVC(n_components=300, ridge=1.0).fit(X, np.arange(n)).head_
    found = spread_of(head).squares(recovered(head, X))
    assert np.isfinite(found).all()
    assert (found.argmin(axis=1) == np.arange(n)).all()


# Shares


def test_distances_beyond_the_grid_count_at_its_ends():
    assert tallied(np.array([0.0, 1e-9, 1e9])).nonzero()[0].tolist() == [0, len(DISTANCES) - 1]
    assert tallied(DISTANCES).tolist() == [1.0] * len(DISTANCES)


def test_shares_are_those_of_the_images_further_away():
    distances = np.random.default_rng(0).lognormal(0.2, 0.4, size=4000)
    asked = np.array([0.5, 1.0, 1.5, 2.5])
    slow = [(distances > each).mean() for each in asked]
    assert known_shares(asked, tallied(distances)) == pytest.approx(slow, abs=0.02)


def test_smoothing_keeps_mean_and_deviation():
    for n in (10, 300):
        logs = np.random.default_rng(n).normal(0.3, 0.5, size=n)
        weights, places, width = smoothing(tallied(np.exp(logs)))
        mean = weights @ places / n
        spread = np.sqrt(weights @ np.square(places - mean) / n + width**2)
        assert mean == pytest.approx(logs.mean(), abs=0.02)
        assert spread == pytest.approx(logs.std(), abs=0.03)


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


@pytest.mark.parametrize(("n_classes", "n"), [(1, 12), (2, 12), (2, 5), (8, 20), (30, 8)])
def test_strangers_are_refused_and_known_images_as_often_as_said(n_classes, n):
    known, strange, far = [], [], []
    for seed in range(12):
        generator = np.random.default_rng(seed)
        centres = 1.5 * generator.normal(size=(n_classes + 5, 20))
        y = np.repeat(np.arange(n_classes), n)

        def images(labels, centres=centres, generator=generator):
            return centres[labels] + 0.5 * generator.normal(size=(len(labels), 20))

        X = images(y)
        head = IncrementalLSSVC(n_components=300, ridge=30.0).fit(X, y).head_
        spread, sums = spread_of(head), head.statistics
        unseen = head.leave_one_out_scores(X, y), y, sums.class_counts
        seen = tallied(unlearned_strangeness(spread, sums, recovered(head, X)[:, None], *unseen))

        def share(asked, head=head, spread=spread, seen=seen):
            scores, features = head.looks(asked)
            return (known_shares(strangeness(spread.squares(features), scores), seen) < 0.05).mean()

        known.append(share(images(np.arange(200) % n_classes)))
        strange.append(share(images(n_classes + np.arange(200) % 5)))
        far.append(share(10.0 * generator.normal(size=(100, 20))))
    assert np.mean(known) < 0.1
    assert np.mean(strange) > 0.8
    assert np.mean(far) > 0.99
