"""The ceiling: the paper's method, learned anew from everything seen so far after every session."""

import numpy as np

from visvm.bench.methods.method import Entry, Setup, Traits
from visvm.bench.methods.vis import Vis
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures


class VisOracle(Vis):
    """Joint learning: blocks, mixer, λ and classifier all come from all data.

    No incremental method may keep these. A ceiling in what it may see; it can still lose by what it
    chooses. The choices are made again in every session, on fewer samples than those of ``vis``.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        n_components: int | None = 15000,
        max_selection_samples: int | None = 2000,
    ) -> None:
        super().__init__(
            setup, n_components=n_components, max_selection_samples=max_selection_samples
        )
        self._seen: tuple[LayerFeatures, ClassNumbers] | None = None

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Keep one more session, and learn all of them together."""
        if self._seen is not None:
            features = np.concatenate([self._seen[0], features])
            labels = np.concatenate([self._seen[1], labels])
        self._model.fit(features, labels)
        self._seen = features, labels

    def _state_bytes(self) -> int:
        # The sums are made anew each time, so they need not be kept; the features of all images
        # must.
        return sum(array.nbytes for array in self._seen or ()) + self._model.coefficients_.nbytes


ENTRIES = [Entry("vis-oracle", VisOracle, "oracle", traits=Traits(mixes=True, refits=True))]
