"""What learning very many images of very many classes costs on a cluster: fills in docs/scale.md.

::

    python benchmarks/scale.py                          from the measurements in docs/scale.json
    python benchmarks/scale.py --measure                measures one core first (about a minute)
    python benchmarks/scale.py --nodes 4 16 --link 25   another cluster: printed, not written

What was measured or computed stands in the page between ``<!-- name -->`` and ``<!-- / -->``. This
command writes it there, prints it all and draws the page's two figures. ``scale_model.py`` is the
model, ``scale_simulation.py`` the simulation; ``scale_tables.py`` says what stands in the page.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from scale_figures import draw_limits, draw_time
from scale_measure import measure
from scale_model import Node, Rates, Setup
from scale_tables import image_tables, learning_tables, limit_tables, measured_tables, sentences

DOCS = Path(__file__).parents[1] / "docs"


def fill(page: str, values: dict[str, str]) -> str:
    """Put every value between its marks in the page."""
    marked = set(re.findall(r"<!-- ([\w-]+) -->", page))
    if odd := sorted(marked ^ set(values)):
        raise SystemExit(
            f"docs/scale.md and the values differ in {odd}. Add or remove these marks."
        )
    pattern = re.compile(r"<!-- ([\w-]+) -->.*?<!-- / -->", re.DOTALL)
    return pattern.sub(lambda found: f"<!-- {found[1]} -->{values[found[1]]}<!-- / -->", page)


def parser() -> argparse.ArgumentParser:
    """Define the options."""
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
    """Make the clusters that the options describe."""
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
    """Collect everything that is written into the page."""
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
