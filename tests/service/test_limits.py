"""What is too much: large requests, many at once, a full disk; and what is cancelled."""

import threading

import pytest

from tests import tiny
from tests.service.conftest import photos, problem, serving
from visvm import ImageClassifier
from visvm.service import forms
from visvm.service.limits import Limits

pytestmark = pytest.mark.slow


def test_a_thousand_photos_need_one_file(taught, place, tmp_path):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    content = photos(place / "test")[0][0] + b"\0" * 10_000
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        assert (
            taught.end(taught.upload("/api/learn", [content] * 1000, ["many"]))["state"] == "done"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert taught.classes()["many"] == 1000


def test_a_request_within_no_limit_is_refused(taught, place, encoder, tmp_path):
    content = photos(place / "test")[0][0]
    limits = Limits(upload_bytes=20_000, files=3, waiting_images=2, pixels=tiny.SIDE**2 // 2)
    with serving(tmp_path / "m.visvm", encoder, limits=limits) as client:
        large = client.upload("/api/learn", [b"x" * 30_000], ["a"])
        problem(large, 413, "body-too-large", "20,000 bytes")
        many = client.upload("/api/learn", [content] * 4, ["a"])
        problem(many, 413, "images-too-many", "3 images")
        asked = client.upload("/api/predict", [content] * 3)
        problem(asked, 413, "images-too-many", "3 images", "at most 2")
        for address in ("/api/predict", "/api/learn"):
            wide = client.upload(address, [content], ["a"] if address == "/api/learn" else [])
            problem(wide, 422, "images-unreadable", "megapixels")


def test_a_body_of_unknown_length_is_counted(taught, place, encoder, tmp_path):
    limits = Limits(upload_bytes=20_000)
    with serving(tmp_path / "m.visvm", encoder, limits=limits) as client:
        head = b'--x\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n'
        body = (part for part in [head, *[b"y" * 1000] * 40, b"\r\n--x--\r\n"])
        answer = client.post(
            "/api/predict",
            content=body,
            headers={"content-type": "multipart/form-data; boundary=x"},
        )
        problem(answer, 413, "body-too-large", "20,000 bytes")


class Slow:
    """An encoder that waits until it is let go."""

    def __init__(self, encoder):
        self.inner, self.gate = encoder, threading.Event()
        self.name, self.digest = encoder.name, encoder.digest
        self.layer_dims, self.preprocessing = encoder.layer_dims, encoder.preprocessing
        self.begun = threading.Event()

    def encode(self, pixels):
        self.begun.set()
        assert self.gate.wait(30)
        return self.inner.encode(pixels)


@pytest.fixture
def slow(taught, encoder, tmp_path):
    """A service whose encoder waits to be let go, with a model that knows three classes."""
    held = Slow(encoder)
    limits = Limits(waiting_jobs=2, waiting_images=4, predict_seconds=20)
    model = ImageClassifier.load(tmp_path / "m.visvm", encoder=held, cache=False)
    with serving(tmp_path / "m.visvm", held, limits=limits, classifier=model) as client:
        client.gate, client.begun = held.gate, held.begun
        yield client
        held.gate.set()


@pytest.mark.parametrize("first", ["evaluate", "check", "suggest"])
def test_questions_of_all_kinds_together_leave_room_for_changes(slow, place, first):
    contents = photos(place / "test")[0][:2]
    labels = {"evaluate": ["red"], "check": ["red"], "suggest": []}
    jobs = [slow.upload("/api/learn", contents, ["y"])]
    assert slow.begun.wait(10)
    jobs += [slow.upload(f"/api/{first}", contents, labels[first])]
    for kind, given in labels.items():
        refused = slow.upload(f"/api/{kind}", contents, given)
        problem(refused, 503, "jobs-too-many", "1 questions")
    jobs += [slow.upload("/api/learn", contents, ["y"])]
    slow.gate.set()
    assert [slow.end(job)["state"] for job in jobs] == ["done"] * 3


def test_a_full_disk_is_reported(taught, place, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(forms.Spool, "write", full)
    answer = taught.upload("/api/learn", photos(place / "yellow")[0], ["y"])
    problem(answer, 507, "upload-unstored", "No space left")


def test_too_many_changes_may_come_back_later(slow, place):
    jobs = [slow.upload("/api/learn", photos(place / "yellow")[0], ["y"])]
    assert slow.begun.wait(10)
    jobs += [slow.upload("/api/learn", photos(place / "yellow")[0], ["y"]) for _ in range(2)]
    assert [job.json()["ahead"] for job in jobs[1:]] == [1, 2]
    refused = slow.upload("/api/learn", photos(place / "yellow")[0], ["y"])
    problem(refused, 503, "jobs-too-many", "2 changes")
    assert int(refused.headers["retry-after"]) > 0
    slow.gate.set()
    assert [slow.end(job)["state"] for job in jobs] == ["done"] * 3
    assert slow.classes()["y"] == 15


def test_too_many_questions_may_come_back_later(slow, place):
    contents = photos(place / "test")[0]
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(slow.upload("/api/predict", contents[:3]))
    )
    thread.start()
    assert slow.begun.wait(10)
    refused = slow.upload("/api/predict", contents[:2])
    problem(refused, 503, "questions-too-many", "4 images")
    assert int(refused.headers["retry-after"]) > 0
    slow.gate.set()
    thread.join()
    assert answers[0].status_code == 200
    assert slow.upload("/api/predict", contents[:2]).status_code == 200


def test_a_change_is_cancelled_whether_it_waits_or_runs(slow, place, tmp_path):
    before = (tmp_path / "m.visvm").read_bytes()
    running, waiting = (
        slow.upload("/api/learn", photos(place / "yellow")[0], ["y"]) for _ in range(2)
    )
    assert slow.begun.wait(10)
    assert slow.post(f"/api/jobs/{waiting.json()['id']}/cancel").json()["state"] == "cancelled"
    assert slow.post(f"/api/jobs/{running.json()['id']}/cancel").json()["state"] == "running"
    slow.gate.set()
    assert slow.end(running)["state"] == "cancelled"
    assert (tmp_path / "m.visvm").read_bytes() == before
    assert "y" not in slow.classes()
    assert (
        slow.end(slow.upload("/api/learn", photos(place / "yellow")[0], ["y"]))["state"] == "done"
    )
