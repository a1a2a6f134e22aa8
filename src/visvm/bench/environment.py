"""On which machine and with which versions a row was measured."""

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from visvm import __version__

_PACKAGES = ("numpy", "scipy", "scikit-learn", "onnxruntime")


def describe_environment() -> dict[str, Any]:
    """Versions, CPU, and the number of threads of the linear algebra."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {
        "visvm": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
        "blas": sorted({f"{pool['internal_api']} {pool['version']}" for pool in pools}),
        "threads": max((pool["num_threads"] for pool in pools), default=1),
        "cpu": _cpu(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _cpu() -> str:
    file = Path("/proc/cpuinfo")
    if file.exists():
        for line in file.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
