"""Scikit-learn's handwritten digits as pictures: data that come with the install."""

from collections.abc import Iterator

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from visvm.bench.cifar import bmp

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def digit_pictures(first: int, last: int) -> Iterator[tuple[str, bytes]]:
    """Make name and BMP file of the digits of each class from the `first` to before the `last`.

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
            yield name, bmp(np.asarray(page))
