"""``python -m tests.words``, a part of ``make lint``: words of ours that nobody would say.

They are looked for in documents, and in the strings of the sources: messages, help and docstrings.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BETTER = {
    r"told(?! (?:from|apart))": "said, shown, counted",
    r"as it stands": "leave it out",
    r"but for": "except",
    r"the like": "name it",
    r"whoever": "who, anyone who",
    r"given again": "run again",
    r"of a new model:": "for a new model:",
    r"of one that exists": "for an existing one",
    r"by itself": "alone, separately",
    r"of one's own": "your own",
    r"heeded": "read, used",
    r"thereof|whereby|hereby|wherein": "say it in two sentences",
    r"in order to": "to",
    r"utili[sz]e": "use",
    r"simply|obviously|of course": "leave it out",
}
HABITS = re.compile(rf"\b(?:{'|'.join(BETTER)})(?!\w)", re.IGNORECASE)
FENCE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)


def documents() -> Iterator[tuple[Path, str]]:
    """Give every document, without its code."""
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("benchmarks/*.md")]:
        text = path.read_text("utf-8")
        yield path, FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)


def sources() -> Iterator[tuple[Path, str]]:
    """Give the strings of every source, each on its line."""
    for path in (ROOT / "src").rglob("*.py"):
        strings: dict[int, str] = {}
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for offset, line in enumerate(node.value.splitlines()):
                    place = node.lineno + offset
                    strings[place] = f"{strings.get(place, '')} {line}"
        lines = [strings.get(number, "") for number in range(1, max(strings, default=0) + 1)]
        yield path, "\n".join(lines)


def found(text: str) -> Iterator[tuple[int, str, str]]:
    """Give line, words and what is better, of each habit in a text.

    >>> list(found("It holds\\nas it stands."))
    [(2, 'as it stands', 'leave it out')]
    """
    for habit in HABITS.finditer(text):
        better = next(
            what for words, what in BETTER.items() if re.fullmatch(words, habit[0], re.IGNORECASE)
        )
        yield text.count("\n", 0, habit.start()) + 1, habit[0], better


def main() -> int:
    """Print every habit with its place."""
    habits = [
        f"{path.relative_to(ROOT)}:{line}: {words!r}; better: {better}"
        for path, text in (*documents(), *sources())
        for line, words, better in found(text)
    ]
    print("\n".join(habits) or "no habits of ours")
    return 1 if habits else 0


if __name__ == "__main__":
    sys.exit(main())
