"""The last change is taken back over HTTP, by whichever service is there."""

import pytest

from tests.service.conftest import photos, problem, serving
from visvm import ImageClassifier


def undo(client, headers=None, **json):
    return client.post("/api/undo", json=json, headers=headers)


def rename(client, old, new):
    return client.end(client.post("/api/classes/rename", json={"old": old, "new": new}))


def test_the_last_change_is_taken_back_once(taught, place, tmp_path):
    before, counts = taught.get("/api/history").json(), taught.classes()
    taught.end(taught.upload("/api/learn", *photos(place / "yellow")))
    assert taught.get("/api/model").json()["can_undo"] == "learned session 2 (5 images)"
    job = taught.end(undo(taught))
    assert (job["state"], job["result"]) == ("done", {"undone": "learned session 2 (5 images)"})
    assert taught.classes() == counts
    assert taught.get("/api/history").json() == before
    assert taught.get("/api/model").json()["can_undo"] is None
    assert dict.fromkeys(ImageClassifier.load(tmp_path / "m.visvm").classes_) == dict.fromkeys(
        counts
    )
    job = taught.end(undo(taught))
    assert job["problem"]["code"] == "undo-none"
    assert str(tmp_path) not in job["problem"]["detail"]


def test_a_change_of_somebody_else_is_not_undone_by_mistake(taught):
    rename(taught, "red", "crimson")
    revision = taught.get("/api/model").json()["revision"]
    rename(taught, "blue", "navy")
    job = taught.end(undo(taught, revision=revision))
    assert job["problem"]["code"] == "undo-overtaken"
    assert set(taught.classes()) == {"crimson", "green", "navy"}
    assert taught.end(undo(taught, revision=revision + 1))["state"] == "done"
    assert set(taught.classes()) == {"blue", "crimson", "green"}


def test_under_a_key_it_is_done_once_and_what_it_undid_is_not_done_again(
    taught, place, encoder, tmp_path
):
    key, other = {"Idempotency-Key": "learn"}, {"Idempotency-Key": "undo"}
    learned = taught.end(taught.upload("/api/learn", *photos(place / "yellow"), headers=key))
    first = taught.end(undo(taught, other))
    taught.service.close()
    with serving(tmp_path / "m.visvm", encoder) as client:
        assert client.end(undo(client, other)) == first
        assert client.end(client.upload("/api/learn", *photos(place / "yellow"), headers=key)) == (
            learned
        )
        assert "yellow" not in client.classes()


def test_the_history_has_other_changes_in_words(taught):
    rename(taught, "red", "crimson")
    (event,) = taught.get("/api/history").json()["events"]
    assert (event["after_session"], event["said"]) == (1, "renamed red to crimson")


@pytest.mark.parametrize("body", [{"revision": "x"}, {"revisions": 1}, []])
def test_other_bodies_are_refused(taught, body):
    assert taught.post("/api/undo", json=body).status_code == 422


def test_where_nothing_was_learned_there_is_nothing_to_undo(client):
    job = client.end(undo(client))
    assert job["problem"]["code"] == "undo-none"
    problem(client.get("/api/jobs/none"), 404, "job-unknown")
