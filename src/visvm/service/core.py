"""What the routes share: predictions in batches, changes in turn, and metrics."""

import asyncio
import os
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.concurrency import run_in_threadpool

from visvm.encoders.encoder import LayerFeatures, Pixels
from visvm.encoders.occlusion import PASSES, heat_picture, occluded
from visvm.encoders.transform import DEFAULT_TRANSFORM, Transform
from visvm.errors import InputError, ModelFileError
from visvm.head.checks import suggestion
from visvm.image_classifier import ImageClassifier
from visvm.model.advice import explained, require_class
from visvm.model.changes import answered, before_last
from visvm.model.labels import Label
from visvm.model.results import Prediction
from visvm.model.state import AnsweredRequest, Looks, Model
from visvm.progress import Progress
from visvm.service.decoding import Decoders
from visvm.service.encoding import SharedEncoder
from visvm.service.forms import PostedForm, Upload
from visvm.service.jobs import Asked, Job, JobKind, JobQueue
from visvm.service.limits import Limits
from visvm.service.problems import MODEL_EMPTY, BusyError, RefusedError, stopping
from visvm.service.store import ModelStore, Signature, Snapshot
from visvm.service.uploads import (
    check_photos,
    decode_all,
    keep_squares,
    read_label,
    read_labels,
    require_images,
)

_DECODERS = 2

Change = Callable[[ImageClassifier, Progress], dict[str, Any]]
"""Changes the classifier it is given; returns the result of its job."""


class Scored(NamedTuple):
    """Layer features of an image, (width,), and how it looks by a state of the model."""

    features: LayerFeatures
    scores: NDArray[np.float64]
    strangeness: float
    snapshot: Snapshot


