"""Sums ↔ whole numbers modulo 2⁶⁴, and the masks that hide them and cancel in a total.

**Fixed point.** Sums of several sites must add up exactly, so that masks cancel to the last bit.
So each site sends class sums and the lower triangle of its Gram matrix, in a unit that all share,
as 64-bit words. The Gram matrix is about zero, as the site's mean must not be known.

**Masks.** Every pair of sites has a secret (X25519), of which HKDF makes a seed for this one round,
and ChaCha20 a stream of words that look uniform to anybody else. One adds the stream to its words,
the other takes it away. The cryptography is that of the package of that name.
"""

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from visvm.errors import InputError
from visvm.head.checks import Labels
from visvm.head.products import Array
from visvm.head.scatter import DenseScatter, ThinScatter
from visvm.head.statistics import Statistics
from visvm.model.container import Words

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

_BITS = 62  # a total has 64, of which one is the sign
_SPARE = 4  # of these: features of other images may be so much larger
_CHUNK = 2**20  # words of a stream that are made at once


class Scale(msgspec.Struct, frozen=True):
    """The unit of the words.

    Attributes
    ----------
    exponent : int
        φ is divided by 2 to this power, which makes it about 1.
    fraction_bits : int
        How many bits of a word are behind the point.

    Examples
    --------
    >>> Scale.of(mean_square=16.0, most_images=1_000_000)
    Scale(exponent=2, fraction_bits=38)
    """

    exponent: int
    fraction_bits: int

    @classmethod
    def of(cls, mean_square: float, most_images: int) -> "Scale":
        """Return the finest unit for so many images of features of about this mean square."""
        exponent = int(np.ceil(np.log2(mean_square) / 2)) if mean_square > 0.0 else 0
        return cls(exponent, _BITS - _SPARE - int(np.ceil(np.log2(most_images))))


def largest_mean_square(sums: Statistics) -> float:
    """Return the mean of φⱼ² over the samples, for the feature j where it is largest."""
    if isinstance(sums.scatter, ThinScatter):
        blocks = sums.scatter.blocks
        about_mean = sum((np.square(rows).sum(axis=0) for rows in blocks), np.zeros(1))
    else:
        about_mean = np.diagonal(sums.scatter.matrix)
    return float((about_mean / sums.n_samples + sums.mean**2).max())


# Sums as words


def n_words(width: int, n_classes: int) -> int:
    """Return how many words sums of this width D and so many classes have."""
    return (width + 1) * n_classes + width * (width + 1) // 2


def as_words(sums: Statistics, classes: Labels, scale: Scale, n_sites: int) -> Words:
    """Return sums as words: of every one of `classes`, sorted, (D + 1, C), then of the Gram matrix.

    Raises
    ------
    InputError
        A total of `n_sites` such sums might not fit into 63 bits.
    """
    width, limit = sums.n_features, 2.0**_BITS / n_sites
    words, begin = np.empty(n_words(width, len(classes)), dtype=np.uint64), 0
    unit = scale.fraction_bits - scale.exponent
    columns = np.zeros((width + 1, len(classes)))
    columns[:, np.searchsorted(classes, sums.classes)] = sums.class_sums
    if (columns[-1] % 1.0).any():
        raise InputError(
            "Some classes have numbers of photos that are not whole, as sample weights make them. "
            "Learn the sums without weights.",
            code="masked-fraction",
        )
    with np.errstate(over="ignore"):  # which is seen below
        columns[:-1] = np.ldexp(columns[:-1], unit)
        columns[-1] = np.ldexp(columns[-1], scale.fraction_bits)
    for part in chain([columns.ravel()], _gram_columns(sums, unit - scale.exponent)):
        if not (np.abs(part) < limit).all():  # which NaN is not, either
            raise InputError(
                "The sums are too large for this round. Make a roster with a larger --most-images.",
                code="masked-overflow",
            )
        words[begin : begin + len(part)] = np.rint(part).astype(np.int64).view(np.uint64)
        begin += len(part)
    return words


