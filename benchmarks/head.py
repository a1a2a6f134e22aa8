"""Speed and memory of the head, beside its peers' algorithms and this machine's own limit.

::

    python benchmarks/head.py                 everything (about 80 minutes on 2 cores)
    python benchmarks/head.py limit predict   only these parts
    python benchmarks/head.py --quick         a tenth of the size, printed and not kept

What is measured goes to head.json, HEAD.md and growth.png beside this file.

Each row is a pair measured in turn in the same run, the best of three for each side. The limit of a
piece of work is the time this machine takes for the same number of floating-point operations in one
plain matrix product of the same dtype.
"""

import argparse
import inspect
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from head_common import INPUTS, Labels, Row, best_of, limit_row, machine, make_features, table
from head_growth import growth
from numpy.typing import NDArray
from scipy.linalg import lapack
from sklearn.linear_model import RidgeClassifier

from visvm import IncrementalLSSVC
from visvm.head.lift import KernelMap
from visvm.head.products import Array
from visvm.head.selection import search_ridge, split_base_session
from visvm.head.solver import solve
from visvm.head.statistics import Statistics

HERE = Path(__file__).parent
Sessions = list[tuple[Array, Labels]]


# Peers, written plainly


def ranpac_way(sessions: Sessions, n_classes: int, ridge: float) -> NDArray[np.float32]:
    """Learn as RanPAC's head does as published.

    float32, full products, 17 candidates of λ by LU on 80 % of every session, one more LU. The LU
    is SciPy's, the fastest of numpy's, SciPy's and torch's on the machine this was written on.
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
        part_gram = np.matmul(rows[:cut].T, rows[:cut].copy())
        part_cross = rows[:cut].T @ targets[:cut]
        losses = []
        for candidate in 10.0 ** np.arange(-8, 9):
            weights = solve_lu(part_gram + np.float32(candidate) * identity, part_cross)
            losses.append(float(((rows[cut:] @ weights - targets[cut:]) ** 2).mean()))
        # The λ chosen is not used, so that both sides end at the same one and their answers can be
        # compared.
        weights = solve_lu(gram + np.float32(ridge) * identity, cross)
    return weights


def acil_way(sessions: Sessions, n_classes: int, ridge: float) -> Array:
    """Learn as ACIL's head does as published: float64, one update of the inverse a session."""
    width = sessions[0][0].shape[1]
    inverse, weights = np.eye(width) / ridge, np.zeros((width, n_classes))
    for rows, labels in sessions:
        targets = np.eye(n_classes)[labels]
        middle = np.linalg.inv(np.eye(len(rows)) + rows @ inverse @ rows.T)
        inverse -= inverse @ rows.T @ middle @ rows @ inverse
        weights += inverse @ rows.T @ (targets - rows @ weights)
    return weights


def against_peers(scale: float) -> list[Row]:
    """Learn ten sessions of 500 images, 100 classes, D = 10 000.

    Ours is given λ; RanPAC's way searches it in every session.
    """
    width, n, ridge = int(10_000 * scale), int(500 * scale), 100.0
    kernel_map = KernelMap(INPUTS, width, seed=0)
    sessions = []
    for first in range(0, 100, 10):
        features, labels = make_features(n, 10, first_class=first)
        sessions.append((kernel_map.lift(features), labels))
    test = kernel_map.lift(make_features(2000, 100, seed=1)[0])
    answers: dict[str, Labels] = {}

    def ours() -> None:
        model = IncrementalLSSVC(n_components=None, ridge=ridge, svm_cost=1.0)
        for features, labels in sessions:
            model.partial_fit(features, labels)
        answers["ours"] = np.asarray(model.predict(test))

    def ranpac() -> None:
        scores = test.astype(np.float32) @ ranpac_way(sessions, 100, ridge)
        answers["ranpac"] = scores.argmax(axis=1)

    def acil() -> None:
        answers["acil"] = (test @ acil_way(sessions, 100, ridge)).argmax(axis=1)

    mine, slow, slower = best_of(ours, acil, ranpac)
    rows = []
    for name, seconds, wanted in (("ranpac", slower, 100.0), ("acil", slow, 10.0)):
        agree = float((answers[name] == answers["ours"]).mean())
        title = {"ranpac": "RanPAC's way", "acil": "ACIL's way"}[name]
        what = f"ten sessions of {n}, 100 classes, D = {width}, against {title}"
        ratio, note = seconds / mine, f"same answer on {agree:.2%} of 2 000"
        rows.append(Row(what, mine, seconds, ratio, f"≥ {wanted:g}×", ratio >= wanted, note))
    return rows


