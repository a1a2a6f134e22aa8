"""From predictions to the numbers that papers print.

A_b is the accuracy over all classes seen after session b; Ā its mean over sessions, A_B the last.
Everything here is a share between 0 and 1; only tables and figures speak of percent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from visvm.bench.streams import ClassNumbers


@dataclass(frozen=True)
class Scores:
    """How the test images of all classes seen so far were recognised."""

    accuracy: float
    class_correct: list[int]  # images recognised, by class number
    class_counts: list[int]  # all images, likewise
    group_accuracy: list[float]  # on the classes of each session
    old_accuracy: float | None  # on the classes of earlier sessions; None if there was one only
    new_accuracy: float | None  # on those of the last, likewise
    harmonic_mean: float | None  # of both, likewise
    confusions: list[tuple[int, int, int]]  # class, taken for, how often; most frequent first


def score(labels: ClassNumbers, predicted: ClassNumbers, session_sizes: Sequence[int]) -> Scores:
    """Compare what was predicted with what is true.

    Parameters
    ----------
    labels, predicted : int arrays of shape (n,)
        Class numbers in the order of arrival; every class has images.
    session_sizes : sequence of int
        How many classes each session brought.

    Examples
    --------
    >>> scores = score(np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 1, 0, 2, 0]), [2, 1])
    >>> scores.group_accuracy, scores.class_correct, scores.confusions
    ([0.75, 0.5], [2, 1, 1], [(1, 0, 1), (2, 0, 1)])
    >>> scores.old_accuracy, scores.new_accuracy, round(scores.harmonic_mean, 3)
    (0.75, 0.5, 0.6)
    """
    table = confusion_matrix(labels, predicted, sum(session_sizes))
    correct, counts = np.diag(table), table.sum(axis=1)
    ends = [0, *np.cumsum(session_sizes).tolist()]

    def share(begin: int, end: int) -> float:
        return float(correct[begin:end].sum() / counts[begin:end].sum())

    groups = [share(begin, end) for begin, end in pairwise(ends)]
    old = share(0, ends[-2]) if len(groups) > 1 else None
    wrong = table - np.diag(correct)
    pairs = [
        (label, taken, int(wrong[label, taken])) for label, taken in np.argwhere(wrong).tolist()
    ]
    return Scores(
        accuracy=share(0, ends[-1]),
        class_correct=correct.tolist(),
        class_counts=counts.tolist(),
        group_accuracy=groups,
        old_accuracy=old,
        new_accuracy=None if old is None else groups[-1],
        harmonic_mean=None if old is None else harmonic_mean(old, groups[-1]),
        confusions=sorted(pairs, key=lambda pair: (-pair[2], pair)),
    )


def confusion_matrix(
    labels: ClassNumbers, predicted: ClassNumbers, n_classes: int
) -> NDArray[np.intp]:
    """Count how often each class, by row, was taken for each other, by column: (C, C)."""
    table = np.zeros((n_classes, n_classes), dtype=np.intp)
    np.add.at(table, (labels, predicted), 1)
    return table


def harmonic_mean(first: float, second: float) -> float:
    """Return 2ab / (a + b); 0 where both are 0."""
    return 2 * first * second / (first + second) if first + second else 0.0


def average_accuracy(accuracies: Sequence[float]) -> float:
    """Return Ā, the exact mean of A_1 … A_B; some toolboxes average values that were rounded first.

    Examples
    --------
    >>> average_accuracy([0.75, 0.5, 0.25])
    0.5
    """
    return float(np.mean(accuracies))


def forgetting(group_accuracies: Sequence[Sequence[float]]) -> float | None:
    """Return F_B: how far the accuracy on a session's classes fell from its best to the end.

    It is averaged over all sessions but the last; a single session can forget nothing, so None.

    Parameters
    ----------
    group_accuracies : sequence of sequences of float
        After each session, the accuracy on the classes of each session so far: 1, 2, … B numbers.

    Examples
    --------
    >>> forgetting([[0.9], [0.8, 0.7], [0.85, 0.75, 0.6]])  # (0.9 - 0.85 + 0.7 - 0.75) / 2
    0.0
    """
    last = len(group_accuracies) - 1
    if last == 0:
        return None
    falls = [
        max(after[group] for after in group_accuracies[group:last]) - group_accuracies[last][group]
        for group in range(last)
    ]
    return float(np.mean(falls))
