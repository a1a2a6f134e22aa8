"""Learning on a Ray cluster: images → sums on many machines, added in a tree, solved by the driver.

One Ray Data pipeline does it. Tasks read and decode images; encoder actors turn them into layer features; tasks lift some
thousand of these and reduce them to sums where they are; further tasks add the sums in pairs, level by level. Only sums come
back, and of a base session its choices, which one task makes from a sample of bounded size. Every step is a function of its
input, so that what Ray does again after a worker was lost counts once.
"""

import copy
import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from visvm import errors
from visvm.encoders.images import Transform
from visvm.encoders.loading import load_encoder
from visvm.encoders.pipeline import ReadImage, Source, Unreadable, encode_images, read_image
from visvm.errors import EncoderError, ImageError, InputError, VisvmError
from visvm.head.statistics import Statistics
from visvm.learning import Learned, Progress, Work, opened_cache

if TYPE_CHECKING:
    import ray
    from ray.data import Dataset

    from visvm.head.classifier import VisClassifier

_READ_TOGETHER = 64  # images a reading task decodes at a time
_LEAST_TOGETHER, _MOST_TOGETHER = 1024, 16384  # images whose sums are made at once
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class _Reading:
    """What it takes to read an image on another machine."""

    weights_digest: str
    layer_dims: tuple[int, ...]
    transform: Transform
    cache: bool | Path


@dataclass
class _Part:
    """Sums of some images, and those that could not be read."""

    statistics: Statistics | None
    unreadable: dict[int, Unreadable]

    def add(self, other: "_Part") -> None:
        """Take in another part."""
        self.unreadable |= other.unreadable
        if self.statistics is None:
            self.statistics = other.statistics
        elif other.statistics is not None:
            self.statistics.merge(other.statistics)


class RayEngine:
    """Learns on a Ray cluster.

    Every machine of it needs visvm, the encoder (a name of the catalogue, or a file at the same place) and the images (a shared
    folder, or a URI).

    Parameters
    ----------
    address : str, default="local"
        Of a cluster, such as ``"auto"`` or ``"ray://head:10001"``; ``"local"`` begins one on this machine. Where Ray has been
        initialised already, that one is used.
    actors : int, optional
        How many encoders run at once; by default one for each GPU, or one for every two cores.
    batch_size : int, default=8
        How many images an encoder takes at a time.
    images_per_sum : int, optional
        How many images are reduced to one partial sum; by default a quarter of an actor's share, from 1024 to 16384.
    """

    def __init__(
        self, address: str = "local", *, actors: int | None = None, batch_size: int = 8, images_per_sum: int | None = None
    ) -> None:
        for name, value in (("actors", actors), ("batch_size", batch_size), ("images_per_sum", images_per_sum)):
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1; got {value}")
        self.address, self.actors, self.batch_size, self.images_per_sum = address, actors, batch_size, images_per_sum

    def learn(self, head: "VisClassifier", work: Work, progress: Progress) -> Learned:
        """Add the images to the sums of a head, as ``Engine`` says."""
        if any(isinstance(source, bytes) for source in work.images.sources):
            raise InputError("images to learn on Ray must be files or URIs; got contents: learn them without Ray")
        with _cluster(self.address, self.actors):
            return _RayRun(self, head, work, progress).learn()


