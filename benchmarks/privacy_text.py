"""PRIVACY.md, from the figures that ``privacy.py`` has stored."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

_METHODS = {"Vertices": "linear programs", "Descent": "descent"}


def write(path: Path, stored: dict[str, Any]) -> None:
    """Write the page: a section for every part that has been measured."""
    parts = (("attack", attack), ("masked", masked), ("noise", noise))
    lines = [
        "# What sums give away, and what protection costs",
        "",
        "Written by `python benchmarks/privacy.py`. Times are CPU seconds of one thread.",
    ]
    for name, section in parts:
        if name in stored:
            lines += ["", *section(stored[name])]
    text = "\n".join(lines) + "\n"
    print(text)
    path.write_text(text, encoding="utf-8")


def table(columns: str, rows: list[tuple[object, ...]]) -> Iterator[str]:
    """Yield a table; `columns` are joined by bars, and all but the first align right."""
    yield f"| {columns} |"
    yield "|---" + "|---:" * columns.count("|") + "|"
    yield from ("| " + " | ".join(map(str, row)) + " |" for row in rows)


def attack(found: dict[str, Any]) -> Iterator[str]:
    """Yield the section on what attacks recover."""
    rows = found["rows"]
    yield "## Attacks"
    yield ""
    yield (
        "Photos are CUB-200's, their features the final block of dinov2-s14 (d = 384). Recovered "
        "means: all 384 numbers of the photo's feature,"
    )
    yield (
        f"to six digits. Each attack may take {found['seconds']:g} s; `privacy_attack.py` says "
        "how it works. The attacker has the sums and the seed of R, and no photo."
    )
    yield ""
    yield "### From the hull of all photos"
    yield ""
    hulls = [row for row in rows if row["what"] in _METHODS]
    yield from table(
        "method | D | photos (N) | form | recovered | tries | seconds",
        [
            (
                _METHODS[row["what"]],
                row["D"],
                row["N"],
                row["form"],
                row["recovered"],
                row["tries"],
                row["seconds"],
            )
            for row in hulls
        ],
    )
    yield ""
    yield "### From one class sum alone"
    yield ""
    yield from table(
        "photos of the class | D | recovered | seconds",
        [
            (row["N"], row["D"], row["recovered"], row["seconds"])
            for row in rows
            if row["what"] == "class"
        ],
    )
    yield ""
    (one,) = [row for row in rows if row["what"] == "session"]
    yield (
        f"### From a model that learned {one['N']} photos in sessions of {one['session']} "
        f"(D = {one['D']})"
    )
    yield ""
    yield (
        f"The rows of the last session alone give {one['recovered']} of its {one['session']} "
        f"photos in {one['seconds']:g} s."
    )


def masked(found: dict[str, Any]) -> Iterator[str]:
    """Yield the section on masked sums."""
    yield "## Masked sums (`visvm masked`)"
    yield ""
    n = found["rows"][0]["photos"]
    yield (
        f"Five sites with {n} photos of CUB-200 between them (150 classes; "
        "dinov2-s14), and a collector who learned the other 50 classes. Each card names all 200."
    )
    yield (
        "Errors and points are those of the total beside a plain merge of the same sums: of all "
        "five, and of four after the last one dropped out. Errors of sums are"
    )
    yield "relative to the largest entry of the Gram matrix; those of scores are absolute."
    yield ""
    yield from table(
        "D | masked file | plain file | to mask, s | total, s | total after a drop-out, s | error "
        "of sums | error of scores | points lost",
        [
            (
                row["D"],
                f"{row['masked'] / 1e6:.1f} MB",
                f"{row['plain'] / 1e6:.1f} MB",
                *(f"{row[f'{what}_seconds']:.2f}" for what in ("mask", "total", "dropped")),
                f"{max(row['all_sums_error'], row['dropped_sums_error']):.0e}",
                f"{max(row['all_scores_error'], row['dropped_scores_error']):.0e}",
                f"{max(_lost(row[f'{what}_accuracies']) for what in ('all', 'dropped')):.2f}",
            )
            for row in found["rows"]
        ],
    )


def _lost(accuracies: list[float]) -> float:
    given, plain = accuracies
    return plain - given


def noise(found: dict[str, Any]) -> Iterator[str]:
    """Yield the section on differential privacy."""
    yield "## Differentially private sums"
    yield ""
    yield (
        "Accuracy in per cent with noise for (ε, δ = 1e-5) for each photo: the Gaussian mechanism "
        "on features scaled to length 1 (`privacy_noise.py`), the mean of two draws."
    )
    yield (
        "Ten sites each add noise of their own. λ is the best one on the test photos, and numbers "
        "of photos get no noise, so that real figures would be lower."
    )
    yield ""
    rows = found["rows"]
    columns = [(None, 1), *((epsilon, n) for n in (1, 10) for epsilon in (16.0, 8.0, 4.0, 1.0))]
    names = [
        "no noise" if epsilon is None else f"ε = {epsilon:g}{', ten sites' if n > 1 else ''}"
        for epsilon, n in columns
    ]
    kept = {
        (row["dataset"], row["D"], row["epsilon"], row["sites"]): f"{100 * row['accuracy']:.1f}"
        for row in rows
    }
    settings = dict.fromkeys((row["dataset"], row["D"]) for row in rows)
    yield from table(
        "data, D | " + " | ".join(names),
        [
            (f"{name}, {width}", *(kept[name, width, *column] for column in columns))
            for name, width in settings
        ],
    )
    yield ""
    yield (
        "CUB-200 has about 30 photos of each class, CIFAR-100 20 here. Where one collector has "
        "thousands of photos, something is left from ε = 8 on: the widest map here loses "
        + _loses(rows, 384, 8.0)
    )
    yield (
        "points by it. At ε = 1 next to nothing is left, nor for ten sites at ε = 4. visvm does "
        "not offer it: sums of that use need the features clipped and a narrow map from the start."
    )


def _loses(rows: list[dict[str, Any]], width: int, epsilon: float) -> str:
    """Return the points that noise for ε costs, for every data set."""
    found = {}
    for row in rows:
        if (row["D"], row["sites"]) == (width, 1) and row["epsilon"] in (None, epsilon):
            found.setdefault(row["dataset"], {})[row["epsilon"]] = 100 * row["accuracy"]
    return " and ".join(
        f"{each[None] - each[epsilon]:.1f} ({name})" for name, each in found.items()
    )