def _gram_columns(sums: Statistics, unit: int) -> Iterator[Array]:
    """Yield the columns of the Gram matrix's lower triangle, times 2 to the power of `unit`."""
    scatter = sums.scatter.to_dense() if isinstance(sums.scatter, ThinScatter) else sums.scatter
    total, n = sums.feature_sum[:-1], sums.n_samples
    for place, factor in enumerate(total):
        with np.errstate(over="ignore"):  # which is seen where it is used
            column = np.ldexp(scatter.matrix[place:, place] + total[place:] * (factor / n), unit)
        yield column


def as_statistics(words: Words, classes: Labels, width: int, scale: Scale) -> Statistics | None:
    """Return the sums that words hold, or None if these are no sums, as masks are left in them."""
    numbers, unit = words.view(np.int64), scale.fraction_bits - scale.exponent
    n_columns = (width + 1) * len(classes)
    columns = numbers[:n_columns].reshape(width + 1, len(classes))
    one = 1 << scale.fraction_bits
    if (columns[-1] < 0).any() or (columns[-1] % one).any() or not columns[-1].any():
        return None
    present, sums = columns[-1] > 0, Statistics(width)
    sums.classes = classes[present]
    sums.class_sums = np.ldexp(columns[:, present].astype(np.float64), -unit)
    sums.class_sums[-1] = columns[-1, present] // one
    total, n = sums.feature_sum[:-1], sums.n_samples
    matrix, begin = np.zeros((width, width), order="F"), n_columns
    for place, factor in enumerate(total):
        end = begin + width - place
        gram = np.ldexp(numbers[begin:end].astype(np.float64), scale.exponent - unit)
        matrix[place:, place] = gram - total[place:] * (factor / n)
        begin = end
    cross = sums.class_sums[:-1] - sums.mean[:, None] * sums.class_counts
    sums.scatter = DenseScatter(matrix, cross)
    return sums


# Masks


def require_cryptography() -> None:
    """Refuse where the package is not installed."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise InputError(
            "Masked sums need the package cryptography, which is not installed: "
            "pip install 'visvm[masked]'",
            code="extra-missing",
        ) from error


def public_of(private: bytes) -> bytes:
    """Return the public key that belongs to a private one of 32 random bytes."""
    return _key(private).public_key().public_bytes_raw()


def pair_seed(private: bytes, public: bytes, round_id: bytes) -> bytes:
    """Return the seed, 32 bytes, that two sites share in one round and nobody else knows.

    Parameters
    ----------
    private, public : bytes
        Of one site, and of the other.
    round_id : bytes
        Another for every round, so that no stream is ever used in two of them.

    Examples
    --------
    >>> a, b = b"a" * 32, b"b" * 32
    >>> pair_seed(a, public_of(b), b"1") == pair_seed(b, public_of(a), b"1")
    True
    >>> pair_seed(a, public_of(b), b"1") == pair_seed(a, public_of(b), b"2")
    False
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    secret = _key(private).exchange(X25519PublicKey.from_public_bytes(public))
    ends = b"".join(sorted((public, public_of(private))))
    return _derived(secret, round_id, b"visvm masked sums, seed" + ends)


def seed_check(seed: bytes) -> str:
    """Return what shows that two have the same seed, and gives nothing of it away."""
    return _derived(seed, b"", b"visvm masked sums, check").hex()


def add_mask(words: Words, seed: bytes, *, subtract: bool = False) -> None:
    """Add the stream of a seed to words, in place, or take it away."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    # a seed is used for one stream only, so that its nonce may be zero
    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor()
    for begin in range(0, len(words), _CHUNK):
        part = words[begin : begin + _CHUNK]
        mask = np.frombuffer(stream.update(bytes(part.nbytes)), dtype="<u8")
        if subtract:
            part -= mask
        else:
            part += mask


def _key(private: bytes) -> "X25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private)


def _derived(secret: bytes, salt: bytes, info: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=32, salt=salt, info=info).derive(secret)
