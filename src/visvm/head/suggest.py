"""Scores and sums → which unlabelled samples would teach the most.

The ridge is a Gaussian model (``evidence.py``): where a sample lifts to φ̃, what is not known of its
scores has the variance φ̃ᵀ(G + μI)⁻¹φ̃, its *leverage*, in units of the noise. Labels do not enter
it. So it is known beforehand what a label for sample i leaves unknown of all others::

    K ← K - k·kᵀ / (1 + k_i)        K = Φ̃(G + μI)⁻¹Φ̃ᵀ over the candidates,  k its column i

It takes |k|² / (1 + k_i) from the sum of their leverages: much, where many are like it and little
is known of them. The sample is worth that, times its own doubt. A batch is chosen one sample after
another, each by the K that those before it leave (``benchmarks/SUGGEST.md``).
"""

import numpy as np

from visvm.head.products import Array, Indices

ALIKE = 0.95
"""Samples whose features have at least this cosine are near-duplicates.

``likeness_of`` (``doubts.py``) cannot say so here: it centres the features and asks how close a
class is, and these samples have no labels and may be a batch of one picture alone.
"""


def first_choices(covariance: Array, doubts: Array, features: Array, n: int) -> Indices:
    """Return the places of at most `n` candidates to label, the most telling first.

    Parameters
    ----------
    covariance : array of shape (m, m)
        K; it is overwritten.
    doubts : array of shape (m,)
        How much each answer is in doubt, from 0 to 1.
    features : array of shape (m, d)
        By which near-duplicates are known: no two of them are chosen.
    n : int

    Examples
    --------
    >>> covariance, doubts = np.diag([1.0, 4.0, 3.9, 2.0]), np.array([0.1, 0.5, 0.5, 0.5])
    >>> features = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> first_choices(covariance, doubts, features, 3).tolist()  # the third is the second again
    [1, 3, 0]
    """
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    directions = features / np.where(lengths > 0.0, lengths, 1.0)
    left, places = np.ones(len(doubts), dtype=bool), list[int]()
    while left.any() and len(places) < n:
        taken = np.square(covariance).sum(axis=0) / (1.0 + covariance.diagonal())
        place = int(np.where(left, taken * doubts, -np.inf).argmax())
        places.append(place)
        left &= directions @ directions[place] < ALIKE
        left[place] = False  # also where its feature is zero
        column = covariance[:, place].copy()
        covariance -= np.outer(column, column / (1.0 + column[place]))
    return np.array(places, dtype=np.intp)


def hesitations(probabilities: Array) -> Array:
    """Return how little the likeliest class is ahead of the next, (n,), from (n, C).

    It is 1 where both are equally likely, and where there is one class only.
    """
    if probabilities.shape[1] < 2:
        return np.ones(len(probabilities))
    best = np.partition(probabilities, -2, axis=1)[:, -2:]
    return np.asarray(1.0 - (best[:, 1] - best[:, 0]))
