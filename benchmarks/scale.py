"""What learning very many images of very many classes costs on a cluster: fills in docs/scale.md.

    python benchmarks/scale.py                          from the measurements that are kept in
    docs/scale.json python benchmarks/scale.py --measure                measures this machine first,
    on one core (about a minute) python benchmarks/scale.py --nodes 4 16 --link 25   another
    cluster: printed, nothing is written

Whatever was measured or computed stands in the page between ``<!-- name -->`` and ``<!-- / -->``
and is written there by this command, which prints it all and draws the page's two figures.
``scale_model.py`` is the model and the simulation.
"""

import argparse
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from scale_figures import draw_limits, draw_time
from scale_measure import COLUMNS, INPUTS, SMALL, WIDTH, measure
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
    careless_bytes,
    dense_bytes,
    largest,
    most_classes,
    simulate,
    solve_peak_bytes,
    thin_bytes,
    widest,
)

from visvm.head.memory import SessionSizes, chunk_rows

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
HOUR, DAY = 3600.0, 86_400.0


# Numbers for people


def short(number: float) -> str:
    """Three digits, or more where it takes more to write it out."""
    return f"{number:.3g}" if number < 100 else count(number)


def count(number: float) -> str:
    """A whole number with its thousands apart."""
    return f"{number:,.0f}".replace(",", " ")


def duration(seconds: float) -> str:
    """A time."""
    for unit, length in (("days", DAY), ("h", HOUR), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{short(seconds / length)} {unit}"
    return f"{short(seconds)} s"


def milliseconds(seconds: float) -> str:
    """A short time."""
    return f"{1000 * seconds:.2g} ms" if seconds < 0.01 else f"{1000 * seconds:.0f} ms"


def size(n_bytes: float, most: float = math.inf) -> str:
    """A number of bytes by powers of ten, bold where it is more than `most`."""
    unit, length = next(
        (each for each in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)) if n_bytes >= 0.9995 * each[1]),
        ("kB", 1e3),
    )
    return (
        f"**{short(n_bytes / length)} {unit}**"
        if n_bytes > most
        else f"{short(n_bytes / length)} {unit}"
    )


