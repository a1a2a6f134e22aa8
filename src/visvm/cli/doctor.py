"""Examine this machine: what works (``visvm doctor``), and its data (``visvm doctor data``)."""

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from visvm import __version__
from visvm.bench.datasets import Count
from visvm.bench.environment import installed_version, usable_cores
from visvm.bench.loading import ROOT_VARIABLE, DataState
from visvm.cli.terminal import out, table
from visvm.encoders import weights
from visvm.encoders.cache import FeatureCache
from visvm.encoders.catalog import CATALOG
from visvm.errors import VisvmError
from visvm.head.memory import available_bytes, human_bytes

_PACKAGES = dict.fromkeys(("numpy", "scipy", "scikit-learn", "onnxruntime", "pillow"), "core") | {
    "pillow-heif": "to read HEIC photos",
    "matplotlib": "extra plot: figures of evaluate, demo and report",
    "torch": "extra torch: transformers and open_clip encoders",
    "transformers": "extra torch",
    "fastapi": "extra serve",
    "ray": "extra ray",
}


def examine() -> dict[str, Any]:
    """Return what this machine has; weights are verified, not only found."""
    return {
        "visvm": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "threads": usable_cores(),
        "memory_available": available_bytes(),
        "packages": {name: installed_version(name) for name in _PACKAGES},
        "weights": {name: _weights(name) for name in CATALOG},
        "cache": _cache(),
    }


def show(found: dict[str, Any]) -> None:
    """Print what ``examine`` found."""
    console = out()
    free = found["memory_available"]
    memory = "unknown" if free is None else human_bytes(free)
    machine = f"{found['threads']} threads, {memory} of memory free"
    console.print(
        f"visvm {found['visvm']}, Python {found['python']}, {found['system']}; {machine}",
        markup=False,
    )
    rows = [
        (name, number or "not installed", _PACKAGES[name])
        for name, number in found["packages"].items()
    ]
    console.print(table("packages", ["name", "version", "for"], rows))
    console.print(table("weights", ["encoder", "state"], list(found["weights"].items())))
    console.print(f"feature cache: {found['cache']}", markup=False)


def show_data(root: Path | None, states: Sequence[DataState]) -> None:
    """Print what there is of each data set, and what is expected."""
    console = out()
    here = f"none; set {ROOT_VARIABLE} to one, or give --data FOLDER" if root is None else str(root)
    console.print(
        f"data folder: {here}\nvisvm downloads no data: put what is absent into that folder.\n"
        "≈: not verified. LAMDA: the files that class-incremental papers share.",
        markup=False,
    )
    for state in states:
        title = f"\n{state.dataset.title} ({state.dataset.name}): {state.verdict}"
        console.print(title, style="bold", markup=False)
        for what, text in _data_lines(state):
            console.print(f"  {what:<10} {text}", markup=False)


def _data_lines(state: DataState) -> list[tuple[str, str]]:
    """Return a word and a text for each line about a data set."""
    known = state.dataset
    lines = [("why", state.reason)] if state.reason else []
    if state.n_classes is not None and state.n_train is not None and state.n_test is not None:
        images = f"{Count(state.n_train)} training and {Count(state.n_test)} test images"
        of = f" of the first {known.n_classes}" if state.n_classes > known.n_classes else ""
        lines.append(("found", f"{images}{of}; {state.n_classes} classes"))
    for split in known.splits:
        images = f"{split.train} training and {split.test} test images ({split.name})"
        lines.append(("published", images))
        lines += [("", f"listed in {split.lists}")] if split.lists else []
    lines += [("classes", f"{known.n_classes}: {known.classes}"), ("layout", known.layout)]
    return [*lines, ("source", known.source), ("", known.url), ("terms", known.terms)]


def _weights(name: str) -> str:
    if weights.find(name) is None:
        return f"not fetched; run 'visvm weights fetch {name}'"
    try:
        return f"intact: {weights.verify(name)}"
    except VisvmError as error:
        return str(error)


def _cache() -> str:
    try:
        with FeatureCache() as cache:
            info = cache.info()
    except VisvmError as error:
        return str(error)
    sizes = f"{human_bytes(info.n_bytes)} of at most {human_bytes(info.limit)}"
    return f"{info.path}, {info.n_images} images, {sizes}"
