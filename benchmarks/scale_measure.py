"""What one core of this machine does in a second, from which ``scale_model.py`` starts."""

import io
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from head_common import machine
from numpy.typing import NDArray
from PIL import Image
from scale_model import Rates, dense_bytes
from threadpoolctl import threadpool_limits

from visvm.encoders.encoder import Preprocessing
from visvm.encoders.images import decode
from visvm.encoders.transform import Transform
from visvm.head.lift import KernelMap
from visvm.head.memory import chunk_rows
from visvm.head.products import ShiftedCholesky, add_symmetric_product, product
from visvm.head.scatter import DenseScatter
from visvm.head.solver import solve
from visvm.head.statistics import Statistics

WIDTH, INPUTS = 15_000, 384  # D, and the width of the features that are lifted
SMALL, COLUMNS = 4000, 4000  # D and C of what would take too long to measure at full size
ROUNDED = [(additions, ridge) for additions in (100, 1000) for ridge in (0.01, 100.0)]


def cpu_seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the least time one core spends on a piece of work; other work does not count."""
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def dense_sum(classes: NDArray[np.intp], generator: np.random.Generator) -> Statistics:
    """Make a dense sum at D = SMALL of one row for each class."""
    sums = Statistics(SMALL)
    sums.reserve(SMALL)
    sums.add(np.maximum(generator.normal(size=(len(classes), SMALL)), 0.0), classes)
    return sums


def lift_rates(generator: np.random.Generator) -> tuple[float, float]:
    """Measure operations a second of lifting a chunk at D = WIDTH, and of adding it."""
    kernel_map = KernelMap(INPUTS, WIDTH, seed=0)
    fused = generator.normal(size=(chunk_rows(WIDTH), INPUTS))
    matrix, rows = np.zeros((WIDTH, WIDTH), order="F"), kernel_map.lift(fused)
    lift = 2 * fused.size * WIDTH / cpu_seconds(lambda: kernel_map.lift(fused))
    return lift, len(rows) * WIDTH**2 / cpu_seconds(lambda: add_symmetric_product(matrix, rows), 2)


def measure() -> dict[str, Any]:
    """Measure on one core what the model starts from, and what it can be checked with."""
    generator = np.random.default_rng(0)
    with threadpool_limits(1):
        lift, scatter = lift_rates(generator)
        rows = np.maximum(generator.normal(size=(chunk_rows(WIDTH), SMALL)), 0.0)
        targets = generator.normal(size=(len(rows), COLUMNS))
        labels = generator.integers(0, COLUMNS, len(rows))
        products = 2 * rows.size * COLUMNS / cpu_seconds(lambda: product(rows.T, targets))
        sums, other = (dense_sum(np.arange(0, COLUMNS, step), generator) for step in (1, 2))
        added = cpu_seconds(lambda: sums.add(rows.copy(), labels))
        others = [other.copy() for _ in range(5)]
        merging = cpu_seconds(lambda: sums.merge(others.pop()), len(others))
        merge = dense_bytes(SMALL, COLUMNS) / merging

        assert isinstance(sums.scatter, DenseScatter)
        factor, right = ShiftedCholesky(sums.scatter.matrix, 1.0), np.asfortranarray(targets.T)
        cholesky = SMALL**3 / 3 / cpu_seconds(lambda: factor.__enter__().__exit__(None, None, None))
        with factor:
            triangular = 2 * SMALL * right.size / cpu_seconds(lambda: factor.solve(right))
        decoded = 1.0 / decode_seconds(generator)
        rates = Rates(lift, scatter, products, cholesky, triangular, merge, decoded)
        rounded = [rounded_error(*each) for each in ROUNDED]
    return {"machine": machine(), "rates": asdict(rates), "added": added, "rounded": rounded}


def decode_seconds(generator: np.random.Generator) -> float:
    """Time decoding a JPEG of 500 x 375 with texture at several scales."""
    picture = np.zeros((375, 500, 3))
    for cells in (4, 16, 64, 256):
        coarse = Image.fromarray(generator.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        picture += np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC), dtype=float) / 4
    file = io.BytesIO()
    Image.fromarray(picture.astype(np.uint8)).save(file, "JPEG", quality=90)
    transform = Transform("crop", Preprocessing(224, 256, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))
    return cpu_seconds(lambda: [decode(file.getvalue(), transform) for _ in range(10)], 10) / 10


def rounded_error(additions: int, ridge: float) -> tuple[int, float, float, float]:
    """Measure what rounding the sums to float32 after every addition changes.

    10 000 images of 100 classes are learned at D = 500, and 1 000 others asked.

    Returns
    -------
    additions, ridge, largest difference of a score, share of other answers
    """
    generator = np.random.default_rng(1)
    kernel_map, centres = KernelMap(INPUTS, 500, seed=0), generator.normal(size=(100, INPUTS))
    labels = generator.integers(0, 100, 11_000)
    lifted = kernel_map.lift(0.3 * centres[labels] + 0.5 + generator.normal(size=(11_000, INPUTS)))
    exact, rounded = Statistics(500), Statistics(500)
    for rows in np.split(np.arange(10_000), additions):
        for sums in (exact, rounded):
            sums.reserve(500)
            sums.add(lifted[rows], labels[rows])
        assert isinstance(rounded.scatter, DenseScatter)
        for array in (rounded.scatter.matrix, rounded.scatter.cross, rounded.class_sums):
            array[:] = array.astype(np.float32)
    coefficients = [solve(sums, ridge, 10.0) for sums in (exact, rounded)]
    right, near = (lifted[10_000:] @ each[:-1] + each[-1] for each in coefficients)
    other = float((near.argmax(axis=1) != right.argmax(axis=1)).mean())
    return additions, ridge, float(np.abs(near - right).max()), other
