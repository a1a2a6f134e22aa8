"""The small network as an ONNX graph, in the layouts of the catalogue's files."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.bench.small_vit import DEPTH, HALF, PATCH, SIDE, WIDTH, weights
from visvm.bench.vit.graphs import _CLIP, _DINO
from visvm.encoders.graph import prepare

HEADS = 1  # of a width below 64


class Writer:
    """Nodes that are called as PyTorch's exporter calls them."""

    def __init__(self, given):
        self.weights, self.nodes, self.constants = given, [], []

    def constant(self, value, name=None):
        name = name or f"onnx::{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind, inputs, output, **given):
        self.nodes.append(helper.make_node(kind, inputs, [output], **given))
        return output

    def norm(self, tokens, module, place):
        start = f"{module}/"
        mean = self.node("ReduceMean", [tokens], f"{start}mean", axes=[-1])
        centred = self.node("Sub", [tokens, mean], f"{start}Sub_output_0")
        two, epsilon = (self.constant(np.float32(each)) for each in (2.0, 1e-5))
        square = self.node("Pow", [centred, two], f"{start}Pow_output_0")
        spread = self.node("ReduceMean", [square], f"{start}spread", axes=[-1])
        spread = self.node("Add", [spread, epsilon], f"{start}Add_output_0")
        root = self.node("Sqrt", [spread], f"{start}Sqrt_output_0")
        whole = self.node("Div", [centred, root], f"{start}Div_output_0")
        gain, bias = (self.constant(self.weights[f"{place}.{part}"]) for part in ("weight", "bias"))
        whole = self.node("Mul", [whole, gain], f"{start}Mul_output_0")
        return self.node("Add", [whole, bias], f"{start}Add_1_output_0")

    def linear(self, tokens, module, weight, bias):
        matrix = self.constant(np.ascontiguousarray(weight.T))
        found = self.node("MatMul", [tokens, matrix], f"{module}/MatMul_output_0")
        return self.node("Add", [self.constant(bias), found], f"{module}/Add_output_0")

    def heads(self, tokens, name, transposed=False):
        shape = self.constant(np.array([0, -1, HEADS, WIDTH // HEADS]))
        split = self.node("Reshape", [tokens, shape], f"{name}_split")
        order = [0, 2, 3, 1] if transposed else [0, 2, 1, 3]
        return self.node("Transpose", [split], f"{name}_heads", perm=order)

    def attention(self, tokens, start, layout, block):
        rows = self.weights[f"{block}.qkv.weight"], self.weights[f"{block}.qkv.bias"]
        names = layout["qkv"]
        if len(names) == 1:
            whole = self.linear(tokens, f"{start}{names[0]}", *rows)
            parts = [f"{start}{each}" for each in "qkv"]
            self.nodes.append(helper.make_node("Split", [whole], parts, axis=-1))
        else:
            cut = [np.split(each, 3) for each in rows]
            parts = [
                self.linear(tokens, f"{start}{name}", cut[0][at], cut[1][at])
                for at, name in enumerate(names)
            ]
        q, k, v = (self.heads(each, each, at == 1) for at, each in enumerate(parts))
        scores = self.node("MatMul", [q, k], f"{start}scores")
        root = self.constant(np.float32(np.sqrt(WIDTH // HEADS)))
        scores = self.node("Div", [scores, root], f"{start}scaled")
        shares = self.node("Softmax", [scores], f"{start}shares", axis=-1)
        mixed = self.node("MatMul", [shares, v], f"{start}mixed")
        mixed = self.node("Transpose", [mixed], f"{start}back", perm=[0, 2, 1, 3])
        shape = self.constant(np.array([0, -1, WIDTH]))
        mixed = self.node("Reshape", [mixed, shape], f"{start}joined")
        given = (self.weights[f"{block}.proj.{part}"] for part in ("weight", "bias"))
        return self.linear(mixed, f"{start}{layout['proj']}", *given)

    def activated(self, x, start, quick):
        if quick:
            scaled = self.node("Mul", [x, self.constant(np.float32(1.702))], f"{start}1702")
            share = self.node("Sigmoid", [scaled], f"{start}sigmoid")
            return self.node("Mul", [x, share], f"{start}gelu")
        root, one, half = (self.constant(np.float32(each)) for each in (2**0.5, 1.0, 0.5))
        erf = self.node("Erf", [self.node("Div", [x, root], f"{start}root")], f"{start}erf")
        whole = self.node("Mul", [x, self.node("Add", [erf, one], f"{start}one")], f"{start}x")
        return self.node("Mul", [whole, half], f"{start}gelu")

    def block(self, tokens, layout, block):
        start = layout["start"].format(block)
        normed = self.norm(tokens, f"{start}{layout['norm1']}", f"{block}.norm1")
        tokens = self.joined(tokens, self.attention(normed, start, layout, block), start, 1, block)
        normed = self.norm(tokens, f"{start}{layout['norm2']}", f"{block}.norm2")
        for part in ("fc1", "fc2"):
            given = (self.weights[f"{block}.{part}.{each}"] for each in ("weight", "bias"))
            normed = self.linear(normed, f"{start}{layout[part]}", *given)
            normed = self.activated(normed, start, layout is _CLIP) if part == "fc1" else normed
        return self.joined(tokens, normed, start, 2, block)

    def joined(self, tokens, branch, start, number, block):
        if (scale := self.weights.get(f"{block}.scale{number}")) is not None:
            module = f"{start}ls{number}"
            branch = self.node("Mul", [branch, self.constant(scale)], f"{module}/Mul_output_0")
        name = f"{start}Add{'_1' if number == 2 else ''}_output_0"
        return self.node("Add", [tokens, branch], name)


def exported(clip):
    """A prepared file of one of the two layouts; "added" are its positions."""
    given = {name: each.numpy() for name, each in weights(clip=clip, scaled=not clip).items()}
    w, layout = Writer(given), _CLIP if clip else _DINO
    cut = ["pixels", w.constant(given["patch.weight"])]
    cut += [] if clip else [w.constant(given["patch.bias"])]
    patches = w.node("Conv", cut, "cut", strides=[PATCH, PATCH])
    flat = w.node("Reshape", [patches, w.constant(np.array([0, WIDTH, -1]))], "flat")
    patches = w.node("Transpose", [flat], "patches", perm=[0, 2, 1])
    # the file has the CLS token apart from its position
    first = (np.arange(len(given["positions"])) == 0)[:, None]
    cls = w.constant(np.full((1, 1, WIDTH), 0.25, np.float32), layout["cls"])
    table = w.constant(np.float32(given["positions"] - 0.25 * first)[None])
    added = w.node("Identity", [table], "added")
    blank = w.node("ReduceMean", [patches], "mean", axes=[1])
    blank = w.node("Mul", [blank, w.constant(np.float32(0.0))], "blank")  # for each of a batch
    cls = w.node("Add", [blank, cls], "first")
    tokens = w.node("Concat", [cls, patches], "tokens", axis=1)
    tokens = w.node("Add", [tokens, added], "placed")
    if clip:
        tokens = w.norm(tokens, "/vision_model/pre_layrnorm", "before")
    blocks = []
    for block in range(DEPTH):
        tokens = w.block(tokens, layout, block)
        blocks.append(tokens)
    axis = w.node("Gather", [tokens, w.constant(np.int64(0))], "cls", axis=1)
    out = w.norm(axis, "/vision_model/post_layernorm" if clip else "/norm", "norm")
    if clip:
        matrix = w.constant(np.ascontiguousarray(given["projection"].T))
        out = w.node("MatMul", [out, matrix], "image_embeds")
    info = helper.make_tensor_value_info
    pixels = info("pixels", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])
    graph = helper.make_graph(
        w.nodes, "small", [pixels], [info(out, TensorProto.FLOAT, None)], w.constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return prepare(model, blocks, HALF, projection=("cls", out))
