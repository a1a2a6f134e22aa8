"""PRIVACY.md, from the figures that ``privacy.py`` has stored."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

_METHODS = {"Vertices": "linear programs", "Descent": "descent"}


def write(path: Path, stored: dict[str, Any]) -> None:
    """Write the page: a section for every part that has been measured."""
    parts = (("attack", attack),)
    lines = [
        "# What sums give away, and what protection costs",
        "",
        "Written by `python benchmarks/privacy.py`. Times are CPU seconds of one thread.",
    ]
    for name, section in parts:
        if name in stored:
            lines += ["", *section(stored[name])]
    text = "\n".join(lines) + "\n"
    print(text)
    path.write_text(text, encoding="utf-8")


def table(columns: str, rows: list[tuple[object, ...]]) -> Iterator[str]:
    """Yield a table; `columns` are joined by bars, and all but the first align right."""
    yield f"| {columns} |"
    yield "|---" + "|---:" * columns.count("|") + "|"
    yield from ("| " + " | ".join(map(str, row)) + " |" for row in rows)


def attack(found: dict[str, Any]) -> Iterator[str]:
    """Yield the section on what attacks recover."""
    rows = found["rows"]
    yield "## Attacks"
    yield ""
    yield (
        "Photos are CUB-200's, their features the final block of dinov2-s14 (d = 384). Recovered "
        "means: all 384 numbers of the photo's feature,"
    )
    yield (
        f"to six digits. Each attack may take {found['seconds']:g} s; `privacy_attack.py` says "
        "how it works. The attacker has the sums and the seed of R, and no photo."
    )
    yield ""
    yield "### From the hull of all photos"
    yield ""
    hulls = [row for row in rows if row["what"] in _METHODS]
    yield from table(
        "method | D | photos (N) | form | recovered | tries | seconds",
        [
            (
                _METHODS[row["what"]],
                row["D"],
                row["N"],
                row["form"],
                row["recovered"],
                row["tries"],
                row["seconds"],
            )
            for row in hulls
        ],
    )
    yield ""
    yield "### From one class sum alone"
    yield ""
    yield from table(
        "photos of the class | D | recovered | seconds",
        [
            (row["N"], row["D"], row["recovered"], row["seconds"])
            for row in rows
            if row["what"] == "class"
        ],
    )
    yield ""
    (one,) = [row for row in rows if row["what"] == "session"]
    yield (
        f"### From a model that learned {one['N']} photos in sessions of {one['session']} "
        f"(D = {one['D']})"
    )
    yield ""
    yield (
        f"The rows of the last session alone give {one['recovered']} of its {one['session']} "
        f"photos in {one['seconds']:g} s."
    )
