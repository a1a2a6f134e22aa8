"""On which machine, with which versions and with which code a row was measured.

These are information: a row is found again by the revision of its method.
"""

import ast
import hashlib
import inspect
import os
import platform
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

from threadpoolctl import threadpool_info

import visvm.head
from visvm import __version__
from visvm.bench import metrics, streams

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
        "head": _digest(_head()),
    }


def load_average() -> float | None:
    """Return how many processes wanted the CPU in the last minute; None if unknown."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def code_digest(method: Callable[..., Any]) -> str:
    """Return a short digest of the code of a method.

    The modules of its class and of what it inherits from, with what they import from their own
    folder; the head, the streams and the metrics. Comments, docstrings and layout do not count.
    """
    modules = [
        inspect.getmodule(part)
        for part in (inspect.getmro(method) if inspect.isclass(method) else [method])
    ]
    files: set[Path] = set()
    for module in (*modules, streams, metrics):
        if module is not None and module.__name__.split(".")[0] not in sys.stdlib_module_names:
            _add_with_imports(module, files)
    return _digest([*sorted(files), *_head()])


def _add_with_imports(module: ModuleType, files: set[Path]) -> None:
    """Add a module's file, and those beside it that it imports."""
    path = Path(str(module.__file__))
    if path in files:
        return
    files.add(path)
    package = module.__name__.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            names = [source, *(f"{source}.{alias.name}" for alias in node.names)]
        for found in (sys.modules[name] for name in names if name in sys.modules):
            file = Path(getattr(found, "__file__", None) or "")  # what is built in has none
            if file.parent == path.parent and file.name != "__init__.py":
                _add_with_imports(found, files)


def _head() -> list[Path]:
    """The modules that all relatives of the paper's method share."""
    return sorted(Path(visvm.head.__path__[0]).glob("*.py"))


def _digest(paths: list[Path]) -> str:
    return hashlib.sha256(" ".join(map(_meaning, paths)).encode()).hexdigest()[:16]


@cache
def _meaning(path: Path) -> str:
    """Digest a module's syntax tree without docstrings, alike in every version of Python."""
    return hashlib.sha256(_outline(ast.parse(path.read_text("utf-8"))).encode()).hexdigest()


def _outline(node: object) -> str:
    """Write a syntax tree in words.

    ``ast.dump`` also writes empty fields, and these differ between versions of Python.
    """
    if isinstance(node, ast.AST):
        parts = (
            f"{name}={_outline(value)}"
            for name, value in ast.iter_fields(node)
            if value is not None and value != []
        )
        return f"{type(node).__name__}({', '.join(parts)})"
    if isinstance(node, list):
        return f"[{', '.join(_outline(part) for part in node if not _is_remark(part))}]"
    return repr(node)


def _is_remark(node: object) -> bool:
    """Whether this is a docstring, of a function or of a constant."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


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
