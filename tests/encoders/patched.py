"""A small vision transformer of patches that takes other sizes: a file, or the catalogue's."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests import tiny
from tests.encoders.graphs import constant
from tests.encoders.tiny_weights import entry
from visvm.encoders import catalog, weights
from visvm.encoders.encoder import Preprocessing
from visvm.progress import silent

SIZE, PATCH, WIDTH = 16, 2, 12
FAST, BEST = 10, 24  # sides at these presets
BLOCKS = ("block_1", "block_2")


def model(seed=0, *, blind=False):
    """Blocks of (n, 1, WIDTH), the mean over patches; a blind one sees no colours, only noise."""
    generator = np.random.default_rng(seed)
    kernel = generator.normal(size=(WIDTH, 3, PATCH, PATCH))
    if blind:
        kernel -= kernel.mean(axis=(2, 3), keepdims=True)
    grid = (SIZE // PATCH) ** 2
    constants = {
        "kernel": kernel,
        "positions": 0.1 * generator.normal(size=(1, grid, WIDTH)),
        "matrix": generator.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH),
    }
    stored = [constant(name, value.astype(np.float32)) for name, value in constants.items()]
    stored.append(constant("shape", np.array([0, WIDTH, -1])))
    nodes = [
        helper.make_node("Conv", ["pixels", "kernel"], ["cut"], strides=[PATCH, PATCH]),
        helper.make_node("Reshape", ["cut", "shape"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["tokens"], perm=[0, 2, 1]),
        helper.make_node("Add", ["tokens", "positions"], ["placed"]),
        helper.make_node("ReduceMean", ["placed"], ["block_1"], axes=[1], keepdims=1),
        helper.make_node("MatMul", ["block_1", "matrix"], ["inside"]),
        helper.make_node("Relu", ["inside"], ["relu"]),
        helper.make_node("Add", ["block_1", "relu"], ["block_2"]),
    ]
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, SIZE, SIZE])
    last = helper.make_tensor_value_info("block_2", TensorProto.FLOAT, ["n", 1, WIDTH])
    graph = helper.make_graph(nodes, "patched", [pixels], [last], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def write_encoder(folder: Path, *, sizes=True) -> Path:
    """patched.onnx, with a description that names its positions if it is to take other sizes."""
    path = folder / "patched.onnx"
    onnx.save(model(), path)
    described = {"blocks": list(BLOCKS), "size": SIZE, "mean": tiny.MEAN, "std": tiny.STD}
    positions = {"positions": ["positions"]} if sizes else {}
    Path(f"{path}.json").write_text(json.dumps(described | positions))
    return path


def put_into_catalog(monkeypatch, folder, **encoders):
    """Let the catalogue hold these encoders alone, fetched; name_with_lines → name-with-lines."""
    monkeypatch.setenv("VISVM_CACHE", str(folder / "cache"))
    for name in list(catalog.CATALOG):
        monkeypatch.delitem(catalog.CATALOG, name)
    for name, made in encoders.items():
        content = made.SerializeToString(deterministic=True)
        plain = dataclasses.replace(
            entry(content),
            name=name.replace("_", "-"),
            blocks=BLOCKS,
            preprocessing=Preprocessing(SIZE, SIZE, tiny.MEAN, tiny.STD),
            positions=("positions",),
            patch=PATCH,
        )
        monkeypatch.setitem(catalog.CATALOG, plain.name, plain)
        (folder / "source.onnx").write_bytes(content)
        weights.fetch(plain.name, silent, folder / "source.onnx")
