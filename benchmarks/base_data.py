"""The images that a base session gives to learn from, encoded."""

from dataclasses import dataclass

import numpy as np

from visvm.bench.loading import LabelledImages
from visvm.encoders.cache import FeatureCache
from visvm.encoders.encoder import Encoder
from visvm.encoders.pipeline import encode_files
from visvm.encoders.transform import Transform


@dataclass(frozen=True)
class Base:
    """A base session.

    Parameters
    ----------
    features : array of shape (n, sum of layer_dims)
        Of all layers.
    labels : array of shape (n,)
        Class numbers.
    layer_dims : tuple of int
    output : array of shape (n, width)
        What the encoder puts out.
    """

    features: np.ndarray
    labels: np.ndarray
    layer_dims: tuple[int, ...]
    output: np.ndarray

    def block(self, number: int) -> np.ndarray:
        """Return the feature of one block, (n, width)."""
        width = self.layer_dims[-1]
        return self.features[:, (number - 1) * width : number * width].astype(np.float64)

    @property
    def final(self) -> np.ndarray:
        """The feature of the last block, (n, width)."""
        return self.block(len(self.layer_dims))


def base_session(train: LabelledImages, classes: np.ndarray, encoder: Encoder) -> Base:
    """Encode the images of these classes, and no others."""
    rows = np.flatnonzero(np.isin(train.targets, classes))
    images = [train.images[row] for row in rows]
    transform = Transform("squash", encoder.preprocessing)
    with FeatureCache() as cache:
        encoded = encode_files(images, encoder, [transform], cache, lambda *_: None)
    if encoded.unreadable:
        raise SystemExit(f"{encoded.unreadable[0].path} cannot be read. Replace it.")
    labels = np.searchsorted(np.sort(classes), train.targets[rows])
    features = encoded.features[:, 0]
    output = encoder.project(features[:, -encoder.layer_dims[-1] :]).astype(np.float64)
    return Base(features, labels, encoder.layer_dims, output)
