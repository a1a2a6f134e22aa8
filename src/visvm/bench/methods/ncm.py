"""Nearest class mean on the paper's own lifted features."""

from functools import cached_property
from typing import Any

from visvm.bench.methods.linear import best_classes, linear_discriminant
from visvm.bench.methods.method import Entry, Traits
from visvm.bench.methods.sums import ClassSums
from visvm.bench.methods.vis import Vis
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.head.lift import Lift


class NearestClassMean(Vis):
    """The paper's classifier-choice "NCM": features of ``vis``, the class with the nearest mean φ.

    Blocks, mixer, random map and options are those of ``vis``; λ and C_svm matter only to the
    choice of blocks. The distance is Euclidean, between lifted features.
    """

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Add one session to the class sums; the first one settles blocks and mixer."""
        if self._model.head_ is None:
            self._model.settle(features, labels)
        self._sums.learn(features, labels, self._lift)

    def predict(self, features: LayerFeatures) -> ClassNumbers:
        """Return class numbers, (n,)."""
        means = self._sums.means
        return best_classes(features, self._lift, linear_discriminant(means, means))

    @cached_property
    def _sums(self) -> ClassSums:
        return ClassSums(self._lift.width)

    @property
    def _lift(self) -> Lift:
        assert self._model.head_ is not None
        return self._model.head_.settled.lift

    def _state_bytes(self) -> int:
        return self._sums.nbytes

    def _choices(self) -> dict[str, Any]:
        choices = super()._choices()
        return {name: choices[name] for name in ("layers", "mixer_is_identity")}


ENTRIES = [Entry("ncm", NearestClassMean, "relative", traits=Traits(mixes=True))]
