"""The estimators, against ``tests/reference.py`` and against themselves."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from tests import reference
from tests.conftest import make_stream
from visvm import IllConditionedWarning, IncrementalLSSVC, VisClassifier
from visvm.head.scatter import DenseScatter, ThinScatter

THIN, DENSE = 400, 30  # widths that keep 120 samples in the thin form, and in the dense


def lift(model, X):
    return reference.relu_map(X, model.kernel_map_.matrix)


def assert_same_scores(model, other, X, tolerance=1e-8):
    assert model.classes_.tolist() == other.classes_.tolist()
    assert reference.error(model.decision_function(X), other.decision_function(X)) < tolerance


@pytest.fixture(params=[THIN, DENSE], ids=["thin", "dense"])
def width(request):
    return request.param


def test_one_fit_is_the_papers_closed_form(stream, width):
    X, y = stream
    model = IncrementalLSSVC(n_components=width, ridge=0.3).fit(X, y)
    assert isinstance(model.statistics_.scatter, ThinScatter if width == THIN else DenseScatter)
    wanted = reference.scores(lift(model, X), y, lift(model, X), ridge=0.3)
    assert reference.error(model.decision_function(X), wanted) < 1e-10


def test_sums_and_coefficients_are_those_of_the_papers_update(stream):
    X, y = stream
    model = IncrementalLSSVC(n_components=DENSE, ridge=2.0)
    for begin in range(0, 120, 17):
        model.partial_fit(X[begin : begin + 17], y[begin : begin + 17])
    gram, cross, total, weights = reference.normal_equations(lift(model, X), y, 2.0, 10.0)
    np.testing.assert_allclose(model.statistics_.gram, gram, rtol=1e-11)
    np.testing.assert_allclose(
        model.statistics_.cross_moment, cross, atol=1e-9 * np.abs(cross).max()
    )
    np.testing.assert_allclose(model.statistics_.feature_sum, total, rtol=1e-12)
    np.testing.assert_allclose(model.coefficients_, weights, atol=1e-9 * np.abs(weights).max())


def test_thin_and_dense_give_the_same_scores(stream, monkeypatch):
    X, y = stream
    thin = IncrementalLSSVC(n_components=THIN, ridge=0.1).fit(X, y)
    monkeypatch.setattr("visvm.head.statistics.THIN_SHARE", 0.0)
    dense = IncrementalLSSVC(n_components=THIN, ridge=0.1).fit(X, y)
    assert isinstance(thin.statistics_.scatter, ThinScatter)
    assert isinstance(dense.statistics_.scatter, DenseScatter)
    assert_same_scores(thin, dense, X)


def test_the_form_changes_by_itself_in_the_middle_of_a_stream(stream):
    X, y = stream
    model = IncrementalLSSVC(n_components=100, ridge=1.0)
    forms = []
    for begin in range(0, 120, 20):
        model.partial_fit(X[begin : begin + 20], y[begin : begin + 20])
        forms.append(type(model.statistics_.scatter).__name__)
        seen = slice(0, begin + 20)
        wanted = reference.scores(lift(model, X[seen]), y[seen], lift(model, X), ridge=1.0)
        got = model.decision_function(X)
        assert reference.error(got, wanted) < 1e-9
    assert forms == ["ThinScatter"] * 3 + ["DenseScatter"] * 3


def test_one_sample_at_a_time_is_one_batch(stream, width):
    X, y = stream
    model = IncrementalLSSVC(n_components=width, ridge=1.0)
    for i in range(100):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    whole = IncrementalLSSVC(n_components=width, ridge=1.0).fit(X[:100], y[:100])
    assert_same_scores(model, whole, X)


def test_one_class_at_a_time_and_a_class_that_comes_back(stream, width):
    X, y = stream
    model = IncrementalLSSVC(n_components=width, ridge=1.0)
    early, late = np.arange(len(y)) < 80, np.arange(len(y)) >= 80
    for label in np.unique(y)[::-1]:
        model.partial_fit(X[early & (y == label)], y[early & (y == label)])
    model.partial_fit(X[late], y[late])
    assert_same_scores(model, IncrementalLSSVC(n_components=width, ridge=1.0).fit(X, y), X)


def test_merging_is_learning_one_after_the_other(stream, width):
    X, y = stream
    first, second = y < "class 3", y > "class 0"  # overlapping, neither has all classes
    a = IncrementalLSSVC(n_components=width, ridge=1.0).fit(X[first], y[first])
    b = IncrementalLSSVC(n_components=width, ridge=50.0).fit(X[second], y[second])
    kept = b.decision_function(X)
    both = copy.deepcopy(a).merge(b)
    assert_same_scores(both, a.partial_fit(X[second], y[second]), X)
    np.testing.assert_array_equal(b.decision_function(X), kept)


@pytest.mark.parametrize(
    "sizes", [(20, 100), (100, 20)], ids=["thin takes dense", "dense takes thin"]
)
def test_merging_two_forms(stream, sizes):
    X, y = stream
    a = IncrementalLSSVC(n_components=100, ridge=1.0).fit(X[: sizes[0]], y[: sizes[0]])
    b = IncrementalLSSVC(n_components=100, ridge=1.0).fit(X[sizes[0] :], y[sizes[0] :])
    assert type(a.statistics_.scatter) is not type(b.statistics_.scatter)
    assert_same_scores(a.merge(b), IncrementalLSSVC(n_components=100, ridge=1.0).fit(X, y), X)


def test_forgetting_is_never_having_learned(stream, width):
    X, y = stream
    gone = np.arange(len(y)) % 3 == 0
    gone |= y == "class 2"  # a whole class goes with them
    model = IncrementalLSSVC(n_components=width, ridge=1.0)
    for begin in range(0, 120, 50):
        model.partial_fit(X[begin : begin + 50], y[begin : begin + 50])
    order = np.random.default_rng(0).permutation(np.flatnonzero(gone))
    model.forget(X[order], y[order])
    never = IncrementalLSSVC(n_components=width, ridge=1.0).fit(X[~gone], y[~gone])
    assert_same_scores(model, never, X)
    model.partial_fit(X[gone], y[gone])
    assert_same_scores(model, IncrementalLSSVC(n_components=width, ridge=1.0).fit(X, y), X)


def test_everything_can_be_forgotten_and_learned_again(stream, width):
    X, y = stream
    model = IncrementalLSSVC(n_components=width, ridge=1.0).fit(X, y)
    before = model.decision_function(X)
    model.forget(X, y)
    assert model.classes_.size == 0
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X, y)
    assert reference.error(model.decision_function(X), before) < 1e-9


def test_weights_count_as_copies_in_every_operation(stream, width):
    X, y = stream
    weight = np.random.default_rng(0).integers(0, 4, len(y))
    repeated = np.repeat(np.arange(len(y)), weight)
    weighted = IncrementalLSSVC(n_components=width, ridge=1.0).fit(X, y, sample_weight=weight)
    copies = IncrementalLSSVC(n_components=width, ridge=1.0).fit(X[repeated], y[repeated])
    assert_same_scores(weighted, copies, X)
    weighted.partial_fit(X, y, sample_weight=np.full(len(y), 0.5)).forget(
        X, y, sample_weight=np.full(len(y), 0.5)
    )
    assert_same_scores(weighted, copies, X)


def test_one_hot_targets_give_the_same_answer_at_the_same_ridge(stream, width):
    X, y = stream
    model = IncrementalLSSVC(n_components=width, ridge=0.5).fit(X, y)
    one_hot = reference.scores(
        lift(model, X), y, lift(model, X), ridge=0.5, coding=reference.one_hot
    )
    assert (model.decision_function(X).argmax(axis=1) == one_hot.argmax(axis=1)).all()
    # they differ by a factor of two and by one function of x shared by all classes
    rest = model.decision_function(X) - 2.0 * one_hot
    assert np.ptp(rest, axis=1).max() < 1e-9


def test_recursive_least_squares_is_ours_at_the_same_ridge(stream):
    X, y = stream
    sessions = np.array_split(np.arange(len(y)), 5)
    model = IncrementalLSSVC(n_components=DENSE, ridge=0.1, svm_cost=1.0)
    for session in sessions:
        model.partial_fit(X[session], y[session])
    phi = lift(model, X)
    acil = reference.augmented(phi) @ reference.recursive_least_squares(phi, y, sessions, ridge=0.1)
    ours = model.decision_function(X)
    assert (acil.argmax(axis=1) == ours.argmax(axis=1)).all()
    centred = [scores - scores.mean(axis=1, keepdims=True) for scores in (ours, 2.0 * acil)]
    assert reference.error(*centred) < 1e-8


def test_only_the_ratio_of_ridge_to_svm_cost_matters(stream):
    X, y = stream
    a = IncrementalLSSVC(n_components=DENSE, ridge=3.0, svm_cost=10.0).fit(X, y)
    b = IncrementalLSSVC(n_components=DENSE, ridge=0.6, svm_cost=2.0).fit(X, y)
    assert_same_scores(a, b, X)
    c = IncrementalLSSVC(n_components=DENSE, ridge=3.0, svm_cost=2.0).fit(X, y)
    assert reference.error(a.decision_function(X), c.decision_function(X)) > 1e-3


def test_no_map_is_the_linear_machine(stream):
    X, y = stream
    model = IncrementalLSSVC(n_components=None, ridge=1.0).fit(X, y)
    assert reference.error(model.decision_function(X), reference.scores(X, y, X, ridge=1.0)) < 1e-10


@pytest.mark.parametrize("labels", [[3, -1, 7], ["b", "a", "a longer name"], [True, False, True]])
def test_labels_may_be_strings_or_numbers_and_classes_stay_sorted(labels):
    X, y = make_stream(n=60, n_classes=3)
    y = np.array(labels)[np.unique(y, return_inverse=True)[1]]
    model = IncrementalLSSVC(n_components=DENSE, ridge=1e-3)
    for label in labels:
        model.partial_fit(X[y == label], y[y == label])
    assert model.classes_.tolist() == sorted(set(labels))
    assert model.predict(X).dtype.kind == np.array(labels).dtype.kind
    assert model.score(X, y) > 0.9


def test_shape_of_scores_follows_the_classes_seen(stream):
    X, y = stream
    model = IncrementalLSSVC(n_components=DENSE, ridge=1.0)
    shapes = []
    for label in np.unique(y):
        model.partial_fit(X[y == label], y[y == label])
        shapes.append(model.decision_function(X).shape)
    assert shapes == [(120, 1), (120,), (120, 3), (120, 4)]


def test_float32_input_is_taken_at_its_value(stream):
    X, y = stream
    narrow = X.astype(np.float32)
    a = IncrementalLSSVC(n_components=THIN, ridge=1e-4).fit(narrow, y)
    b = IncrementalLSSVC(n_components=THIN, ridge=1e-4).fit(narrow.astype(np.float64), y)
    assert_same_scores(a, b, X)


@pytest.mark.parametrize(
    "model",
    [
        IncrementalLSSVC(n_components=THIN),
        VisClassifier(layer_dims=(2, 4), n_components=THIN, hidden=8),
    ],
)
def test_same_seed_same_data_same_bits(stream, model):
    X, y = stream
    results = []
    for _ in range(2):
        twin = copy.deepcopy(model)
        for begin in range(0, 120, 60):
            twin.partial_fit(X[begin : begin + 60], y[begin : begin + 60])
        results.append(twin.coefficients_)
    np.testing.assert_array_equal(*results)
    other = copy.deepcopy(model).set_params(random_state=1).fit(X, y)
    assert reference.error(other.decision_function(X), twin.decision_function(X)) > 1e-6


def test_a_pickle_goes_on_learning(stream):
    X, y = stream
    model = VisClassifier(layer_dims=(2, 4), n_components=THIN, hidden=8).fit(X[:60], y[:60])
    data = pickle.dumps(model)
    # factor and sums, without the random map
    assert len(data) < 60 * THIN * 8 + 60 * 60 * 8 + 3 * THIN * 6 * 8 + 30_000
    twin = pickle.loads(data)
    assert_same_scores(twin.partial_fit(X[60:], y[60:]), model.partial_fit(X[60:], y[60:]), X)


def test_no_row_of_the_factor_belongs_to_one_sample():
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(150, 300)), generator.integers(0, 3, 150)
    model = IncrementalLSSVC(n_components=None, ridge=1.0)
    for begin, end in [(0, 1), (1, 2), (2, 3), (3, 70), (70, 71), (71, 140)] + [
        (i, i + 1) for i in range(140, 150)
    ]:
        model.partial_fit(X[begin:end], y[begin:end])
        seen = X[:end]
        rows = np.concatenate([*model.statistics_.scatter.blocks, np.empty((0, 300))])
        for candidates in (seen, seen - seen.mean(axis=0), np.diff(seen, axis=0, append=seen[:1])):
            if end > 3:  # of two or three samples, any sum tells their differences
                cosine = (rows @ candidates.T) / np.outer(
                    np.linalg.norm(rows, axis=1), np.linalg.norm(candidates, axis=1)
                )
                assert np.abs(cosine).max() < 0.95


def test_many_one_sample_sessions_mix_at_least_as_many_samples_as_a_group():
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(150, 310)), generator.integers(0, 3, 150)
    model = IncrementalLSSVC(n_components=None, ridge=1.0)
    for i in range(150):
        model.partial_fit(X[i : i + 1], y[i : i + 1])
    centred = X - X.mean(axis=0)
    # which samples are in which row
    share = np.concatenate(model.statistics_.scatter.blocks) @ np.linalg.pinv(centred)
    assert np.median((np.abs(share) > 0.02).sum(axis=1)) > 30


def test_ridge_is_raised_with_a_warning_where_float64_cannot_resolve_it():
    generator = np.random.default_rng(0)
    base = generator.normal(size=(40, 3)) * 1e6
    X = np.hstack([base, base @ generator.normal(size=(3, 12))])  # rank 3 of 15, huge
    y = np.arange(40) % 2
    with pytest.warns(IllConditionedWarning, match="1e-12"):
        model = IncrementalLSSVC(n_components=None, ridge=1e-12).fit(X, y)
    assert np.isfinite(model.decision_function(X)).all()


def test_no_warning_for_many_classes_of_few_samples():
    X = np.random.default_rng(0).normal(size=(30, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        IncrementalLSSVC(n_components=20).fit(X, np.arange(30))
