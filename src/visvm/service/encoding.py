"""One encoder for all requests: waiting images are encoded together, questions before learning."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from visvm.encoders.encoder import Encoder, FinalFeatures, LayerFeatures, Pixels
from visvm.encoders.pipeline import BATCH_SIZE

_PATIENCE = 4  # batches to predict that may go before a waiting batch to learn

T = TypeVar("T")
_Waiting = tuple[Pixels, Future[Any]]


class SharedEncoder(Generic[T]):
    """An encoder that runs another one in a thread of its own.

    ``encode`` waits behind ``submit``, but not for ever: learning goes on under any load.

    Parameters
    ----------
    encoder : Encoder
    after : callable
        Turns the layer features of a batch of submitted images into their results.
    """

    def __init__(self, encoder: Encoder, after: Callable[[LayerFeatures], Sequence[T]]) -> None:
        self.name, self.digest = encoder.name, encoder.digest
        self.layer_dims, self.preprocessing = encoder.layer_dims, encoder.preprocessing
        self._encoder = encoder
        self._after = after
        self._urgent: deque[_Waiting] = deque()  # single images
        self._patient: deque[_Waiting] = deque()  # batches
        self._urgent_in_a_row = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="visvm-encode", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether images are still encoded."""
        return self._thread.is_alive() and not self._closed

    def submit(self, pixels: Pixels) -> Future[T]:
        """Encode one image, (3, size, size), soon; the future holds what `after` makes of it."""
        return self._put(self._urgent, pixels)

    def encode(self, pixels: Pixels) -> LayerFeatures:
        """Return layer features of images, (n, 3, size, size) → (n, sum of layer_dims)."""
        encoded: LayerFeatures = self._put(self._patient, pixels).result()
        return encoded

    def project(self, final: FinalFeatures) -> NDArray[np.float32]:
        """Return what the encoder itself puts out, as ``Encoder`` does."""
        return self._encoder.project(final)

    def close(self) -> None:
        """Stop, and cancel what still waits."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _put(self, queue: deque[_Waiting], pixels: Pixels) -> Future[Any]:
        future: Future[Any] = Future()
        with self._changed:
            if self._closed:
                future.cancel()
            else:
                queue.append((pixels, future))
                self._changed.notify()
        return future

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            single, waiting = batch
            live = [each for each in waiting if each[1].set_running_or_notify_cancel()]
            if live:
                self._encode(live, single)

    def _next(self) -> tuple[bool, list[_Waiting]] | None:
        """Return whether single images are next, and which; None at the end."""
        with self._changed:
            while not (self._urgent or self._patient or self._closed):
                self._changed.wait()
            if self._closed:
                for _, future in (*self._urgent, *self._patient):
                    future.cancel()
                return None
            if self._patient and (not self._urgent or self._urgent_in_a_row >= _PATIENCE):
                self._urgent_in_a_row = 0
                return False, [self._patient.popleft()]
            self._urgent_in_a_row += 1
            return True, [self._urgent.popleft() for _ in range(min(BATCH_SIZE, len(self._urgent)))]

    def _encode(self, live: list[_Waiting], single: bool) -> None:
        try:
            pixels = np.stack([each for each, _ in live]) if single else live[0][0]
            encoded = self._encoder.encode(pixels)
            results = self._after(encoded) if single else [encoded]
        except Exception as error:  # noqa: BLE001 - the outermost frame of this thread
            for _, future in live:
                future.set_exception(error)
            return
        for (_, future), result in zip(live, results, strict=True):
            future.set_result(result)
