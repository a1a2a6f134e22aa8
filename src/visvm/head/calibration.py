"""Scores → calibrated probabilities.

``p = softmax(β · scores)``, with one number β chosen so that the probabilities of *unseen* images
are right. Images held back for this would be lost for learning. So the images of each session are
scored as if each had not been learned (leave-one-out, in closed form), and the log-likelihood of
their labels is noted for a grid of β. These are sums over images too: merging adds them. At each
new session the older sums count half, because they were measured among fewer classes.

A few images that are all recognised would call for an infinite β. So every label of n images is
taken to be wrong with a chance of one in n + 2, as in Platt (1999).
"""

import numpy as np
from scipy.special import log_softmax, softmax

from visvm.head.products import Array, Indices

INVERSE_TEMPERATURES: Array = np.geomspace(0.25, 64.0, 49)
"""The grid of β."""


def log_likelihoods(scores: Array, targets: Indices, weight: Array | None = None) -> Array:
    """Return the log-likelihood of labels under every β of the grid, (49,).

    Parameters
    ----------
    scores : array of shape (n, C)
        Of images that the model did not learn, or leave-one-out scores.
    targets : array of shape (n,)
        Columns of the true classes.
    weight : array of shape (n,), optional
        How often each image counts.

    Examples
    --------
    >>> right = np.array([[2.0, 0.0], [0.0, 2.0]]); wrong = right[::-1]
    >>> targets = np.tile([0, 1], 20)
    >>> high, low = (log_likelihoods(np.tile(x, (20, 1)), targets) for x in (right, wrong))
    >>> inverse_temperature(high) > 1 > inverse_temperature(low)
    True
    """
    n, n_classes = scores.shape
    weight = np.ones(n) if weight is None else weight
    doubt = 1.0 / (weight.sum() + 2.0)
    sums = np.empty(len(INVERSE_TEMPERATURES))
    for place, beta in enumerate(INVERSE_TEMPERATURES):
        logs = log_softmax(beta * scores, axis=1)
        right = weight @ logs[np.arange(n), targets]
        sums[place] = (1.0 - doubt) * right + doubt * (weight @ logs.sum(axis=1)) / n_classes
    return sums


def inverse_temperature(sums: Array) -> float:
    """Return the β under which the labels noted in these sums, (49,), are likeliest."""
    return float(INVERSE_TEMPERATURES[np.argmax(sums)])


def probabilities(scores: Array, sums: Array) -> Array:
    """Turn scores, (n, C), into probabilities of the classes, (n, C)."""
    return np.asarray(softmax(inverse_temperature(sums) * scores, axis=1))
