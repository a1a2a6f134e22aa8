"""Every method against a slow or independent computation of the same, and one contract for all."""

import inspect
import json
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.neighbors import NearestCentroid

from tests import reference
from tests.refusals import refused
from visvm import IncrementalLSSVC, VisClassifier
from visvm.bench.methods import METHODS
from visvm.bench.methods.method import Setup
from visvm.bench.methods.ranpac import RIDGES
from visvm.bench.plan import unmet
from visvm.errors import IllConditionedWarning, InputError
from visvm.head import memory
from visvm.head.lift import KernelMap, frozen_normal
from visvm.head.selection import RIDGE_CANDIDATES, split_base_session
from visvm.head.solver import solve
from visvm.head.statistics import Statistics

pytestmark = pytest.mark.slow

DIMS = (5, 4, 6)
PROJECTION = np.random.default_rng(9).normal(size=(6, 3)).astype(np.float32)
RUNNING = [entry.name for entry in METHODS.values() if not unmet(entry)]
SMALL = {"n_components": 60}


def project(final):
    return final @ PROJECTION


def setup(seed=0, dims=DIMS):
    return Setup(dims, project, seed)


def make(name, seed=0, **options):
    small = SMALL if "n_components" in METHODS[name].options else {}
    return METHODS[name].make(setup(seed), **{**small, **options})


def draw(n=240, seed=0, spread=1.0, n_classes=6):
    """Layer features in which every layer tells something of the class, and class numbers."""
    centres = np.random.default_rng(100).normal(size=(n_classes, sum(DIMS)))
    generator = np.random.default_rng(seed)
    y = generator.permutation(np.arange(n) % n_classes)
    return (centres[y] + spread * generator.normal(size=(n, sum(DIMS))) + 0.5).astype(np.float32), y


X, Y = draw()
TEST, TEST_Y = draw(600, seed=1, spread=1.5)
FINAL, TEST_FINAL = X[:, -6:].astype(np.float64), TEST[:, -6:].astype(np.float64)


def sessions_of(y):
    """Three classes; two more, with more of class 1; the last one, with more of class 0 and 1."""
    first = np.flatnonzero((y < 3) & ~((y < 2) & (np.arange(len(y)) % 2 == 0)))
    second = np.flatnonzero((y == 3) | (y == 4) | ((y == 1) & (np.arange(len(y)) % 4 == 0)))
    return [first, second, np.setdiff1d(np.arange(len(y)), np.concatenate([first, second]))]


SESSIONS = sessions_of(Y)


def learned(method, sessions=SESSIONS, features=X, labels=Y):
    for session in sessions:
        method.learn(features[session], labels[session])
    return method


def one_hot(y):
    return np.eye(y.max() + 1)[y]


def agree(predicted, scores):
    """The predictions are those with the highest score."""
    assert predicted.tolist() == scores.argmax(axis=1).tolist()


def test_the_sessions_are_what_they_are_meant_to_be():
    assert [sorted(set(Y[session].tolist())) for session in SESSIONS] == [
        [0, 1, 2],
        [1, 3, 4],
        [0, 1, 5],
    ]
    assert sorted(np.concatenate(SESSIONS).tolist()) == list(range(len(Y)))


# Known answers: the paper's method and its relatives


def base_features(**options):
    """Lifted features of everything by an estimator that has seen the first session alone."""
    model = VisClassifier(layer_dims=DIMS, random_state=0, **SMALL, **options).fit(
        X[SESSIONS[0]], Y[SESSIONS[0]]
    )
    phi, test = (
        reference.relu_map(model.mixer_.fuse(rows), model.kernel_map_.matrix) for rows in (X, TEST)
    )
    return model, phi, test


def test_vis_is_the_reference_on_the_base_sessions_features():
    model, phi, test = base_features()
    method = learned(make("vis"))
    agree(method.predict(TEST), reference.scores(phi, Y, test, model.ridge_))
    costs = method.costs()
    (trial,) = [trial for trial in model.layer_path_ if trial.layers == model.layers_]
    assert costs.choices == {
        "ridge": model.ridge_,
        "layers": list(model.layers_),
        "mixer_is_identity": False,
        "validation_accuracy": trial.accuracy,
    }


