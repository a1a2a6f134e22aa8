"""Learning on a Ray cluster: images → sums on many machines, solved by the caller."""

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from visvm.encoders.sources import in_memory
from visvm.errors import InputError, VisvmError
from visvm.head.checks import is_count, require
from visvm.head.head import Head
from visvm.head.settle import Settled
from visvm.learning.ray_tasks import Leader, Part, Plan, Reading
from visvm.learning.work import Learned, Work
from visvm.progress import Progress

_LEAST_TOGETHER, _MOST_TOGETHER = 1024, 16384  # images whose sums are made at once
_LOOK_SECONDS = 0.5
_ANSWER_SECONDS = 10.0


class RayEngine:
    """Learns on a Ray cluster.

    Every machine of it needs visvm, the encoder (a name of the catalogue, or a file at the same
    place) and the images (a shared folder, or a URI).

    Parameters
    ----------
    address : str, default="local"
        Of a cluster, such as ``"head:6379"``, or ``"auto"`` for the one that this machine belongs
        to; ``"local"`` starts one on this machine. A Ray that is already initialised is used.
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
        self.address = address
        self.actors = actors
        self.batch_size = batch_size
        self.images_per_sum = images_per_sum
        for name in ("actors", "batch_size", "images_per_sum"):
            value = getattr(self, name)
            require(value is None or is_count(value), self, name, "a whole number of at least 1")

    def learn(self, work: Work, progress: Progress) -> Learned:
        """Learn a session, as ``Engine`` says."""
        if any(map(in_memory, work.images.sources)):
            raise InputError(
                "Ray cannot learn contents of images. Give files or URIs, or learn without Ray.",
                code="ray-contents",
            )
        if work.start is not None:
            n_rows = len(work.images.sources) * len(work.transforms)
            work.start.require_memory(n_rows, len(set(work.images.labels)))
        with _cluster(self.address, self.actors):
            settled, part = self._run(work, progress)
        if settled is None:
            return Learned(unreadable=part.unreadable)
        start = work.start or Head.blank(settled)
        sums = start.statistics.copy()
        if part.statistics is not None:
            sums.merge(part.statistics)
        return Learned(Head.of(start.settled, sums), part.unreadable)

    def _run(self, work: Work, progress: Progress) -> tuple[Settled | None, Part]:
        """Return the choices of the base session, and the sums of this one."""
        import ray
        import ray.exceptions

        plan, total = self._plan(work, ray.cluster_resources()), len(work.images.sources)
        # An actor of its own, so that ending it ends everything that it has begun.
        leader = ray.remote(num_cpus=0, max_concurrency=2)(Leader).remote(plan)
        try:
            running = leader.learn.remote(None if work.start is None else work.start.settled)
            while not ray.wait([running], timeout=_LOOK_SECONDS)[0]:
                stage, done = ray.get(leader.state.remote())
                progress(stage, *((done, 1) if stage != "encoding" else (min(done, total), total)))
            settled, part = ray.get(running)
        except ray.exceptions.RayError as error:
            raise _sentence(error) from error
        finally:
            ray.kill(leader)
        progress("encoding", total, total)
        return settled, part

    def _plan(self, work: Work, resources: dict[str, float]) -> Plan:
        """Share a session out on a cluster of these resources."""
        gpus, cores = int(resources.get("GPU", 0)), resources.get("CPU", 0.0)
        # for an encoder; reading and adding need as much beside all of them
        core = 1.0 if cores >= 2 else 0.4 * cores
        room = max(0, int(cores / core) - 1) if core else 0
        most = min(room, gpus) if gpus else room
        actors = self.actors or min(most, gpus or max(1, int(cores) // 2))
        if not 1 <= actors <= most:
            raise InputError(
                f"This cluster has {gpus} GPUs and {cores:g} cores, too few for {actors} encoders: "
                f"each needs a {'GPU' if gpus else 'core'}, and one core is left for the rest. "
                f"Use at most {most}.",
                code="ray-actors",
            )
        n, encoder = len(work.images.sources), work.encoder
        share = min(max(n // (4 * actors), _LEAST_TOGETHER), _MOST_TOGETHER)
        return Plan(
            images=work.images,
            sample=work.sample,
            rest=tuple(work.rest),
            skip_unreadable=work.skip_unreadable,
            options=work.options,
            encoder_name=encoder.name,
            reading=Reading(
                encoder.digest, encoder.layer_dims, work.transforms, _portable(work.cache)
            ),
            actors=actors,
            core=core,
            gpu=gpus > 0,
            batch_size=self.batch_size,
            together=self.images_per_sum or share,
        )


def _portable(cache: Any) -> bool | Path:
    """Return where features are kept, in a form that can be sent to another process."""
    return cache if isinstance(cache, (bool, Path)) else cache.path


def _sentence(error: BaseException) -> VisvmError:
    """Return one line for what went wrong on the cluster."""
    # Ray raises a type of its own, which is an error of ours as well, but not the one with its code
    cause = getattr(error, "cause", None)
    if isinstance(cause, VisvmError):
        return cause
    # what Ray itself has to say comes after the error
    named = re.findall(r"^(?!ray\.)[\w.]+(?:Error|Exception): .*$", str(error), re.MULTILINE)
    lines = named or [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[-1] if lines else type(error).__name__
    return VisvmError(
        f"Learning on Ray failed ({said}); the model is unchanged. Try again, or without Ray.",
        code="ray-failed",
    )


@contextmanager
def _cluster(address: str, actors: int | None) -> Iterator[None]:
    """Be connected to Ray while the block lasts."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise InputError(
            f"Learning on Ray needs {error.name}, which is not installed. Install it with: "
            "pip install 'visvm[ray]'",
            code="package-missing",
        ) from error
    if ray.is_initialized():
        yield
        return
    cores = None
    if address == "local":
        cores = _local_cores(actors)
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
        raise InputError(
            f"The Ray cluster {address!r} refused the connection ({' '.join(str(error).split())}). "
            "Give --ray local, auto or an address; if the cluster wants a token, set "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as there.",
            code="ray-refused",
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _local_cores(actors: int | None) -> int:
    """Return how many logical cores a cluster of this machine is to have."""
    real = os.cpu_count() or 1
    if (actors or 1) > real:
        raise InputError(
            f"This machine has {real} cores, too few for {actors} encoders. Use at most {real}.",
            code="ray-actors",
        )
    # reading and adding need some beside the encoders
    return max(2 * real, 2 * (actors or 0) + 2)


def _require_answer(address: str) -> None:
    """Refuse an address where nothing listens: Ray would go on trying for minutes."""
    if (parts := re.fullmatch(r"(?:\w+://)?\[?(.+?)\]?:(\d+)", address)) is None:
        return  # 'auto', or what Ray refuses at once
    try:
        socket.create_connection((parts[1], int(parts[2])), _ANSWER_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"Nothing answers at {address} ({reason}). Give --ray local, auto or the address of a "
            "Ray cluster, or start one there with 'ray start --head'.",
            code="ray-unreachable",
        ) from error
