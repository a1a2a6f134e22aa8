"""Nothing that a file says about itself can steer a terminal."""

import json
import re
from pathlib import Path

import pytest

from tests import tiny
from tests.model.raw import rewrite
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.cli.terminal import out, print_json, table
from visvm.errors import InputError, escaped
from visvm.model import file as model_file
from visvm.model.labels import check_label

NASTY = "re\x1b]0;title\x07d\u202egnp.exe\x9b31m\u2066"
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
GOOD = ("鷺", "عصفور", "می‌خواهم", "👩‍🔬", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "café", "re\u200dd", "❤️")
MARKS = ("re\u200ed", "\u200fred", "red\u061c", "re\u206ed")
INVISIBLE = ("\u200b", "\u2060\u200d", "\u3164", "\u00ad \ufeff", "\u2800", "\ufe0f", "\u180e")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shown")
    tiny.write_model(folder)
    return folder


@pytest.fixture
def nasty(made, tmp_path, monkeypatch):
    """A model file with such names everywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "m.visvm"
    path.write_bytes((made / "m.visvm").read_bytes())
    merged = {"id": "0" * 16, "merged_at": "2026-01-01", "n_images": 1, "digest": "", "file": NASTY}

    def spoil(header, _):
        header["classes"][2] = NASTY  # red
        header["encoder"]["name"] = f"{made}/{NASTY}.onnx"
        header["sessions"][0].update(skipped=[NASTY], new_classes=[NASTY])
        header["merged"] = [{**merged, "labels": [NASTY]}]

    rewrite(path, spoil)
    return path


def test_names_in_a_model_file_are_escaped_on_the_terminal(visvm, nasty, made):
    encoder, photos = made / "tiny.onnx", made / "photos"
    for arguments in (
        ("info", nasty),
        ("info", nasty, "--json"),
        ("predict", nasty, photos / "red", "--encoder", encoder),
        ("predict", nasty, photos / "red", "--encoder", encoder, "--json"),
        ("predict", nasty, photos / "red"),  # its encoder is not there: an error that names it
        ("evaluate", nasty, photos, "--encoder", encoder),
        ("forget-class", nasty, "nothing"),
    ):
        _, said, err = visvm(*arguments)
        assert not STEERING.search(said + err), arguments
        assert "title" in said + err or "evaluate" in arguments


def test_json_still_gives_the_names_themselves(visvm, nasty):
    described = json.loads(visvm("info", nasty, "--json")[1])
    assert NASTY in described["classes"]
    assert described["merged"][0]["file"] == NASTY


def test_image_files_are_escaped(visvm, nasty, made, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / f"{NASTY.replace('/', '')}.png").write_bytes(b"no image")
    good = folder / "\x1b[31m\nred.png"
    good.write_bytes(next((made / "photos/red").iterdir()).read_bytes())
    code, said, err = visvm("predict", nasty, folder, "--encoder", made / "tiny.onnx")
    assert (code, said.count("\n"), err.count("\n")) == (2, 1, 1)
    assert not STEERING.search(said + err)


def test_tables_notes_and_json_are_escaped(capsys):
    out().print(table("x", ["class"], [(NASTY + "\nnext",)]))
    out().print(NASTY, markup=False)
    print_json({NASTY: [NASTY]})
    said = capsys.readouterr().out
    assert not STEERING.search(said)
    assert json.loads(said[said.index("{") :]) == {NASTY: [NASTY]}


@pytest.mark.parametrize("label", GOOD)
def test_ordinary_names_stay_as_they_are(label, capsys):
    assert check_label(label, "a file") == label
    assert escaped(label) == label
    out().print(label, markup=False)
    assert capsys.readouterr().out == f"{label}\n"


@pytest.mark.parametrize("label", INVISIBLE)
def test_a_name_that_cannot_be_seen_is_refused(label):
    with refused("label-empty", InputError):
        check_label(label, "a file")


@pytest.mark.parametrize("label", MARKS)
def test_a_name_with_marks_of_direction_is_refused_and_shown_escaped(label):
    with refused("label-unprintable", InputError):
        check_label(label, "a file")
    assert escaped(label).isascii()


def test_an_old_file_with_such_a_label_loads_and_it_can_be_renamed(nasty, visvm):
    assert NASTY in model_file.read(nasty).classes.tolist()
    model = ImageClassifier.load(nasty)
    model.model_ = model_file.read(nasty)
    assert visvm("rename-class", nasty, NASTY, "red")[0] == 0
    assert "red" in model_file.read(nasty).classes.tolist()


def test_but_it_is_not_merged_into_another_model(visvm, nasty, made):
    outcome = visvm("merge", "out.visvm", made / "m.visvm", nasty)
    assert (outcome[0], outcome.error_code) == (2, "label-unprintable")
    assert not Path("out.visvm").exists()


@pytest.mark.parametrize("moment", ["\x1b[2J", "today", 5, "2026-01-01T00:00:00" * 9])
def test_a_date_must_be_one(nasty, visvm, moment):
    rewrite(nasty, lambda header, _: header["sessions"][0].update(learned_at=moment))
    assert visvm("info", nasty).error_code == "file-altered"
    rewrite(nasty, lambda header, _: header["sessions"][0].update(learned_at="2026-01-01"))
    rewrite(nasty, lambda header, _: header["merged"][0].update(merged_at=moment))
    assert visvm("info", nasty).error_code == "file-altered"
