"""Speed and memory of the head, side by side with its peers' algorithms and with this machine's own limit.

    python benchmarks/head.py                 everything (about 80 minutes on 2 cores) python
    benchmarks/head.py limit predict   only these parts python benchmarks/head.py --quick
    everything at a tenth of the size, printed and not kept

What is measured goes to head.json, HEAD.md and growth.png beside this file.

Each row is a pair measured in turn in the same run, the best of three for each side. The limit of a
piece of work is the time this machine takes for the same number of floating-point operations in one
plain matrix product of the same dtype.
"""

import argparse
import json
import multiprocessing
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
from scipy.linalg import lapack
from sklearn.linear_model import RidgeClassifier

from visvm import IncrementalLSSVC
from visvm.head.kernel_map import KernelMap
from visvm.head.scatter import ThinScatter
from visvm.head.selection import search_ridge, split_base_session
from visvm.head.solver import solve
from visvm.head.statistics import Statistics

Array = NDArray[np.float64]
HERE = Path(__file__).parent
INPUTS = 384  # width of the features before the map, as DINOv2-S has it
REPEATS = 3


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
    """Best time of each piece of work, taken in turn."""
    best = [float("inf")] * len(works)
    for _ in range(repeats):
        for place, work in enumerate(works):
            begin = time.perf_counter()
            work()
            best[place] = min(best[place], time.perf_counter() - begin)
    return best


def make_features(
    n: int, n_classes: int, seed: int = 0, first_class: int = 0
) -> tuple[Array, NDArray[np.intp]]:
    """Features with class structure and a mean, (n, 384), and labels."""
    centres = np.random.default_rng(99).normal(size=(1000, INPUTS))
    generator = np.random.default_rng([seed, first_class])
    labels = generator.integers(first_class, first_class + n_classes, n)
    return generator.normal(size=(n, INPUTS)) + 0.5 * centres[labels] + 0.5, labels


def plain_product(operations: float) -> Callable[[], object]:
    """A matrix product of square float64 matrices with about this many operations."""
    side = round((operations / 2.0) ** (1.0 / 3.0))
    left, right = np.random.default_rng(0).normal(size=(2, side, side))
    return lambda: left @ right


# Peers, written plainly


