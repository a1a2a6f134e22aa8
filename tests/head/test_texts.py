"""Texts of classes beside the sums: every solution has them, and the sums never do."""

import numpy as np
import pytest

from visvm.head.head import Head
from visvm.head.settle import HeadOptions, settle
from visvm.head.solver import solve
from visvm.head.statistics import Statistics
from visvm.head.texts import TextSamples

GENERATOR = np.random.default_rng(0)
CENTRES = GENERATOR.normal(size=(4, 6))
Y = np.array(list("abcd") * 5)
X = CENTRES[np.arange(20) % 4] + 0.5 * GENERATOR.normal(size=(20, 6))
TEST = CENTRES[np.arange(40) % 4] + 0.5 * GENERATOR.normal(size=(40, 6))
TEXTS = TextSamples(tuple("abce"), GENERATOR.normal(size=(4, 6)), 3.0)
SETTLED = settle(X, Y, HeadOptions(n_components=60, fused=False))


def head_of(rows, texts=TEXTS):
    head = Head.blank(SETTLED).learned(X[rows], Y[rows])
    return (head if texts is None else head.with_texts(texts)).solved()


def test_a_text_is_a_weighted_sample_as_long_as_a_photo():
    head, lift = head_of(range(20)), SETTLED.lift.kernel_map.lift
    lifted, said = lift(X), lift(TEXTS.rows[:3])
    said *= np.sqrt(np.square(lifted).sum(axis=1).mean() / np.square(said).sum(axis=1).mean())
    sums = Statistics(60)
    sums.add(np.vstack([lifted, said]), np.append(Y, list("abc")), np.repeat([1.0, 3.0], [20, 3]))
    assert head.coefficients == pytest.approx(solve(sums, SETTLED.ridge, 10.0), abs=1e-9)
    assert head.statistics.class_counts.tolist() == [5.0] * 4
    assert not np.allclose(head.scores(TEST), head_of(range(20), None).scores(TEST), atol=1e-3)


def test_one_that_is_not_known_yet_waits_and_a_newer_one_takes_its_place():
    assert "e" not in head_of(range(20)).classes
    later = head_of(range(20)).learned(X[:1], np.array(["e"])).solved()
    alone = Head.of(SETTLED, later.statistics).with_texts(TEXTS).solved()
    assert np.array_equal(later.coefficients, alone.coefficients)
    other = TextSamples(("a",), TEXTS.rows[3:], 3.0)
    found = head_of(range(20)).with_texts(other).settled.texts
    assert found.classes == ("a", "b", "c", "e")
    assert np.array_equal(found.rows[0], other.rows[0])


@pytest.mark.parametrize("dense", [False, True])
def test_sessions_merging_and_forgetting_leave_the_same_answers(dense, monkeypatch):
    if dense:
        monkeypatch.setattr("visvm.head.statistics.THIN_SHARE", 0.1)
    whole = head_of(range(20))
    wanted = pytest.approx(whole.scores(TEST), abs=1e-8)
    assert head_of(range(12)).learned(X[12:], Y[12:]).solved().scores(TEST) == wanted
    assert head_of(range(12)).merged(head_of(range(12, 20))).solved().scores(TEST) == wanted
    back = whole.forgotten(X[12:], Y[12:]).solved()
    assert back.scores(TEST) == pytest.approx(head_of(range(12)).scores(TEST), abs=1e-8)
    assert back.unmerged(Head.blank(SETTLED).learned(X[:4], Y[:4])).solved().scores(
        TEST
    ) == pytest.approx(head_of(range(4, 12)).scores(TEST), abs=1e-8)


def test_left_out_photos_leave_the_texts_where_they_are():
    head = head_of(range(20))
    found = head.leave_one_out_scores(X, Y)
    said = head.solution_sums()
    for row in (0, 7):
        sums = said.copy()
        sums.subtract(SETTLED.lift(X[row : row + 1]), Y[row : row + 1])
        coefficients = solve(sums, SETTLED.ridge, 10.0)
        wanted = SETTLED.lift(X[row : row + 1]) @ coefficients[:-1] + coefficients[-1]
        assert found[row] == pytest.approx(wanted[0], abs=1e-8)
    with head.factor_kept():
        assert head.leave_one_out_scores(X, Y) == pytest.approx(found)


def test_a_text_follows_its_class_to_another_name():
    head = head_of(range(20)).renamed("a", "z")
    assert head.settled.texts.classes == ("z", "b", "c", "e")
    again = head.solved()
    assert again.coefficients == pytest.approx(head.coefficients)
    both = head_of(range(20)).renamed("a", "b", merge=True)
    assert both.settled.texts.classes == ("b", "b", "c", "e")
    more = both.solution_sums().class_counts - both.statistics.class_counts
    assert more.tolist() == [6.0, 3.0, 0.0]


def test_sites_get_no_texts():
    assert head_of(range(20)).settled.bare.texts is None
