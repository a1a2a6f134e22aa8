"""Show every operation by which this process changes files below a folder, as it happens.

Reads are not shown: a process that dies before one leaves what it left before the next change.
Writes are shown as the system gets them, after Python's buffers.
"""

import builtins
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Operation:
    """One change of a file or folder, or the flushing of one."""

    kind: str  # such as "write"
    path: str  # of the file, below the folder that is watched
    half: Callable[[], object] | None = None  # does half of it, where that can be

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"


class Watcher(Protocol):
    def before(self, operation: Operation) -> None: ...

    def after(self, operation: Operation) -> None: ...


def path_of(descriptor: int) -> str:
    """The path of an open file or folder."""
    return os.readlink(f"/proc/self/fd/{descriptor}")


class Shown:
    """Tells a watcher about the operations below a folder."""

    def __init__(self, root: Path, watcher: Watcher) -> None:
        self.root, self.watcher = os.path.realpath(root), watcher

    def has(self, path) -> bool:
        where = path_of(path) if isinstance(path, int) else os.path.abspath(os.fsdecode(path))
        return where == self.root or where.startswith(self.root + os.sep)

    @contextmanager
    def __call__(self, kind, path, half=None) -> Iterator[None]:
        where = path_of(path) if isinstance(path, int) else os.path.abspath(os.fsdecode(path))
        operation = Operation(kind, os.path.relpath(where, self.root), half)
        self.watcher.before(operation)
        yield
        self.watcher.after(operation)


def _at(path, dir_fd) -> str:
    """A path that may be relative to an open folder."""
    if isinstance(path, int):
        return path_of(path)
    return os.fsdecode(path) if dir_fd is None else os.path.join(path_of(dir_fd), os.fsdecode(path))


def _watched_file(shown: Shown) -> type[io.FileIO]:
    class File(io.FileIO):
        """Writes to a file as the system gets them."""

        def write(self, content):
            plain = super().write
            with shown(
                "write", self.fileno(), lambda: plain(memoryview(content)[: _half(content)])
            ):
                return plain(content)

        def truncate(self, size=None):
            with shown("truncate", self.fileno()):
                return super().truncate(size)

    return File


def _half(content) -> int:
    return memoryview(content).nbytes // 2


def _watched_open(shown: Shown, plain):
    raw = _watched_file(shown)

    def watched(file, mode="r", buffering=-1, *text, **options):
        if not set(mode) & set("wax+") or not shown.has(file) or options.get("opener"):
            return plain(file, mode, buffering, *text, **options)
        letters = mode.replace("b", "").replace("t", "")
        if isinstance(file, int):
            opened = raw(file, letters)
        else:
            with shown("open", file):
                opened = raw(file, letters)
        if buffering == 0:
            return opened
        buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(opened)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *text, **options)

    return watched


def _watched_calls(shown: Shown) -> dict[str, Callable]:
    """The functions of ``os`` that change files, each telling what it does."""
    changed = {}

    def one(name, kind):
        plain = getattr(os, name)

        def call(path, *given, dir_fd=None, **options):
            where = _at(path, dir_fd)
            more = options if dir_fd is None else {**options, "dir_fd": dir_fd}
            if not shown.has(where):
                return plain(path, *given, **more)
            with shown(kind, where):
                return plain(path, *given, **more)

        changed[name] = call

    def two(name, kind):
        plain = getattr(os, name)

        def call(source, target, **options):
            if not shown.has(_at(target, options.get("dst_dir_fd"))):
                return plain(source, target, **options)
            with shown(kind, _at(target, options.get("dst_dir_fd"))):
                return plain(source, target, **options)

        changed[name] = call

    for name in ("unlink", "remove", "mkdir", "rmdir", "truncate", "chmod"):
        one(name, "unlink" if name == "remove" else name)
    for name in ("ftruncate", "fsync", "fdatasync", "fchmod"):
        one(name, {"ftruncate": "truncate", "fchmod": "chmod"}.get(name, "fsync"))
    for name in ("replace", "rename", "link", "symlink"):
        two(name, "rename" if name == "replace" else name)
    plain_open, plain_write = os.open, os.write

    def open_(path, flags, *given, dir_fd=None):
        if not flags & (os.O_CREAT | os.O_TRUNC) or not shown.has(_at(path, dir_fd)):
            return plain_open(path, flags, *given, dir_fd=dir_fd)
        with shown("open", _at(path, dir_fd)):
            return plain_open(path, flags, *given, dir_fd=dir_fd)

    def write(descriptor, content):
        if not shown.has(descriptor):
            return plain_write(descriptor, content)
        half = memoryview(content)[: _half(content)]
        with shown("write", descriptor, lambda: plain_write(descriptor, half)):
            return plain_write(descriptor, content)

    return {**changed, "open": open_, "write": write}


@contextmanager
def watching(root: Path, watcher: Watcher) -> Iterator[None]:
    """Tell a watcher before and after every operation below a folder, in any thread."""
    shown = Shown(root, watcher)
    calls = _watched_calls(shown)
    plain, kept = builtins.open, {name: getattr(os, name) for name in calls}
    io.open = builtins.open = _watched_open(shown, plain)
    for name, call in calls.items():
        setattr(os, name, call)
    try:
        yield
    finally:
        io.open = builtins.open = plain
        for name, call in kept.items():
            setattr(os, name, call)
