"""Cut commands off at every file operation: ``python -m tests.crash``.

It prints how many points every command was cut off at, and exits with 1 if one of them harmed.
"""

import argparse
import gc
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.crash.campaign import Campaign
from tests.crash.commands import Command, fix_everything, model_commands

_IN_MEMORY = "/dev/shm"
_COUNTED = {"operations": 12, "kills": 7, "power_cuts": 12, "states": 8, "cpu_seconds": 13}


def _commands(folder: Path, group: str) -> Iterator[Command]:
    """The commands of a group, or of both: first those that need few modules, as forks copy all."""
    fix_everything()
    if group != "others":
        yield from model_commands(folder / "models")
    if group != "models":
        from tests.crash.other_commands import other_commands

        yield from other_commands(folder / "others")


def _campaigns(group: str, name: str, every: int) -> Iterator[dict[str, Any]]:
    gc.disable()  # which would have every fork copy what it looks at
    # in memory, if that can be: flushing takes no time there
    place = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for number, command in enumerate(_commands(Path(folder), group)):
            if command.name.startswith(name):
                begin = sum(os.times()[:4])
                # SQLite has many operations, and its own tests
                step = every if every == 1 or not command.sqlite else 2 * every
                points = Campaign(command, Path(folder) / str(number), step).run()
                spent = round(sum(os.times()[:4]) - begin, 1)
                yield {"command": command.name, "cpu_seconds": spent, **asdict(points)}
        os.chdir("/")


def main() -> None:
    """Run the campaigns and print what came of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--group", choices=("all", "models", "others"), default="all")
    parser.add_argument("--every", type=int, default=1, help="take every so many-th point")
    parser.add_argument("--json", action="store_true", help="a line of JSON for every command")
    parser.add_argument("name", nargs="?", default="", help="beginning of the commands' names")
    given = parser.parse_args()
    total: dict[str, Any] = {"command": "all", **dict.fromkeys(_COUNTED, 0), "failures": []}
    if not given.json:
        heads = (f"{name.replace('_', ' '):>{width}}" for name, width in _COUNTED.items())
        print(f"{'command':25}{''.join(heads)}")
    for found in _campaigns(given.group, given.name, given.every):
        for name in (*_COUNTED, "failures"):
            total[name] = total[name] + found[name]
        _show(found, given.json)
    if not given.json:
        _show({**total, "failures": []}, as_json=False)
        points, failures = total["kills"] + total["power_cuts"], len(total["failures"])
        print(f"{points} points, {failures} failures")
    sys.exit(bool(total["failures"]))


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found), flush=True)
        return
    counts = (f"{round(found[name], 1):{width}}" for name, width in _COUNTED.items())
    print(f"{found['command']:25}{''.join(counts)}", flush=True)
    for failure in found["failures"]:
        print("   ", failure, flush=True)


if __name__ == "__main__":
    main()
