"""``python -m tests.fuzz --minutes 10``, ``--inputs 10000``, or ``--input KIND:NUMBER``."""

import argparse
import itertools
import os
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.campaign import campaign, material, numbered


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--inputs", type=int, help="try so many, however long it takes")
    parser.add_argument("--first", type=int, default=int(time.time()), help="the first number")
    parser.add_argument("--keep", type=Path, help="folder for the files of inputs that failed")
    parser.add_argument("--input", metavar="KIND:NUMBER", help="try this one alone")
    given = parser.parse_args()
    # Before any package is imported by the processes that try: one thread each
    os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    until = time.monotonic() + 60 * given.minutes
    numbers = itertools.count(given.first)
    if given.input:
        kind, _, number = given.input.partition(":")
        inputs = iter([(kind, int(number))])
    elif given.inputs:
        inputs = map(numbered, itertools.islice(numbers, given.inputs))
    else:
        running = itertools.takewhile(lambda _: time.monotonic() < until, numbers)
        inputs = map(numbered, running)
    memory = Path("/dev/shm")
    kinds, reports = Counter(), []
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        place = Path(folder) / "fuzz"
        for (kind, _), report in campaign(material(place), place, inputs, given.keep):
            kinds[kind] += 1
            reports.append(report)
            for failure in report.failures:
                print(failure, flush=True)
            if len(reports) % 500 == 0:
                print(f"{len(reports)} inputs so far", flush=True)
    found = sum(len(report.failures) for report in reports)
    print(", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items())))
    print(
        f"{len(reports)} inputs from {given.first}, "
        f"{sum(report.n_commands for report in reports)} commands, {found} failures; "
        f"{sum(report.seconds for report in reports):.0f} s of CPU, "
        f"the longest {max(report.seconds for report in reports):.1f} s, "
        f"the most memory {max(report.n_bytes for report in reports) / 1e6:.0f} MB"
    )
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
