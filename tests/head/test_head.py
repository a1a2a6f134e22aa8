"""The frozen values behind the estimators: ``Lift``, ``Settled`` and ``Head``."""

import copy
from dataclasses import FrozenInstanceError, replace

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
    VisClassifier,
)
from visvm.head import memory
from visvm.head.fusion import MixerOptions
from visvm.head.head import Head, accumulate, scores_of
from visvm.head.lift import KernelMap, Lift
from visvm.head.scatter import DenseScatter, ThinScatter
from visvm.head.settle import HeadOptions, settle

X, Y = make_stream()
FIRST, SECOND = slice(0, 70), slice(70, 120)
FORMS = {"thin": (400, ThinScatter), "dense": (30, DenseScatter)}  # widths for 120 samples
MIXER = MixerOptions(hidden=8)


def options(**given):
    return HeadOptions(**({"layer_dims": (2, 4), "n_components": 60, "mixer": MIXER} | given))


@pytest.fixture(params=FORMS)
def blank(request):
    width, _ = FORMS[request.param]
    return Head.blank(settle(X, Y, options(n_components=width, ridge=0.5)))


def learned(head, rows):
    return head.learned(X[rows], Y[rows]).solved()


# A head never changes


def contents(head):
    """All that a head is, to the last bit."""
    settled = head.settled
    return (
        head.classes.tolist(),
        head.statistics.digest(),
        head.coefficients.tobytes(),
        (settled.lift.digest, settled.ridge, settled.options, settled.ridge_path),
    )