def test_ncm_is_scikit_learns_nearest_centroid():
    model, phi, test = base_features()
    method = learned(make("ncm"))
    assert method.predict(TEST).tolist() == NearestCentroid().fit(phi, Y).predict(test).tolist()
    assert method.costs().choices == {"layers": list(model.layers_), "mixer_is_identity": False}


def test_ridge_is_least_squares_on_one_hot_targets_with_a_ridge_of_its_own():
    model, phi, test = base_features()
    method = learned(make("ridge"))
    assert method.costs().choices["layers"] == list(model.layers_)
    ridge = method.costs().choices["ridge"]
    agree(method.predict(TEST), reference.scores(phi, Y, test, ridge, coding=reference.one_hot))
    scores = method._model.decision_function(TEST)
    assert (
        reference.error(scores, reference.scores(phi, Y, test, ridge, coding=reference.one_hot))
        < 1e-6
    )


def test_ridge_chooses_by_the_error_of_one_hot_targets_on_the_same_split():
    base, targets = X[SESSIONS[0]], Y[SESSIONS[0]]
    split = split_base_session(targets, None, 0)
    method = make("ridge", layers=(1, 3))
    method.learn(base, targets)
    mixer = (
        VisClassifier(layer_dims=DIMS, layers=(1, 3), **SMALL)
        .fit(base[split.train], targets[split.train])
        .mixer_
    )
    phi = reference.relu_map(mixer.fuse(base), KernelMap(6, 60, 0).matrix)

    def error(ridge):
        weights = reference.coefficients(
            phi[split.train], one_hot(targets)[split.train], ridge, 10.0
        )
        return (
            (reference.augmented(phi[split.held_out]) @ weights - one_hot(targets)[split.held_out])
            ** 2
        ).mean()

    trials = method._model.ridge_path_
    assert {trial.ridge for trial in trials} >= set(RIDGE_CANDIDATES)
    assert [trial.mse for trial in trials] == pytest.approx(
        [error(trial.ridge) for trial in trials], rel=1e-6
    )
    least = min(trial.mse for trial in trials)
    assert method.costs().choices["ridge"] == max(
        trial.ridge for trial in trials if trial.mse <= 1.02 * least
    )


@pytest.mark.parametrize("n", [30, 400], ids=["thin", "dense"])
def test_plus_minus_one_and_one_hot_scores_differ_by_two_and_a_shared_function(n):
    features, y = draw(n)
    phi = reference.relu_map(features, np.random.default_rng(2).normal(size=(15, 100)))
    sums = Statistics(100)
    sums.reserve(n)
    sums.add(phi.copy(), y)
    test = reference.augmented(
        reference.relu_map(TEST, np.random.default_rng(2).normal(size=(15, 100)))
    )
    signs, hot = (test @ solve(sums, 3.0, 10.0, negative=negative) for negative in (-1.0, 0.0))
    shared = 2.0 * hot - signs  # the score of a target that is always 1
    assert np.abs(shared - shared[:, :1]).max() < 1e-9 * np.abs(signs).max()
    assert np.abs(shared).max() > 0.1
    assert reference.error(hot, test @ reference.coefficients(phi, one_hot(y), 3.0, 10.0)) < 1e-8
    assert signs.argmax(axis=1).tolist() == hot.argmax(axis=1).tolist()


def test_with_the_same_ridge_vis_and_ridge_answer_alike():
    vis, ridge = (learned(make(name, ridge=30.0)) for name in ("vis", "ridge"))
    assert vis.predict(TEST).tolist() == ridge.predict(TEST).tolist()


