"""What a benchmark will cost: roughly, from operation counts and from the speed of this machine."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from visvm.bench.loading import LabelledImages
from visvm.bench.methods import METHODS
from visvm.bench.methods.method import Traits
from visvm.bench.plan import RunGroup
from visvm.bench.rows import Run
from visvm.bench.streams import class_order, session_sizes
from visvm.errors import InputError
from visvm.head.memory import SessionSizes
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
    """Measure the floating-point operations of a matrix product on this machine."""
    side = 1500
    matrix = np.ones((side, side))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        matrix @ matrix
        times.append(time.perf_counter() - start)
    return float(2 * side**3 / min(times))


def estimate(group: RunGroup, run: Run, speed: float) -> Estimate:
    """Estimate what a run will cost.

    Parameters
    ----------
    group : RunGroup
    run : Run
    speed : float
        Operations a second, as ``operations_per_second`` gives them.
    """
    entry = METHODS[run.method]
    options = {**entry.options, **run.options}
    for name in _COUNTS:
        value = options.get(name)
        if value is not None and not (isinstance(value, int) and value >= 1):
            raise InputError(
                f"The {name!r} parameter of {run.method} must be a whole number of at least 1. "
                f"Got {value!r} instead.",
                code="parameter-invalid",
            )
    order = class_order(len(group.data.classes), run.class_order_seed)
    limit = options.get("max_selection_samples") or len(group.data.train.images)
    operations, peak, seen, begin = 0.0, 0, 0, 0
    for size in session_sizes(run.protocol, len(order)):
        end = begin + size
        new = _count(group.data.train, order[begin:end])
        if entry.traits.refits:
            new, seen = new + seen, 0
        tested = _count(group.data.test, order[:end])
        step = _Step(entry.traits, options, group.encoder.layer_dims, new, seen, tested, end, limit)
        operations += step.operations()
        peak = max(peak, step.peak_bytes())
        seen, begin = seen + new, end
    return Estimate(operations / speed, peak)


@dataclass(frozen=True)
class _Step:
    """One session: its new images, those seen before, those tested on; and all classes so far."""

    traits: Traits
    options: dict[str, Any]
    dims: tuple[int, ...]
    new: int
    seen: int
    tested: int
    n_classes: int
    limit: int

    @property
    def width(self) -> int:
        """D."""
        return self.options.get("n_components") or self.dims[-1]

    @property
    def dense(self) -> bool:
        """Whether a D × D matrix is held, not the rows of all images."""
        return self.traits.dense or self.seen + self.new > self.width

    @property
    def side(self) -> int:
        """Images that λ is chosen with."""
        return min(self.limit, self.new) if not self.seen or self.traits.resplits else 0

    @property
    def trains(self) -> bool:
        """Whether a mixer is trained."""
        return self.traits.mixes and not self.seen

    def operations(self) -> float:
        """Count floating-point operations."""
        new, width, final = self.new, self.width, self.dims[-1]
        rows = width if self.dense else self.seen + new
        lift_and_score = 2.0 * (new + self.tested) * width * (final + self.n_classes)
        sum_and_solve = 1.0 * new * width * rows + rows**3 / 3
        side, tries = self.side, len(layer_candidates(len(self.dims))) if self.traits.mixes else 1
        choose = tries * (side * width * (2.0 * final + side) + _EIGEN * min(side, width) ** 3)
        train = self._training(tries * side + new) if self.trains else 0.0
        return lift_and_score + sum_and_solve + choose + train

    def _training(self, n: int) -> float:
        """Count operations to train mixers of middling sets of blocks on n images in all."""
        options = {**METHODS["vis"].options, **self.options}
        tapped = np.mean(
            [sum(self.dims[each - 1] for each in some) for some in layer_candidates(len(self.dims))]
        )
        steps = options["epochs"] * n / options["batch_size"]
        return float(_STEP * steps * options["hidden"] * (tapped + self.dims[-1]))

    def peak_bytes(self) -> int:
        """Count the bytes held at most, the features not counted."""
        new, final = self.new, self.dims[-1]
        session = SessionSizes(
            new,
            0 if self.dense else self.seen,
            self.dense,
            self.n_classes,
            final,
            self.width,
            self.side,
            2 * new * (sum(self.dims) + final) if self.trains else 0,
        )
        # the features so far, and a copy while some are added
        kept = 8 * new * sum(self.dims) if self.traits.refits else 0
        return session.peak_bytes() + kept


def _count(images: LabelledImages, classes: list[int]) -> int:
    return int(np.isin(images.targets, classes).sum())
