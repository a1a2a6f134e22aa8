"""Labelled images → the sums of a head: what lies between reading a folder and solving.

Images are encoded and added to the sums some hundreds at a time, so that memory does not grow with their number. What is chosen
once for all, in the base session, is chosen on a sample of bounded size. Who does the work is an ``Engine``: this process
(``LocalEngine``), or a cluster (``ray_engine``).
"""

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from visvm.encoders.cache import FeatureCache
from visvm.encoders.encoder import Encoder, LayerFeatures
from visvm.encoders.images import Transform
from visvm.encoders.pipeline import Unreadable, encode_stream
from visvm.errors import ImageError
from visvm.head.memory import chunk_rows
from visvm.head.selection import shuffled_by_class
from visvm.journal import Entry, Journal
from visvm.labelled import Labelled
from visvm.remote import RemoteFile

if TYPE_CHECKING:
    from visvm.head.classifier import VisClassifier

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is in all."""

NONE_OF_THE_SAMPLE = (
    "the images on which a first session is settled must be readable; none of the sample is: repair or remove what is no image"
)

_LEAST_OF_A_CLASS = 5  # images in a sample
_MOST_ROWS = (
    1024  # images whose layer features are held at once; a few minutes of a slow encoder, as the journal is written in between
)


@dataclass(frozen=True)
class Work:
    """What a session is to learn.

    Attributes
    ----------
    images : Labelled
    encoder : Encoder
    transform : Transform
    cache : bool, Path or FeatureCache
        Where features are kept, as in ``ImageClassifier``.
    skip_unreadable : bool
        Whether to go on without files that are no images; otherwise they are told, and nothing need be learned.
    sample : tuple of int
        Of a base session, the places of the images on which its choices are made; empty in later ones.
    calibration : frozenset of int
        Places of images whose features are wanted afterwards.
    """

    images: Labelled
    encoder: Encoder
    transform: Transform
    cache: bool | Path | FeatureCache
    skip_unreadable: bool
    sample: tuple[int, ...]
    calibration: frozenset[int]

    @property
    def rest(self) -> list[int]:
        """Places of the images that are not in the sample."""
        sample = set(self.sample)
        return [place for place in range(len(self.images.sources)) if place not in sample]

    def labels(self, places: Sequence[int]) -> NDArray[np.generic]:
        """Labels of the images in these places, (n,)."""
        return np.array([self.images.labels[place] for place in places])


@dataclass
class Learned:
    """What became of the images of a session.

    Attributes
    ----------
    unreadable : dict
        Those that are no images, by place.
    features : dict
        Layer features, (width,), by place, of those wanted for calibration, as far as this process had them.
    learn_seconds : float
        Time taken by the sums and the base session's choices, beside reading and encoding.
    """

    unreadable: dict[int, Unreadable] = field(default_factory=dict)
    features: dict[int, LayerFeatures] = field(default_factory=dict)
    learn_seconds: float = 0.0


class Engine(Protocol):
    """Who turns images into sums."""

    def learn(self, head: "VisClassifier", work: Work, progress: Progress) -> Learned:
        """Add the images to the sums of a head, making the base session's choices first; solving is left to the caller.

        Parameters
        ----------
        head : VisClassifier
            A draft, whose sums may still be those of another.
        work : Work
        progress : callable
        """


class LocalEngine:
    """Learns in this process.

    Parameters
    ----------
    journal : Journal, optional
        Where the sums are kept every few minutes, so that the same session goes on from there after a kill.
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
        self, head: "VisClassifier", work: Work, progress: Progress, cache: FeatureCache | None, journal: Journal | None
    ) -> None:
        self._head, self._work, self._progress, self._cache, self._journal = head, work, progress, cache, journal
        self._learned, self._done, self._key = Learned(), 0, None if journal is None else _key(head, work)

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

    def _pieces(self, places: Sequence[int], size: int) -> Iterator[tuple[LayerFeatures, NDArray[np.generic]]]:
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
        entry = None if self._journal is None or self._key is None else self._journal.read(self._key)
        if entry is None:
            return False
        self._done, self._learned.features = entry.done, entry.features
        self._learned.unreadable = {place: Unreadable(path, reason) for place, path, reason in entry.unreadable}
        self._head._adopt(entry.head)
        total = len(self._work.images.sources)
        warnings.warn(f"going on after {self._done} of {total} images, where an earlier try was cut off", stacklevel=2)
        self._progress("encoding", self._done, total)
        return True

    def _note(self) -> None:
        """Write down how far the session is, if it is time."""
        if self._journal is None or self._key is None or not self._journal.due:
            return
        unreadable = [(place, str(each.path), each.reason) for place, each in self._learned.unreadable.items()]
        with self._timed():
            self._journal.write(Entry(self._key, self._done, self._head, unreadable, self._learned.features))


def _key(head: "VisClassifier", work: Work) -> str | None:
    """What tells one session from another: the model before it, and the files; None where they are no files."""
    digest = hashlib.sha256()

    def add(*values: object) -> None:
        digest.update(json.dumps(values, default=str).encode())

    add(work.encoder.digest, work.transform.key, work.skip_unreadable, work.sample, head.get_params())
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


@contextmanager
def opened_cache(cache: bool | Path | FeatureCache) -> Iterator[FeatureCache | None]:
    """The cache that is meant by what ``ImageClassifier`` was given."""
    if isinstance(cache, FeatureCache):
        yield cache
    elif cache is False:
        yield None
    else:
        with FeatureCache(None if cache is True else Path(cache)) as opened:
            yield opened


def stratified(labels: Sequence[Any], most: int | None, seed: int) -> tuple[int, ...]:
    """Places of at most about `most` samples, the same share of every class but at least five of each.

    Where that is too many classes, five each of as many classes as there is room for.

    Parameters
    ----------
    labels : sequence of labels
    most : int or None
        None means all.
    seed : int

    Examples
    --------
    >>> [["cat", "dog"][place >= 80] for place in stratified(["cat"] * 80 + ["dog"] * 20, 12, seed=0)]
    ['cat', 'cat', 'cat', 'cat', 'cat', 'cat', 'cat', 'cat', 'cat', 'cat', 'dog', 'dog', 'dog', 'dog', 'dog']
    """
    if most is None or len(labels) <= most:
        return tuple(range(len(labels)))
    generator = np.random.default_rng([seed, 3])
    _, targets = np.unique(np.array(labels), return_inverse=True)
    counts = np.bincount(targets)
    order, rank = shuffled_by_class(targets, generator)
    wanted = np.maximum(np.ceil(counts * most / len(targets)), _LEAST_OF_A_CLASS)
    room = max(1, most // _LEAST_OF_A_CLASS)
    if len(counts) > room:
        wanted[generator.permutation(len(counts))[:-room]] = 0
        wanted = np.minimum(wanted, _LEAST_OF_A_CLASS)
    return tuple(np.sort(order[rank < wanted[targets[order]]]).tolist())