def against_limit(scale: float) -> list[Row]:
    """Compare with a plain product of as many operations.

    4n³, an upper count, stand for the eigen-decomposition of the λ path.
    """
    width, n_classes = int(15_000 * scale), int(100 * scale)
    kernel_map = KernelMap(INPUTS, width, seed=0)
    features, labels = make_features(int(3000 * scale), n_classes)
    return [
        ridge_path(kernel_map, features, labels),
        thin_session(kernel_map, features, labels, new=int(500 * scale)),
        dense_session(kernel_map, n_classes, seen=int(20_000 * scale), new=int(1000 * scale)),
    ]


def ridge_path(kernel_map: KernelMap, features: Array, labels: Labels) -> Row:
    """Measure the choice of λ."""
    split = split_base_session(labels.astype(np.intp), None, 0)
    assert split.held_out is not None
    seen, train, held = len(labels), len(split.train), len(split.held_out)
    width, weight = kernel_map.n_components, np.ones(seen)

    def work() -> None:
        lift = lambda chosen: kernel_map.lift(features[chosen])  # noqa: E731
        search_ridge(lift, labels, weight, split, svm_cost=10.0, beyond=False)

    operations = 2 * seen * INPUTS * width  # lift
    operations += train**2 * width + 2 * held * train * width
    # reduction to three diagonals 4/3, eigenvectors of those 4/3 at most, transformation back 4/3
    # to 2
    operations += 4 * train**3 + 2 * held * train**2
    return limit_row(f"λ path, {seen} images, D = {width}, thin", work, operations, 2.0)


def thin_session(kernel_map: KernelMap, features: Array, labels: Labels, new: int) -> Row:
    """Measure a session while there are fewer images than D."""
    width, seen, n_classes = kernel_map.n_components, len(labels), int(labels.max()) + 1
    thin = Statistics(width)
    thin.add(kernel_map.lift(features), labels)
    solve(thin, 100.0, 10.0)
    total = seen + new
    # lift, kernel rows
    operations = 2 * new * INPUTS * width + 2 * new * seen * width + new**2 * width
    operations += new * seen**2 + new**2 * seen + new**3 / 3  # factor
    operations += 2 * total**2 * n_classes + 2 * total * width * n_classes  # solve, coefficients
    work = session(kernel_map, thin, *make_features(new, n_classes, seed=2))
    what = f"one thin session, {seen} seen, {new} new, D = {width}"
    return limit_row(what, work, operations, 2.0)


def dense_session(kernel_map: KernelMap, n_classes: int, seen: int, new: int) -> Row:
    """Measure a session when there are more images than D."""
    width = kernel_map.n_components
    dense = Statistics(width)
    dense.reserve(width)
    for begin in range(0, seen, 1000):
        features, labels = make_features(1000, n_classes, seed=10 + begin)
        dense.add(kernel_map.lift(features), labels)
    operations = 2 * new * INPUTS * width + new * width**2 + width**3 / 3 + 2 * width**2 * n_classes
    work = session(kernel_map, dense, *make_features(new, n_classes, seed=3))
    what = f"one dense session, {seen} seen, {new} new, D = {width}"
    return limit_row(what, work, operations, 1.8)


def session(
    kernel_map: KernelMap, statistics: Statistics, features: Array, labels: Labels
) -> Callable[[], object]:
    """Make the work of one session: lift, add and solve."""

    def work() -> Array:
        grown = statistics.copy()
        for begin in range(0, len(features), 500):
            rows = slice(begin, begin + 500)
            grown.add(kernel_map.lift(features[rows]), labels[rows])
        return solve(grown, 100.0, 10.0)

    return work


def predictions(scale: float) -> list[Row]:
    """Predict 10 000 rows."""
    width, n = int(15_000 * scale), int(10_000 * scale)
    features, labels = make_features(int(2000 * scale), 100)
    model = IncrementalLSSVC(n_components=width, ridge=100.0).fit(features, labels)
    rows = make_features(n, 100, seed=4)[0]
    operations = 2 * n * INPUTS * width + 2 * n * width * 100
    what = f"prediction of {n} rows, 100 classes, D = {width}"
    return [limit_row(what, lambda: model.predict(rows), operations, 1.5)]


def against_sklearn(scale: float) -> list[Row]:
    """Fit in one call on the same lifted features, both in float64."""
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


PARTS: dict[str, Callable[[float], list[Row]]] = {
    "limit": against_limit,
    "predict": predictions,
    "sklearn": against_sklearn,
    "growth": growth,
    "peers": against_peers,
}


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
        said = inspect.cleandoc(PARTS[part].__doc__ or "")
        text += ["", f"## {part}", "", said, "", table(rows), "", f"{result['machine']}."]
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
