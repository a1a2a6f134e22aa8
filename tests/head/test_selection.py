"""The base session's choices, against candidates solved one by one with ``tests/reference.py``."""

import numpy as np
import pytest

from tests import reference
from tests.conftest import make_stream
from visvm import IncrementalLSSVC, VisClassifier
from visvm.head.selection import (
    RIDGE_CANDIDATES,
    LayerTrial,
    best_layers,
    layer_candidates,
    search_ridge,
    split_base_session,
)


def indices(y):
    return np.unique(y, return_inverse=True)[1].astype(np.intp)


def search(phi, y, weight=None, split=None, **options):
    weight = np.ones(len(y)) if weight is None else weight
    split = split_base_session(indices(y), None, 0) if split is None else split
    return split, *search_ridge(
        lambda chosen: phi[chosen].copy(), indices(y), weight, split, svm_cost=10.0, **options
    )


def held_out_error(phi, y, train, test, ridge, weight=None):
    weight = np.ones(len(y)) if weight is None else weight
    wanted = reference.signs(y[test], sorted(set(y)))
    scores = reference.augmented(phi[test]) @ reference.coefficients(
        phi[train], reference.signs(y[train], sorted(set(y))), ridge, 10.0, weight[train]
    )
    share = weight[test] / weight[test].sum()
    correct = scores.argmax(axis=1) == wanted.argmax(axis=1)
    return float(share @ ((scores - wanted) ** 2).mean(axis=1)), float(share @ correct)


