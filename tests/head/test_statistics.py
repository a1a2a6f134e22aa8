"""The sums, in shapes that the estimators' own tests do not reach."""

import copy
import pickle

import numpy as np
import pytest

from tests import reference
from tests.conftest import make_stream
from tests.refusals import refused
from visvm import IncrementalLSSVC, NeverLearnedError, VisClassifier
from visvm.head import memory
from visvm.head.scatter import DenseScatter, ThinScatter
from visvm.head.statistics import Statistics

pytestmark = pytest.mark.slow

WIDTHS = {"thin": 900, "dense": 30, "linear": None}


@pytest.fixture(params=WIDTHS)
def width(request):
    return WIDTHS[request.param]


def same(model, other, X, tolerance=1e-8):
    assert model.classes_.tolist() == other.classes_.tolist()
    assert reference.error(model.decision_function(X), other.decision_function(X)) < tolerance


@pytest.mark.parametrize("layout", ["fortran", "strided", "read-only"])
def test_the_memory_layout_of_the_input_does_not_matter(width, layout):
    X, y = make_stream()
    given = {
        "fortran": np.asfortranarray(X),
        "strided": np.repeat(X, 2, axis=1)[:, ::2],
        "read-only": X.copy(),
    }[layout]
    given.flags.writeable = layout != "read-only"
    for model in (
        IncrementalLSSVC(n_components=width, ridge=1.0),
        VisClassifier(n_components=width, ridge=1.0, hidden=4),
    ):
        wanted, got = copy.deepcopy(model).fit(X, y), copy.deepcopy(model).fit(given, y)
        same(got, wanted, given)
        np.testing.assert_allclose(got.statistics_.gram, wanted.statistics_.gram, rtol=1e-9)
        got.forget(given[:50], y[:50])
        same(got, wanted.forget(X[:50], y[:50]), given)
    np.testing.assert_array_equal(given, X)


def test_chunks_blocks_and_panels_of_any_size(width, monkeypatch):
    monkeypatch.setattr(memory, "CHUNK_BYTES", 1)  # 64 rows a chunk
    X, y = make_stream(n=560, d=8)
    model, begin = IncrementalLSSVC(n_components=width, ridge=0.5), 0
    for size in (200, 1, 1, 150, 3, 70, 64, 65, 1, 5):
        model.partial_fit(X[begin : begin + size], y[begin : begin + size])
        begin += size
        whole = IncrementalLSSVC(n_components=width, ridge=0.5).fit(X[:begin], y[:begin])
        same(model, whole, X)
    model.forget(X[:300], y[:300])
    same(model, IncrementalLSSVC(n_components=width, ridge=0.5).fit(X[300:], y[300:]), X)
    with refused("samples-too-many", NeverLearnedError) as caught:
        model.forget(X, y)
    assert "has 62" in str(caught.value)
    assert "140" in str(caught.value)


def test_forgetting_one_at_a_time_until_nothing_is_left(width):
    X, y = make_stream(n=60, mean=100.0)
    model = IncrementalLSSVC(n_components=width, ridge=1.0).fit(X, y)
    for left in range(59, -1, -1):
        model.forget(X[left : left + 1], y[left : left + 1])
    assert model.classes_.size == 0


@pytest.mark.parametrize("features", ["copies", "constant", "zero"])
def test_forgetting_some_of_many_equal_samples(width, features):
    X = {
        "copies": np.repeat(make_stream()[0][:2], 10, axis=0),
        "constant": np.full((20, 6), 2.0),
        "zero": np.zeros((20, 6)),
    }[features]
    y = np.repeat(["a", "b"], 10)
    model = IncrementalLSSVC(n_components=width, ridge=1.0).fit(X, y)
    for gone in ([0], [1, 2, 3], [4, 5, 6, 10, 11, 12, 13, 14]):
        model.forget(X[gone], y[gone])
    left = [7, 8, 9, 15, 16, 17, 18, 19]
    same(model, IncrementalLSSVC(n_components=width, ridge=1.0).fit(X[left], y[left]), X)


def test_forgetting_copies_of_what_was_learned_with_a_weight(width):
    X, y = make_stream(n=40)
    model = IncrementalLSSVC(n_components=width, ridge=1.0).fit(
        X, y, sample_weight=np.full(40, 4.0)
    )
    for _ in range(3):
        model.forget(X, y)
    same(model, IncrementalLSSVC(n_components=width, ridge=1.0).fit(X, y), X)


def test_a_class_cannot_go_with_another_ones_samples(width):
    X, y = make_stream(n=60)
    model = IncrementalLSSVC(n_components=width, ridge=1.0).fit(
        np.vstack([X, X[:1] + 5]), np.append(y, "single")
    )
    with refused("samples-never-learned", NeverLearnedError):
        model.forget(X[1:2], ["single"])
    swapped = np.where(y == "class 0", "class 1", np.where(y == "class 1", "class 0", y))
    with pytest.raises(NeverLearnedError):
        model.forget(X, swapped)


