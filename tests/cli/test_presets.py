"""``--quality``, ``--encoder auto`` and ``visvm doctor speed`` as a person uses them."""

import dataclasses
import json
from pathlib import Path

import pytest

from tests import tiny
from tests.cli.test_main import refused
from tests.encoders import patched
from tests.encoders.patched import BEST, FAST, SIZE, model, put_into_catalog
from visvm.cli import speed
from visvm.encoders.catalog import CATALOG
from visvm.encoders.presets import at_quality
from visvm.encoders.resolution import Form

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    put_into_catalog(monkeypatch, tmp_path, blind=model(blind=True), seeing=model(1))
    monkeypatch.chdir(tmp_path)
    patched.write_encoder(tmp_path)
    tiny.write_encoder(tmp_path)
    tiny.write_photos(tmp_path / "photos", classes=tuple(tiny.COLOURS), n=20)


@pytest.fixture
def learn(visvm):
    def run(*arguments, name="m.visvm"):
        return visvm("learn", name, "photos", "--components", 60, *arguments)

    return run


@pytest.mark.parametrize("encoder", ["seeing", "patched.onnx"])
def test_quality_decides_the_size(visvm, learn, encoder):
    for quality, size in (("fast", f"@{FAST}"), ("standard", ""), ("best", f"@{BEST}")):
        name = f"{quality}.visvm"
        code, _, err = learn("--encoder", encoder, "--quality", quality, name=name)
        assert (code, err) == (0, "")
        described = json.loads(visvm("info", name, "--json")[1])
        assert described["encoder"].endswith(f"{encoder}{size}")
        assert learn("--quality", quality, name=name)[0] == 0


def test_a_preset_of_older_versions_is_still_that_preset(visvm, learn, monkeypatch):
    name = f"seeing@{FAST}"
    assert learn("--encoder", name)[0] == 0
    seeing = dataclasses.replace(CATALOG["seeing"], fast=(Form(patches=SIZE),))
    monkeypatch.setitem(CATALOG, "seeing", seeing)
    assert at_quality("seeing", "fast") == f"seeing@{SIZE}:{SIZE}"
    assert learn("--quality", "fast", "--again")[0] == 0
    described = json.loads(visvm("info", "m.visvm", "--json")[1])
    assert (described["encoder"], len(described["sessions"])) == (name, 2)
    for quality in ("standard", "best"):
        refused(learn("--quality", quality), name, code="option-of-new-model")


def test_quality_is_refused_where_it_decides_nothing(visvm, learn):
    auto = ("--encoder", "auto")
    for arguments, code in (
        (["--encoder", "seeing@24", "--quality", "best"], "quality-and-size"),
        (["--encoder", "seeing", "--quality", "better"], "quality-unknown"),
        (["--encoder", "tiny.onnx", "--quality", "best"], "size-unsupported"),
        (["--minutes", "3"], "minutes-without-auto"),
        ([*auto, "--minutes", "3", "--quality", "fast"], "minutes-without-auto"),
        ([*auto, "--minutes", "0"], "parameter-minutes"),
    ):
        refused(learn(*arguments), code=code)
        assert not Path("m.visvm").exists()
    learn("--encoder", "seeing")
    before = Path("m.visvm").read_bytes()
    for arguments in (["--quality", "best"], auto, ["--minutes", "3"]):
        refused(learn(*arguments), "seeing", code="option-of-new-model")
    refused(learn("--quality", "better"), code="quality-unknown")
    assert Path("m.visvm").read_bytes() == before


def test_the_service_takes_no_encoder_that_is_to_be_chosen(visvm):
    refused(visvm("serve", "new.visvm", "--encoder", "auto"), code="encoder-auto-served")


def test_the_service_takes_a_quality(visvm, monkeypatch):
    opened = []
    monkeypatch.setattr(
        "visvm.service.server.run_server", lambda model, load, **_: opened.append(load()[0])
    )
    visvm("serve", "new.visvm", "--encoder", "seeing", "--quality", "best")
    assert opened[0].encoder_name == f"seeing@{BEST}"


def test_the_encoder_is_chosen_and_the_choice_is_told(visvm, learn):
    code, out, _ = learn("--encoder", "auto", "--no-cache")
    assert code == 0
    assert "encoder seeing, clearly ahead: of" in out
    assert json.loads(visvm("info", "m.visvm", "--json")[1])["encoder"] == "seeing"
    report = json.loads(learn("--encoder", "auto", "--minutes", 60, "--json", name="n.visvm")[1])
    assert set(report["encoder"]) >= {"encoder", "why", "n", "accuracies", "milliseconds"}
    assert report["encoder"]["minutes"] == 60


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(speed, "_WIDTH", 40)
    monkeypatch.setattr(speed, "_HEIGHT", 30)


def test_doctor_speed(visvm, small):
    code, out, err = visvm("doctor", "speed", "--encoder", "seeing", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["photo"] == "40 × 30 JPEG"
    rows = {row["quality"]: row for row in found["qualities"]}
    assert [row["size"] for row in rows.values()] == [FAST, SIZE, BEST]
    assert [row["encoder"] for row in rows.values()] == ["seeing@10", "seeing", "seeing@24"]
    assert rows["standard"]["relative_speed"] == 1
    assert all(row["milliseconds"] > 0 for row in rows.values())
    found = json.loads(visvm("doctor", "speed", "--encoder", "seeing@24", "--json")[1])
    named = [(row["quality"], row["encoder"]) for row in found["qualities"]]
    assert named[-1] == ("as given", "seeing@24")
    assert named[:-1] == [(quality, row["encoder"]) for quality, row in rows.items()]
    _, shown, _ = visvm("doctor", "speed", "--encoder", "patched.onnx")
    assert all(word in shown for word in ("fast", "standard", "best", "a thousand photos"))
    _, shown, _ = visvm("doctor", "speed", "--encoder", "tiny.onnx")
    assert "standard" in shown
    assert "best" not in shown


def test_doctor_takes_the_fastest_of_several_turns(small, monkeypatch):
    times = iter([9.0, 4.0, 9.0, 5.0, 8.0, 2.0, *[9.0] * 60])
    monkeypatch.setattr(speed, "_milliseconds", lambda photos, encoder: next(times))
    found = speed.measure_speed("seeing", lambda *_: None)
    assert [each.milliseconds for each in found.qualities] == [5.0, 4.0, 2.0]
    assert [each.relative_speed for each in found.qualities] == [0.8, 1.0, 2.0]


def test_doctor_refuses_options_of_something_else(visvm):
    refused(visvm("doctor", "--encoder", "seeing"), code="option-without-speed")
    refused(visvm("doctor", "data", "--encoder", "seeing"), code="option-without-speed")
    refused(visvm("doctor", "speed", "--data", "."), code="option-without-data")
    refused(visvm("doctor", "speed", "--encoder", "nothing"), code="encoder-unknown")
