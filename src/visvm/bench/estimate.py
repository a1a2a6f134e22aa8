"""What a benchmark will cost: roughly, from operation counts and from the speed of this machine."""

import time
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from visvm.bench.loading import LabelledImages
from visvm.bench.methods import METHODS
from visvm.bench.methods.method import Traits
from visvm.bench.methods.through import HELD_BYTES, training_bytes
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
_VISIT = 2.2  # times what encoding takes, to train on an image through a frozen encoder
_PATCH = 14  # pixels; the least that is usual


@dataclass(frozen=True)
class Estimate:
    """Seconds a run will take, and the most memory it will need beside the features."""

    seconds: float
    n_bytes: int


@cache
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


def estimate(group: RunGroup, run: Run, speed: float, image_seconds: float = 0.0) -> Estimate:
    """Estimate what a run will cost at so many operations a second.

    Encoding an image takes `image_seconds`, for methods that train through the encoder.
    """
    entry = METHODS[run.method]
    options = {**entry.options, **run.options}
    for name in _COUNTS:
        value = options.get(name)
        least = 0 if name == "epochs" and entry.traits.trains else 1
        if value is not None and not (isinstance(value, int) and value >= least):
            raise InputError(
                f"The {name!r} parameter of {run.method} must be a whole number of at least "
                f"{least}. Got {value!r} instead.",
                code="parameter-invalid",
            )
    order = class_order(len(group.data.classes), run.class_order_seed)
    operations, peak, seen, begin, tested, trained = 0.0, 0, 0, 0, 0, 0
    for size in session_sizes(run.protocol, len(order)):
        end = begin + size
        new = _count(group.data.train, order[begin:end])
        if entry.traits.refits:
            new, seen = new + seen, 0
        step = _Step(new, seen, _count(group.data.test, order[:end]), end)
        cost = step.cost(entry.traits, options, group.encoder.layer_dims)
        operations, peak = operations + cost[0], max(peak, cost[1])
        seen, begin = seen + new, end
        tested += step.tested
        trained += new if entry.traits.trains == "every" or not begin - size else 0
    if not entry.traits.trains:
        return Estimate(operations / speed, peak)
    again = tested if entry.traits.trains == "every" else seen + step.tested
    depth = len(group.encoder.layer_dims)
    share = options.get("n_blocks", depth) / depth  # of the blocks; what enters them is held
    visits = (1.0 - share + _VISIT * share * options["epochs"]) * trained + again
    return Estimate(operations / speed + visits * image_seconds, peak + _held(group, trained))


class _Step(NamedTuple):
    """One session: its new images, those seen before, those tested on; and all classes so far."""

    new: int
    seen: int
    tested: int
    n_classes: int

    def cost(
        self, traits: Traits, options: dict[str, Any], dims: tuple[int, ...]
    ) -> tuple[float, int]:
        """Count floating-point operations, and the bytes held at most beside the features."""
        new, final = self.new, dims[-1]
        width = options.get("n_components") or final
        dense = traits.dense or self.seen + new > width
        rows = width if dense else self.seen + new
        chooses = not self.seen or traits.resplits
        side = min(options.get("max_selection_samples") or new, new) if chooses else 0
        trains = traits.mixes and not self.seen
        tries = len(layer_candidates(len(dims))) if traits.mixes else 1
        operations = (
            2.0 * (new + self.tested) * width * (final + self.n_classes)  # lift and score
            + (1.0 * new * width * rows + rows**3 / 3)  # sum and solve
            + tries * (side * width * (2.0 * final + side) + _EIGEN * min(side, width) ** 3)
            + (_training(dims, tries * side + new, options) if trains else 0.0)
        )
        mixer = 2 * new * (sum(dims) + final) if trains else 0
        before = 0 if dense else self.seen
        session = SessionSizes(new, before, dense, self.n_classes, final, width, side, mixer)
        # the features so far, and a copy while some are added
        kept = 8 * new * sum(dims) if traits.refits else 0
        return operations, session.peak_bytes() + kept


def _training(dims: tuple[int, ...], n: int, options: dict[str, Any]) -> float:
    """Count operations to train mixers of middling sets of blocks on n images in all."""
    options = {**METHODS["vis"].options, **options}
    candidates = layer_candidates(len(dims))
    tapped = np.mean([sum(dims[layer - 1] for layer in layers) for layers in candidates])
    steps = options["epochs"] * n / options["batch_size"]
    return float(_STEP * steps * options["hidden"] * (tapped + dims[-1]))


def _held(group: RunGroup, n: int) -> int:
    """Return the bytes that training through the encoder holds, n images being seen."""
    depth, width = len(group.encoder.layer_dims), group.encoder.layer_dims[-1]
    token_bytes = 4 * width * (1 + (group.encoder.preprocessing.size // _PATCH) ** 2)
    return training_bytes(token_bytes, depth) + min(n * token_bytes, HELD_BYTES)


def _count(images: LabelledImages, classes: list[int]) -> int:
    return int(np.isin(images.targets, classes).sum())