def test_a_heavy_sample_can_be_forgotten_beside_light_ones():
    X, y = make_stream(n=60)
    model = IncrementalLSSVC(n_components=30, ridge=1.0).fit(
        np.vstack([X, X[:1]]), np.append(y, y[0]), sample_weight=np.append(np.ones(60), 1e6)
    )
    model.forget(X[:1], y[:1], sample_weight=[1e6])
    same(model, IncrementalLSSVC(n_components=30, ridge=1.0).fit(X, y), X, tolerance=1e-6)


@pytest.mark.parametrize("n_features", [40, 200])
def test_sums_that_are_sent_are_the_same_and_a_matrix_goes_by_half(n_features):
    X, y = make_stream(n=120, d=n_features)
    sums = Statistics(n_features)
    sums.add(X, y)
    sent = pickle.dumps(sums)
    got = pickle.loads(sent)
    np.testing.assert_array_equal(got.gram, sums.gram)
    np.testing.assert_array_equal(got.class_sums, sums.class_sums)
    assert type(got.scatter) is type(sums.scatter)
    if isinstance(sums.scatter, DenseScatter):
        assert len(sent) < 8 * (0.6 * n_features**2 + 10 * n_features) + 2000


@pytest.mark.parametrize(
    "use",
    [
        pickle.dumps,
        Statistics.digest,
        lambda sums: sums.gram,
        lambda sums: sums.add(*make_stream(n=3, d=4)),
        lambda sums: sums.merge(copy.deepcopy(sums)),
        lambda sums: Statistics(4).merge(sums),
        lambda sums: sums.scatter.factored(2.0).__enter__(),
    ],
)
def test_nothing_takes_the_diagonal_of_a_factor_for_that_of_the_matrix(use):
    sums = Statistics(4)
    sums.add(*make_stream(n=30, d=4))
    before = sums.gram
    with sums.scatter.factored(1.0), pytest.raises(AssertionError):
        use(sums)
    np.testing.assert_array_equal(sums.gram, before)


@pytest.mark.parametrize("n_features", [3, 60])
def test_merging_leaves_the_other_as_it_was(n_features):
    generator, others = np.random.default_rng(0), []
    for labels in (["a", "b"], ["b", "c"]):
        sums = Statistics(n_features)
        sums.add(generator.normal(size=(20, n_features)), np.array(labels * 10))
        others.append(sums)
    mine, theirs = others
    before = theirs.copy()
    mine.merge(theirs)
    assert theirs.classes.tolist() == ["b", "c"]
    more = generator.normal(size=(4, n_features))
    for sums in (theirs, before):
        sums.add(more.copy(), np.array(["b", "c"] * 2))
    np.testing.assert_array_equal(theirs.gram, before.gram)
    np.testing.assert_array_equal(theirs.class_sums, before.class_sums)


def test_merging_with_itself_and_with_an_emptied_model(width):
    X, y = make_stream(n=60)
    model = IncrementalLSSVC(n_components=width, ridge=1.0).fit(X, y)
    empty = copy.deepcopy(model).forget(X, y)
    twice = copy.deepcopy(model)
    same(
        twice.merge(twice),
        IncrementalLSSVC(n_components=width, ridge=1.0).fit(X, y, sample_weight=np.full(60, 2.0)),
        X,
    )
    same(copy.deepcopy(empty).merge(model), model, X)
    same(copy.deepcopy(model).merge(empty), model, X)


def test_what_was_merged_goes_on_by_itself(width):
    X, y = make_stream(n=120)
    first = np.isin(y, ["class 0", "class 1"])
    model, other = (
        IncrementalLSSVC(n_components=width, ridge=1.0).fit(X[part], y[part])
        for part in (first, ~first)
    )
    model.merge(other)
    other.partial_fit(X[:9], y[:9])
    rows = np.concatenate([np.flatnonzero(~first), np.arange(9)])
    same(other, IncrementalLSSVC(n_components=width, ridge=1.0).fit(X[rows], y[rows]), X)


FORMS = {
    (30, 30): ("thin", "thin"),
    (30, 170): ("thin", "dense"),
    (170, 30): ("dense", "thin"),
    (170, 170): ("dense", "dense"),
}


