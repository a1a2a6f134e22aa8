"""Bad input gets one clear line, and the estimator is exactly as it was."""

import copy
import pickle
from functools import cache, partial

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from tests.conftest import make_stream
from tests.refusals import refused
from visvm import (
    IncompatibleModelError,
    IncrementalLSSVC,
    InputError,
    MemoryLimitError,
    NeverLearnedError,
    VisClassifier,
)
from visvm.head import memory

X, Y = make_stream()
BAD_X = X.copy()
BAD_X[3, 2] = np.nan
INFINITE_X = X.copy()
INFINITE_X[5, 1] = -np.inf

MODELS = {
    "linear": IncrementalLSSVC(n_components=None, ridge=1.0),
    "thin": IncrementalLSSVC(n_components=400, ridge=1.0),
    "dense": IncrementalLSSVC(n_components=30, ridge=1.0),
    "vis": VisClassifier(layer_dims=(2, 4), n_components=30, ridge=1.0, hidden=8),
}


@cache
def fitted(name):
    return copy.deepcopy(MODELS[name]).fit(X, Y)


@pytest.fixture(params=MODELS)
def model(request):
    return copy.deepcopy(fitted(request.param))


def refuses(model, call, code, kind=InputError, facts=()):
    """The call raises this error, which names these facts, and changes nothing of the model."""
    before, head = pickle.dumps(model.__dict__), model.head_
    with refused(code, kind) as caught:
        call()
    for fact in facts:
        assert fact in str(caught.value)
    assert model.head_ is head
    assert pickle.dumps(model.__dict__) == before


SAMPLES = {
    "nan": (BAD_X, Y, "features-not-finite", ("NaN", "row 3, column 2")),
    "infinity": (INFINITE_X, Y, "features-not-finite", ("infinity", "row 5, column 1")),
    "width": (X[:, :5], Y, "columns-mismatch", ("5 features", "6 features")),
    "empty": (X[:0], Y[:0], "features-invalid", ("0 sample",)),
    "lengths": (X, Y[:-1], "labels-count", ("120", "119")),
    "one-dimensional": (X[0], Y[:1], "features-invalid", ("2D array",)),
    "other kind of label": (X, np.arange(120) % 4, "labels-other-kind", ("strings", "numbers")),
    "two kinds of label": (X, np.array(["a", 1] * 60, dtype=object), "labels-mixed", ()),
    "real-valued label": (X, np.linspace(0, 1, 120), "label-type", ("Unknown label type", "0.0")),
    "no label": (X, None, "labels-missing", ("requires y",)),
    "labels in two columns": (X, np.stack([Y, Y], axis=1), "labels-shape", ("(120, 2)",)),
}


FREE_IN_FIT = ("width", "other kind of label")  # fit starts anew
CASES = [(method, case) for method in ("partial_fit", "fit", "forget") for case in SAMPLES]


@pytest.mark.parametrize(
    ("method", "case"), [pair for pair in CASES if pair[0] != "fit" or pair[1] not in FREE_IN_FIT]
)
def test_samples(model, case, method):
    features, labels, code, facts = SAMPLES[case]
    refuses(model, lambda: getattr(model, method)(features, labels), code, facts=facts)


@pytest.mark.parametrize(
    "weight", [np.ones(119), -np.ones(120), np.zeros(120), np.full(120, np.nan)]
)
@pytest.mark.parametrize("method", ["partial_fit", "forget"])
def test_sample_weight(model, method, weight):
    refuses(model, lambda: getattr(model, method)(X, Y, sample_weight=weight), "weights-invalid")


@pytest.mark.parametrize("case", ["nan", "infinity", "width", "empty"])
def test_predict(model, case):
    features, _, code, facts = SAMPLES[case]
    refuses(model, lambda: model.predict(features), code, facts=facts)


PARAMETERS = [
    ("ridge", 0.0), ("ridge", -1.0), ("ridge", np.nan), ("ridge", "best"), ("ridge", None),
    ("ridge", np.inf),
    ("svm_cost", 0), ("svm_cost", -3.0), ("svm_cost", "high"),
    ("n_components", 0), ("n_components", -5), ("n_components", 2.5), ("n_components", True),
    ("max_selection_samples", 0), ("memory_limit", 0), ("memory_limit", "4GB"),
    ("renew_ridge", "yes"), ("renew_ridge", 1), ("renew_ridge", None),
]  # fmt: skip


def code_of(parameter):
    return "parameter-" + parameter.replace("_", "-")


@pytest.mark.parametrize(("name", "value"), PARAMETERS)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_parameters(model, name, value, method):
    model.set_params(**{name: value})
    refuses(
        model,
        lambda: getattr(model, method)(X, Y),
        code_of(name),
        facts=(f"The {name!r} parameter of {type(model).__name__} must be", f"Got {value!r} inst"),
    )


