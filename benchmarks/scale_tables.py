"""What stands in docs/scale.md between its marks: tables, and numbers in the text."""

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from scale_measure import COLUMNS, INPUTS, SMALL, WIDTH
from scale_model import (
    BLOCK,
    FILE,
    FLOAT,
    FOLDERS,
    FUSED,
    MIXED,
    REPAIR,
    SPREAD,
    WEB,
    Job,
    Node,
    Rates,
    Setup,
    Stream,
    dense_bytes,
    largest,
    most_classes,
    solve_peak_bytes,
    thin_bytes,
    widest,
)
from scale_simulation import careless_bytes, simulate
from scale_text import HOUR, count, duration, milliseconds, names, size, table

from visvm.head.memory import SessionSizes, chunk_rows

HERE = Path(__file__).parent
SMALL_SUM = f"D = {count(SMALL)}, {count(COLUMNS)} classes"
Row = Callable[[Job, int], list[str]]


def measured_tables(kept: dict[str, Any], rates: Rates) -> dict[str, str]:
    """Tell what was measured, beside what the model says of it."""
    rounded = [
        [count(n), f"{ridge:g}", f"{error:.1e}", f"{100 * other:.1f} %"]
        for n, ridge, error, other in kept["rounded"]
    ]
    return {
        "rates": table("what one core does | in a second | measured with", rate_rows(rates)),
        "checks": table("what | measured | the model says", check_rows(kept, rates)),
        "rounded": table("additions | λ | largest difference of a score | other answers", rounded),
    }


def rate_rows(rates: Rates) -> list[list[str]]:
    """List the rates that the model is made from."""
    giga = {name: f"{rate / 1e9:.3g} G" for name, rate in asdict(rates).items()}
    rows = chunk_rows(WIDTH)
    full, narrow = f"{rows} rows, D = {count(WIDTH)}", f"D = {count(SMALL)}"
    return [
        ["lift images: 2·d·D operations each", giga["lift"], f"`KernelMap.lift`, {full}"],
        ["add them to the matrix: D² each", giga["scatter"], f"`add_symmetric_product`, {full}"],
        ["class columns: 2·D·C each", giga["product"], f"`product`, {rows} rows, {SMALL_SUM}"],
        ["Cholesky factor: D³/3", giga["cholesky"], f"`ShiftedCholesky`, {narrow}"],
        [
            "solve for C classes: 2·D²·C",
            giga["triangular"],
            f"`ShiftedCholesky.solve`, {rows} columns, {narrow}",
        ],
        [
            "add a dense sum to another",
            f"{giga['merge']}B of sums",
            f"`Statistics.merge`, {SMALL_SUM}, half of them in the other",
        ],
        ["decode JPEG files of 500 x 375", f"{rates.decode:.0f} files", "`decode`"],
    ]


def check_rows(kept: dict[str, Any], rates: Rates) -> list[list[str]]:
    """Compare the model with measurements that it was not made from."""
    head = json.loads((HERE / "head.json").read_text())["limit"]["rows"][-1]
    images, classes, cores = 1000, 100, 2
    lift, columns = 2 * INPUTS / rates.lift, 4 * classes / rates.product
    session = images * WIDTH * (lift + WIDTH / rates.scatter + columns)
    session += WIDTH**3 / 3 / rates.cholesky + 2 * WIDTH**2 * classes / rates.triangular
    session += 2 * FLOAT * WIDTH**2 / rates.merge
    rows = chunk_rows(WIDTH)
    seen = Stream("", 0, COLUMNS, shuffled=True).classes_in(rows)
    added = rows * SMALL * (SMALL / rates.scatter + 2 * (COLUMNS + seen) / rates.product)
    added += 2 * FLOAT * SMALL * COLUMNS / rates.merge
    dense = f"{head[0]}, {cores} cores ([HEAD.md](../benchmarks/HEAD.md))"
    add = f"`Statistics.add`, {rows} rows, {SMALL_SUM}, one core"
    return [
        [dense, duration(head[1]), duration(session / cores)],
        [add, duration(kept["added"]), duration(added)],
    ]


