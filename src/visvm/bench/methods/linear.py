"""Final block in, class numbers out: what the methods that end in linear scores share."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visvm.bench.methods.method import Setup
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.head.head import scores_of
from visvm.head.products import Array

Lifting = Callable[[Any], Array]
"""Gives the features that coefficients belong to, (m, D), of m samples."""


def final_block(features: LayerFeatures, setup: Setup) -> Array:
    """Copy the final block's feature, (n, layer_dims[-1]), in float64."""
    return features[:, -setup.layer_dims[-1] :].astype(np.float64)


def best_classes(features: NDArray[Any], lift: Lifting, coefficients: Array) -> ClassNumbers:
    """Return the classes, (n,), of the highest scores; the last of the D + 1 rows is the bias."""
    return np.asarray(scores_of(features, lift, coefficients).argmax(axis=1))


def linear_discriminant(means: Array, directions: Array) -> Array:
    """Return coefficients, (D + 1, C), whose highest score belongs to the nearest class mean.

    ``(x - m)ᵀΛ(x - m) = xᵀΛx - 2·(mᵀΛx - mᵀΛm / 2)``, of which xᵀΛx is the same for all classes.

    Parameters
    ----------
    means : array of shape (D, C)
        Class means m.
    directions : array of shape (D, C)
        Λm; the means themselves for the Euclidean distance.

    Examples
    --------
    >>> means = np.array([[0.0, 4.0]])
    >>> coefficients = linear_discriminant(means, means)
    >>> best_classes(np.array([[1.9], [2.1]]), np.asarray, coefficients).tolist()
    [0, 1]
    """
    return np.vstack([directions, -0.5 * np.einsum("ij,ij->j", means, directions)])
