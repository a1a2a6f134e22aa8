"""Pages of which a command measures one section at a time."""

from collections.abc import Sequence
from pathlib import Path


def put_section(page: Path, title: str, lines: Sequence[str]) -> None:
    """Put a section in the place of the one with the same title, in the order of the titles."""
    head, *sections = page.read_text().removesuffix("\n").split("\n\n## ")
    kept = {each.split("\n", 1)[0]: each for each in sections}
    kept[title] = "\n".join([title, "", *lines])
    page.write_text("\n\n## ".join([head, *(kept[each] for each in sorted(kept))]) + "\n")
    print("\n".join(lines))
