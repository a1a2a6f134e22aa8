"""``python -m tests.fuzz --minutes 10``, or ``--seed N`` for one input."""

import argparse
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.campaign import campaign, prepare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--first", type=int, default=int(time.time()), help="the first seed")
    parser.add_argument("--seed", type=int, help="try this seed alone")
    given = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    one = given.seed is not None
    limits = {"most": 1} if one else {"seconds": 60 * given.minutes}
    tried, found = 0, []
    with TemporaryDirectory() as folder:
        prepare(Path(folder))
        for _, failures in campaign(
            Path(folder), first=given.seed if one else given.first, **limits
        ):
            tried += 1
            found += failures
            for failure in failures:
                print(failure, flush=True)
    print(f"{tried} inputs tried, {len(found)} failures")
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
