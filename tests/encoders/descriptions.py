"""ONNX files with descriptions beside them, some of them wrong."""

import json
from pathlib import Path

import onnx

from tests import tiny

GOOD = {
    "blocks": list(tiny.BLOCKS),
    "size": tiny.SIDE,
    "resize": tiny.SIDE + 2,
    "mean": list(tiny.MEAN),
    "std": list(tiny.STD),
}


def describe(path, **changes):
    """Write the description, with some entries changed; None leaves one out."""
    described = {key: value for key, value in (GOOD | changes).items() if value is not None}
    Path(f"{path}.json").write_text(json.dumps(described))


def write_model(folder, change=lambda model: None, **description):
    model = tiny.model()
    change(model)
    onnx.save(model, folder / "changed.onnx")
    describe(folder / "changed.onnx", **description)
    return folder / "changed.onnx"


def write_split(folder):
    """The weights in a file beside the model, as exporters write large ones."""
    path = folder / "split.onnx"
    onnx.save(
        tiny.model(), path, save_as_external_data=True, location="split.data", size_threshold=1000
    )
    describe(path)
    return path
