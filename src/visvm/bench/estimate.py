"""What a benchmark will cost, told before it starts: roughly, from operation counts and from the speed of this machine."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from visvm.bench.loading import LabelledImages
from visvm.bench.methods import METHODS
from visvm.bench.methods.acil import ACIL
from visvm.bench.methods.klda import KLDA
from visvm.bench.methods.ranpac import RanPACHead
from visvm.bench.methods.vis import Vis
from visvm.bench.methods.vis_oracle import VisOracle
from visvm.bench.rows import Run
from visvm.bench.runner import Job, default_options
from visvm.bench.streams import class_order, session_sizes
from visvm.errors import InputError
from visvm.head.memory import Session
from visvm.head.selection import layer_candidates

# options that costs follow from
_COUNTS = ("n_components", "max_selection_samples", "hidden", "epochs", "batch_size")
_EIGEN = 9.0  # operations of an eigen-decomposition, by the cube of its side
# operations of a step of the mixer's training, for each of its weights; most of it is waiting for
# the memory
_STEP = 2000.0


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
    dims = job.encoder.layer_dims
    options = {**default_options(run.method), **run.options}
    for name in _COUNTS:
        value = options.get(name)
        if value is not None and not (isinstance(value, int) and value >= 1):
            raise InputError(f"{name} must be a whole number from 1 up; got {value!r}: correct it")
    width = options.get("n_components") or dims[-1]
    limit = options.get("max_selection_samples") or len(job.data.train.images)
    fusing, refitting, choosing = (_is_a(run.method, kind) for kind in (Vis, VisOracle, RanPACHead))
    from_the_start = _is_a(run.method, KLDA, ACIL, RanPACHead)  # a D x D matrix is held
    order = class_order(len(job.data.classes), run.class_order_seed)
    operations, peak, seen, begin = 0.0, 0, 0, 0
    for size in session_sizes(run.protocol, len(order)):
        new, tested = (
            _count(job.data.train, order[begin : begin + size]),
            _count(job.data.test, order[: begin + size]),
        )
        if refitting:
            new, seen = new + seen, 0
        first = seen == 0
        dense = from_the_start or seen + new > width
        rows = width if dense else seen + new
        operations += 2.0 * (new + tested) * width * (dims[-1] + begin + size)  # lift and score
        operations += 1.0 * new * width * rows + rows**3 / 3  # sums and solve
        side = min(limit, new) if first or choosing else 0
        tries = len(layer_candidates(len(dims))) if fusing else 1
        operations += tries * (
            side * width * (2.0 * dims[-1] + side) + _EIGEN * min(side, width) ** 3
        )
        operations += (
            _training(dims, tries * side + new, {**default_options("vis"), **options})
            if first and fusing
            else 0.0
        )
        mixer = 2 * new * (sum(dims) + dims[-1]) if first and fusing else 0
        session = Session(
            new, 0 if dense else seen, dense, begin + size, dims[-1], width, side, mixer
        )
        # the features so far, and a copy while some are added
        kept = 8 * new * sum(dims) if refitting else 0
        peak = max(peak, session.peak_bytes() + kept)
        seen, begin = seen + new, begin + size
    return Estimate(operations / speed, peak)


def _training(dims: Sequence[int], n: int, options: dict[str, Any]) -> float:
    """Operations to train a mixer of a middling set of blocks on n images, or several on as many in all."""
    tapped = np.mean(
        [sum(dims[layer - 1] for layer in layers) for layers in layer_candidates(len(dims))]
    )
    steps = options["epochs"] * n / options["batch_size"]
    return float(_STEP * steps * options["hidden"] * (tapped + dims[-1]))


def _is_a(method: str, *kinds: type) -> bool:
    """Whether a method is of one of these classes. One's own is counted as an LS-SVM on the final block."""
    make = METHODS[method]
    return isinstance(make, type) and issubclass(make, kinds)


def _count(images: LabelledImages, classes: list[int]) -> int:
    return int(np.isin(images.targets, classes).sum())
