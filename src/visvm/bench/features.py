"""Images → features, encoded once: every method of a benchmark learns from the same arrays."""

import time
from dataclasses import dataclass
from itertools import chain

import numpy as np

from visvm.bench.loading import ImageData, LabelledImages
from visvm.bench.pictures import Pictures
from visvm.bench.streams import Samples
from visvm.encoders.cache import FeatureCache, feature_key
from visvm.encoders.encoder import Encoder
from visvm.encoders.pipeline import BATCH_SIZE, encode_files, encode_stream
from visvm.encoders.sources import content_of
from visvm.encoders.texts import TextFeatures
from visvm.encoders.transform import Transform
from visvm.errors import ImageError
from visvm.progress import Progress


@dataclass(frozen=True)
class EncodedData:
    """A data set as a frozen encoder sees it."""

    classes: list[str]
    train: Samples
    test: Samples
    texts: TextFeatures | None = None  # of its classes, in their order


def encode_data(
    data: ImageData,
    encoder: Encoder,
    transform: Transform,
    cache: FeatureCache | None,
    progress: Progress,
) -> EncodedData:
    """Encode all images of a data set; what is in the cache is taken from there."""

    def encode(what: str, labelled: LabelledImages) -> Samples:
        stage = f"encoding {data.name} ({what})"
        encoded = encode_files(labelled.images, encoder, [transform], cache, progress, stage)
        if encoded.unreadable:
            first = encoded.unreadable[0]
            raise ImageError(
                f"{len(encoded.unreadable)} images of {data.name} cannot be read, such as "
                f"{first.path} ({first.reason}). Replace or remove them.",
                code="image-unreadable",
            )
        pictures = Pictures(labelled.images, transform, cache)
        return Samples(encoded.features[:, 0], labelled.targets, pictures)

    return EncodedData(data.classes, encode("train", data.train), encode("test", data.test))


def count_missing(
    data: ImageData, encoder: Encoder, transform: Transform, cache: FeatureCache | None
) -> int:
    """Return how many images of a data set are not in the cache."""
    if cache is None:
        return len(data.train.images) + len(data.test.images)
    images = chain(data.train.images, data.test.images)
    keys = (feature_key(content_of(image), encoder.digest, transform.key) for image in images)
    return sum(cache.get(key) is None for key in keys)


def seconds_per_image(data: ImageData, encoder: Encoder, transform: Transform) -> float:
    """Measure what an image takes, reading included: the better of two times over one batch."""
    batch = [data.test.images[place] for place in range(min(BATCH_SIZE, len(data.test.images)))]
    times = []
    for _ in range(2):
        start = time.perf_counter()
        for _ in encode_stream(batch, encoder, [transform], None):
            pass
        times.append((time.perf_counter() - start) / len(batch))
    return float(np.min(times))