def test_a_random_state_that_is_none(model):
    model.set_params(random_state=-1)
    refuses(model, lambda: model.fit(X, Y), "parameter-random-state")


VIS_PARAMETERS = [
    ("layers", (3,)), ("layers", (0, 2)), ("layers", (-1,)), ("layers", ()), ("layers", (1, 1)),
    ("layers", "all"), ("layers", 2), ("layers", None),
    ("layer_dims", (3, 0)), ("layer_dims", ()), ("layer_dims", 6), ("layer_dims", (2.0, 4.0)),
    ("hidden", 0), ("epochs", -1), ("optimizer", "newton"), ("optimizer", ["adam"]),
    ("learning_rate", 0.0), ("batch_size", 0), ("identity_weight", -0.1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), VIS_PARAMETERS)
def test_parameters_of_the_mixer(name, value):
    model = copy.deepcopy(MODELS["vis"]).fit(X, Y).set_params(**{name: value})
    refuses(
        model,
        lambda: model.fit(X, Y),
        code_of(name),
        facts=(f"The {name!r} parameter of VisClassifier must be",),
    )


def test_layer_dims_must_add_up():
    model = VisClassifier(layer_dims=(2, 3), n_components=10)
    facts = ("6 columns", "add up to 5")
    refuses(model, lambda: model.fit(X, Y), "columns-mismatch", facts=facts)


def test_a_bad_first_session_leaves_the_estimator_unfitted():
    model = IncrementalLSSVC(n_components=10)
    refuses(model, lambda: model.partial_fit(BAD_X, Y), "features-not-finite")
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(NotFittedError):
        model.forget(X, Y)


def test_classes_are_checked_where_they_are_given(model):
    refuses(
        model,
        lambda: model.partial_fit(X, Y, classes=["class 0"]),
        "class-unannounced",
        facts=("class 1",),
    )
    model.partial_fit(X, Y, classes=np.unique(Y))


def test_forgetting_more_than_was_learned(model):
    twice = np.concatenate([X, X[:1]]), np.concatenate([Y, Y[:1]])
    refuses(
        model,
        lambda: model.forget(*twice),
        "samples-too-many",
        NeverLearnedError,
        facts=(Y[0], "has 30", "31"),
    )
    refuses(
        model,
        lambda: model.forget(X, np.full(120, "class 9")),
        "class-never-learned",
        NeverLearnedError,
        facts=("class 9", "Did you mean 'class "),
    )


def test_forgetting_other_samples_than_were_learned(model):
    others = X + 20.0
    refuses(
        model,
        lambda: model.forget(others[:40], Y[:40]),
        "samples-never-learned",
        NeverLearnedError,
    )


def test_merging_what_does_not_fit(model):
    other_type = VisClassifier if isinstance(model, IncrementalLSSVC) else IncrementalLSSVC
    others = [
        (other_type(n_components=30), "merge-type", ("VisClassifier", "IncrementalLSSVC")),
        (copy.deepcopy(model).set_params(n_components=31), "merge-kernel-map", ()),
    ]
    if model.n_components is not None:
        others.append((copy.deepcopy(model).set_params(random_state=5), "merge-kernel-map", ()))
    for other, code, facts in others:
        other.fit(X, Y)
        if code == "merge-kernel-map":
            facts = [each.kernel_map_.digest[:12] for each in (model, other)]
        for call in (lambda other=other: model.merge(model, other), partial(model.unmerge, other)):
            refuses(model, call, code, IncompatibleModelError, facts)
    with pytest.raises(NotFittedError):
        model.merge(type(model)())


def test_merging_different_mixers():
    model = copy.deepcopy(MODELS["vis"]).fit(X, Y)
    other = copy.deepcopy(MODELS["vis"]).fit(X[:60], Y[:60])
    facts = [each.mixer_.digest[:12] for each in (model, other)]
    refuses(model, lambda: model.merge(other), "merge-mixer", IncompatibleModelError, facts)


def test_merging_other_kinds_of_label(model):
    other = copy.deepcopy(model)
    other.forget(X, Y).partial_fit(X, np.arange(120) % 4)
    refuses(model, lambda: model.merge(other), "labels-other-kind")
    refuses(model, lambda: model.unmerge(other), "labels-other-kind")


def test_merging_two_kinds_of_label_into_a_model_without_classes(model):
    strings, numbers = copy.deepcopy(model), copy.deepcopy(model)
    numbers.forget(X, Y).partial_fit(X, np.arange(120) % 4)
    model.forget(X, Y)
    refuses(model, lambda: model.merge(strings, numbers), "labels-other-kind")