class _RayRun:
    """One session on a cluster that is there."""

    def __init__(self, engine: RayEngine, head: "VisClassifier", work: Work, progress: Progress) -> None:
        import ray

        self._ray, self._engine, self._head, self._work, self._progress = ray, engine, head, work, progress
        resources = ray.cluster_resources()
        self._gpus = int(resources.get("GPU", 0))
        self._actors = engine.actors or self._gpus or max(1, int(resources.get("CPU", 1)) // 2)
        n = len(work.images.sources)
        share = n // (4 * self._actors)
        self._together = engine.images_per_sum or min(max(share, _LEAST_TOGETHER), _MOST_TOGETHER)
        self._counter = ray.remote(num_cpus=0)(_Counter).remote()

    def learn(self) -> Learned:
        """The whole session."""
        work, head = self._work, self._head
        rest = work.rest
        if work.sample:
            encoded = self._materialised(self._encoded(work.sample))
            unreadable = self._settle(encoded)
            if rest:
                encoded = encoded.union(self._encoded(rest))
            if unreadable and not work.skip_unreadable:
                part = self._sum(encoded, None)
                return Learned(part.unreadable)
        else:
            encoded = self._encoded(rest)
            head.statistics_ = head.statistics_.copy()
        head._check_memory(len(work.images.sources), len(set(work.images.labels)))
        part = self._sum(encoded, head)
        if part.statistics is not None:
            head.statistics_.merge(part.statistics)
        return Learned(part.unreadable)

    def _encoded(self, places: "tuple[int, ...] | list[int]") -> "Dataset":
        """A data set of layer features, one row an image, made when it is asked for."""
        import ray.data

        work, encoder = self._work, self._work.encoder
        rows = [{"place": place, "label": work.images.labels[place], "source": work.images.sources[place]} for place in places]
        reading = _Reading(encoder.digest, encoder.layer_dims, work.transform, _portable(work.cache))
        blocks = min(len(rows), max(len(rows) // _READ_TOGETHER, 2 * self._actors))
        read = ray.data.from_items(rows, override_num_blocks=blocks).map_batches(
            _read, fn_kwargs={"reading": reading}, batch_size=None, num_cpus=0.5
        )
        return read.map_batches(
            _Encode,
            fn_constructor_kwargs={"name": encoder.name, "reading": reading, "counter": self._counter},
            batch_size=self._engine.batch_size,
            concurrency=self._actors,
            num_cpus=1,
            num_gpus=1 if self._gpus else None,
        )

    def _settle(self, encoded: "Dataset") -> dict[int, Unreadable]:
        """Make the base session's choices in one task, from the sample that was encoded."""
        self._progress("choosing λ and blocks", 0, 1)
        head = encoded.repartition(1).map_batches(_settle, fn_kwargs={"head": self._head}, batch_size=None)
        ((settled, unreadable),) = (row["settled"] for row in self._rows(head))
        if settled is None and (self._work.skip_unreadable or not unreadable):
            raise ImageError("there must be at least one image that can be read; there is none")
        if settled is not None:
            for name in [name for name in vars(settled) if name.endswith("_")]:
                setattr(self._head, name, getattr(settled, name))
        self._progress("choosing λ and blocks", 1, 1)
        return dict(unreadable)

    def _sum(self, encoded: "Dataset", head: "VisClassifier | None") -> _Part:
        """The sums of all images: partial ones where features are, added in pairs until few are left."""
        shared = self._ray.put(None if head is None else _without_sums(head))
        parts = encoded.map_batches(_sum, fn_kwargs={"head": [shared]}, batch_size=self._together)
        left = -(-len(self._work.images.sources) // self._together)
        while left > 1:
            parts = parts.map_batches(_add, batch_size=2)
            left = -(-left // 2)
        total = _Part(None, {})
        for row in self._rows(parts):
            total.add(row["part"])
        return total

    def _materialised(self, data: "Dataset") -> "Dataset":
        return self._watched(data.materialize)

    def _rows(self, data: "Dataset") -> list[dict[str, Any]]:
        return list(self._watched(data.take_all))

    def _watched(self, work: Any) -> Any:
        """What `work` gives, done beside this thread, which tells how far it is."""
        import ray.exceptions

        outcome: dict[str, Any] = {}

        def run() -> None:
            try:
                outcome["value"] = work()
            except BaseException as error:  # noqa: BLE001 - the outermost frame of this thread: the other one raises it
                outcome["error"] = error

        thread = threading.Thread(target=run, name="visvm-ray", daemon=True)
        thread.start()
        total = len(self._work.images.sources)
        while thread.is_alive():
            thread.join(_LOOK_SECONDS)
            self._progress("encoding", min(self._ray.get(self._counter.value.remote()), total), total)
        if (error := outcome.get("error")) is None:
            return outcome["value"]
        if isinstance(error, ray.exceptions.RayError):
            raise _sentence(error) from error
        raise error


# What runs on the cluster


class _Counter:
    """How many images were encoded; those done twice count twice."""

    def __init__(self) -> None:
        self._value = 0

    def add(self, n: int) -> None:
        self._value += n

    def value(self) -> int:
        return self._value


def _read(batch: dict[str, Any], reading: _Reading) -> dict[str, Any]:
    """Read and decode images."""
    with opened_cache(reading.cache) as cache:
        sources: list[Source] = list(batch["source"])
        images = [read_image(each, reading.weights_digest, reading.layer_dims, reading.transform, cache) for each in sources]
    return {"place": batch["place"], "label": batch["label"], "image": _objects(images)}


class _Encode:
    """An actor with the encoder: decoded images → layer features."""

    def __init__(self, name: str, reading: _Reading, counter: "ray.actor.ActorHandle") -> None:
        self._encoder, self._reading, self._counter = load_encoder(name), reading, counter
        if self._encoder.digest != reading.weights_digest:
            raise EncoderError(
                f"the encoder must be the same on all machines; the weights of {name} are {self._encoder.digest[:12]} here, "
                f"{reading.weights_digest[:12]} where learning was begun"
            )

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Encode what was decoded."""
        images: list[ReadImage] = list(batch["image"])
        with opened_cache(self._reading.cache) as cache:
            encode_images(images, self._encoder, cache)
        self._counter.add.remote(len(images))
        return {**batch, "image": _objects(images)}


def _settle(batch: dict[str, Any], head: "VisClassifier") -> dict[str, Any]:
    """The base session's choices, made from a sample."""
    order = np.argsort(batch["place"])
    features, labels, unreadable = _split({name: column[order] for name, column in batch.items()})
    if not len(features):
        return {"settled": _objects([(None, unreadable)])}
    return {"settled": _objects([(head.settle(features, labels), unreadable)])}


def _sum(batch: dict[str, Any], head: "list[ray.ObjectRef]") -> dict[str, Any]:
    """The sums of some images."""
    import ray

    settled: VisClassifier | None = ray.get(head[0])
    features, labels, unreadable = _split(batch)
    if settled is None or not len(features):
        return {"part": _objects([_Part(None, unreadable)])}
    settled.statistics_ = Statistics(settled.kernel_map_.width)
    settled.accumulate(features, labels)
    return {"part": _objects([_Part(settled.statistics_, unreadable)])}


def _add(batch: dict[str, Any]) -> dict[str, Any]:
    """Two sums as one."""
    first, *others = batch["part"]
    for other in others:
        first.add(other)
    return {"part": _objects([first])}


def _split(batch: dict[str, Any]) -> tuple[Any, Any, dict[int, Unreadable]]:
    """Features, (n, width), and labels, (n,), of the images that could be read, and the others."""
    images: list[ReadImage] = list(batch["image"])
    places = [int(place) for place in batch["place"]]
    readable = np.array([image.features is not None for image in images], dtype=bool)
    features = np.array([image.features for image in images if image.features is not None])
    unreadable = {
        place: Unreadable(image.path, image.reason) for place, image in zip(places, images, strict=True) if image.features is None
    }
    return features, np.array(np.asarray(batch["label"])[readable].tolist()), unreadable


def _objects(values: list[Any]) -> Any:
    """A column of Python objects."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


# Helpers


def _without_sums(head: "VisClassifier") -> "VisClassifier":
    """A copy for lifting, which is small."""
    twin = copy.copy(head)
    twin.statistics_ = Statistics(head.kernel_map_.width)
    twin.classes_, twin.coefficients_ = head.classes_[:0], head.coefficients_[:, :0]
    return twin


def _portable(cache: Any) -> bool | Path:
    """Where features are kept, as another process can be told."""
    return cache if isinstance(cache, (bool, Path)) else cache.path


def _sentence(error: BaseException) -> VisvmError:
    """One line for what went wrong on the cluster."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, VisvmError):
        cause = getattr(cause, "cause", None) or cause.__cause__
    if isinstance(cause, VisvmError):
        return cause
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if told := re.fullmatch(r"visvm\.errors\.(\w+): (.*)", lines[-1]):  # of an actor that could not begin, all there is
        kind: type[VisvmError] = getattr(errors, told[1])
        return kind(told[2])
    return VisvmError(f"learning on Ray must end well; it did not: {lines[-1]}")


@contextmanager
def _cluster(address: str, actors: int | None) -> Iterator[None]:
    """Be connected to Ray while the block lasts."""
    try:
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # else it speaks of its own affairs on standard error
        import ray
        import ray.data
    except ModuleNotFoundError as error:
        raise InputError(f"learning on Ray needs {error.name}, which is not installed: pip install 'visvm[ray]'") from error
    if ray.is_initialized():
        with _quiet():
            yield
        return
    # Logical cores, of which reading and adding need some beside the encoders.
    cores = max(2 * (os.cpu_count() or 1), 2 * (actors or 0) + 2) if address == "local" else None
    try:
        ray.init(address, num_cpus=cores, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"--ray must be 'local' or the address of a Ray cluster; {address} is not ({reason})") from error
    try:
        with _quiet():
            yield
    finally:
        ray.shutdown()


@contextmanager
def _quiet() -> Iterator[None]:
    """Ray Data without bars and announcements of its own, and with objects in its columns."""
    from ray.data import DataContext

    context = DataContext.get_current()
    logger = logging.getLogger("ray.data")
    before = context.enable_progress_bars, context.print_on_execution_start, logger.level
    context.enable_progress_bars = context.print_on_execution_start = False
    logger.setLevel(logging.CRITICAL)  # what goes wrong is raised
    try:
        yield
    finally:
        context.enable_progress_bars, context.print_on_execution_start = before[:2]
        logger.setLevel(before[2])
