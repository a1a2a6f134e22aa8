"""Which samples to label next: the mathematics by brute force, in every form of the sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from visvm import IncrementalLSSVC
from visvm.head.solver import leverage
from visvm.head.suggest import ALIKE, first_choices, hesitations


def leverages(gram, rows):
    return np.einsum("nd,de,ne->n", rows, np.linalg.inv(gram), rows)


def slow_choices(learned, candidates, doubts, features, n, shift):
    """One after another: all leverages anew, with each candidate in turn in the sums."""
    gram = learned.T @ learned + shift * np.eye(learned.shape[1])
    chosen = []
    for _ in range(n):
        after = [leverages(gram + np.outer(one, one), candidates).sum() for one in candidates]
        gains = (leverages(gram, candidates).sum() - np.array(after)) * doubts
        for place, one in enumerate(features):
            for other in chosen:
                cosine = one @ features[other] / np.linalg.norm(one)
                if place in chosen or cosine / np.linalg.norm(features[other]) >= ALIKE:
                    gains[place] = -1.0
        if gains.max() < 0:
            break
        chosen.append(int(gains.argmax()))
        gram += np.outer(candidates[chosen[-1]], candidates[chosen[-1]])
    return chosen


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 30),
    m=st.integers(1, 15),
    width=st.sampled_from([None, 5, 12, 90]),  # dense and thin
    ridge=st.floats(-0.5, 3).map(lambda power: 10.0**power),
    change=st.sampled_from(["none", "merge", "forget"]),
)
def test_choices_are_those_of_the_sums_with_each_choice_learned(seed, n, m, width, ridge, change):
    generator = np.random.default_rng(seed)
    X, new = generator.normal(size=(n + 4, 3)), generator.normal(size=(m, 3))
    y = np.arange(n + 4) % 2
    model = IncrementalLSSVC(n_components=width, ridge=ridge)
    if change == "forget":
        model.fit(X, y).forget(X[n:], y[n:])
        X = X[:n]
    elif change == "merge":
        model.fit(X[:n], y[:n])
        model.merge(IncrementalLSSVC(n_components=width, ridge=ridge).fit(X[n:], y[n:]))
    else:
        model.fit(X, y)
    lift, doubts = model.head_.settled.lift, generator.uniform(0.1, 1.0, m)
    # K: all candidates as views of one sample, whose leverage they share
    covariance = m * leverage(model.head_.statistics, lift(new)[None], ridge, 10.0)[0]
    learned, candidates = reference.augmented(lift(X)), reference.augmented(lift(new))
    wanted = slow_choices(learned, candidates, doubts, new, 5, ridge / 10.0)
    assert first_choices(covariance, doubts, new, 5).tolist() == wanted


def test_near_duplicates_do_not_come_together():
    features = np.repeat(np.eye(3), 4, axis=0) + 1e-3
    chosen = first_choices(np.eye(12) * np.arange(1.0, 13.0), np.ones(12), features, 12)
    assert chosen.tolist() == [11, 7, 3]


@pytest.mark.parametrize("features", [np.zeros((3, 2)), np.full((3, 2), 1e-300)])
def test_features_without_a_direction_are_taken_once(features):
    chosen = first_choices(np.eye(3), np.ones(3), features, 3)
    assert len(set(chosen.tolist())) == len(chosen) >= 1


def test_doubt_is_the_lead_of_the_likeliest():
    rows = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [1.0, 0.0, 0.0]])
    assert hesitations(rows) == pytest.approx([1.0, 0.5, 0.0])
    assert hesitations(np.ones((2, 1))).tolist() == [1.0, 1.0]
