"""Numbers and tables as docs/scale.md has them."""

import math
from collections.abc import Sequence

HOUR = 3600.0


def short(number: float) -> str:
    """Write three digits, or more where it takes more to write it out."""
    return f"{number:.3g}" if number < 100 else count(number)


def count(number: float) -> str:
    """Write a whole number with its thousands apart."""
    return f"{number:,.0f}".replace(",", " ")


def duration(seconds: float) -> str:
    """Write a time in its unit."""
    for unit, length in (("days", 24 * HOUR), ("h", HOUR), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{short(seconds / length)} {unit}"
    return f"{short(seconds)} s"


def milliseconds(seconds: float) -> str:
    """Write a short time."""
    return f"{1000 * seconds:.2g} ms" if seconds < 0.01 else f"{1000 * seconds:.0f} ms"


def size(n_bytes: float, most: float = math.inf) -> str:
    """Write a number of bytes by powers of ten, bold where it is more than `most`."""
    unit, length = next(
        (each for each in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)) if n_bytes >= 0.9995 * each[1]),
        ("kB", 1e3),
    )
    text = f"{short(n_bytes / length)} {unit}"
    return f"**{text}**" if n_bytes > most else text


def table(head: str, rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table; columns that begin with a number are set to the right."""
    lines = [
        head.split(" | "),
        ["---:" if cell.strip("*")[:1].isdigit() else "---" for cell in rows[0]],
        *rows,
    ]
    return "\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\n"


def names(what: str, values: Sequence[int]) -> str:
    """Write heads of columns, one for each number of nodes."""
    return " | ".join(f"{what}, {n} node{'s' if n > 1 else ''}" for n in values)