@pytest.mark.parametrize(("name", "width"), [("visual-lssvm", None), ("visual-lssvm+kernel", 60)])
def test_visual_lssvm_is_the_reference_on_the_final_block(name, width):
    lifted, test = (KernelMap(6, width, 0).lift(rows) for rows in (FINAL, TEST_FINAL))
    base = IncrementalLSSVC(width, random_state=0).fit(FINAL[SESSIONS[0]], Y[SESSIONS[0]])
    method = learned(make(name))
    agree(method.predict(TEST), reference.scores(lifted, Y, test, base.ridge_))
    (trial,) = [trial for trial in base.ridge_path_ if trial.ridge == base.ridge_]
    assert method.costs().choices == {"ridge": base.ridge_, "validation_accuracy": trial.accuracy}


def test_oracle_is_one_fit_on_everything():
    everything = np.concatenate(SESSIONS)
    model = VisClassifier(layer_dims=DIMS, random_state=0, **SMALL).fit(
        X[everything], Y[everything]
    )
    method = learned(make("vis-oracle"))
    assert method.predict(TEST).tolist() == model.predict(TEST).tolist()
    assert method.costs().choices["layers"] == list(model.layers_)


def test_vis_paper_trains_the_mixer_by_sgd():
    model = VisClassifier(
        layer_dims=DIMS, random_state=0, optimizer="sgd", learning_rate=0.01, **SMALL
    )
    for rows in SESSIONS:
        model.partial_fit(X[rows], Y[rows])
    method = learned(make("vis-paper"))
    assert method.predict(TEST).tolist() == model.predict(TEST).tolist()
    assert method._model.mixer_.digest == model.mixer_.digest


# Known answers: the others' methods


def test_simplecil_is_the_cosine_to_the_mean_of_the_projected_features():
    projected, test = project(X[:, -6:]), project(TEST[:, -6:])
    means = [projected[label == Y].astype(np.float64).mean(axis=0) for label in range(6)]
    cosines = [
        [x @ mean / np.linalg.norm(x) / np.linalg.norm(mean) for mean in means]
        for x in test.astype(np.float64)
    ]
    agree(learned(make("simplecil")).predict(TEST), np.array(cosines))


class Covariance:
    """a·S + b·I of one class; scikit-learn's discriminant analysis takes their weighted mean."""

    def __init__(self, scale, shift):
        self.scale, self.shift = scale, shift

    def fit(self, rows):
        self.covariance_ = self.scale * np.cov(rows.T, bias=True) + self.shift * np.eye(
            rows.shape[1]
        )
        return self


def discriminant(rows, y, test, scale, shift):
    """Scores of scikit-learn's discriminant analysis, without the logarithm of class shares."""
    model = LinearDiscriminantAnalysis(
        solver="lsqr", covariance_estimator=Covariance(scale, shift)
    ).fit(rows, y)
    return model.decision_function(test) - np.log(model.priors_)


def linear_scores(method, rows):
    return reference.augmented(rows) @ method._coefficients


def test_slda_is_scikit_learns_discriminant_analysis():
    method = learned(make("slda"))
    wanted = discriminant(FINAL, Y, TEST_FINAL, 1.0 - 1e-4, 1e-4)
    assert (
        reference.error((len(Y) / (1.0 - 1e-4)) * linear_scores(method, TEST_FINAL), wanted) < 1e-9
    )
    agree(method.predict(TEST), wanted)


def fourier(rows, width, n_components=60, seed=0):
    frequencies = frozen_normal(seed, 6 * n_components).reshape(6, n_components) / width
    phases = np.random.default_rng(seed).uniform(0.0, 2.0 * np.pi, n_components)
    return np.sqrt(2.0 / n_components) * np.cos(rows @ frequencies + phases)


