"""CLIP's own zero-shot classifier, which compares images with class names."""

import numpy as np

from visvm.bench.methods.method import Costs, Entry, Setup
from visvm.bench.methods.sums import count_classes
from visvm.bench.methods.text import joint, texts_of
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures


class ZeroShot:
    """Radford et al., *Learning Transferable Visual Models From Natural Language* (2021).

    The class whose text feature has the greatest cosine with the image, among those seen. The
    temperature of its softmax changes no answer. Nothing is learned.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup, self._n_classes = setup, 0

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:  # noqa: ARG002
        """Count the classes."""
        self._n_classes = count_classes(labels, self._n_classes)

    def predict(self, features: LayerFeatures) -> ClassNumbers:
        """Return class numbers, (n,)."""
        texts = texts_of(self._setup).features(range(self._n_classes))
        return np.asarray((joint(features, self._setup) @ texts.T).argmax(axis=1))

    def costs(self) -> Costs:
        """Return what is kept: the text features."""
        return Costs(0, 4 * texts_of(self._setup).features(range(self._n_classes)).size)


ENTRIES = [Entry("zs-clip", ZeroShot, needs=("text",), published="zs-clip")]
