"""The ceiling: the paper's method, learned anew from everything seen so far after every session."""

import numpy as np

from visvm.bench.methods.method import Features, Labels
from visvm.bench.methods.vis import Vis


class VisOracle(Vis):
    """Joint learning: blocks, mixer, λ and classifier all come from all data, which no incremental method may keep.

    Parameters
    ----------
    setup : Setup
    n_components, layers, ridge, svm_cost, hidden, epochs, learning_rate, batch_size, identity_weight, max_selection_samples
        As in ``visvm.VisClassifier``.
    """

    _seen: tuple[Features, Labels] | None = None

    def learn(self, features: Features, labels: Labels) -> None:
        """Keep one more session, and learn all of them together."""
        if self._seen is not None:
            features, labels = np.concatenate([self._seen[0], features]), np.concatenate([self._seen[1], labels])
        self._model.fit(features, labels)
        self._seen = features, labels

    def _state_bytes(self) -> int:
        # The sums are made anew each time, so they need not be kept; the features of all images must.
        return sum(array.nbytes for array in self._seen or ()) + self._model.coefficients_.nbytes
