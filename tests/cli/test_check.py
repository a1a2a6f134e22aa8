"""``visvm check``: the table, the page, the fix list, and what ``learn`` makes of it."""

import csv
import json
import re

import pytest

from tests import tiny
from visvm import ImageClassifier
from visvm.cli.gallery import PhotoCard, PhotoSection, write_page

LEARN = ("--encoder", "tiny.onnx", "--components", 20, "--ridge", 1, "--transform", "squash")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Photos among which one has the wrong label, one is there twice, and one is no photo."""
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    tiny.write_encoder(tmp_path)
    photos = tiny.write_photos(tmp_path / "photos", n=10)
    (photos / "red" / "0-3.png").rename(photos / "green" / "wrong.png")
    (photos / "blue" / "copy.png").write_bytes((photos / "blue" / "0-5.png").read_bytes())
    (photos / "blue" / "no <b>photo.png").write_bytes(b"nothing")
    return tmp_path


def test_a_fix_list_has_a_name_that_learn_knows(visvm, folder):
    code, out, err = visvm("check", "photos", "--encoder", "tiny.onnx", "--fix-list", "fixes")
    assert (code, out, err) == (2, "", "visvm: fixes would be a CSV file. Call it fixes.csv.\n")
    assert not (folder / "fixes").exists()


def test_one_is_not_several(visvm, folder):
    (folder / "one" / "red").mkdir(parents=True)
    photo = sorted((folder / "photos" / "red").iterdir())[0]
    photo.rename(folder / "one" / "red" / photo.name)
    out = visvm("check", "one", "--encoder", "tiny.onnx")[1]
    assert "1 image of 1 class: " in out


def test_the_fix_list_is_what_learn_should_have_had(visvm, folder):
    given = ("check", "photos", "--encoder", "tiny.onnx", "--fix-list", "fixes.csv")
    code, out, err = visvm(*given)
    assert code == 0
    assert "1 label looks wrong" in out
    assert "1 photo is there more than once" in out
    assert "1 file is not readable" in out
    assert "fixes.csv" in err
    with open("fixes.csv", newline="") as file:
        rows = {row["path"]: row for row in csv.DictReader(file)}
    assert len(rows) == 32
    assert rows["photos/green/wrong.png"]["label"] == "red"
    assert rows["photos/green/wrong.png"]["was"] == "green"
    assert rows["photos/blue/copy.png"]["label"] == ""
    assert rows["photos/blue/no <b>photo.png"]["label"] == ""
    assert visvm("learn", "m.visvm", "fixes.csv", *LEARN)[0] == 0
    known = json.loads(visvm("info", "m.visvm", "--json")[1])
    assert known["classes"] == {"blue": 10, "green": 10, "red": 10}
    code, out, err = visvm(*given)
    assert code == 2
    assert "--force" in err
    assert visvm(*given, "--force", "--model", "m.visvm")[0] == 0


def rows_of(table):
    with open(table, newline="") as file:
        return {row["path"]: row for row in csv.DictReader(file)}


def test_a_content_has_one_label_once_after_it_was_corrected(visvm, folder):
    twice = folder / "photos" / "red" / "twice.png"
    twice.write_bytes((folder / "photos" / "blue" / "0-7.png").read_bytes())
    given = ("check", "photos", "--encoder", "tiny.onnx", "--fix-list", "fixes.csv", "-q")
    assert visvm(*given)[0] == 0
    row = rows_of("fixes.csv")["photos/red/twice.png"]
    assert (row["label"], row["was"]) == ("", "red")
    assert "left out: the same photo as photos/blue/0-7.png" in row["why"]


def test_no_cell_is_a_formula(visvm, folder):
    (folder / "photos" / "blue").rename(folder / "photos" / "=SUM(1)")
    given = ("check", "photos", "--encoder", "tiny.onnx", "--fix-list", "photos/fixes.csv")
    assert visvm(*given)[0] == 0
    rows = rows_of("photos/fixes.csv")
    assert rows["'=SUM(1)/0-1.png"]["label"] == rows["'=SUM(1)/0-1.png"]["was"] == "'=SUM(1)"
    assert visvm("learn", "m.visvm", "photos/fixes.csv", *LEARN)[0] == 0
    known = json.loads(visvm("info", "m.visvm", "--json")[1])
    assert known["classes"] == {"=SUM(1)": 10, "green": 10, "red": 10}
    table = visvm("predict", "m.visvm", "photos/=SUM(1)/0-1.png", "--csv", "-q")[1]
    assert table.splitlines()[1].startswith("photos/=SUM(1)/0-1.png,'=SUM(1),")


def test_photos_that_arrive_meanwhile_shift_no_labels(visvm, folder, monkeypatch):
    check = ImageClassifier.check

    def later(self, *given, **options):
        blue = folder / "photos" / "blue"
        (blue / "0-0 arrived.png").write_bytes((blue / "0-0.png").read_bytes())
        return check(self, *given, **options)

    monkeypatch.setattr(ImageClassifier, "check", later)
    given = ("check", "photos", "--encoder", "tiny.onnx", "--fix-list", "fixes.csv", "-q")
    assert visvm(*given)[0] == 0
    rows = rows_of("fixes.csv")
    assert rows["photos/green/wrong.png"]["label"] == "red"
    assert rows["photos/blue/copy.png"]["why"].startswith("left out: the same photo")


def test_a_page_replaces_nothing_unasked(visvm, folder):
    photo = folder / "photos" / "red" / "0-1.png"
    before = photo.read_bytes()
    (folder / "page.html").write_text("mine")
    for out, advice in ((photo, "0-1.html"), ("page.html", "--force")):
        code, _, err = visvm("check", "photos", "--encoder", "missing.onnx", "--html", out)
        assert code == 2
        assert advice in err
    assert photo.read_bytes() == before
    assert (folder / "page.html").read_text() == "mine"
    code, _, err = visvm("evaluate", "m.visvm", "photos", "--html", photo)
    assert code == 2
    assert "0-1.html" in err


def test_json_has_all_that_was_found(visvm):
    code, out, _ = visvm("check", "photos", "--encoder", "tiny.onnx", "--json", "-q")
    found = json.loads(out)
    assert code == 0
    assert (found["n"], found["n_classes"]) == (32, 3)
    assert [each["path"] for each in found["unreadable"]] == ["photos/blue/no <b>photo.png"]
    wrong = found["mislabelled"][0]
    assert (wrong["path"], wrong["label"], wrong["suggested"]) == (
        "photos/green/wrong.png",
        "green",
        "red",
    )


def test_the_page_has_the_photos_and_nothing_from_elsewhere(visvm, folder):
    assert visvm("check", "photos", "--encoder", "tiny.onnx", "--html", "out.html", "-q")[0] == 0
    page = (folder / "out.html").read_text()
    assert page.count('src="data:image/jpeg;base64,') >= 3
    assert "no &lt;b&gt;photo.png" in page
    assert "<b>photo" not in page
    assert not re.search(r"https?://|<script|url\(", page)


def test_a_page_escapes_whatever_it_is_given(folder):
    nasty = '"><script>alert(1)</script>\x1b[2J'
    parts = [
        PhotoSection(nasty, nasty, [[PhotoCard(nasty, nasty, nasty, nasty)]], [nasty], [[nasty]]),
        PhotoSection("left out"),
    ]
    write_page(folder / "page.html", nasty, nasty, [nasty], parts)
    page = (folder / "page.html").read_text()
    assert "<script" not in page
    assert "\x1b" not in page
    assert "left out" not in page
    assert "no picture" in page


def test_what_is_wrong_is_said_in_one_line(visvm):
    for given in (("nothing",), ("photos", "--model", "missing.visvm")):
        code, _, err = visvm("check", *given)
        assert code == 2
        assert len(err.splitlines()) == 1
