"""A picture of any shape → the square that an encoder takes, as normalised pixels."""

import hashlib
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from PIL import Image

from visvm.encoders.encoder import Pixels, Preprocessing
from visvm.errors import InputError

TRANSFORMS: Final = ("crop", "squash", "pad")
DEFAULT_TRANSFORM: Final = "squash"  # benchmarks/TRANSFORMS.md
_CORNERS: Final = ("upper left", "upper right", "lower left", "lower right")
VIEWS: Final = {
    "one": ("whole",),
    "mirror": ("whole", "mirrored"),
    "crops": ("whole", *_CORNERS),
}
"""What is shown of a photo, by the name of the set; every set begins with the photo as it is."""
_CORNER_SHARE: Final = 0.8  # of each side, that a view of a corner shows
# raise it with every change that gives other pixels: cached features depend on it
PIPELINE_VERSION: Final = 1

Box = tuple[float, float, float, float]
"""Left, upper, right and lower edge of a part of an image, in pixels."""


def check_transform(kind: object, *others: str) -> None:
    """Refuse an unknown kind of transform; those and the others are known."""
    if kind not in (known := (*others, *TRANSFORMS)):
        raise InputError(
            f"The 'transform' parameter must be one of {', '.join(known)}. Got {kind!r} instead.",
            code="transform-unknown",
        )


def check_views(views: object) -> None:
    """Refuse an unknown set of views."""
    if not isinstance(views, str) or views not in VIEWS:
        raise InputError(
            f"The 'views' parameter must be one of {', '.join(VIEWS)}. Got {views!r} instead.",
            code="views-unknown",
        )


@dataclass(frozen=True)
class Transform:
    """How a picture of any shape becomes the square that an encoder takes.

    Parameters
    ----------
    kind : "crop", "squash" or "pad"
        "crop" brings the shorter side to ``preprocessing.resize`` and cuts out the centre; "squash"
        brings both sides to ``preprocessing.size``, whatever the aspect ratio; "pad" brings the
        longer side to it and fills up with the mean colour. All bicubic.
    preprocessing : Preprocessing
    view : str, default="whole"
        What of the picture: all of it, all of it "mirrored" left to right, or a corner of it, such
        as "upper left".

    Examples
    --------
    >>> half = Preprocessing(size=2, resize=2, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    >>> Transform("crop", half).pixels(Image.new("RGB", (8, 4), "red"))[:, 0, 0].tolist()
    [1.0, -1.0, -1.0]
    """

    kind: str
    preprocessing: Preprocessing
    view: str = "whole"

    def __post_init__(self) -> None:
        check_transform(self.kind)
        if not 1 <= self.preprocessing.size <= self.preprocessing.resize:
            given = f"size {self.preprocessing.size} and resize {self.preprocessing.resize}"
            raise InputError(
                f"The 'preprocessing' parameter must have 1 ≤ size ≤ resize. Got {given} instead.",
                code="preprocessing-invalid",
            )

    @property
    def key(self) -> str:
        """A short name: two transforms with one key give the same pixels."""
        p = self.preprocessing
        sides = (p.size, p.resize) if self.kind == "crop" else (p.size,)
        content = repr((sides, [float(number) for number in (*p.mean, *p.std)]))
        digest = hashlib.sha256(content.encode()).hexdigest()[:12]
        view = "" if self.view == "whole" else f"-{self.view}"
        return f"{self.kind}-{p.size}-v{PIPELINE_VERSION}-{digest}{view}"

    def views(self, name: str) -> tuple["Transform", ...]:
        """Return the transforms that show a named set of views, the whole picture first."""
        check_views(name)
        return tuple(replace(self, view=view) for view in VIEWS[name])

    def scaled(self, width: float, height: float) -> tuple[int, int]:
        """Return width and height of the scaled picture, before the centre is cut out."""
        if self.kind == "squash":
            return self.preprocessing.size, self.preprocessing.size
        if self.kind == "pad":
            size, long = self.preprocessing.size, max(width, height)
            return max(round(size * width / long), 1), max(round(size * height / long), 1)
        resize, short = self.preprocessing.resize, min(width, height)
        return int(resize * width / short), int(resize * height / short)

    def pixels(self, image: Image.Image, box: Box | None = None) -> Pixels:
        """Return the normalised pixels of an upright image, (3, size, size).

        Parameters
        ----------
        image : Image in RGB
        box : Box, optional
            The part of the image that counts as the picture; all of it by default.
        """
        p = self.preprocessing
        left, top, right, bottom = self._seen(box or (0, 0, *image.size))
        width, height = self.scaled(right - left, bottom - top)
        # Resampling the centre alone gives the pixels that cutting it out of the scaled picture
        # would give, and a picture of 1 × 5000 does not grow to 224 × 1 120 000 on the way.
        x0, x1 = _centre(left, right, width, min(width, p.size))
        y0, y1 = _centre(top, bottom, height, min(height, p.size))
        square = image.resize(
            (min(width, p.size), min(height, p.size)),
            Image.Resampling.BICUBIC,
            box=(x0, y0, x1, y1),
            reducing_gap=3.0,
        )
        if self.kind == "pad":
            # in whole grey levels, so that the square can be kept as a picture
            colour = tuple(round(255 * mean) for mean in p.mean)
            corner = (p.size - square.width) // 2, (p.size - square.height) // 2
            shown, square = square, Image.new("RGB", (p.size, p.size), colour)
            square.paste(shown, corner)
        if self.view == "mirrored":
            square = square.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        mean, std = (
            np.array(numbers, dtype=np.float64)[:, None, None] for numbers in (p.mean, p.std)
        )
        pixels = np.asarray(square).transpose(2, 0, 1).astype(np.float32, order="C")
        pixels *= (1 / (255 * std)).astype(np.float32)
        pixels -= (mean / std).astype(np.float32)
        return pixels

    @property
    def share(self) -> float:
        """How much of each side of the picture is shown."""
        return _CORNER_SHARE if self.view in _CORNERS else 1.0

    def _seen(self, box: Box) -> Box:
        """Return the part of a picture that the view shows."""
        if self.view not in _CORNERS:
            return box
        (vertical, horizontal), (left, top, right, bottom) = self.view.split(), box
        width, height = self.share * (right - left), self.share * (bottom - top)
        x = left if horizontal == "left" else right - width
        y = top if vertical == "upper" else bottom - height
        return x, y, x + width, y + height


def _centre(start: float, end: float, scaled: int, size: int) -> tuple[float, float]:
    """Return which part of a side, start…end, becomes the middle `size` of its `scaled` pixels."""
    first = (scaled - size) // 2
    # Multiplied before it is divided: exact at the edge, beyond which Pillow refuses to go.
    return start + first * (end - start) / scaled, start + (first + size) * (end - start) / scaled