@pytest.mark.parametrize("ridge", [1.0, "auto"])
@pytest.mark.parametrize("width", [None, 30, 800])
def test_features_too_large_to_be_squared(width, ridge):
    model = IncrementalLSSVC(n_components=width, ridge=ridge).fit(X, Y)
    with np.errstate(all="ignore"):
        refuses(model, lambda: model.partial_fit(np.abs(X) * 1e200, Y), "numbers-overflow")
        refuses(model, lambda: model.fit(np.abs(X) * 1e200, Y), "numbers-overflow")


# Memory


def test_a_session_larger_than_the_limit_is_refused_before_it_starts(model, monkeypatch):
    monkeypatch.setattr(
        "visvm.head.statistics.Statistics.add", lambda *_: pytest.fail("work was started")
    )
    model.set_params(memory_limit=10_000)
    facts = ("120 samples", "9.8 KiB", "smaller batches", "memory_limit")
    for call in (lambda: model.partial_fit(X, Y), lambda: model.fit(X, Y)):
        refuses(model, call, "memory-session", MemoryLimitError, facts)


def test_the_default_limit_is_what_the_machine_has_left(monkeypatch):
    assert memory.available_bytes() > 2**20
    monkeypatch.setattr("visvm.head.memory.available_bytes", lambda: 1000)
    model = IncrementalLSSVC(n_components=30)
    refuses(model, lambda: model.fit(X, Y), "memory-session", MemoryLimitError, ("1.0 KiB",))


def test_a_width_no_machine_can_hold_is_refused_at_once():
    model = IncrementalLSSVC(n_components=10**9)
    facts = ("lower n_components",)
    refuses(model, lambda: model.fit(X, Y), "memory-session", MemoryLimitError, facts)


def test_the_estimate_follows_the_form():
    def needed(n_new, n_rows=0, is_dense=False):
        return memory.SessionSizes(
            n_new, n_rows, is_dense, n_classes=100, n_inputs=384, width=15_000
        ).accumulate_bytes()

    square = 8 * 15_000**2
    assert 2.0 * square < needed(1000, is_dense=True) < 2.3 * square
    assert needed(1000, n_rows=7400) < 2.3 * square  # the session that turns thin into dense
    assert needed(500, n_rows=3000) < 3 * 8 * 3500 * 15_000
    assert needed(20_000) < 1.3 * square


@pytest.mark.parametrize("method", ["forget", "merge", "unmerge"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("svm_cost", -1.0), ("svm_cost", "x"), ("ridge", 0.0), ("memory_limit", "4GB")],
)
def test_parameters_are_checked_before_forgetting_and_merging(model, name, value, method):
    arguments = (X[:3], Y[:3]) if method == "forget" else (copy.deepcopy(model),)
    model.set_params(**{name: value})
    refuses(model, lambda: getattr(model, method)(*arguments), code_of(name))


@pytest.mark.parametrize(
    ("ridge", "code"),
    [
        (10**400, "parameter-ridge"),
        (np.complex128(1), "parameter-ridge"),
        (1e308, "numbers-overflow"),
    ],
)
def test_a_ridge_that_float64_cannot_use(ridge, code):
    model = IncrementalLSSVC(n_components=30, svm_cost=1e-10).fit(X, Y).set_params(ridge=ridge)
    with np.errstate(all="ignore"):
        refuses(model, lambda: model.partial_fit(X, Y), code)


@pytest.mark.parametrize(
    ("labels", "code", "facts"),
    [
        (["a", 1] * 60, "labels-mixed", ()),
        (["a", None] * 60, "label-missing", ("sample 1",)),
        (["a", float("nan")] * 60, "label-missing", ("sample 1",)),
        (np.array([0.0, 1.0, np.nan] * 40), "label-missing", ("sample 2",)),
        (np.full(120, 2**63, dtype=np.uint64), "label-too-large", ()),
        (np.full(120, 2.0**53), "label-too-large", ()),
    ],
)
def test_labels_that_cannot_be_told_apart(labels, code, facts):
    model = IncrementalLSSVC(n_components=30, ridge=1.0)
    refuses(model, lambda: model.fit(X, labels), code, facts=facts)


def test_labels_of_other_containers():
    wanted = IncrementalLSSVC(n_components=30, ridge=1.0).fit(X, np.arange(120) % 4)
    for labels in (
        list(np.arange(120) % 4),
        (np.arange(120) % 4).astype(object),
        (np.arange(120) % 4).astype(np.uint64),
    ):
        model = IncrementalLSSVC(n_components=30, ridge=1.0).fit(X, labels)
        assert model.classes_.dtype == np.int64
        np.testing.assert_array_equal(model.predict(X), wanted.predict(X))
