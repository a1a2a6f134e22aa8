"""λ anew from the sums: the evidence, the rule that chooses by it, and when it does."""

import re
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from tests import reference
from tests.refusals import refused
from visvm import IncrementalLSSVC, VisClassifier
from visvm.errors import MemoryLimitError
from visvm.head.evidence import Evidence, ridge_by_evidence
from visvm.head.scatter import DenseScatter, ThinScatter
from visvm.head.selection import RIDGE_CANDIDATES, RidgeBasis
from visvm.head.statistics import Statistics

LADDER = (*RIDGE_CANDIDATES[4:], 3e4, 1e5, 3e5, 1e6, 3e6, 1e7)  # which goes by 1, 3, 10


def sums_of(phi, y, sessions=None, weight=None, dense=False):
    sums = Statistics(phi.shape[1])
    if dense:
        sums.scatter = sums.scatter.to_dense()
    for rows in sessions or [np.arange(len(y))]:
        sums.add(phi[rows].copy(), y[rows], None if weight is None else weight[rows])
    return sums


def as_thin(phi, y, weight=None):
    """Thin sums however many samples there are: `add` would make them dense."""
    sums = Statistics(phi.shape[1])
    sums.reserve = lambda _: None
    sums.add(phi.copy(), y, weight)
    assert isinstance(sums.scatter, ThinScatter)
    return sums


