"""Mistakes that used to pass in silence, or to be named in words of Python."""

import json
import re

import pytest

from tests import tiny

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    tiny.write_model(tmp_path)  # of the photos beside it: red, green, blue
    return tmp_path


def refused(outcome, code, *facts):
    exit_code, out, err = outcome
    assert (exit_code, out, outcome.error_code) == (2, "", code), err
    assert err.count("\n") == 1
    for fact in facts:
        assert fact in err
    assert not re.search(r"\w_\w*=|samples|strings|\(\w+=", err)


def test_folders_of_folders_need_a_word_with_every_command_that_reads_labels(visvm, place):
    for breed in ("beagle", "pug"):
        tiny.write_photos(place / "more" / "dogs", (tiny_colour := "red",), n=2)
        (place / "more/dogs" / tiny_colour).rename(place / "more/dogs" / breed)
    for command in ("learn", "evaluate", "forget"):
        refused(
            visvm(command, "m.visvm", "more"),
            "folder-nested",
            "--top-level if the classes are dogs, or --nested if they are dogs/beagle, dogs/pug",
        )
    assert visvm("learn", "m.visvm", "more", "--nested", "--quiet")[0] == 0
    found = json.loads(visvm("evaluate", "m.visvm", "more", "--nested", "--json")[1])
    assert set(found["per_class"]) == {"dogs/beagle", "dogs/pug"}
    assert "forgot 4 images" in visvm("forget", "m.visvm", "more", "--nested")[1]
    assert visvm("learn", "m.visvm", "more", "--top-level", "--quiet")[0] == 0
    assert "dogs" in json.loads(visvm("info", "m.visvm", "--json")[1])["classes"]


def test_a_test_folder_of_other_classes_is_refused(visvm, place):
    tiny.write_photos(place / "more", ("yellow",), n=2)
    before = (place / "m.visvm").read_bytes()
    (place / "other").mkdir()
    (place / "photos" / "red").rename(place / "other" / "Crimson")
    outcome = visvm("learn", "m.visvm", "more", "--test", "other")
    refused(outcome, "test-classes-unknown", "Crimson")
    assert (place / "m.visvm").read_bytes() == before


def test_one_class_alone_is_told_also_to_who_wants_quiet(visvm, place):
    tiny.write_photos(place / "more", ("yellow",), n=6)
    new = ("more", "--encoder", "tiny.onnx", "--components", 20, "--ridge", 1)
    for name, option in (("a.visvm", "--quiet"), ("b.visvm", "--json")):
        _, out, err = visvm("learn", name, *new, option)
        assert "a single class" in err
        assert "a single class" not in out
    _, _, err = visvm("learn", "c.visvm", *new)
    assert err.count("a single class") == 1


def test_the_closest_name_is_offered_for_a_class_that_is_not_there(visvm, place):
    for command in (("rename-class", "m.visvm", "Gren", "x"), ("forget-class", "m.visvm", "gren")):
        refused(visvm(*command), "class-unknown", "Did you mean 'green'?")
    refused(visvm("forget-class", "m.visvm", "owl"), "class-unknown", "Known: 'blue', 'green'")
    (place / "photos").rename(place / "held")
    (place / "held/red").rename(place / "held/redd")
    for name in ("blue", "green"):
        (place / "held" / name).rename(place / f"away {name}")
    refused(visvm("evaluate", "m.visvm", "held"), "classes-unknown", "Did you mean 'red'?")
    refused(visvm("forget", "m.visvm", "held"), "class-never-learned", "Did you mean 'red'?")


def test_photos_that_were_never_learned_are_called_photos(visvm, place):
    tiny.write_photos(place / "other", ("red", "green"), n=2, seed=9)
    refused(visvm("forget", "m.visvm", "other"), "samples-never-learned", "the very photos")


@pytest.mark.parametrize(
    "command",
    [
        ("export", "m.visvm", "m.pt"),
        ("export", "m.visvm", "--for-site", "site.json"),
        ("merge", "all.zip", "m.visvm", "m.visvm"),
        ("learn", "m.png", "photos"),
        ("learn", "new.onnx", "photos"),
        ("learn", "m.visvm", "photos", "--statistics-only", "sums.csv"),
    ],
)
def test_a_file_is_not_given_the_ending_of_another_form(visvm, place, command):
    before = {path.name for path in place.iterdir()}
    refused(visvm(*command), "ending-other", ".visvm")
    assert {path.name for path in place.iterdir()} == before


def test_help_names_flags_alone_and_daily_commands_first(visvm):
    for command in ((), ("learn",), ("forget",), ("cache", "clear")):
        _, out, _ = visvm(*command, "--help")
        assert "<bool>" not in out
    _, out, _ = visvm("--help")
    places = [out.index(f"│ {name} ") for name in ("learn", "predict", "forget", "merge", "bench")]
    assert places == sorted(places)
