"""The examples of docs/elsewhere.md run without visvm, and answer as it does."""

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest
from PIL import Image

from tests import tiny
from tests.headers import c_headers

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
    assert set(imported) == {"json", "re", "sys", "numpy", "onnxruntime"}


def test_pixels_that_look_like_white_space_and_comments_in_a_ppm_file(tmp_path):
    pixels = bytes([10, 32, 9, 13, 10, 35]) + bytes(range(6))
    path = tmp_path / "p.ppm"
    read_ppm = runpy.run_path(str(EXAMPLES / "ask.py"))["read_ppm"]
    for header in (b"P6\n2 2\n255\n", b"P6 # by hand\n# 9 9\n2\t2 #\n255\n", b"P6 2 2 255 "):
        path.write_bytes(header + pixels)
        assert read_ppm(path).tobytes() == pixels
        assert read_ppm(path).shape == (2, 2, 3)
    for wrong in (b"P5 2 2 255 ", b"P6 2 2 65535 ", b"P6 2 2 255"):
        path.write_bytes(wrong + pixels[6:])
        with pytest.raises(SystemExit, match="not a binary PPM"):
            read_ppm(path)
    path.write_bytes(b"P6 2 2 255 " + pixels[1:])
    with pytest.raises(SystemExit, match="11 numbers"):
        read_ppm(path)


def test_cpp(place):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder, _ = place
    (library,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    headers = c_headers(folder)
    program = folder / "ask"
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):  # as its own package names it
        (folder / name).symlink_to(library)
    linked = ["-L", folder, "-lonnxruntime", f"-Wl,-rpath,{folder}"]
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", headers, "-o", program]
    subprocess.run([compiler, EXAMPLES / "ask.cpp", *flags, *linked], check=True)
    for photo, lines in asked(place):
        done = subprocess.run(
            [program, folder / "m.onnx", photo], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines() == lines
    photo.with_suffix(".gimp.ppm").write_bytes(
        photo.read_bytes().replace(b"P6\n", b"P6\n# by a program\n# 9 9\n", 1)
    )
    command = [program, folder / "m.onnx", photo.with_suffix(".gimp.ppm")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == lines
    done = subprocess.run(
        [program, folder / "m.onnx", folder / "tiny.onnx"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
