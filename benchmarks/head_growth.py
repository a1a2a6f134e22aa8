"""Time and peak memory of the head over D and over the number of images, for ``head.py``."""

import multiprocessing
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from head_common import Row, make_features

from visvm import IncrementalLSSVC
from visvm.head.memory import peak_bytes
from visvm.head.scatter import ThinScatter

HERE = Path(__file__).parent


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
    scatter, peak = model.statistics_.scatter, peak_bytes()
    assert peak is not None  # it is measured on Linux
    if isinstance(scatter, ThinScatter):
        factor = sum(block.nbytes for block in scatter.blocks)
        return Growth(width, n, "thin", seconds, peak, factor)
    return Growth(width, n, "dense", seconds, peak, 8 * width**2)


def growth(scale: float) -> list[Row]:
    """Measure time and peak memory over D and over N; draw growth.png."""
    sizes = [(width, n) for n in (20_000, 1000) for width in (2000, 4000, 8000)]
    sizes += [(15_000, n) for n in (1000, 2000, 4000, 7000, 10_000, 20_000, 40_000)]
    measured = [measure_growth(int(width * scale), int(n * scale)) for width, n in sizes]
    draw_growth(measured, HERE / "growth.png" if scale == 1.0 else HERE / "growth-quick.png")
    rows = []
    for point in measured:
        bound = {"dense": 2.3, "thin": 3.0}[point.form]
        ratio = point.peak / point.state
        peak, state = point.peak / 2**30, point.state / 2**30
        where = f"{point.form}, N = {point.n}, D = {point.width} ({peak:.2f} GiB in all)"
        judged = point.width == 15_000 and point.n >= 4000
        wanted = f"≤ {bound:g}×" if judged else "—"
        unit = "8·D² bytes" if point.form == "dense" else "the factor"
        note = f"of {unit}; last session of {min(1000, point.n // 2)}: {point.seconds:.2f} s"
        holds = not judged or ratio <= bound
        rows.append(Row(f"peak memory, {where}", peak, state, ratio, wanted, holds, note))
    return rows


def draw_growth(measured: list[Growth], path: Path) -> None:
    """Draw seconds of a session, and peak memory, over N for each D."""
    from matplotlib.figure import Figure  # here: a process that is measured must not load it

    from visvm.bench.report.style import BLUE, ORANGE

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels = figure.subplots(1, 2)
    styles = {"thin": ("o", BLUE), "dense": ("s", ORANGE)}
    values = {
        "last session (s)": lambda point: point.seconds,
        "peak memory of the process (GiB)": lambda point: point.peak / 2**30,
    }
    for panel, (name, value) in zip(panels, values.items(), strict=True):
        for width in sorted({point.width for point in measured}):
            line = sorted((point.n, value(point)) for point in measured if point.width == width)
            panel.plot(*zip(*line, strict=True), color="0.75", zorder=1)
            place = {"xytext": (6, -3), "textcoords": "offset points"}
            panel.annotate(f"D = {width}", line[-1], fontsize=8, **place)
        for form, (marker, colour) in styles.items():
            points = [point for point in measured if point.form == form]
            x, y = [point.n for point in points], [value(point) for point in points]
            panel.scatter(x, y, marker=marker, color=colour, label=form, zorder=2)
        panel.set(xscale="log", yscale="log", xlabel="images seen", ylabel=name)
        panel.margins(x=0.22)
        panel.grid(alpha=0.3, which="both")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=150)
