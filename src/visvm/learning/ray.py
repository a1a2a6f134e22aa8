"""Learning on a Ray cluster: images → sums on many machines, added in a tree, solved by the driver.

One Ray Data pipeline does it, led by an actor. Tasks read and decode images; encoder actors turn
them into layer features; tasks lift some thousand of these and reduce them to sums where they are;
further tasks add the sums in pairs, level by level. Only sums come back, and of a base session its
choices, which one task makes from a sample of bounded size. Every step is a function of its input,
so that what Ray does again after a worker was lost counts once.
"""

import copy
import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from visvm import errors
from visvm.encoders.cache import opened_cache
from visvm.encoders.images import Transform
from visvm.encoders.loading import load_encoder
from visvm.encoders.pipeline import ReadImage, Unreadable, encode_images, read_image
from visvm.encoders.sources import Source
from visvm.errors import EncoderError, ImageError, InputError, VisvmError
from visvm.head.statistics import Statistics
from visvm.learning.labelled import Labelled
from visvm.learning.work import NONE_OF_THE_SAMPLE, Learned, Work
from visvm.progress import Progress

if TYPE_CHECKING:
    import ray
    from ray.data import Dataset

    from visvm.head.estimators import VisClassifier

_READ_TOGETHER = 64  # images a reading task decodes at a time
_LEAST_TOGETHER, _MOST_TOGETHER = 1024, 16384  # images whose sums are made at once
_LOOK_SECONDS = 0.5
_ANSWER_SECONDS = 10.0


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

    Every machine of it needs visvm, the encoder (a name of the catalogue, or a file at the same
    place) and the images (a shared folder, or a URI).

    Parameters
    ----------
    address : str, default="local"
        Of a cluster, such as ``"head:6379"``, or ``"auto"`` for the one that this machine belongs
        to; ``"local"`` begins one on this machine. Where Ray has been initialised already, that one
        is used.
    actors : int, optional
        How many encoders run at once, each on a GPU where the cluster has some, otherwise on a
        core; by default one for each GPU, or for every two cores.
    batch_size : int, default=8
        How many images an encoder takes at a time.
    images_per_sum : int, optional
        How many images are reduced to one partial sum; by default a quarter of an actor's share,
        from 1024 to 16384.
    """

    def __init__(
        self,
        address: str = "local",
        *,
        actors: int | None = None,
        batch_size: int = 8,
        images_per_sum: int | None = None,
    ) -> None:
        for name, value in (
            ("actors", actors),
            ("batch_size", batch_size),
            ("images_per_sum", images_per_sum),
        ):
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1; got {value}")
        self.address, self.actors, self.batch_size, self.images_per_sum = (
            address,
            actors,
            batch_size,
            images_per_sum,
        )

    def learn(self, head: "VisClassifier", work: Work, progress: Progress) -> Learned:
        """Add the images to the sums of a head, as ``Engine`` says."""
        if any(isinstance(source, bytes) for source in work.images.sources):
            raise InputError(
                "images to learn on Ray must be files or URIs; got contents: learn them without Ray"
            )
        if not work.sample:
            head._check_memory(len(work.images.sources), len(set(work.images.labels)))
        with _cluster(self.address, self.actors):
            settled, part = self._run(head, work, progress)
        if work.sample:
            head._adopt(settled)
        else:
            head.statistics_ = head.statistics_.copy()
        if part.statistics is not None:
            head.statistics_.merge(part.statistics)
        return Learned(part.unreadable)

    def _run(
        self, head: "VisClassifier", work: Work, progress: Progress
    ) -> "tuple[VisClassifier, _Part]":
        """The head with the base session's choices, and the sums of the session."""
        import ray
        import ray.exceptions

        plan, total = self._plan(work, ray.cluster_resources()), len(work.images.sources)
        # An actor of its own, so that ending it ends everything that it has begun.
        session = ray.remote(num_cpus=0, max_concurrency=2)(_Session).remote(plan)
        try:
            running = session.learn.remote(
                _without_sums(head) if hasattr(head, "statistics_") else head
            )
            while not ray.wait([running], timeout=_LOOK_SECONDS)[0]:
                stage, done = ray.get(session.state.remote())
                progress(stage, *((done, 1) if stage != "encoding" else (min(done, total), total)))
            settled, part = ray.get(running)
        except ray.exceptions.RayError as error:
            raise _sentence(error) from error
        finally:
            ray.kill(session)
        progress("encoding", total, total)
        return settled, part

    def _plan(self, work: Work, resources: dict[str, float]) -> "_Plan":
        """How a session is shared out on a cluster of these resources."""
        gpus, cores = int(resources.get("GPU", 0)), resources.get("CPU", 0.0)
        # for an encoder; reading and adding need as much beside all of them
        core = 1.0 if cores >= 2 else 0.4 * cores
        room = max(0, int(cores / core) - 1) if core else 0
        most = min(room, gpus) if gpus else room
        actors = self.actors or min(most, gpus or max(1, int(cores) // 2))
        if not 1 <= actors <= most:
            raise InputError(
                f"every encoder must have a {'GPU' if gpus else 'core'}, and one core be left for the rest; this cluster has "
                f"{gpus} GPUs and {cores:g} cores, {actors} encoders were asked for: take at most {most}"
            )
        n, encoder = len(work.images.sources), work.encoder
        return _Plan(
            images=work.images,
            sample=work.sample,
            rest=tuple(work.rest),
            skip_unreadable=work.skip_unreadable,
            encoder_name=encoder.name,
            reading=_Reading(
                encoder.digest, encoder.layer_dims, work.transform, _portable(work.cache)
            ),
            actors=actors,
            core=core,
            gpu=gpus > 0,
            batch_size=self.batch_size,
            together=self.images_per_sum
            or min(max(n // (4 * actors), _LEAST_TOGETHER), _MOST_TOGETHER),
        )


# What runs on the cluster


@dataclass(frozen=True)
class _Plan:
    """A session, as it is sent to the cluster."""

    images: Labelled
    sample: tuple[int, ...]
    rest: tuple[int, ...]
    skip_unreadable: bool
    encoder_name: str
    reading: _Reading
    actors: int
    core: float
    gpu: bool
    batch_size: int
    together: int


class _Session:
    """The actor that leads a session: it gives Ray Data its pipeline, and tells how far it is."""

    def __init__(self, plan: _Plan) -> None:
        self._plan, self._stage, self._done = plan, "encoding", 0

    def state(self) -> tuple[str, int]:
        """What is being done, and how many images were encoded; those done twice count twice."""
        return self._stage, self._done

    def add(self, n: int) -> None:
        """Count images that were encoded."""
        self._done += n

    def learn(self, head: "VisClassifier") -> "tuple[VisClassifier, _Part]":
        """The head with the base session's choices, and the sums of the session."""
        plan = self._plan
        _hush()
        if not plan.sample:
            return head, self._sum(self._encoded(plan.rest), head)
        encoded = self._encoded(plan.sample).materialize()
        settled, unreadable = self._settle(encoded, head)
        if plan.rest:
            encoded = encoded.union(self._encoded(plan.rest))
        if settled is not None and (plan.skip_unreadable or not unreadable):
            return settled, self._sum(encoded, settled)
        if plan.skip_unreadable:
            raise ImageError(NONE_OF_THE_SAMPLE)
        return head, self._sum(encoded, None)

    def _encoded(self, places: tuple[int, ...]) -> "Dataset":
        """A data set of layer features, one row an image, made when it is asked for."""
        import ray
        import ray.data

        plan, images = self._plan, self._plan.images
        rows = [
            {"place": place, "label": images.labels[place], "source": images.sources[place]}
            for place in places
        ]
        blocks = min(len(rows), max(len(rows) // _READ_TOGETHER, 2 * plan.actors))
        read = ray.data.from_items(rows, override_num_blocks=blocks).map_batches(
            _read, fn_kwargs={"reading": plan.reading}, batch_size=None, num_cpus=plan.core / 2
        )
        me = ray.get_runtime_context().current_actor
        return read.map_batches(
            _Encode,
            fn_constructor_kwargs={
                "name": plan.encoder_name,
                "reading": plan.reading,
                "session": me,
            },
            batch_size=plan.batch_size,
            concurrency=plan.actors,
            num_cpus=plan.core,
            num_gpus=1 if plan.gpu else None,
        )

    def _settle(
        self, encoded: "Dataset", head: "VisClassifier"
    ) -> "tuple[VisClassifier | None, dict[int, Unreadable]]":
        """The base session's choices, made in one task from the sample that was encoded, and what cannot be read of it."""
        self._stage, done, self._done = "choosing λ and blocks", self._done, 0
        choices = encoded.repartition(1).map_batches(
            _settle, fn_kwargs={"head": head}, batch_size=None
        )
        (row,) = choices.take_all()
        self._stage, self._done = "encoding", done
        settled: tuple[VisClassifier | None, dict[int, Unreadable]] = row["settled"]
        return settled

    def _sum(self, encoded: "Dataset", head: "VisClassifier | None") -> _Part:
        """The sums of all images: partial ones where features are, added in pairs, level by level."""
        import ray

        plan, shared = self._plan, ray.put(head)
        parts = encoded.map_batches(
            _sum, fn_kwargs={"head": [shared]}, batch_size=plan.together, num_cpus=plan.core
        )
        # what does not fill a sum can make another
        left, level = 2 * -(-len(plan.images.sources) // plan.together), 0
        while left > 1:
            # Steps that ask for the same resources Ray Data would make one, which sees one sum at a
            # time.
            parts = parts.map_batches(_add, batch_size=2, num_cpus=plan.core / (1 + level % 2) / 2)
            left, level = -(-left // 2), level + 1
        total = _Part(None, {})
        for row in parts.take_all():
            total.add(row["part"])
        return total


def _read(batch: dict[str, Any], reading: _Reading) -> dict[str, Any]:
    """Read and decode images."""
    with opened_cache(reading.cache) as cache:
        sources: list[Source] = list(batch["source"])
        images = [
            read_image(each, reading.weights_digest, reading.layer_dims, reading.transform, cache)
            for each in sources
        ]
    return {"place": batch["place"], "label": batch["label"], "image": _objects(images)}


class _Encode:
    """An actor with the encoder: decoded images → layer features."""

    def __init__(self, name: str, reading: _Reading, session: "ray.actor.ActorHandle") -> None:
        self._encoder, self._reading, self._session = load_encoder(name), reading, session
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
        self._session.add.remote(len(images))
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
        place: Unreadable(image.path, image.reason)
        for place, image in zip(places, images, strict=True)
        if image.features is None
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
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [
        type(error).__name__
    ]
    # of an actor that could not begin, all there is
    if told := re.fullmatch(r"visvm\.errors\.(\w+): (.*)", lines[-1]):
        kind: type[VisvmError] = getattr(errors, told[1])
        return kind(told[2])
    return VisvmError(
        f"learning on Ray must end well; it did not, and nothing was changed: learn again, without Ray if need be ({lines[-1]})"
    )


@contextmanager
def _cluster(address: str, actors: int | None) -> Iterator[None]:
    """Be connected to Ray while the block lasts."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise InputError(
            f"learning on Ray needs {error.name}, which is not installed: pip install 'visvm[ray]'"
        ) from error
    if ray.is_initialized():
        yield
        return
    cores = None
    if address == "local":
        real = os.cpu_count() or 1
        if (actors or 1) > real:
            raise InputError(
                f"every encoder must have a core; this machine has {real}, {actors} were asked for: take at most {real}"
            )
        # logical ones, of which reading and adding need some beside the encoders
        cores = max(2 * real, 2 * (actors or 0) + 2)
    else:
        _require_answer(address)
    try:
        ray.init(
            address,
            num_cpus=cores,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"--ray must be 'local', 'auto' or the address of a Ray cluster; {address} is none that lets us in ({reason}): "
            "correct it, or, if the cluster wants a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as there"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _require_answer(address: str) -> None:
    """Refuse an address where nothing listens: Ray itself would go on trying for minutes."""
    if (told := re.fullmatch(r"(?:\w+://)?\[?(.+?)\]?:(\d+)", address)) is None:
        return  # 'auto', or what Ray refuses at once
    try:
        socket.create_connection((told[1], int(told[2])), _ANSWER_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise InputError(
            f"--ray must be 'local', 'auto' or the address of a Ray cluster; nothing answers at {address} "
            f"({getattr(error, 'strerror', None) or error}): correct it, or begin one there with 'ray start --head'"
        ) from error


def _hush() -> None:
    """Have Ray Data show no bars and announcements of its own in this process; what goes wrong is raised."""
    from ray.data import DataContext

    context = DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
