"""`visvm` in a process whose clock can be set back while it runs.

    python -m benchmarks.soak_clock OFFSET_FILE serve MODEL …

The file holds the seconds to add to the time of day. It is read whenever the time is asked for, by
``time.time``, ``time.time_ns`` and ``datetime.now``, which are all that visvm and uvicorn ask. The
dates of files are the kernel's, and stay. libfaketime would reach further, but its version 0.9.10
makes ``time.sleep`` of Python 3.11 fail.
"""

import datetime
import sys
import time
from pathlib import Path


def set_back(offset: Path) -> None:
    """Let the time of day differ by what a file says."""
    real = time.time_ns

    def time_ns() -> int:
        return real() + int(offset.read_text()) * 10**9

    class Moved(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "Moved":
            return cls.fromtimestamp(time_ns() / 1e9, tz)

    time.time_ns, time.time = time_ns, lambda: time_ns() / 1e9
    datetime.datetime = Moved


if __name__ == "__main__":
    set_back(Path(sys.argv.pop(1)))
    from visvm.cli.main import main

    main()
