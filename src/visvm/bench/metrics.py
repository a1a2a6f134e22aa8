"""From predictions to the numbers that papers print.

A_b is the accuracy over all classes seen after session b; Ā its mean over sessions, A_B the last.
Everything here is a share between 0 and 1; only tables and figures speak of percent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from visvm.bench.streams import ClassNumbers


@dataclass(frozen=True)
class Scores:
    """How the test images of all classes seen so far were recognised.

    Parameters
    ----------
    accuracy : float
    class_correct, class_counts : list of int
        By class number: images recognised, and all of them.
    group_accuracy : list of float
        On the classes of each session.
    old_accuracy, new_accuracy, harmonic_mean : float or None
        On the classes of earlier sessions, of the last one, and their harmonic mean; None where
        there was one session only.
    confusions : list of (int, int, int)
        Class, what it was taken for, how often; most frequent first.
    """

    accuracy: float
    class_correct: list[int]
    class_counts: list[int]
    group_accuracy: list[float]
    old_accuracy: float | None
    new_accuracy: float | None
    harmonic_mean: float | None
    confusions: list[tuple[int, int, int]]


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
    ends = np.cumsum(session_sizes)
    groups = [slice(end - size, end) for end, size in zip(ends, session_sizes, strict=True)]
    old = slice(0, ends[-1] - session_sizes[-1])

    def share(classes: slice) -> float:
        return float(correct[classes].sum() / counts[classes].sum())

    several = len(session_sizes) > 1
    old_accuracy, new_accuracy = (share(old), share(groups[-1])) if several else (None, None)
    wrong = table - np.diag(correct)
    pairs = [
        (int(label), int(taken), int(wrong[label, taken])) for label, taken in np.argwhere(wrong)
    ]
    return Scores(
        accuracy=share(slice(0, ends[-1])),
        class_correct=correct.tolist(),
        class_counts=counts.tolist(),
        group_accuracy=[share(group) for group in groups],
        old_accuracy=old_accuracy,
        new_accuracy=new_accuracy,
        harmonic_mean=None
        if old_accuracy is None or new_accuracy is None
        else harmonic_mean(old_accuracy, new_accuracy),
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

    It is averaged over all sessions but the last.

    Parameters
    ----------
    group_accuracies : sequence of sequences of float
        After each session, the accuracy on the classes of each session so far: 1, 2, … B numbers.

    Returns
    -------
    float or None
        None for a single session, which can forget nothing.

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
