"""On which machine, with which versions and with which code a row was measured."""

import ast
import hashlib
import inspect
import os
import platform
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from threadpoolctl import threadpool_info

import visvm.head
from visvm import __version__
from visvm.bench import metrics, streams
from visvm.bench.methods import linear, sums

_PACKAGES = ("numpy", "scipy", "scikit-learn", "onnxruntime", "pillow", "torch", "transformers")


def describe_environment() -> dict[str, Any]:
    """Versions, CPU, and the number of threads of the linear algebra."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {
        "visvm": __version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
        "blas": sorted({f"{pool['internal_api']} {pool['version']}" for pool in pools}),
        "threads": max((pool["num_threads"] for pool in pools), default=1),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
    }


def load_average() -> float | None:
    """How many processes wanted the CPU in the last minute, where the system tells."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def code_digest(method: Callable[..., Any]) -> str:
    """A short digest of the code that decides a method's numbers.

    The modules of its class and of what it inherits from, what methods share, the head, the streams and the metrics; comments,
    docstrings and layout do not count.
    """
    modules = [inspect.getmodule(part) for part in (inspect.getmro(method) if inspect.isclass(method) else [method])]
    known = [module for module in modules if isinstance(module, ModuleType)]
    own = [module for module in known if module.__name__.split(".")[0] not in sys.stdlib_module_names]
    files = {Path(module.__file__) for module in (*own, linear, sums, streams, metrics) if module.__file__}
    head = Path(visvm.head.__path__[0]).glob("*.py")
    whole = " ".join(_meaning(path) for path in [*sorted(files), *sorted(head)])
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


@cache
def _meaning(path: Path) -> str:
    """A digest of a module's syntax tree without docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _version(name: str) -> str | None:
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
