"""Exactness against ``tests/reference.py``, for drawn sizes, λ, means, dtypes, splits, orders."""

import copy

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import reference
from visvm import IncrementalLSSVC
from visvm.head.selection import RIDGE_CANDIDATES

pytestmark = pytest.mark.slow

TOLERANCE = 1e-5  # of the scores' range


@st.composite
def problems(draw):
    """A data set with its hyper-parameters, and a division into sessions."""
    n = draw(st.integers(1, 80), "n")
    d = draw(st.integers(1, 12), "d")
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1), "seed"))
    mean = draw(st.sampled_from([0.0, 1.0, 10.0, 100.0]) | st.floats(0.0, 100.0), "mean")
    X = (generator.normal(size=(n + 10, d)) + mean).astype(
        draw(st.sampled_from([np.float32, np.float64]), "dtype")
    )
    y = generator.integers(0, draw(st.integers(1, 6), "n_classes"), n)
    cuts = sorted(draw(st.lists(st.integers(1, max(n - 1, 1)), max_size=6, unique=True), "cuts"))
    order = generator.permutation(n)
    sessions = [part for part in np.split(order, cuts) if len(part)]
    model = IncrementalLSSVC(
        n_components=draw(st.none() | st.integers(1, 64) | st.integers(150, 200), "n_components"),
        ridge=draw(
            st.sampled_from(RIDGE_CANDIDATES) | st.floats(-6, 6).map(lambda power: 10.0**power),
            "ridge",
        ),
        svm_cost=10.0,
        random_state=draw(st.integers(0, 100), "random_state"),
    )
    return model, X, y, sessions


def learn(model, X, y, sessions):
    for session in sessions:
        model.partial_fit(X[session], y[session])
    return model


def all_scores(model, X):
    scores = model.decision_function(X)
    return np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores


def wanted_scores(model, X, y, rows):
    matrix = model.kernel_map_.matrix
    phi = np.asarray(X, dtype=np.float64) if matrix is None else reference.relu_map(X, matrix)
    return reference.scores(phi[rows], y[rows], phi, model.ridge, model.svm_cost)


@given(problems())
def test_any_split_and_order_of_sessions_is_one_batch_of_the_reference(problem):
    model, X, y, sessions = problem
    learn(model, X, y, sessions)
    rows = np.arange(len(y))
    assert reference.error(all_scores(model, X), wanted_scores(model, X, y, rows)) < TOLERANCE


@given(problems(), st.data())
def test_merging_in_any_grouping_is_learning_everything(problem, data):
    model, X, y, sessions = problem
    models = [learn(copy.deepcopy(model), X, y, [session]) for session in sessions]
    while len(models) > 1:
        other = models.pop(data.draw(st.integers(0, len(models) - 1)))
        models[data.draw(st.integers(0, len(models) - 1))].merge(other)
    assert (
        reference.error(all_scores(models[0], X), wanted_scores(models[0], X, y, np.arange(len(y))))
        < TOLERANCE
    )


@given(problems(), st.data())
def test_forgetting_any_samples_is_never_having_learned_them(problem, data):
    model, X, y, sessions = problem
    assume(len(y) > 1)
    learn(model, X, y, sessions)
    gone = np.array(
        data.draw(
            st.lists(st.integers(0, len(y) - 1), min_size=1, max_size=len(y) - 1, unique=True)
        )
    )
    for part in np.array_split(gone, min(2, len(gone))):
        model.forget(X[part], y[part])
    left = np.setdiff1d(np.arange(len(y)), gone)
    assert model.classes_.tolist() == sorted(set(y[left].tolist()))
    assert reference.error(all_scores(model, X), wanted_scores(model, X, y, left)) < TOLERANCE


@given(problems())
def test_weights_are_copies(problem):
    model, X, y, _ = problem
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    weighted = copy.deepcopy(model).fit(X[: len(y)], y, sample_weight=weight)
    rows = np.repeat(np.arange(len(y)), weight)
    assert reference.error(all_scores(weighted, X), wanted_scores(weighted, X, y, rows)) < TOLERANCE


@given(problems())
def test_the_ridge_that_is_chosen_keeps_the_scores_exact(problem):
    model, X, y, sessions = problem
    model.set_params(ridge="auto")
    learn(model, X, y, sessions)
    model.ridge = model.ridge_
    assert (
        reference.error(all_scores(model, X), wanted_scores(model, X, y, np.arange(len(y))))
        < TOLERANCE
    )
