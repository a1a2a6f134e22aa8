"""A change that is sent again under its key is not made again, also by a service started anew."""

import threading

import pytest

from tests.service.conftest import photos, problem, serving
from visvm import ImageClassifier
from visvm.model import changes
from visvm.model.file import read
from visvm.model.state import AnsweredRequest

KEY = {"Idempotency-Key": "retry-1"}
OTHER = {"Idempotency-Key": "retry-2"}


def teach(client, place, headers, n=5, label="yellow"):
    contents = photos(place / "yellow")[0][:n]
    return client.upload("/api/learn", contents, [label], headers=headers)


def sessions(client):
    return len(client.get("/api/history").json()["sessions"])


def test_what_is_sent_again_is_not_learned_again(taught, place):
    first = taught.end(teach(taught, place, KEY))
    again = teach(taught, place, KEY)
    assert again.headers["location"] == f"/api/jobs/{first['id']}"
    assert taught.end(again) == first
    assert (taught.classes()["yellow"], sessions(taught)) == (5, 2)
    assert taught.end(teach(taught, place, OTHER))["id"] != first["id"]
    assert taught.end(teach(taught, place, None))["id"] != first["id"]
    assert (taught.classes()["yellow"], sessions(taught)) == (15, 4)


def test_a_service_started_anew_knows_the_key_and_the_job(taught, place, encoder, tmp_path):
    first = taught.end(teach(taught, place, KEY))
    taught.service.close()
    with serving(tmp_path / "m.visvm", encoder) as client:
        assert client.end(teach(client, place, KEY)) == first
        assert client.get(f"/api/jobs/{first['id']}").json() == first
        events = client.get(f"/api/jobs/{first['id']}/events").text
        assert '"state":"done"' in events
        assert (client.classes()["yellow"], sessions(client)) == (5, 2)
        problem(teach(client, place, KEY, n=4), 422, "idempotency-key-reused")


def test_a_key_that_comes_with_something_else_is_refused(taught, place):
    taught.end(teach(taught, place, KEY))
    before = taught.get("/api/model").json()
    problem(teach(taught, place, KEY, n=4), 422, "idempotency-key-reused")
    problem(teach(taught, place, KEY, label="green"), 422, "idempotency-key-reused")
    contents = photos(place / "yellow")[0]
    forgetting = taught.upload("/api/forget", contents, ["yellow"], headers=KEY)
    problem(forgetting, 422, "idempotency-key-reused")
    renaming = {"old": "yellow", "new": "gold"}
    renamed = taught.post("/api/classes/rename", json=renaming, headers=KEY)
    problem(renamed, 422, "idempotency-key-reused")
    assert taught.get("/api/model").json() == before


@pytest.mark.parametrize(
    ("address", "body", "classes"),
    [
        ("/api/classes/rename", {"old": "red", "new": "rose"}, {"blue", "green", "rose"}),
        ("/api/classes/forget", {"label": "red"}, {"blue", "green"}),
    ],
)
def test_classes_are_changed_once(taught, address, body, classes, tmp_path, encoder):
    first = taught.end(taught.post(address, json=body, headers=KEY))
    assert first["state"] == "done"
    assert taught.end(taught.post(address, json=body, headers=KEY)) == first
    problem(taught.post(address, json=body), 422, "class-unknown")
    assert set(taught.classes()) == classes
    taught.service.close()
    with serving(tmp_path / "m.visvm", encoder) as client:
        assert client.end(client.post(address, json=body, headers=KEY)) == first


def test_images_are_taken_out_once(taught, place):
    contents, labels = photos(place / "base")
    sent = contents[:2], labels[:2]
    first = taught.end(taught.upload("/api/forget", *sent, headers=KEY))
    assert taught.end(taught.upload("/api/forget", *sent, headers=KEY)) == first
    assert sum(taught.classes().values()) == len(contents) - 2


def test_two_at_once_are_one_job(taught, place):
    answers = []
    senders = [
        threading.Thread(target=lambda: answers.append(teach(taught, place, KEY))) for _ in range(4)
    ]
    for each in senders:
        each.start()
    for each in senders:
        each.join(30)
    assert len({taught.end(each)["id"] for each in answers}) == 1
    assert (taught.classes()["yellow"], sessions(taught)) == (5, 2)


def test_a_refused_upload_leaves_the_key_free(taught, place):
    problem(
        taught.upload("/api/learn", [b"no image"], ["yellow"], headers=KEY),
        *(422, "images-unreadable"),
    )
    assert taught.end(teach(taught, place, KEY))["state"] == "done"


@pytest.mark.parametrize("key", ["", "with space", "x" * 201])
def test_a_key_must_be_a_word(taught, place, key):
    problem(teach(taught, place, {"Idempotency-Key": key}), 422, "request-invalid")


def test_a_model_remembers_the_last_requests_only_and_gives_none_away(taught, place, tmp_path):
    taught.end(teach(taught, place, KEY))
    path = tmp_path / "m.visvm"
    (kept,) = read(path).requests
    assert KEY["Idempotency-Key"] not in path.read_bytes().decode("latin-1")
    model = ImageClassifier.load(path, cache=False)
    model.export(tmp_path / "out.visvm")
    assert read(tmp_path / "out.visvm").requests == ()
    grown = model.model_
    for number in range(60):
        grown = changes.answered(grown, AnsweredRequest(str(number), "", "learn", "", {}))
    assert [each.key for each in grown.requests] == [str(number) for number in range(10, 60)]
    assert kept.kind == "learn"


def test_the_document_names_the_header_where_it_counts(client):
    paths = client.get("/openapi.json").json()["paths"]
    named = {
        path
        for path, operations in paths.items()
        for operation in operations.values()
        for each in operation.get("parameters", [])
        if (each["in"], each["name"]) == ("header", "Idempotency-Key")
    }
    classes = {"/api/classes/rename", "/api/classes/forget"}
    assert named == {"/api/learn", "/api/forget", "/api/undo", *classes}
