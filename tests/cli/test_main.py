"""The command line as a person uses it, in a process of its own where that makes a difference."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import tiny
from tests.forked import Command
from tests.learning.on_workers import encode_slowly
from visvm import ImageClassifier

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(tmp_path):
    tiny.write_photos(tmp_path / "photos")
    tiny.write_photos(tmp_path / "held out", seed=1)
    return tmp_path / "photos"


@pytest.fixture
def learn(visvm, tmp_path):
    encoder = tiny.write_encoder(tmp_path)

    def run(*arguments):
        return visvm("learn", "m.visvm", *arguments, "--encoder", encoder, "--components", 60)

    return run


def refused(outcome, *facts, code=None):
    """Expect one line that names the facts, exit code 2, and nothing on standard output.

    Codes of errors that other packages raise are their tests' concern.
    """
    exit_code, out, err = outcome
    assert (exit_code, out) == (2, "")
    assert err.startswith("visvm: ")
    assert err.count("\n") == 1
    assert outcome.error_code == code or (code is None and outcome.error_code), outcome.error_code
    for fact in facts:
        assert fact in err
    return err


def test_learn_predict_evaluate_info(visvm, learn, photos):
    code, out, err = learn(photos, "--test", "held out")
    assert (code, err) == (0, "")
    assert "18 images, 3 new classes, 0 returning classes" in out
    assert "accuracy on 18 test images of the classes known: 100.0 %" in out
    code, out, _ = visvm("predict", "m.visvm", "held out/red", "held out/blue/*.png")
    assert code == 0
    assert len(out.splitlines()) == 12
    assert sum(": red " in line for line in out.splitlines()) == 6
    code, out, _ = visvm("evaluate", "m.visvm", "held out", "--plot", "e.png")
    assert code == 0
    assert "accuracy on 18 images: 100.0 %" in out
    assert Path("e.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = visvm("info", "m.visvm")
    assert code == 0
    assert "18 images" in out
    assert "tiny.onnx" in out


def test_with_json_standard_output_holds_json_only(visvm, learn, photos):
    _, out, _ = learn(photos, "--test", "held out", "--json")
    report = json.loads(out)
    assert report["n_images"] == 18
    assert report["test"]["accuracy"] == 1.0
    assert set(report["seconds"]) == {"encode", "test", "learn"}
    _, out, _ = visvm("predict", "m.visvm", "held out", "--json", "--top", "2")
    lines = [json.loads(line) for line in out.splitlines()]
    assert len(lines) == 18
    fields = {"path", "label", "score", "top", "known", "unknown", "level", "level_score"}
    assert all(set(line) == fields for line in lines)
    assert all(
        Path(line["path"]).parent.name == line["label"] == line["top"][0]["label"] for line in lines
    )
    assert all(len(line["top"]) == 2 and 0 <= line["score"] <= 1 for line in lines)
    _, out, _ = visvm("evaluate", "m.visvm", "held out", "--json")
    result = json.loads(out)
    assert (result["accuracy"], result["n"]) == (1.0, 18)
    assert result["per_class"]["red"] == {"n": 6, "accuracy": 1.0}
    _, out, _ = visvm("info", "m.visvm", "--json")
    described = json.loads(out)
    assert described["classes"] == {"blue": 6, "green": 6, "red": 6}
    assert [entry["n_images"] for entry in described["sessions"]] == [18]
    assert described["encoder"].endswith("tiny.onnx")


def test_command_line_object_and_head_agree(visvm, learn, photos):
    learn(photos)
    paths = sorted(Path("held out").rglob("*.png"))
    _, out, _ = visvm("predict", "m.visvm", *paths, "--json")
    said = [json.loads(line) for line in out.splitlines()]
    model = ImageClassifier.load("m.visvm")
    assert [(line["label"], line["score"]) for line in said] == [
        (each.label, each.score) for each in model.predict(paths)
    ]
    assert [line["label"] for line in said] == model.head_.predict(
        model.layer_features(paths)
    ).tolist()
    _, out, _ = visvm("predict", "m.visvm", *paths, "--json", "--raw")
    raw = [json.loads(line)["score"] for line in out.splitlines()]
    assert raw == [each.score for each in model.predict(paths, raw=True)]
    assert raw != [line["score"] for line in said]


def test_a_later_session_needs_no_option_and_keeps_the_old_classes(visvm, learn, photos, tmp_path):
    learn(photos)
    tiny.write_photos(tmp_path / "more", classes=("yellow", "red"), seed=2)
    code, out, _ = visvm("learn", "m.visvm", "more", "--test", "held out")
    assert code == 0
    assert "1 new class, 1 returning class" in out
    assert "now knows 4 classes" in out


def test_options_of_a_new_model_are_refused_later(visvm, learn, photos):
    learn(photos)
    before = Path("m.visvm").read_bytes()
    given = ["learn", "m.visvm", photos]
    for option, value, own in (
        ("--components", 61, "60"),
        ("--transform", "crop", "squash"),
        ("--ridge", 7, "has"),
        ("--seed", 5, "0"),
    ):
        told = refused(visvm(*given, option, value), code="option-of-new-model")
        assert f"{option} {value}" in told.replace(".0", "")
        assert own in told
    refused(visvm(*given, "--again", "--encoder", "dinov2-s15"), "dinov2-s15")
    assert Path("m.visvm").read_bytes() == before


def test_a_failed_learn_leaves_the_model_as_it_was(visvm, learn, photos, tmp_path):
    learn(photos)
    before = Path("m.visvm").read_bytes()
    tiny.write_photos(tmp_path / "bad", classes=("yellow",), seed=2)
    for name in ("one.jpg", "two.png"):
        (tmp_path / "bad" / "yellow" / name).write_bytes(b"no image")
    facts = ("2 files", "one.jpg", "two.png", "--skip-unreadable")
    refused(visvm("learn", "m.visvm", "bad"), *facts, code="images-unreadable")
    assert Path("m.visvm").read_bytes() == before
    code, out, _ = visvm("learn", "m.visvm", "bad", "--skip-unreadable")
    assert code == 0
    assert "skipped 2 unreadable files" in out


def test_predict_says_what_it_can_and_then_what_it_cannot(visvm, learn, photos, tmp_path):
    learn(photos)
    (tmp_path / "held out" / "red" / "zz.jpg").write_bytes(b"no image")
    for options in ([], ["--json"]):
        code, out, err = outcome = visvm("predict", "m.visvm", "held out", *options)
        assert (code, outcome.error_code) == (2, "images-unreadable")
        lines = out.splitlines()
        assert len(lines) == 18 + len(options)
        assert "zz.jpg" in err
        assert err.count("\n") == 1
    assert ["label" in json.loads(line) for line in lines] == [True] * 18 + [False]
    assert json.loads(lines[-1])["error"]["code"] == "images-unreadable"


NEW = ["learn", "new.visvm", "photos"]
NEW_TINY = [*NEW, "--encoder", "tiny.onnx"]


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        (["learn"], "usage", ["MODEL"]),
        (["lern", "m.visvm"], "usage", ["lern", "learn"]),
        (["learn", "m.visvm", "nowhere"], "path-missing", ["nowhere"]),
        (["learn", "nowhere/m.visvm", "photos"], "folder-missing", ["nowhere"]),
        (["learn", "photos", "photos"], "file-is-folder", ["photos"]),
        (["learn", "m.visvm", "photos/red"], "classes-missing", ["photos/red"]),
        ([*NEW, "--encoder", "nonsense"], None, ["nonsense", "dinov2-s14"]),
        ([*NEW, "--transform", "stretch"], None, ["visvm: --transform must", "stretch", "crop"]),
        ([*NEW_TINY, "--components", "0"], "parameter-n-components", ["visvm: --components must"]),
        ([*NEW_TINY, "--ridge", "-1"], "parameter-ridge", ["visvm: --ridge must be a finite"]),
        ([*NEW_TINY, "--seed", "-1"], "parameter-random-state", ["visvm: --seed must"]),
        ([*NEW_TINY, "--components", "100000000"], "memory-session", ["or lower --components."]),
        ([*NEW_TINY, "--test", "nowhere"], "path-missing", ["nowhere"]),
        (["predict", "nothing.visvm", "photos"], "file-missing", ["nothing.visvm"]),
        (["predict", "m.visvm", "*.nothing"], "images-missing", ["*.nothing"]),
        (["predict", "m.visvm", "photos", "--top", "0"], "usage", ["--top"]),
        (["evaluate", "m.visvm", "photos", "--plot", "x.docx"], None, [".png"]),
        (["info", "tiny.onnx"], "file-foreign", ["tiny.onnx"]),
        (["rename-class", "nothing.visvm", "a", "b"], "file-missing", ["nothing.visvm"]),
        (["export", "m.visvm", "/dev/null", "--force"], "file-is-device", ["/dev/null"]),
        (["merge", "out.visvm", "m.visvm"], "merge-one", ["visvm merge OUT MODEL SITE"]),
        (["merge", "m.visvm", "m.visvm", "m.visvm"], "file-exists", ["m.visvm", "--force"]),
        (["rename-class", "m.visvm", "purple", "violet"], "class-unknown", ["purple", "red"]),
        (["rename-class", "m.visvm", "red", "blue"], "class-exists", ["blue"]),
        (["forget-class", "m.visvm", "purple"], "class-unknown", ["purple", "red"]),
        (["forget-class", "nothing.visvm", "red"], "file-missing", ["nothing.visvm"]),
        (["export", "m.visvm", "m.visvm"], "file-exists", ["m.visvm", "--force"]),
        (["export", "m.visvm", "m.visvm", "--force"], "output-is-model", ["m.visvm"]),
        (
            ["export", "m.visvm", "--for-site", "./m.visvm", "--force"],
            "output-is-model",
            ["m.visvm"],
        ),
        (["doctor", "date"], "doctor-unknown", ["date"]),
        (["doctor", "--data", "."], "option-without-data", ["--data"]),
        (["weights", "fetch", "nonsense"], None, ["nonsense"]),
        (["weights", "path", "clip-b16-openai"], None, ["visvm weights fetch"]),
    ],
)
def test_mistakes_get_one_line_and_change_nothing(visvm, learn, photos, arguments, code, facts):
    learn(photos)
    before = Path("m.visvm").read_bytes()
    refused(visvm(*arguments), *facts, code=code)
    assert Path("m.visvm").read_bytes() == before
    assert not Path("new.visvm").exists()


def test_with_json_a_mistake_is_json_with_its_code(visvm, learn, photos):
    learn(photos)
    (photos / "red" / "zz.jpg").write_bytes(b"no image")
    for arguments, code in (
        (["info", "nothing.visvm"], "file-missing"),
        (["learn", "m.visvm", "nowhere"], "path-missing"),
        (["evaluate", "m.visvm", "photos"], "images-unreadable"),
        (["learn"], "usage"),
        (["export", "m.visvm", "m.visvm"], "file-exists"),
        (["merge", "m.visvm", "m.visvm", "m.visvm"], "file-exists"),
        (["unmerge", "m.visvm", "nothing.sums"], "file-missing"),
        (["forget", "m.visvm", "nowhere"], "path-missing"),
        (["rename-class", "m.visvm", "purple", "violet"], "class-unknown"),
        (["forget-class", "m.visvm", "purple"], "class-unknown"),
    ):
        exit_code, out, err = outcome = visvm(*arguments, "--json")
        said = json.loads(out)
        assert (exit_code, outcome.error_code) == (2, code)
        assert said == {"error": {"code": code, "message": err.removeprefix("visvm: ").rstrip()}}
        assert said["error"]["message"]
        refused(visvm(*arguments), code=code)


def test_with_json_a_change_says_what_is_known_now(visvm, learn, photos, tmp_path):
    def told(*arguments):
        code, out, _ = visvm(*arguments, "--json")
        assert code == 0
        said = json.loads(out)
        assert said.pop("bytes") == Path(said["path"]).stat().st_size
        return said

    learn(photos)
    tiny.write_photos(tmp_path / "more", classes=("red", "yellow"), seed=3)
    site = told("export", "m.visvm", "--for-site", "site.visvm")
    assert (site["path"], site["classes"]) == ("site.visvm", {})
    given = ["learn", "site.visvm", "more", "--statistics-only", "site.sums", "--reveal-features"]
    assert visvm(*given)[0] == 0
    known = {"blue": 6, "green": 6, "red": 6}
    assert told("merge", "all.visvm", "m.visvm", "site.sums") == {
        "path": "all.visvm",
        "classes": {"blue": 6, "green": 6, "red": 12, "yellow": 6},
        "images_counted_twice": 0,
    }
    taken = {"path": "all.visvm", "classes": known, "n_images": 12, "site": site["site"]}
    assert told("unmerge", "all.visvm", "site.sums") == taken
    small = {"path": "small.visvm", "classes": known, "site": None}
    assert told("export", "m.visvm", "small.visvm") == small
    known["crimson"] = known.pop("red")
    renamed = {"path": "m.visvm", "classes": known, "old": "red", "new": "crimson"}
    assert told("rename-class", "m.visvm", "red", "crimson") == renamed
    (photos / "red").rename(photos / "crimson")
    (photos / "crimson" / "0-0.png").rename("kept.png")
    del known["blue"]
    forgotten = {"path": "m.visvm", "classes": known, "label": "blue", "n_images": 6}
    assert told("forget-class", "m.visvm", "blue") == forgotten
    for name in ("blue", "green"):
        (photos / name).rename(name)
    taken = {"path": "m.visvm", "classes": {"green": 6, "crimson": 1}, "n_images": 5}
    assert told("forget", "m.visvm", photos) == taken


def test_a_class_is_forgotten_without_its_photos_and_two_are_put_together(visvm, learn, photos):
    learn(photos)
    code, out, _ = visvm("forget-class", "m.visvm", "red")
    assert (code, out) == (0, "forgot red; m.visvm knows 2 classes\n")
    told = json.loads(visvm("info", "m.visvm", "--json")[1])
    assert set(told["classes"]) == {"blue", "green"}
    assert told["forgotten_images"] > 0
    assert (
        "red"
        not in visvm("predict", "m.visvm", "held out/red/1-0.png", "--json")[1].partition(
            '"label"'
        )[2]
    )
    assert visvm("rename-class", "m.visvm", "blue", "green", "--merge")[0] == 0
    assert set(json.loads(visvm("info", "m.visvm", "--json")[1])["classes"]) == {"green"}


def test_an_encoder_that_has_moved_is_asked_for(visvm, learn, photos, tmp_path):
    learn(photos)
    for name in ("tiny.onnx", "tiny.onnx.json"):
        (tmp_path / name).rename(tmp_path / f"moved-{name}")
    refused(visvm("learn", "m.visvm", photos, "--again"), "--encoder", code="encoder-elsewhere")
    assert visvm("learn", "m.visvm", photos, "--again", "--encoder", "moved-tiny.onnx")[0] == 0
    assert visvm("learn", "m.visvm", photos, "--again")[0] == 0  # it is remembered where it is


@pytest.mark.filterwarnings("default")
def test_quiet_hides_notes(learn, photos, tmp_path):
    (tmp_path / ".m.visvm.journal").write_text("none")
    assert "damaged" in learn(photos)[2]
    (tmp_path / ".m.visvm.journal").write_text("none")
    assert learn(photos, "--quiet") == (0, "", "")


def test_merge_forget_rename_export(visvm, learn, photos, tmp_path):
    learn(photos)
    for name, colour, seed in (("a", "yellow", 3), ("b", "red", 4)):
        Path(f"{name}.visvm").write_bytes(Path("m.visvm").read_bytes())
        tiny.write_photos(tmp_path / name, classes=(colour,), seed=seed)
        assert visvm("learn", f"{name}.visvm", name)[0] == 0
    code, out, err = visvm("merge", "whole.visvm", "a.visvm", "b.visvm")
    assert code == 0
    assert "4 classes from 48 images" in out
    assert "18 images were learned by both" in err
    assert visvm("forget", "whole.visvm", "a")[0] == 0
    assert set(json.loads(visvm("info", "whole.visvm", "--json")[1])["classes"]) == {
        "blue",
        "green",
        "red",
    }
    assert visvm("rename-class", "whole.visvm", "red", "crimson")[0] == 0
    assert visvm("export", "whole.visvm", "small.visvm")[0] == 0
    assert Path("small.visvm").stat().st_size < Path("whole.visvm").stat().st_size
    said = json.loads(visvm("predict", "small.visvm", "held out/red/1-0.png", "--json")[1])
    assert said["label"] == "crimson"
    refused(visvm("learn", "small.visvm", photos), "exported", code="sums-missing")
    refused(visvm("forget", "small.visvm", photos), "exported", code="sums-missing")
    refused(
        visvm("merge", "x.visvm", "whole.visvm", "small.visvm"), "exported", code="sums-missing"
    )


def test_the_home_folder_may_be_written_as_a_tilde(visvm, photos, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    options = ["--encoder", tiny.write_encoder(tmp_path), "--components", 60]
    assert visvm("learn", "~/m.visvm", photos, *options)[0] == 0
    assert visvm("learn", "~/m.visvm", photos, "--again")[0] == 0
    assert len(json.loads(visvm("info", "~/m.visvm", "--json")[1])["sessions"]) == 2
    refused(visvm("export", "m.visvm", "~/m.visvm"), code="file-exists")
    refused(visvm("predict", "m.visvm", "~nobody.png"), "~nobody.png", code="images-unreadable")


def test_a_terminal_without_greek_is_no_reason_to_fail(learn, photos):
    learn(photos)
    process = in_own_process(
        "learn",
        "m.visvm",
        "held out",
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
        encoding="cp1252",
    )
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "\\u03bb = " in out


def test_no_command_shows_help_and_nothing_else(visvm):
    code, out, err = visvm()
    assert code == 2
    assert "Usage: visvm" in out + err
    assert "visvm: " not in err


def test_a_poor_first_session_is_told(learn, tmp_path, visvm):
    tiny.write_photos(tmp_path / "few", classes=("red",), n=2)
    assert "The first session sets a model up for good" in learn(tmp_path / "few")[2]
    assert visvm("learn", "m.visvm", "few")[2] == ""


def test_quiet_says_nothing(visvm, learn, photos):
    assert learn(photos, "--quiet") == (0, "", "")
    assert visvm("rename-class", "m.visvm", "red", "crimson", "--quiet") == (0, "", "")


def test_a_csv_file_and_integer_classes(visvm, learn, photos, tmp_path):
    rows = "\n".join(f"{path},{path.parent.name}" for path in sorted(photos.rglob("*.png")))
    (tmp_path / "table.csv").write_text(f"path,label\n{rows}\n")
    assert learn("table.csv")[0] == 0
    assert json.loads(visvm("info", "m.visvm", "--json")[1])["classes"] == {
        "blue": 6,
        "green": 6,
        "red": 6,
    }


def test_cache_and_weights_and_doctor(visvm, learn, photos):
    learn(photos)
    assert json.loads(visvm("cache", "info", "--json")[1])["n_images"] == 18
    assert "18 images" in visvm("cache", "info")[1]
    assert "freed" in visvm("cache", "clear")[1]
    assert json.loads(visvm("cache", "info", "--json")[1])["n_images"] == 0
    listed = json.loads(visvm("weights", "list", "--json")[1])
    assert [entry["name"] for entry in listed] == ["dinov2-s14", "clip-b16-openai"]
    assert not any(entry["present"] for entry in listed)
    assert "not fetched" in visvm("weights", "list")[1]
    assert visvm("weights", "verify")[0] == 0
    found = json.loads(visvm("doctor", "--json")[1])
    assert found["threads"] >= 1
    assert found["packages"]["onnxruntime"]
    assert "feature cache" in visvm("doctor")[1]


def test_no_cache_keeps_nothing(visvm, learn, photos):
    learn(photos, "--no-cache")
    assert json.loads(visvm("cache", "info", "--json")[1])["n_images"] == 0


def in_own_process(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "visvm", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def loaded_by(*arguments):
    code = (
        "import sys, contextlib; from visvm.cli import main as cli\n"
        f"sys.argv = {['visvm', *map(str, arguments)]!r}\n"
        "with contextlib.suppress(SystemExit): cli.main()\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stderr.split()


def test_help_and_prediction_import_no_more_than_they_need(learn, photos):
    learn(photos)
    assert not {"numpy", "sklearn", "onnxruntime", "torch"} & set(loaded_by("--help"))
    assert not {"torch", "transformers", "onnx", "matplotlib"} & set(loaded_by("info", "m.visvm"))
    loaded = set(loaded_by("predict", "m.visvm", photos / "red", "--quiet"))
    assert {"visvm.model.predictor", "onnxruntime"} <= loaded
    unneeded = {"sklearn", "torch", "visvm.bench", "visvm.image_classifier", "visvm.learning"}
    assert not {".".join(name.split(".")[:2]) for name in loaded} & unneeded


def test_a_reader_that_goes_away_is_no_error(learn, photos):
    learn(photos)
    process = in_own_process("predict", "m.visvm", "held out", "--json")
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == 0


def test_interrupting_leaves_everything_as_it_was(learn, photos, tmp_path):
    learn(photos)
    before, journal = Path("m.visvm").read_bytes(), tmp_path / ".m.visvm.journal"
    more = tiny.write_photos(tmp_path / "more", classes=("yellow",), n=200, seed=7)
    process = Command(
        *("learn", tmp_path / "m.visvm", more, "--no-cache", "--quiet"),
        environment={"VISVM_JOURNAL_SECONDS": "0"},
        prepare=encode_slowly,
    )
    until = time.monotonic() + 60
    while not journal.exists():  # it has begun to learn
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    told = process.stdout.read()
    process.stdout.close()
    assert (process.wait(60), told) == (130, "visvm: interrupted; nothing was changed\n")
    assert Path("m.visvm").read_bytes() == before


def test_two_learns_at_once_lose_nothing(learn, photos, tmp_path, visvm):
    learn(photos)
    processes = []
    for seed, colour in enumerate(("yellow", "red"), start=5):
        tiny.write_photos(tmp_path / f"folder {seed}", classes=(colour,), seed=seed)
        processes.append(in_own_process("learn", "m.visvm", tmp_path / f"folder {seed}", "--quiet"))
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out, err) == (0, "", "")
    assert json.loads(visvm("info", "m.visvm", "--json")[1])["classes"] == {
        "blue": 6,
        "green": 6,
        "red": 12,
        "yellow": 6,
    }
