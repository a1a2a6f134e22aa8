"""Labelled images → sums, in this process.

Images are encoded and added to the sums some hundreds at a time, so that memory does not grow with
their number. What the base session decides is decided on a sample of bounded size.
"""

import hashlib
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from visvm.encoders.cache import FeatureCache, opened_cache
from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.pipeline import Unreadable, encode_stream
from visvm.head.checks import Labels
from visvm.head.head import Head, accumulate, as_rows
from visvm.head.memory import chunk_rows
from visvm.head.settle import Settled, settle
from visvm.head.statistics import Statistics
from visvm.learning.work import Learned, Work, sample_unreadable
from visvm.model.journal import Journal, JournalEntry
from visvm.progress import Progress

# Images whose layer features are held at once: a few minutes of a slow encoder, as the journal is
# written in between.
_MOST_ROWS = 1024


class LocalEngine:
    """Learns in this process.

    Parameters
    ----------
    journal : Journal, optional
        Where the sums are kept every few minutes, so that the same session resumes after a kill.
    """

    def __init__(self, journal: Journal | None = None) -> None:
        self._journal = journal

    def learn(self, work: Work, progress: Progress) -> Learned:
        """Learn a session, as ``Engine`` says."""
        with opened_cache(work.cache) as cache:
            return _LocalRun(work, progress, cache, self._journal).learn()


@dataclass(frozen=True)
class _Growing:
    """Sums of a session's own, which are added to, under what was settled."""

    settled: Settled
    sums: Statistics

    @property
    def head(self) -> Head:
        """The head with the sums of now, not solved."""
        return Head.of(self.settled, self.sums)


class _LocalRun:
    """One session in this process: first the sample of a base session, then the rest in order."""

    def __init__(
        self, work: Work, progress: Progress, cache: FeatureCache | None, journal: Journal | None
    ) -> None:
        self._work, self._progress, self._cache, self._journal = work, progress, cache, journal
        self._learned, self._done = Learned(), 0
        self._growing: _Growing | None = None
        self._key = None if journal is None else _key(work)
        self._n_views = len(work.transforms)

    def learn(self) -> Learned:
        work, total = self._work, len(self._work.images.sources)
        self._progress("encoding", 0, total)
        if not self._resume():
            if work.start is None:
                self._begin()
            else:
                self._growing = _Growing(work.start.settled, work.start.statistics.copy())
        left = work.rest[self._done - len(work.sample) :]
        growing = self._growing
        if growing is not None and self._goes_on:
            n_rows = len(left) * self._n_views
            growing.head.require_memory(n_rows, len(set(work.images.labels)))
            growing.sums.reserve(n_rows)
        size = min(chunk_rows(work.options.n_components or 1), _MOST_ROWS) // self._n_views
        for features, labels in self._pieces(left, size):
            if len(features) and self._goes_on and growing is not None:
                with self._timed():
                    accumulate(growing.sums, growing.settled, *as_rows(features, labels))
                self._note()
        if growing is not None:
            self._learned.head = growing.head
        if not self._goes_on and self._journal is not None:
            self._journal.discard()
        return self._learned

    @property
    def _goes_on(self) -> bool:
        """Whether what is read is still going to be learned."""
        return self._work.skip_unreadable or not self._learned.unreadable

    def _begin(self) -> None:
        """Make the base session's choices on the sample, and learn it."""
        work = self._work
        ((features, labels),) = self._pieces(work.sample, len(work.sample))
        if not self._goes_on:
            return
        if not len(features):
            raise sample_unreadable()
        with self._timed():
            # on whole images: other views of one that is held out would give it away
            settled = settle(features[:, 0], labels, work.options, progress=self._progress)
            self._growing = _Growing(settled, Statistics(settled.lift.width))
            accumulate(self._growing.sums, settled, *as_rows(features, labels))
        self._note()

    def _pieces(self, places: Sequence[int], size: int) -> Iterator[tuple[LayerFeatures, Labels]]:
        """Yield features, (n, V, width), and labels of images, `size` files at a time."""
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
        for outcomes in encode_stream(sources, work.encoder, work.transforms, self._cache):
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
        if self._journal is None or self._key is None:
            return False
        if (entry := self._journal.read(self._key)) is None:
            return False
        self._done, self._learned.features = entry.done, entry.features
        self._learned.unreadable = {
            place: Unreadable(path, reason) for place, path, reason in entry.unreadable
        }
        start = self._work.start
        options = self._work.options if start is None else start.settled.options
        self._growing = _Growing(entry.head.settled.with_options(options), entry.head.statistics)
        total = len(self._work.images.sources)
        warnings.warn(
            f"Resuming after {self._done} of {total} images, where an earlier try was cut off.",
            stacklevel=2,
        )
        self._progress("encoding", self._done, total)
        return True

    def _note(self) -> None:
        """Write down how far the session is, if it is time."""
        journal, growing = self._journal, self._growing
        if journal is None or self._key is None or growing is None or not journal.due:
            return
        unreadable = [
            (place, str(each.path), each.reason) for place, each in self._learned.unreadable.items()
        ]
        entry = JournalEntry(
            self._key, self._done, growing.head, unreadable, self._learned.features
        )
        with self._timed():
            journal.write(entry)


def _key(work: Work) -> str | None:
    """Tell one session from another by the model before it and the files; None for contents."""
    digest, files = hashlib.sha256(), work.images.key
    if files is None:
        return None

    def add(*values: object) -> None:
        digest.update(json.dumps(values, default=str).encode())

    options = work.options.parameters
    views = [each.key for each in work.transforms]
    add(work.encoder.digest, *views, work.skip_unreadable, work.sample, options)
    if work.start is not None:
        head, lift = work.start, work.start.settled.lift
        add(lift.digests, head.settled.ridge, head.classes.tolist())
        digest.update(np.ascontiguousarray(head.statistics.class_sums).data)
    add(files)
    return digest.hexdigest()
