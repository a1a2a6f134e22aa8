"""Views of images in the sums: weighted rows of the reference, merged, forgotten, left out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import reference
from visvm.head.head import Head, as_rows
from visvm.head.lift import KernelMap, Lift
from visvm.head.settle import HeadOptions, Settled

pytestmark = pytest.mark.slow

TOLERANCE = 1e-5  # of the scores' range
SVM_COST = 10.0


@st.composite
def problems(draw):
    """Images of several views, a head that knows none of them, and a division in two."""
    n, n_views = draw(st.integers(4, 30), "n"), draw(st.integers(1, 5), "n_views")
    d = draw(st.integers(1, 8), "d")
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1), "seed"))
    mean = draw(st.sampled_from([0.0, 1.0, 10.0]), "mean")
    images = generator.normal(size=(n, 1, d)) + mean
    views = images + draw(st.floats(0.01, 1.0), "spread") * generator.normal(size=(n, n_views, d))
    labels = np.concatenate([np.arange(3), generator.integers(0, 3, n - 3)])
    width = draw(st.none() | st.integers(2, 40) | st.integers(150, 200), "n_components")
    ridge = 10.0 ** draw(st.floats(0, 4), "ridge")  # below, leaving out may raise it
    options = HeadOptions(n_components=width, fused=False, ridge=ridge, svm_cost=SVM_COST)
    settled = Settled(options, Lift(None, KernelMap(d, width, 0)), ridge)
    cut = draw(st.integers(1, n - 1), "cut")
    return Head.blank(settled), views, labels, cut


def wanted(head, views, labels, asked):
    """Scores of features by the reference, in which every view is a sample of weight 1/V."""
    rows, each, weight = as_rows(views, labels)
    lift, settled = head.settled.lift, head.settled
    parts = lift(rows), each, lift(asked)
    return reference.scores(*parts, settled.ridge, SVM_COST, weight=weight)


def learned(head, views, labels):
    return head.learned(*as_rows(views, labels)).solved()


@given(problems())
def test_views_are_samples_that_share_a_weight_of_one_and_counts_stay(problem):
    head, views, labels, cut = problem
    first = learned(head, views[:cut], labels[:cut])
    both = learned(first, views[cut:], labels[cut:])
    np.testing.assert_allclose(both.statistics.class_counts, np.bincount(labels), rtol=1e-12)
    asked = views[:, 0]
    assert reference.error(both.scores(asked), wanted(head, views, labels, asked)) < TOLERANCE


@given(problems())
def test_merging_and_forgetting_images_takes_all_their_views(problem):
    head, views, labels, cut = problem
    parts = [learned(head, views[:cut], labels[:cut]), learned(head, views[cut:], labels[cut:])]
    merged = parts[0].merged(parts[1]).solved()
    asked = views[:, 0]
    assert reference.error(merged.scores(asked), wanted(head, views, labels, asked)) < TOLERANCE
    left = merged.forgotten(*as_rows(views[cut:], labels[cut:])).solved()
    assert left.classes.tolist() == sorted(set(labels[:cut].tolist()))
    expected = wanted(head, views[:cut], labels[:cut], asked)
    assert reference.error(left.scores(asked), expected) < TOLERANCE


@given(problems(), st.data())
def test_leaving_an_image_out_leaves_all_its_views_out(problem, data):
    head, views, labels, _ = problem
    head = learned(head, views, labels)
    repeated = np.flatnonzero(np.bincount(labels)[labels] > 1)  # else its class would go, too
    if not len(repeated):
        return
    scores = head.leave_one_out_scores(views, labels)
    place = data.draw(st.sampled_from(repeated.tolist()))
    rest = np.delete(np.arange(len(labels)), place)
    expected = wanted(head, views[rest], labels[rest], views[place, :1])
    # 1 - h of what can be fitted exactly loses digits
    assert reference.error(scores[place : place + 1], expected) < 1e-3
