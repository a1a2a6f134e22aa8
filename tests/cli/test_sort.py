"""``visvm sort``, ``predict --csv``, and what ``evaluate`` says of single photos."""

import csv
import errno
import io
import json
import os
from pathlib import Path

import pytest

from tests import tiny
from tests.refusals import refused
from visvm import InputError
from visvm.cli import sort
from visvm.cli.sort import NONE, Move, carry_out, folder_names


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sort")
    tiny.write_model(folder)
    new = tiny.write_photos(folder / "new", n=2, seed=3)
    (new / "deeper").mkdir()
    (new / "deeper" / "3-0.png").write_bytes((new / "blue" / "3-1.png").read_bytes())
    return folder


@pytest.fixture(autouse=True)
def here(made, tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(made / "cache"))
    monkeypatch.chdir(tmp_path)
    for name in ("m.visvm", "new", "tiny.onnx", "tiny.onnx.json", "photos"):
        os.symlink(made / name, tmp_path / name)


def tree(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("kind", ["link", "file"])
def test_photos_are_not_written_through_a_link_or_a_file(visvm, tmp_path, kind):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    if kind == "link":
        (tmp_path / "out/red").symlink_to(tmp_path / "elsewhere")
    else:
        (tmp_path / "out/red").write_text("mine")
    code, out, _ = visvm("sort", "m.visvm", "new", "out", "--unknown", "off", "--yes", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "folder-is-link")
    assert os.listdir("out") == ["red"]
    assert os.listdir("elsewhere") == []


def test_a_name_is_no_markup(visvm):
    code, out, err = visvm("sort", "m.visvm", "new", "[/x]", "--unknown", "off", "--dry-run")
    assert code == 0, err
    assert "copies to make in [/x]" in out


def test_what_is_read_is_not_written_over(visvm, tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text("photo.csv,red\nphotos/blue/0-0.png,blue\n")
    (tmp_path / "photo.csv").write_bytes((tmp_path / "photos/red/0-0.png").read_bytes())
    (tmp_path / "model").write_bytes((tmp_path / "m.visvm").read_bytes())
    (tmp_path / "a.png").write_bytes((tmp_path / "photos/red/0-0.png").read_bytes())
    (tmp_path / "link.html").symlink_to(table)
    names = ("mine.csv", "model", "a.png", "tiny.onnx", "tiny.onnx.json", "photos/red/0-0.png")
    before = {name: (tmp_path / name).read_bytes() for name in (*names, "photo.csv")}
    for words in (
        ("card", "model", "--out", "model"),
        ("explain", "model", "a.png", "--out", "a.png"),
        ("check", "mine.csv", "--model", "model", "--fix-list", "model"),
        ("check", "mine.csv", "--model", "model", "--fix-list", "mine.csv"),
        ("check", "mine.csv", "--model", "model", "--fix-list", "photo.csv"),
        ("card", "model", "--test", "photos", "--out", "photos/red/0-0.png"),
        ("card", "model", "--out", "tiny.onnx"),
        ("evaluate", "model", "photos", "--plot", "photos/red/0-0.png"),
        ("evaluate", "model", "mine.csv", "--html", "link.html"),
        ("predict", "model", "a.png", "--every", "1s", "--plot", "a.png"),
        ("export", "model", "tiny.onnx", "--encoder", "tiny.onnx"),
    ):
        forced = () if words[0] == "predict" else ("--force",)
        outcome = visvm(*words, *forced)
        assert (outcome[0], outcome.error_code) == (2, "output-is-input"), words
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_photos_go_into_a_folder_for_every_answer(visvm):
    code, out, _ = visvm("sort", "m.visvm", "new", "out", "--unknown", "off", "--dry-run")
    assert code == 0
    assert "copies to make" in out
    assert not os.path.exists("out")
    code, out, err = visvm("sort", "m.visvm", "new", "out", "--unknown", "off")
    assert code == 2
    assert "copies to make" in out
    assert "--yes" in err
    assert not os.path.exists("out")
    said = visvm("sort", "m.visvm", "new", "out", "--unknown", "off", "--json")
    assert said[0] == 2
    assert json.loads(said[1])["error"]["code"] == "yes-missing"
    assert not os.path.exists("out")
    given = ("sort", "m.visvm", "new", "out", "--unknown", "off", "--yes")
    assert visvm(*given)[0] == 0
    found = tree("out")
    assert sorted(found) == [
        *("blue/3-0 (2).png", "blue/3-0.png", "blue/3-1.png"),
        *("green/3-0.png", "green/3-1.png", "red/3-0.png", "red/3-1.png"),
    ]
    assert found["blue/3-0 (2).png"] == found["blue/3-1.png"]
    code, out, _ = visvm(*given, "--json")
    assert json.loads(out)["done"] == 0  # all are there already
    assert tree("out") == found


def test_nothing_is_ever_replaced(visvm):
    os.makedirs("out/red")
    Path("out/red/3-0.png").write_bytes(b"mine")
    given = ("sort", "m.visvm", "new", "out", "--unknown", "off", "--yes")
    for _ in range(2):
        assert visvm(*given)[0] == 0
        found = tree("out")
        assert found["red/3-0.png"] == b"mine"
        assert len([name for name in found if name.startswith("red/")]) == 3


@pytest.mark.parametrize("links", [True, False])
def test_what_comes_while_it_copies_is_not_replaced(tmp_path, monkeypatch, links):
    source, target = tmp_path / "a.png", tmp_path / "out" / "a.png"
    source.write_bytes(b"photo")
    move = Move(str(source), str(target), "red", unknown=False, there=False)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    carry_out([move], link=False)
    assert tree(tmp_path / "out") == {"a.png": b"photo"}
    target.write_bytes(b"mine")
    monkeypatch.setattr(os.path, "lexists", lambda path: False)  # it comes after any look
    with refused("file-exists", InputError):
        carry_out([move], link=False)
    assert tree(tmp_path / "out") == {"a.png": b"mine"}


def no_links(*paths):
    raise PermissionError(errno.EPERM, "Operation not permitted")


def test_photos_with_long_names(visvm):
    long = "x" * 248 + ".png"
    for folder, place in (("a", 0), ("b", 1)):
        os.makedirs(f"long/{folder}")
        photo = sorted(Path("new/red").iterdir())[place]
        Path(f"long/{folder}/{long}").write_bytes(photo.read_bytes())
    given = ("sort", "m.visvm", "long", "out", "--unknown", "off", "--yes")
    for done in (2, 0):
        code, out, _ = visvm(*given, "--json")
        assert (code, json.loads(out)["done"]) == (0, done)
    names = [Path(name).name for name in tree("out")]
    assert sorted(names) == ["x" * 247 + " (2).png", long]


@pytest.mark.parametrize(
    "out", ["x" * 300, "/".join(["y" * 200] * 25), "/".join([*["y" * 200] * 20, "z" * 66])]
)
def test_a_path_that_is_too_long(visvm, out):
    # a name, the folder, and only what would be in it
    code, said, _ = visvm("sort", "m.visvm", "new", out, "--yes", "--json")
    assert code == 2
    assert json.loads(said)["error"]["code"] == "target-too-long"
    assert not os.path.exists(out.split("/")[0])


def test_a_folder_on_another_drive_is_not_inside(visvm, monkeypatch):
    def of_two_drives(paths):
        raise ValueError("Paths don't have the same drive")

    monkeypatch.setattr(os.path, "commonpath", of_two_drives)
    assert visvm("sort", "m.visvm", "new", "out", "--yes", "--quiet")[0] == 0


def test_links_and_photos_of_nothing_known(visvm):
    given = ("sort", "m.visvm", "new", "out", "--unknown", "99%", "--link", "-y")
    assert visvm(*given)[0] == 0
    links = [path for path in Path("out").rglob("*") if path.is_symlink()]
    assert len(links) == 7
    assert os.path.exists(f"out/{NONE}")
    assert all(path.read_bytes() for path in links)
    assert visvm(*given, "--json")[1].count('"there": true') == 7


def test_what_cannot_be_sorted(visvm):
    Path("file").write_text("")
    for folder, output in (("new", "new/out"), ("new", "file"), ("empty", "out"), (".", ".")):
        code, _, err = visvm("sort", "m.visvm", folder, output, "--yes")
        assert code == 2
        assert len(err.splitlines()) == 1


def test_folder_names_stay_in_their_folder():
    labels = ["../x", "..", ".", "a/b", "a\\b", "x" * 300, "\u202e", "Owl", "owl", "nul.txt", 7]
    names = folder_names(labels)
    assert len({name.casefold() for name in names.values()}) == len(labels) + 1
    for name in names.values():
        assert not set(name) & set("/\\")
        assert name not in ("", ".", "..")
        assert len(name.encode()) < 256


def test_predictions_as_a_table(visvm):
    code, out, _ = visvm("predict", "m.visvm", "new", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert list(rows[0]) == ["path", "label", "score", "known", "unknown"]
    answers = [
        json.loads(line) for line in visvm("predict", "m.visvm", "new", "--json")[1].splitlines()
    ]
    assert [row["path"] for row in rows] == [each["path"] for each in answers]
    assert [float(row["score"]) for row in rows] == [each["score"] for each in answers]
    assert visvm("predict", "m.visvm", "new", "--csv", "--json")[0] == 2


def test_a_table_steers_no_terminal_and_always_has_a_header(visvm, monkeypatch):
    name = "red\x1b[2J.png"
    os.mkdir("odd")
    Path("odd", name).write_bytes(sorted(Path("new/red").iterdir())[0].read_bytes())
    assert name in visvm("predict", "m.visvm", "odd", "--csv")[1]
    with monkeypatch.context() as on_a_terminal:
        on_a_terminal.setattr("visvm.cli.ask.sys.stdout.isatty", lambda: True)
        said = visvm("predict", "m.visvm", "odd", "--csv", "--quiet")[1]
    assert "\x1b" not in said
    assert "red" in said
    Path("broken.png").write_text("no image")
    code, out, _ = visvm("predict", "m.visvm", "broken.png", "--csv")
    assert (code, out) == (2, "path,label,score,known,unknown\n")
    said = visvm("predict", "m.visvm", "new", "--csv", "--top", "3")
    assert (said[0], said.error_code) == (2, "option-csv-or-top")


def test_wrong_answers_are_named(visvm):
    """One photo of blue lies among those of red."""
    os.mkdir("test")
    for label in ("red", "green"):
        os.symlink(os.path.abspath(f"photos/{label}"), f"test/{label}")
    os.mkdir("test/blue")
    name = sorted(os.listdir("photos/red"))[0]
    Path("test/blue/odd.png").write_bytes(Path(f"photos/red/{name}").read_bytes())
    code, out, _ = visvm("evaluate", "m.visvm", "test", "--json", "--html", "out.html")
    found = json.loads(out)
    assert code == 0
    (wrong,) = found["wrong"]
    assert (wrong["path"], wrong["label"], wrong["predicted"]) == (
        "test/blue/odd.png",
        "blue",
        "red",
    )
    assert 0 < wrong["score"] <= 1
    assert isinstance(found["n_unknown"], int)
    again = ("evaluate", "m.visvm", "test", "--html", "out.html", "--quiet")
    said = visvm(*again)
    assert (said[0], said.error_code) == (2, "file-exists")
    assert visvm(*again, "--force")[0] == 0
    page = Path("out.html").read_text()
    assert page.count('src="data:image/jpeg;base64,') == 1
    assert "answer: " in page
    out = visvm("evaluate", "m.visvm", "test", "--wrong")[1]
    assert "test/blue/odd.png" in out
    assert "'none of these' would be said of" in out
    assert "test/blue/odd.png" not in visvm("evaluate", "m.visvm", "test")[1]


def test_interrupted_it_keeps_what_is_sorted_and_resumes(visvm, monkeypatch):
    copy, n = sort._copy, len(tree("new"))

    def cut_off(source, target):
        copy(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(sort, "_copy", cut_off)
    code, _, err = visvm("sort", "m.visvm", "new", "out", "--yes", "--quiet")
    assert (code, len(tree("out"))) == (130, 1)
    said = "photos sorted so far are kept; run the same command again to resume"
    assert err == f"visvm: interrupted; {said}\n"
    monkeypatch.setattr(sort, "_copy", copy)
    assert visvm("sort", "m.visvm", "new", "out", "--yes", "--quiet")[0] == 0
    assert len(tree("out")) == n
