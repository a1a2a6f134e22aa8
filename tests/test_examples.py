"""The examples of docs/elsewhere.md run without visvm, and answer as it does."""

import os
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


# The C API is a table of functions whose places never change. No registry has its header, so a
# stand-in is written here with those that the example calls: place, name, parameters.
CALLED = (
    (2, "const char*", "GetErrorMessage", "const OrtStatus*"),
    (3, "", "CreateEnv", "int, const char*, OrtEnv**"),
    (7, "", "CreateSession", "const OrtEnv*, const char*, const OrtSessionOptions*, OrtSession**"),
    (
        *(9, "", "Run"),
        (
            "OrtSession*, const void*, const char* const*, const OrtValue* const*, size_t, "
            "const char* const*, size_t, OrtValue**"
        ),
    ),
    (10, "", "CreateSessionOptions", "OrtSessionOptions**"),
    (31, "", "SessionGetOutputCount", "const OrtSession*, size_t*"),
    (
        *(49, "", "CreateTensorWithDataAsOrtValue"),
        "const OrtMemoryInfo*, void*, size_t, const int64_t*, size_t, int, OrtValue**",
    ),
    (51, "", "GetTensorMutableData", "OrtValue*, void**"),
    (64, "", "GetTensorShapeElementCount", "const OrtTensorTypeAndShapeInfo*, size_t*"),
    (65, "", "GetTensorTypeAndShape", "const OrtValue*, OrtTensorTypeAndShapeInfo**"),
    (69, "", "CreateCpuMemoryInfo", "int, int, OrtMemoryInfo**"),
    (76, "", "AllocatorFree", "OrtAllocator*, void*"),
    (78, "", "GetAllocatorWithDefaultOptions", "OrtAllocator**"),
    (92, "void", "ReleaseEnv", "OrtEnv*"),
    (94, "void", "ReleaseMemoryInfo", "OrtMemoryInfo*"),
    (95, "void", "ReleaseSession", "OrtSession*"),
    (96, "void", "ReleaseValue", "OrtValue*"),
    (99, "void", "ReleaseTensorTypeAndShapeInfo", "OrtTensorTypeAndShapeInfo*"),
    (100, "void", "ReleaseSessionOptions", "OrtSessionOptions*"),
    (111, "", "SessionGetModelMetadata", "const OrtSession*, OrtModelMetadata**"),
    (
        *(116, "", "ModelMetadataLookupCustomMetadataMap"),
        "const OrtModelMetadata*, OrtAllocator*, const char*, char**",
    ),
    (118, "void", "ReleaseModelMetadata", "OrtModelMetadata*"),
)
NUMBERS = {
    "ORT_API_VERSION": 20,
    "ORT_LOGGING_LEVEL_ERROR": 3,
    "OrtArenaAllocator": 1,
    "OrtMemTypeDefault": 0,
    "ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8": 2,
}


def stand_in():
    """What the example needs of onnxruntime_c_api.h."""
    kinds = sorted({kind for *_, taken in CALLED for kind in re.findall(r"Ort\w+", taken)})
    lines = ["#include <cstddef>", "#include <cstdint>"]
    lines += [f"enum {{ {name} = {value} }};" for name, value in NUMBERS.items()]
    lines += [f"struct {kind};" for kind in kinds]
    lines.append("struct OrtApi {")
    free = 0
    for place, returned, name, taken in CALLED:
        if place > free:
            lines.append(f"  void* places_{free}[{place - free}];")
        lines.append(f"  {returned or 'OrtStatus*'} (*{name})({taken});")
        free = place + 1
    base = "struct OrtApiBase { const OrtApi* (*GetApi)(uint32_t); };"
    return "\n".join([*lines, "};", base, 'extern "C" const OrtApiBase* OrtGetApiBase();'])


def test_cpp(place):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder, _ = place
    (library,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    headers = os.environ.get("ONNXRUNTIME_INCLUDE")
    if headers is None:
        headers = folder / "include"
        headers.mkdir()
        (headers / "onnxruntime_c_api.h").write_text(stand_in())
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
    done = subprocess.run(
        [program, folder / "m.onnx", folder / "tiny.onnx"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
