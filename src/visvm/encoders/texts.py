"""Class names as a frozen text tower sees them, as a file: nobody needs the tower to repeat a run.

A file of text features is a NumPy archive (``.npz``). It must have

- ``names`` (C,): the classes;
- ``features`` (C, p), or (C, K, p) with one for each of K prompts: in the joint space of an image
  tower.

and may have

- ``prompts`` (K,): such as ``a photo of a {}.``;
- ``tower``: the name of the text tower;
- ``image_digest``: the digest of the image tower that shares its joint space;
- ``scale``: what cosines are multiplied by before the softmax, 100 where it is left out;
- ``phrases`` (N,), ``phrase_features`` (N, p) and ``phrase_classes`` (N, 2): what somebody said of
  a class, as places among the names: of the first, and in what it differs from the second; -1 as
  the second where it is said of the class alone;
- ``digest``: SHA-256 over all of these but ``tower``, which is then checked.
"""

import hashlib
import io
import json
import math
import re
import sys
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visvm.encoders.files import read_file, replacing
from visvm.errors import InputError, shown

_MAX_BYTES = 2**30  # of all arrays of a file: far more than a million prompts take
_LEAST_BYTES, _MOST_PACKED = 2**24, 20  # numbers hardly pack, names do
_DOUBT = 1e-3  # how often chance may be taken for kinship
_TOO_MANY = 0.6  # share of answers that chance may give: with more, they are too few to tell
_UNREADABLE = (
    *(OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error),
)
_NUMBER = re.compile(r"^\d+[._ ]+(?=\D)")


@dataclass(frozen=True, eq=False)
class Phrases:
    """What is said of classes: of the first, (N,), and in what it differs from the second."""

    texts: tuple[str, ...] = ()
    features: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    classes: NDArray[np.intp] = field(default_factory=lambda: np.empty((0, 2), np.intp))


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """Text features of classes.

    Parameters
    ----------
    names : tuple of str
        The C classes.
    features : array of shape (C, K, p)
        One for each of K prompts, of unit length.
    prompts : tuple of str
        K of them; empty where they are not known.
    tower, image_digest : str
        Name of the text tower, and digest of the image tower beside it; empty where unknown.
    scale : float
        Multiplies cosines before the softmax.
    phrases : Phrases
    """

    names: tuple[str, ...]
    features: NDArray[np.float32]
    prompts: tuple[str, ...] = ()
    tower: str = ""
    image_digest: str = ""
    scale: float = 100.0
    phrases: Phrases = field(default_factory=Phrases)

    @property
    def width(self) -> int:
        """p, the width of the joint space."""
        return int(self.features.shape[2])

    @cached_property
    def prototypes(self) -> NDArray[np.float32]:
        """Mean over the prompts, of unit length, (C, p)."""
        return unit(self.features.mean(axis=1))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that decides an answer."""
        said = [self.names, self.prompts, self.image_digest, self.scale, self.phrases.texts]
        digest = hashlib.sha256(json.dumps(said).encode())
        for array in (self.features, self.phrases.features, self.phrases.classes.astype("<i8")):
            digest.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def of(self, classes: Sequence[str]) -> "TextFeatures":
        """Return the text features of these classes, in their order.

        Case, hyphens, underscores and a number in front make no difference.

        Examples
        --------
        >>> texts = TextFeatures(("ape", "pole cat"), np.ones((2, 1, 1), np.float32))
        >>> texts.of(["002.Pole_Cat"]).names
        ('pole cat',)
        """
        places = {_plain(name): place for place, name in enumerate(self.names)}
        if missing := [name for name in classes if _plain(name) not in places]:
            raise InputError(
                f"{len(missing)} of {len(classes)} classes have no text features, such as "
                f"{missing[0]!r}. Encode their names too.",
                code="text-names-missing",
            )
        rows = [places[_plain(name)] for name in classes]
        number = np.full(len(self.names) + 1, -2)  # the last one is that of -1
        number[rows], number[-1] = np.arange(len(rows)), -1
        both = number[self.phrases.classes]
        kept = np.flatnonzero((both > -2).all(axis=1))
        phrases = Phrases(
            tuple(self.phrases.texts[place] for place in kept),
            self.phrases.features[kept],
            both[kept],
        )
        names = tuple(self.names[row] for row in rows)
        return replace(self, names=names, features=self.features[rows], phrases=phrases)


def unit(rows: NDArray[Any]) -> NDArray[Any]:
    """Return vectors of unit length, along the last axis; zero stays zero."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12))


def mismatch(texts: TextFeatures, projected_width: int, image_digest: str) -> str:
    """Say why text features cannot belong to an image tower; empty if they can."""
    if texts.width != projected_width:
        return (
            f"the text features are {texts.width} wide, and what the image tower puts out is "
            f"{projected_width}"
        )
    if texts.image_digest and texts.image_digest != image_digest:
        return (
            f"the text features belong to the image tower {texts.image_digest[:12]}…, and this is "
            f"{image_digest[:12]}…"
        )
    return ""


def is_chance(right: int, n: int, n_classes: int) -> bool:
    """Whether so many of n answers among classes may well be right by chance.

    It is False also where n is too small to tell.

    Examples
    --------
    >>> is_chance(3, 100, 100), is_chance(30, 100, 100), is_chance(1, 3, 3)
    (True, False, False)
    """
    from scipy.stats import binom

    by_chance = binom.ppf(1.0 - _DOUBT, n, 1.0 / n_classes)
    return bool(right <= by_chance <= _TOO_MANY * n)