@pytest.mark.parametrize("width", [20, 300], ids=["more samples than features", "fewer"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_path_is_as_many_separate_solves(width, weighted):
    X, y = make_stream(mean=3.0)
    phi = reference.relu_map(X, np.random.default_rng(0).normal(size=(6, width)))
    weight = np.random.default_rng(1).random(len(y)) + 0.2 if weighted else None
    split, best, trials = search(phi, y, weight, beyond=False)
    assert tuple(trial.ridge for trial in trials) == RIDGE_CANDIDATES
    for trial in trials:
        mse, accuracy = held_out_error(phi, y, split.train, split.held_out, trial.ridge, weight)
        assert trial.mse == pytest.approx(mse, rel=1e-6)
        assert trial.accuracy == pytest.approx(accuracy, abs=1e-9)
    least = min(trial.mse for trial in trials)
    assert best.ridge == max(trial.ridge for trial in trials if trial.mse <= 1.02 * least)


@pytest.mark.parametrize("width", [20, 300], ids=["more samples than features", "fewer"])
@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out_is_leaving_each_one_out(width, weighted):
    X, y = make_stream(n=40)
    y[y == "class 3"] = "class 2"
    y[:4] = "class 3"  # too few to split
    phi = reference.relu_map(X, np.random.default_rng(0).normal(size=(6, width)))
    weight = np.random.default_rng(1).random(len(y)) + 0.2 if weighted else np.ones(len(y))
    split, _, trials = search(phi, y, weight, beyond=False)
    assert split.held_out is None
    for trial in trials[::3]:
        errors = [
            held_out_error(phi, y, np.arange(len(y)) != i, [i], trial.ridge, weight)
            for i in range(len(y))
        ]
        mse, accuracy = np.average(errors, axis=0, weights=weight)
        assert trial.mse == pytest.approx(mse, rel=1e-6)
        assert trial.accuracy == pytest.approx(accuracy, abs=1e-9)


def test_one_class_is_judged_by_leaving_one_out():
    X, _ = make_stream(n=30)
    model = IncrementalLSSVC(n_components=50).fit(X, np.zeros(30, dtype=int))
    assert len(model.ridge_path_) >= 16
    assert (model.predict(X) == 0).all()
    model = IncrementalLSSVC(n_components=50).fit(X[:1], [7])  # one sample of one class
    assert model.predict(X).tolist() == [7] * 30


@pytest.mark.parametrize(("scale", "edge"), [(50.0, "last"), (1e-5, "first")])
def test_the_search_goes_on_beyond_the_edge(scale, edge):
    X, y = make_stream()
    phi = scale * reference.relu_map(X, np.random.default_rng(0).normal(size=(6, 60)))
    _, best, trials = search(phi, y)
    ridges = [trial.ridge for trial in trials]
    assert ridges == sorted(ridges)
    assert set(RIDGE_CANDIDATES) < set(ridges)
    assert best.ridge > 1e4 if edge == "last" else best.ridge < 1e-6
    assert best.mse < min(trial.mse for trial in trials if trial.ridge in RIDGE_CANDIDATES)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("scale", [1e-3, 1e2, 1e3])
def test_no_scale_of_the_features_leaves_the_search_on_a_plateau(scale, seed):
    X, y = make_stream(seed=seed)
    phi = scale * reference.relu_map(X, np.random.default_rng(seed).normal(size=(6, 60)))
    split, best, _ = search(phi, y)
    wide = [
        held_out_error(phi, y, split.train, split.held_out, 10.0**power)[0]
        for power in range(-12, 14)
    ]
    assert best.mse < 1.2 * min(wide)


def test_a_ridge_that_float64_cannot_resolve_is_not_chosen():
    generator = np.random.default_rng(0)
    base = generator.normal(size=(60, 3)) * 1e4
    phi = np.hstack([base, base @ generator.normal(size=(3, 30))])  # rank 3
    y = (base[:, 0] > 0).astype(int)
    _, best, trials = search(phi, y)
    assert best.ridge / 10.0 > 1e6 * np.finfo(float).eps * 60 * 1e8
    assert trials[0].ridge == 1e-6  # tried and listed all the same


def test_the_chosen_ridge_stays_for_later_sessions_and_a_given_one_is_used_as_it_is():
    X, y = make_stream()
    model = IncrementalLSSVC(n_components=50).partial_fit(X[:60], y[:60])
    chosen, path = model.ridge_, model.ridge_path_
    assert chosen == min(path, key=lambda trial: trial.mse).ridge
    model.partial_fit(X[60:] * 3, y[60:])
    assert model.ridge_ == chosen
    assert model.ridge_path_ == path
    given = IncrementalLSSVC(n_components=50, ridge=0.123).fit(X, y)
    assert (given.ridge_, given.ridge_path_) == (0.123, [])


def test_the_split_is_four_to_one_in_every_class():
    y = np.repeat([0, 1, 2], [50, 23, 5]).astype(np.intp)
    split = split_base_session(y, None, seed=0)
    assert np.bincount(y[split.held_out]).tolist() == [10, 4, 1]
    assert sorted([*split.train, *split.held_out]) == list(range(78))
    assert (split_base_session(y, None, seed=1).held_out != split.held_out).any()


def test_the_split_looks_at_no_more_than_the_limit_but_at_five_of_each_class():
    y = np.repeat([0, 1, 2], [8000, 2000, 6]).astype(np.intp)
    split = split_base_session(y, 1000, seed=0)
    counts = np.bincount(y[np.concatenate([split.train, split.held_out])])
    assert counts.tolist() == [800, 200, 5]
    X, labels = make_stream(n=400)
    limited, full = (
        IncrementalLSSVC(n_components=50, max_selection_samples=limit).fit(X, labels)
        for limit in (60, None)
    )
    assert limited.ridge_path_ != full.ridge_path_


@pytest.mark.parametrize("counts", [[40], [40, 4]])
def test_too_small_to_split(counts):
    assert (
        split_base_session(np.repeat(np.arange(len(counts)), counts), None, seed=0).held_out is None
    )


# Layers


def test_candidates_for_twelve_layers():
    assert layer_candidates(12) == [
        (12,),
        (11, 12),
        (3, 6, 9, 12),
        (6, 8, 10, 12),
        (9, 10, 11, 12),
        (2, 4, 6, 8, 10, 12),
        tuple(range(1, 13)),
    ]
    assert layer_candidates(1) == [(1,)]
    assert all(layers[-1] == 24 for layers in layer_candidates(24))


def test_highest_accuracy_wins_then_least_error_then_fewest_layers():
    a, b, c = (
        LayerTrial((2,), 1.0, 0.5, 0.9),
        LayerTrial((1, 2), 1.0, 0.4, 0.9),
        LayerTrial((3,), 1.0, 0.3, 0.8),
    )
    assert best_layers([a, b, c]) is b
    assert best_layers([a, a._replace(layers=(1, 2))]) is a


def layered_stream(informative, n=150):
    """Three layers of width 4, of which only one tells the classes apart."""
    generator = np.random.default_rng(0)
    y = generator.permutation(np.arange(n) % 3)
    X = generator.normal(size=(n, 12))
    X[:, 4 * informative - 4 : 4 * informative] += 3 * np.eye(4)[y]
    return X, y


def test_layers_are_chosen_where_the_information_is():
    X, y = layered_stream(informative=2)
    model = VisClassifier(
        layer_dims=(4, 4, 4), n_components=200, learning_rate=0.1, epochs=40, hidden=16
    ).fit(X, y)
    assert [trial.layers for trial in model.layer_path_] == layer_candidates(3)
    assert 2 in model.layers_
    assert model.layers_ == best_layers(model.layer_path_).layers
    assert model.ridge_ == best_layers(model.layer_path_).ridge
    assert model.mixer_.layers == model.layers_


def test_given_layers_are_used_as_given():
    X, y = layered_stream(informative=2)
    model = VisClassifier(layer_dims=(4, 4, 4), layers=(3, 1), n_components=50, hidden=8).fit(X, y)
    assert (model.layers_, model.mixer_.layers, model.layer_path_) == ((3, 1), (3, 1), [])
    assert len(model.ridge_path_) >= 16


def test_layers_can_be_chosen_for_a_given_ridge():
    X, y = layered_stream(informative=3)
    model = VisClassifier(layer_dims=(4, 4, 4), ridge=7.0, n_components=50, hidden=8).fit(X, y)
    assert {trial.ridge for trial in model.layer_path_} == {7.0}
    assert (model.ridge_, model.ridge_path_) == (7.0, [])


def test_one_base_class_leaves_the_mixer_the_identity():
    X, y = layered_stream(informative=3)
    model = VisClassifier(layer_dims=(4, 4, 4), n_components=50).partial_fit(X[y == 0], y[y == 0])
    assert model.mixer_.is_identity
    model.partial_fit(X[y > 0], y[y > 0])
    assert model.mixer_.is_identity
    plain = IncrementalLSSVC(n_components=50, ridge=model.ridge_).fit(X[:, 8:], y)
    assert reference.error(model.decision_function(X), plain.decision_function(X[:, 8:])) < 1e-8


def test_a_base_session_too_small_to_split_still_chooses_layers():
    X, y = layered_stream(informative=3, n=12)
    model = VisClassifier(layer_dims=(4, 4, 4), n_components=50, hidden=8).fit(X, y)
    assert len(model.layer_path_) == len(layer_candidates(3))


def test_the_mixer_is_trained_once_on_all_base_data():
    X, y = layered_stream(informative=3)
    options = {"layer_dims": (4, 4, 4), "n_components": 50, "hidden": 8}
    model = VisClassifier(**options).partial_fit(X[:100], y[:100])
    given = VisClassifier(layers=model.layers_, ridge=model.ridge_, **options).partial_fit(
        X[:100], y[:100]
    )
    assert given.mixer_.digest == model.mixer_.digest  # no split left its mark on it
    model.partial_fit(X[100:], y[100:])
    assert given.mixer_.digest == model.mixer_.digest
    fused = model.mixer_.fuse(X)
    wanted = reference.scores(
        reference.relu_map(fused, model.kernel_map_.matrix),
        y,
        reference.relu_map(fused, model.kernel_map_.matrix),
        model.ridge_,
    )
    assert reference.error(model.decision_function(X), wanted) < 1e-8


def test_a_few_easy_images_do_not_choose_a_tiny_ridge():
    """Any λ fits them; a tiny one costs many points once the number of images nears D."""
    X, y = make_stream(n=800, d=24, n_classes=20, seed=3)
    base = np.isin(y, ["class 0", "class 1"])
    base &= np.cumsum(base) <= 12
    model = IncrementalLSSVC(n_components=400, random_state=0).partial_fit(X[base], y[base])
    least = min(model.ridge_path_, key=lambda trial: trial.mse).ridge
    scores = {}
    for ridge in (least, model.ridge_):
        grown = IncrementalLSSVC(n_components=400, ridge=ridge, random_state=0).fit(
            X[:400], y[:400]
        )
        scores[ridge] = grown.score(X[400:], y[400:])
    assert model.ridge_ > 100 * least
    assert scores[model.ridge_] > scores[least] + 0.05
