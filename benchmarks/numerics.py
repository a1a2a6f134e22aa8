"""Numbers at their limits: many cycles, tiny and huge values, many classes.

::

    python benchmarks/numerics.py cycles     how errors grow over 10 000 cycles: some minutes
    python benchmarks/numerics.py sizes      features and weights of any size: seconds
    python benchmarks/numerics.py classes    classes of one sample each: up to a quarter of an hour

Each command stores its figures in numerics.json and writes NUMERICS.md beside this file. Times are
CPU seconds of one thread if ``OPENBLAS_NUM_THREADS=1`` is set.
"""

import argparse
import json
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from privacy_text import table

from visvm import IncrementalLSSVC, VisvmError
from visvm.head.solver import solve
from visvm.head.statistics import Statistics

HERE = Path(__file__).parent
N_CYCLES, SHOWN = 10_000, (1, 10, 100, 1000, 10_000)
FORMS = {"thin": (120, 20), "dense": (40, 400)}  # D, samples
SIZES = (1e-300, 1e-160, 1e-140, 1e-100, 1e-12, 1e-6, 1.0, 1e50, 1e140, 1e160)
WEIGHTS = (1e-300, 1e-51, 1e-40, 1e-12, 1.0, 1e6, 1e20, 1e160)
CLASSES = (1000, 10_000, 100_000)

Row = dict[str, Any]


def main() -> None:
    """Measure one part, and write the page of all parts measured so far."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=tuple(PARTS))
    parser.add_argument("--classes", type=int, nargs="*", default=CLASSES)
    given = parser.parse_args()
    store = HERE / "numerics.json"
    stored = json.loads(store.read_text()) if store.exists() else {}
    stored[given.part] = []
    for row in PARTS[given.part](given):
        print(row, flush=True)
        stored[given.part].append(row)
    store.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    write(HERE / "NUMERICS.md", stored)


# Cycles


def cycles(_: argparse.Namespace) -> Iterator[Row]:
    """Yield the errors after so many cycles of five samples learned, or merged, and taken out."""
    for form, (width, n) in FORMS.items():
        for how in (_forget, _unmerge):
            yield from _cycled(form, width, n, how)


def _cycled(form: str, width: int, n: int, how: Callable[..., None]) -> Iterator[Row]:
    generator = np.random.default_rng(0)
    mixing = generator.standard_normal((12, width))

    def samples(n: int) -> tuple[np.ndarray, np.ndarray]:
        return np.maximum(generator.standard_normal((n, 12)) @ mixing, 0.0), np.arange(n) % 4

    sums, (asked, _) = Statistics(width), samples(50)
    sums.add(*samples(n))
    scatter, begin = sums.scatter.to_matrix(), time.process_time()
    first = _scores(sums, asked)
    for cycle in range(1, N_CYCLES + 1):
        how(sums, *samples(5))
        if cycle in SHOWN:
            drift = np.abs(sums.scatter.to_matrix() - scatter).max() / np.abs(scatter).max()
            yield {
                "form": form,
                "how": how.__name__[1:],
                "cycles": cycle,
                "scatter": float(drift),
                "scores": float(np.abs(_scores(sums, asked) - first).max()),
                "seconds": time.process_time() - begin,
            }


def _scores(sums: Statistics, asked: np.ndarray) -> np.ndarray:
    coefficients = solve(sums.copy(), 1e-3, 10.0)
    return np.asarray(asked @ coefficients[:-1] + coefficients[-1])


def _forget(sums: Statistics, lifted: np.ndarray, labels: np.ndarray) -> None:
    sums.add(lifted.copy(), labels)
    sums.subtract(lifted, labels)


def _unmerge(sums: Statistics, lifted: np.ndarray, labels: np.ndarray) -> None:
    there = Statistics(sums.n_features)
    there.add(lifted, labels)
    sums.merge(there)
    sums.unmerge(there)


# Sizes


def sizes(_: argparse.Namespace) -> Iterator[Row]:
    """Yield what becomes of features, and of weights, of every size."""
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 3
    X = generator.standard_normal((60, 8)) + 4 * np.eye(8)[labels]
    for size in SIZES:
        yield {"what": "features", "size": size, "came": _came(X * size, labels, None)}
    for weight in WEIGHTS:
        weights = np.where(np.arange(60) < 5, weight, 1.0)
        yield {"what": "five weights", "size": weight, "came": _came(X, labels, weights)}


def _came(X: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> str:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            model = IncrementalLSSVC(n_components=100).fit(X, labels, sample_weight=weight)
        except VisvmError as error:
            return f"refused: {error.code}"
        accuracy = f"learned, {100 * model.score(X, labels):.0f} % right"
    return accuracy + ", with a warning" * bool(told)


# Classes


def classes(given: argparse.Namespace) -> Iterator[Row]:
    """Yield time and memory for so many classes of one sample each."""
    for n in given.classes:
        X, begin = np.random.default_rng(0).standard_normal((n, 8)), time.process_time()
        model = IncrementalLSSVC(n_components=20, ridge=1e-6).fit(X[:2], np.arange(2))
        model.partial_fit(X[2:], np.arange(2, n))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        seconds = time.process_time() - begin
        yield {"classes": len(model.classes_), "seconds": seconds, "mebibytes": peak}


PARTS = {"cycles": cycles, "sizes": sizes, "classes": classes}


# The page


def write(path: Path, stored: dict[str, list[Row]]) -> None:
    """Write the page: a section for every part that has been measured."""
    lines = ["# Numbers at their limits", "", "Written by `python benchmarks/numerics.py`."]
    pages = (("cycles", _cycles_page), ("sizes", _sizes_page), ("classes", _classes_page))
    for name, page in pages:
        if name in stored:
            lines += ["", *page(stored[name])]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _cycles_page(rows: list[Row]) -> Iterator[str]:
    yield "## Cycles"
    yield ""
    yield "Five new samples are learned and forgotten, or merged and unmerged, again and again."
    yield "How far the scatter is off, relative to its largest entry, and scores (λ = 0.001):"
    yield ""
    names = {"forget": "learn, forget", "unmerge": "merge, unmerge"}
    yield from table(
        "form | cycle | cycles | scatter | scores | CPU s",
        [
            (
                f"{row['form']}, D = {FORMS[row['form']][0]}",
                names[row["how"]],
                row["cycles"],
                f"{row['scatter']:.0e}",
                f"{row['scores']:.0e}",
                f"{row['seconds']:.1f}",
            )
            for row in rows
        ],
    )


def _sizes_page(rows: list[Row]) -> Iterator[str]:
    yield "## Sizes"
    yield ""
    yield "Sixty samples of three classes that are easy to tell apart, with λ chosen."
    yield ""
    columns = [(row["what"], f"{row['size']:g}", row["came"]) for row in rows]
    yield from table("what | size | came of it", columns)


def _classes_page(rows: list[Row]) -> Iterator[str]:
    yield "## Classes of one sample"
    yield ""
    yield "In one session after one of two classes, D = 20, d = 8."
    yield ""
    columns = [(row["classes"], f"{row['seconds']:.1f}", f"{row['mebibytes']:.0f}") for row in rows]
    yield from table("classes | CPU s | peak memory of the process, MiB", columns)


if __name__ == "__main__":
    main()
