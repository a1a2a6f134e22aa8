"""The endpoints, as a program uses them."""

import json
import threading
import time

import numpy as np
import pytest
from filelock import FileLock

from tests import tiny
from tests.service.conftest import photos, serving
from visvm import ImageClassifier
from visvm.model import file as model_file
from visvm.service import forms
from visvm.service.core import Service
from visvm.service.limits import Limits
from visvm.service.store import signature_of


def ask(client, contents, top=5):
    answer = client.upload(f"/api/predict?top={top}", contents)
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"]


def problem(answer, status, *words):
    """Check that an answer is a problem of one line with these words in it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == status
    assert "\n" not in told["detail"]
    for word in words:
        assert word in told["detail"]
    return told["detail"]


def test_a_new_model_is_taught_and_asked(client, place, tmp_path):
    assert client.get("/api/health").json() == {"status": "ok"}
    assert client.get("/api/ready").json() == {"status": "ready"}
    assert client.classes() == {}
    contents, labels = photos(place / "test")
    problem(client.upload("/api/predict", contents[:1]), 409, "knows no class")
    result = client.teach(place / "base")
    assert (result["session"], result["n_images"], sorted(result["new_classes"])) == (
        1,
        18,
        ["blue", "green", "red"],
    )
    assert client.classes() == {"blue": 6, "green": 6, "red": 6}
    known = [
        (content, label)
        for content, label in zip(contents, labels, strict=True)
        if label != "yellow"
    ]
    assert [each["label"] for each in ask(client, [content for content, _ in known])] == [
        label for _, label in known
    ]
    model_file.read_header(tmp_path / "m.visvm")


def test_predictions_are_those_of_the_library_and_the_command_line(taught, place, tmp_path, visvm):
    paths = sorted((place / "test").rglob("*.png"))
    wanted = ImageClassifier.load(tmp_path / "m.visvm", cache=False).predict(paths, top=3)
    code, out, _ = visvm(
        "predict", tmp_path / "m.visvm", *paths, "--top", 3, "--json", "--no-cache"
    )
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    for got, library, line in zip(
        ask(taught, [path.read_bytes() for path in paths], 3), wanted, lines, strict=True
    ):
        served, typed = (
            [(each["label"], each["score"]) for each in answer["top"]] for answer in (got, line)
        )
        for other in (library.top, typed):
            assert [label for label, _ in served] == [label for label, _ in other]
            assert [score for _, score in served] == pytest.approx(
                [score for _, score in other], abs=1e-6
            )


def test_learning_over_http_gives_the_model_that_the_library_gives(
    taught, place, encoder, tmp_path
):
    other = ImageClassifier(encoder, n_components=60, ridge=1.0, layers=(1, 3), cache=False)
    other.learn(*photos(place / "base"))
    served = ImageClassifier.load(tmp_path / "m.visvm", encoder=encoder)
    np.testing.assert_array_equal(served.head_.coefficients_, other.head_.coefficients_)


def test_a_session_tells_accuracy_before_and_after(taught, place):
    tests, labels = photos(place / "test")
    result = taught.teach(place / "yellow", tests=tests, test_labels=labels)
    assert result["test"] == {
        "n": 16,
        "accuracy": 1,
        "accuracy_before": 1,
        "old_accuracy": 1,
        "new_accuracy": 1,
    }
    sessions = taught.get("/api/history").json()["sessions"]
    assert [each["session"] for each in sessions] == [1, 2]
    assert sessions[0]["test"] is None
    assert sessions[1]["test"] == result["test"]


def test_one_label_is_enough_for_all_images(taught, place):
    contents, _ = photos(place / "yellow")
    assert taught.end(taught.upload("/api/learn", contents, ["yellow"]))["result"]["n_images"] == 5
    assert taught.classes()["yellow"] == 5


def test_evaluating_changes_nothing(taught, place):
    before = taught.get("/api/model").json()
    result = taught.end(taught.upload("/api/evaluate", *photos(place / "test")))["result"]
    assert (result["n"], result["accuracy"], result["never_learned"]) == (12, 1.0, ["yellow"])
    assert [each["label"] for each in result["per_class"]] == ["blue", "green", "red"]
    assert taught.get("/api/model").json() == before


def test_images_are_forgotten_as_if_never_learned(taught, place, tmp_path):
    before = ImageClassifier.load(tmp_path / "m.visvm", cache=False)
    taught.teach(place / "yellow")
    assert taught.end(taught.upload("/api/forget", *photos(place / "yellow")))["result"] == {
        "n_images": 5
    }
    after = ImageClassifier.load(tmp_path / "m.visvm", cache=False)
    paths = sorted((place / "test").rglob("*.png"))
    for one, other in zip(
        before.predict(paths, raw=True, top=9), after.predict(paths, raw=True, top=9), strict=True
    ):
        assert dict(one.top) == pytest.approx(dict(other.top), abs=1e-6)


def test_a_class_is_renamed_merged_and_forgotten(taught, place, tmp_path):
    rename, forget = "/api/classes/rename", "/api/classes/forget"
    assert taught.end(taught.post(rename, json={"old": "red", "new": "crimson"}))["state"] == "done"
    assert taught.classes() == {"blue": 6, "crimson": 6, "green": 6}
    problem(
        taught.post(rename, json={"old": "crimson", "new": "blue"}),
        422,
        "'blue'",
        "already",
        "merge",
    )
    problem(taught.post(rename, json={"old": "mauve", "new": "pink"}), 422, "mauve")
    taught.end(taught.post(rename, json={"old": "crimson", "new": "blue", "merge": True}))
    assert taught.classes() == {"blue": 12, "green": 6}
    taught.end(taught.post(forget, json={"label": "blue"}))
    assert taught.classes() == {"green": 6}
    assert {each["label"] for each in ask(taught, photos(place / "test")[0])} == {"green"}
    problem(taught.post(forget, json={"label": "blue"}), 422, "blue")
    assert ImageClassifier.load(tmp_path / "m.visvm").classes_ == ("green",)


def test_the_model_can_be_downloaded(client, place, tmp_path):
    problem(client.get("/api/model/file"), 409, "teach")
    client.teach(place / "base")
    answer = client.get("/api/model/file")
    assert answer.content == (tmp_path / "m.visvm").read_bytes()
    assert "attachment" in answer.headers["content-disposition"]


def test_whoever_asks_again_is_told_that_nothing_changed(taught, place):
    first = taught.get("/api/model")
    tag = {"If-None-Match": first.headers["etag"]}
    assert taught.get("/api/model", headers=tag).status_code == 304
    taught.teach(place / "yellow")
    assert taught.get("/api/model", headers=tag).status_code == 200


def test_a_job_can_be_followed_by_its_events(taught, place):
    job = taught.upload("/api/learn", *photos(place / "yellow")).json()
    with taught.stream("GET", f"/api/jobs/{job['id']}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = list(answer.iter_lines())
    events = [
        json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")
    ]
    assert lines[0] == "event: job"
    assert events[-1]["state"] == "done"
    assert events[-1]["result"]["new_classes"] == ["yellow"]


def test_what_is_counted_is_told_to_prometheus(taught, place):
    ask(taught, photos(place / "test")[0][:3])
    text = taught.get("/metrics").text
    for line in (
        "visvm_predicted_images_total 3.0",
        "visvm_classes 3.0",
        "visvm_learned_images 18.0",
        'visvm_requests_total{method="POST",route="/api/learn",status="202"} 1.0',
    ):
        assert line in text


# Mistakes


@pytest.mark.parametrize(
    ("contents", "labels", "words"),
    [
        ([b"x", b"y"], ["a", "b", "c"], ["2 images", "3 labels"]),
        ([b"x"], [], ["1 images", "0 labels"]),
        ([b"", b"no image"], ["a"], ["photo 1 (the file is empty)", "photo 2 (not an image"]),
        ([b"x"], [" "], ["printable"]),
        ([b"x"], ["a\nb"], ["printable"]),
        ([b"x"], ["a" * 201], ["200 characters"]),
    ],
)
@pytest.mark.parametrize("address", ["/api/learn", "/api/forget", "/api/evaluate"])
def test_bad_input_is_told_in_one_line_and_changes_nothing(
    taught, tmp_path, address, contents, labels, words
):
    before, model = (tmp_path / "m.visvm").read_bytes(), taught.get("/api/model").json()
    problem(taught.upload(address, contents, labels), 422, *words)
    assert (tmp_path / "m.visvm").read_bytes() == before
    assert taught.get("/api/model").json() == model


def test_what_is_no_form_is_told_so(taught, place):
    content = photos(place / "test")[0][0]
    problem(taught.post("/api/predict", content=content), 415, "multipart")
    problem(taught.post("/api/predict", json={}), 415, "multipart")
    problem(
        taught.post(
            "/api/predict", content=b"--x", headers={"content-type": "multipart/form-data"}
        ),
        400,
    )
    problem(taught.post("/api/predict", files={"photo": content}), 422, "images", "'photo'")
    problem(taught.post("/api/learn", files={"labels": (None, "a")}), 422, "at least one image")
    problem(
        taught.post(
            "/api/predict",
            files={},
            data={},
            headers={"content-type": "multipart/form-data; boundary=x"},
        ),
        400,
    )
    problem(taught.upload("/api/predict?top=0", [content]), 422, "top")
    problem(taught.get("/api/nothing"), 404, "openapi.json")
    problem(taught.delete("/api/model"), 405, "openapi.json")
    problem(taught.get("/api/jobs/none"), 404, "job")
    problem(
        taught.post("/api/classes/forget", json={"label": "red", "path": "/etc/passwd"}),
        422,
        "path",
    )


def test_images_that_were_never_learned_cannot_be_forgotten(taught, place, tmp_path):
    before = (tmp_path / "m.visvm").read_bytes()
    job = taught.end(taught.upload("/api/forget", *photos(place / "yellow")))
    assert job["state"] == "failed"
    assert job["problem"]["status"] == 422
    assert "yellow" in job["problem"]["detail"]
    assert (tmp_path / "m.visvm").read_bytes() == before


def test_a_model_for_predicting_only_cannot_be_taught(taught, place, encoder, tmp_path):
    ImageClassifier.load(tmp_path / "m.visvm").export(tmp_path / "light.visvm")
    with serving(tmp_path / "light.visvm", encoder) as client:
        assert not client.get("/api/model").json()["can_learn"]
        job = client.end(client.upload("/api/learn", *photos(place / "yellow")))
        assert "sums" in job["problem"]["detail"]
        assert ask(client, photos(place / "test")[0][:1])


def test_numbers_stay_numbers(place, encoder, tmp_path):
    model = ImageClassifier(encoder, n_components=60, ridge=1.0, layers=(1, 3), cache=False)
    contents, labels = photos(place / "base")
    model.learn(contents, [len(label) for label in labels])
    model.save(tmp_path / "m.visvm")
    with serving(tmp_path / "m.visvm", encoder) as client:
        client.end(client.upload("/api/learn", photos(place / "yellow")[0], ["9"]))
        assert client.classes() == {3: 6, 4: 6, 5: 6, 9: 5}
        for label in ("nine", "9" * 30, "1_0", ""):
            problem(client.upload("/api/learn", contents[:1], [label]), 422, "numbers")
        client.end(client.post("/api/classes/rename", json={"old": 3, "new": "0"}))
        assert 0 in client.classes()
        for label in (0, "4", 5, 9):
            assert (
                client.end(client.post("/api/classes/forget", json={"label": label}))["state"]
                == "done"
            )
        assert client.classes() == {}
        assert client.end(client.upload("/api/learn", contents[:2], ["7"]))["state"] == "done"
        assert client.classes() == {7: 2}


# Limits


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
        problem(client.upload("/api/learn", [b"x" * 30_000], ["a"]), 413, "20,000 bytes")
        problem(client.upload("/api/learn", [content] * 4, ["a"]), 413, "3 images")
        problem(client.upload("/api/predict", [content] * 3), 413, "2 images")
        problem(client.upload("/api/predict", [content]), 422, "megapixels")


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
        problem(answer, 413, "20,000 bytes")


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


def test_evaluations_leave_room_for_changes(slow, place):
    contents = photos(place / "test")[0][:2]
    jobs = [slow.upload("/api/learn", contents, ["y"])]
    assert slow.begun.wait(10)
    jobs += [slow.upload("/api/evaluate", contents, ["red"])]
    problem(slow.upload("/api/evaluate", contents, ["red"]), 503, "1 evaluations")
    jobs += [slow.upload("/api/learn", contents, ["y"])]
    slow.gate.set()
    assert [slow.end(job)["state"] for job in jobs] == ["done"] * 3


def test_a_full_disk_is_told(taught, place, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(forms.Form, "write", full)
    problem(taught.upload("/api/learn", photos(place / "yellow")[0], ["y"]), 507, "No space left")


def test_too_many_changes_are_told_to_come_back(slow, place):
    jobs = [slow.upload("/api/learn", photos(place / "yellow")[0], ["y"])]
    assert slow.begun.wait(10)
    jobs += [slow.upload("/api/learn", photos(place / "yellow")[0], ["y"]) for _ in range(2)]
    assert [job.json()["ahead"] for job in jobs[1:]] == [1, 2]
    refused = slow.upload("/api/learn", photos(place / "yellow")[0], ["y"])
    problem(refused, 503, "2 changes")
    assert int(refused.headers["retry-after"]) > 0
    slow.gate.set()
    assert [slow.end(job)["state"] for job in jobs] == ["done"] * 3
    assert slow.classes()["y"] == 15


def test_too_many_questions_are_told_to_come_back(slow, place):
    contents = photos(place / "test")[0]
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(slow.upload("/api/predict", contents[:3]))
    )
    thread.start()
    assert slow.begun.wait(10)
    refused = slow.upload("/api/predict", contents[:2])
    problem(refused, 503, "4 images")
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


def test_questions_are_answered_by_the_old_model_until_the_new_one_is_on_disk(
    taught, place, tmp_path, monkeypatch
):
    written, go_on = threading.Event(), threading.Event()
    save = ImageClassifier.save

    def held(model, path):
        written.set()
        assert go_on.wait(30)
        save(model, path)

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
    other = ImageClassifier(encoder, n_components=60, transform="squash", cache=False)
    other.learn(place / "base")
    other.save(tmp_path / "m.visvm")
    job = taught.end(taught.upload("/api/learn", *photos(place / "yellow")))
    assert "squash" in job["problem"]["detail"]
    assert ImageClassifier.load(tmp_path / "m.visvm").transform == "squash"


def test_whoever_waits_for_another_program_can_be_cancelled(taught, place, tmp_path):
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
    assert "must be a model" in job["problem"]["detail"]
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


def test_an_error_that_is_ours_tells_nothing_of_the_insides(taught, place, monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("secret insides")

    monkeypatch.setattr(ImageClassifier, "rename_class", broken)
    job = taught.end(taught.post("/api/classes/rename", json={"old": "red", "new": "x"}))
    assert job["problem"]["status"] == 500
    assert "secret" not in json.dumps(job)
    assert "secret insides" in caplog.text
