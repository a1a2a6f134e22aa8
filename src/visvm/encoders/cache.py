"""Keep layer features on disk, so that an image is encoded once.

The cache is one SQLite file in write-ahead mode: what was committed survives kill -9, and several
processes can read and write at once. An entry's key is a digest of the image's content, the
encoder's weights and the transform. So renaming a photo costs nothing, and no change that matters
is overlooked. Each entry ends with a checksum: one that was altered, or is older than checksums,
counts as missing, and the image is encoded again. When the file outgrows its
limit, the entries unused for longest are removed.
"""

import hashlib
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.weights import cache_folder
from visvm.errors import InputError, VisvmError

DEFAULT_LIMIT = 5 * 2**30
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_PATIENCE = 60.0  # seconds to wait for another process
# the latter where SQLite's own message quotes a damaged file
_FAILURES = (sqlite3.Error, UnicodeDecodeError)
_CHECKSUM_BYTES = 8
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS features "
    "(key BLOB PRIMARY KEY, used INTEGER NOT NULL, value BLOB NOT NULL)"
)


def limit_from_environment() -> int:
    """Return ``VISVM_CACHE_LIMIT``, such as 500M or 20G, in bytes; 5 GiB if it is not set."""
    text = os.environ.get("VISVM_CACHE_LIMIT", "")
    if not text:
        return DEFAULT_LIMIT
    match = re.fullmatch(r"(\d+)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise InputError(
            f"VISVM_CACHE_LIMIT is {text!r}, which is not a size. "
            "Set it to one such as 500M or 20G, or unset it.",
            code="cache-limit-invalid",
        )
    return int(match[1]) * _UNITS[match[2].upper()]


def feature_key(content: bytes, weights_digest: str, transform_key: str) -> bytes:
    """Return the key of an image's features."""
    suffix = f"{weights_digest} {transform_key}".encode()
    return hashlib.sha256(hashlib.sha256(content).digest() + suffix).digest()


@dataclass(frozen=True)
class CacheInfo:
    """What a cache holds."""

    path: Path
    n_images: int
    n_bytes: int
    limit: int


