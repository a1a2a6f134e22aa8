"""What a class may be called."""

import re
import unicodedata
from typing import Final

from visvm.errors import InputError

_UNSHOWN = {"Cc", "Cs", "Zl", "Zp"}  # control characters, halves of characters, line ends
# what makes text run the other way
_TURNING = {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}

Label = str | int

_FORGOTTEN: Final = ("", -(2**63))


def forgotten_label(text: bool) -> Label:
    """The label under which the samples of forgotten classes are kept, which no class can have."""
    return _FORGOTTEN[0] if text else _FORGOTTEN[1]


def is_forgotten(label: Label) -> bool:
    """Whether samples of this label belong to classes that were forgotten."""
    return label in _FORGOTTEN


def as_number(text: str) -> int:
    """A label that was typed, of a model whose classes are numbers."""
    if not re.fullmatch(r"\s*-?[0-9]{1,18}\s*", text):
        raise InputError(f"the classes of this model are numbers; got {text!r:.60}: give a number")
    return int(text)


def check_label(label: object, where: str) -> Label:
    """A label as it is kept: text in one Unicode form, so that a name typed on a Mac is the name typed elsewhere."""
    if isinstance(label, str):
        text = unicodedata.normalize("NFC", label).strip()
        if not text or any(
            unicodedata.category(letter) in _UNSHOWN or letter in _TURNING for letter in text
        ):
            raise InputError(f"a label must be printable text; {where} has {label!r}: rename it")
        return text
    if (isinstance(label, int) or hasattr(label, "__index__")) and not is_forgotten(int(label)):
        return int(label)
    raise InputError(f"a label must be text or a whole number; {where} has {label!r}: convert it")
