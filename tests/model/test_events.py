"""What the history of a model says of changes that are no sessions."""

import json
from dataclasses import replace

import pytest

from tests import tiny
from visvm import ImageClassifier, SiteStatistics
from visvm.model import changes
from visvm.model.estimate import ClassEstimate, SessionEstimate
from visvm.model.events import last_change


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    model = tiny.write_model(folder)
    tiny.write_photos(folder / "more", ("yellow", "red"), n=2, seed=1)
    model.export_for_site(folder / "site.visvm")
    site = ImageClassifier.load(folder / "site.visvm", cache=False)
    site.learn_statistics(folder / "more").save(folder / "site.sums", reveal_features=True)
    return folder


@pytest.fixture
def model(place):
    return ImageClassifier.load(place / "m.visvm", cache=False)


@pytest.fixture
def sums(place):
    return SiteStatistics.load(place / "site.sums")


def test_the_history_names_every_change_and_survives_the_file(place, model, sums, tmp_path):
    model.rename_class("green", "lime")
    model.merge(sums)
    model.forget([place / "photos/red/0-0.png"], ["red"])
    model.rename_class("yellow", "red", merge=True)
    model.forget_class("blue")
    model.save(tmp_path / "m.visvm")
    again = ImageClassifier.load(tmp_path / "m.visvm", cache=False)
    assert again.model_.events == model.model_.events
    assert [each.said for each in again.model_.events] == [
        "renamed green to lime",
        f"merged site {sums.site} (4 images)",
        "forgot 1 image of red",
        "put yellow into red",
        "forgot the class blue (2 images)",
    ]
    assert [each.after_session for each in again.model_.events] == [1, 2, 2, 2, 2]
    assert last_change(again.model_.sessions, again.model_.events) == again.model_.events[-1].said
    again.learn(place / "photos")
    last = last_change(again.model_.sessions, again.model_.events)
    assert last == "learned session 3 (6 images)"


def test_counts_are_those_of_what_is_left(place, model, visvm, tmp_path):
    model.forget([place / "photos/red/0-0.png"], ["red"])
    model.save(tmp_path / "m.visvm")
    described = json.loads(visvm("info", tmp_path / "m.visvm", "--json")[1])
    assert described["classes"] == {"blue": 2, "green": 2, "red": 1}
    assert [(each["kind"], each["n_images"]) for each in described["events"]] == [("forget", 1)]
    out = visvm("info", tmp_path / "m.visvm")[1]
    assert "3 classes, 5 images" in out
    assert "forgot 1 image of red" in out
    model.forget([place / "photos/red/0-1.png"], ["red"])
    assert model.classes_ == ("blue", "green")
    assert model.class_counts_ == (2, 2)


def test_a_session_of_a_site_is_counted_among_what_was_known(place, model, sums):
    assert sums.history[0]["new_classes"] == ["red", "yellow"]  # to the site both were new
    model.merge(sums)
    session = model.model_.sessions[1]
    assert (session.new_classes, session.returning_classes) == (("yellow",), ("red",))
    assert session.n_classes == len(model.classes_) == 4
    model.learn(place / "more")
    assert model.model_.sessions[2].returning_classes == ("red", "yellow")
    model.unmerge(sums)  # then this session was the one that brought yellow
    session = model.model_.sessions[1]
    assert (session.new_classes, session.returning_classes) == (("yellow",), ("red",))
    assert session.n_classes == len(model.classes_) == 4
    assert model.model_.events[-1].said == f"took out site {sums.site} (4 images)"


def test_what_a_site_sends_names_no_class_that_was_renamed_or_forgotten(place, tmp_path):
    site = ImageClassifier.load(place / "site.visvm", cache=False)
    site.learn(place / "more")
    site.rename_class("yellow", "secret")
    (report,) = site.model_.sessions
    worst = SessionEstimate(4, 0.5, worst=(ClassEstimate("secret", 2, 0.0),))
    site.model_ = replace(site.model_, sessions=(replace(report, estimate=worst),))
    site.rename_class("secret", "gold")
    assert site.model_.sessions[0].estimate.worst[0].label == "gold"
    SiteStatistics(site.model_).save(tmp_path / "a.sums", reveal_features=True)
    assert b"secret" not in (tmp_path / "a.sums").read_bytes()


def test_a_rename_to_the_same_name_is_no_change(model):
    assert changes.renamed(model.model_, "red", "red", merge=True).events == ()


def test_sessions_after_a_site_that_is_gone_know_fewer_classes(place, model, sums):
    model.merge(sums)
    model.learn(place / "photos")
    assert model.model_.sessions[2].n_classes == 4
    model.unmerge(sums)
    assert [each.n_classes for each in model.model_.sessions] == [3, 3]
