"""A session of many images: memory over their number, and Ray beside one process.

    python benchmarks/learn.py memory --data FOLDER
    python benchmarks/learn.py ray --data FOLDER

FOLDER holds CIFAR-100 (``visvm doctor data``). Both measure the command ``visvm learn``, each run
in a process of its own.

*memory*: peak memory over N, with a figure; features are cached. Beside it, learning from all
features of the session at once, as an array.

*ray*: 10 000 images on a local Ray with 2 workers, beside one process. Both encode every image
anew. Watches the processes that Ray starts, and compares the scores of both models on test images.

Prints tables, and writes them to LEARN.md beside this file.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime

from visvm import ImageClassifier
from visvm.bench.loading import ImageData, load_dataset
from visvm.head.memory import human_bytes

HERE = Path(__file__).parent
COUNTS = (1_000, 2_500, 5_000, 10_000, 20_000, 35_000, 49_000)
BASE = 1_000

Watching = Callable[[int], None]
"""Called now and then with the number of a process that runs."""

HELD = """
import json, sys
from pathlib import Path
import numpy as np
from visvm import ImageClassifier
from visvm.head.memory import peak_bytes
model = ImageClassifier.load(sys.argv[1])
paths = sorted(Path(sys.argv[2]).rglob("*.bmp"))
model.head_.partial_fit(model.layer_features(paths), np.array([path.parent.name for path in paths]))
print(json.dumps({"peak_memory": peak_bytes()}))
"""


def write_images(
    images: ImageData, folder: Path, begin: int, n: int, *, test: bool = False
) -> Path:
    """Write `n` images, as many of every class, from its `begin`-th on; a sub-folder per class."""
    labelled = images.test if test else images.train
    per_class = n // len(images.classes)
    for target, name in enumerate(images.classes):
        (folder / name).mkdir(parents=True)
        for place in np.flatnonzero(labelled.targets == target)[begin : begin + per_class].tolist():
            (folder / name / f"{place}.bmp").write_bytes(bytes(labelled.images[place]))
    return folder


def run(*command: str | Path, watch: Watching | None = None) -> tuple[dict[str, object], float]:
    """Return what a command prints as JSON, and the seconds it took."""
    begin = time.perf_counter()
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True)
    while watch is not None and process.poll() is None:
        watch(process.pid)
        time.sleep(0.5)
    printed, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed")
    return json.loads(printed), time.perf_counter() - begin


def visvm_learn(
    model: Path, folder: Path, *options: str | Path, watch: Watching | None = None
) -> tuple[dict[str, object], float]:
    """Return the report of ``visvm learn``, and the seconds it took in all."""
    return run(
        sys.executable,
        "-m",
        "visvm",
        "learn",
        model,
        folder,
        "--json",
        "--quiet",
        *options,
        watch=watch,
    )


# Memory over the number of images


def memory(images: ImageData, place: Path, given: argparse.Namespace) -> list[str]:
    """Measure peak memory of larger and larger sessions, as they come and all at once."""
    base = write_images(images, place / "base", 0, BASE)
    model = place / "base.visvm"
    options = (
        "--encoder",
        given.encoder,
        "--components",
        str(given.components),
        "--transform",
        "squash",
    )
    visvm_learn(model, base, *options)
    rows = []
    for n in [count for count in COUNTS if count <= given.images]:
        folder = write_images(images, place / str(n), BASE // len(images.classes), n)
        copy = place / f"{n}.visvm"
        copy.write_bytes(model.read_bytes())
        report, seconds = visvm_learn(copy, folder)
        held, _ = run(sys.executable, "-c", HELD, model, folder)
        rows.append(
            (n, float(str(report["peak_memory"])), float(str(held["peak_memory"])), seconds)
        )
        print(*rows[-1], flush=True)
    draw(rows, HERE / "learn-memory.png")
    lines = [
        (
            f"A session of N images of CIFAR-100 after a base session of {BASE}: "
            f"`{given.encoder}`, D = {given.components:,};\n"
            "features come from the cache. *At once*: all features of the session as one array, "
            "then `partial_fit`."
        ),
        "",
        "![peak memory over the number of images](learn-memory.png)",
        "",
        "| N | peak memory, `visvm learn` | at once | seconds, `visvm learn` |",
        "|---:|---:|---:|---:|",
    ]
    return lines + [
        f"| {n:,} | {human_bytes(ours)} | {human_bytes(held)} | {seconds:.0f} |"
        for n, ours, held, seconds in rows
    ]


def draw(rows: list[tuple[int, float, float, float]], path: Path) -> None:
    """Draw peak memory over N, both ways."""
    from matplotlib.figure import Figure

    from visvm.cli.figures import OURS, THEIRS

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    counts = [n / 1000 for n, *_ in rows]
    for which, colour, style, label in (
        (1, OURS, "o-", "visvm learn"),
        (2, THEIRS, "s--", "all features at once"),
    ):
        values = [row[which] / 2**30 for row in rows]
        axes.plot(counts, values, style, color=colour)
        axes.annotate(
            label,
            (counts[-1], values[-1]),
            xytext=(0, 8),
            textcoords="offset points",
            ha="right",
            color=colour,
        )
    axes.set_xlabel("images of the session (thousands)")
    axes.set_ylabel("peak memory (GiB)")
    axes.set_ylim(0, 1.15 * max(max(row[1:3]) for row in rows) / 2**30)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


# Ray beside one process


class Watch:
    """Peak memory of a process and all its descendants, by what they do."""

    def __init__(self) -> None:
        self.peaks: dict[int, tuple[str, int, int]] = {}

    def __call__(self, root: int) -> None:
        """Look at them once."""
        parents: dict[int, int] = {}
        found: dict[int, tuple[str, int, int]] = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                status = dict(
                    line.split(":", 1)
                    for line in (folder / "status").read_text().splitlines()
                    if ":" in line
                )
                title = (
                    (folder / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                    .strip()
                )
            except (OSError, ValueError):
                continue
            if "VmHWM" in status:
                parents[int(folder.name)] = int(status["PPid"])
                peak, own = (int(status[name].split()[0]) * 1024 for name in ("VmHWM", "RssAnon"))
                found[int(folder.name)] = title, peak, own
        for number, (title, peak, own) in found.items():
            chain = number
            while chain in parents and chain != root:
                chain = parents[chain]
            if chain == root:
                before = self.peaks.get(number, ("", 0, 0))
                name = _short(title)
                idle = name.startswith("Ray worker, idle") and before[0]
                self.peaks[number] = (
                    before[0] if idle else name,
                    max(before[1], peak),
                    max(before[2], own),
                )


def _short(title: str) -> str:
    """Return what a process of Ray does, by its title."""
    if title.startswith("ray::"):
        return f"Ray worker, {title.removeprefix('ray::').split('(')[-1].rstrip(')')}".replace(
            "IDLE", "idle"
        )
    for name in ("raylet", "gcs_server", "log_monitor", "dashboard", "runtime_env"):
        if name in title:
            return f"Ray's own: {name}"
    return "driver" if "visvm" in title else title[:40]


def ray(images: ImageData, place: Path, given: argparse.Namespace) -> list[str]:
    """Measure the same session in one process and on a local Ray."""
    folder = write_images(images, place / "train", 0, given.images)
    test = sorted(write_images(images, place / "test", 0, 2_000, test=True).rglob("*.bmp"))
    options = (
        "--encoder",
        given.encoder,
        "--components",
        str(given.components),
        "--transform",
        "squash",
        "--no-cache",
    )
    one, one_seconds = visvm_learn(place / "one.visvm", folder, *options)
    print(f"one process: {one_seconds:.0f} s", flush=True)
    watch = Watch()
    on_ray = ("--ray", "local", "--actors", str(given.actors))
    _, ray_seconds = visvm_learn(place / "ray.visvm", folder, *options, *on_ray, watch=watch)
    print(f"Ray: {ray_seconds:.0f} s", flush=True)
    models = [
        ImageClassifier.load(place / name, for_prediction=True)
        for name in ("one.visvm", "ray.visvm")
    ]
    features = models[0].layer_features(test)
    scores = [model.scores(features) for model in models]
    other = int((scores[0].argmax(axis=1) != scores[1].argmax(axis=1)).sum())
    apart = float(np.abs(scores[0] - scores[1]).max())
    alone = human_bytes(float(str(one["peak_memory"])))
    lines = [
        (
            f"{given.images:,} images of CIFAR-100, one session, `{given.encoder}`, "
            f"D = {given.components:,}, every image\n"
            f"encoded. Ray has {given.actors} encoders, on the {os.cpu_count()} cores that the one "
            "process has, too."
        ),
        "",
        "| | one process | Ray |",
        "|---|---:|---:|",
        f"| seconds in all | {one_seconds:.0f} | {ray_seconds:.0f} |",
        f"| Ray, as a multiple of one process | | {ray_seconds / one_seconds:.2f} |",
        f"| other answers on {len(test):,} test images | | {other} |",
        f"| largest difference of a score | | {apart:.1e} |",
        f"| peak memory of the process (Ray: of its driver) | {alone} | {_driver(watch)} |",
        "",
        (
            "Peak memory of every process, largest first; *own* is without what is shared with the "
            "object store:"
        ),
        "",
        "| process | peak | own |",
        "|---|---:|---:|",
    ]
    peaks = sorted(watch.peaks.values(), key=lambda peak: -peak[1])
    return lines + [
        f"| {name} | {human_bytes(peak)} | {human_bytes(own)} |"
        for name, peak, own in peaks
        if peak >= 2**27
    ]


def _driver(watch: Watch) -> str:
    return human_bytes(max(peak for name, peak, _ in watch.peaks.values() if name == "driver"))


def main() -> None:
    """Measure, print, and write LEARN.md, in which the other section stays as it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["memory", "ray"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--encoder", default="dinov2-s14")
    parser.add_argument("--components", type=int, help="5000 for memory, 15000 for ray")
    parser.add_argument("--images", type=int, help="49000 for memory, 10000 for ray")
    parser.add_argument("--actors", type=int, default=2)
    given = parser.parse_args()
    defaults = {"memory": (5_000, 49_000), "ray": (15_000, 10_000)}[given.what]
    given.components, given.images = given.components or defaults[0], given.images or defaults[1]
    images = load_dataset("cifar100", given.data)
    with tempfile.TemporaryDirectory() as folder:
        lines = {"memory": memory, "ray": ray}[given.what](images, Path(folder), given)
    machine = f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"
    versions = f"{machine}, ONNX Runtime {onnxruntime.__version__}"
    options = f"--images {given.images} --components {given.components}"
    command = f"python benchmarks/learn.py {given.what} {options}"
    section = "\n".join([f"## {given.what}", "", *lines, "", f"{versions}; `{command}`.", ""])
    print(section)
    page = HERE / "LEARN.md"
    title = (
        "# Sessions of many images\n\n"
        "Written by `python benchmarks/learn.py`; see its docstring for what is measured.\n"
    )
    parts = page.read_text().split("\n## ")[1:] if page.exists() else []
    kept = {part.split("\n")[0]: f"## {part.rstrip()}\n" for part in parts} | {given.what: section}
    page.write_text("\n".join([title, *(kept[name] for name in ("memory", "ray") if name in kept)]))


if __name__ == "__main__":
    main()
