"""Images are decoded in processes that can be killed; an image that brings one down is refused."""

import io
import os
import signal
import threading
import time

import pytest
from PIL import Image

from tests.encoders.test_bounds import PROGRESSIVE, with_scans
from tests.refusals import refused
from tests.service.conftest import ask, photos, problem, serving
from visvm.encoders.encoder import Preprocessing
from visvm.encoders.images import decode
from visvm.encoders.transform import Transform
from visvm.errors import ImageError
from visvm.service.decoding import Decoders
from visvm.service.limits import Limits
from visvm.service.problems import BusyError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals and limits")

TRANSFORM = Transform("squash", Preprocessing(8, 8, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))


def saved(size, mode="RGB"):
    file = io.BytesIO()
    Image.new(mode, size, "red" if mode == "RGB" else 1).save(file, "PNG")
    return file.getvalue()


SMALL = saved((30, 20))


@pytest.fixture
def made(request):
    pools = []

    def make(n=1, **limits):
        pools.append(Decoders(n, TRANSFORM, Limits(**limits), "test"))
        return pools[-1]

    yield make
    for each in pools:
        each.close()


def processes(pool):
    return [each._process.pid for each in pool._all if each._process is not None]


def wait_for(what, seconds=20):
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return found


def test_pixels_are_those_of_this_process_and_one_by_one_they_need_no_second(made):
    pool = made(2)
    for _ in range(2):
        assert (pool.decode(SMALL) == decode(SMALL, TRANSFORM)).all()
    assert len(processes(pool)) == 1


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="needs /proc")
def test_no_decoder_knows_a_token(made, monkeypatch):
    monkeypatch.setenv("VISVM_TOKEN", "a-secret-word-of-ours")
    monkeypatch.setenv("VISVM_READ_TOKEN", "a-secret-word-to-read")
    pool = made()
    pool.decode(SMALL)
    (process,) = processes(pool)
    with open(f"/proc/{process}/environ", "rb") as file:
        assert b"a-secret-word" not in file.read()


def test_killing_does_not_wait_for_one_that_starts(made):
    pool = made()
    (decoder,) = pool._all
    with decoder._starting:  # as while a busy machine makes the process
        killer = threading.Thread(target=pool.kill, daemon=True)
        killer.start()
        killer.join(10)
        assert not killer.is_alive()
    with refused("service-stopping", BusyError):
        decoder.decode(SMALL)


def test_errors_keep_their_code(made):
    pool = made(pixels=500)
    for data, code in ((b"", "image-empty"), (SMALL, "image-too-large")):
        with refused(code, ImageError):
            pool.decode(data)
    assert pool.decode(saved((20, 20))).shape == (3, 8, 8)


def test_an_image_that_takes_too_long_is_refused_and_the_next_is_not(made):
    pool = made(decode_seconds=1.0)
    pool.decode(SMALL)
    (stuck,) = processes(pool)
    os.kill(stuck, signal.SIGSTOP)
    with refused("image-timeout", ImageError):
        pool.decode(SMALL)
    with pytest.raises(ProcessLookupError):
        os.kill(stuck, 0)
    pool.decode(SMALL)


def test_an_image_that_brings_its_process_down_is_refused_and_the_next_is_not(made):
    pool = made()
    pool.decode(SMALL)
    (stuck,) = processes(pool)
    os.kill(stuck, signal.SIGSTOP)
    threading.Timer(0.3, os.kill, (stuck, signal.SIGKILL)).start()
    with refused("image-crash", ImageError):
        pool.decode(SMALL)
    pool.decode(SMALL)


def test_a_process_that_was_killed_while_idle_is_replaced(made):
    pool = made()
    pool.decode(SMALL)
    os.kill(processes(pool)[0], signal.SIGKILL)
    wait_for(lambda: pool._all[0]._process.poll() is not None)
    pool.decode(SMALL)


def test_an_image_that_takes_too_much_memory_is_refused(made):
    pool = made(decode_bytes=400 << 20)
    pool.decode(SMALL)
    with refused("image-memory", ImageError):
        pool.decode(saved((9000, 9000)))
    pool.decode(SMALL)


def test_time_of_the_processor_is_limited_anew_for_every_image(made):
    resource = pytest.importorskip("resource")
    if not hasattr(resource, "prlimit"):
        pytest.skip("needs Linux")
    pool = made(decode_seconds=7)
    pool.decode(SMALL)
    soft, _ = resource.prlimit(processes(pool)[0], resource.RLIMIT_CPU)
    assert 7 <= soft <= 10


def test_closing_does_not_wait_for_what_is_decoded(made):
    pool, ended = made(), []
    pool.decode(SMALL)
    (stuck,) = processes(pool)
    os.kill(stuck, signal.SIGSTOP)

    def work():
        with pytest.raises(BusyError) as caught:
            pool.decode(SMALL)
        ended.append(caught.value.code)

    running, began = pool.threads.submit(work), time.monotonic()
    time.sleep(0.2)
    pool.close()
    running.result(5)
    assert (ended, time.monotonic() - began < 5) == (["service-stopping"], True)
    with pytest.raises(ProcessLookupError):
        os.kill(stuck, 0)


def test_a_process_that_cannot_be_started_is_said(made, monkeypatch):
    pool = made()
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with refused("decoder-unavailable", BusyError):
        pool.decode(SMALL)
    monkeypatch.setattr("sys.executable", "/bin/false")
    with refused("decoder-unavailable", BusyError):
        pool.decode(SMALL)


@pytest.mark.slow
def test_a_jpeg_of_thousands_of_scans_holds_nobody_up(taught, place):
    hostile, (good, *_) = with_scans(PROGRESSIVE, 3000), photos(place / "test")[0]
    began = time.monotonic()
    for address, labels in (("/api/predict", []), ("/api/learn", ["red", "red"])):
        answer = taught.upload(address, [good, hostile], labels)
        problem(answer, 422, "images-unreadable", "photo 2 (has 101 scans")
    assert ask(taught, [good])
    assert time.monotonic() - began < 10


@pytest.mark.slow
def test_of_several_photos_the_one_that_hangs_is_named(taught, place, encoder, tmp_path):
    contents = photos(place / "test")[0][:3]
    limits = Limits(decode_seconds=1.0)
    with serving(tmp_path / "m.visvm", encoder, limits=limits) as client:
        ask(client, contents)
        stuck = processes(client.service.decoders)[0]
        os.kill(stuck, signal.SIGSTOP)
        answer = client.upload("/api/predict", contents * 4)
        problem(answer, 422, "images-unreadable", "1 photo", "takes more than 1 s")
        assert len(ask(client, contents)) == 3
