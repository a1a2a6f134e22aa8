"""The numbers that papers print, on matrices small enough to be worked out by hand."""

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix as reference_confusions

from visvm.bench.metrics import average_accuracy, confusion_matrix, forgetting, harmonic_mean, score


def test_a_hand_made_session():
    labels = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2, 2])
    predicted = np.array([0, 0, 0, 1, 1, 2, 2, 0, 0, 0])
    scores = score(labels, predicted, [1, 1, 1])
    assert scores.accuracy == pytest.approx(0.5)
    assert scores.group_accuracy == [0.75, 0.5, 0.25]
    assert (scores.class_correct, scores.class_counts) == ([3, 1, 1], [4, 2, 4])
    assert scores.old_accuracy == pytest.approx(4 / 6)
    assert scores.new_accuracy == 0.25
    assert scores.harmonic_mean == pytest.approx(2 * (4 / 6) * 0.25 / (4 / 6 + 0.25))
    assert scores.confusions == [(2, 0, 3), (0, 1, 1), (1, 2, 1)]


def test_sessions_of_several_classes_are_groups():
    labels = np.array([0, 1, 2, 3, 4])
    scores = score(labels, np.array([0, 1, 2, 0, 4]), [2, 3])
    assert scores.group_accuracy == [1.0, pytest.approx(2 / 3)]


def test_the_first_session_has_neither_old_nor_new():
    scores = score(np.array([0, 1]), np.array([0, 0]), [2])
    assert (scores.old_accuracy, scores.new_accuracy, scores.harmonic_mean) == (None, None, None)


def test_confusions_are_those_of_scikit_learn():
    generator = np.random.default_rng(0)
    labels, predicted = generator.integers(0, 5, (2, 200))
    assert (confusion_matrix(labels, predicted, 5) == reference_confusions(labels, predicted)).all()


def test_harmonic_mean():
    assert harmonic_mean(0.5, 0.5) == 0.5
    assert harmonic_mean(1.0, 0.0) == 0.0
    assert harmonic_mean(0.0, 0.0) == 0.0


def test_the_exact_mean_agrees_with_that_of_rounded_values():
    accuracies = np.random.default_rng(0).random(10)
    rounded = np.mean(np.round(100 * accuracies, 2))
    assert 100 * average_accuracy(accuracies.tolist()) == pytest.approx(rounded, abs=0.01)


def test_forgetting_of_a_hand_made_matrix():
    after = [[0.9], [0.6, 0.8], [0.7, 0.5, 0.9], [0.5, 0.6, 0.7, 1.0]]
    # best before the end: 0.9, 0.8, 0.9; at the end: 0.5, 0.6, 0.7
    assert forgetting(after) == pytest.approx((0.4 + 0.2 + 0.2) / 3)


def test_what_gets_better_counts_against_forgetting():
    assert forgetting([[0.5], [0.7, 0.6], [0.9, 0.6, 0.5]]) == pytest.approx((-0.2 + 0.0) / 2)


def test_a_single_session_forgets_nothing():
    assert forgetting([[0.9]]) is None
