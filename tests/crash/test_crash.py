"""Commands that are cut off at their file operations, here at every third or so.

``python -m tests.crash`` does so at all of them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.sqlite_operations import library

EVERY = 3
POINTS = {"models": 600, "others": 400}  # at least

pytestmark = [
    pytest.mark.kill,
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs fork and /proc"),
]


@pytest.mark.parametrize("group", POINTS)
def test_a_command_cut_off_anywhere_can_be_run_again(group):
    if library() is None:
        pytest.skip("SQLite's operations cannot be seen here")
    # a process of its own: forks of one that has imported less are faster
    command = [sys.executable, "-m", "tests.crash", "--json", "--group", group, "--every", EVERY]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [failure for each in found for failure in each["failures"]] == []
    assert done.returncode == 0, done.stderr
    assert min(each["kills"] for each in found) > 0
    assert sum(each["kills"] + each["power_cuts"] for each in found) >= POINTS[group]