class Service:
    """What the routes share; path, classifier and signature as in ``ModelStore``."""

    def __init__(
        self, path: Path, classifier: ImageClassifier, signature: Signature, limits: Limits
    ) -> None:
        self.limits = limits
        import visvm.learning.session  # noqa: F401 - takes long: not while a session waits for it

        self.encoder = SharedEncoder(classifier.load_encoder(), self._score)
        if classifier.transform == "auto":  # photos are decoded before a first session could choose
            classifier.transform = DEFAULT_TRANSFORM
        self.transform = Transform(classifier.transform, self.encoder.preprocessing)
        self.store = ModelStore(path, classifier.with_encoder(self.encoder), signature)
        self.jobs = JobQueue(limits.waiting_jobs, self.store.look)
        self.decoders = Decoders(_DECODERS, self.transform, limits, "visvm-decode")
        # apart, so that a large upload does not hold up questions
        self.checker = Decoders(1, self.transform, limits, "visvm-check")
        self.waiting_images = 0
        self.boot = secrets.token_hex(4)
        self.metrics = Metrics(self)

    @property
    def ready(self) -> bool:
        """Whether requests will be answered."""
        return self.encoder.alive and self.jobs.alive

    def close(self) -> None:
        """Cancel what waits, and stop all threads and processes."""
        for pool in (self.decoders, self.checker):
            pool.close()
        self.jobs.close()
        self.encoder.close()

    def kill_decoders(self) -> None:
        """Kill the processes that decode, without waiting for anything."""
        for pool in (self.decoders, self.checker):
            pool.kill()

    def _score(self, features: LayerFeatures) -> list[Scored]:
        snapshot = self.store.current
        looks = _known(snapshot).looks(features)
        return [Scored(*each, snapshot) for each in zip(features, *looks, strict=True)]

    async def predict(
        self, form: PostedForm, top: int, unknown: float, sure: float
    ) -> tuple[Snapshot, list[Prediction]]:
        """Return predictions for the images of a form, all by one state of the model."""
        uploads, limit = require_images(form, "images"), self.limits.waiting_images
        if len(uploads) > limit:
            detail = f"{len(uploads)} images are too many for one prediction. Send at most {limit}."
            raise RefusedError(413, detail, code="images-too-many")
        scored = await self._looked(uploads, lambda pixels: pixels, len(uploads))
        self.metrics.predicted.inc(len(uploads))
        snapshot, names = scored[-1].snapshot, [str(upload) for upload in uploads]
        model = _known(snapshot)
        if all(each.snapshot is snapshot for each in scored):
            scores = np.stack([each.scores for each in scored])
            looks = Looks(scores, np.array([each.strangeness for each in scored]))
        else:  # the model has changed between two batches
            features = np.stack([each.features for each in scored])
            looks = await run_in_threadpool(model.looks, features)
        return snapshot, model.answers(looks, names, top=top, unknown=unknown, sure=sure)

    async def explain(self, form: PostedForm, label: Label | None) -> bytes:
        """Return a picture of what an answer rests on, as a PNG file."""
        uploads = require_images(form, "images")
        if len(uploads) > 1:
            detail = f"{len(uploads)} images are too many to explain. Send one."
            raise RefusedError(413, detail, code="images-too-many")
        require_class(_known(self.store.current), label)
        shown: list[Pixels] = []

        def hidden(pixels: list[Pixels]) -> list[Pixels]:
            shown.extend(each for batch in occluded(pixels[0], PASSES) for each in batch)
            return shown

        scored = await self._looked(uploads, hidden, PASSES)
        model, features = _known(scored[-1].snapshot), np.stack([each.features for each in scored])
        _, _, heat = await run_in_threadpool(explained, model, features, label)
        return heat_picture(shown[0], self.encoder.preprocessing, heat)

    async def _looked(
        self, uploads: list[Upload], shown: Callable[[list[Pixels]], list[Pixels]], n: int
    ) -> list[Scored]:
        """Return features and scores of the `n` pictures that are shown of the images."""
        _known(self.store.current)
        limit = self.limits.waiting_images
        if self.waiting_images + n > limit:
            detail = f"More than {limit} images would wait. Try again in a few seconds."
            raise BusyError(detail, 5, code="questions-too-many")
        self.waiting_images += n
        try:
            async with asyncio.timeout(self.limits.predict_seconds):
                pixels = shown(await decode_all(uploads, self.decoders))
                asked = (asyncio.wrap_future(self.encoder.submit(each)) for each in pixels)
                return await asyncio.gather(*asked)
        except TimeoutError as error:
            slow = f"The prediction took more than {self.limits.predict_seconds:g} s."
            detail = f"{slow} Try again when less is going on."
            raise BusyError(detail, 10, code="prediction-timeout") from error
        except asyncio.CancelledError as error:
            if self.encoder.alive:
                raise
            raise stopping() from error
        finally:
            self.waiting_images -= n

    async def check(self, form: PostedForm) -> None:
        """Give the images of a form their labels, and see that all of them can be decoded."""
        numbers = self.store.current.numbers
        for images, labels in (("images", "labels"), ("test_images", "test_labels")):
            if labels not in form.texts:
                require_images(form, "images")
            elif images == "images" or form.images.get(images) or form.texts.get(labels):
                form.labels[images] = read_labels(form, images, labels, numbers, self.limits)
        # corners are cut from the photo itself
        if self.store.views == "crops":
            await check_photos(form, self.checker)
        else:
            await keep_squares(form, self.transform, self.checker)

    def read_label(self, text: str, where: str) -> Label:
        """Return a label as the model has it."""
        return read_label(text, where, self.store.current.numbers, self.limits)

    def require_class(self, label: Label) -> None:
        """Refuse the label of a class that is not known."""
        if label not in self.store.current.counts and not self.store.overtaken:
            known = np.array(list(self.store.current.counts))
            detail = f"There is no class {label!r}. {suggestion(label, known)}"
            raise InputError(detail, code="class-unknown")

    def require_no_class(self, label: Label) -> None:
        """Refuse the label of a class that is known."""
        if label in self.store.current.counts and not self.store.overtaken:
            detail = f"The class {label!r} exists already. Choose another name, or merge both."
            raise InputError(detail, code="class-exists")

    def take_back(self, classifier: ImageClassifier, revision: int | None) -> dict[str, Any]:
        """Give a classifier the model from before the last change; say what that was."""
        current, now = self.store.current, classifier.model_
        if revision is not None and revision != current.revision:
            detail = "The model has changed since. Look at its history, and undo that if you want."
            raise RefusedError(409, detail, code="undo-overtaken")
        if now is None:
            detail = "There is nothing to undo: nothing was learned yet. Teach the model first."
            raise RefusedError(409, detail, code="undo-none")
        before = before_last(self.store.path, now)
        mine, old = now.encoder, before.encoder
        if (mine.digest, mine.transform) != (old.digest, old.transform):
            detail = "The model before had another encoder or transform. Use 'visvm undo' instead."
            raise RefusedError(409, detail, code="undo-encoder")
        classifier.model_ = before
        return {"undone": current.undoable}

    def job(self, identifier: str) -> Job | None:
        """Return the job with this id, also one that a service before this one did under a key."""
        kept = (_as_job(each) for each in self.store.current.requests if each.job == identifier)
        return self.jobs.get(identifier) or next(kept, None)

    def answered(self, asked: Asked | None) -> Job | None:
        """Return the job that was asked for under the same key before, if there is one.

        Raises
        ------
        RefusedError
            Something else was asked for under that key.
        """
        if asked is None:
            return None
        job = self.jobs.under(asked.key)
        return self._remembered(asked) if job is None else _alike(job, asked)

    def _remembered(self, asked: Asked) -> Job | None:
        """Return the job under this key that the model remembers; raises as ``answered``."""
        kept = (_as_job(each) for each in self.store.current.requests if each.key == asked.key)
        return next((_alike(job, asked) for job in kept), None)

    def change(
        self, kind: JobKind, work: Change, held: ExitStack, asked: Asked | None = None
    ) -> Job:
        """Put a change of the model in the queue, unless it is there under the same key."""
        if (known := self.answered(asked)) is not None:
            held.close()
            return known

        def task(job: Job, progress: Progress) -> dict[str, Any]:
            def noted(classifier: ImageClassifier) -> dict[str, Any]:
                # another service may have made it by now, which is seen once the file is ours
                if asked is not None and (made := self._remembered(asked)) is not None:
                    return made.result or {}
                result = work(classifier, progress)
                if asked is not None and classifier.model_ is not None:
                    # written in one step with the change: after kill -9, both are there or neither
                    request = AnsweredRequest(asked.key, asked.body, kind, job.id, result)
                    classifier.model_ = answered(classifier.model_, request)
                return result

            try:
                return self.store.change(noted, progress, undo=kind != "undo")
            except ModelFileError as error:  # names the file, whose folder is our secret
                folder = f"{self.store.path.resolve().parent}{os.sep}"
                raise ModelFileError(str(error).replace(folder, ""), code=error.code) from error

        return self.jobs.submit(kind, task, held, asked)


