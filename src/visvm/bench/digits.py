"""Scikit-learn's handwritten digits as pictures: data that come with the install, for the demo and the benchmark's smoke test."""

import io
from collections.abc import Iterator

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def digit_pictures(first: int, last: int) -> Iterator[tuple[str, bytes]]:
    """Name and BMP file of the digits from the `first` of each class up to, but without, the `last`.

    Examples
    --------
    >>> name, content = next(digit_pictures(0, 1))
    >>> name, content[:2]
    ('zero', b'BM')
    """
    data = load_digits()
    for digit, name in enumerate(DIGITS):
        for pixels in data.images[data.target == digit][first:last]:
            small = Image.fromarray((255 - pixels * (255 / 16)).astype(np.uint8))
            page = Image.new("L", (224, 224), 255)
            page.paste(small.resize((192, 192), Image.Resampling.BICUBIC), (16, 16))
            file = io.BytesIO()
            page.save(file, "BMP")
            yield name, file.getvalue()