def test_klda_is_scikit_learns_discriminant_analysis_of_fourier_features():
    method = learned(make("klda"))
    base = FINAL[SESSIONS[0]]
    distances = [np.linalg.norm(a - b) for i, a in enumerate(base) for b in base[:i]]
    width = method.costs().choices["kernel_width"]
    assert width == pytest.approx(np.median(distances))
    rows, test = fourier(FINAL, width), fourier(TEST_FINAL, width)
    within = sum(np.cov(rows[label == Y].T, bias=True) * (label == Y).mean() for label in range(6))
    wanted = discriminant(rows, Y, test, 1.0, 0.1 * np.trace(within) / 60)
    assert reference.error(len(Y) * linear_scores(method, test), wanted) < 1e-9
    agree(method.predict(TEST), wanted)


def test_klda_s_features_are_those_of_the_rbf_kernel():
    method = learned(make("klda", n_components=1000, kernel_width=3.0))
    rows, distances = (
        method._lift(FINAL[:20]),
        ((FINAL[:20, None] - FINAL[None, :20]) ** 2).sum(axis=2),
    )
    assert np.abs(rows @ rows.T - np.exp(-distances / (2.0 * 3.0**2))).max() < 0.1


def expanded(rows, width=60, seed=0):
    weights = np.random.default_rng(seed).uniform(-1.0, 1.0, (rows.shape[1], width)) / np.sqrt(
        rows.shape[1]
    )
    return np.maximum(rows @ weights, 0.0)


def test_acil_is_the_joint_ridge_regression_on_the_expanded_features():
    method = learned(make("acil"))
    joint = Ridge(alpha=0.1, fit_intercept=False, solver="svd").fit(expanded(FINAL), one_hot(Y))
    wanted = joint.predict(expanded(TEST_FINAL))
    assert reference.error(linear_scores(method, expanded(TEST_FINAL)), wanted) < 1e-9
    agree(method.predict(TEST), wanted)


def ridge_weights(rows, targets, *ridges):
    """(RᵀR + λI)⁻¹RᵀY for every λ, by the singular values of R, so that nothing is squared."""
    left, values, right = np.linalg.svd(rows, full_matrices=False)
    return [
        right.T @ ((values / (values**2 + ridge))[:, None] * (left.T @ targets)) for ridge in ridges
    ]


def ranpac_ridges(lifted, y, sessions, seed):
    """λ of every session, and the errors of all 17 it came from, as the official code has it."""
    generator, outcome = np.random.default_rng(seed), []
    for session in sessions:
        order = session[generator.permutation(len(session))]
        cut = int(len(order) * 0.8)
        train, held_out, targets = order[:cut], order[cut:], one_hot(y)[:, np.unique(y[session])]
        weights = ridge_weights(lifted[train], targets[train], *10.0 ** np.arange(-8, 9))
        errors = [((lifted[held_out] @ each - targets[held_out]) ** 2).mean() for each in weights]
        outcome.append((10.0 ** (int(np.argmin(errors)) - 8), errors))
    return outcome


def random_relu(rows, width, seed=0):
    return np.maximum(
        rows @ frozen_normal(seed, rows.shape[1] * width).reshape(rows.shape[1], width), 0.0
    )


@pytest.mark.parametrize("width", [20, 400], ids=["more samples than features", "fewer"])
def test_ranpac_is_ridge_regression_with_the_ridge_of_the_last_session(width):
    method = make("ranpac-head", n_components=width)
    lifted, test = random_relu(FINAL, width), random_relu(TEST_FINAL, width)
    for number, (ridge, _) in enumerate(ranpac_ridges(lifted, Y, SESSIONS, 0)):
        method.learn(X[SESSIONS[number]], Y[SESSIONS[number]])
        assert method.costs().choices == {"ridge": ridge}
        seen = np.concatenate(SESSIONS[: number + 1])
        wanted = test @ ridge_weights(lifted[seen], one_hot(Y[seen]), ridge)[0]
        assert reference.error(linear_scores(method, test), wanted) < 1e-6
        agree(method.predict(TEST), wanted)


