"""Layer features → scores of a model that is done learning, without scikit-learn: importing that takes longer than predicting."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visvm.head.fusion import ResidualMixer
from visvm.head.kernel_map import KernelMap
from visvm.head.memory import chunks
from visvm.head.products import product

Array = NDArray[np.float64]
Features = NDArray[np.float32] | NDArray[np.float64]


def scores_of(features: Features, lift: Callable[[Any], Array], coefficients: Array) -> Array:
    """Scores, (n, C), of features, (n, d), some at a time; the last row of the coefficients, (D + 1, C), is the bias."""
    scores = np.empty((len(features), coefficients.shape[1]))
    for rows in chunks(len(features), len(coefficients) - 1):
        scores[rows] = product(lift(features[rows]), coefficients[:-1])
    scores += coefficients[-1]
    return scores


class Predictor:
    """What predicting needs of a ``VisClassifier``, and nothing else.

    Parameters
    ----------
    mixer : ResidualMixer
    kernel_map : KernelMap
    coefficients : array of shape (D + 1, C)
    classes : array of shape (C,)
    hidden : str or int, optional
        A class that is never predicted, and not among `classes` afterwards.
    """

    def __init__(
        self,
        mixer: ResidualMixer,
        kernel_map: KernelMap,
        coefficients: Array,
        classes: NDArray[np.generic],
        hidden: str | int | None = None,
    ) -> None:
        self.mixer = mixer
        self.kernel_map = kernel_map
        self.coefficients = coefficients
        self._shown = np.array([label != hidden for label in classes.tolist()], dtype=bool)
        self.classes = classes[self._shown]

    def scores(self, features: Features) -> Array:
        """Scores, (n, C), of layer features, (n, sum of layer_dims)."""
        scores = scores_of(
            features, lambda rows: self.kernel_map.lift(self.mixer.fuse(rows)), self.coefficients
        )
        return scores[:, self._shown]

    def predict(self, features: Features) -> NDArray[np.generic]:
        """Labels, (n,), of layer features, (n, sum of layer_dims)."""
        return np.asarray(self.classes[self.scores(features).argmax(axis=1)])
