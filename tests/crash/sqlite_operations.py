"""Show the file operations of SQLite, which makes them itself, like those of Python.

SQLite reaches files through a table of functions, its "VFS". Those that change files are replaced
there, in this process, by others that tell about it first.
"""

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path

from tests.crash.operations import Shown, Watcher

_METHODS = (
    "xClose xRead xWrite xTruncate xSync xFileSize xLock xUnlock xCheckReservedLock xFileControl "
    "xSectorSize xDeviceCharacteristics xShmMap xShmLock xShmBarrier xShmUnmap xFetch xUnfetch"
)


class _Methods(Structure):
    _fields_ = [("iVersion", c_int), *((name, c_void_p) for name in _METHODS.split())]


class _File(Structure):
    _fields_ = [("methods", POINTER(_Methods))]


class _Vfs(Structure):
    _fields_ = [
        ("iVersion", c_int),
        ("szOsFile", c_int),
        ("mxPathname", c_int),
        ("pNext", c_void_p),
        ("zName", c_char_p),
        ("pAppData", c_void_p),
        ("xOpen", c_void_p),
        ("xDelete", c_void_p),
    ]


_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(_File), c_int, POINTER(c_int))
_DELETE = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
_WRITE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_TRUNCATE = CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNC = CFUNCTYPE(c_int, c_void_p, c_int)


def library() -> ctypes.CDLL | None:
    """The SQLite that Python uses; None where it cannot be reached."""
    import sqlite3  # noqa: F401 - loads it

    maps = Path("/proc/self/maps")
    found = re.search(r"/\S*libsqlite3\S*", maps.read_text()) if maps.exists() else None
    return None if found is None else ctypes.CDLL(found[0])


class _Replaced:
    """The functions that stand in for SQLite's own."""

    def __init__(self, vfs: _Vfs, shown: Shown) -> None:
        self._vfs, self._shown = vfs, shown
        self._kept = vfs.xOpen, vfs.xDelete
        self._plain_open, self._plain_delete = _OPEN(vfs.xOpen), _DELETE(vfs.xDelete)
        self._names: dict[int, str] = {}
        self._tables: dict[int, tuple] = {}  # nothing in them may be let go
        self._own = _OPEN(self._open), _DELETE(self._delete)
        vfs.xOpen, vfs.xDelete = (ctypes.cast(each, c_void_p).value for each in self._own)

    def restore(self) -> None:
        self._vfs.xOpen, self._vfs.xDelete = self._kept

    def _open(self, vfs, place, file, flags, given):
        name = None if place is None else ctypes.string_at(place)  # SQLite keeps the place itself
        if name is None or not self._shown.has(name):
            return self._plain_open(vfs, place, file, flags, given)
        with self._shown("open", name):
            code = self._plain_open(vfs, place, file, flags, given)
        if code == 0 and file.contents.methods:
            self._names[ctypes.addressof(file.contents)] = name.decode()
            file.contents.methods = self._table(file.contents.methods)
        return code

    def _delete(self, vfs, name, flush):
        if not self._shown.has(name):
            return self._plain_delete(vfs, name, flush)
        with self._shown("unlink", name):
            code = self._plain_delete(vfs, name, flush)
        if flush:
            self._note_folder(name.decode())
        return code

    def _note_folder(self, name: str) -> None:
        """Tell that SQLite has flushed the folder of a file, which it does beside these calls."""
        with self._shown("fsync", os.path.dirname(name)):
            pass

    def _table(self, plain):
        """A table of functions like this one, but for those that write."""
        address = ctypes.addressof(plain.contents)
        if address not in self._tables:
            table = _Methods.from_buffer_copy(plain.contents)
            write, truncate = _WRITE(table.xWrite), _TRUNCATE(table.xTruncate)
            sync, names = _SYNC(table.xSync), self._names

            def written(file, content, size, offset):
                half = lambda: write(file, content, size // 2, offset)  # noqa: E731
                with self._shown("write", names[file], half):
                    return write(file, content, size, offset)

            def truncated(file, size):
                with self._shown("truncate", names[file]):
                    return truncate(file, size)

            def synced(file, flags):
                with self._shown("fsync", names[file]):
                    code = sync(file, flags)
                if names[file].endswith(("-wal", "-journal")):
                    self._note_folder(names[file])
                return code

            own = _WRITE(written), _TRUNCATE(truncated), _SYNC(synced)
            for name, each in zip(("xWrite", "xTruncate", "xSync"), own, strict=True):
                setattr(table, name, ctypes.cast(each, c_void_p).value)
            self._tables[address] = table, own, plain
        return POINTER(_Methods)(self._tables[address][0])


@contextmanager
def watching_sqlite(root: Path, watcher: Watcher) -> Iterator[None]:
    """Tell a watcher about SQLite's operations on databases that are opened meanwhile."""
    sqlite = library()
    assert sqlite is not None
    sqlite.sqlite3_vfs_find.restype = POINTER(_Vfs)
    replaced = _Replaced(sqlite.sqlite3_vfs_find(None).contents, Shown(root, watcher))
    try:
        yield
    finally:
        replaced.restore()
