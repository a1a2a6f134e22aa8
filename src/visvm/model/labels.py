"""What a class may be called."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from visvm.errors import UNPRINTABLE, InputError, escaped

# letters and signs that look like nothing, and those that only vary the one before them
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)

Label = str | int

FORGOTTEN: Final = ("", -(2**63))
"""Text and number that keep the samples of forgotten classes; no class can have them."""


def is_forgotten(label: Label) -> bool:
    """Whether samples of this label belong to classes that were forgotten."""
    return label in FORGOTTEN


def some_of(labels: Sequence[Label]) -> str:
    """Return the first labels, for a message."""
    more = f" and {len(labels) - 5} more" if len(labels) > 5 else ""
    return ", ".join(escaped(str(label)) for label in labels[:5]) + more


def as_number(text: str) -> int:
    """Return a label that was typed, of a model whose classes are numbers."""
    if not re.fullmatch(r"\s*-?[0-9]{1,18}\s*", text):
        raise InputError(
            f"The classes of this model are numbers, and {text!r:.60} is not one. Give a number.",
            code="label-not-a-number",
        )
    return int(text)


def _is_seen(letter: str) -> bool:
    """Whether a letter leaves a mark; controls are refused elsewhere."""
    return unicodedata.category(letter) not in ("Cf", "Cn", "Zs") and not _BLANK.match(letter)


def check_label(label: object, where: str) -> Label:
    """Return a label as it is kept: text in one Unicode form, whatever machine it was typed on."""
    if isinstance(label, str):
        text = unicodedata.normalize("NFC", label).strip()
        if not any(map(_is_seen, text)):
            raise InputError(f"The label of {where} is empty. Give one.", code="label-empty")
        if UNPRINTABLE.search(text):
            raise InputError(
                f"The label of {where} is {label!r}, which cannot be printed. Rename it.",
                code="label-unprintable",
            )
        return text
    if (isinstance(label, int) or hasattr(label, "__index__")) and not is_forgotten(int(label)):
        return int(label)
    raise InputError(
        f"The label of {where} is {label!r}. Use text or a whole number.", code="label-kind"
    )
