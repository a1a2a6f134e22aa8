"""Numbers at the ends of float64, many cycles, many classes: right, or refused in one line.

``benchmarks/numerics.py`` is the long form of it.
"""

import numpy as np
import pytest

from tests.refusals import refused
from visvm import IncrementalLSSVC
from visvm.errors import InputError
from visvm.head import memory
from visvm.head.scatter import DenseScatter, ThinScatter
from visvm.head.statistics import Statistics

FORMS = {"thin": (150, 20), "dense": (12, 60)}  # D, samples


def samples(n=60, seed=0):
    generator = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return generator.normal(size=(n, 8)) + 4 * np.eye(8)[y], y


@pytest.mark.parametrize("n_components", [None, 20, 200])
@pytest.mark.parametrize("size", [1e-140, 1e-100, 1e-12, 1e-6, 1.0, 1e50, 1e140])
def test_lambda_is_found_for_features_of_any_size(size, n_components):
    X, y = samples()
    model = IncrementalLSSVC(n_components=n_components).fit(X * size, y)
    assert model.score(X * size, y) > 0.98


def test_a_class_of_too_few_to_hold_out_is_no_reason_to_be_wrong():
    X, y = samples(9)
    model = IncrementalLSSVC(n_components=20).fit(X * 1e-30, y)
    assert model.score(X * 1e-30, y) == 1.0


@pytest.mark.parametrize("size", [1e-160, 1e-300, 5e-324])
def test_features_whose_squares_vanish_are_refused(size):
    X, y = samples()
    model = IncrementalLSSVC(n_components=20, ridge=1.0)
    with refused("features-vanish", InputError):
        model.fit(X * size, y)
    model.fit(X, y)
    before = model.statistics_.digest()
    with refused("features-vanish", InputError):
        model.partial_fit(X * size, y)
    assert model.statistics_.digest() == before
    assert model.predict(X * size).shape == (60,)


@pytest.mark.parametrize("weight", [1e-300, 1e-310, 1e-51, 1e51, 1e160, 1e300])
def test_weights_that_would_vanish_or_overflow_are_refused(weight):
    X, y = samples()
    weights = np.ones(60)
    weights[:3] = weight
    with refused("weights-range", InputError):
        IncrementalLSSVC(n_components=20).fit(X, y, sample_weight=weights)


@pytest.mark.parametrize("weight", [1e-40, 1e-12, 1e6])
def test_light_and_heavy_samples_can_be_learned_and_forgotten(weight):
    X, y = samples()
    model = IncrementalLSSVC(n_components=20, ridge=1.0).fit(X, y)
    before, weights = model.decision_function(X), np.full(5, weight)
    model.partial_fit(X[:5] + 9, y[:5], sample_weight=weights)
    model.forget(X[:5] + 9, y[:5], sample_weight=weights)
    assert model.classes_.tolist() == [0, 1, 2]
    assert np.abs(model.decision_function(X) - before).max() < 1e-13 * max(weight, 1e3)


def test_samples_beside_which_all_others_would_be_lost_are_refused():
    X, y = samples()
    model = IncrementalLSSVC(n_components=20, ridge=1.0).fit(X, y)
    before = model.statistics_.digest()
    with refused("weights-ratio", InputError):
        model.partial_fit(X[:5], y[:5], sample_weight=np.full(5, 1e20))
    assert model.statistics_.digest() == before


def _same_again(sums, others, unlearn):
    """The relative drift of sums after others were added and taken away."""
    before, size = sums.scatter.to_matrix(), np.abs(sums.gram).max()
    class_sums = sums.class_sums.copy()
    for other in others:
        unlearn(sums, other)
    assert np.abs(sums.class_sums - class_sums).max() <= 1e-13 * np.abs(class_sums).max()
    return np.abs(sums.scatter.to_matrix() - before).max() / size


def _forget(sums, other):
    sums.add(other[0].copy(), other[1])
    sums.subtract(other[0].copy(), other[1])


def _unmerge(sums, other):
    there = Statistics(sums.n_features)
    there.add(other[0].copy(), other[1])
    sums.merge(there)
    sums.unmerge(there)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("unlearn", [_forget, _unmerge])
def test_errors_hardly_grow_over_cycles(form, unlearn):
    (width, n), generator = FORMS[form], np.random.default_rng(0)
    sums = Statistics(width)
    draw = lambda n: (np.maximum(generator.normal(size=(n, width)) + 0.5, 0.0), np.arange(n) % 4)  # noqa: E731
    sums.add(*draw(n))
    assert isinstance(sums.scatter, ThinScatter if form == "thin" else DenseScatter)
    drift = _same_again(sums, (draw(5) for _ in range(200)), unlearn)
    assert drift < 200 * 2e-15
    assert isinstance(sums.scatter, ThinScatter if form == "thin" else DenseScatter)


def test_many_classes_of_one_sample_need_no_square_of_their_number(monkeypatch):
    X, y = np.random.default_rng(0).normal(size=(600, 8)), np.arange(600)
    whole = IncrementalLSSVC(n_components=20, ridge=1e-3).fit(X, y)
    monkeypatch.setattr(memory, "CHUNK_BYTES", 8 * 620 * 100)
    rows = []
    one_hot = Statistics._one_hot

    def counted(self, labels):
        rows.append(len(labels) * len(self.classes))
        return one_hot(self, labels)

    monkeypatch.setattr(Statistics, "_one_hot", counted)
    model = (
        IncrementalLSSVC(n_components=20, ridge=1e-3).fit(X[:2], y[:2]).partial_fit(X[2:], y[2:])
    )
    assert max(rows) <= 100 * 600
    np.testing.assert_allclose(
        model.decision_function(X), whole.decision_function(X), rtol=0, atol=1e-9
    )
