"""SOAK.md and its figure, from the lines that the soak test has written."""

import json
import os
import platform
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import linregress

Row = dict[str, Any]
WARM = 0.15  # of the time is left out of slopes: caches fill, classes are new
SHOWN = {  # name: title, unit, how many of the unit a number is
    "rss": ("memory of the service", "MiB", 2**20),
    "decoders": ("memory of its decoders", "MiB", 2**20),
    "descriptors": ("open descriptors", "", 1),
    "threads": ("threads", "", 1),
    "p50": ("time to answer one photo, median", "ms", 1e-3),
    "p99": ("time to answer one photo, 99 %", "ms", 1e-3),
    "busy": ("CPU of the service", "% of a core", 0.01),
    "file": ("model file", "KiB", 2**10),
}


def read_rows(path: Path) -> tuple[list[Row], Row]:
    """Return the lines, and what is known of the whole run."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    facts = rows.pop()["facts"]
    for before, row in pairwise(rows):
        row["begins"] = before["minutes"]
        row["busy"] = (row["cpu"] - before["cpu"]) / (60 * (row["minutes"] - before["minutes"]))
    return rows[1:], facts


def slope(rows: list[Row], name: str) -> tuple[float, float]:
    """Return how much a number grows in an hour, and the standard error of that."""
    last = rows[-1]["minutes"]
    points = [
        (row["minutes"] / 60, row[name] / SHOWN[name][2])
        for row in rows
        if row["minutes"] > WARM * last and row[name] is not None and not row["burst"]
    ]
    fitted = linregress(*zip(*points, strict=True))
    return float(fitted.slope), float(np.nan_to_num(fitted.stderr))


def draw(rows: list[Row], path: Path) -> None:
    """Draw every number over time, with its slope."""
    figure, axes = plt.subplots(4, 2, figsize=(11, 10), sharex=True, layout="constrained")
    for axis, (name, (title, unit, size)) in zip(axes.flat, SHOWN.items(), strict=True):
        points = [(row["minutes"], row[name] / size) for row in rows if row[name] is not None]
        axis.plot(*zip(*points, strict=True), ".-", linewidth=0.7, markersize=2.5, color="#22577a")
        for row in rows:
            if row["full"]:
                axis.axvspan(row["begins"], row["minutes"], color="#e0a030", alpha=0.3, lw=0)
        grown, error = slope(rows, name)
        axis.set_title(f"{title}: {grown:+.2f} ± {2 * error:.2f} {unit} an hour", fontsize=10)
        axis.set_ylabel(unit)
        axis.set_ylim(0, 1.1 * max(value for _, value in points))
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("minutes (shaded: the disk is full)")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def write_report(path: Path) -> str:
    """Write soak.png and SOAK.md beside the lines; return the latter."""
    rows, facts = read_rows(path)
    draw(rows, path.with_name("soak.png"))
    table = []
    for name, (title, unit, size) in SHOWN.items():
        values = [row[name] / size for row in rows if row[name] is not None]
        grown, error = slope(rows, name)
        shown = " / ".join(f"{value:.1f}" for value in (values[0], max(values), values[-1]))
        what = f"{title}, {unit}" if unit else title
        table.append(f"| {what} | {shown} | {grown:+.2f} ± {2 * error:.2f} |")
    grew = f"{facts['sessions']} sessions are in the model's history, which is kept, at the end"
    anew = f"a service started anew on it, after one burst, takes {facts['anew'] / 2**20:.1f} MiB"
    loads = sorted(row["load"] for row in rows)
    shared = f"load average {loads[0]:.0f} to {loads[-1]:.0f}"
    happened = [f"| {what} | {n} |" for what, n in sorted(facts["seen"].items())]
    answers = ", ".join(f"{status}: {n}" for status, n in sorted(facts["statuses"].items()))
    changes = ", ".join(f"{kind} {n}" for kind, n in sorted(facts["changes"].items()))
    faults = [f"- {fault}" for fault in facts["faults"]] or ["None."]
    machine = f"{os.cpu_count()} cores shared with other work, Python {platform.python_version()}"
    about = f"{facts['minutes']:g} minutes, {machine}, the tests' small encoder, a disk of"
    fit = f"Slopes are fitted without the first {WARM:.0%} of the time and without bursts"
    text = "\n".join(
        [
            "# `visvm serve` for an hour",
            "",
            "Written by `python -m benchmarks.soak`, which says what is done and how.",
            "",
            f"{about} {facts['disk']} (tmpfs).",
            "",
            "| the first service, never restarted | at first / at most / at last | slope an hour |",
            "|---|---:|---:|",
            *table,
            "",
            f"{fit}; ± is two standard errors. Times are those of a shared machine ({shared}).",
            f"{grew}: {anew}.",
            "",
            "![Each of them over time](soak.png)",
            "",
            "| what happened | |",
            "|---|---:|",
            f"| questions answered, by status | {answers} |",
            f"| changes acknowledged | {changes} |",
            *happened,
            "",
            "## What went wrong",
            "",
            *faults,
            "",
        ]
    )
    path.with_name("SOAK.md").write_text(text, encoding="utf-8")
    return text
