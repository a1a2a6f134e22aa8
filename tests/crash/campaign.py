"""Cut a command off at every file operation, and run it again.

After each: files are old or new and nothing in between, the same command run again gives what it
gives undisturbed, to the last byte, and nothing is left behind. A command that has ended well keeps
its result even if the power fails at once.

A point is one way to cut a command off: killed before an operation, killed in the middle of a
write, or one outcome of a power cut before an operation. Points that leave the same files need one
run to see what comes of them.
"""

import os
import shutil
import signal
import threading
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.commands import Command
from tests.crash.operations import Operation, Watcher, watching
from tests.crash.power import PowerCuts, Tree, read_tree, write_tree
from tests.crash.sqlite_operations import watching_sqlite

_PATIENCE = 120  # seconds that a command may take, on a machine that is busy


@dataclass
class Points:
    """How often a command was cut off, and how many different states of its files that left."""

    operations: int = 0
    kills: int = 0
    power_cuts: int = 0
    states: int = 0
    failures: list[str] = field(default_factory=list)


class _Counter:
    """Counts operations, and kills this process at one of them."""

    def __init__(self, at: int = -1, half: bool = False) -> None:
        self.seen: list[Operation] = []
        self._at, self._half = at, half

    def before(self, operation: Operation) -> None:
        if len(self.seen) == self._at:
            if self._half and operation.half is not None:
                operation.half()
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen.append(operation)

    def after(self, operation: Operation) -> None:
        pass


def _is_killed(work: Callable[[], object]) -> bool:
    """Do something in a process of its own; return whether it was killed before its end."""
    assert threading.active_count() == 1, "other threads would be lost in the fork"
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(_PATIENCE)
            work()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


class Campaign:
    """Cuts off one command.

    Parameters
    ----------
    command : Command
    folder : Path
        For its files; it must not exist yet.
    every : int, default=1
        Take every so many-th point only; all of those after the end.
    """

    def __init__(self, command: Command, folder: Path, every: int = 1) -> None:
        self.command, self.points, self._every = command, Points(), every
        folder.mkdir()
        self._place = folder / "place"
        os.environ["VISVM_CACHE"] = str(self._place / "cache")
        self._place.mkdir()
        os.chdir(self._place)
        command.prepare()
        self._before = read_tree(self._place)
        self._after: Tree = {}
        self._known: list[Tree] = []

    def run(self) -> Points:
        """Cut it off everywhere."""
        operations, outcomes = self._undisturbed()
        self.points.operations = len(operations)
        kills = [
            (place, half)
            for place, operation in enumerate(operations)
            for half in (False, True)[: 1 + (operation.half is not None)]
        ]
        for place, half in kills[:: self._every]:
            how = "in the middle of" if half else "before"
            self._kill(place, half, f"killed {how} {operations[place]}")
        *cuts, ends = outcomes
        trees = [
            (f"power cut before {operations[place]}", tree)
            for place, found in enumerate(cuts)
            for tree in found
        ]
        for what, tree in [
            *trees[:: self._every],
            *(("power cut after the end", tree) for tree in ends),
        ]:
            self.points.power_cuts += 1
            self._recover(tree, what)
        for tree in ends:
            lost = [each for each in self._unlike_the_end(tree) if "left behind" not in each]
            self._note("power cut after the end", lost)
        return self.points

    def _undisturbed(self) -> tuple[list[Operation], list[list[Tree]]]:
        """Run it to the end; return its operations, and what power cuts would leave at each."""
        counter = _Counter()
        self._run(counter)
        self._after = read_tree(self._place)
        assert counter.seen, "it writes nothing"
        self._set(self._before)
        cuts = PowerCuts(self._place)
        self._run(cuts)
        cuts.cut()
        cuts.close()
        assert not (wrong := self._unlike_the_end(read_tree(self._place))), wrong
        return counter.seen, cuts.outcomes

    def _run(self, watcher: Watcher) -> None:
        os.chdir(self._place)
        with (
            open(os.devnull, "w") as nowhere,
            redirect_stdout(nowhere),
            watching(self._place, watcher),
            watching_sqlite(self._place, watcher) if self.command.sqlite else nullcontext(),
        ):
            self.command.run()

    def _set(self, tree: Tree) -> None:
        """Make the folder hold these files and no others."""
        shutil.rmtree(self._place)
        write_tree(tree, self._place)

    def _kill(self, place: int, half: bool, what: str) -> None:
        self._set(self._before)
        if not _is_killed(lambda: self._run(_Counter(place, half))):
            self._note(what, ["it lived on"])
            return
        self.points.kills += 1
        self._recover(read_tree(self._place), what, in_place=True)

    def _recover(self, tree: Tree, what: str, in_place: bool = False) -> None:
        """Check what a crash has left, and run the command again."""
        if tree in self._known:
            return
        self._known.append(tree)
        self.points.states += 1
        if not in_place:
            self._set(tree)
        self._note(what, self._torn(tree))
        signal.alarm(_PATIENCE)  # kills, should it wait for a lock
        try:
            self._run(_Counter())
        except Exception as error:  # noqa: BLE001 - whatever it is, the command must not fail
            self._note(what, [f"run again, it failed: {error!r}"])
        else:
            self._note(what, self._unlike_the_end(read_tree(self._place)))
        signal.alarm(0)

    def _note(self, what: str, wrong: list[str]) -> None:
        self.points.failures += [f"{self.command.name}, {what}: {each}" for each in wrong]

    def _torn(self, tree: Tree) -> list[str]:
        """Files with a name for people that are neither as before nor as they are to be."""
        return [
            f"{name} is neither old nor new"
            for name, content in tree.items()
            if content is not None
            and not self.command.hides(name)
            and content not in (self._before.get(name), self._after.get(name))
        ]

    def _unlike_the_end(self, tree: Tree) -> list[str]:
        """How files differ from those of the undisturbed command."""
        found, wanted = self.command.compared(tree), self.command.compared(self._after)
        return [
            *(f"{name} is missing" for name in sorted(wanted.keys() - found.keys())),
            *(f"{name} was left behind" for name in sorted(found.keys() - wanted.keys())),
            *(
                f"{name} is another"
                for name in sorted(found.keys() & wanted.keys())
                if found[name] != wanted[name]
            ),
        ]