OPERATIONS = {
    "learned": lambda head, other: head.learned(X[SECOND] + 1.0, Y[SECOND]),
    "learned with a new class": lambda head, other: head.learned(X[:3], np.full(3, "a new one")),
    "merged": lambda head, other: head.merged(other),
    "merged twice": lambda head, other: head.merged(other, other),
    "unmerged": lambda head, other: head.unmerged(other),
    "forgotten": lambda head, other: head.forgotten(X[FIRST][:20], Y[FIRST][:20]),
    "renamed": lambda head, other: head.renamed("class 1", "z"),
    "renamed to one that is there": lambda head, other: head.renamed("class 1", "class 2", merge=1),
    "with other options": lambda head, other: head.with_options(options(ridge=7.0)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_operation_changes_a_head(blank, name):
    other = learned(blank, SECOND)
    head = learned(blank, FIRST).merged(other).solved()
    before = contents(head), contents(other), contents(blank)
    result = OPERATIONS[name](head, other).solved()
    assert contents(result) != before[0]
    learned(result, FIRST).forgotten(X[FIRST][:5], Y[FIRST][:5]).solved()  # nor a later one
    assert (contents(head), contents(other), contents(blank)) == before


def test_asking_a_head_changes_nothing(blank):
    head = learned(blank, FIRST)
    before, samples = contents(head), X.copy()
    head.scores(X)
    head.leave_one_out_scores(X[FIRST], Y[FIRST])
    replace(head, settled=replace(head.settled, ridge=1e-9)).leave_one_out_scores(X[:9], Y[:9])
    assert contents(head) == before
    np.testing.assert_array_equal(X, samples)


def test_the_forms_are_the_ones_meant(blank):
    head = learned(blank, slice(None))
    assert isinstance(head.statistics.scatter, dict(FORMS.values())[head.settled.lift.width])
    with pytest.raises(FrozenInstanceError):
        head.sums = None


def test_a_head_without_sums_predicts_and_is_renamed(blank):
    head = learned(blank, FIRST)
    bare = replace(head, sums=None).renamed("class 0", "z")
    assert bare.classes.tolist() == ["class 1", "class 2", "class 3", "z"]
    np.testing.assert_array_equal(bare.scores(X), head.scores(X)[:, [1, 2, 3, 0]])


def test_accumulating_in_place_is_learning(blank):
    sums = blank.statistics.copy()
    for rows in (FIRST, SECOND):
        accumulate(sums, blank.settled, X[rows], Y[rows])
    head = Head.of(blank.settled, sums)
    assert head.coefficients is None
    wanted = learned(blank, FIRST).learned(X[SECOND], Y[SECOND])
    assert head.statistics.digest() == wanted.statistics.digest()
    np.testing.assert_array_equal(
        head.solved().scores(X), scores_of(X, blank.settled.lift, wanted.solved().coefficients)
    )


def test_what_several_sites_need_together_is_counted():
    blank = Head.blank(settle(X, Y, options(n_components=400, ridge=0.5)))  # thin sums, which grow
    sites = [learned(blank, slice(begin, begin + 40)) for begin in (0, 40, 80)]
    sizes = memory.SessionSizes(0, 0, False, n_classes=4, n_inputs=4, width=400)
    alone, together = (replace(sizes, n_new=39, n_rows=rows).peak_bytes() for rows in (0, 80))
    limit = (alone + together) / 2
    limited = blank.with_options(replace(blank.settled.options, memory_limit=limit))
    for site in sites:
        limited.check_merge(site)
    with refused("memory-session", MemoryLimitError):
        limited.merged(*sites)


# What the base session decides


ESTIMATORS = {
    "chosen": (options(), VisClassifier((2, 4), n_components=60, hidden=8)),
    "given": (
        options(layers=(2,), ridge=0.5),
        VisClassifier((2, 4), (2,), n_components=60, ridge=0.5, hidden=8),
    ),
    "not fused": (
        HeadOptions(n_components=60, fused=False, random_state=3),
        IncrementalLSSVC(n_components=60, random_state=3),
    ),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_settle_is_what_the_estimators_first_session_decides(name, weighted):
    given, model = ESTIMATORS[name]
    weight = np.random.default_rng(0).random(len(X)) + 0.5 if weighted else None
    settled = settle(X, Y, given, weight=weight)
    model = copy.deepcopy(model).partial_fit(X, Y, sample_weight=weight)
    theirs = model.head_.settled
    assert settled.lift.digest == theirs.lift.digest
    assert (settled.ridge, settled.layers) == (model.ridge_, theirs.layers)
    assert (settled.ridge_path, settled.layer_path) == (theirs.ridge_path, theirs.layer_path)
    assert settled.seed == model.kernel_map_.seed == given.random_state
    head = Head.blank(settled).learned(X, Y, weight).solved()
    np.testing.assert_array_equal(head.coefficients, model.coefficients_)
    assert copy.deepcopy(model).settle(X, Y, sample_weight=weight).classes_.size == 0


def test_settle_reports_its_progress():
    steps = []
    settle(X, Y, options(), progress=lambda *step: steps.append(step))
    assert {stage for stage, _, _ in steps} == {"choosing λ and blocks"}
    assert [done for _, done, _ in steps] == [0, 1, 2]
    assert {total for _, _, total in steps} == {2}


def test_a_ridge_given_later_takes_the_place_of_the_chosen_one():
    settled = settle(X, Y, options())
    assert settled.with_options(options(ridge=7.0)).ridge == 7.0
    later = settled.with_options(options(svm_cost=3.0))
    assert (later.ridge, later.options.svm_cost, later.lift) == (settled.ridge, 3.0, settled.lift)


# The lift


def test_the_digest_tells_lifts_apart_and_not_copies():
    mixer = settle(X, Y, options(ridge=0.5)).lift.mixer
    other_weights = copy.deepcopy(mixer)
    other_weights.weights.u[0, 0] += 1e-9
    other_layers = copy.deepcopy(mixer)
    other_layers.layers = mixer.layers[::-1] if len(mixer.layers) > 1 else (1,)
    lifts = [
        Lift(mixer, KernelMap(4, 60, seed=0)),
        Lift(mixer, KernelMap(4, 60, seed=1)),
        Lift(mixer, KernelMap(4, 61, seed=0)),
        Lift(mixer, KernelMap(4, None, seed=0)),
        Lift(other_weights, KernelMap(4, 60, seed=0)),
        Lift(other_layers, KernelMap(4, 60, seed=0)),
        Lift(None, KernelMap(4, 60, seed=0)),
    ]
    assert len({lift.digest for lift in lifts}) == len(lifts)
    for place, lift in enumerate(lifts):
        twin = copy.deepcopy(lift)
        assert twin.digest == lift.digest
        lift.require_same(twin)
        if place:
            code = "merge-kernel-map" if place < 4 else "merge-mixer"
            with refused(code, IncompatibleModelError):
                lifts[0].require_same(lift)


def test_a_lift_is_the_map_behind_the_mixer():
    lift = settle(X, Y, options(ridge=0.5)).lift
    np.testing.assert_array_equal(lift(X), lift.kernel_map.lift(lift.mixer.fuse(X)))
    assert (lift.n_inputs, lift.width) == (6, 60)
    plain = Lift(None, lift.kernel_map)
    np.testing.assert_array_equal(plain(X[:, 2:]), lift.kernel_map.lift(X[:, 2:]))
    assert plain.n_inputs == 4


# The shells


def test_a_shell_around_a_head_is_the_estimator_that_learned_it():
    model = VisClassifier((2, 4), n_components=60, hidden=8, epochs=2).fit(X[FIRST], Y[FIRST])
    shell = VisClassifier.of(model.head_.settled.options, model.head_)
    assert shell.get_params() == model.get_params()
    assert shell.head_ is model.head_
    for each in (shell, model):
        each.partial_fit(X[SECOND], Y[SECOND])
    np.testing.assert_array_equal(shell.coefficients_, model.coefficients_)
    with refused("columns-mismatch"):
        shell.predict(X[:, :5])
    with pytest.raises(NotFittedError):
        VisClassifier.of(options(), None).predict(X)


def fail(*_, **__):
    raise RuntimeError


CHANGES = {
    "fit": lambda model, other: model.fit(X[:, 1:], Y),
    "partial_fit": lambda model, other: model.partial_fit(X, Y),
    "settle": lambda model, other: model.settle(X[:, 1:], Y),
    "merge": lambda model, other: model.merge(other),
    "unmerge": lambda model, other: model.unmerge(other),
    "forget": lambda model, other: model.forget(X[:5], Y[:5]),
    "rename_class": lambda model, other: model.rename_class("class 0", "class 1", merge=True),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("width", [400, 30])
def test_a_change_that_fails_at_its_very_end_leaves_the_same_head(monkeypatch, name, width):
    model = IncrementalLSSVC(n_components=width, ridge=1.0).fit(X, Y)
    other = IncrementalLSSVC(n_components=width, ridge=1.0).fit(X[:40], Y[:40])
    head, before = model.head_, contents(model.head_)
    monkeypatch.setattr("visvm.head.head.Head.solved", fail)
    with pytest.raises(RuntimeError):
        CHANGES[name](model, other)
    assert model.head_ is head
    assert contents(head) == before
    assert model.n_features_in_ == X.shape[1]


@pytest.mark.parametrize("name", ["statistics_", "classes_", "coefficients_", "ridge_"])
def test_what_was_learned_cannot_be_written_to(name):
    model = IncrementalLSSVC(n_components=30, ridge=1.0).fit(X, Y)
    with pytest.raises(AttributeError):
        setattr(model, name, None)


def test_a_class_renamed_to_itself_keeps_coefficients_and_ridge_together(stream):
    model = IncrementalLSSVC(n_components=30, ridge=1.0).fit(*stream)
    before = model.head_
    model.set_params(ridge=100.0).rename_class("class 0", "class 0", merge=True)
    assert model.ridge_ == before.settled.ridge == 1.0


def test_three_steps_are_one_fit(stream):
    X, y = stream
    whole = IncrementalLSSVC(n_components=30).fit(X, y)
    stepwise = IncrementalLSSVC(n_components=30).settle(X, y)
    stepwise.accumulate(X[:50], y[:50])
    assert stepwise.classes_.size == 0
    stepwise.accumulate(X[50:], y[50:]).solve()
    np.testing.assert_allclose(stepwise.decision_function(X), whole.decision_function(X), atol=1e-9)


def test_labels_of_the_other_kind_cannot_be_forgotten(stream):
    head = IncrementalLSSVC(n_components=30, ridge=1.0).fit(*stream).head_
    with refused("labels-other-kind", InputError):
        head.forgotten(stream[0], np.arange(120) % 4)


def test_the_arrays_of_a_head_cannot_be_written_to(stream):
    model = IncrementalLSSVC(n_components=30, ridge=1.0).fit(*stream)
    for array in (model.classes_, model.coefficients_):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]