def _alike(job: Job, asked: Asked) -> Job:
    """Return a job if it is what was asked for under its key."""
    if job.asked != asked:
        detail = "This Idempotency-Key came with another request before. Use a new one."
        raise RefusedError(422, detail, code="idempotency-key-reused")
    return job


def _as_job(request: AnsweredRequest) -> Job:
    """Return the job of a request that a model remembers."""
    asked, kind = Asked(request.key, request.body), cast("JobKind", request.kind)
    job = Job(kind, None, ExitStack(), asked, request.job, "done", result=request.result)
    job.stage, job.total = "writing the model", 1  # as it was at its end
    return job


def _known(snapshot: Snapshot) -> Model:
    """Return the model of a state that knows some class."""
    if snapshot.model is None or not snapshot.counts:
        detail = "The model knows no class yet. Teach it some first."
        raise RefusedError(409, detail, code=MODEL_EMPTY)
    return snapshot.model


class Metrics:
    """What Prometheus gets."""

    def __init__(self, service: Service) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "visvm_requests", "Requests answered.", ["method", "route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "visvm_request_seconds",
            "Time to answer.",
            ["route"],
            registry=registry,
            buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
        )
        self.predicted = Counter("visvm_predicted_images", "Images predicted.", registry=registry)
        store = service.store

        gauges: dict[str, tuple[str, Callable[[], float]]] = {
            "waiting_images": ("Images that wait for an answer.", lambda: service.waiting_images),
            "waiting_jobs": ("Changes that wait.", lambda: service.jobs.n_waiting),
            "classes": ("Classes known.", lambda: len(store.current.counts)),
            "learned_images": ("Images learned.", lambda: sum(store.current.counts.values())),
            "revision": ("Changes since the start.", lambda: store.current.revision),
            "model_bytes": ("Size of the model file.", lambda: store.current.n_bytes),
        }
        for name, (what, value) in gauges.items():
            Gauge(f"visvm_{name}", what, registry=registry).set_function(value)
