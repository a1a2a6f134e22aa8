"""Scores of samples as if they had not been learned, their probabilities, and renamed classes."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.exceptions import NotFittedError

from tests import reference
from tests.conftest import make_stream
from tests.refusals import refused
from visvm import IncrementalLSSVC, InputError, NeverLearnedError, VisClassifier
from visvm.head.calibration import (
    INVERSE_TEMPERATURES,
    inverse_temperature,
    log_likelihoods,
    probabilities,
)
from visvm.head.head import Head
from visvm.head.scatter import DenseScatter, ThinScatter

FORMS = {"thin": (150, ThinScatter), "dense": (20, DenseScatter)}  # widths for up to 100 samples


@pytest.fixture
def stream():
    return make_stream(n=60)


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


# Leaving one out


def left_out(phi, y, ridge, svm_cost):
    """Brute force: one model for every sample, learned from all others."""
    signs = reference.signs(y, sorted(set(y.tolist())))
    rows = []
    for place in range(len(y)):
        others = np.arange(len(y)) != place
        weights = reference.coefficients(phi[others], signs[others], ridge, svm_cost)
        rows.append(reference.augmented(phi[[place]]) @ weights)
    return np.concatenate(rows)


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=20)
@given(
    n=st.integers(2, 30),
    n_classes=st.integers(1, 5),
    mean=st.sampled_from([0.0, 1.0, 20.0]),
    ridge=st.floats(-1.5, 4).map(lambda power: 10.0**power),
    svm_cost=st.sampled_from([1.0, 10.0]),
    seed=st.integers(0, 1000),
)
def test_leaving_one_out_is_learning_without_it(name, n, n_classes, mean, ridge, svm_cost, seed):
    width = 80 if name == "thin" else 12
    n += 0 if name == "thin" else 10
    X, y = make_stream(n=n, n_classes=n_classes, mean=mean, seed=seed)
    model = IncrementalLSSVC(n_components=width, ridge=ridge, svm_cost=svm_cost).fit(X, y)
    assert isinstance(model.statistics_.scatter, FORMS[name][1])
    phi = reference.relu_map(X, model.kernel_map_.matrix)
    wanted = left_out(phi, y, ridge, svm_cost)
    assert reference.error(model.leave_one_out_scores(X, y), wanted) < 1e-5


@pytest.mark.parametrize("ridge", [1e-6, 1e-4])
def test_leaving_one_out_at_a_small_ridge(ridge):
    X, y = make_stream(n=40, d=12)
    model = IncrementalLSSVC(n_components=1000, ridge=ridge).fit(X, y)
    wanted = left_out(reference.relu_map(X, model.kernel_map_.matrix), y, ridge, 10.0)
    assert reference.error(model.leave_one_out_scores(X, y), wanted) < 1e-3


def test_leaving_one_out_after_several_sessions_and_for_some_samples(stream, form):
    X, y = stream
    model = IncrementalLSSVC(n_components=form[0], ridge=0.7)
    for begin in range(0, 60, 20):
        model.partial_fit(X[begin : begin + 20], y[begin : begin + 20])
    wanted = left_out(reference.relu_map(X, model.kernel_map_.matrix), y, 0.7, 10.0)
    chosen = np.array([50, 3, 27])
    assert reference.error(model.leave_one_out_scores(X[chosen], y[chosen]), wanted[chosen]) < 1e-8


def test_a_sample_left_out_scores_as_one_that_was_forgotten(form):
    X, y = make_stream(n=60)
    model = VisClassifier(layer_dims=(2, 4), n_components=form[0], ridge=0.3, hidden=8).fit(X, y)
    forgetful = copy.deepcopy(model).forget(X[:1], y[:1])
    assert (
        reference.error(
            model.leave_one_out_scores(X[:1], y[:1]), forgetful.decision_function(X[:1])
        )
        < 1e-6
    )
    # it does make a difference
    assert (
        reference.error(model.decision_function(X[:1]), forgetful.decision_function(X[:1])) > 1e-3
    )


def test_leaving_out_changes_nothing(stream, form):
    X, y = stream
    model = IncrementalLSSVC(n_components=form[0], ridge=0.7).fit(X, y)
    before, samples = pickle.dumps(model), X.copy()
    model.leave_one_out_scores(X, y)
    np.testing.assert_array_equal(X, samples)
    np.testing.assert_array_equal(pickle.loads(before).coefficients_, model.coefficients_)


def test_what_was_not_learned_cannot_be_left_out(stream):
    X, y = stream
    model = IncrementalLSSVC(n_components=20, ridge=1.0)
    with pytest.raises(NotFittedError):
        model.leave_one_out_scores(X, y)
    model.fit(X, y)
    with refused("class-never-learned", NeverLearnedError) as caught:
        model.leave_one_out_scores(X[:1], ["class 9"])
    assert "class 9" in str(caught.value)
    with refused("samples-too-many", NeverLearnedError):
        model.leave_one_out_scores(np.concatenate([X, X]), np.concatenate([y, y]))


# Probabilities


def drawn(n, n_classes, sharpness, seed):
    """Scores, and labels drawn from softmax(sharpness · scores)."""
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(n, n_classes))
    chances = softmax(sharpness * scores, axis=1).cumsum(axis=1)
    return scores, np.minimum((generator.random((n, 1)) > chances).sum(axis=1), n_classes - 1)


@pytest.mark.parametrize("sharpness", [0.5, 1.5, 6.0])
@pytest.mark.parametrize("n_classes", [2, 10])
def test_probabilities_of_held_out_samples_are_right(sharpness, n_classes):
    sums = log_likelihoods(*drawn(4000, n_classes, sharpness, seed=1))
    assert 0.75 < inverse_temperature(sums) / sharpness < 1.33
    scores, targets = drawn(8000, n_classes, sharpness, seed=2)
    chances = probabilities(scores, sums)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(chances.argmax(axis=1), scores.argmax(axis=1))
    claimed, right = chances.max(axis=1), chances.argmax(axis=1) == targets
    assert abs(claimed.mean() - right.mean()) < 0.03
    sure = claimed > np.median(claimed)  # and not only on average over all
    assert abs(claimed[sure].mean() - right[sure].mean()) < 0.04
    assert abs(claimed[~sure].mean() - right[~sure].mean()) < 0.04


def test_probabilities_of_a_models_own_held_out_samples_are_right():
    X, y = make_stream(n=1200, d=4, n_classes=4, seed=5)
    X += np.random.default_rng(0).normal(scale=2.0, size=X.shape)  # classes that overlap
    model = IncrementalLSSVC(n_components=300, ridge=1.0).fit(X[:200], y[:200])
    targets, unseen = np.searchsorted(model.classes_, y[:200]), model.decision_function(X[200:])
    accuracy = (model.predict(X[200:]) == y[200:]).mean()
    honest = probabilities(
        unseen, log_likelihoods(model.leave_one_out_scores(X[:200], y[:200]), targets)
    )
    assert abs(honest.max(axis=1).mean() - accuracy) < 0.06
    naive = probabilities(unseen, log_likelihoods(model.decision_function(X[:200]), targets))
    # what comes of measuring on samples that were learned
    assert naive.max(axis=1).mean() > accuracy + 0.1


def test_sums_of_sessions_add_up_but_for_the_doubt():
    scores, targets = drawn(600, 5, 3.0, seed=0)
    whole = log_likelihoods(scores, targets)
    parts = log_likelihoods(scores[:200], targets[:200]) + log_likelihoods(
        scores[200:], targets[200:]
    )
    assert whole.shape == (len(INVERSE_TEMPERATURES),)
    # A session of n samples doubts each by 1/(n + 2): one sample's worth in every session, however
    # many there are.
    np.testing.assert_allclose(parts, whole, rtol=0.05)
    # a step of the grid
    assert inverse_temperature(parts) == pytest.approx(inverse_temperature(whole), rel=0.13)


@pytest.mark.parametrize("n_components", [300, 60])  # thin sums, and dense ones
@pytest.mark.parametrize("n_sessions", [0, 1, 4])
def test_what_is_left_of_a_merged_model_is_taken_out(stream, n_components, n_sessions):
    X, y = stream
    thirds = np.array_split(np.arange(len(y)), 3)
    model, site, never = (
        IncrementalLSSVC(n_components=n_components, ridge=1.0).fit(X[rows], y[rows])
        for rows in thirds
    )
    before = model.likelihoods_
    model.merge(never).unmerge(copy.deepcopy(never))
    np.testing.assert_allclose(model.likelihoods_, before)
    model.merge(site)
    left = 1.0
    for _ in range(n_sessions):
        noted = model.likelihoods_
        model.partial_fit(X[thirds[2]], y[thirds[2]])
        left *= 1.0 if model.likelihoods_ is noted else 0.5
    merged = model.likelihoods_
    model = pickle.loads(pickle.dumps(model)).unmerge(site)
    np.testing.assert_allclose(model.likelihoods_, merged - left * site.likelihoods_)
    assert model.likelihoods_.max() < 0.0
    assert left == (0.5**n_sessions if n_components == 300 else 1.0)


def test_likelihoods_by_hand():
    scores, targets = np.array([[1.0, -1.0, 0.0], [0.5, 0.0, 0.2]]), np.array([0, 2])
    got = log_likelihoods(scores, targets)
    for place in (0, 20, 48):
        chances = softmax(INVERSE_TEMPERATURES[place] * scores, axis=1)
        wanted = 0.0
        for row, target in enumerate(targets):
            for column in range(3):
                # 1/(n + 2) = 1/4 of the label is spread over all
                share = 0.75 * (column == target) + 0.25 / 3
                wanted += share * np.log(chances[row, column])
        assert got[place] == pytest.approx(wanted)


def test_a_few_samples_that_are_all_right_do_not_make_sure():
    sums = log_likelihoods(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.array([0, 1]))
    assert probabilities(np.array([[1.0, -1.0]]), sums).max() < 0.95
    many = log_likelihoods(np.tile([[1.0, -1.0], [-1.0, 1.0]], (500, 1)), np.tile([0, 1], 500))
    assert probabilities(np.array([[1.0, -1.0]]), many).max() > 0.99


def test_guessing_makes_unsure():
    generator = np.random.default_rng(0)
    sums = log_likelihoods(generator.normal(size=(500, 4)), generator.integers(0, 4, 500))
    assert probabilities(np.array([[1.0, 0.0, 0.0, 0.0]]), sums).max() < 0.35


def test_one_class_is_certain():
    sums = log_likelihoods(np.array([[0.7], [0.2]]), np.array([0, 0]))
    np.testing.assert_array_equal(probabilities(np.array([[-3.0]]), sums), [[1.0]])


# Other names


@pytest.fixture(params=[*FORMS, "vis"])
def fitted(request, stream):
    if request.param == "vis":
        return VisClassifier(layer_dims=(2, 4), n_components=150, ridge=0.5, hidden=8).fit(*stream)
    return IncrementalLSSVC(n_components=FORMS[request.param][0], ridge=0.5).fit(*stream)


@pytest.mark.parametrize(
    ("new", "place"),
    [("a first", 0), ("class 15", 1), ("z last", 3), ("a much longer name than before", 0)],
)
def test_a_renamed_class_keeps_what_it_has_learned(fitted, stream, new, place):
    X, _ = stream
    before, predicted = fitted.decision_function(X), fitted.predict(X)
    assert fitted.rename_class("class 1", new) is fitted
    assert fitted.classes_.tolist() == sorted(["class 0", new, "class 2", "class 3"])
    assert fitted.classes_.tolist().index(new) == place
    order = np.argsort(["class 0", new, "class 2", "class 3"])
    np.testing.assert_array_equal(fitted.decision_function(X), before[:, order])
    assert fitted.predict(X).tolist() == [
        new if label == "class 1" else label for label in predicted.tolist()
    ]
    assert fitted.statistics_.classes.tolist() == fitted.classes_.tolist()


@pytest.mark.parametrize("new", ["a first", "class 15", "z last"])
def test_learning_goes_on_as_if_it_had_always_had_that_name(fitted, stream, new):
    X, y = stream
    more, labels = make_stream(n=40, n_classes=6, seed=3)
    renamed = np.array([new if label == "class 1" else label for label in y.tolist()])
    renamed_labels = np.array([new if label == "class 1" else label for label in labels.tolist()])
    always = copy.deepcopy(fitted).fit(X, renamed)
    if isinstance(fitted, VisClassifier):  # the mixer's training sees the order of the classes
        always.head_ = Head.blank(fitted.head_.settled)
        always.partial_fit(X, renamed)
    fitted.rename_class("class 1", new).partial_fit(more, renamed_labels)
    always.partial_fit(more, renamed_labels)
    assert fitted.classes_.tolist() == always.classes_.tolist()
    assert reference.error(fitted.decision_function(X), always.decision_function(X)) < 1e-8
    np.testing.assert_allclose(
        fitted.statistics_.class_sums, always.statistics_.class_sums, rtol=1e-9, atol=1e-9
    )
    assert (
        reference.error(
            fitted.leave_one_out_scores(more, renamed_labels),
            always.leave_one_out_scores(more, renamed_labels),
        )
        < 1e-7
    )
    fitted.forget(more, renamed_labels)
    always.forget(more, renamed_labels)
    assert reference.error(fitted.decision_function(X), always.decision_function(X)) < 1e-6


def test_renaming_there_and_back_changes_nothing(fitted, stream):
    before, names = fitted.decision_function(stream[0]), fitted.classes_.tolist()
    fitted.rename_class("class 1", "z").rename_class("z", "class 1")
    assert fitted.classes_.tolist() == names
    np.testing.assert_array_equal(fitted.decision_function(stream[0]), before)


@pytest.mark.parametrize(("old", "new"), [("class 1", "class 3"), ("class 3", "class 0")])
def test_classes_put_together_are_as_if_learned_under_one_label(fitted, stream, old, new):
    X, y = stream
    more, labels = make_stream(n=40, n_classes=6, seed=3)
    joined, joined_labels = (
        np.array([new if label == old else label for label in given.tolist()])
        for given in (y, labels)
    )
    always = copy.deepcopy(fitted)
    always.head_ = Head.blank(fitted.head_.settled)
    always.partial_fit(X, joined)
    assert fitted.rename_class(old, new, merge=True).classes_.tolist() == always.classes_.tolist()
    assert reference.error(fitted.decision_function(X), always.decision_function(X)) < 1e-8
    for model in (fitted, always):
        model.partial_fit(more, joined_labels).forget(X[:20], joined[:20])
    assert fitted.statistics_.class_counts.tolist() == always.statistics_.class_counts.tolist()
    assert reference.error(fitted.decision_function(X), always.decision_function(X)) < 1e-7


def test_merging_a_class_with_a_new_name_is_renaming_it(fitted, stream):
    before = copy.deepcopy(fitted).rename_class("class 1", "z").decision_function(stream[0])
    np.testing.assert_array_equal(
        fitted.rename_class("class 1", "z", merge=True).decision_function(stream[0]), before
    )


def test_numbers_are_renamed_as_numbers(stream):
    X, y = stream
    model = IncrementalLSSVC(n_components=20, ridge=1.0).fit(X, [int(label[-1]) for label in y])
    model.rename_class(0, 7)
    assert model.classes_.tolist() == [1, 2, 3, 7]
    assert (model.predict(X) == [int(label[-1]) or 7 for label in y]).mean() > 0.9


@pytest.mark.parametrize(
    ("old", "new", "code", "fact"),
    [
        ("class 9", "z", "class-unknown", "class 9"),
        ("class 1", "class 2", "class-exists", "class 2"),
        ("class 1", "class 1", "class-exists", "class 1"),
        ("class 1", 5, "labels-other-kind", "strings"),
        ("class 1", None, "label-missing", "None"),
        (1, "z", "class-unknown", "1"),
    ],
)
def test_a_rename_that_cannot_be_is_refused_and_changes_nothing(
    fitted, stream, old, new, code, fact
):
    before, names = fitted.decision_function(stream[0]), fitted.classes_.tolist()
    with refused(code, InputError) as caught:
        fitted.rename_class(old, new)
    assert fact in str(caught.value)
    assert fitted.classes_.tolist() == names
    np.testing.assert_array_equal(fitted.decision_function(stream[0]), before)


def test_the_only_class_keeps_its_kind():
    model = IncrementalLSSVC(n_components=20, ridge=1.0).fit(np.eye(3), ["a", "a", "a"])
    with refused("labels-other-kind", InputError):
        model.rename_class("a", 3)


def test_a_copy_is_renamed_by_itself(fitted):
    twin = copy.copy(fitted).rename_class("class 1", "z")
    assert "class 1" in fitted.classes_.tolist()
    assert "class 1" in fitted.statistics_.classes.tolist()
    assert "class 1" not in twin.classes_.tolist()


def test_renaming_solves_for_a_new_ridge_only_where_classes_become_one(fitted, stream):
    before = fitted.decision_function(stream[0])
    fitted.set_params(ridge=50.0).rename_class("class 1", "z")
    assert fitted.ridge_ == 0.5  # which the coefficients belong to
    np.testing.assert_array_equal(fitted.decision_function(stream[0])[:, -1], before[:, 1])
    assert fitted.rename_class("z", "class 2", merge=True).ridge_ == 50.0


@pytest.mark.parametrize("new", [7, np.uint64(7), 7.0])
def test_a_number_of_any_type_may_be_the_new_name(stream, new):
    model = IncrementalLSSVC(n_components=20, ridge=1.0).fit(stream[0], np.arange(60) % 3)
    assert model.rename_class(0, new).classes_.tolist() == [1, 2, 7]


def test_what_has_learned_nothing_has_nothing_to_rename():
    with pytest.raises(NotFittedError):
        IncrementalLSSVC().rename_class("a", "b")
