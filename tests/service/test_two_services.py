"""Two services on one model file: each takes in what the other has written before it changes it."""

from contextlib import ExitStack

import pytest

from tests.service.conftest import photos, problem, serving
from visvm import ImageClassifier

KEY = {"Idempotency-Key": "sent-to-both"}


@pytest.fixture
def two(model, encoder):
    """Clients of two services; the second only looks at the file when it changes the model."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(serving(model, encoder)) for _ in range(2))
        second.service.jobs._idle = lambda: None
        yield first, second


def teach(client, place, n=5):
    contents = photos(place / "yellow")[0][:n]
    return client.end(client.upload("/api/learn", contents, ["yellow"], headers=KEY))


def test_what_was_sent_to_one_is_not_learned_again_by_the_other(two, place, model):
    first, second = two
    learned = teach(first, place)
    before = model.read_bytes()
    again = teach(second, place)
    assert (again["state"], again["result"]) == ("done", learned["result"])
    assert model.read_bytes() == before
    assert second.classes() == first.classes()
    assert second.classes()["yellow"] == 5


def test_the_key_of_something_else_is_refused_by_the_other_too(two, place, model):
    first, second = two
    teach(first, place)
    before = model.read_bytes()
    job = teach(second, place, n=4)
    assert (job["state"], job["problem"]["code"]) == ("failed", "idempotency-key-reused")
    assert model.read_bytes() == before


def test_a_class_that_the_other_has_learned_can_be_renamed_and_forgotten(two, place, model):
    first, second = two
    teach(first, place)
    renaming = {"old": "yellow", "new": "gold"}
    assert second.end(second.post("/api/classes/rename", json=renaming))["state"] == "done"
    first.service.jobs._idle = lambda: None
    forgetting = first.post("/api/classes/forget", json={"label": "gold"})
    assert first.end(forgetting)["state"] == "done"
    assert ImageClassifier.load(model).classes_ == ("blue", "green", "red")
    problem(first.post("/api/classes/forget", json={"label": "gold"}), 422, "class-unknown")


def test_a_name_that_the_other_has_given_away_is_free(two, model):
    first, second = two
    moved = first.post("/api/classes/rename", json={"old": "red", "new": "rose"})
    assert first.end(moved)["state"] == "done"
    named = second.post("/api/classes/rename", json={"old": "blue", "new": "red"})
    assert second.end(named)["state"] == "done"
    assert ImageClassifier.load(model).classes_ == ("green", "red", "rose")
