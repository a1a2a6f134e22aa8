"""The model in memory and on disk: what is written, what other programs write, what goes wrong."""

import json
import threading
import time

import pytest
from filelock import FileLock

from tests.service.conftest import ask, photos
from visvm import ImageClassifier
from visvm.model import container as model_file
from visvm.service.core import Service
from visvm.service.limits import Limits
from visvm.service.store import signature_of

pytestmark = pytest.mark.slow


def test_questions_are_answered_by_the_old_model_until_the_new_one_is_on_disk(
    taught, place, tmp_path, monkeypatch
):
    written, go_on = threading.Event(), threading.Event()
    save = ImageClassifier.save

    def held(model, path, **options):
        written.set()
        assert go_on.wait(30)
        save(model, path, **options)

    monkeypatch.setattr(ImageClassifier, "save", held)
    job = taught.upload("/api/learn", *photos(place / "yellow"))
    assert written.wait(10)
    contents = [
        content for content, label in zip(*photos(place / "test"), strict=True) if label == "yellow"
    ]
    assert "yellow" not in {each["label"] for each in ask(taught, contents)}
    assert taught.get(f"/api/jobs/{job.json()['id']}").json()["state"] == "running"
    go_on.set()
    assert taught.end(job)["state"] == "done"
    assert {each["label"] for each in ask(taught, contents)} == {"yellow"}


def test_a_change_that_cannot_be_written_is_not_made(taught, place, tmp_path, monkeypatch):
    before = (tmp_path / "m.visvm").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(model_file, "_write_tensors", full)
        job = taught.end(taught.upload("/api/learn", *photos(place / "yellow")))
    assert job["state"] == "failed"
    assert "No space left" in job["problem"]["detail"]
    assert "yellow" not in taught.classes()
    assert (tmp_path / "m.visvm").read_bytes() == before
    taught.teach(place / "yellow")
    assert taught.classes()["yellow"] == 5


def test_what_another_program_has_changed_is_seen_and_kept(taught, place, tmp_path):
    other = ImageClassifier.load(tmp_path / "m.visvm", cache=False)
    other.learn(place / "yellow")
    other.save(tmp_path / "m.visvm")
    taught.end(taught.post("/api/classes/rename", json={"old": "red", "new": "crimson"}))
    assert taught.classes() == {"blue": 6, "crimson": 6, "green": 6, "yellow": 5}


def test_what_another_program_writes_while_the_file_is_read_is_not_lost(
    taught, place, tmp_path, monkeypatch
):
    path, load = tmp_path / "m.visvm", ImageClassifier.load
    other = load(path, cache=False)
    other.learn(place / "yellow")

    def overtaken(*arguments, **options):
        read = load(*arguments, **options)
        monkeypatch.setattr(ImageClassifier, "load", load)
        other.save(path)
        return read

    path.write_bytes(path.read_bytes())  # a change, though of nothing
    monkeypatch.setattr(ImageClassifier, "load", overtaken)
    taught.service.store.refresh()
    taught.end(taught.post("/api/classes/rename", json={"old": "red", "new": "crimson"}))
    assert taught.classes() == {"blue": 6, "crimson": 6, "green": 6, "yellow": 5}


def test_what_another_program_writes_before_the_start_is_not_lost(taught, place, encoder, tmp_path):
    path = tmp_path / "new.visvm"
    service = Service(
        path, ImageClassifier(encoder, n_components=60, cache=False), signature_of(path), Limits()
    )
    try:
        path.write_bytes((tmp_path / "m.visvm").read_bytes())
        service.store.change(lambda model: model.rename_class("red", "crimson"), lambda *_: None)
        assert ImageClassifier.load(path).classes_ == ("blue", "crimson", "green")
    finally:
        service.close()


def test_a_model_of_another_transform_in_its_place_is_not_served(taught, place, encoder, tmp_path):
    other = ImageClassifier(encoder, n_components=60, transform="crop", cache=False)
    other.learn(place / "base")
    other.save(tmp_path / "m.visvm")
    job = taught.end(taught.upload("/api/learn", *photos(place / "yellow")))
    assert job["problem"]["code"] == "transform-changed"
    assert "crop" in job["problem"]["detail"]
    assert ImageClassifier.load(tmp_path / "m.visvm").transform == "crop"


def test_a_change_that_waits_for_another_program_can_be_cancelled(taught, place, tmp_path):
    holder = FileLock(tmp_path / ".m.visvm.lock")
    with holder:
        job = taught.upload("/api/learn", *photos(place / "yellow"))
        address = f"/api/jobs/{job.json()['id']}"
        while taught.get(address).json()["stage"] != "waiting for another program":
            time.sleep(0.01)
        taught.post(f"{address}/cancel")
        assert taught.end(job)["state"] == "cancelled"


def test_the_queue_survives_whatever_goes_wrong_while_it_rests(taught, place, monkeypatch, caplog):
    failed = threading.Event()

    def broken():
        failed.set()
        raise MemoryError("no room")

    monkeypatch.setattr(taught.service.jobs, "_idle", broken)
    assert failed.wait(10)
    taught.teach(place / "yellow")
    assert taught.get("/api/ready").status_code == 200


def test_a_file_that_another_program_has_spoilt_is_not_written_over(taught, place, tmp_path):
    good = (tmp_path / "m.visvm").read_bytes()
    (tmp_path / "m.visvm").write_bytes(b"spoilt")
    job = taught.end(taught.upload("/api/learn", *photos(place / "yellow")))
    assert (job["state"], job["problem"]["status"]) == ("failed", 409)
    assert "m.visvm" in job["problem"]["detail"]
    assert str(tmp_path) not in job["problem"]["detail"]
    assert (tmp_path / "m.visvm").read_bytes() == b"spoilt"
    assert ask(taught, photos(place / "test")[0][:1])
    (tmp_path / "m.visvm").write_bytes(good)
    taught.teach(place / "yellow")
    assert taught.classes()["yellow"] == 5


def test_all_images_of_a_request_are_answered_by_one_state_of_the_model(taught, place):
    service, contents = taught.service, photos(place / "test")[0]
    score, states = service.encoder._after, []

    def renamed_meanwhile(features):
        scored = score(features)
        states.append(service.store.current.revision)
        service.store.change(
            lambda model: model.rename_class(
                *(["red", "rot"] if "red" in model.classes_ else ["rot", "red"])
            ),
            print,
        )
        return scored

    service.encoder._after = renamed_meanwhile
    answer = taught.upload("/api/predict?top=9", contents).json()
    assert len(states) > 1
    assert (
        len({frozenset(each["label"] for each in one["top"]) for one in answer["predictions"]}) == 1
    )


def test_an_internal_error_shows_nothing_of_the_insides(taught, place, monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("secret insides")

    monkeypatch.setattr(ImageClassifier, "rename_class", broken)
    job = taught.end(taught.post("/api/classes/rename", json={"old": "red", "new": "x"}))
    assert (job["problem"]["status"], job["problem"]["code"]) == (500, "internal")
    assert "secret" not in json.dumps(job)
    assert "secret insides" in caplog.text
