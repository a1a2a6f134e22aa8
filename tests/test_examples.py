"""The examples of docs/elsewhere.md run without visvm, and answer as it does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests import tiny

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """m.onnx, photos as PPM, and what the model says of them."""
    folder = tmp_path_factory.mktemp("examples")
    model = tiny.write_model(folder)
    model.export_onnx(folder / "m.onnx")
    return folder, model


def asked(place):
    """Every photo as PPM, with the lines that an example has to print."""
    folder, model = place
    for path in sorted((folder / "photos").rglob("*-0.png")):
        shown = path.with_suffix(".ppm")
        Image.open(path).save(shown)
        (answer,) = model.predict([path])
        lines = [f"{label} {100 * share:.1f} %" for label, share in answer.top]
        yield shown, ["none of these; closest:"] * answer.unknown + lines


def test_python(place):
    for photo, lines in asked(place):
        # -I: neither this folder nor the environment's paths
        command = [sys.executable, "-I", EXAMPLES / "ask.py", place[0] / "m.onnx", photo]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == lines
    imported = re.findall(r"^(?:import|from) (\w+)", (EXAMPLES / "ask.py").read_text(), re.M)
    assert set(imported) == {"json", "sys", "numpy", "onnxruntime"}
