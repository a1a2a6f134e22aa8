"""A command killed after its model was in place is not learned twice when it is given again."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests import tiny
from tests.forked import METHOD, Command
from tests.model.raw import contents, rewrite
from visvm import ImageClassifier

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    tiny.write_encoder(tmp_path)
    tiny.write_photos(tmp_path / "photos", n=2)
    tiny.write_photos(tmp_path / "more", ("yellow", "red"), n=2, seed=1)
    return tmp_path


@pytest.fixture
def learned(visvm):
    """A model that has learned the photos by a command."""
    options = ("--encoder", "tiny.onnx", "--components", 20, "--ridge", 1)
    assert visvm("learn", "m.visvm", "photos", *options)[0] == 0
    return Path("m.visvm")


def changes_nothing(outcome, model, before):
    """Expect one line that says so, and the model file byte for byte as it was."""
    code, out, err = outcome
    assert (code, err) == (0, "")
    assert "already learned; nothing changed" in out
    assert out.count("\n") == 1
    assert model.read_bytes() == before


def die_before_the_end():
    """Have this process die as by kill -9 once the model is in its place, before the end."""
    from visvm.model.journal import Journal

    Journal.discard = lambda _: os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(METHOD != "forkserver", reason="needs fork")
def test_a_session_killed_after_the_rename_is_learned_once(visvm, folder):
    options = ("--encoder", "tiny.onnx", "--components", 20, "--ridge", 1)
    given, model = ("learn", "m.visvm", "photos", *options), folder / "m.visvm"
    killed = Command(*("learn", model, folder / "photos", *options), prepare=die_before_the_end)
    assert killed.wait(60) == -signal.SIGKILL
    killed.stdout.close()
    before = model.read_bytes()
    changes_nothing(visvm(*given), model, before)
    assert not list(folder.glob(".*.journal"))


def test_the_same_command_again_says_so(visvm, learned):
    before = learned.read_bytes()
    changes_nothing(visvm("learn", learned, "photos"), learned, before)
    code, out, _ = visvm("learn", learned, "photos", "--json")
    said = json.loads(out)
    assert (code, said["already_learned"], said["classes"]["red"]) == (0, True, 2)
    assert visvm("learn", learned, "photos", "--quiet") == (0, "", "")


def test_it_can_be_learned_again_on_purpose(visvm, learned):
    assert visvm("learn", learned, "photos", "--again")[0] == 0
    assert ImageClassifier.load(learned).class_counts_ == (4, 4, 4)


def test_other_files_under_the_same_names_are_learned(visvm, learned, folder):
    tiny.write_photos(folder / "photos", n=2, seed=0)  # other times, though the same pictures
    assert visvm("learn", learned, "photos")[0] == 0
    assert ImageClassifier.load(learned).class_counts_ == (4, 4, 4)


def test_an_earlier_session_is_known_after_later_ones(visvm, learned):
    assert visvm("learn", learned, "more")[0] == 0
    before = learned.read_bytes()
    changes_nothing(visvm("learn", learned, "photos"), learned, before)
    changes_nothing(visvm("learn", learned, "more"), learned, before)


def test_only_the_last_sessions_are_known(visvm, learned):
    rewrite(learned, lambda header, _: header.update(learned=["0" * 64] * 16))
    assert visvm("learn", learned, "more")[0] == 0
    (*_, last) = keys = contents(learned)[0]["learned"]
    assert (len(keys), last != "0" * 64) == (16, True)


def test_what_was_taken_out_can_be_learned_once_more(visvm, learned):
    assert visvm("learn", learned, "more")[0] == 0
    assert visvm("forget", learned, "more")[0] == 0
    assert visvm("learn", learned, "more")[0] == 0
    assert sum(ImageClassifier.load(learned).class_counts_) == 10
    assert visvm("forget-class", learned, "yellow")[0] == 0
    assert "learned" not in contents(learned)[0]


def test_a_journal_of_a_later_session_stays(visvm, learned, folder):
    journal = folder / ".m.visvm.journal"
    journal.touch()
    later = learned.stat().st_mtime_ns + 10**9  # clocks of files are coarse
    os.utime(journal, ns=(later, later))
    visvm("learn", learned, "photos")
    assert journal.exists()
    os.utime(journal, (0, 0))
    visvm("learn", learned, "photos")
    assert not journal.exists()


def test_sums_for_a_site_are_made_once(visvm, learned):
    for site in ("a", "b"):
        assert visvm("export", learned, "--for-site", f"{site}.visvm")[0] == 0
    given = ("learn", "a.visvm", "more", "--statistics-only", "a.sums", "--reveal-features")
    assert visvm(*given)[0] == 0
    sums = Path("a.sums")
    before = sums.read_bytes()
    changes_nothing(visvm(*given), sums, before)
    assert visvm(*given, "--force")[0] == 0
    assert sums.read_bytes() != before
    # of other files, or for another site, it is in the way
    for other in (("a.visvm", "photos"), ("b.visvm", "more")):
        outcome = visvm("learn", *other, "--statistics-only", "a.sums")
        assert (outcome[0], outcome.error_code) == (2, "file-exists")


def test_an_old_file_has_no_key_and_learns(visvm, learned):
    rewrite(learned, lambda header, _: header.pop("learned") and None)
    assert visvm("learn", learned, "photos")[0] == 0
    assert ImageClassifier.load(learned).class_counts_ == (4, 4, 4)


def test_contents_have_no_key_and_the_key_names_no_file(learned, folder):
    model = ImageClassifier.load(learned)
    (key,) = model.model_.learned
    assert len(bytes.fromhex(key)) == 32
    pictures = [path.read_bytes() for path in sorted((folder / "photos/red").iterdir())]
    model.learn(pictures, ["red"] * 2)
    assert model.model_.learned == (key,)
    assert not model.has_learned(pictures, ["red"] * 2)
    assert model.has_learned("photos")
    files = sorted((folder / "photos").rglob("*.png"))
    assert model.has_learned(files, [path.parent.name for path in files])
    assert not model.has_learned(files, ["red"] * len(files))


def test_photos_are_remembered_if_that_is_asked_for(visvm, learned, folder):
    assert "remembers" not in visvm("info", learned)[1]
    copies = Path("photos").rename("copies")
    assert visvm("learn", learned, "more", "--remember")[0] == 0
    assert "it remembers 4 photos by digests" in visvm("info", learned)[1]
    assert visvm("learn", learned, copies)[0] == 0
    assert json.loads(visvm("info", learned, "--json")[1])["remembered_photos"] == 10
    code, _, err = visvm("learn", learned, copies, "--remember", "--statistics-only", "o.visvm")
    assert (code, "--remember needs a model" in err) == (2, True)
    tiny.write_photos(folder / "third", n=1, seed=7)
    assert visvm("learn", learned, "third", "--no-remember")[0] == 0
    assert "remembers" not in visvm("info", learned)[1]
