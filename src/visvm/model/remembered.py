"""Which photos a model has learned, by salted digests of their files, where its owner wants that.

The sums tell only while they are thin, and a large factor takes long to ask. Digests tell of any
number of photos at once, but only of the very files. The salt keeps two models, and tables made
beforehand, from being compared; it does not hide a photo from one who has it and the model.
"""

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Self

import msgspec

_DIGEST_BYTES = 8


@dataclass(frozen=True)
class RememberedPhotos:
    """Photos by salted digests.

    Attributes
    ----------
    salt : str
        32 hexadecimal digits.
    digests : tuple of str
        16 hexadecimal digits each, sorted.

    Examples
    --------
    >>> photos = RememberedPhotos.none().plus([b"one", b"two"])
    >>> photos.known([b"two", b"three", None]), len(photos.minus([b"one"]).digests)
    ([True, False, False], 1)
    """

    salt: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
    digests: tuple[Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z")], ...] = ()

    @classmethod
    def none(cls) -> Self:
        """Return no photos, with a salt of their own."""
        return cls(secrets.token_hex(16))

    def _digest(self, content: bytes) -> str:
        salt = bytes.fromhex(self.salt)
        return hashlib.blake2b(content, key=salt, digest_size=_DIGEST_BYTES).hexdigest()

    def known(self, contents: Iterable[bytes | None]) -> list[bool]:
        """Return which contents are of these photos; contents are digests of files, or None."""
        digests = set(self.digests)
        return [each is not None and self._digest(each) in digests for each in contents]

    def plus(self, contents: Iterable[bytes | None]) -> Self:
        """Return these photos and others."""
        more = {self._digest(each) for each in contents if each is not None}
        return replace(self, digests=tuple(sorted({*self.digests, *more})))

    def minus(self, contents: Iterable[bytes | None]) -> Self:
        """Return these photos without others."""
        less = {self._digest(each) for each in contents if each is not None}
        return replace(self, digests=tuple(each for each in self.digests if each not in less))
