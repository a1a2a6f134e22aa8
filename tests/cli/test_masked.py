"""``visvm masked``: a round of secure aggregation by files, as sites and collector type it."""

import json
import shutil

import pytest

from tests import tiny
from tests.cli.test_main import refused
from visvm import ImageClassifier
from visvm.model import rounds

pytestmark = pytest.mark.slow
SITES = {"north": ("yellow",), "south": ("red", "green"), "west": ("red", "blue")}


@pytest.fixture(scope="module")
def after_joining(tmp_path_factory):
    """A collector's model, and what three sites have when they have joined."""
    folder = tmp_path_factory.mktemp("masked")
    tiny.write_model(folder)
    for seed, (name, classes) in enumerate(SITES.items(), start=1):
        tiny.write_photos(folder / name, classes, n=4, seed=seed)
    return folder


@pytest.fixture
def place(after_joining, tmp_path, monkeypatch):
    shutil.copytree(after_joining, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def do(visvm):
    """Run a command that must go well; return what it printed."""

    def done(*words):
        code, out, err = visvm(*words)
        assert code == 0, err
        return out

    return done


@pytest.fixture
def joined(place, do):
    """Export and join for every site; make the roster, and the plain sums of every site."""
    for name in SITES:
        do("export", "m.visvm", "--for-site", f"{name}.visvm")
        do("masked", "join", f"{name}.visvm", name, f"{name}.key")
        plain = ("--statistics-only", f"{name}.sums", "--reveal-features")
        do("learn", f"{name}.visvm", name, *plain)
    do("masked", "roster", "m.visvm", "a.roster", *(f"{name}.card" for name in SITES))
    return place


def scores(path):
    model = ImageClassifier.load(path, cache=False)
    answers = model.predict(["photos/red/0-0.png", "north/yellow/1-0.png"], raw=True, top=9)
    return [dict(each.top) for each in answers]


def assert_same(path, other):
    for mine, theirs in zip(scores(path), scores(other), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-9)


def test_a_round_is_a_plain_merge(joined, do, visvm):
    for name in SITES:
        said = do("masked", "sums", f"{name}.key", "a.roster", f"{name}.sums", f"{name}.masked")
        assert "masked with 2 others" in said
        again = do("masked", "sums", f"{name}.key", "a.roster", f"{name}.sums", f"{name}.masked")
        assert said == again
    files = [f"{name}.masked" for name in SITES]
    made = json.loads(do("masked", "total", "m.visvm", "a.roster", "t.sums", *files, "--json"))
    assert made["n_images"] == 20
    assert do("masked", "total", "m.visvm", "a.roster", "t.sums", *files)
    do("merge", "all.visvm", "m.visvm", "t.sums")
    do("merge", "plain.visvm", "m.visvm", *(f"{name}.sums" for name in SITES))
    assert_same("all.visvm", "plain.visvm")
    do("unmerge", "all.visvm", "t.sums")
    assert_same("all.visvm", "m.visvm")
    refused(visvm("merge", "x.visvm", "m.visvm", "north.masked"), code="file-is-masked")
    refused(visvm("info", "north.masked"), code="file-is-masked")


def test_a_site_that_drops_out(joined, do, visvm):
    here = ("north", "south")
    for name in here:
        do("masked", "sums", f"{name}.key", "a.roster", f"{name}.sums", f"{name}.masked")
    files = [f"{name}.masked" for name in here]
    total = ("masked", "total", "m.visvm", "a.roster", "t.sums")
    refused(visvm(*total, *files), "west are missing", "north, south", code="masked-missing")
    for name in here:
        do("masked", "reveal", f"{name}.key", "a.roster", f"{name}.reveal", "--without", "west")
    do(*total, *files, "north.reveal", "south.reveal")
    do("merge", "all.visvm", "m.visvm", "t.sums")
    do("merge", "plain.visvm", "m.visvm", "north.sums", "south.sums")
    assert_same("all.visvm", "plain.visvm")
    other = ("masked", "reveal", "north.key", "a.roster", "x.reveal", "--without", "south")
    refused(visvm(*other), code="masked-revealed-twice")


def test_what_is_there_is_not_replaced(joined, do, visvm, place):
    key = (place / "north.key").read_bytes()
    (place / "north.card").unlink()  # as a kill between both leaves it
    do("masked", "join", "north.visvm", "north", "north.key")
    assert (place / "north.key").read_bytes() == key
    assert (place / "north.card").exists()
    (place / "here.card").write_text("BEGIN:VCARD")  # or the card of another site
    for words, code in (
        (("join", "south.visvm", "north", "north.key"), "file-exists"),
        (("join", "south.visvm", "north", "x.card"), "masked-key-name"),
        (("join", "m.visvm", "north", "x.key"), "masked-no-site"),
        (("roster", "m.visvm", "a.roster", "north.card", "south.card"), "file-exists"),
        (("roster", "m.visvm", "m.visvm", "north.card", "south.card"), "output-is-model"),
        (("sums", "north.key", "a.roster", "north.sums", "m.visvm"), "file-exists"),
        (("sums", "north.key", "a.roster", "north.sums", "north.sums"), "output-is-model"),
        (("sums", "north.card", "a.roster", "north.sums", "x"), "masked-note"),
        (("sums", "north.key", "a.roster", "south.sums", "x"), "masked-other-site"),
        (("total", "m.visvm", "a.roster", "m.visvm", "north.card"), "output-is-model"),
        (("total", "m.visvm", "a.roster", "a.roster", "north.card", "--force"), "output-is-input"),
        (
            ("sums", "north.key", "a.roster", "north.sums", "north.key", "--force"),
            "output-is-input",
        ),
        (
            ("roster", "m.visvm", "north.card", "north.card", "west.card", "--force"),
            "output-is-input",
        ),
        (
            ("reveal", "north.key", "a.roster", "north.key", "--without", "west", "--force"),
            "output-is-input",
        ),
        (("join", "south.visvm", "south", "here.key"), "file-exists"),
        (("total", "m.visvm", "a.roster", "x", "nothing"), "file-missing"),
    ):
        refused(visvm("masked", *words), code=code)
    assert not (place / "x").exists()
    assert not (place / "here.key").exists()
    assert (place / "here.card").read_text() == "BEGIN:VCARD"


def test_a_card_may_name_more_classes_than_there_are(place, do, visvm):
    do("export", "m.visvm", "--for-site", "north.visvm")
    (place / "names.txt").write_text("yellow\nzebra\n\n", encoding="utf-8")
    out = do("masked", "join", "north.visvm", "names.txt", "north.key", "--json")
    assert json.loads(out)["classes"] == 2
    assert json.loads((place / "north.card").read_text())["classes"] == ["yellow", "zebra"]
    (place / "names.txt").write_bytes(b"\xff\xfe")
    refused(visvm("masked", "join", "north.visvm", "names.txt", "x.key"), code="masked-classes")
    refused(visvm("masked", "join", "north.visvm", "none.txt", "x.key"), code="masked-classes")


def test_a_folder_of_folders_joins_as_it_is_learned(place, do, visvm):
    do("export", "m.visvm", "--for-site", "north.visvm")
    tiny.write_photos(place / "trees" / "dogs", ("red", "blue"), n=1)
    join = ("masked", "join", "north.visvm", "trees")
    refused(visvm(*join, "a.key"), "--nested", code="folder-nested")
    for given, classes in (("--nested", ["dogs/blue", "dogs/red"]), ("--top-level", ["dogs"])):
        do(*join, f"a{given}.key", given)
        assert json.loads((place / f"a{given}.card").read_text())["classes"] == classes


def test_interrupted_it_does_not_say_that_nothing_changed(place, do, visvm, monkeypatch):
    do("export", "m.visvm", "--for-site", "north.visvm")
    write = rounds.write_note

    def cut_off(path, note):
        write(path, note)
        raise KeyboardInterrupt

    monkeypatch.setattr(rounds, "write_note", cut_off)
    code, _, err = visvm("masked", "join", "north.visvm", "north", "north.key")
    assert (place / "north.key").exists()
    assert code == 130
    assert "nothing was changed" not in err
    assert "run the same command again to resume" in err
    monkeypatch.setattr(rounds, "write_note", write)
    do("masked", "join", "north.visvm", "north", "north.key")
    assert (place / "north.card").exists()