def ranpac_way(
    sessions: list[tuple[Array, NDArray[np.intp]]], n_classes: int, ridge: float
) -> NDArray[np.float32]:
    """RanPAC's head as published: float32, full products, 17 candidates of λ by LU on 80 % of every session, one more LU.

    The LU is SciPy's, which is the fastest of numpy's, SciPy's and torch's on the machine this was
    written on.
    """
    width = sessions[0][0].shape[1]
    gram, cross = np.zeros((width, width), np.float32), np.zeros((width, n_classes), np.float32)
    identity = np.eye(width, dtype=np.float32)

    def solve_lu(matrix: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(lapack.sgesv(matrix.T, right, overwrite_a=1)[2])

    for features, labels in sessions:
        rows, targets = features.astype(np.float32), np.eye(n_classes, dtype=np.float32)[labels]
        cross += rows.T @ targets
        gram += np.matmul(rows.T, rows.copy())
        cut = int(0.8 * len(rows))
        part_gram, part_cross = (
            np.matmul(rows[:cut].T, rows[:cut].copy()),
            rows[:cut].T @ targets[:cut],
        )
        losses = []
        for candidate in 10.0 ** np.arange(-8, 9):
            weights = solve_lu(part_gram + np.float32(candidate) * identity, part_cross)
            losses.append(float(((rows[cut:] @ weights - targets[cut:]) ** 2).mean()))
        # The λ chosen is not used, so that both sides end at the same one and their answers can be
        # compared.
        weights = solve_lu(gram + np.float32(ridge) * identity, cross)
    return weights


def acil_way(sessions: list[tuple[Array, NDArray[np.intp]]], n_classes: int, ridge: float) -> Array:
    """ACIL's head as published: float64, the inverse of the Gram matrix updated recursively, one update a session."""
    width = sessions[0][0].shape[1]
    inverse, weights = np.eye(width) / ridge, np.zeros((width, n_classes))
    for rows, labels in sessions:
        targets = np.eye(n_classes)[labels]
        middle = np.linalg.inv(np.eye(len(rows)) + rows @ inverse @ rows.T)
        inverse -= inverse @ rows.T @ middle @ rows @ inverse
        weights += inverse @ rows.T @ (targets - rows @ weights)
    return weights


def against_peers(scale: float) -> list[Row]:
    """Ten sessions of 500 images, 100 classes, D = 10 000. Ours is given λ; RanPAC's way searches it in every session."""
    width, n, ridge = int(10_000 * scale), int(500 * scale), 100.0
    kernel_map = KernelMap(INPUTS, width, seed=0)
    sessions = []
    for first in range(0, 100, 10):
        features, labels = make_features(n, 10, first_class=first)
        sessions.append((kernel_map.lift(features), labels))
    test = kernel_map.lift(make_features(2000, 100, seed=1)[0])
    answers: dict[str, NDArray[np.intp]] = {}

    def ours() -> None:
        model = IncrementalLSSVC(n_components=None, ridge=ridge, svm_cost=1.0)
        for features, labels in sessions:
            model.partial_fit(features, labels)
        answers["ours"] = np.asarray(model.predict(test))

    def ranpac() -> None:
        answers["ranpac"] = (test.astype(np.float32) @ ranpac_way(sessions, 100, ridge)).argmax(
            axis=1
        )

    def acil() -> None:
        answers["acil"] = (test @ acil_way(sessions, 100, ridge)).argmax(axis=1)

    mine, slow, slower = best_of(ours, acil, ranpac)
    rows = []
    for name, seconds, wanted in (("ranpac", slower, 100.0), ("acil", slow, 10.0)):
        agree = float((answers[name] == answers["ours"]).mean())
        title = {"ranpac": "RanPAC's way", "acil": "ACIL's way"}[name]
        what = f"ten sessions of {n}, 100 classes, D = {width}, against {title}"
        ratio = seconds / mine
        rows.append(
            Row(
                what,
                mine,
                seconds,
                ratio,
                f"≥ {wanted:g}×",
                ratio >= wanted,
                f"same answer on {agree:.2%} of 2 000",
            )
        )
    return rows


def against_limit(scale: float) -> list[Row]:
    """Against a plain product of as many operations; 4n³, an upper count, stand for the λ path's eigen-decomposition."""
    width, n_classes = int(15_000 * scale), int(100 * scale)
    seen, new = int(3000 * scale), int(500 * scale)
    kernel_map = KernelMap(INPUTS, width, seed=0)
    rows = []

    features, labels = make_features(seen, n_classes)
    split = split_base_session(labels.astype(np.intp), None, 0)
    assert split.held_out is not None
    train, held = len(split.train), len(split.held_out)
    weight = np.ones(seen)

    def path() -> None:
        search_ridge(
            lambda chosen: kernel_map.lift(features[chosen]),
            labels,
            weight,
            split,
            svm_cost=10.0,
            beyond=False,
        )

    lift = 2 * seen * INPUTS * width
    square = train**2 * width + 2 * held * train * width
    # reduction to three diagonals 4/3, eigenvectors of those 4/3 at most, transformation back 4/3
    # to 2
    eigen = 4 * train**3
    rows.append(
        limit_row(
            f"λ path, {seen} images, D = {width}, thin",
            path,
            lift + square + eigen + 2 * held * train**2,
            2.0,
        )
    )

    def session(
        statistics: Statistics, batch: Array, batch_labels: NDArray[np.intp]
    ) -> Callable[[], object]:
        def work() -> Array:
            grown = statistics.copy()
            for begin in range(0, len(batch), 500):
                grown.add(
                    kernel_map.lift(batch[begin : begin + 500]), batch_labels[begin : begin + 500]
                )
            return solve(grown, 100.0, 10.0)

        return work

    thin = Statistics(width)
    thin.add(kernel_map.lift(features), labels)
    solve(thin, 100.0, 10.0)
    batch, batch_labels = make_features(new, n_classes, seed=2)
    total = seen + new
    # lift, kernel rows
    operations = 2 * new * INPUTS * width + 2 * new * seen * width + new**2 * width
    operations += new * seen**2 + new**2 * seen + new**3 / 3  # factor
    operations += 2 * total**2 * n_classes + 2 * total * width * n_classes  # solve, coefficients
    work = session(thin, batch, batch_labels)
    rows.append(
        limit_row(f"one thin session, {seen} seen, {new} new, D = {width}", work, operations, 2.0)
    )

    dense = Statistics(width)
    dense.reserve(width)
    for begin in range(0, int(20_000 * scale), 1000):
        features, labels = make_features(1000, n_classes, seed=10 + begin)
        dense.add(kernel_map.lift(features), labels)
    new = int(1000 * scale)
    batch, batch_labels = make_features(new, n_classes, seed=3)
    operations = 2 * new * INPUTS * width + new * width**2 + width**3 / 3 + 2 * width**2 * n_classes
    work = session(dense, batch, batch_labels)
    rows.append(
        limit_row(
            f"one dense session, {int(20_000 * scale)} seen, {new} new, D = {width}",
            work,
            operations,
            1.8,
        )
    )
    return rows


def limit_row(what: str, work: Callable[[], object], operations: float, wanted: float) -> Row:
    """Compare work with a plain product of as many operations."""
    mine, limit = best_of(work, plain_product(operations))
    return Row(
        what,
        mine,
        limit,
        mine / limit,
        f"≤ {wanted:g}×",
        mine / limit <= wanted,
        f"{operations:.2g} operations",
    )


def predictions(scale: float) -> list[Row]:
    """Scores of 10 000 rows."""
    width, n = int(15_000 * scale), int(10_000 * scale)
    features, labels = make_features(int(2000 * scale), 100)
    model = IncrementalLSSVC(n_components=width, ridge=100.0).fit(features, labels)
    rows = make_features(n, 100, seed=4)[0]
    operations = 2 * n * INPUTS * width + 2 * n * width * 100
    return [
        limit_row(
            f"prediction of {n} rows, 100 classes, D = {width}",
            lambda: model.predict(rows),
            operations,
            1.5,
        )
    ]


def against_sklearn(scale: float) -> list[Row]:
    """One fit in one call on the same lifted features, float64 both."""
    width = int(4000 * scale)
    kernel_map = KernelMap(INPUTS, width, seed=0)
    rows = []
    for n in (int(4000 * scale), int(20_000 * scale)):
        features, labels = make_features(n, 100)
        lifted = kernel_map.lift(features)
        ours = IncrementalLSSVC(n_components=None, ridge=10.0)
        theirs = RidgeClassifier(alpha=1.0, solver="cholesky")
        mine, other = best_of(lambda: ours.fit(lifted, labels), lambda: theirs.fit(lifted, labels))  # noqa: B023
        what = f"one fit, n = {n}, D = {width}, against RidgeClassifier(solver='cholesky')"
        rows.append(Row(what, mine, other, other / mine, "≥ 1×", other >= mine))
    return rows


# Growth


class Growth(NamedTuple):
    """One measured fit, in a process of its own."""

    width: int
    n: int
    form: str
    seconds: float  # of the last session
    peak: int  # bytes of the whole process
    state: int  # bytes of the thin factor, or of the dense matrix


def measure_growth(width: int, n: int) -> Growth:
    """Learn n samples in sessions of 1 000 and time the last."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measure_growth, (width, n))


def _measure_growth(width: int, n: int) -> Growth:
    model = IncrementalLSSVC(n_components=width, ridge=100.0)
    features, labels = make_features(n, 100)
    features = features.astype(np.float32)
    step = min(1000, n // 2)
    model.partial_fit(features[:-step], labels[:-step])
    begin = time.perf_counter()
    model.partial_fit(features[-step:], labels[-step:])
    seconds = time.perf_counter() - begin
    scatter = model.statistics_.scatter
    thin = isinstance(scatter, ThinScatter)
    state = (
        sum(block.nbytes for block in scatter.blocks)
        if isinstance(scatter, ThinScatter)
        else 8 * width**2
    )
    peak = peak_bytes()
    return Growth(width, n, "thin" if thin else "dense", seconds, peak, state)


def peak_bytes() -> int:
    """Peak memory of this process; getrusage would count the parent's, from which it was forked."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def growth(scale: float) -> list[Row]:
    """Time and peak memory over D and over N; draws growth.png."""
    sizes = [(width, 20_000) for width in (2000, 4000, 8000)] + [
        (width, 1000) for width in (2000, 4000, 8000)
    ]
    sizes += [(15_000, n) for n in (1000, 2000, 4000, 7000, 10_000, 20_000, 40_000)]
    measured = [measure_growth(int(width * scale), int(n * scale)) for width, n in sizes]
    draw_growth(measured, HERE / "growth.png" if scale == 1.0 else HERE / "growth-quick.png")
    rows = []
    for point in measured:
        bound = {"dense": 2.3, "thin": 3.0}[point.form]
        ratio = point.peak / point.state
        what = f"peak memory, {point.form}, N = {point.n}, D = {point.width} ({point.peak / 2**30:.2f} GiB in all)"
        judged = (point.form, point.width) in (
            ("dense", 15_000),
            ("thin", 15_000),
        ) and point.n >= 4000
        wanted = f"≤ {bound:g}×" if judged else "—"
        unit = "8·D² bytes" if point.form == "dense" else "the factor"
        note = f"of {unit}; last session of {min(1000, point.n // 2)}: {point.seconds:.2f} s"
        rows.append(
            Row(
                what,
                point.peak / 2**30,
                point.state / 2**30,
                ratio,
                wanted,
                not judged or ratio <= bound,
                note,
            )
        )
    return rows


def draw_growth(measured: list[Growth], path: Path) -> None:
    """Two panels: seconds of a session, and peak memory, over N for each D."""
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), constrained_layout=True)
    styles = {"thin": ("o", "#0072B2"), "dense": ("s", "#D55E00")}
    values = {"seconds": lambda point: point.seconds, "memory": lambda point: point.peak / 2**30}
    labels = {"seconds": "last session (s)", "memory": "peak memory of the process (GiB)"}
    for panel, (name, value) in zip(panels, values.items(), strict=True):
        for width in sorted({point.width for point in measured}):
            line = sorted(
                (point for point in measured if point.width == width), key=lambda point: point.n
            )
            panel.plot(
                [point.n for point in line],
                [value(point) for point in line],
                color="0.75",
                zorder=1,
            )
            panel.annotate(
                f"D = {width}",
                (line[-1].n, value(line[-1])),
                (6, -3),
                textcoords="offset points",
                fontsize=8,
            )
        for form, (marker, colour) in styles.items():
            points = [point for point in measured if point.form == form]
            x, y = [point.n for point in points], [value(point) for point in points]
            panel.scatter(x, y, marker=marker, color=colour, label=form, zorder=2)
        panel.set(xscale="log", yscale="log", xlabel="images seen", ylabel=labels[name])
        panel.margins(x=0.22)
        panel.grid(alpha=0.3, which="both")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=150)


