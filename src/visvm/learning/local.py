"""Labelled images → the sums of a head: what lies between reading a folder and solving.

Images are encoded and added to the sums some hundreds at a time, so that memory does not grow with
their number. What is chosen once for all, in the base session, is chosen on a sample of bounded
size. Who does the work is an ``Engine``: this process (``LocalEngine``), or a cluster
(``ray_engine``).
"""

import hashlib
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from visvm.encoders.cache import FeatureCache, opened_cache
from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.pipeline import Unreadable, encode_stream
from visvm.encoders.sources import RemoteFile
from visvm.errors import ImageError
from visvm.head.memory import chunk_rows
from visvm.learning.work import NONE_OF_THE_SAMPLE, Learned, Work
from visvm.model.journal import Entry, Journal
from visvm.progress import Progress

if TYPE_CHECKING:
    from visvm.head.estimators import VisClassifier

_MOST_ROWS = (
    # images whose layer features are held at once; a few minutes of a slow encoder, as the journal
    # is written in between
    1024
)


class LocalEngine:
    """Learns in this process.

    Parameters
    ----------
    journal : Journal, optional
        Where the sums are kept every few minutes, so that the same session goes on from there after
        a kill.
    """

    def __init__(self, journal: Journal | None = None) -> None:
        self._journal = journal

    def learn(self, head: "VisClassifier", work: Work, progress: Progress) -> Learned:
        """Add the images to the sums of a head, as ``Engine`` says."""
        with opened_cache(work.cache) as cache:
            return _LocalRun(head, work, progress, cache, self._journal).learn()


class _LocalRun:
    """One session in this process: first the sample of a base session, then the rest in order."""

    def __init__(
        self,
        head: "VisClassifier",
        work: Work,
        progress: Progress,
        cache: FeatureCache | None,
        journal: Journal | None,
    ) -> None:
        self._head, self._work, self._progress, self._cache, self._journal = (
            head,
            work,
            progress,
            cache,
            journal,
        )
        self._learned, self._done, self._key = (
            Learned(),
            0,
            None if journal is None else _key(head, work),
        )

    def learn(self) -> Learned:
        head, work = self._head, self._work
        self._progress("encoding", 0, len(work.images.sources))
        if not self._resume():
            if work.sample:
                self._begin()
            elif hasattr(head, "statistics_"):
                head.statistics_ = head.statistics_.copy()
        left = work.rest[self._done - len(work.sample) :]
        if self._goes_on:
            head._check_memory(len(left), len(set(work.images.labels)))
            head.statistics_.reserve(len(left))
        size = min(chunk_rows(head.n_components or 1), _MOST_ROWS)
        for features, labels in self._pieces(left, size):
            if len(features) and self._goes_on:
                with self._timed():
                    head.accumulate(features, labels)
                self._note()
        if not self._goes_on and self._journal is not None:
            self._journal.discard()
        return self._learned

    @property
    def _goes_on(self) -> bool:
        """Whether what is read is still going to be learned."""
        return self._work.skip_unreadable or not self._learned.unreadable

    def _begin(self) -> None:
        """Make the base session's choices on the sample, and learn it."""
        ((features, labels),) = self._pieces(self._work.sample, len(self._work.sample))
        if not self._goes_on:
            return
        if not len(features):
            raise ImageError(NONE_OF_THE_SAMPLE)
        with self._timed():
            self._head._listener = self._progress
            self._head.settle(features, labels)
            del self._head._listener
            self._head.accumulate(features, labels)
        self._note()

    def _pieces(
        self, places: Sequence[int], size: int
    ) -> Iterator[tuple[LayerFeatures, NDArray[np.generic]]]:
        """Layer features and labels of the images in these places, `size` files at a time."""
        outcomes = self._outcomes(places)
        for begin in range(0, len(places), size):
            rows: list[LayerFeatures] = []
            read: list[int] = []
            for place in places[begin : begin + size]:
                outcome = next(outcomes)
                if isinstance(outcome, Unreadable):
                    self._learned.unreadable[place] = outcome
                    continue
                rows.append(outcome[1])
                read.append(place)
                if place in self._work.calibration:
                    self._learned.features[place] = outcome[1]
            self._done += len(places[begin : begin + size])
            yield np.array(rows), self._work.labels(read)

    def _outcomes(self, places: Sequence[int]) -> Iterator[tuple[str, LayerFeatures] | Unreadable]:
        work, done = self._work, self._done
        sources = [work.images.sources[place] for place in places]
        for outcomes in encode_stream(sources, work.encoder, work.transform, self._cache):
            done += len(outcomes)
            self._progress("encoding", done, len(work.images.sources))
            yield from outcomes

    @contextmanager
    def _timed(self) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self._learned.learn_seconds += time.perf_counter() - begin

    # The journal

    def _resume(self) -> bool:
        """Go on from what the journal holds of this very session; False where it holds none."""
        entry = (
            None if self._journal is None or self._key is None else self._journal.read(self._key)
        )
        if entry is None:
            return False
        self._done, self._learned.features = entry.done, entry.features
        self._learned.unreadable = {
            place: Unreadable(path, reason) for place, path, reason in entry.unreadable
        }
        self._head._adopt(entry.head)
        total = len(self._work.images.sources)
        warnings.warn(
            f"going on after {self._done} of {total} images, where an earlier try was cut off",
            stacklevel=2,
        )
        self._progress("encoding", self._done, total)
        return True

    def _note(self) -> None:
        """Write down how far the session is, if it is time."""
        if self._journal is None or self._key is None or not self._journal.due:
            return
        unreadable = [
            (place, str(each.path), each.reason) for place, each in self._learned.unreadable.items()
        ]
        with self._timed():
            self._journal.write(
                Entry(self._key, self._done, self._head, unreadable, self._learned.features)
            )


def _key(head: "VisClassifier", work: Work) -> str | None:
    """What tells one session from another: the model before it, and the files; None where they are no files."""
    digest = hashlib.sha256()

    def add(*values: object) -> None:
        digest.update(json.dumps(values, default=str).encode())

    add(
        work.encoder.digest,
        work.transform.key,
        work.skip_unreadable,
        work.sample,
        head.get_params(),
    )
    if hasattr(head, "statistics_"):
        add(head._digests(), head.ridge_, head.classes_.tolist())
        digest.update(np.ascontiguousarray(head.statistics_.class_sums).data)
    for source, label in zip(work.images.sources, work.images.labels, strict=True):
        if not isinstance(source, (Path, RemoteFile)):
            return None
        add(str(source), label, _version(source))
    return digest.hexdigest()


def _version(source: Path | RemoteFile) -> str:
    """What changes when a file does: its size and its time; nothing where it cannot be seen."""
    if isinstance(source, RemoteFile):
        return source.version
    try:
        stat = source.stat()
    except OSError:
        return ""
    return f"{stat.st_size} {stat.st_mtime_ns}"
