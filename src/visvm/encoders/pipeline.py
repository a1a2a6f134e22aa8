"""Turn images into layer features, through the cache; decode some while others are encoded."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from visvm.encoders.cache import FeatureCache, feature_key
from visvm.encoders.encoder import Encoder, LayerFeatures, Pixels
from visvm.encoders.images import decode
from visvm.encoders.sources import Source, content_of
from visvm.encoders.transform import Transform
from visvm.errors import EncoderError, ImageError, shown
from visvm.progress import Progress, silent

BATCH_SIZE = 8
_WORKERS = 2
# images read ahead of their turn: this bounds the memory that a folder of any size takes
_AHEAD = 8 * BATCH_SIZE


@dataclass(frozen=True)
class Unreadable:
    """A file that is not an image, and why."""

    path: str
    reason: str


@dataclass
class ReadImage:
    """An image on its way, in all its views: decoded, found in the cache, or unreadable.

    Attributes
    ----------
    path : str
        What messages call it.
    keys : list of bytes
        Keys of its views' features in the cache.
    pixels : dict of arrays of shape (3, size, size)
        By view, of those that have no features yet.
    features : dict of arrays of shape (width,)
        By view.
    reason : str
        Why there is neither.
    """

    path: str
    keys: list[bytes] = field(default_factory=list)
    pixels: dict[int, Pixels] = field(default_factory=dict)
    features: dict[int, LayerFeatures] = field(default_factory=dict)
    reason: str = ""

    @property
    def rows(self) -> LayerFeatures:
        """Features of all views, (V, width)."""
        return np.stack([self.features[view] for view in sorted(self.features)])


@dataclass
class Encoded:
    """Layer features of those images that could be read.

    Attributes
    ----------
    places : list of int
        Their positions among the images given.
    features : array of shape (n, V, width)
        Of every view.
    unreadable : list of Unreadable
        The other images.
    """

    places: list[int]
    features: LayerFeatures
    unreadable: list[Unreadable] = field(default_factory=list)


def encode_stream(
    images: Sequence[Source],
    encoder: Encoder,
    views: Sequence[Transform],
    cache: FeatureCache | None,
) -> Iterator[list[tuple[str, LayerFeatures] | Unreadable]]:
    """Encode images in order, some at a time.

    Parameters
    ----------
    images : sequence of Source
    encoder : Encoder
    views : sequence of Transform
        What of an image is encoded: each view has features of its own.
    cache : FeatureCache, optional

    Yields
    ------
    list
        For every image the features of its views, (V, width), or why there are none.
    """

    def prepare(source: Source) -> ReadImage:
        return read_image(source, encoder.digest, encoder.layer_dims, views, cache)

    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="visvm-decode") as pool:
        coming: deque[Future[ReadImage]] = deque()
        left = iter(images)
        try:
            coming.extend(pool.submit(prepare, source) for source in islice(left, _AHEAD))
            batch: list[ReadImage] = []
            while coming:
                batch.append(coming.popleft().result())
                coming.extend(pool.submit(prepare, source) for source in islice(left, 1))
                if (
                    sum(len(image.pixels) for image in batch) >= BATCH_SIZE
                    or len(batch) == _AHEAD
                    or not coming
                ):
                    encode_images(batch, encoder, cache)
                    yield [_outcome(image) for image in batch]
                    batch = []
        finally:
            for future in coming:
                future.cancel()


def encode_files(
    images: Sequence[Source],
    encoder: Encoder,
    views: Sequence[Transform],
    cache: FeatureCache | None,
    progress: Progress = silent,
    stage: str = "encoding",
) -> Encoded:
    """Encode images all together; parameters as in ``encode_stream``, and the stage to report."""
    width = sum(encoder.layer_dims)
    features = np.empty((len(images), len(views), width), dtype=np.float32)
    places: list[int] = []
    unreadable: list[Unreadable] = []
    done = 0
    progress(stage, 0, len(images))
    for outcomes in encode_stream(images, encoder, views, cache):
        for outcome in outcomes:
            if isinstance(outcome, Unreadable):
                unreadable.append(outcome)
            else:
                features[len(places)] = outcome[1]
                places.append(done)
            done += 1
        progress(stage, done, len(images))
    return Encoded(places, features[: len(places)], unreadable)


def read_image(
    source: Source,
    weights_digest: str,
    layer_dims: tuple[int, ...],
    views: Sequence[Transform],
    cache: FeatureCache | None,
) -> ReadImage:
    """Read an image and look up its views' features; decode those that have none."""
    image = ReadImage("an image in memory" if isinstance(source, bytes) else str(source))
    try:
        content = content_of(source)
    except OSError as error:
        image.reason = error.strerror or str(error) or type(error).__name__
        return image
    for view, transform in enumerate(views):
        if cache is not None:
            image.keys.append(feature_key(content, weights_digest, transform.key))
            found = cache.get(image.keys[-1])
            if found is not None and found.shape == (sum(layer_dims),):
                image.features[view] = found
                continue
        try:
            image.pixels[view] = decode(content, transform)
        except ImageError as error:
            return ReadImage(image.path, reason=str(error))
    return image


def encode_images(batch: Sequence[ReadImage], encoder: Encoder, cache: FeatureCache | None) -> None:
    """Encode the decoded images of a batch, in place, and cache their features."""
    fresh = [(image, view) for image in batch for view in image.pixels]
    if not fresh:
        return
    encoded = encoder.encode(np.stack([image.pixels[view] for image, view in fresh]))
    for (image, view), features in zip(fresh, encoded, strict=True):
        if not np.isfinite(features).all():
            raise EncoderError(
                f"{encoder.name} gives features that are not finite for {image.path}. "
                "Use another encoder.",
                code="features-not-finite",
            )
        image.features[view] = features
        del image.pixels[view]
    if cache is not None:
        cache.put({image.keys[view]: image.features[view] for image, view in fresh})


def _outcome(image: ReadImage) -> tuple[str, LayerFeatures] | Unreadable:
    return Unreadable(image.path, image.reason) if image.reason else (image.path, image.rows)


def refuse_unreadable(unreadable: Sequence[Unreadable], remedy: str) -> None:
    """Stop where files are not images, naming each with its reason.

    Raises
    ------
    ImageError
    """
    if not unreadable:
        return
    named = "; ".join(f"{shown(each.path)} ({each.reason})" for each in unreadable)
    if len(unreadable) == 1:
        raise ImageError(
            f"{named} cannot be read as an image. Correct or remove it{remedy}.",
            code="images-unreadable",
        )
    raise ImageError(
        f"{len(unreadable)} files cannot be read as images: {named}. "
        f"Correct or remove them{remedy}.",
        code="images-unreadable",
    )