PARTS: dict[str, Callable[[float], list[Row]]] = {
    "limit": against_limit,
    "predict": predictions,
    "sklearn": against_sklearn,
    "growth": growth,
    "peers": against_peers,
}


def machine() -> str:
    """What the numbers were measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), "?"
    )
    versions = (
        f"Python {platform.python_version()}, numpy {np.__version__}, SciPy {scipy.__version__}"
    )
    return f"{model}, {os.cpu_count()} cores; {versions}, scikit-learn {sklearn.__version__}"


def table(rows: list[Row]) -> str:
    """A Markdown table."""
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


def write_results(results: dict[str, dict[str, object]]) -> None:
    """Write HEAD.md from everything measured so far."""
    text = [
        "# The head: speed and memory",
        "",
        "Written by `python benchmarks/head.py`; see its docstring for what is measured.",
    ]
    text += ["", "![time and memory over N and D](growth.png)"]
    for part, result in results.items():
        rows = [Row(*row) for row in result["rows"]]  # type: ignore[attr-defined]
        text += [
            "",
            f"## {part}",
            "",
            (PARTS[part].__doc__ or ""),
            "",
            table(rows),
            "",
            f"{result['machine']}.",
        ]
    (HERE / "HEAD.md").write_text("\n".join(text) + "\n")


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="only these")
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, nothing written")
    options = parser.parse_args()
    store = HERE / "head.json"
    results = json.loads(store.read_text()) if store.exists() else {}
    for part in options.parts or PARTS:
        rows = PARTS[part](0.1 if options.quick else 1.0)
        print(f"## {part}\n\n{table(rows)}\n", flush=True)
        if not options.quick:
            results[part] = {"machine": machine(), "rows": rows}
            results = {name: results[name] for name in PARTS if name in results}
            store.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
            write_results(results)


if __name__ == "__main__":
    main()
