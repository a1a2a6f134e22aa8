"""Text features of the classes of a stream: those that have arrived, and no others."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visvm.bench.streams import Samples
from visvm.encoders.texts import Phrases, TextFeatures, is_chance, unit
from visvm.errors import EncoderError, VisvmError
from visvm.head.products import Array

_SAMPLES = 1000  # images that kinship is judged by


class ClassTexts:
    """Names and text features by class number, as far as classes have arrived.

    Parameters
    ----------
    texts : TextFeatures
        Of all classes of the data set, in its order.
    order : sequence of int
        The classes by class number, as places in the data set.
    n_seen : callable
        Returns how many classes have arrived.

    Examples
    --------
    >>> texts = TextFeatures(("ape", "bee"), np.eye(2, dtype=np.float32)[:, None])
    >>> seen = ClassTexts(texts, [1, 0], lambda: 1)
    >>> seen.names([0]), seen.features([0]).tolist()
    (['bee'], [[0.0, 1.0]])
    """

    def __init__(
        self, texts: TextFeatures, order: Sequence[int], n_seen: Callable[[], int]
    ) -> None:
        self._texts, self._order, self._n_seen = texts, np.asarray(order, dtype=np.intp), n_seen

    @property
    def scale(self) -> float:
        """What cosines are multiplied by before the softmax."""
        return self._texts.scale

    def names(self, numbers: Sequence[int]) -> list[str]:
        """Return the names of classes that have arrived."""
        return [self._texts.names[place] for place in self._places(numbers)]

    def features(self, numbers: Sequence[int]) -> Array:
        """Return their text features over all prompts, (C, p), of unit length."""
        return self._texts.prototypes[self._places(numbers)].astype(np.float64)

    def each(self, numbers: Sequence[int]) -> Array:
        """Return their text features by prompt, (C, K, p); methods train with the first."""
        return self._texts.features[self._places(numbers)].astype(np.float64)

    def phrases(self, numbers: Sequence[int]) -> Phrases:
        """Return what is said of these classes alone, or of one beside another, by class number."""
        places, said = self._places(numbers), self._texts.phrases
        number = np.full(len(self._texts.names) + 1, -2)  # the last one is that of -1
        number[places], number[-1] = numbers, -1
        both = number[said.classes]
        kept = np.flatnonzero((both > -2).all(axis=1))
        return Phrases(tuple(said.texts[row] for row in kept), said.features[kept], both[kept])

    def _places(self, numbers: Sequence[int]) -> NDArray[np.intp]:
        wanted = np.asarray(numbers, dtype=np.intp)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < self._n_seen():
            raise VisvmError(
                f"The text of class {wanted.max()} was asked for when {self._n_seen()} classes had "
                "arrived. Correct the method to ask for classes it has seen.",
                code="text-of-the-future",
            )
        return self._order[wanted]


def require_kinship(
    texts: TextFeatures, train: Samples, project: Callable[[NDArray[Any]], NDArray[Any]]
) -> None:
    """Refuse text features that say no more of the training images than chance would.

    `project` takes the layer features of images, (n, width), to the joint space, (n, p).
    """
    n = len(train.targets)
    rows = np.unique(np.linspace(0, n - 1, min(n, _SAMPLES)).astype(np.intp))
    nearest = (project(train.features[rows]) @ unit(texts.prototypes).T).argmax(axis=1)
    right, n_classes = int((nearest == train.targets[rows]).sum()), len(texts.names)
    if is_chance(right, len(rows), n_classes):
        raise EncoderError(
            f"The text features name {right} of {len(rows)} training images of {n_classes} classes "
            "rightly, which is chance. Give those of the text tower that belongs to this encoder.",
            code="text-at-chance",
        )