def image_tables(setup: Setup) -> dict[str, str]:
    """Tell what one image costs in bytes and in time of a core, and how large the sums are."""
    sizes = {
        "its file (assumed)": (FILE, FILE),
        "its pixels, uint8": (224 * 224 * 3, 224 * 224 * 3),
        "its layer features, float32": (4 * 12 * 384, 4 * 12 * 768),
        "fused, float32": (FUSED * 384, FUSED * 768),
        f"lifted, float64, D = {count(WIDTH)}": (FLOAT * WIDTH, FLOAT * WIDTH),
    }
    parts, sums = [], []
    for job in (setup.job(stream, setup.gpu) for stream in (FOLDERS, MIXED, WEB)):
        times = job.core_seconds(max(setup.nodes))
        total = sum(times.values())
        each_part = map(milliseconds, (*times.values(), total))
        parts.append([job.stream.name, *each_part, count(job.node.cores / total)])
        columns = [job.columns(job.group), *map(job.node_columns, setup.nodes)]
        sent = [f"{size(dense_bytes(WIDTH, each, sent=True))} ({count(each)})" for each in columns]
        block = job.columns(BLOCK)
        thin = f"{size(thin_bytes(BLOCK, WIDTH, block))} ({count(block)})"
        sums.append([job.stream.name, thin, *sent])
    head = f"stream | {' | '.join(times)} | in all | images a second on {setup.gpu.cores} cores"
    thin_and_dense = f"block of {count(BLOCK)}, thin | group of {count(job.group)}, dense"
    rows = [[name, *map(size, both)] for name, both in sizes.items()]
    return {
        "sizes": table("an image | dinov2-s14 | clip-b16-openai", rows),
        "parts": table(head, parts),
        "sums": table(f"stream | {thin_and_dense} | {names('a node', setup.nodes)}", sums),
    }


def learning_row(job: Job, n_nodes: int) -> list[str]:
    """Follow a stream on so many nodes from the first image to the solved model."""
    run = simulate(job, n_nodes, spread=SPREAD)
    alone = [
        job.stream.n_images * each / n_nodes
        for each in (job.encode_seconds(), job.sum_seconds(n_nodes))
    ]
    solve = job.solve_seconds(n_nodes)
    memory = [
        size(each, job.node.memory)
        for each in (job.node_peak_bytes(n_nodes), job.driver_peak_bytes(n_nodes))
    ]
    before = [job.stream.name, str(n_nodes), *map(duration, (*alone, run.learned))]
    return [
        *before,
        size(run.sent),
        duration(run.added - run.learned),
        *memory,
        duration(solve),
        duration(run.added + solve),
    ]


