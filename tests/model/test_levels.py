"""Labels with "/": groups, their probabilities and their sums, and answers on the level allowed."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import tiny
from tests.refusals import refused
from visvm import ImageClassifier, IncrementalLSSVC
from visvm.errors import InputError
from visvm.model.levels import Levels

LABELS = ("cold/green", "cold/blue/dark", "cold/blue/light", "warm")
COLOURS = dict(zip(LABELS, ("green", "blue", "blue", "red"), strict=True))


def slow_answer(classes, row, sure):
    """By the texts of the labels alone: from the top, the likeliest beginning while it is sure."""
    answer, found = "", 1.0
    while True:
        inside = [c for c in classes if not answer or c.startswith(f"{answer}/")]
        begins = {c[len(answer) :].strip("/").split("/")[0] for c in inside}
        if not begins:
            return answer, found
        options = {}
        for begin in begins:
            name = f"{answer}/{begin}".strip("/")
            below = [p for c, p in zip(classes, row, strict=True) if f"{c}/".startswith(f"{name}/")]
            options[name] = sum(below), len(below)
        best = max(sorted(options), key=lambda name: options[name][0])
        if answer and options[best][0] < sure:
            return answer, found
        answer, (found, n) = best, options[best]
        if n == 1:
            return next(c for c in classes if f"{c}/".startswith(f"{answer}/")), found


@settings(max_examples=60)
@given(
    labels=st.sets(
        st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join),
        min_size=1,
        max_size=9,
    ),
    seed=st.integers(0, 2**32 - 1),
    sure=st.floats(0.05, 1.0),
)
def test_the_answer_is_the_likeliest_beginning_that_is_sure(labels, seed, sure):
    classes = sorted(labels)
    row = np.random.default_rng(seed).dirichlet(np.full(len(classes), 0.5))
    ((label, probable),) = Levels(classes).answers(row[None], sure)
    wanted, by = slow_answer(classes, row, sure)
    assert (label, probable) == (wanted, pytest.approx(by))


@pytest.mark.parametrize(
    "classes", [["a", "b"], ["n/a", "yes"], ["/", "//", "a//b", "a//c", "a/", "a/ /b"], [1, 2], []]
)
def test_what_is_no_group_stays_as_it_is(classes):
    assert Levels(classes).groups == ()


def test_a_label_of_very_many_levels_is_no_burden():
    deep = "/".join("a" * 3000)
    levels = Levels([f"{deep}/b", f"{deep}/c"])
    assert levels.answers(np.array([[0.1, 0.9]]), 0.6) == [(f"{deep}/c", 0.9)]


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), width=st.sampled_from([None, 8, 60]))
def test_the_sums_of_a_group_are_those_of_its_classes(seed, width):
    """A classifier of groups needs no photo: its sums, and so its scores, are there already."""
    generator = np.random.default_rng(seed)
    X, y = generator.normal(size=(40, 4)), generator.choice(LABELS, 40)
    y[: len(LABELS)] = LABELS
    how = {"n_components": width, "ridge": float(10.0 ** generator.uniform(-1, 2))}
    species = IncrementalLSSVC(**how).fit(X, y)
    genera = IncrementalLSSVC(**how).fit(X, np.array([label.split("/")[0] for label in y]))
    sums = species.head_.statistics
    members = [[str(c).split("/")[0] == group for c in sums.classes] for group in genera.classes_]
    added = np.stack([sums.class_sums[:, inside].sum(axis=1) for inside in members], axis=1)
    assert genera.head_.statistics.class_sums == pytest.approx(added)
    for label in LABELS:
        species.rename_class(label, label.split("/")[0], merge=True)
    assert species.decision_function(X) == pytest.approx(genera.decision_function(X), abs=1e-6)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model whose two kinds of blue are the same photos, and other photos of each colour."""
    folder = tmp_path_factory.mktemp("levels")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "photos", n=12)
    files, labels = [], []
    for label, colour in COLOURS.items():
        own = sorted((folder / "photos" / colour).iterdir())
        files, labels = files + own, labels + [label] * len(own)
    given = {"n_components": 100, "cache": False, "layers": (3,), "ridge": 10.0}
    model = ImageClassifier(str(folder / "tiny.onnx"), **given)
    model.learn(files, labels)
    model.save(folder / "m.visvm")
    tiny.write_photos(folder / "new", n=4, seed=5)
    return folder


def test_where_it_cannot_tell_the_answer_is_the_group(place):
    model = ImageClassifier.load(place / "m.visvm", cache=False)
    blue = model.predict(sorted((place / "new/blue").iterdir()))
    assert {each.level for each in blue} == {"cold/blue"}
    for each in blue:
        by = dict(each.top)
        assert each.level_score == pytest.approx(by["cold/blue/dark"] + by["cold/blue/light"])
        assert each.level_score >= 0.6
    red = model.predict(sorted((place / "new/red").iterdir()))
    assert {(each.level, each.level == each.label) for each in red} == {("warm", True)}
    certain = model.predict(sorted((place / "new/blue").iterdir()), sure=1.0)
    assert {each.level for each in certain} == {"cold"}
    bold = model.predict(sorted((place / "new/blue").iterdir()), sure=0.01)
    assert all(each.level == each.label for each in bold)
    raw = model.predict(place / "new/blue" / "5-0.png", raw=True)
    assert raw[0].level_score == pytest.approx(blue[0].level_score)
    for wrong in (0.0, -1.0, 1.1, float("nan")):
        with refused("parameter-sure", InputError):
            model.predict(place / "new/red/5-0.png", sure=wrong)


def test_the_command_line_answers_with_the_group(place, visvm):
    given = ("predict", place / "m.visvm", place / "new/blue/5-0.png", "--no-cache")
    assert ": cold/blue 8" in visvm(*given)[1]
    said = json.loads(visvm(*given, "--json")[1])
    assert (said["level"], said["label"].startswith("cold/blue/")) == ("cold/blue", True)
    assert ": cold/blue/" in visvm(*given, "--sure", "1%")[1]
    for wrong in ("60", "off", "0%", "no%"):
        outcome = visvm(*given, "--sure", wrong)
        assert (outcome[0], outcome.error_code) == (2, "sure-share")


def test_classes_without_groups_have_no_level(place, tmp_path, visvm):
    tiny.write_model(tmp_path)
    path = tmp_path / "photos/red/0-0.png"
    (answer,) = ImageClassifier.load(tmp_path / "m.visvm", cache=False).predict(path)
    assert (answer.level, answer.level_score) == (None, None)
    out = visvm("predict", tmp_path / "m.visvm", path, "--no-cache")[1]
    assert out.count("%") == 3
