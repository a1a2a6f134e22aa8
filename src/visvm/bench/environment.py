"""On which machine, with which versions and with which code a row was measured.

These are information: a row is found again by the revision of its method.
"""

import hashlib
import inspect
import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

import visvm.head
from visvm import __version__
from visvm.bench import methods, metrics, streams, vit

_PACKAGES = ("numpy", "scipy", "scikit-learn", "onnxruntime", "pillow", "torch", "transformers")


def describe_environment() -> dict[str, Any]:
    """Return versions, CPU, and the number of threads of the linear algebra."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {
        "visvm": __version__,
        "python": platform.python_version(),
        **{name: installed_version(name) for name in _PACKAGES},
        "blas": sorted({f"{pool['internal_api']} {pool['version']}" for pool in pools}),
        "threads": max((pool["num_threads"] for pool in pools), default=1),
        "cpu": _cpu(),
        "cores": usable_cores(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def load_average() -> float | None:
    """Return how many processes wanted the CPU in the last minute; None if unknown."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def code_digest(method: Callable[..., Any]) -> str:
    """Return a short digest of the source of a method.

    It covers its own file, those of what it inherits from, all methods of visvm, the network
    that they train in, the head, the streams and the metrics.
    """
    parts = inspect.getmro(method) if inspect.isclass(method) else (method,)
    modules = (streams, metrics, *(sys.modules.get(part.__module__) for part in parts))
    files = {Path(file) for module in modules if (file := getattr(module, "__file__", None))}
    for package in (methods, vit, visvm.head):
        files.update(Path(package.__path__[0]).glob("*.py"))
    contents = sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    return hashlib.sha256(" ".join(contents).encode()).hexdigest()[:16]


def usable_cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def installed_version(name: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    file = Path("/proc/cpuinfo")
    if file.exists():
        for line in file.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
