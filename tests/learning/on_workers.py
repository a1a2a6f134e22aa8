"""What other processes import for the tests. It imports little, as each of them pays for it."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from visvm.learning import local as learning
from visvm.learning.ray_tasks import Leader, Part


@dataclass(frozen=True)
class Slow:
    """An image that takes its time, and may kill the process that reads it, once."""

    path: str
    deadly: str = ""

    def __str__(self):
        return self.path

    def read_bytes(self):
        time.sleep(0.02)
        if self.deadly and not os.path.exists(self.deadly):
            Path(self.deadly).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Path(self.path).read_bytes()


class Probe(Leader):
    """A session that tells how many sums come back to it, of images that are encoded already."""

    def count(self, settled, rows, spare):
        import ray.data

        encoded = ray.data.from_items(rows, override_num_blocks=12)
        if spare:  # with blocks that are empty
            encoded = encoded.filter(lambda row: row["place"] % 6 != 0 and row["place"] < 40)
        came, plain = [], Part.add
        # in this process alone
        Part.add = lambda part, other: came.append(other) or plain(part, other)
        try:
            return self._sum(encoded, settled), len(came)
        finally:
            Part.add = plain


def encode_slowly():
    """Make learning in this process slow, and its journal written often."""
    plain = learning.encode_stream

    def slow(*arguments):
        for outcomes in plain(*arguments):
            time.sleep(0.02)
            yield outcomes

    learning._MOST_ROWS, learning.encode_stream = 5, slow
