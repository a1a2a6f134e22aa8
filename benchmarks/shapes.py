"""Photographs with shapes of their own, made from CUB's squashed ones, for ``transforms.py``.

Each way to make them is a function of a picture of 224 × 224 and a random generator. CUB's own
photographs are mostly 4:3, so stretching them gives about what they were.
"""

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter
from sklearn.datasets import load_sample_images

Make = Callable[[Image.Image, np.random.Generator], Image.Image]


def square(picture: Image.Image, _: np.random.Generator) -> Image.Image:
    """Leave it as it is: what all transforms but crop show alike."""
    return picture


def restored(picture: Image.Image, _: np.random.Generator) -> Image.Image:
    """Stretch it to 4:3, about the shape it was taken in."""
    return picture.resize((400, 300), Image.Resampling.BICUBIC)


def mixed(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Cut a part of it, upright or lying, as a phone held either way would."""
    whole = picture.resize((400, 300), Image.Resampling.BICUBIC)
    width, height = (400, 225) if generator.random() < 0.5 else (200, 300)
    left, top = (int(generator.integers(0, side + 1)) for side in (400 - width, 300 - height))
    return whole.crop((left, top, left + width, top + height))


def scene(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Put it, small, anywhere in a scene of 2:1, also at the edge."""
    ground, small = _ground(generator), _small(picture, generator)
    corner = generator.integers(0, [601 - small.width, 301 - small.height])
    ground.paste(small, tuple(int(place) for place in corner))
    return ground


def centred(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Put it, small, in the middle of a scene of 2:1, which has nothing else to say."""
    ground, small = _ground(generator), _small(picture, generator)
    ground.paste(small, ((600 - small.width) // 2, (300 - small.height) // 2))
    return ground


def _ground(generator: np.random.Generator) -> Image.Image:
    ground = Image.fromarray(load_sample_images().images[int(generator.integers(2))])
    return ground.resize((600, 300)).filter(ImageFilter.GaussianBlur(4))


def _small(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    side = int(generator.integers(150, 240))
    return picture.resize((side * 4 // 3, side), Image.Resampling.BICUBIC)


def wide(picture: Image.Image, _: np.random.Generator) -> Image.Image:
    """Stretch it to 2:1: a subject that fills its photograph from end to end, as a car does."""
    return picture.resize((480, 240), Image.Resampling.BICUBIC)


SHAPES: dict[str, Make] = {
    each.__name__: each for each in (square, restored, wide, mixed, scene, centred)
}


def shaped(files: Sequence[Path], make: Make) -> list[bytes]:
    """Return the contents of photographs made from files, the same ones every time."""
    contents = []
    for number, file in enumerate(files):
        with Image.open(file) as picture:
            made = make(picture.convert("RGB"), np.random.default_rng([7, number]))
        buffer = io.BytesIO()
        made.save(buffer, "PNG", compress_level=1)
        contents.append(buffer.getvalue())
    return contents
