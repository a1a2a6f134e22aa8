"""A tiny vision transformer, as an ONNX file made on the spot, and pictures it can tell apart."""

import io
import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

SIDE, WIDTH, BLOCKS = 8, 12, ("block_1", "block_2", "block_3")
MEAN, STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 200, 40),
    "blue": (40, 40, 230),
    "yellow": (230, 220, 30),
}


def matrices(seed=0):
    generator = np.random.default_rng(seed)
    inputs = 3 * SIDE * SIDE
    first = generator.normal(size=(inputs, WIDTH)) / np.sqrt(inputs)
    return [
        matrix.astype(np.float32)
        for matrix in (first, *generator.normal(size=(2, WIDTH, WIDTH)) / np.sqrt(WIDTH))
    ]


def graph(seed=0):
    """Blocks of (n, 1 token, WIDTH): a projection, then two residual ReLU layers."""
    names = ["W1", "W2", "W3"]
    constants = [
        numpy_helper.from_array(matrix, name)
        for matrix, name in zip(matrices(seed), names, strict=True)
    ]
    constants.append(numpy_helper.from_array(np.array([0, 1, -1]), "shape"))
    nodes = [
        helper.make_node("Reshape", ["pixels", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "W1"], ["block_1"]),
    ]
    for number in (2, 3):
        before, after = f"block_{number - 1}", f"block_{number}"
        nodes += [
            helper.make_node("MatMul", [before, f"W{number}"], [f"inside_{number}"]),
            helper.make_node("Relu", [f"inside_{number}"], [f"relu_{number}"]),
            helper.make_node("Add", [before, f"relu_{number}"], [after]),
        ]
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])
    last = helper.make_tensor_value_info(BLOCKS[-1], TensorProto.FLOAT, ["n", 1, WIDTH])
    return helper.make_graph(nodes, "tiny", [pixels], [last], constants)


def model(seed=0):
    return helper.make_model(graph(seed), opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def reference(pixels, seed=0):
    """What the graph computes, in numpy: (n, 3 * WIDTH)."""
    first, *others = matrices(seed)
    blocks = [pixels.reshape(len(pixels), -1) @ first]
    for matrix in others:
        blocks.append(blocks[-1] + np.maximum(blocks[-1] @ matrix, 0.0))
    return np.concatenate(blocks, axis=1)


def write_encoder(folder: Path, seed=0) -> Path:
    """tiny.onnx with its description beside it."""
    path = folder / "tiny.onnx"
    onnx.save(model(seed), path)
    described = {"blocks": list(BLOCKS), "size": SIDE, "resize": SIDE + 2, "mean": MEAN, "std": STD}
    Path(f"{path}.json").write_text(json.dumps(described))
    return path


def write_photos(folder: Path, classes=tuple(COLOURS)[:3], n=6, seed=0) -> Path:
    """A folder with one sub-folder per class: noisy pictures of one colour."""
    generator = np.random.default_rng(seed)
    for label in classes:
        (folder / label).mkdir(parents=True, exist_ok=True)
        for number in range(n):
            noise = generator.normal(scale=40, size=(20, 26, 3))
            pixels = np.clip(np.array(COLOURS[label]) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{seed}-{number}.png")
    return folder


def write_model(folder: Path, width=20):
    """m.visvm, which has learned the photos beside it through the encoder beside it."""
    from visvm import ImageClassifier

    given = {"n_components": width, "cache": False, "layers": (3,), "ridge": 1.0}
    model = ImageClassifier(str(write_encoder(folder)), **given)
    model.learn(write_photos(folder / "photos", n=2))
    model.save(folder / "m.visvm")
    return model


def pieces(name: str, n: int, seed: int) -> list[bytes]:
    """Square pieces of a photograph of scikit-learn's, china.jpg or flower.jpg, as JPEG files."""
    from sklearn.datasets import load_sample_image  # large, and needed here alone

    photo, made = Image.fromarray(load_sample_image(name)), []
    generator = np.random.default_rng(seed)
    for _ in range(n):
        side = int(generator.integers(230, 330))
        left = int(generator.integers(120, 500 - side + 1))
        top = int(generator.integers(40, 400 - side + 1))
        file = io.BytesIO()
        photo.crop((left, top, left + side, top + side)).save(file, "JPEG", quality=85)
        made.append(file.getvalue())
    return made