def trouble_row(job: Job, n_nodes: int) -> list[str]:
    """Compare learning without trouble and with it."""
    even = simulate(job, n_nodes).added
    runs = [
        simulate(job, n_nodes, spread=SPREAD),
        simulate(job, n_nodes, spread=SPREAD, slow_nodes=-(-n_nodes // 8)),
    ]
    runs += [
        simulate(job, n_nodes, spread=SPREAD, failure=even / 2, saved_every=every)
        for every in (math.inf, HOUR)
    ]
    times = [duration(run.added) for run in runs]
    return [
        f"{job.stream.name}, {job.node.name}",
        str(n_nodes),
        duration(even),
        times[0],
        times[1] if n_nodes > 1 else "—",
        *times[2:],
    ]


def network_row(job: Job, n_nodes: int) -> list[str]:
    """Give rates of reading files, and bytes of the sums between nodes."""
    run, careless = simulate(job, n_nodes, spread=SPREAD), careless_bytes(job, n_nodes)
    rate, links = job.stream.n_images * FILE / run.learned, run.learned * n_nodes * job.link
    reading = [f"{size(rate / n_nodes)}/s", f"{size(rate)}/s"]
    return [
        f"{job.stream.name}, {job.node.name}",
        str(n_nodes),
        *reading,
        size(run.sent),
        size(careless),
        f"{100 * careless / links:.1f} %",
    ]


def solves_row(job: Job, n_nodes: int) -> list[str]:
    """Say how long adding and solving takes, and how often it may be done for 1 % of the time."""
    run = simulate(job, n_nodes, spread=SPREAD)
    pause = run.added - run.learned + job.solve_seconds(n_nodes)
    images = 99 * pause * job.stream.n_images / run.learned
    often = (
        f"{count(round(images, -3))} images" if images < job.stream.n_images else "once, at the end"
    )
    return [f"{job.stream.name}, {job.node.name}", str(n_nodes), duration(pause), often]


def learning_tables(setup: Setup, encoder_ms: float, clip_ms: float) -> dict[str, str]:
    """Tell what learning takes, what may go wrong, and the same with CLIP or sharded classes."""
    head = (
        "stream | nodes | encoders alone | decoding and sums alone | learning | sent between nodes"
        " | adding the nodes' sums | memory of a node | of the driver | solve | in all"
    )
    trouble = "even | blocks vary | one node in eight is slow | one fails | one fails and had saved"
    sent = "sums sent, node by node | sums sent, block by block | of all links"
    clip = []
    for job in setup.jobs:
        slower = replace(
            job.node, images_per_second=job.node.images_per_second * encoder_ms / clip_ms
        )
        job = replace(job, node=slower, n_inputs=768)
        totals = [simulate(job, n, spread=SPREAD).added + job.solve_seconds(n) for n in setup.nodes]
        clip.append([f"{job.stream.name}, {slower.name}", *map(duration, totals)])
    sharded = [replace(job, sharded=True) for job in setup.jobs]

    def rows(row: Row, jobs: Sequence[Job], nodes: Sequence[int] = setup.nodes) -> list[list[str]]:
        return [row(job, n) for job in jobs for n in nodes]

    return {
        "learning-cpu": table(head, rows(learning_row, setup.jobs[:2])),
        "learning-gpu": table(head, rows(learning_row, setup.jobs[2:])),
        "sharded-cpu": table(head, rows(learning_row, sharded[:2], setup.several)),
        "sharded-gpu": table(head, rows(learning_row, sharded[2:], setup.several)),
        "clip": table(f"stream | {names('in all', setup.nodes)}", clip),
        "trouble": table(f"stream | nodes | {trouble}", rows(trouble_row, setup.jobs)),
        "network": table(
            f"stream | nodes | read by a node | by all | {sent}",
            rows(network_row, setup.jobs, setup.several),
        ),
        "solves": table(
            "stream | nodes | adding and solving | for 1 % of the time, after every",
            rows(solves_row, setup.jobs),
        ),
    }


def limit_tables(setup: Setup) -> dict[str, str]:
    """Show where D² and D·C become too much, and what sharing them out gives."""
    memory, widths, columns, limits = setup.cpu.memory, [], [], []
    for width in (5000, WIDTH, 30_000, 60_000, 120_000):
        job = replace(setup.job(WEB), width=width)
        summing = milliseconds(width**2 / setup.rates.scatter / setup.cpu.cores)
        times = [duration(job.cholesky_seconds(n)) for n in (1, *setup.several)]
        matrix = dense_bytes(width, 0)
        widths.append([count(width), size(matrix), size(2 * matrix, memory), summing, *times])
    for classes in (1000, 10_000, FOLDERS.n_classes, WEB.n_classes, 1_000_000):
        job = replace(setup.job(replace(WEB, n_classes=classes)), sharded=True)
        scores = milliseconds(2 * WIDTH * classes / setup.rates.product / setup.cpu.cores)
        peaks = [
            size(solve_peak_bytes(WIDTH, -(-classes // n)), memory) for n in (1, *setup.several)
        ]
        times = [duration(job.solve_seconds(n)) for n in (1, *setup.several)]
        columns.append([count(classes), size(FLOAT * WIDTH * classes), scores, *peaks, *times])
    for memory in (setup.cpu.memory, setup.gpu.memory, 1e12):
        wide = [widest(classes, memory) for classes in (1000, FOLDERS.n_classes, WEB.n_classes)]
        many = [most_classes(width, memory) for width in (5000, WIDTH)]
        limits.append([size(memory), *(count(round(each, -2)) for each in (*wide, *many))])
    counts = (1, *setup.several)
    head = f"{names('memory of each', counts)} | {names('solve', counts)}"
    few = "widest at C = 1 000 | at 21 841 | at 100 000"
    return {
        "widths": table(
            f"D | matrix | two of them | D x D sum of an image | {names('Cholesky', counts)}",
            widths,
        ),
        "columns": table(f"C | D x C | scores of an image | {head}", columns),
        "limits": table(f"memory | {few} | most classes at D = 5 000 | at 15 000", limits),
    }


def sentences(setup: Setup, given: argparse.Namespace, kept: dict[str, Any]) -> dict[str, str]:
    """Give the numbers that stand in the text."""
    cpu, gpu = setup.cpu, setup.gpu
    return {
        **totals(setup),
        **bounds(setup),
        "web-sum": size(dense_bytes(WIDTH, WEB.n_classes)),
        "machine": kept["machine"],
        "encoder-ms": f"{given.encoder_ms:g} ms",
        "clip-ms": f"{given.clip_ms:g} ms",
        "gpu-rate": f"{count(given.gpu_rate)} images a second",
        "gpu-cores": f"{gpu.cores} cores",
        "gpu-memory": size(gpu.memory),
        "cores": f"{cpu.cores} cores",
        "memory": size(cpu.memory),
        "link": f"{given.link:g} Gbit/s",
        "file": size(FILE),
        "block": count(BLOCK),
        "group": count(setup.job(WEB).group),
        "spread": f"{100 * SPREAD:.0f} %",
        "repair": duration(REPAIR),
        "most-nodes": str(max(setup.nodes)),
        "growth": f"{kept['rounded'][2][2] / kept['rounded'][0][2]:.1f}",
        "saving": duration(dense_bytes(WIDTH, FOLDERS.n_classes, sent=True) / setup.link),
    }


def totals(setup: Setup) -> dict[str, str]:
    """Say how long streams take on the most nodes, and what the encoder's share is."""
    most = max(setup.nodes)
    jobs = dict(zip(("folders-cpu", "web-cpu", "folders-gpu", "web-gpu"), setup.jobs, strict=True))
    jobs["web-gpu-sharded"] = replace(jobs["web-gpu"], sharded=True)
    seconds = {
        name: simulate(job, most, spread=SPREAD).added + job.solve_seconds(most)
        for name, job in jobs.items()
    }
    encode, reduce = jobs["folders-cpu"].encode_seconds(), jobs["folders-cpu"].sum_seconds(most)
    rate = setup.gpu.cores / sum(jobs["web-gpu"].core_seconds(most).values())
    return {
        **{f"{name}-total": duration(each) for name, each in seconds.items()},
        "encoder-share": f"{100 * encode / (encode + reduce):.0f} %",
        "cores-rate": f"{count(rate)} images a second",
    }


def bounds(setup: Setup) -> dict[str, str]:
    """Say where memory, time or the link become the limit."""
    rates, cpu, gpu = setup.rates, setup.cpu, setup.gpu

    def widest_matrix(node: Node) -> str:
        width = largest(lambda width: 2 * dense_bytes(width, 0) <= node.memory)
        return count(round(width, -3))

    def base(classes: int) -> str:
        images = 5 * classes
        return size(
            SessionSizes(
                images, 0, False, classes, INPUTS, WIDTH, n_selection=images
            ).select_bytes()
        )

    features, lift = WEB.n_images * FUSED * INPUTS, 2 * INPUTS * WIDTH / rates.lift
    hour = (3 * HOUR * rates.cholesky * cpu.cores) ** (1 / 3)
    encoder = math.sqrt(rates.scatter * cpu.cores / cpu.images_per_second)
    return {
        "width-of-memory": widest_matrix(cpu),
        "width-of-gpu-memory": widest_matrix(gpu),
        "width-of-hour": count(round(hour, -3)),
        "width-of-encoder": count(round(encoder, -3)),
        "classes-of-factor": count(round(WIDTH / 6, -2)),
        "classes-of-memory": count(round(most_classes(WIDTH, cpu.memory), -2)),
        "all-columns": milliseconds(2 * WIDTH * WEB.n_classes / rates.product / cpu.cores),
        "layer-features": size(4 * 12 * INPUTS * WEB.n_images),
        "fused-features": size(features),
        "fused-seconds": duration(features / setup.link),
        "lift-again": milliseconds(2 * math.sqrt(max(setup.nodes)) * lift),
        "scatter-once": milliseconds(WIDTH**2 / rates.scatter),
        "base-few": base(1000),
        "base-many": base(WEB.n_classes),
    }
