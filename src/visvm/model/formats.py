"""Numbers as the command line, pages and figures write them."""

import re

# how text begins that spreadsheets run, also as wide letters; a mark before it is ours
_FORMULA = "'*[=+\\-@\t\r\n＝＋－＠]"


def percent(share: float | None, decimals: int = 1, unit: str = " %") -> str:
    """Return a share in percent, or a dash where there is none.

    Examples
    --------
    >>> percent(0.875), percent(0.875, 2, ""), percent(None)
    ('87.5 %', '87.50', '–')
    """
    return "–" if share is None else f"{100 * share:.{decimals}f}{unit}"


def counted(n: int, what: str) -> str:
    """Return so many of something.

    Examples
    --------
    >>> counted(1, "image"), counted(2, "new class")
    ('1 image', '2 new classes')
    """
    return f"{n} {what}{'' if n == 1 else 'es' if what.endswith('class') else 's'}"


def as_cell(text: object) -> object:
    """Return text for a table such that no spreadsheet runs it: a formula after an apostrophe.

    Examples
    --------
    >>> as_cell("=1+1"), as_cell("'tis"), as_cell(-1)
    ("'=1+1", "'tis", -1)
    """
    return f"'{text}" if isinstance(text, str) and re.match(_FORMULA, text) else text


def of_cell(text: str) -> str:
    """Return the text that a cell was written for.

    Examples
    --------
    >>> of_cell(as_cell("=1+1")), of_cell("'tis")
    ('=1+1', "'tis")
    """
    return text[1:] if text.startswith("'") and re.match(_FORMULA, text) else text
