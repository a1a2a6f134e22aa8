"""One encoder for all: batches, turns, and what happens when it fails or is closed."""

import threading
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest

from visvm.encoders.pipeline import BATCH_SIZE
from visvm.service.encoding import SharedEncoder


class Counting:
    """Gives every image its own mean; waits to be let go; notes the sizes of its batches."""

    name, digest, layer_dims, preprocessing = "counting", "0", (1,), None

    def __init__(self):
        self.sizes, self.gate, self.begun = [], threading.Event(), threading.Event()
        self.fails = False

    def encode(self, pixels):
        self.begun.set()
        assert self.gate.wait(10)
        self.sizes.append(len(pixels))
        if self.fails:
            raise RuntimeError("broken")
        return pixels.mean(axis=(1, 2, 3))[:, None]


@pytest.fixture
def pair():
    inner = Counting()
    shared = SharedEncoder(inner, lambda features: [float(each[0]) for each in features])
    yield inner, shared
    inner.gate.set()
    shared.close()


def image(value):
    return np.full((3, 2, 2), value, dtype=np.float32)


def test_waiting_images_are_encoded_together_and_each_sender_gets_its_own(pair):
    inner, shared = pair
    first = shared.submit(image(-1))
    assert inner.begun.wait(10)
    futures = [shared.submit(image(value)) for value in range(20)]
    inner.gate.set()
    assert [future.result(10) for future in futures] == list(range(20))
    assert first.result(10) == -1
    assert inner.sizes == [1, BATCH_SIZE, BATCH_SIZE, 20 - 2 * BATCH_SIZE]


def test_questions_go_before_learning_but_not_for_ever(pair):
    inner, shared = pair
    first, order = shared.submit(image(0)), []
    assert inner.begun.wait(10)
    batch = np.stack([image(7)] * 3)
    learner = threading.Thread(
        target=lambda: order.append(("learn", len(shared.encode(batch)), len(inner.sizes)))
    )
    learner.start()
    while not shared._patient:
        time.sleep(0.001)
    futures = [shared.submit(image(1)) for _ in range(10 * BATCH_SIZE)]
    inner.gate.set()
    for future in (first, *futures):
        future.result(10)
    learner.join(10)
    assert order[0][1] == 3
    assert inner.sizes.index(3) == 4  # after four batches of questions, not after all eleven
    assert len(inner.sizes) == 12


def test_a_failure_reaches_those_who_wait_and_the_next_are_served(pair):
    inner, shared = pair
    inner.fails = True
    inner.gate.set()
    with pytest.raises(RuntimeError, match="broken"):
        shared.submit(image(1)).result(10)
    with pytest.raises(RuntimeError, match="broken"):
        shared.encode(image(1)[None])
    inner.fails = False
    assert shared.submit(image(5)).result(10) == 5
    assert shared.alive


def test_what_nobody_waits_for_any_more_is_not_encoded(pair):
    inner, shared = pair
    first = shared.submit(image(0))
    assert inner.begun.wait(10)
    unwanted, wanted = shared.submit(image(1)), shared.submit(image(2))
    assert unwanted.cancel()
    inner.gate.set()
    assert (first.result(10), wanted.result(10)) == (0, 2)
    assert inner.sizes == [1, 1]


def test_closing_cancels_what_waits(pair):
    inner, shared = pair
    first = shared.submit(image(0))
    assert inner.begun.wait(10)
    late = shared.submit(image(1))
    closing = threading.Thread(target=shared.close)
    closing.start()
    inner.gate.set()
    closing.join(10)
    assert first.result(10) == 0
    with pytest.raises(CancelledError):
        late.result(10)
    with pytest.raises(CancelledError):
        shared.submit(image(2)).result(10)
    assert not shared.alive
