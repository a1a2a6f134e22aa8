"""A small vision transformer with attention: as an ONNX file of one's own, and in numpy."""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests import tiny
from tests.encoders.graphs import constant

SIZE, PATCH, WIDTH, HEADS, DEPTH = 12, 3, 8, 2, 3
PATCHES = (SIZE // PATCH) ** 2
BLOCKS = tuple(f"block_{number}" for number in range(1, DEPTH + 1))
CHOSEN_IN = 1  # at a third of the depth


def weights(seed=0):
    generator = np.random.default_rng(seed)
    shapes = {"kernel": (WIDTH, 3, PATCH, PATCH), "cls": (1, 1, WIDTH)}
    shapes["positions"] = (1, 1 + PATCHES, WIDTH)
    for block in BLOCKS:
        shapes |= {f"{block}_{part}": (WIDTH, WIDTH) for part in ("q", "k", "v", "out", "network")}
    drawn = {name: generator.normal(size=shape) for name, shape in shapes.items()}
    return {name: (0.6 * each / np.sqrt(WIDTH)).astype(np.float32) for name, each in drawn.items()}


def reference(pixels, kept=None, seed=0):
    """CLS tokens of all blocks, (n, DEPTH · WIDTH), one image after the other."""
    w, rows = weights(seed), []
    for image in pixels:
        cells = image.reshape(3, SIZE // PATCH, PATCH, SIZE // PATCH, PATCH)
        patches = np.einsum("ciajb,wcab->ijw", cells, w["kernel"])
        tokens = np.concatenate([w["cls"][0], patches.reshape(-1, WIDTH)]) + w["positions"][0]
        row = []
        for number, block in enumerate(BLOCKS, 1):
            added, attention = attend(tokens, w, block)
            tokens = tokens + added
            if kept is not None and number == CHOSEN_IN:
                looks = attention[:, 0].sum(axis=0) + attention.sum(axis=0).mean(axis=0)
                order = sorted(range(1, len(tokens)), key=lambda place: -looks[place])
                tokens = tokens[[0, *order[:kept]]]
            tokens = tokens + np.maximum(tokens @ w[f"{block}_network"], 0)
            row.append(tokens[0])
        rows.append(np.concatenate(row))
    return np.stack(rows)


def attend(tokens, w, block):
    """What attention adds to the tokens of an image, and the attention, (HEADS, tokens, tokens)."""
    q, k, v = (
        (tokens @ w[f"{block}_{part}"]).reshape(len(tokens), HEADS, -1).swapaxes(0, 1)
        for part in "qkv"
    )
    powers = np.exp(q @ k.swapaxes(1, 2))
    attention = powers / powers.sum(axis=-1, keepdims=True)
    return (attention @ v).swapaxes(0, 1).reshape(len(tokens), WIDTH) @ w[f"{block}_out"], attention


def model(*, heads_apart=True, seed=0):
    """The graph; attention is (n, heads, …), or (n · heads, …) as in CLIP where heads are not."""
    stored = [constant(name, value) for name, value in weights(seed).items()]
    shapes = {"flat": [0, WIDTH, -1], "split": [0, 0, HEADS, WIDTH // HEADS], "joined": [0, 0, -1]}
    shapes["together"] = [-1, 1 + PATCHES, 1 + PATCHES]
    # what goes on after a choice has another number of tokens, which the shapes must leave open
    stored += [constant(name, np.array(shape)) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["pixels", "kernel"], ["cut"], strides=[PATCH, PATCH]),
        helper.make_node("Reshape", ["cut", "flat"], ["cells"]),
        helper.make_node("Transpose", ["cells"], ["patches"], perm=[0, 2, 1]),
        helper.make_node("ReduceMean", ["patches"], ["middle"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["middle", "middle"], ["nothing"]),
        helper.make_node("Add", ["nothing", "cls"], ["first"]),
        helper.make_node("Concat", ["first", "patches"], ["all"], axis=1),
        helper.make_node("Add", ["all", "positions"], ["block_0"]),
    ]
    for before, block in zip(("block_0", *BLOCKS), BLOCKS, strict=False):
        nodes += block_nodes(before, block, heads_apart=heads_apart)
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, SIZE, SIZE])
    last = helper.make_tensor_value_info(BLOCKS[-1], TensorProto.FLOAT, ["n", None, WIDTH])
    graph = helper.make_graph(nodes, "attentive", [pixels], [last], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def block_nodes(before, block, *, heads_apart):
    at = f"{block}_{{}}_made".format
    nodes = []
    for part, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            helper.make_node("MatMul", [before, f"{block}_{part}"], [at(part)]),
            helper.make_node("Reshape", [at(part), "split"], [at(f"{part}_split")]),
            helper.make_node("Transpose", [at(f"{part}_split")], [at(f"{part}_head")], perm=order),
        ]
    nodes.append(helper.make_node("MatMul", [at("q_head"), at("k_head")], [at("product")]))
    product = at("product")
    if not heads_apart and block == BLOCKS[CHOSEN_IN - 1]:
        nodes.append(helper.make_node("Shape", [product], [at("apart")]))
        nodes.append(helper.make_node("Reshape", [product, "together"], [at("rows")]))
        nodes.append(helper.make_node("Softmax", [at("rows")], [at("looks")], axis=-1))
        nodes.append(helper.make_node("Reshape", [at("looks"), at("apart")], [at("attention")]))
    else:
        nodes.append(helper.make_node("Softmax", [product], [at("attention")], axis=-1))
    return [
        *nodes,
        helper.make_node("MatMul", [at("attention"), at("v_head")], [at("seen")]),
        helper.make_node("Transpose", [at("seen")], [at("seen_back")], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", [at("seen_back"), "joined"], [at("seen_joined")]),
        helper.make_node("MatMul", [at("seen_joined"), f"{block}_out"], [at("added")]),
        helper.make_node("Add", [at("added"), before], [at("tokens")]),
        helper.make_node("MatMul", [at("tokens"), f"{block}_network"], [at("inside")]),
        helper.make_node("Relu", [at("inside")], [at("relu")]),
        helper.make_node("Add", [at("tokens"), at("relu")], [block]),
    ]


def write_encoder(folder: Path, **given) -> Path:
    """attentive.onnx, with its description."""
    path = folder / "attentive.onnx"
    onnx.save(model(**given), path)
    described = {"blocks": list(BLOCKS), "size": SIZE, "mean": tiny.MEAN, "std": tiny.STD}
    Path(f"{path}.json").write_text(json.dumps(described))
    return path
