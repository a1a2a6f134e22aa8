"""Run a command in this process, and say what is wrong with how it ended."""

import contextlib
import io
import re
import sys
import traceback
import warnings
from dataclasses import dataclass
from functools import cache

STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
READING = ("info", "predict", "evaluate", "doctor")  # commands that change no file


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str
    raised: str = ""

    @property
    def wrong(self) -> str:
        """What is wrong with it, or nothing."""
        lines = [line for line in self.err.splitlines() if line.startswith("visvm: ")]
        said = [line for line in lines if not line.startswith("visvm: note: ")]
        if self.raised:
            return self.raised
        if self.code not in (0, 2) or (self.code == 2 and len(said) != 1):
            return f"exit code {self.code}, {len(said)} errors: {self.err[:200]!r}"
        if STEERING.search(self.out + self.err):
            return "it writes what steers a terminal"
        if "too little memory" in self.err:
            return "memory ran out"
        if re.search(r"\bnan\b", self.out):
            return f"it prints nan: {self.out[:200]!r}"
        return ""


@cache
def _application():
    """What typer makes of the command line: for every call anew, which takes longer than most."""
    import typer

    from visvm.cli import main as cli

    return typer.main.get_command(cli.app)


def outcome_of(command) -> Outcome:
    """Run a command."""
    from visvm.cli import main as cli

    out, err = io.StringIO(), io.StringIO()
    sys.argv, whole = ["visvm", *command], cli.app
    cli.app = _application()
    code, raised = 0, ""
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            warnings.simplefilter("default")
            cli.main()
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException as error:  # noqa: BLE001, whatever it is, it is a failure
        lines = traceback.format_exception(error)
        raised = f"{type(error).__name__}: {str(error)[:200]} ({lines[-2].strip().splitlines()[0]})"
    finally:
        cli.app = whole
    return Outcome(code, out.getvalue(), err.getvalue(), raised)


def judged(command, before, now) -> str:
    """Run a command; return what is wrong with how it ended or with what it left, or nothing.

    Parameters
    ----------
    command : sequence of str
    before : dict
        All files before it.
    now : callable
        Returns all files of now.
    """
    outcome = outcome_of(command)
    if outcome.wrong:
        return outcome.wrong
    after = now()
    changed = sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )
    if changed and (outcome.code or command[0] in READING):
        return f"exit code {outcome.code}, but it has changed {', '.join(changed)}"
    for name in changed:
        if name.endswith((".visvm", ".sums")) and name in after:
            read = outcome_of(("info", name))
            if read.wrong or read.code:
                return f"it wrote {name}, which cannot be read: {read.wrong or read.err}"
    return ""
