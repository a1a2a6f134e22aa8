"""A session's own photos → how accurate the model is, and how far its scores can be trusted.

Each of a sample is scored as if it had not been learned. Calibration wants that as well, so it
costs nothing more where the sums are thin; where they are dense, solving shares its factor.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from visvm.encoders.sources import RemoteFile
from visvm.head.checks import Labels
from visvm.head.doubts import doubts_of, sure
from visvm.head.products import Array, Indices
from visvm.learning.checking import same_contents
from visvm.learning.labelled import Labelled
from visvm.model.estimate import ClassEstimate, SessionEstimate

_WORST = 5  # classes that are named


@dataclass(frozen=True, eq=False)
class Unlearned:
    """Photos of a session, scored as if they had not been learned.

    Attributes
    ----------
    labels : array of shape (n,)
    scores : array of shape (n, C)
        Among all classes known.
    targets : array of shape (n,)
        Columns of their classes.
    affinities : array of shape (n, C) or None
        How close they are to the classes (``doubts.py``): these tell better than scores whether a
        label is wrong, and a check goes by them.
    """

    labels: Labels
    scores: Array
    targets: Indices
    affinities: Array | None


def estimated(
    found: Unlearned, counts: Sequence[int], n_again: int, n_learned: int = 0
) -> SessionEstimate | None:
    """Return how accurate a model is, as photos of the last session tell; None of one class.

    Parameters
    ----------
    found : Unlearned
    counts : sequence of int
        Images of every class known. The only one of a class is left out: without it, nothing is
        known of the class.
    n_again : int
        Photos that the session has twice.
    n_learned : int
        Photos of these that were learned before.
    """
    some = np.array(counts)[found.targets] > 1
    if len(counts) < 2 or not some.any():
        return None
    scores, targets, labels = found.scores[some], found.targets[some], found.labels[some]
    right = scores.argmax(axis=1) == targets
    n_wrong = 0
    if found.affinities is not None:
        doubts = doubts_of(found.affinities[some], targets)
        n_wrong = int((doubts.loses & (doubts.confidence >= sure(len(labels)))).sum())
    classes, places = np.unique(labels, return_inverse=True)
    n = np.bincount(places)
    shares = np.bincount(places, weights=right) / n
    order = [int(place) for place in np.lexsort((-n, shares)) if shares[place] < 1.0]
    worst = tuple(
        ClassEstimate(classes[place].item(), int(n[place]), float(shares[place]))
        for place in order[:_WORST]
    )
    return SessionEstimate(len(labels), float(right.mean()), worst, n_wrong, n_again, n_learned)


def copies_among(images: Labelled) -> int:
    """Return how many photos have a content and label that came before.

    Files at URIs are not read again for it.
    """
    places = [
        place for place, source in enumerate(images.sources) if not isinstance(source, RemoteFile)
    ]
    groups = same_contents([images.sources[place] for place in places])
    labels = [[images.labels[places[each]] for each in group] for group in groups]
    return sum(len(group) - len(set(group)) for group in labels)