@st.composite
def samples(draw):
    """Features with a mean, labels of several classes, how often each counts, and λ."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, width = draw(st.integers(4, 14)), draw(st.integers(1, 20))
    phi = generator.normal(size=(n, width)) + draw(st.sampled_from([0.0, 1.0, 10.0]))
    y = np.arange(n) % draw(st.integers(2, 4))
    weight = generator.integers(1, 4, size=n).astype(float)
    return phi, y, weight, 10.0 ** draw(st.floats(-2.0, 4.0))


@settings(max_examples=40)
@given(samples())
def test_it_is_the_density_of_the_targets(given_samples):
    phi, y, weight, ridge = given_samples
    copies = np.repeat(np.arange(len(y)), weight.astype(int))
    wanted = reference.log_evidence(phi[copies], y[copies], ridge)
    for sums in (as_thin(phi, y, weight), sums_of(phi, y, weight=weight, dense=True)):
        assert Evidence(sums, 10.0)(ridge) == pytest.approx(wanted, rel=1e-6, abs=1e-5)


@settings(max_examples=30)
@given(samples(), st.integers(1, 13))
def test_sessions_and_forgetting_make_no_difference(given_samples, cut):
    phi, y, _, ridge = given_samples
    order = np.random.default_rng(cut).permutation(len(y))
    wanted = Evidence(sums_of(phi, y), 10.0)(ridge)
    for dense in (False, True):
        sums = sums_of(phi, y, [order[:cut], order[cut:]][: 1 + (cut < len(y))], dense=dense)
        assert Evidence(sums, 10.0)(ridge) == pytest.approx(wanted, rel=1e-7, abs=1e-6)
        more = np.random.default_rng(cut).normal(size=(3, phi.shape[1])) + 5.0
        sums.add(more.copy(), y[:3])
        sums.subtract(more, y[:3])
        assert Evidence(sums, 10.0)(ridge) == pytest.approx(wanted, rel=1e-6, abs=1e-5)


def test_views_that_are_alike_count_as_one_image():
    phi, y = np.random.default_rng(0).normal(size=(9, 30)), np.arange(9) % 3
    twice = sums_of(np.repeat(phi, 2, axis=0), np.repeat(y, 2), weight=np.full(18, 0.5))
    assert Evidence(twice, 10.0)(3.0) == pytest.approx(reference.log_evidence(phi, y, 3.0))


def test_factors_leave_the_sums_as_they_were():
    phi, y = np.random.default_rng(0).normal(size=(9, 6)), np.arange(9) % 3
    sums = sums_of(phi, y, dense=True)
    before = sums.digest()
    assert isinstance(sums.scatter, DenseScatter)
    Evidence(sums, 10.0)(3.0)
    assert sums.digest() == before


# The choice


@cache
def digits(n_classes):
    X, y = load_digits(return_X_y=True)
    return X[y < n_classes], y[y < n_classes]


def lifted(X):
    return np.maximum(X @ np.random.default_rng(0).normal(size=(64, 300)) / 8.0, 0.0)


@pytest.mark.parametrize(("n", "n_classes"), [(8, 2), (30, 5), (60, 3), (150, 10), (600, 5)])
@pytest.mark.parametrize("start", [1e-3, 100.0, 1e7])
def test_the_choice_is_that_of_trying_all(n, n_classes, start):
    X, y = digits(n_classes)
    phi, y = lifted(X[:n]), y[:n]
    sums = sums_of(phi, y)
    evidence = Evidence(sums, 10.0)
    found = {ridge: evidence(ridge) for ridge in LADDER}
    alike = [ridge for ridge in LADDER if found[ridge] >= max(found.values()) - 3.0]
    assert ridge_by_evidence(sums, start, 10.0) == max(alike)


def test_of_a_few_images_that_any_small_ridge_explains_it_takes_the_largest():
    X, y = digits(2)
    sums = sums_of(lifted(X[:10]), y[:10])
    evidence = Evidence(sums, 10.0)
    assert evidence(1e-3) > evidence(300.0)  # by next to nothing
    assert ridge_by_evidence(sums, 1e-3, 10.0) >= 300.0


@pytest.mark.parametrize("feature", [1.0, 1e200])
def test_where_nothing_can_be_told_the_ridge_stays(feature):
    phi = np.full((6, 4), feature) * np.where(feature > 1, np.arange(6)[:, None], 1.0)
    with np.errstate(over="ignore"):
        assert ridge_by_evidence(sums_of(phi, np.arange(6) % 2), 7.0, 10.0) == 7.0


# When a model chooses


def sessions_of(y, first, then):
    """Split classes: so many in the first session, then so many at a time."""
    cuts = [0, *range(first, int(y.max()) + 1, then), int(y.max()) + 1]
    return [np.flatnonzero((y >= a) & (y < b)) for a, b in pairwise(cuts)]


def grown(sessions, X, y, **options):
    """Learn sessions; return λ and what it was chosen by, after each."""
    model, found = IncrementalLSSVC(n_components=200, **options), []
    for rows in sessions:
        model.partial_fit(X[rows], y[rows])
        found.append((model.ridge_, model.head_.settled.ridge_basis))
    return model, found


def first(n, y):
    """The first n samples of every class."""
    return np.concatenate([np.flatnonzero(y == label)[:n] for label in np.unique(y)])


@cache
def few():
    X, y = digits(10)
    rows = first(15, y)
    return X[rows], y[rows]


def test_it_chooses_anew_whenever_the_images_have_doubled():
    X, y = few()
    _, found = grown(sessions_of(y, 2, 1), X, y, renew_ridge=True)
    bases = [(basis.n_images, basis.n_classes) for _, basis in found]
    # 30 images, then at 60 and at 120: each of them the first to double
    assert bases == [(30, 2)] * 2 + [(60, 4)] * 4 + [(120, 8)] * 3
    every = np.arange(len(y))  # 150 images
    _, found = grown([*sessions_of(y, 2, 2), every, every, every], X, y, renew_ridge=True)
    assert [basis.n_images for _, basis in found[3:]] == [120, 120, 300, 300, 600]


def test_what_it_chooses_is_the_evidence_of_all_sums():
    X, y = few()
    sessions = sessions_of(y, 2, 2)
    model, found = grown(sessions[:2], X, y, renew_ridge=True)
    assert found[1][1] == RidgeBasis(60, 4)
    before = found[0][0]
    assert found[1][0] == ridge_by_evidence(model.statistics_, before, 10.0) != before
    wanted = IncrementalLSSVC(n_components=200, ridge=found[1][0])
    for rows in sessions[:2]:
        wanted.partial_fit(X[rows], y[rows])
    assert np.array_equal(model.coefficients_, wanted.coefficients_)


@pytest.mark.parametrize("options", [{}, {"ridge": 30.0, "renew_ridge": True}])
def test_unless_asked_or_where_a_number_was_given_it_stays(options):
    X, y = few()
    _, found = grown(sessions_of(y, 2, 2), X, y, **options)
    assert len({ridge for ridge, _ in found}) == 1


def test_a_number_given_later_is_never_changed():
    X, y = few()
    sessions = sessions_of(y, 2, 2)
    model, _ = grown(sessions[:1], X, y, renew_ridge=True)
    for ridge in (7.0, "auto"):
        model.set_params(ridge=ridge).partial_fit(X[sessions[1]], y[sessions[1]])
        assert model.ridge_ == 7.0


def test_a_base_session_of_ten_classes_settles_it_for_good():
    X, y = few()
    once = np.concatenate([np.flatnonzero(y == label)[:5] for label in range(10)])
    sessions = [once, np.arange(len(y)), np.arange(len(y))]
    models = [grown(sessions, X, y, renew_ridge=renews)[0] for renews in (False, True)]
    assert models[0].ridge_ == models[1].ridge_
    assert models[1].head_.settled.ridge_basis is None
    assert np.array_equal(models[0].coefficients_, models[1].coefficients_)


def test_one_class_says_nothing():
    X, y = few()
    rows = np.flatnonzero(y == 0)
    _, found = grown([rows[:5], rows[5:]], X, y, renew_ridge=True)
    assert found[0] == found[1]


def test_piece_by_piece_it_is_the_same():
    X, y = few()
    sessions = sessions_of(y, 2, 2)
    wanted, _ = grown(sessions[:2], X, y, renew_ridge=True)
    model = IncrementalLSSVC(n_components=200, renew_ridge=True)
    model.settle(X[sessions[0]], y[sessions[0]])
    for rows in sessions[:2]:
        model.accumulate(X[rows], y[rows])
    model.solve()
    assert model.ridge_ == wanted.ridge_
    assert reference.error(model.coefficients_, wanted.coefficients_) < 1e-9


def test_only_learning_chooses_anew():
    X, y = few()
    sessions = sessions_of(y, 2, 2)
    model, ((ridge, basis),) = grown(sessions[:1], X, y, renew_ridge=True)
    other, _ = grown(sessions[:1], X, y, renew_ridge=True)
    other.partial_fit(X[sessions[1]], y[sessions[1]]).forget(X[sessions[0]], y[sessions[0]])
    renewed = other.ridge_  # and forgetting has left it as it was
    assert renewed != ridge
    plain = model.coefficients_.copy()
    model.merge(other)
    assert (model.ridge_, model.head_.settled.ridge_basis) == (ridge, basis)
    model.unmerge(other)
    assert reference.error(model.coefficients_, plain) < 1e-9
    model.merge(other).partial_fit(X[:1], y[:1])  # the next session counts what was merged
    assert model.head_.settled.ridge_basis == RidgeBasis(61, 4)
    assert model.ridge_ != ridge


def test_memory_is_counted_where_it_chooses_anew():
    X, y = few()
    sessions = sessions_of(y, 2, 2)
    models = [grown(sessions[:1], X, y, renew_ridge=renews)[0] for renews in (False, True)]
    needed = []
    for model in models:
        with refused("memory-session", MemoryLimitError) as caught:
            model.set_params(memory_limit=1.0).partial_fit(X[sessions[1]], y[sessions[1]])
        needed.append(float(re.search(r"about ([\d.]+) KiB", str(caught.value))[1]))
    assert needed[1] - needed[0] == pytest.approx(8 * 59**2 / 1024, abs=0.2)  # FFᵀ of 59 rows


def test_the_whole_method_can_choose_anew_too():
    X, y = few()
    models = [
        VisClassifier(layer_dims=(32, 32), n_components=100, renew_ridge=renews, layers=(2,))
        for renews in (False, True)
    ]
    for rows in sessions_of(y, 2, 2)[:2]:
        for model in models:
            model.partial_fit(X[rows], y[rows])
    assert models[0].ridge_ != models[1].ridge_
