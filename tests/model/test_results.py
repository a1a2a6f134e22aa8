"""Accuracies and confusions, counted by hand."""

import pytest

from visvm.model.results import (
    ClassResult,
    Confusion,
    SessionTest,
    accuracy,
    evaluate_labels,
    session_test,
)

#          right  wrong  right  wrong  wrong  wrong  right
LABELS = ["cat", "cat", "dog", "dog", "dog", "cow", "cat"]
GUESSES = ["cat", "dog", "dog", "cat", "cat", "dog", "cat"]


def test_accuracy_is_the_share_of_equal_labels():
    assert accuracy(LABELS, GUESSES) == 3 / 7
    assert accuracy([1, 2], [1, 2]) == 1.0
    assert accuracy(["1"], ["2"]) == 0.0


def test_every_label_needs_a_prediction():
    with pytest.raises(ValueError, match="shorter"):
        accuracy(LABELS, GUESSES[:-1])
    with pytest.raises(ValueError, match="shorter"):
        evaluate_labels(LABELS, GUESSES[:-1])


def test_an_evaluation_by_hand():
    got = evaluate_labels(LABELS, GUESSES)
    assert (got.n, got.accuracy) == (7, 3 / 7)
    assert got.per_class == {
        "cat": ClassResult(3, 2 / 3),
        "cow": ClassResult(1, 0.0),
        "dog": ClassResult(3, 1 / 3),
    }
    assert list(got.per_class) == ["cat", "cow", "dog"]
    assert got.confusions == (
        Confusion("dog", "cat", 2),
        Confusion("cat", "dog", 1),
        Confusion("cow", "dog", 1),
    )
    assert (got.never_learned, got.skipped) == ((), ())


def test_classes_that_are_only_predicted_have_no_accuracy():
    got = evaluate_labels(["cat"], ["dog"])
    assert got.per_class == {"cat": ClassResult(1, 0.0)}
    assert got.confusions == (Confusion("cat", "dog", 1),)


def test_numbers_are_sorted_as_numbers():
    got = evaluate_labels([10, 9, 9], [10, 10, 9])
    assert list(got.per_class) == [9, 10]
    assert got.confusions == (Confusion(9, 10, 1),)


def test_all_right_has_no_confusions():
    assert evaluate_labels(LABELS, LABELS).confusions == ()


def test_what_was_left_out_is_told():
    got = evaluate_labels(["cat"], ["cat"], never_learned=["emu"], skipped=["a.jpg", "b.jpg"])
    assert (got.never_learned, got.skipped) == (("emu",), ("a.jpg", "b.jpg"))


@pytest.mark.parametrize(
    ("new", "old_accuracy", "new_accuracy"),
    [
        ({"cow"}, 0.5, 0.0),
        ({"cat"}, 0.25, 2 / 3),
        (set(), 3 / 7, None),
        ({"cat", "dog", "cow"}, None, 3 / 7),
        ({"emu"}, 3 / 7, None),
    ],
)
def test_old_and_new_classes_are_told_apart(new, old_accuracy, new_accuracy):
    assert session_test(LABELS, GUESSES, new) == SessionTest(7, 3 / 7, old_accuracy, new_accuracy)
