"""RESULTS.md and REPRODUCIBILITY.md against the rows in results/ that they speak of."""

import re
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from visvm.bench.methods import METHODS
from visvm.bench.report.summary import BASELINES, ORACLE, OURS, collect, grouped
from visvm.bench.rows import read_rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RESULTS, REPRODUCIBILITY = (
    (ROOT / name).read_text("utf-8") for name in ("RESULTS.md", "REPRODUCIBILITY.md")
)
ENCODERS = {"DINOv2": "dinov2-s14", "CLIP": "clip-b16-openai"}


@cache
def finished():
    return collect(read_rows(ROOT / "results"))[0]


def runs(method, encoder, protocol, options, dataset="cub200", **seeds):
    """Runs on test images by the seed that is not given, in its order."""
    free = "class_order_seed" if "seed" in seeds else "seed"
    wanted = {
        "dataset": dataset,
        "method": method,
        "encoder": encoder,
        "protocol": protocol,
        "split": "test",
        **seeds,
    }
    found = [
        each
        for each in finished()
        if msgspec.to_builtins(each.run).items() >= wanted.items() and each.run.options == options
    ]
    return {
        getattr(each.run, free): each
        for each in sorted(found, key=lambda each: getattr(each.run, free))
    }


def pair(run):
    return f"{100 * run.average:.2f} / {100 * run.final:.2f}"


def table_after(heading, first_cell):
    """Cells of the table below a heading whose first cell is this one: its header, and its rows."""
    lines = RESULTS[RESULTS.index(f"## {heading}\n") :].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first_cell}"))
    end = next(
        number for number, line in enumerate(lines[start:], start) if not line.startswith("|")
    )
    header, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end]
    ]
    return header, rows


def test_reproducibility_says_something_of_every_method():
    for name in (*BASELINES, OURS, ORACLE):
        assert REPRODUCIBILITY.count(f"\n| `{name}` | ") == 1
        assert REPRODUCIBILITY.count(f"**{name}**") == 1


def test_reproducibility_has_the_numbers_of_the_rows():
    every = (*BASELINES, OURS, ORACLE)
    apart = {"text", "images"}  # have tables of their own
    for method in (name for name in every if not apart & set(METHODS[name].needs)):
        (line,) = [
            line for line in REPRODUCIBILITY.splitlines() if line.startswith(f"| `{method}` |")
        ]
        run = runs(method, "dinov2-s14", "B0 Inc20", {}, class_order_seed=1993)[0]
        assert line.split(" | ")[2] == pair(run)


def test_every_pair_of_numbers_in_the_results_is_that_of_a_run_or_of_a_mean_over_seeds():
    alone = [[each] for each in finished()]
    over_seeds = grouped(finished(), lambda each: replace(each.run, seed=0).key).values()
    known = {
        tuple(
            f"{100 * np.mean([getattr(each, name) for each in group]):.2f}"
            for name in ("average", "final")
        )
        for group in (*alone, *over_seeds)
    }
    told = set(re.findall(r"(?<!to )\b(\d\d\.\d\d) / (\d\d\.\d\d)", RESULTS))
    assert len(told) > 30
    assert told <= known


def test_the_eight_settings():
    datasets = {"CUB": ("cub200", 20), "CIFAR-100": ("cifar100", 10)}
    header, rows = table_after("The eight settings", "|")
    assert len(rows) == 8
    for where, *cells in rows:
        name, encoder, base = where.split(", ")
        dataset, step = datasets[name]
        for method, cell in zip(header[1:], cells, strict=True):
            protocol = f"{base} Inc{step}"
            assert cell == pair(
                runs(
                    method.strip("`"),
                    ENCODERS[encoder],
                    protocol,
                    {},
                    dataset,
                    class_order_seed=1993,
                )[0]
            )


def test_the_same_width_for_all():
    header, rows = table_after("The same D for all", "|")
    assert len(rows) == 5
    for name, *cells in rows:
        method, width = re.match(r"`(\S+)`, D = ([\d ]+)", name).groups()
        options = METHODS[method].changed({"n_components": int(width.replace(" ", ""))})
        for where, cell in zip(header[1:], cells, strict=True):
            encoder, protocol = where.split()
            assert cell == pair(
                runs(
                    method, ENCODERS[encoder], f"{protocol} Inc20", options, class_order_seed=1993
                )[0]
            )


@pytest.mark.parametrize("encoder", ENCODERS)
def test_seeds_and_class_orders(encoder):
    header, rows = table_after("Five seeds, five class orders", encoder)
    over = [{"class_order_seed": 1993}, {"seed": 0}][: len(header) // 2]
    assert len(rows) == {"DINOv2": 5, "CLIP": 2}[encoder]
    for name, *cells in rows:
        method = name.strip("`")
        for fixed, spread, lead in zip(over, cells[::2], cells[1::2], strict=True):
            ours, theirs = (
                runs(each, ENCODERS[encoder], "B0 Inc20", {}, **fixed) for each in (OURS, method)
            )
            if spread == "draws nothing":
                assert len({each.final for each in theirs.values()}) == 1
                continue
            finals = 100 * np.array([each.final for each in theirs.values()])
            assert spread == f"{finals.mean():.2f} ± {finals.std(ddof=1):.2f}"
            leads = 100 * np.array([ours[seed].final for seed in theirs]) - finals
            said = (
                f"{leads.mean():+.2f} ± {leads.std(ddof=1):.2f}, ahead in {(leads > 0).sum()} of 5"
            )
            assert (len(leads), lead) == (5, "" if method == OURS else said)


def test_draws():
    page = (ROOT / "benchmarks" / "DRAWS.md").read_text("utf-8")
    _, rows = table_after("Beside a plain solver", "CLIP, first three sessions, Ā")
    assert len(rows) == 2
    for width, other, *cells in rows:
        part = page[page.index(f"## {width.replace(' 000', '000')}\n") :]
        assert f"one draw: {other.replace(', ', ' / ')}.\n" in part
        for name, cell in zip(
            ("visvm's R", "numpy's R", "no draw: the kernel itself"), cells, strict=True
        ):
            found = re.search(rf"\n\| {name}, λ = 100 \| ([^|(]+)[^|]*\| ([^|(]+)", part).groups()
            assert cell == ", ".join(value.strip() for value in found)
