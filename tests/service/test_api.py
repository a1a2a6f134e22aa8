"""The routes, as a program uses them."""

import json
from unittest.mock import ANY

import numpy as np
import pytest

from tests.service.conftest import ask, photos, problem, serving
from visvm import ImageClassifier
from visvm.model import file as model_file

pytestmark = pytest.mark.slow


def test_a_new_model_is_taught_and_asked(client, place, tmp_path):
    assert client.get("/api/health").json() == {"status": "ok"}
    assert client.get("/api/ready").json() == {"status": "ready"}
    assert client.classes() == {}
    contents, labels = photos(place / "test")
    problem(client.upload("/api/predict", contents[:1]), 409, "model-empty")
    failed = client.end(client.upload("/api/evaluate", contents[:1], labels[:1]))["problem"]
    assert (failed["status"], failed["code"]) == (409, "model-empty")
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


def test_classes_in_groups_are_answered_with_on_the_level_that_is_sure(taught, place):
    for colour in ("blue", "green"):
        renaming = {"old": colour, "new": f"cold/{colour}"}
        assert taught.end(taught.post("/api/classes/rename", json=renaming))["state"] == "done"
    image = [("images", ("p.png", (place / "test/blue/3-0.png").read_bytes()))]
    for sure, level in ((1.0, "cold"), (0.01, "cold/blue")):
        (said,) = taught.post(f"/api/predict?sure={sure}", files=image).json()["predictions"]
        assert (said["level"], said["label"]) == (level, "cold/blue")
    by = {answer["label"]: answer["score"] for answer in said["top"]}
    (said,) = taught.post("/api/predict?sure=1", files=image).json()["predictions"]
    assert said["level_score"] == pytest.approx(by["cold/blue"] + by["cold/green"])
    problem(taught.post("/api/predict?sure=0", files=image), 422, ANY)


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
        for known, unknown in (
            (library.known, library.unknown),
            (line["known"], line["unknown"]),
        ):
            assert (got["known"], got["unknown"]) == (pytest.approx(known, abs=1e-6), unknown)
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


def test_a_session_reports_accuracy_before_and_after(taught, place):
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


def test_a_session_that_chose_the_ridge_anew_says_so(place, encoder, tmp_path):
    classifier = ImageClassifier(encoder, n_components=60, layers=(1, 3), cache=False)
    with serving(tmp_path / "m.visvm", encoder, classifier=classifier) as client:
        first = client.teach(place / "yellow")  # one class
        then = client.teach(place / "base")
        sessions = client.get("/api/history").json()["sessions"]
    said = f"λ was chosen anew from the sums: {first['ridge']:g} → {then['ridge']:g}, by 23 images"
    assert [note for note in then["notes"] if said in note]
    assert [each["ridge"] for each in sessions] == [first["ridge"], then["ridge"]]
    assert sessions[1]["notes"] == then["notes"]
    assert not [note for note in sessions[0]["notes"] if "λ" in note]


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


def test_it_suggests_what_to_label_next(taught, place, tmp_path):
    contents = photos(place / "base")[0][:3] + photos(place / "yellow")[0][:2]
    job = taught.end(taught.upload("/api/suggest?n=2", contents))
    wanted = ImageClassifier.load(tmp_path / "m.visvm", cache=False).suggest(contents, 2)
    assert job["result"]["suggestions"] == [
        {
            "image": each.place,
            "label": each.label,
            "score": pytest.approx(each.score, abs=1e-6),
            "unknown": each.unknown,
        }
        for each in wanted
    ]
    assert wanted[0].place >= 3
    problem(taught.upload("/api/suggest", [contents[0], b"x"]), 422, "images-unreadable", "photo 2")


def test_it_draws_what_an_answer_rests_on(taught, place):
    photo = photos(place / "yellow")[0][0]
    drawn = {
        label: taught.upload(f"/api/explain{label}", [photo])
        for label in ("", "?label=red", "?label=blue")
    }
    assert {each.headers["content-type"] for each in drawn.values()} == {"image/png"}
    likeliest = ask(taught, [photo])[0]["label"]
    for label, answer in drawn.items():
        same = label == f"?label={likeliest}"
        assert not label or same == (answer.content == drawn[""].content)
    problem(taught.upload("/api/explain?label=mauve", [photo]), 422, "class-unknown", "mauve")
    problem(taught.upload("/api/explain", [b"x"]), 422, "images-unreadable")
    problem(taught.upload("/api/explain", [photo, photo]), 413, "images-too-many")


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
    taken = taught.post(rename, json={"old": "crimson", "new": "blue"})
    problem(taken, 422, "class-exists", "'blue'", "merge")
    unknown = taught.post(rename, json={"old": "mauve", "new": "pink"})
    problem(unknown, 422, "class-unknown", "mauve")
    taught.end(taught.post(rename, json={"old": "crimson", "new": "blue", "merge": True}))
    assert taught.classes() == {"blue": 12, "green": 6}
    taught.end(taught.post(forget, json={"label": "blue"}))
    assert taught.classes() == {"green": 6}
    assert {each["label"] for each in ask(taught, photos(place / "test")[0])} == {"green"}
    problem(taught.post(forget, json={"label": "blue"}), 422, "class-unknown", "blue")
    assert ImageClassifier.load(tmp_path / "m.visvm").classes_ == ("green",)


