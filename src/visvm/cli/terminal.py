"""What the command line shows: bars and notes on standard error, results on standard output."""

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from visvm.errors import UNPRINTABLE, escaped
from visvm.progress import Progress, silent

_IN_BYTES = ("fetching weights", "fetching photos")


class _Console(Console):
    """A console that no name from a file can steer."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does, text escaped."""
        super().print(*map(_safe, objects), **options)


def _safe(value: Any) -> Any:
    return "\n".join(map(escaped, value.split("\n"))) if isinstance(value, str) else value


def out() -> Console:
    """Standard output; colours only on a terminal."""
    return _Console(highlight=False, soft_wrap=True)


def err() -> Console:
    """Standard error; colours only on a terminal."""
    return _Console(stderr=True, highlight=False, soft_wrap=True)


def note(message: str) -> None:
    """Tell something on standard error."""
    err().print(message, markup=False, style="yellow")


def print_json(value: object, *, indent: int | None = 2) -> None:
    """Write JSON to standard output; data classes and paths as JSON has them."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    said = json.dumps(value, ensure_ascii=not unicode, indent=indent, default=_jsonable)
    # of strings alone, where JSON has an escape for each
    sys.stdout.write(UNPRINTABLE.sub(_as_json, said) + "\n")


def _as_json(found: re.Match[str]) -> str:
    return found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}"


def _jsonable(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def answer(
    value: object, show: str | Callable[[], None], *, as_json: bool, quiet: bool = False
) -> None:
    """Give the result of a command: as JSON, or as people read it unless they want quiet."""
    if as_json:
        print_json(value)
    elif not quiet and isinstance(show, str):
        out().print(show, markup=False)
    elif not quiet and not isinstance(show, str):
        show()


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()
) -> Table:
    """A table for people; the columns named in `right` are aligned there."""
    result = Table(title=Text(escaped(title), "bold"), title_justify="left", header_style="bold")
    for column in columns:
        result.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        result.add_row(*(Text(escaped(str(cell))) for cell in row))
    return result


class _Count(ProgressColumn):
    """How many of how many and how fast, or megabytes."""

    def render(self, task: Task) -> Text:
        """Return the count and the rate of a task."""
        scale, unit = (1e6, " MB") if task.fields["bytes"] else (1, "")
        total = "?" if task.total is None else f"{task.total / scale:.0f}"
        count = f"{task.completed / scale:{len(total)}.0f}/{total}{unit} "
        rate = f"{task.speed / scale:.1f}{unit}/s" if task.speed else ""
        return Text("" if task.total == 1 else count, "progress.download").append(rate)


@contextmanager
def progress_bars(quiet: bool, *, bars: bool = True) -> Iterator[Progress]:
    """Show a bar for every stage, on standard error; none where nobody watches.

    Quiet means that no warnings are shown either.
    """
    console = err()
    if quiet or not bars or not console.is_terminal:
        with warnings.catch_warnings():
            if quiet:
                warnings.simplefilter("ignore")
            yield silent
        return
    times = TimeElapsedColumn(), TimeRemainingColumn()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), _Count(), *times)
    with Bars(*columns, console=console, transient=True) as shown:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = shown.add_task(stage, total=total or None, bytes=stage in _IN_BYTES)
            shown.update(tasks[stage], completed=done, total=total or None)

        yield report