def table(head: str, rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; columns that begin with a number are set to the right."""
    lines = [
        head.split(" | "),
        ["---:" if cell.strip("*")[:1].isdigit() else "---" for cell in rows[0]],
        *rows,
    ]
    return "\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\n"


def names(what: str, values: Sequence[int]) -> str:
    """Heads of columns, one for each number of nodes."""
    return " | ".join(f"{what}, {n} node{'s' if n > 1 else ''}" for n in values)


# What is written into the page


def measured_tables(kept: dict[str, Any], rates: Rates) -> dict[str, str]:
    """What was measured, and the model beside measurements that it was not made from."""
    head = json.loads((HERE / "head.json").read_text())["limit"]["rows"][-1]
    images, classes, cores = 1000, 100, 2
    session = (
        images
        * WIDTH
        * (2 * INPUTS / rates.lift + WIDTH / rates.scatter + 4 * classes / rates.product)
    )
    session += (
        WIDTH**3 / 3 / rates.cholesky
        + 2 * WIDTH**2 * classes / rates.triangular
        + 2 * FLOAT * WIDTH**2 / rates.merge
    )
    rows = chunk_rows(WIDTH)
    seen = Stream("", 0, COLUMNS, shuffled=True).classes_in(rows)
    added = (
        rows * SMALL * (SMALL / rates.scatter + 2 * (COLUMNS + seen) / rates.product)
        + 2 * FLOAT * SMALL * COLUMNS / rates.merge
    )
    giga = {name: f"{rate / 1e9:.3g} G" for name, rate in asdict(rates).items()}
    full, small = (
        f"{rows} rows, D = {count(WIDTH)}",
        f"D = {count(SMALL)}, {count(COLUMNS)} classes",
    )
    measured = [
        ["lift images: 2·d·D operations each", giga["lift"], f"`KernelMap.lift`, {full}"],
        ["add them to the matrix: D² each", giga["scatter"], f"`add_symmetric_product`, {full}"],
        ["class columns: 2·D·C each", giga["product"], f"`product`, {rows} rows, {small}"],
        ["Cholesky factor: D³/3", giga["cholesky"], f"`ShiftedCholesky`, D = {count(SMALL)}"],
        [
            "solve for C classes: 2·D²·C",
            giga["triangular"],
            f"`ShiftedCholesky.solve`, {rows} columns, D = {count(SMALL)}",
        ],
        [
            "add a dense sum to another",
            f"{giga['merge']}B of sums",
            f"`Statistics.merge`, {small}, half of them in the other",
        ],
        ["decode JPEG files of 500 x 375", f"{rates.decode:.0f} files", "`decode`"],
    ]
    checks = [
        [
            f"{head[0]}, 2 cores ([HEAD.md](../benchmarks/HEAD.md))",
            duration(head[1]),
            duration(session / cores),
        ],
        [
            f"`Statistics.add`, {rows} rows, {small}, one core",
            duration(kept["added"]),
            duration(added),
        ],
    ]
    rounded = [
        [count(n), f"{ridge:g}", f"{error:.1e}", f"{100 * other:.1f} %"]
        for n, ridge, error, other in kept["rounded"]
    ]
    return {
        "rates": table("what one core does | in a second | measured with", measured),
        "checks": table("what | measured | the model says", checks),
        "rounded": table("additions | λ | largest difference of a score | other answers", rounded),
    }


def image_tables(setup: Setup) -> dict[str, str]:
    """What one image costs in bytes and in time of a core, and how large the sums are."""
    sizes = {
        "its file (assumed)": (FILE, FILE),
        "its pixels, uint8": (224 * 224 * 3, 224 * 224 * 3),
        "its layer features, float32": (4 * 12 * 384, 4 * 12 * 768),
        "fused, float32": (FUSED * 384, FUSED * 768),
        f"lifted, float64, D = {count(WIDTH)}": (FLOAT * WIDTH, FLOAT * WIDTH),
    }
    parts, sums = [], []
    for job in (
        setup.job(FOLDERS, setup.gpu),
        setup.job(MIXED, setup.gpu),
        setup.job(WEB, setup.gpu),
    ):
        times = job.core_seconds(max(setup.nodes))
        total = sum(times.values())
        parts.append(
            [
                job.stream.name,
                *map(milliseconds, (*times.values(), total)),
                count(job.node.cores / total),
            ]
        )
        columns = [job.columns(job.group), *map(job.node_columns, setup.nodes)]
        sent = [f"{size(dense_bytes(WIDTH, each, sent=True))} ({count(each)})" for each in columns]
        block = job.columns(BLOCK)
        sums.append(
            [job.stream.name, f"{size(thin_bytes(BLOCK, WIDTH, block))} ({count(block)})", *sent]
        )
    head = f"stream | {' | '.join(times)} | in all | images a second on {setup.gpu.cores} cores"
    return {
        "sizes": table(
            "an image | dinov2-s14 | clip-b16-openai",
            [[name, *map(size, both)] for name, both in sizes.items()],
        ),
        "parts": table(head, parts),
        "sums": table(
            f"stream | block of {count(BLOCK)}, thin | group of {count(job.group)}, dense | {names('a node', setup.nodes)}",
            sums,
        ),
    }


def learning_row(job: Job, n_nodes: int) -> list[str]:
    """The whole way of a stream on so many nodes."""
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
    """Learning without trouble and with it."""
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
    """Rates of reading files, and bytes of the sums between nodes."""
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
    """How long adding and solving takes, and how often it may be done for 1 % of the time."""
    run = simulate(job, n_nodes, spread=SPREAD)
    pause = run.added - run.learned + job.solve_seconds(n_nodes)
    images = 99 * pause * job.stream.n_images / run.learned
    often = (
        f"{count(round(images, -3))} images" if images < job.stream.n_images else "once, at the end"
    )
    return [f"{job.stream.name}, {job.node.name}", str(n_nodes), duration(pause), often]


def learning_tables(setup: Setup, encoder_ms: float, clip_ms: float) -> dict[str, str]:
    """The whole way, what may go wrong on it, and the same with the larger encoder or with sharded classes."""
    head = "stream | nodes | encoders alone | decoding and sums alone | learning | sent between nodes | adding the nodes' sums"
    head += " | memory of a node | of the driver | solve | in all"
    clip = []
    for job in setup.jobs:
        slower = replace(
            job.node, images_per_second=job.node.images_per_second * encoder_ms / clip_ms
        )
        job = replace(job, node=slower, n_inputs=768)
        totals = [simulate(job, n, spread=SPREAD).added + job.solve_seconds(n) for n in setup.nodes]
        clip.append([f"{job.stream.name}, {slower.name}", *map(duration, totals)])
    sharded = [replace(job, sharded=True) for job in setup.jobs]
    return {
        "learning-cpu": table(
            head, [learning_row(job, n) for job in setup.jobs[:2] for n in setup.nodes]
        ),
        "learning-gpu": table(
            head, [learning_row(job, n) for job in setup.jobs[2:] for n in setup.nodes]
        ),
        "sharded-cpu": table(
            head, [learning_row(job, n) for job in sharded[:2] for n in setup.several]
        ),
        "sharded-gpu": table(
            head, [learning_row(job, n) for job in sharded[2:] for n in setup.several]
        ),
        "clip": table(f"stream | {names('in all', setup.nodes)}", clip),
        "trouble": table(
            "stream | nodes | even | blocks vary | one node in eight is slow | one fails | one fails and had saved",
            [trouble_row(job, n) for job in setup.jobs for n in setup.nodes],
        ),
        "network": table(
            "stream | nodes | read by a node | by all | sums sent, node by node | sums sent, block by block | of all links",
            [network_row(job, n) for job in setup.jobs for n in setup.several],
        ),
        "solves": table(
            "stream | nodes | adding and solving | for 1 % of the time, after every",
            [solves_row(job, n) for job in setup.jobs for n in setup.nodes],
        ),
    }


def limit_tables(setup: Setup) -> dict[str, str]:
    """Where D² and D·C become too much, and what sharing them out gives."""
    memory, widths, columns, limits = setup.cpu.memory, [], [], []
    for width in (5000, WIDTH, 30_000, 60_000, 120_000):
        job = replace(setup.job(WEB), width=width)
        summing = milliseconds(width**2 / setup.rates.scatter / setup.cpu.cores)
        times = [duration(job.cholesky_seconds(n)) for n in (1, *setup.several)]
        widths.append(
            [
                count(width),
                size(dense_bytes(width, 0)),
                size(2 * dense_bytes(width, 0), memory),
                summing,
                *times,
            ]
        )
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
    return {
        "widths": table(
            f"D | matrix | two of them | D x D sum of an image | {names('Cholesky', counts)}",
            widths,
        ),
        "columns": table(
            f"C | D x C | scores of an image | {names('memory of each', counts)} | {names('solve', counts)}",
            columns,
        ),
        "limits": table(
            "memory | widest at C = 1 000 | at 21 841 | at 100 000 | most classes at D = 5 000 | at 15 000",
            limits,
        ),
    }


def sentences(setup: Setup, given: argparse.Namespace, kept: dict[str, Any]) -> dict[str, str]:
    """Numbers that stand in the text."""
    rates, cpu, gpu, web = setup.rates, setup.cpu, setup.gpu, setup.job(WEB)
    base = [
        SessionSizes(5 * c, 0, False, c, INPUTS, WIDTH, n_selection=5 * c).select_bytes()
        for c in (1000, WEB.n_classes)
    ]
    matrices = [
        largest(lambda width, node=node: 2 * dense_bytes(width, 0) <= node.memory)
        for node in (cpu, gpu)
    ]  # type: ignore[misc]
    features, lift = WEB.n_images * FUSED * INPUTS, 2 * INPUTS * WIDTH / rates.lift
    most = max(setup.nodes)
    jobs = dict(zip(("folders-cpu", "web-cpu", "folders-gpu", "web-gpu"), setup.jobs, strict=True))
    jobs["web-gpu-sharded"] = replace(jobs["web-gpu"], sharded=True)
    totals = {
        f"{name}-total": simulate(job, most, spread=SPREAD).added + job.solve_seconds(most)
        for name, job in jobs.items()
    }
    encode, reduce = jobs["folders-cpu"].encode_seconds(), jobs["folders-cpu"].sum_seconds(most)
    return {
        **{name: duration(seconds) for name, seconds in totals.items()},
        "encoder-share": f"{100 * encode / (encode + reduce):.0f} %",
        "cores-rate": f"{count(gpu.cores / sum(jobs['web-gpu'].core_seconds(most).values()))} images a second",
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
        "group": count(web.group),
        "spread": f"{100 * SPREAD:.0f} %",
        "repair": duration(REPAIR),
        "width-of-memory": count(round(matrices[0], -3)),
        "width-of-gpu-memory": count(round(matrices[1], -3)),
        "width-of-hour": count(round((3 * HOUR * rates.cholesky * cpu.cores) ** (1 / 3), -3)),
        "width-of-encoder": count(
            round(math.sqrt(rates.scatter * cpu.cores / cpu.images_per_second), -3)
        ),
        "classes-of-factor": count(round(WIDTH / 6, -2)),
        "classes-of-memory": count(round(most_classes(WIDTH, cpu.memory), -2)),
        "all-columns": milliseconds(2 * WIDTH * WEB.n_classes / rates.product / cpu.cores),
        "layer-features": size(4 * 12 * INPUTS * WEB.n_images),
        "fused-features": size(features),
        "fused-seconds": duration(features / setup.link),
        "most-nodes": str(most),
        "lift-again": milliseconds(2 * math.sqrt(most) * lift),
        "scatter-once": milliseconds(WIDTH**2 / rates.scatter),
        "base-few": size(base[0]),
        "base-many": size(base[1]),
        "growth": f"{kept['rounded'][2][2] / kept['rounded'][0][2]:.1f}",
        "saving": duration(dense_bytes(WIDTH, FOLDERS.n_classes, sent=True) / setup.link),
    }


# The command


def fill(page: str, values: dict[str, str]) -> str:
    """The page with every value between its marks."""
    marked = set(re.findall(r"<!-- ([\w-]+) -->", page))
    if marked != set(values):
        raise SystemExit(
            f"docs/scale.md must have a mark for every value; it differs in {sorted(marked ^ set(values))}: add or remove"
        )
    pattern = re.compile(r"<!-- ([\w-]+) -->.*?<!-- / -->", re.DOTALL)
    return pattern.sub(lambda found: f"<!-- {found[1]} -->{values[found[1]]}<!-- / -->", page)


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--measure", action="store_true", help="measure this machine, and keep what was measured"
    )
    options.add_argument("--nodes", type=int, nargs="+", default=[1, 8, 64])
    options.add_argument(
        "--cores", type=int, default=2, help="of a CPU node: one encoder for every two"
    )
    options.add_argument("--memory", type=float, default=24.0, help="GB of a CPU node")
    options.add_argument(
        "--gpu-rate",
        type=float,
        default=2000.0,
        help="images a second of a GPU with dinov2-s14: an assumption",
    )
    options.add_argument("--gpu-cores", type=int, default=16, help="cores beside a GPU")
    options.add_argument(
        "--gpu-memory", type=float, default=256.0, help="GB of main memory beside a GPU"
    )
    options.add_argument("--link", type=float, default=10.0, help="Gbit/s into every node")
    options.add_argument(
        "--encoder-ms", type=float, default=86.0, help="an image through dinov2-s14 on two cores"
    )
    options.add_argument(
        "--clip-ms", type=float, default=232.0, help="an image through clip-b16-openai on two cores"
    )
    return options


def setup_of(given: argparse.Namespace, rates: Rates) -> Setup:
    """The clusters asked for."""
    cpu = Node(
        "CPU nodes",
        given.cores,
        1e9 * given.memory,
        given.cores / 2 * 1000 / given.encoder_ms,
        gpu=False,
    )
    gpu = Node("GPU nodes", given.gpu_cores, 1e9 * given.gpu_memory, given.gpu_rate, gpu=True)
    return Setup(rates, cpu, gpu, 1e9 * given.link / 8, given.nodes)


def values_of(setup: Setup, given: argparse.Namespace, kept: dict[str, Any]) -> dict[str, str]:
    """Everything that is written into the page."""
    learning = learning_tables(setup, given.encoder_ms, given.clip_ms)
    return (
        measured_tables(kept, setup.rates)
        | image_tables(setup)
        | learning
        | limit_tables(setup)
        | sentences(setup, given, kept)
    )


def main() -> None:
    """Measure if asked to, compute, print, and write."""
    given, usual = parser().parse_args(), parser().parse_args([])
    store, page = DOCS / "scale.json", DOCS / "scale.md"
    if given.measure:
        store.write_text(json.dumps(measure(), indent=1) + "\n")
    kept = json.loads(store.read_text())
    setup = setup_of(given, Rates(**kept["rates"]))
    values = values_of(setup, given, kept)
    for name, value in values.items():
        print(f"{name}: {value.rstrip()}")
    if vars(given) == {**vars(usual), "measure": given.measure}:
        page.write_text(fill(page.read_text(), values))
        draw_time(setup, DOCS / "scale-time.png")
        draw_limits(setup, DOCS / "scale-limits.png")


if __name__ == "__main__":
    main()