def read_texts(path: Path) -> TextFeatures:
    """Read a file of text features; nothing in it runs."""
    try:
        content = read_file(path, _MAX_BYTES)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            most = min(_MAX_BYTES, _LEAST_BYTES + _MOST_PACKED * len(content))
            if sum(part.file_size for part in archive.infolist()) > most:
                raise ValueError("it holds far more than its size")
            for part in archive.infolist():
                _check_size(archive, part)
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return _texts({name: arrays[name] for name in arrays.files})
    except FileNotFoundError:
        raise InputError(
            f"There is no file of text features {shown(path)}. Correct the path, or make it with "
            "'visvm text encode'.",
            code="text-file-missing",
        ) from None
    except _UNREADABLE as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"{shown(path)} cannot be read as text features ({reason}). Make it again.",
            code="text-file-invalid",
        ) from error


def _check_size(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> None:
    """Refuse an array that says it is larger than its file, before memory is asked for."""
    if part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{part.filename} is packed in a way that numpy never does")
    with archive.open(part) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0
        read = read if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    # empty texts take no bytes, but time
    if math.prod(shape) * max(dtype.itemsize, 1) > part.file_size:
        raise ValueError(f"{part.filename} is said to be larger than it is")


def write_texts(path: Path, texts: TextFeatures) -> None:
    """Write a file of text features; it takes the place of another in one step."""
    arrays: dict[str, Any] = {
        "names": np.array(texts.names),
        "features": texts.features,
        "prompts": np.array(texts.prompts, dtype=np.str_),
        "tower": np.array(texts.tower),
        "image_digest": np.array(texts.image_digest),
        "scale": np.array(texts.scale),
        "digest": np.array(texts.digest),
    }
    if texts.phrases.texts:
        arrays["phrases"] = np.array(texts.phrases.texts)
        arrays["phrase_features"] = texts.phrases.features
        arrays["phrase_classes"] = texts.phrases.classes
    try:
        with replacing(path) as file:
            np.savez(file, **arrays)
    except OSError as error:
        raise InputError(
            f"{shown(path)} cannot be written ({error.strerror}). Give another --out.",
            code="text-file-unwritable",
        ) from error


def _texts(arrays: dict[str, NDArray[Any]]) -> TextFeatures:
    """Make text features of the arrays of a file; a ValueError says what is wrong with them."""
    names = _strings(arrays["names"])
    features = arrays["features"]
    features = features[:, None] if features.ndim == 2 else features
    if features.ndim != 3 or len(features) != len(names) or not features.size:
        raise ValueError(f"{len(names)} names, and features of shape {arrays['features'].shape}")
    if len({_plain(name) for name in names}) < len(names):
        raise ValueError("two names are the same")
    prompts = _strings(arrays.get("prompts", np.empty(0, np.str_)))
    if prompts and len(prompts) != features.shape[1]:
        raise ValueError(f"{len(prompts)} prompts, and features of {features.shape[1]}")
    scale = float(arrays.get("scale", np.array(100.0)).item())
    if not 0 < scale < np.inf:
        raise ValueError(f"the scale {scale}")
    tower, image_digest = (str(arrays.get(name, "")) for name in ("tower", "image_digest"))
    phrases = _phrases(arrays, len(names), features.shape[2])
    unit_features = _unit_rows(features, "features")
    texts = TextFeatures(names, unit_features, prompts, tower, image_digest, scale, phrases)
    if "digest" in arrays and str(arrays["digest"]) != texts.digest:
        raise ValueError("its digest is another")
    return texts


def _phrases(arrays: dict[str, NDArray[Any]], n_classes: int, width: int) -> Phrases:
    if "phrases" not in arrays:
        return Phrases()
    texts, classes = _strings(arrays["phrases"]), arrays["phrase_classes"]
    rows = _unit_rows(arrays["phrase_features"], "phrase_features")
    if rows.shape != (len(texts), width) or classes.shape != (len(texts), 2):
        raise ValueError(f"{len(texts)} phrases, features {rows.shape}, classes {classes.shape}")
    ends = classes.astype(np.intp)
    allowed = (ends >= [0, -1]) & (ends < n_classes)
    if classes.dtype.kind not in "iu" or not allowed.all():
        raise ValueError("phrase_classes are not places among the names")
    return Phrases(texts, rows, ends)


def _unit_rows(rows: NDArray[Any], what: str) -> NDArray[np.float32]:
    """Check features, and give them unit length where rounding has changed it."""
    if rows.dtype.kind != "f" or not np.isfinite(rows).all():
        raise ValueError(f"{what} are not finite floating-point numbers")
    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=-1)
    if (lengths == 0).any():
        raise ValueError(f"one of the {what} is zero")
    exact = np.abs(lengths - 1.0) < 1e-6
    return np.where(exact[..., None], wide, unit(wide)).astype(np.float32)


def _strings(array: NDArray[Any]) -> tuple[str, ...]:
    if array.ndim != 1 or array.dtype.kind != "U":
        raise ValueError(f"texts of shape {array.shape} and type {array.dtype}")
    native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))
    if native.size and native.view(np.uint32).max() > sys.maxunicode:
        raise ValueError("texts with letters that there are none of")
    return tuple(map(str, array))


def _plain(name: str) -> str:
    """Return a name without what class folders add to it.

    Examples
    --------
    >>> _plain("001.Black_footed_Albatross"), _plain("707-320")
    ('black footed albatross', '707 320')
    """
    return " ".join(re.sub(r"[_\-]+", " ", _NUMBER.sub("", name)).lower().split())
