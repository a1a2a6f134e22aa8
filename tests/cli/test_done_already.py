"""A command that was killed after its last step is given again: it is known, and not done twice."""

import json
from pathlib import Path

import pytest

from tests import tiny
from tests.model.raw import contents
from visvm import ImageClassifier

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def model(tmp_path, monkeypatch):
    """m.visvm, which has learned photos twice and more of them once; a.sums are for it."""
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    classifier = tiny.write_model(tmp_path)
    tiny.write_photos(tmp_path / "more", ("yellow", "red"), n=2, seed=1)
    for folder in ("photos", "more"):
        classifier.learn(folder)
    path = Path("m.visvm")
    classifier.save(path)
    classifier.export_for_site("a.visvm")
    ImageClassifier.load("a.visvm", cache=False).learn_statistics("more").save(
        "a.sums", reveal_features=True
    )
    return path


COMMANDS = {
    "forget": ("forget", "m.visvm", "photos"),
    "forget-class": ("forget-class", "m.visvm", "red"),
    "rename-class": ("rename-class", "m.visvm", "red", "rot"),
    "rename-class --merge": ("rename-class", "m.visvm", "red", "blue", "--merge"),
    "merge": ("merge", "out.visvm", "m.visvm", "a.sums"),
    "merge --force": ("merge", "m.visvm", "m.visvm", "a.sums", "--force"),
    "export": ("export", "m.visvm", "out.visvm"),
    "export OUT.onnx": ("export", "m.visvm", "out.onnx"),
    "export --for-site": ("export", "m.visvm", "--for-site", "out.visvm"),
}


@pytest.mark.parametrize("given", COMMANDS.values(), ids=COMMANDS)
def test_the_same_command_again_changes_nothing(visvm, given, tmp_path):
    assert visvm(*given)[0] == 0
    before = {path: path.read_bytes() for path in tmp_path.glob("*.*")}
    code, out, err = visvm(*given)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert "already done; nothing changed" in out
    said = json.loads(visvm(*given, "--json")[1])
    assert said["already_done"] is True
    assert {path: path.read_bytes() for path in tmp_path.glob("*.*")} == before
    if "--for-site" in given:
        assert said["site"] == contents(tmp_path / "out.visvm")[0]["site"]


def counts():
    model = ImageClassifier.load("m.visvm")
    return dict(zip(model.classes_, model.class_counts_, strict=True))


def test_photos_can_be_forgotten_twice_on_purpose(visvm, model):
    assert counts() == {"blue": 4, "green": 4, "red": 6, "yellow": 2}
    assert visvm("forget", model, "photos")[0] == 0
    assert "--again" in visvm("forget", model, "photos")[1]
    assert visvm("forget", model, "photos", "--again")[0] == 0
    assert counts() == {"red": 2, "yellow": 2}


@pytest.mark.parametrize("between", [("learn", "m.visvm", "photos"), COMMANDS["rename-class"]])
def test_after_another_change_it_is_done(visvm, model, between):
    assert visvm("forget", model, "more")[0] == 0
    assert visvm(*between)[0] == 0
    outcome = visvm("forget", model, "more")
    assert (outcome[0], outcome.error_code) == (2, "class-never-learned")


def test_after_a_change_in_python_it_is_done(visvm, model):
    assert visvm("forget", model, "photos")[0] == 0
    changed = ImageClassifier.load(model, cache=False)
    changed.forget("more")
    changed.save(model)
    assert visvm("forget", model, "photos")[0] == 0
    assert counts() == {}


def test_other_files_are_merged_or_in_the_way(visvm, model):
    assert visvm("merge", "out.visvm", model, "a.sums")[0] == 0
    visvm("rename-class", model, "red", "rot")
    outcome = visvm("merge", "out.visvm", model, "a.sums")
    assert (outcome[0], outcome.error_code) == (2, "file-exists")
    assert visvm("merge", "out.visvm", model, "a.sums", "--force")[0] == 0
    for given in (("export", model, "out.visvm"), ("export", model, "--for-site", "a.sums")):
        assert visvm(*given).error_code == "file-exists"


def test_files_for_others_do_not_tell_what_was_done(visvm, model):
    visvm("forget", model, "photos")
    assert "change" in contents(model)[0]
    visvm("export", model, "small.visvm")
    visvm("export", model, "--for-site", "site.visvm")
    for name in ("small.visvm", "site.visvm"):
        assert "change" not in contents(Path(name))[0]
    visvm("learn", model, "photos")
    assert "change" not in contents(model)[0]
