"""Progress of long work: one type for every stage of every command."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the stage, the number of steps done, and the number of all steps."""


def silent(stage: str, done: int, total: int) -> None:
    """Do nothing."""
