"""Images as pixels, for the methods that train through the encoder."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visvm.encoders.cache import FeatureCache
from visvm.encoders.encoder import Encoder, LayerFeatures, Pixels
from visvm.encoders.images import decode
from visvm.encoders.pipeline import encode_files, refuse_unreadable
from visvm.encoders.sources import Source, content_of
from visvm.encoders.transform import Transform

_AREA = 0.05, 1.0  # shares of a picture that a random crop shows, before it is made square
_RATIO = 3 / 4, 4 / 3


class Pictures:
    """Images that can be seen, in the order of the features beside them.

    Parameters
    ----------
    sources : sequence of Source
    transform : Transform
        Makes them square.
    cache : FeatureCache, optional
        Of the features that an encoder makes of them.
    """

    def __init__(
        self, sources: Sequence[Source], transform: Transform, cache: FeatureCache | None = None
    ) -> None:
        self._sources, self._transform, self._cache = sources, transform, cache

    def __len__(self) -> int:
        return len(self._sources)

    def at(self, places: NDArray[np.intp]) -> "Pictures":
        """Return those at some places; nothing leads from them to the others."""
        return Pictures([self._sources[place] for place in places], self._transform, self._cache)

    def pixels(self, places: NDArray[np.intp]) -> Pixels:
        """Return some as the encoder takes them, (n, 3, size, size)."""
        found = [decode(content_of(self._sources[place]), self._transform) for place in places]
        return np.stack(found)

    def views(self, places: NDArray[np.intp], generator: np.random.Generator) -> Pixels:
        """Return a random part of each, mirrored every second time, (n, 3, size, size)."""
        return np.stack([random_view(each, generator) for each in self.pixels(places)])

    def encode(self, encoder: Encoder) -> LayerFeatures:
        """Return the layer features that an encoder makes of all of them, (n, width)."""
        encoded = encode_files(self._sources, encoder, [self._transform], self._cache)
        refuse_unreadable(encoded.unreadable, "")
        return np.asarray(encoded.features[:, 0])


def random_view(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """Return a random part of an image, (3, size, size), at full size and perhaps mirrored.

    It has 5 to 100 % of the area, and sides whose ratio is 3:4 to 4:3.
    """
    size = pixels.shape[-1]
    area = generator.uniform(*_AREA)
    ratio = np.exp(generator.uniform(*np.log(_RATIO)))
    width, height = (min(np.sqrt(area * part), 1.0) * size for part in (ratio, 1 / ratio))
    left, top = generator.uniform(0, size - width), generator.uniform(0, size - height)
    box = (left, top, left + width, top + height)
    channels = [
        np.asarray(Image.fromarray(each).resize((size, size), Image.Resampling.BICUBIC, box))
        for each in pixels
    ]
    view = np.stack(channels)
    return view[:, :, ::-1].copy() if generator.random() < 0.5 else view
