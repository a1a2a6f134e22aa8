"""What a benchmark will cost, told before it starts: roughly, from operation counts and from the speed of this machine."""

import time
from dataclasses import dataclass

import numpy as np

from visvm.bench.loading import LabelledImages
from visvm.bench.rows import Run
from visvm.bench.runner import Job, option_names
from visvm.bench.streams import class_order, session_sizes
from visvm.head.memory import Session, chunk_rows

_SELECTION = 5000  # samples at most on which λ and the blocks are chosen
_CANDIDATES = 7  # sets of blocks tried for an encoder of twelve


@dataclass(frozen=True)
class Estimate:
    """Seconds a run will take, and the most memory it will need beside the features."""

    seconds: float
    n_bytes: int


def operations_per_second() -> float:
    """Floating-point operations of a matrix product on this machine."""
    side = 1500
    matrix = np.ones((side, side))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        matrix @ matrix
        times.append(time.perf_counter() - start)
    return float(2 * side**3 / min(times))


def estimate(job: Job, run: Run, speed: float) -> Estimate:
    """What a run will cost.

    Parameters
    ----------
    job : Job
    run : Run
    speed : float
        Operations a second, as ``operations_per_second`` gives them.
    """
    inputs = job.encoder.layer_dims[-1]
    width = {**option_names(run.method), **run.options}.get("n_components") or inputs
    order = class_order(len(job.data.classes), run.class_order_seed)
    operations, peak, seen, begin = 0.0, 0, 0, 0
    for size in session_sizes(run.protocol, len(order)):
        new = _count(job.data.train, order[begin : begin + size])
        tested = _count(job.data.test, order[: begin + size])
        rows = min(seen + new, width)
        operations += 2.0 * (new + tested) * width * (inputs + begin + size)  # lift and score
        operations += 1.0 * new * width * rows + rows**3 / 3  # sums and solve
        if run.method.startswith("vis") and (begin == 0 or run.method == "vis-oracle"):
            side = min(_SELECTION, new if begin == 0 else seen + new)
            operations += _CANDIDATES * side * width * (2.0 * inputs + side) + _CANDIDATES * 9.0 * min(side, width) ** 3
        dense = seen + new > width
        session = Session(min(new, chunk_rows(width)), 0 if dense else seen, dense, begin + size, inputs, width)
        peak = max(peak, session.peak_bytes())
        seen, begin = seen + new, begin + size
    return Estimate(operations / speed, peak)


def _count(images: LabelledImages, classes: list[int]) -> int:
    return int(np.isin(images.targets, classes).sum())
