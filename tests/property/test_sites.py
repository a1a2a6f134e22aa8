"""Sums of several sites against ``tests/reference.py``.

Drawn are the estimators, sizes, λ, means, labels and orders.
"""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import reference
from tests.property.test_exactness import TOLERANCE, all_scores
from visvm import IncrementalLSSVC, NeverLearnedError, VisClassifier
from visvm.head.selection import RIDGE_CANDIDATES

pytestmark = pytest.mark.slow


@st.composite
def federations(draw):
    """A settled model that knows nothing, samples with labels, and the rows of base and sites."""
    d, n_classes = draw(st.integers(1, 8), "d"), draw(st.integers(1, 6), "n_classes")
    sizes = [
        draw(st.integers(2, 30), "n_base"),
        *draw(st.lists(st.integers(1, 40), min_size=1, max_size=5), "sizes"),
    ]
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1), "seed"))
    X = generator.normal(size=(sum(sizes) + 10, d)) + draw(
        st.sampled_from([0.0, 1.0, 100.0]), "mean"
    )
    X = X.astype(draw(st.sampled_from([np.float32, np.float64]), "dtype"))
    parts, begin = [], 0
    y = np.empty(sum(sizes), dtype=np.int64)
    # each has some of the classes: often others than the rest, sometimes one only
    for size in sizes:
        own = draw(
            st.lists(st.integers(0, n_classes - 1), min_size=1, max_size=3, unique=True), "classes"
        )
        parts.append(np.arange(begin, begin + size))
        y[parts[-1]] = generator.choice(own, size)
        begin += size
    labels = (
        np.array(["gull", "heron", "kite", "owl", "robin", "wren"])[y]
        if draw(st.booleans(), "text")
        else y
    )
    options = {
        "n_components": draw(
            st.none() | st.integers(1, 64) | st.integers(250, 300), "n_components"
        ),
        "ridge": draw(
            st.sampled_from(RIDGE_CANDIDATES) | st.floats(-6, 6).map(lambda power: 10.0**power),
            "ridge",
        ),
        "svm_cost": draw(st.sampled_from([0.1, 10.0]), "svm_cost"),
        "random_state": draw(st.integers(0, 100), "random_state"),
    }
    if draw(st.booleans(), "fused"):
        dims = (1, d - 1) if d > 1 else (d,)
        model = VisClassifier(
            layer_dims=dims, layers=tuple(range(1, len(dims) + 1)), hidden=3, epochs=1, **options
        )
    else:
        model = IncrementalLSSVC(**options)
    return model.settle(X[parts[0]], labels[parts[0]]), X, labels, parts


def assert_learned(model, X, y, rows):
    """The model must be the one that learned these rows in one process."""
    phi = model.head_.settled.lift(X)
    assert model.classes_.tolist() == np.unique(y[rows]).tolist()
    assert (
        model.statistics_.class_counts.tolist()
        == np.unique(y[rows], return_counts=True)[1].tolist()
    )
    wanted = reference.scores(phi[rows], y[rows], phi, model.ridge, model.svm_cost)
    assert reference.error(all_scores(model, X), wanted) < TOLERANCE


@given(federations(), st.data())
def test_sites_merged_in_any_order_are_one_process_and_any_of_them_can_be_withdrawn(
    federation, data
):
    settled, X, y, parts = federation
    base, *sites = (copy.deepcopy(settled).partial_fit(X[rows], y[rows]) for rows in parts)
    digests = [site.statistics_.digest() for site in sites]
    order = data.draw(st.permutations(range(len(sites))), "order")
    cut = data.draw(st.integers(0, len(sites)), "at once")
    whole = copy.deepcopy(base).merge(*(sites[place] for place in order[:cut]))
    for place in order[cut:]:
        whole.merge(sites[place])
    assert_learned(whole, X, y, np.concatenate(parts))
    assert [site.statistics_.digest() for site in sites] == digests
    withdrawn = data.draw(st.lists(st.sampled_from(range(len(sites))), unique=True), "withdrawn")
    for place in withdrawn:
        whole.unmerge(sites[place])
    assert_learned(
        whole,
        X,
        y,
        np.concatenate(
            [parts[0], *(parts[1 + place] for place in order if place not in withdrawn)]
        ),
    )


@given(federations())
def test_sites_make_a_model_that_nothing_is_left_of_when_all_are_withdrawn(federation):
    settled, X, y, parts = federation
    sites = [copy.deepcopy(settled).partial_fit(X[rows], y[rows]) for rows in parts]
    whole = copy.deepcopy(settled).merge(*sites)
    assert_learned(whole, X, y, np.concatenate(parts))
    for site in sites:
        whole.unmerge(site)
    assert whole.classes_.size == 0
    with pytest.raises(NeverLearnedError):
        whole.unmerge(sites[0])