def test_ranpac_raises_a_ridge_that_float64_cannot_resolve():
    far = 1000.0 * np.eye(6)[np.arange(60) % 3]  # three points, so that the least ridge is the best
    features = np.hstack([np.zeros((60, 9)), far]).astype(np.float32)
    method = make("ranpac-head", n_components=200)
    with pytest.warns(IllConditionedWarning):
        method.learn(features, np.arange(60) % 3)
    assert method.costs().choices["ridge"] > 1e-6
    assert method.costs().choices["ridge"] in RIDGES
    assert method.predict(features).tolist() == (np.arange(60) % 3).tolist()


def test_ranpac_refuses_a_session_that_cannot_be_split():
    with refused("session-too-small", InputError):
        make("ranpac-head").learn(X[:1], np.zeros(1, np.intp))


def test_ranpac_refuses_features_that_drown_every_ridge():
    features = np.hstack([np.zeros((8, 9)), 1e12 * np.ones((8, 6))]).astype(np.float32)
    with pytest.warns(IllConditionedWarning), refused("features-too-large", InputError):
        make("ranpac-head").learn(features, np.arange(8) % 2)


@pytest.mark.parametrize("name", ["acil", "slda"])
def test_features_that_drown_what_is_added_are_refused_in_one_line(name):
    generator = np.random.default_rng(0)
    far = 1e12 * np.outer(generator.random(90), np.ones(15)).astype(np.float32)
    with refused("features-too-large", InputError):
        learned(make(name), np.split(np.arange(90), 3), far, np.arange(90) % 3)


def test_klda_needs_two_images_or_a_width():
    with refused("kernel-width-undecided", InputError):
        make("klda").learn(X[[0, 0]], np.array([0, 0]))
    method = make("klda", kernel_width=2.0)
    method.learn(X[[0, 0]], np.array([0, 0]))
    assert method.predict(X[:3]).tolist() == [0, 0, 0]


# Properties


