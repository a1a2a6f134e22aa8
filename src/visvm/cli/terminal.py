"""What the command line shows: bars and notes on standard error, results on standard output."""

import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
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

from visvm.progress import Progress, silent


def out() -> Console:
    """Return standard output; colours only on a terminal."""
    return Console(highlight=False, soft_wrap=True)


def err() -> Console:
    """Return standard error; colours only on a terminal."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def note(message: str) -> None:
    """Write a note to standard error."""
    err().print(message, markup=False, style="yellow")


def print_json(value: object, *, indent: int | None = 2) -> None:
    """Write JSON to standard output."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=not unicode, indent=indent) + "\n")


def plain(value: Any) -> Any:
    """Return data classes and tuples as JSON has them."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Sequence[str] = (),
) -> Table:
    """Return a table for people; the columns named in `right` are aligned there."""
    result = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for column in columns:
        result.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        result.add_row(*(Text(str(cell)) for cell in row))
    return result


def percent(share: float | None) -> str:
    """Return a share as a percentage, or a dash."""
    return "–" if share is None else f"{100 * share:.1f} %"


class _Rate(ProgressColumn):
    """Steps a second, or bytes."""

    def render(self, task: Task) -> Text:
        """Return the rate of a task."""
        if not task.speed:
            return Text("")
        if task.fields["bytes"]:
            return Text(f"{task.speed / 1e6:.1f} MB/s", style="progress.data.speed")
        return Text(f"{task.speed:.1f}/s", style="progress.data.speed")


class _Count(MofNCompleteColumn):
    """How many of how many, or megabytes of megabytes."""

    def render(self, task: Task) -> Text:
        """Return the count of a task."""
        if task.fields["bytes"]:
            return Text(
                f"{task.completed / 1e6:.0f}/{(task.total or 0) / 1e6:.0f} MB",
                style="progress.download",
            )
        return Text("") if task.total == 1 else super().render(task)


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
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        _Count(),
        _Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, transient=True) as shown:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = shown.add_task(stage, total=total or None, bytes="weights" in stage)
            shown.update(tasks[stage], completed=done, total=total or None)

        yield report
