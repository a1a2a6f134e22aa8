"""What the parts of ``head.py`` share: synthetic features, timing in turn, rows of its tables."""

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy
import sklearn
from numpy.typing import NDArray

from visvm.head.products import Array

INPUTS = 384  # width of the features before the map, as DINOv2-S has it
REPEATS = 3
Labels = NDArray[np.intp]


class Row(NamedTuple):
    """One line of the table."""

    what: str
    ours: float
    theirs: float
    ratio: float
    wanted: str
    holds: bool
    note: str = ""


def best_of(*works: Callable[[], object], repeats: int = REPEATS) -> list[float]:
    """Return the best time of each piece of work, taken in turn."""
    best = [float("inf")] * len(works)
    for _ in range(repeats):
        for place, work in enumerate(works):
            begin = time.perf_counter()
            work()
            best[place] = min(best[place], time.perf_counter() - begin)
    return best


def make_features(
    n: int, n_classes: int, seed: int = 0, first_class: int = 0
) -> tuple[Array, Labels]:
    """Make features with class structure and a mean, (n, 384), and labels."""
    centres = np.random.default_rng(99).normal(size=(1000, INPUTS))
    generator = np.random.default_rng([seed, first_class])
    labels = generator.integers(first_class, first_class + n_classes, n)
    return generator.normal(size=(n, INPUTS)) + 0.5 * centres[labels] + 0.5, labels


def plain_product(operations: float) -> Callable[[], object]:
    """Make a matrix product of square float64 matrices with about this many operations."""
    side = round((operations / 2.0) ** (1.0 / 3.0))
    left, right = np.random.default_rng(0).normal(size=(2, side, side))
    return lambda: left @ right


def limit_row(what: str, work: Callable[[], object], operations: float, wanted: float) -> Row:
    """Compare work with a plain product of as many operations."""
    mine, limit = best_of(work, plain_product(operations))
    ratio, note = mine / limit, f"{operations:.2g} operations"
    return Row(what, mine, limit, ratio, f"≤ {wanted:g}×", ratio <= wanted, note)


def machine() -> str:
    """Say what the numbers were measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), "?"
    )
    versions = (
        f"Python {platform.python_version()}, numpy {np.__version__}, SciPy {scipy.__version__}"
    )
    return f"{model}, {os.cpu_count()} cores; {versions}, scikit-learn {sklearn.__version__}"


def table(rows: list[Row]) -> str:
    """Write rows as a Markdown table."""
    lines = [
        "| what | ours | beside it | ratio | wanted | holds | note |",
        "|---|---:|---:|---:|---:|---|---|",
    ]
    for row in rows:
        unit = "GiB" if row.what.startswith("peak") else "s"
        numbers = (
            f"{row.ours:.2f} {unit} | {row.theirs:.2f} {unit} | {row.ratio:.2f}× | {row.wanted}"
        )
        lines.append(
            f"| {row.what} | {numbers} | {'yes' if row.holds else '**no**'} | {row.note} |"
        )
    return "\n".join(lines)