@st.composite
def streams(draw):
    """Features of one layer of width 4, classes as they arrive, sessions of two samples or more."""
    n = draw(st.integers(4, 60), "n")
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1), "seed"))
    mean = draw(st.sampled_from([0.0, 1.0, 10.0]), "mean")
    features = (generator.normal(size=(n, 4)) + mean).astype(np.float32)
    labels = generator.integers(0, draw(st.integers(1, 5), "n_classes"), n)
    cuts = sorted(
        draw(st.lists(st.integers(1, max(n // 2 - 1, 1)), max_size=4, unique=True), "cuts")
    )
    sessions = [part for part in np.split(np.arange(n), [2 * cut for cut in cuts]) if len(part)]
    arrival = list(
        dict.fromkeys(label for part in sessions for label in sorted(set(labels[part].tolist())))
    )
    return features, np.array([arrival.index(label) for label in labels]), sessions


ONE_LAYER = setup(dims=(4,))


@settings(max_examples=60)
@given(streams(), st.integers(1, 80), st.floats(-3, 3).map(lambda power: 10.0**power))
def test_acil_is_ridge_regression_whatever_the_stream(stream, width, gamma):
    features, y, sessions = stream
    method = learned(
        METHODS["acil"].make(ONE_LAYER, n_components=width, gamma=gamma), sessions, features, y
    )
    rows = expanded(features.astype(np.float64), width)
    assert (
        reference.error(
            linear_scores(method, rows), rows @ ridge_weights(rows, one_hot(y), gamma)[0]
        )
        < 1e-6
    )


@settings(max_examples=60)
@given(streams(), st.integers(1, 80))
@pytest.mark.filterwarnings("ignore::visvm.errors.IllConditionedWarning")
def test_ranpac_takes_a_ridge_with_the_least_error_whatever_the_stream(stream, width):
    features, y, sessions = stream
    method = learned(
        METHODS["ranpac-head"].make(ONE_LAYER, n_components=width), sessions, features, y
    )
    lifted = random_relu(features.astype(np.float64), width)
    _, errors = ranpac_ridges(lifted, y, sessions, 0)[-1]
    ridge = method.costs().choices["ridge"]
    allowed = {
        float(each)
        for each, error in zip(RIDGES, errors, strict=True)
        if error <= min(errors) * (1 + 1e-5) + 1e-12
    }
    raised = np.finfo(float).eps / 1e-6 * np.square(lifted).sum()
    assert ridge in allowed or (ridge > raised and ridge > min(allowed))
    gram, classes = lifted.T @ lifted, lifted.T @ one_hot(y)
    assert np.allclose(np.tril(method._sums.gram), np.tril(gram), rtol=1e-9)
    assert np.allclose(method._sums.sums, classes, rtol=1e-9)
    if ridge > raised:
        assert (
            reference.error(
                linear_scores(method, lifted), lifted @ ridge_weights(lifted, one_hot(y), ridge)[0]
            )
            < 1e-4
        )


@settings(max_examples=60)
@given(streams(), st.floats(-5, -0.01).map(lambda power: 10.0**power))
def test_slda_is_the_dense_formula_whatever_the_stream(stream, shrinkage):
    features, y, sessions = stream
    method = learned(METHODS["slda"].make(ONE_LAYER, shrinkage=shrinkage), sessions, features, y)
    rows = features.astype(np.float64)
    means = np.stack([rows[y == label].mean(axis=0) for label in range(y.max() + 1)])
    covariance = sum(
        np.outer(x - means[label], x - means[label]) for x, label in zip(rows, y, strict=True)
    ) / len(y)
    precision = np.linalg.inv((1.0 - shrinkage) * covariance + shrinkage * np.eye(4))
    wanted = rows @ precision @ means.T - 0.5 * np.einsum("ij,jk,ik->i", means, precision, means)
    assert reference.error(len(y) / (1.0 - shrinkage) * linear_scores(method, rows), wanted) < 1e-7


# The contract


@pytest.mark.parametrize("name", RUNNING)
def test_predicts_classes_seen_and_is_right_mostly(name):
    method, (easy, easy_y), kept = make(name), draw(seed=2, spread=0.4), X.copy()
    for number, session in enumerate(SESSIONS):
        method.learn(X[session], Y[session])
        predicted = method.predict(TEST)
        assert predicted.dtype == np.intp
        assert predicted.shape == TEST_Y.shape
        n_classes = (3, 5, 6)[number]
        assert set(predicted.tolist()) <= set(range(n_classes))
        known = easy_y < n_classes
        assert (method.predict(easy[known]) == easy_y[known]).mean() > (
            0.6 if name == "simplecil" else 0.9
        )
    assert np.array_equal(X, kept)


@pytest.mark.parametrize("name", RUNNING)
def test_one_class_is_enough_to_begin_with(name):
    method = make(name)
    for label in range(2):
        rows = np.flatnonzero(label == Y)
        method.learn(X[rows], Y[rows])
        assert set(method.predict(TEST).tolist()) == set(range(label + 1))


@pytest.mark.parametrize("name", RUNNING)
def test_one_seed_gives_one_answer(name):
    first, second = (learned(make(name, seed=3)) for _ in range(2))
    assert first.predict(TEST).tolist() == second.predict(TEST).tolist()
    assert first.costs() == second.costs()


@pytest.mark.parametrize("name", RUNNING)
def test_seeds_differ_where_something_is_drawn(name):
    # whose λ is chosen on a random split
    options = {"ridge": 1.0} if name == "visual-lssvm" else {}
    first, second = (learned(make(name, seed=seed, **options)).predict(TEST) for seed in (0, 1))
    assert (first.tolist() == second.tolist()) == (name in ("simplecil", "slda", "visual-lssvm"))


@pytest.mark.parametrize(
    "name", [name for name in RUNNING if name not in ("ranpac-head", "vis-oracle")]
)
def test_after_the_base_session_neither_order_nor_split_matters(name, monkeypatch):
    wanted = learned(make(name)).predict(TEST)
    rest = np.concatenate(SESSIONS[1:])
    rest = rest[np.argsort(Y[rest], kind="stable")]  # class by class, four sessions
    assert (
        learned(make(name), [SESSIONS[0], *np.split(rest, [30, 31, 90])]).predict(TEST).tolist()
        == wanted.tolist()
    )
    monkeypatch.setattr(memory, "CHUNK_BYTES", 1)  # 64 samples at a time
    shuffled = np.random.default_rng(0).permutation(rest)
    assert learned(make(name), [SESSIONS[0], shuffled]).predict(TEST).tolist() == wanted.tolist()


def test_ranpac_is_the_same_however_much_is_lifted_at_once(monkeypatch):
    wanted = learned(make("ranpac-head", n_components=20))
    monkeypatch.setattr(memory, "CHUNK_BYTES", 1)
    got = learned(make("ranpac-head", n_components=20))
    assert got.costs() == wanted.costs()
    assert reference.error(got._coefficients, wanted._coefficients) < 1e-9


@pytest.mark.parametrize("name", ["simplecil", "slda", "klda", "acil", "ranpac-head", "ncm"])
def test_a_class_number_left_out_is_refused(name):
    with refused("class-number-skipped", InputError) as caught:
        make(name).learn(X[Y != 1], Y[Y != 1] // 2 * 2)
    assert "2 was given where 1 comes next" in str(caught.value)


OPTIONS = {
    "slda": {"shrinkage": 0.9},
    "klda": {"n_components": 30, "kernel_width": 1.0, "relative_ridge": 1e-3},
    "acil": {"n_components": 30, "gamma": 100.0},
    "ranpac-head": {"n_components": 30},
    "visual-lssvm": {"ridge": 1.0, "svm_cost": 1.0, "max_selection_samples": 20},
    "visual-lssvm+kernel": {
        "n_components": 30,
        "ridge": 1.0,
        "svm_cost": 1.0,
        "max_selection_samples": 20,
    },
}
VIS_OPTIONS = {
    "n_components": 30,
    "layers": (2, 3),
    "ridge": 10.0,
    "svm_cost": 0.1,
    "hidden": 7,
    "epochs": 1,
    "optimizer": "sgd",
    "learning_rate": 0.05,
    "batch_size": 16,
    "identity_weight": 0.2,
    "max_selection_samples": 20,
}
CHANGES = [(name, *change) for name, changes in OPTIONS.items() for change in changes.items()]
CHANGES += [(name, *change) for name in ("ncm", "ridge", "vis") for change in VIS_OPTIONS.items()]
SOME = ("n_components", "max_selection_samples")
CHANGES += [
    (method, name, VIS_OPTIONS[name]) for method in ("vis-paper", "vis-oracle") for name in SOME
]


@cache
def hard_answers(name, *options):
    """Answers after a stream that is hard enough for λ and the blocks to be in doubt."""
    features, y = draw(seed=5, spread=3.0)
    sessions = [np.arange(len(y))] if name == "vis-oracle" else sessions_of(y)
    return learned(make(name, **dict(options)), sessions, features, y).predict(TEST).tolist()


@pytest.mark.parametrize(("name", "option", "value"), CHANGES)
def test_every_option_changes_the_result(name, option, value):
    # only λ / C_svm matters: a λ that is chosen makes up for C_svm
    common = [("ridge", 100.0)] if option == "svm_cost" else []
    assert hard_answers(name, *common) != hard_answers(name, *common, (option, value))


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("slda", "shrinkage", 0.0),
        ("slda", "shrinkage", 1.0),
        ("klda", "n_components", 0),
        ("klda", "kernel_width", "wide"),
        ("klda", "kernel_width", -1.0),
        ("klda", "relative_ridge", 0.0),
        ("acil", "n_components", 1.5),
        ("acil", "gamma", 0.0),
        ("ranpac-head", "n_components", -1),
        ("vis", "n_components", 0),
        ("ncm", "n_components", 0),
        ("visual-lssvm", "svm_cost", -1.0),
    ],
)
def test_a_bad_option_is_refused_in_one_line(name, option, value):
    with pytest.raises(InputError) as caught:
        learned(make(name, **{option: value}))
    assert f"'{option}'" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["vis", "ncm", "ridge", "visual-lssvm", "visual-lssvm+kernel"])
def test_defaults_are_those_of_the_estimators(name):
    """A better default of an estimator must not pass the benchmark by."""
    estimator = VisClassifier if name in ("vis", "ncm", "ridge") else IncrementalLSSVC
    given = METHODS[name].options
    for option, parameter in inspect.signature(estimator).parameters.items():
        assert option not in given or given[option] == parameter.default


# Costs

MIXER = 7 * (5 + 6) + 7 + 6 * 7 + 6  # hidden 7, blocks 1 and 3: V, its bias, U, its bias


@pytest.mark.parametrize("name", RUNNING)
def test_costs_are_json(name):
    costs = learned(make(name)).costs()
    assert json.loads(json.dumps(costs.choices)) == costs.choices


@pytest.mark.parametrize(
    ("name", "options", "trained", "numbers"),
    [
        ("simplecil", {}, 0, 3 * 6 + 6),
        ("slda", {}, 0, 6 * 6 + 6 + 6 * 6 + 7 * 6),
        ("klda", {"n_components": 50}, 0, 50 * 6 + 6 + 50**2 + 51 * 6),
        ("acil", {"n_components": 50}, 0, 50**2 + 51 * 6),
        ("ranpac-head", {"n_components": 50}, 0, 50 * 6 + 6 + 50**2 + 51 * 6),
        ("visual-lssvm", {}, 0, 7 * 6 + (6**2 + 6 * 6) + 7 * 6),
        # Thin: as many rows of F as samples but one, with their targets.
        ("visual-lssvm+kernel", {"n_components": 500}, 0, 501 * 6 + 239 * (500 + 6) + 501 * 6),
        ("ncm", {"n_components": 50, "layers": (1, 3), "hidden": 7}, MIXER, 50 * 6 + 6 + MIXER),
        (
            "ridge",
            {"n_components": 50, "layers": (1, 3), "hidden": 7},
            MIXER,
            51 * 6 + (50**2 + 50 * 6) + 51 * 6 + MIXER,
        ),
        (
            "vis",
            {"n_components": 50, "layers": (1, 3), "hidden": 7},
            MIXER,
            51 * 6 + (50**2 + 50 * 6) + 51 * 6 + MIXER,
        ),
    ],
)
def test_costs_are_what_is_trained_and_kept(name, options, trained, numbers):
    costs = learned(make(name, **options)).costs()
    assert costs.trainable_parameters == trained
    assert costs.state_bytes == 8 * numbers


def test_the_oracle_keeps_all_features_in_half_the_digits_and_all_labels():
    method = learned(make("vis-oracle", n_components=50))
    mixer = sum(array.size for array in method._model.mixer_.weights)
    assert method.costs().trainable_parameters == mixer
    assert method.costs().state_bytes == 8 * (240 * 15 / 2 + 240 + 51 * 6 + mixer)


def test_of_one_class_nothing_is_trained():
    method = make("vis")
    method.learn(X[Y == 0], Y[Y == 0])
    assert method.costs().trainable_parameters == 0
    assert method.costs().choices["mixer_is_identity"]


@pytest.mark.parametrize(
    "options", [{"ridge": 1.0, "layers": (1, 3)}, {"ridge": 1.0}, {"layers": (1, 3)}]
)
def test_the_validation_accuracy_is_that_of_what_was_chosen(options):
    method = learned(make("vis", **options))
    accuracy, model = method.costs().choices["validation_accuracy"], method._model
    if len(options) == 2:
        assert accuracy is None  # nothing was chosen
    else:
        trials = [
            *(trial for trial in model.layer_path_ if trial.layers == model.layers_),
            *model.ridge_path_,
        ]
        assert accuracy in [trial.accuracy for trial in trials if trial.ridge == model.ridge_]
        assert accuracy > 0.5
