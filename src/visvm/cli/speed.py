"""Measure how long a photo takes on this machine, at each preset (``visvm doctor speed``)."""

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from visvm.bench.environment import usable_cores
from visvm.cli.terminal import out, table
from visvm.encoders.catalog import DEFAULT_ENCODER
from visvm.encoders.encoder import Encoder
from visvm.encoders.loading import load_encoder, named
from visvm.encoders.pipeline import BATCH_SIZE, encode_files
from visvm.encoders.presets import STANDARD, at_every_quality
from visvm.encoders.resolution import Form
from visvm.encoders.transform import DEFAULT_TRANSFORM, Transform
from visvm.progress import Progress

GIVEN = "as given"
_WIDTH, _HEIGHT = 4000, 3000  # 12 megapixels, as phones take them
_PHOTOS = 2 * BATCH_SIZE
_REPEATS = 3


@dataclass(frozen=True)
class QualitySpeed:
    """What a photo takes at a preset, decoding included.

    Attributes
    ----------
    quality, encoder : str
        The preset, or "as given", and the name of the encoder that it stands for.
    size : int
        Side of the picture that the encoder sees.
    milliseconds : float
        An image; the best of several repeats.
    relative_speed : float
        How many times as fast as standard.
    """

    quality: str
    encoder: str
    size: int
    milliseconds: float
    relative_speed: float


@dataclass(frozen=True)
class Speed:
    """How long photos take on this machine."""

    photo: str
    threads: int
    qualities: tuple[QualitySpeed, ...]


def measure_speed(encoder: str | None, progress: Progress) -> Speed:
    """Measure an encoder, by default the default one; its weights are fetched if need be.

    It is measured at every preset, and as given where its name has a form, such as a size. All take
    turns, so that whatever else the machine does slows them down alike.
    """
    given = encoder or DEFAULT_ENCODER
    bare, form = named(given)
    names = at_every_quality(bare, progress)
    if form != Form():
        names[GIVEN] = given
    encoders = {quality: load_encoder(name, progress) for quality, name in names.items()}
    times: dict[str, list[float]] = {quality: [] for quality in names}
    photos = _photos()
    for turn in range(_REPEATS):
        progress("measuring", turn, _REPEATS)
        for quality, each in encoders.items():
            times[quality].append(_milliseconds(photos, each))
    best = {quality: min(each) for quality, each in times.items()}
    rows = (
        QualitySpeed(
            quality,
            each.name,
            each.preprocessing.size,
            round(best[quality], 1),
            round(best[STANDARD] / best[quality], 2),
        )
        for quality, each in encoders.items()
    )
    return Speed(f"{_WIDTH} × {_HEIGHT} JPEG", usable_cores(), tuple(rows))


def show_speed(speed: Speed) -> None:
    """Print what ``measure_speed`` found."""
    columns = ["quality", "encoder", "ms an image", "speed", "a thousand photos"]
    rows = [
        (
            each.quality,
            each.encoder,
            f"{each.milliseconds:.1f}",
            f"{each.relative_speed:.2f} ×",
            _duration(each.milliseconds),  # ms an image are seconds a thousand
        )
        for each in speed.qualities
    ]
    title = f"photos of {speed.photo}, decoding included, on {speed.threads} threads"
    out().print(table(title, columns, rows, right=columns[2:]))


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def _milliseconds(photos: Sequence[bytes], encoder: Encoder) -> float:
    transform = Transform(DEFAULT_TRANSFORM, encoder.preprocessing)
    begin = time.perf_counter()
    encode_files(photos, encoder, [transform], None)
    return 1000 * (time.perf_counter() - begin) / len(photos)


def _photos() -> list[bytes]:
    """Return JPEG files with about the detail of real photos: noise of all scales."""
    generator = np.random.default_rng(0)
    made = []
    for _ in range(_PHOTOS // BATCH_SIZE):
        picture = np.full((_HEIGHT, _WIDTH, 3), 128.0, dtype=np.float32)
        for cells in (4, 32, 256, 1024):
            noise = generator.integers(0, 256, (cells, cells, 3), dtype=np.uint8)
            scaled = Image.fromarray(noise).resize((_WIDTH, _HEIGHT), Image.Resampling.BICUBIC)
            picture += (np.asarray(scaled, dtype=np.float32) - 128) / 4
        file = io.BytesIO()
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)
        made.append(file.getvalue())
    return made * BATCH_SIZE
