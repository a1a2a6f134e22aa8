"""What text says of classes, beside the sums: it counts as some more samples of its class.

It is no part of the sums. Whenever coefficients are solved, one weighted sample of every class that
is known and has a text joins a copy of them. So learning, merging and forgetting stay sums of
photos, and the text of a class counts once, wherever its photos came from.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from visvm.head.products import Array
from visvm.head.statistics import Statistics

TEXT_WEIGHT = 32.0
"""How many photos a text counts as (``benchmarks/TEXT.md``)."""


@dataclass(frozen=True, eq=False)
class TextSamples:
    """One sample of each of some classes, by what its text says.

    Attributes
    ----------
    classes : tuple of labels
        One may be there twice, where two classes became one.
    rows : array of shape (n, width)
        Directions of fused features. Their lengths are brought to those of the photos, by the sums.
    weight : float
        How many photos each counts as.

    Examples
    --------
    >>> photos = Statistics(2)
    >>> photos.add(np.array([[0.0, 2.0], [2.0, 0.0]]), np.array(["ape", "bee"]))
    >>> both = TextSamples(("ape", "cat"), np.array([[0.0, 1.0], [1.0, 1.0]]), 3.0).beside(
    ...     photos, lambda rows: rows
    ... )
    >>> both.class_sums.round(9).tolist()
    [[0.0, 2.0], [8.0, 0.0], [4.0, 1.0]]
    >>> photos.class_counts.tolist()
    [1.0, 1.0]
    """

    classes: tuple[Any, ...]
    rows: Array
    weight: float = TEXT_WEIGHT

    def beside(self, sums: Statistics, lift: Callable[[Array], Array]) -> Statistics:
        """Return sums with the texts of their classes; `lift` takes fused features, (n, width)."""
        known = set(sums.classes.tolist())
        places = [place for place, label in enumerate(self.classes) if label in known]
        if not places:
            return sums
        lifted = lift(self.rows[places])
        own = float(np.square(lifted).sum()) / len(places)
        lifted *= np.sqrt(sums.square_sum() / sums.n_samples / max(own, np.finfo(float).tiny))
        both = sums.copy()
        labels = np.array([self.classes[place] for place in places])
        both.add(lifted, labels, np.full(len(places), self.weight))
        return both

    def joined(self, other: "TextSamples | None") -> "TextSamples":
        """Return these, and the other's of classes that have none here."""
        if other is None:
            return self
        more = [place for place, label in enumerate(other.classes) if label not in self.classes]
        added = tuple(other.classes[place] for place in more)
        return replace(
            self, classes=self.classes + added, rows=np.vstack([self.rows, other.rows[more]])
        )

    def renamed(self, old: Any, new: Any) -> "TextSamples":
        """Return these with another name for a class."""
        return replace(self, classes=tuple(new if each == old else each for each in self.classes))