def test_the_model_can_be_downloaded(client, place, tmp_path):
    problem(client.get("/api/model/file"), 409, "model-file-missing")
    client.teach(place / "base")
    answer = client.get("/api/model/file")
    assert answer.content == (tmp_path / "m.visvm").read_bytes()
    assert "attachment" in answer.headers["content-disposition"]


def test_an_unchanged_model_is_answered_with_304(taught, place):
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


def test_prometheus_gets_the_counts(client, place):
    client.teach(place / "base")
    ask(client, photos(place / "test")[0][:3])
    text = client.get("/metrics").text
    for line in (
        "visvm_predicted_images_total 3.0",
        "visvm_classes 3.0",
        "visvm_learned_images 18.0",
        'visvm_requests_total{method="POST",route="/api/learn",status="202"} 1.0',
    ):
        assert line in text


@pytest.mark.parametrize(
    ("contents", "labels", "code", "facts"),
    [
        ([b"x", b"y"], ["a", "b", "c"], "labels-mismatch", ["2 images", "3 labels"]),
        ([b"x"], [], "labels-mismatch", ["1 images", "0 labels"]),
        ([b"", b"no image"], ["a"], "images-unreadable", ["photo 1 (", "photo 2 ("]),
        ([b"x"], [" "], ANY, ["photo 1"]),
        ([b"x"], ["a\nb"], ANY, ["photo 1"]),
        ([b"x"], ["a" * 201], "label-too-long", ["photo 1", "201", "200 characters"]),
    ],
)
@pytest.mark.parametrize("address", ["/api/learn", "/api/forget", "/api/evaluate", "/api/check"])
def test_bad_input_is_refused_in_one_line_and_changes_nothing(
    taught, tmp_path, address, contents, labels, code, facts
):
    before, model = (tmp_path / "m.visvm").read_bytes(), taught.get("/api/model").json()
    problem(taught.upload(address, contents, labels), 422, code, *facts)
    assert (tmp_path / "m.visvm").read_bytes() == before
    assert taught.get("/api/model").json() == model


def test_both_kinds_of_photos_that_cannot_be_read_are_named(taught, place):
    good = photos(place / "test")[0][0]
    answer = taught.upload("/api/learn", [good, b""], ["a"], tests=[b"x", good], test_labels=["a"])
    problem(answer, 422, "images-unreadable", "; test photo 1 (", "2 photos")
    assert " photo 2 (" in answer.json()["detail"]


def test_what_is_not_a_form_is_refused(taught, place):
    content, form = photos(place / "test")[0][0], {"content-type": "multipart/form-data"}
    problem(taught.post("/api/predict", content=content), 415, "form-missing")
    problem(taught.post("/api/predict", json={}), 415, "form-missing")
    problem(taught.post("/api/predict", content=b"--x", headers=form), 400, "form-broken")
    unknown = taught.post("/api/predict", files={"photo": content})
    problem(unknown, 422, "field-unknown", "images", "'photo'")
    problem(taught.post("/api/learn", files={"labels": (None, "a")}), 422, "images-missing")
    form["content-type"] += "; boundary=x"
    problem(taught.post("/api/predict", files={}, data={}, headers=form), 400, "form-broken")


def test_what_is_not_a_request_is_refused(taught, place):
    content = photos(place / "test")[0][0]
    problem(taught.upload("/api/predict?top=0", [content]), 422, "request-invalid", "top")
    problem(taught.get("/api/nothing"), 404, "path-unknown", "openapi.json")
    problem(taught.delete("/api/model"), 405, "method-unknown", "openapi.json")
    problem(taught.get("/api/jobs/none"), 404, "job-unknown")
    extra = taught.post("/api/classes/forget", json={"label": "red", "path": "/etc/passwd"})
    problem(extra, 422, "request-invalid", "path")
    broken = {"content": b"{", "headers": {"content-type": "application/json"}}
    problem(taught.post("/api/classes/forget", **broken), 422, "request-invalid")


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
        assert (job["state"], job["problem"]["status"]) == ("failed", 409)
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
            problem(client.upload("/api/learn", contents[:1], [label]), 422, ANY, "number")
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


def test_photos_are_checked_before_they_are_learned(taught, place):
    contents, labels = photos(place / "test")
    before = taught.get("/api/model").json()
    at = labels.index("red")
    labels[at] = "green"
    job = taught.end(taught.upload("/api/check", [*contents, contents[-1]], [*labels, labels[-1]]))
    found = job["result"]
    assert job["kind"] == "check"
    assert found["n"] == len(contents) + 1
    wrong = found["mislabelled"][0]
    assert (wrong["label"], wrong["suggested"]) == ("green", "red")
    assert wrong["place"] == at
    (same,) = (each for each in found["duplicates"] if each["exact"])
    assert [each["place"] for each in same["photos"]] == [len(contents) - 1, len(contents)]
    assert "1 photo is there more than once." in found["notes"]
    assert taught.get("/api/model").json() == before


def test_a_model_that_remembers_photos_goes_on_doing_so(place, encoder, tmp_path):
    model = ImageClassifier(encoder, n_components=8, ridge=1.0, layers=(1, 3), cache=False)
    model.learn(place / "base", remember=True)
    assert model.model_.head.statistics.scatter.n_rows == 0  # the sums cannot tell
    with serving(tmp_path / "m.visvm", encoder, classifier=model) as client:
        client.teach(place / "yellow")
        notes = client.teach(place / "yellow")["notes"]
        assert any("5 of 5 photos were learned before" in note for note in notes)