class FeatureCache:
    """Layer features by key, for several threads and processes at once.

    Parameters
    ----------
    path : Path, optional
        The SQLite file; by default in the user's cache folder.
    limit : int, optional
        Bytes the entries may take; by default ``VISVM_CACHE_LIMIT`` or 5 GiB.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, FeatureCache(Path(folder) / "cache.sqlite") as cache:
    ...     cache.put({b"key": np.ones(3, dtype=np.float32)})
    ...     cache.get(b"key"), cache.get(b"other")
    (array([1., 1., 1.], dtype=float32), None)
    """

    def __init__(self, path: Path | None = None, limit: int | None = None) -> None:
        self.path = cache_folder() / "features.sqlite" if path is None else path
        self.limit = limit_from_environment() if limit is None else limit
        self._lock = threading.Lock()
        self._hits: set[bytes] = set()
        with self._sentences():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._database = _connect(self.path)

    def get(self, key: bytes) -> LayerFeatures | None:
        """Return the features of this key, (width,); None if there are none, or damaged ones."""
        with self._lock, self._sentences():
            row = self._database.execute(
                "SELECT value FROM features WHERE key = ?", (key,)
            ).fetchone()
        features = None if row is None else _unpacked(key, row[0])
        if features is not None:
            with self._lock:
                self._hits.add(key)
        return features

    def put(self, features: Mapping[bytes, LayerFeatures]) -> None:
        """Keep features, all of them or none; remove the oldest others to make room."""
        now = time.time_ns()
        rows = [(key, now, _packed(key, value)) for key, value in features.items()]
        with self._lock, self._sentences(), self._transaction():
            self._touch(now)
            self._database.executemany("INSERT OR REPLACE INTO features VALUES (?, ?, ?)", rows)
            self._evict()

    def info(self) -> CacheInfo:
        """Return how many images and bytes the cache holds."""
        with self._lock, self._sentences():
            (count,) = self._database.execute("SELECT count(*) FROM features").fetchone()
            return CacheInfo(self.path, count, self._used_bytes(), self.limit)

    def close(self) -> None:
        """Note which entries were used, and close the file."""
        with self._lock:
            # If this fails, only the order in which entries are removed differs.
            with suppress(*_FAILURES), self._transaction():
                self._touch(time.time_ns())
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        finally:
            # not committed; SQLite itself ends those that a full disk stopped
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")

    def _touch(self, now: int) -> None:
        self._database.executemany(
            "UPDATE features SET used = ? WHERE key = ?", [(now, key) for key in self._hits]
        )
        self._hits.clear()

    def _used_bytes(self) -> int:
        pages, free, size = (
            self._database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def _evict(self) -> None:
        """Drop entries, those longest unused first, until a tenth below the limit."""
        if self._used_bytes() <= self.limit:
            return
        (count,) = self._database.execute("SELECT count(*) FROM features").fetchone()
        while count and (used := self._used_bytes()) > self.limit:
            # right at once if all are of one size
            surplus = min(count, int(np.ceil(count * (1 - 0.9 * self.limit / used))))
            oldest = "SELECT key FROM features ORDER BY used LIMIT ?"
            self._database.execute(f"DELETE FROM features WHERE key IN ({oldest})", (surplus,))
            count -= surplus

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """Turn SQLite's errors into one clear line."""
        try:
            yield
        except (*_FAILURES, OSError) as error:
            reason = " ".join(str(error).split())
            raise VisvmError(
                f"The feature cache {self.path} cannot be read or written ({reason}). Run 'visvm "
                "cache clear', set VISVM_CACHE to another folder, or use --no-cache.",
                code="cache-unusable",
            ) from error


def _packed(key: bytes, features: LayerFeatures) -> bytes:
    """Return the bytes of features, and behind them a checksum that belongs to this key."""
    content = features.astype("<f4").tobytes()
    return content + _checksum(key, content)


def _unpacked(key: bytes, value: object) -> LayerFeatures | None:
    """Return the features in an entry; None where it was altered, or has no checksum yet."""
    if not isinstance(value, bytes) or len(value) % 4:
        return None
    content, checksum = value[:-_CHECKSUM_BYTES], value[-_CHECKSUM_BYTES:]
    if _checksum(key, content) != checksum:
        return None
    features: LayerFeatures = np.frombuffer(content, dtype="<f4")
    return features if np.isfinite(features).all() else None


def _checksum(key: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, key=key[:64], digest_size=_CHECKSUM_BYTES).digest()


def _connect(path: Path) -> sqlite3.Connection:
    """Open the file, or create it."""
    database = sqlite3.connect(
        path, timeout=_PATIENCE, check_same_thread=False, isolation_level=None
    )
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=NORMAL")
            database.execute(_SCHEMA)
            return database
        except _FAILURES as error:
            # When two processes create the file at once, SQLite refuses one without waiting.
            if "locked" not in str(error) or time.monotonic() > deadline:
                database.close()
                raise
            time.sleep(0.01)


@contextmanager
def opened_cache(cache: bool | Path | FeatureCache) -> Iterator[FeatureCache | None]:
    """Open the cache that a path or a cache names; True means the default one, False none."""
    if isinstance(cache, FeatureCache):
        yield cache
    elif cache is False:
        yield None
    else:
        with FeatureCache(None if cache is True else Path(cache)) as opened:
            yield opened


def clear(path: Path | None = None) -> int:
    """Empty the cache, damaged or not, and return the number of bytes freed."""
    path = cache_folder() / "features.sqlite" if path is None else path
    files = [path, Path(f"{path}-wal"), Path(f"{path}-shm")]
    before = _total_size(files)
    if not path.exists():
        return 0
    try:
        # others may be using it
        with closing(sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)) as database:
            database.execute("DELETE FROM features")
            database.execute("VACUUM")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except _FAILURES as error:
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            raise VisvmError(
                f"The feature cache {path} is in use. Clear it later.", code="cache-in-use"
            ) from error
        try:
            for file in files:
                file.unlink(missing_ok=True)
        except OSError as refused:
            raise VisvmError(
                f"The feature cache {path} cannot be removed ({refused}). Remove it by hand.",
                code="cache-unusable",
            ) from refused
    return before - _total_size(files)


def _total_size(files: Sequence[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.exists())