@pytest.mark.parametrize("mean", [0.0, 100.0])
@pytest.mark.parametrize(("n_base", "n_site"), FORMS)
def test_what_is_unmerged_was_never_merged(n_base, n_site, mean):
    X, y = make_stream(n=340, mean=mean)
    kinds = {"thin": ThinScatter, "dense": DenseScatter}
    rest, more = slice(0, n_base), slice(n_base, n_base + 20)
    shared, alone = (
        IncrementalLSSVC(n_components=200, ridge=1.0).fit(X[rest], y[rest]) for _ in range(2)
    )
    site = IncrementalLSSVC(n_components=200, ridge=1.0).fit(
        X[-n_site:], np.where(y == "class 3", "only here", y)[-n_site:]
    )
    for model, form in zip((alone, site), FORMS[n_base, n_site], strict=True):
        assert isinstance(model.statistics_.scatter, kinds[form])
    shared.merge(site).partial_fit(X[more], y[more]).unmerge(site)
    same(shared, alone.partial_fit(X[more], y[more]), X)
    assert reference.error(shared.statistics_.gram, alone.statistics_.gram) < 1e-12


def test_a_dense_site_is_taken_out_of_thin_sums():
    X, y = make_stream(n=60)
    whole, site = (
        IncrementalLSSVC(n_components=100, ridge=1.0).fit(X[rows], y[rows])
        for rows in (slice(60), slice(20))
    )
    # as where more was expected than came
    site.statistics_.scatter = site.statistics_.scatter.to_dense()
    assert isinstance(whole.statistics_.scatter, ThinScatter)
    same(whole.unmerge(site), IncrementalLSSVC(n_components=100, ridge=1.0).fit(X[20:], y[20:]), X)


def test_what_was_never_merged_is_not_unmerged(width):
    X, y = make_stream(n=60)
    model = IncrementalLSSVC(n_components=width, ridge=1.0).fit(X, y)
    before = model.decision_function(X)
    others = {
        "samples-too-many": ((np.vstack([X, X]), np.append(y, y)), ("has 15", "30")),
        "class-never-learned": ((X[:1], ["fremd"]), ("fremd",)),
        "samples-never-learned": ((X + np.arange(6.0) * 50, y), ()),
    }
    for code, (samples, facts) in others.items():
        other = IncrementalLSSVC(n_components=width, ridge=1.0).fit(*samples)
        with refused(code, NeverLearnedError) as caught:
            model.unmerge(other)
        for fact in facts:
            assert fact in str(caught.value)
    np.testing.assert_array_equal(model.decision_function(X), before)


def test_the_digest_tells_sums_apart_and_not_copies(width):
    X, y = make_stream(n=60)
    model = IncrementalLSSVC(n_components=width, ridge=1.0).fit(X, y)
    digest = model.statistics_.digest()
    assert copy.deepcopy(model).statistics_.digest() == digest
    others = [
        copy.deepcopy(model).forget(X[:1], y[:1]),
        copy.deepcopy(model).rename_class("class 0", "class 00"),
    ]
    assert len({digest, *(other.statistics_.digest() for other in others)}) == 3


@pytest.mark.parametrize("mean", [0.0, 100.0])
@pytest.mark.parametrize("share", [0.6, 0.75, 0.95])
def test_exact_where_samples_are_fewer_than_features_and_the_ridge_is_small(share, mean):
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(300, 200)) + mean, generator.integers(0, 3, 300)
    n = int(share * 200)
    model = IncrementalLSSVC(n_components=None, ridge=1e-6).fit(X[:n], y[:n])
    assert isinstance(model.statistics_.scatter, ThinScatter if share < 2 / 3 else DenseScatter)
    assert (
        reference.error(model.decision_function(X), reference.scores(X[:n], y[:n], X, 1e-6)) < 1e-5
    )


def test_the_default_on_digits_one_class_at_a_time_is_exact_and_good():
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    model = IncrementalLSSVC(n_components=1000)
    for digit in range(10):
        model.partial_fit(X[:900][y[:900] == digit], y[:900][y[:900] == digit])
    phi = reference.relu_map(X, model.kernel_map_.matrix)
    wanted = reference.scores(phi[:900], y[:900], phi, model.ridge_)
    assert reference.error(model.decision_function(X), wanted) < 1e-7
    assert model.score(X[900:], y[900:]) > 0.93


def test_a_row_of_the_factor_is_no_single_sample_after_forgetting_either():
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(80, 300)), generator.integers(0, 3, 80)
    X[7] *= 30.0  # an outlier is an eigenvector by itself
    model = IncrementalLSSVC(n_components=None, ridge=1.0).fit(X, y)
    model.forget(X[50:], y[50:])
    rows, centred = np.concatenate(model.statistics_.scatter.blocks), X[:50] - X[:50].mean(axis=0)
    share = np.linalg.norm(rows, axis=1)
    assert np.sort(share)[-1] < 0.7 * np.linalg.norm(share)  # the outlier is spread over many rows
    assert len(rows) == 49
    assert np.allclose(rows.T @ rows, centred.T @ centred)


def test_derived_sums_of_nothing():
    empty = Statistics(3)
    assert empty.gram.tolist() == np.zeros((4, 4)).tolist()
    assert empty.class_counts.size == 0
