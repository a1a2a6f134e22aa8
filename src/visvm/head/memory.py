"""How much memory a session will need, known before it starts.

The figures count the arrays that are alive together at the worst moment; ``benchmarks/head.py``
measures the same moments.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from visvm.errors import MemoryLimitError
from visvm.head.scatter import THIN_SHARE

CHUNK_BYTES = 64 * 2**20
"""Samples are lifted and added in chunks of about this size."""

_FLOAT = 8


def chunk_rows(width: int) -> int:
    """Return how many lifted samples of this width make a chunk."""
    return max(64, CHUNK_BYTES // (_FLOAT * max(width, 1)))


def chunks(n: int, width: int) -> Iterator[slice]:
    """Return slices of at most one chunk that cover `n` samples of this lifted width."""
    step = chunk_rows(width)
    return (slice(begin, begin + step) for begin in range(0, n, step))


@dataclass(frozen=True)
class SessionSizes:
    """The sizes that decide how much memory a session takes."""

    n_new: int
    n_rows: int  # rows of the thin factor so far
    is_dense: bool
    n_classes: int
    n_inputs: int  # width of the fused features
    width: int  # D, width of the lifted features
    n_selection: int = 0  # samples the base session's choices look at
    n_mixer: int = 0  # numbers held while the mixer is trained
    forgets: bool = False
    label_bytes: int = 0  # of the longest label
    renews: bool = False  # whether λ is chosen anew from the sums
    texts: bool = False  # whether texts join a copy of the sums

    def accumulate_bytes(self) -> int:
        """Return the peak while sums are added and solved: old state, new state and work space."""
        rows, after = self.n_rows, self.n_rows + self.n_new
        if self.is_dense:
            state = (2 + self.texts) * self.width**2
        elif self.forgets:
            state = 4 * rows * self.width + 4 * rows**2
        elif after > THIN_SHARE * self.width:
            state = self.width**2 + rows * self.width + rows**2 // 2
        else:
            state = after * self.width + after**2 // 2 + self.renews * after**2
        wide = self.width + self.n_classes  # lifted, and one-hot targets
        chunk = 4 * min(self.n_new, chunk_rows(wide)) * wide
        columns = 8 * (self.width + 1) * (self.n_classes + 1)
        labels = 4 * self.n_classes * self.label_bytes
        return _FLOAT * (state + chunk + columns + self.n_inputs * self.width) + labels

    def held_bytes(self) -> int:
        """Return what the model holds already."""
        return _FLOAT * (
            self.width**2 if self.is_dense else self.n_rows * self.width + self.n_rows**2 // 2
        )

    def select_bytes(self) -> int:
        """Return the peak while λ is chosen and the mixer is trained.

        It counts the lifted samples, their decomposition and the layers.
        """
        side = min(self.n_selection, self.width)
        lifted = 2 * self.n_selection * self.width + 4 * side**2 + self.n_inputs * self.width
        return _FLOAT * (lifted + self.n_mixer)

    def peak_bytes(self) -> int:
        """Return the peak of the whole session."""
        return max(self.accumulate_bytes(), self.select_bytes())


def available_bytes() -> int | None:
    """Return how much memory this process may still take, or None where the system does not say."""
    amounts = []
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                amounts.append(int(line.split()[1]) * 1024)
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        amounts.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    group = Path("/sys/fs/cgroup")
    limit = (group / "memory.max").read_text().strip() if (group / "memory.max").exists() else "max"
    if limit != "max":
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        # file cache gives way
        used = int((group / "memory.current").read_text()) - int(counts["inactive_file"])
        amounts.append(max(int(limit) - used, 0))
    return min(amounts) if amounts else None


def peak_bytes() -> int | None:
    """Return the most memory this process has held, or None where the system does not say."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def reset_peak() -> bool:
    """Start the count of the peak again; return False where the system does not allow it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def require_memory(sizes: SessionSizes, limit: float | None) -> None:
    """Refuse a session that needs more than `limit` bytes, or than the machine has left."""
    needed = sizes.peak_bytes()
    available = available_bytes() if limit is None else None
    allowed = limit if available is None else available + sizes.held_bytes()
    if allowed is not None and needed > allowed:
        raise MemoryLimitError(
            f"A session of {sizes.n_new} samples needs about {human_bytes(needed)} of memory, but "
            f"only {human_bytes(allowed)} may be used. Learn in smaller batches, lower "
            "n_components, or raise memory_limit.",
            code="memory-session",
        )


def human_bytes(amount: float) -> str:
    """Return a number of bytes as people read it."""
    if amount < 2**20:
        return f"{amount / 2**10:.1f} KiB"
    return f"{amount / 2**30:.2f} GiB" if amount >= 2**30 else f"{amount / 2**20:.1f} MiB"
