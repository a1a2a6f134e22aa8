"""What runs on a Ray cluster when a session is learned there.

One Ray Data pipeline, led by an actor. Tasks read and decode images; encoder actors turn them into
layer features; tasks lift some thousand of these and reduce them to sums where they are; further
tasks add the sums in pairs, level by level. Only sums come back, and of a base session its choices,
which one task makes from a sample of bounded size. Every step is a function of its input, so that
what Ray does again after a worker was lost counts once.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from visvm.encoders.cache import opened_cache
from visvm.encoders.loading import load_encoder
from visvm.encoders.pipeline import ReadImage, Unreadable, encode_images, read_image
from visvm.encoders.sources import Source
from visvm.encoders.transform import Transform
from visvm.errors import EncoderError, VisvmError
from visvm.head.head import Head, accumulate, as_rows
from visvm.head.settle import HeadOptions, Settled, settle
from visvm.head.statistics import Statistics
from visvm.learning.labelled import Labelled
from visvm.learning.work import sample_unreadable

if TYPE_CHECKING:
    import ray
    from ray.data import Dataset

_READ_TOGETHER = 64  # images a reading task decodes at a time


@dataclass(frozen=True)
class Reading:
    """What it takes to read an image on another machine."""

    weights_digest: str
    layer_dims: tuple[int, ...]
    views: tuple[Transform, ...]
    cache: bool | Path


@dataclass(frozen=True)
class Plan:
    """A session, as it is sent to the cluster."""

    images: Labelled
    sample: tuple[int, ...]
    rest: tuple[int, ...]
    skip_unreadable: bool
    options: HeadOptions
    encoder_name: str
    reading: Reading
    actors: int
    core: float
    gpu: bool
    batch_size: int
    together: int


@dataclass
class Part:
    """Sums of some images, and those that could not be read."""

    statistics: Statistics | None
    unreadable: dict[int, Unreadable]

    def add(self, other: "Part") -> None:
        """Take in another part."""
        self.unreadable |= other.unreadable
        if self.statistics is None:
            self.statistics = other.statistics
        elif other.statistics is not None:
            self.statistics.merge(other.statistics)


class Leader:
    """The actor that leads a session: it gives Ray Data its pipeline, and says how far it is."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._stage, self._done = plan, "encoding", 0
        self._failure: VisvmError | None = None

    def state(self) -> tuple[str, int]:
        """Return what is being done, and how many images were encoded; repeated ones count."""
        return self._stage, self._done

    def add(self, n: int) -> None:
        """Count images that were encoded."""
        self._done += n

    def fail(self, error: VisvmError) -> None:
        """Take the error for which a task is about to end the session."""
        self._failure = error

    def learn(self, settled: Settled | None) -> tuple[Settled | None, Part]:
        """Return the choices of the base session, made here if it is one, and the sums."""
        import ray.exceptions

        _hush()
        try:
            return self._learn(settled)
        except ray.exceptions.RayError as error:
            raise (self._failure or error) from error

    def _learn(self, settled: Settled | None) -> tuple[Settled | None, Part]:
        plan = self._plan
        if settled is not None:
            return settled, self._sum(self._encoded(plan.rest), settled)
        encoded = self._encoded(plan.sample).materialize()
        settled, unreadable = self._settle(encoded)
        if plan.rest:
            encoded = encoded.union(self._encoded(plan.rest))
        if settled is not None and (plan.skip_unreadable or not unreadable):
            return settled, self._sum(encoded, settled)
        if plan.skip_unreadable:
            raise sample_unreadable()
        return None, self._sum(encoded, None)

    def _encoded(self, places: tuple[int, ...]) -> "Dataset":
        """Return a data set of layer features, one row an image, made when it is asked for."""
        import ray.data

        plan, images, me = self._plan, self._plan.images, _this_actor()
        rows = [
            {"place": place, "label": images.labels[place], "source": images.sources[place]}
            for place in places
        ]
        blocks = min(len(rows), max(len(rows) // _READ_TOGETHER, 2 * plan.actors))
        read = ray.data.from_items(rows, override_num_blocks=blocks).map_batches(
            _read,
            fn_kwargs={"reading": plan.reading, "leader": me},
            batch_size=None,
            num_cpus=plan.core / 2,
        )
        given = {"name": plan.encoder_name, "reading": plan.reading, "leader": me}
        return read.map_batches(
            _Encode,
            fn_constructor_kwargs=given,
            batch_size=plan.batch_size,
            concurrency=plan.actors,
            num_cpus=plan.core,
            num_gpus=1 if plan.gpu else None,
        )

    def _settle(self, encoded: "Dataset") -> tuple[Settled | None, dict[int, Unreadable]]:
        """Make the base session's choices in one task; return also what cannot be read."""
        self._stage, done, self._done = "choosing λ and blocks", self._done, 0
        choices = encoded.repartition(1).map_batches(
            _settle,
            fn_kwargs={"options": self._plan.options, "leader": _this_actor()},
            batch_size=None,
        )
        (row,) = choices.take_all()
        self._stage, self._done = "encoding", done
        settled: tuple[Settled | None, dict[int, Unreadable]] = row["settled"]
        return settled

    def _sum(self, encoded: "Dataset", settled: Settled | None) -> Part:
        """Sum all images: partial sums where features are, added in pairs, level by level."""
        import ray

        plan, shared = self._plan, ray.put(settled)
        parts = encoded.map_batches(
            _sum, fn_kwargs={"settled": [shared]}, batch_size=plan.together, num_cpus=plan.core
        )
        # what does not fill a sum can make another
        left, level = 2 * -(-len(plan.images.sources) // plan.together), 0
        while left > 1:
            # Steps that ask for the same resources Ray Data would make one, which sees one sum at a
            # time.
            share = plan.core / (1 + level % 2) / 2
            parts = parts.map_batches(_add, batch_size=2, num_cpus=share)
            left, level = -(-left // 2), level + 1
        total = Part(None, {})
        for row in parts.take_all():
            total.add(row["part"])
        return total


def _this_actor() -> "ray.actor.ActorHandle":
    import ray

    return ray.get_runtime_context().current_actor


@contextmanager
def _telling(leader: "ray.actor.ActorHandle") -> Iterator[None]:
    """Pass an error of ours to the leader: Ray passes on its words alone, without its code."""
    import ray

    try:
        yield
    except VisvmError as error:
        ray.get(leader.fail.remote(error))
        raise


def _read(
    batch: dict[str, Any], reading: Reading, leader: "ray.actor.ActorHandle"
) -> dict[str, Any]:
    """Read and decode images."""
    with _telling(leader), opened_cache(reading.cache) as cache:
        sources: list[Source] = list(batch["source"])
        images = [
            read_image(each, reading.weights_digest, reading.layer_dims, reading.views, cache)
            for each in sources
        ]
    return {"place": batch["place"], "label": batch["label"], "image": _objects(images)}


class _Encode:
    """An actor with the encoder: decoded images → layer features."""

    def __init__(self, name: str, reading: Reading, leader: "ray.actor.ActorHandle") -> None:
        self._reading, self._leader = reading, leader
        with _telling(leader):
            self._encoder = load_encoder(name)
            if self._encoder.digest != reading.weights_digest:
                raise EncoderError(
                    f"The weights of {name} are {self._encoder.digest[:12]} on one machine and "
                    f"{reading.weights_digest[:12]} on another. Install the same on all.",
                    code="encoder-differs",
                )

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Encode what was decoded."""
        images: list[ReadImage] = list(batch["image"])
        with _telling(self._leader), opened_cache(self._reading.cache) as cache:
            encode_images(images, self._encoder, cache)
        self._leader.add.remote(len(images))
        return {**batch, "image": _objects(images)}


def _settle(
    batch: dict[str, Any], options: HeadOptions, leader: "ray.actor.ActorHandle"
) -> dict[str, Any]:
    """Make the base session's choices from a sample."""
    order = np.argsort(batch["place"])
    columns = {name: column[order] for name, column in batch.items()}
    features, labels, unreadable = _split(columns)
    with _telling(leader):
        settled = settle(features[:, 0], labels, options) if len(features) else None
    return {"settled": _objects([(settled, unreadable)])}


def _sum(batch: dict[str, Any], settled: "list[ray.ObjectRef]") -> dict[str, Any]:
    """Sum some images."""
    import ray

    choices: Settled | None = ray.get(settled[0])
    features, labels, unreadable = _split(batch)
    if choices is None or not len(features):
        return {"part": _objects([Part(None, unreadable)])}
    sums = Statistics(choices.lift.width)
    n_rows = features.shape[0] * features.shape[1]
    Head.of(choices, sums).require_memory(n_rows, len(np.unique(labels)))
    accumulate(sums, choices, *as_rows(features, labels))
    return {"part": _objects([Part(sums, unreadable)])}


def _add(batch: dict[str, Any]) -> dict[str, Any]:
    """Make two sums one."""
    first, *others = batch["part"]
    for other in others:
        first.add(other)
    return {"part": _objects([first])}


def _split(batch: dict[str, Any]) -> tuple[Any, Any, dict[int, Unreadable]]:
    """Return features, (n, V, width), and labels, (n,), of readable images, and the others."""
    images: list[ReadImage] = list(batch["image"])
    places = [int(place) for place in batch["place"]]
    readable = np.array([not image.reason for image in images], dtype=bool)
    features = np.array([image.rows for image in images if not image.reason])
    unreadable = {
        place: Unreadable(image.path, image.reason)
        for place, image in zip(places, images, strict=True)
        if image.reason
    }
    return features, np.array(np.asarray(batch["label"])[readable].tolist()), unreadable


def _objects(values: list[Any]) -> Any:
    """Return a column of Python objects."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _hush() -> None:
    """Keep Ray Data from showing bars and announcements of its own; failures are raised."""
    from ray.data import DataContext

    context = DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
