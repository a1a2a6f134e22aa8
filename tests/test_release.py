"""What a release needs beside the code: its version everywhere, and what works without extras."""

import re
import sys
from pathlib import Path

import pytest

import visvm
from tests import tiny
from visvm.cli import options

ROOT = Path(__file__).parents[1]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_citation_names_this_version():
    assert f"\nversion: {visvm.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_every_python_that_is_named_is_tried_before_a_release():
    named = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text("utf-8"))
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8")
    assert named == re.findall(r'"(3\.\d+)"', re.search(r"python: \[(.*)\]", workflow)[1])


def test_the_health_check_asks_what_the_service_answers():
    address = re.search(r"127\.0\.0\.1:8000(/[\w/]+)'", (ROOT / "Dockerfile").read_text("utf-8"))[1]
    routes = (ROOT / "src/visvm/service/routes.py").read_text("utf-8")
    assert f'@app.get("{address}"' in routes


@pytest.mark.parametrize("command", ["report", "evaluate"])
def test_figures_without_matplotlib_are_refused_before_any_work(visvm, place, monkeypatch, command):
    tiny.write_model(place)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(options, "can_draw", lambda: False)
    arguments = {"report": ["results"], "evaluate": ["m.visvm", "photos", "--plot", "e.png"]}
    outcome = visvm(command, *arguments[command])
    assert (outcome[0], outcome.error_code) == (2, "package-missing")
    assert "pip install 'visvm[plot]'" in outcome[2]
    assert not Path("e.png").exists()
    assert visvm("evaluate", "m.visvm", "photos", "--quiet")[0] == 0


def test_the_demo_goes_without_its_figure(visvm, place, monkeypatch):
    tiny.write_encoder(place)
    photos = tiny.write_photos(place / "mine", classes=tuple(tiny.COLOURS), n=3)
    monkeypatch.setattr("visvm.cli.demo.can_draw", lambda: False)
    code, out, _ = visvm("demo", photos, "--encoder", "tiny.onnx", "--quiet")
    assert (code, "visvm[plot]" in out) == (0, True)
    assert not (place / "visvm-demo" / "figure.png").exists()
