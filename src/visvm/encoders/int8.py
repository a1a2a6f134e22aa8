"""Let an encoder multiply in whole numbers of 8 bits, which many CPUs do several times as fast.

What goes into a product has a scale for every token, so that an image is encoded alike in any
batch. Weights have one for every output, small enough for CPUs without VNNI, which add up two
products at a time in 16 bits. Nothing is calibrated, so no images are needed. All operators are
standard.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visvm.errors import EncoderError

if TYPE_CHECKING:
    import onnx

_OURS = "visvm_int8"  # what the names of added tensors begin with
_AXES_ARE_INPUTS = 18  # the opset since which ReduceMax takes its axes so
_PAIR = 128  # 255 times that fits into the 16 bits that CPUs without VNNI add up two products in

_SHARED: dict[str, NDArray[Any]] = {
    "signed": np.array(1 / 127, dtype=np.float32),
    "unsigned": np.array(1 / 255, dtype=np.float32),
    "middle": np.array(128, dtype=np.uint8),
    "zero": np.array(0, dtype=np.uint8),
    "least": np.array(1e-12, dtype=np.float32),  # for rows that are all alike
    "axes": np.array([-1]),
}
"""Constants of all products."""


def multiply_in_int8(name: str, model: "onnx.ModelProto") -> None:
    """Make all products with constant matrices those of whole numbers, in place.

    With W ≈ V·s, V whole and s a scale for every column, ``x·W`` becomes

    - ``(round(127·x/p)·V)·p·s/127``, with p the largest number of a row of x, or
    - ``(round(255·(x - l)/w)·V)·w·s/255 + l·ΣW``, with l the least number of a row of x and w how
      far its numbers go above that, where more numbers go in than come out: behind an activation
      few are far below zero, and the second sum costs little there.

    Parameters
    ----------
    name : str
        For messages.
    model : onnx.ModelProto
        In float32; opset 11 or later.
    """
    from onnx import numpy_helper

    graph = model.graph
    matrices = {
        each.name: numpy_helper.to_array(each) for each in graph.initializer if len(each.dims) == 2
    }
    opset = next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    made: dict[str, list[onnx.NodeProto]] = {}
    stored = dict(_SHARED)
    for node in graph.node:
        if node.op_type == "MatMul" and (matrix := matrices.get(node.input[1])) is not None:
            above = matrix.shape[0] > matrix.shape[1]
            made[node.output[0]] = list((_above if above else _around)(node, opset))
            stored |= _whole(node.input[1], matrix, 255 if above else 127)
    if not made:
        raise EncoderError(
            f"{name} cannot multiply in int8: its graph has no product with a constant matrix. "
            "Leave out the :int8 of its name.",
            code="int8-unsupported",
        )
    nodes = [each for node in graph.node for each in made.get(node.output[0], [node])]
    read = {name for node in nodes for name in node.input}
    kept = [each for each in graph.initializer if each.name in read or each.name not in matrices]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)
    graph.initializer.extend(
        numpy_helper.from_array(value, f"{_OURS}_{name}")
        for name, value in stored.items()
        if f"{_OURS}_{name}" in read
    )


def _whole(name: str, matrix: NDArray[np.float32], most: int) -> dict[str, NDArray[Any]]:
    """Return a matrix in whole numbers, (k, m), what products with it are multiplied by, and sums.

    CPUs take two rows at a time: the whole numbers of both are at most 128 together.
    """
    sizes = np.abs(matrix)
    pairs = np.add.reduceat(sizes, np.arange(0, len(matrix), 2), axis=0)
    # two that are rounded may gain one, and none may be above 127
    peaks = np.maximum(pairs.max(axis=0) / (_PAIR - 1), sizes.max(axis=0) / 127)
    scale = np.maximum(peaks, np.float32(1e-30))
    return {
        f"{name}_whole": np.rint(matrix / scale).astype(np.int8),
        f"{name}_scale": (scale / most).astype(np.float32),
        f"{name}_sums": matrix.sum(axis=0),
    }


def _around(node: "onnx.NodeProto", opset: int) -> "Iterator[onnx.NodeProto]":
    """Yield what takes the place of a product with rows whose numbers are around zero."""
    from onnx import helper

    taken, (at, ours) = node.input[0], _names(node)
    make = helper.make_node
    yield make("Abs", [taken], [at("sizes")])
    yield _reduced("ReduceMax", at("sizes"), at("most"), opset)
    yield make("Add", [at("most"), ours("least")], [at("peak")])
    yield make("Div", [taken, at("peak")], [at("rows")])
    yield from _multiplied(node, "signed", "middle")
    yield make("Mul", [at("scaled"), at("peak")], list(node.output))


def _above(node: "onnx.NodeProto", opset: int) -> "Iterator[onnx.NodeProto]":
    """Yield what takes the place of a product with rows whose numbers are above their least."""
    from onnx import helper

    taken, matrix = node.input
    at, ours = _names(node)
    make = helper.make_node
    yield _reduced("ReduceMax", taken, at("most"), opset)
    yield _reduced("ReduceMin", taken, at("low"), opset)
    yield make("Sub", [at("most"), at("low")], [at("between")])
    yield make("Add", [at("between"), ours("least")], [at("width")])
    yield make("Sub", [taken, at("low")], [at("lifted")])
    yield make("Div", [at("lifted"), at("width")], [at("rows")])
    yield from _multiplied(node, "unsigned", "zero")
    yield make("Mul", [at("scaled"), at("width")], [at("wide")])
    yield make("Mul", [at("low"), ours(f"{matrix}_sums")], [at("of_low")])
    yield make("Add", [at("wide"), at("of_low")], list(node.output))


def _multiplied(node: "onnx.NodeProto", step: str, zero: str) -> "Iterator[onnx.NodeProto]":
    """Yield a product of rows, brought to whole numbers, with a matrix in whole numbers."""
    from onnx import TensorProto, helper

    at, ours = _names(node)
    whole, scale = (ours(f"{node.input[1]}_{part}") for part in ("whole", "scale"))
    make = helper.make_node
    yield make("QuantizeLinear", [at("rows"), ours(step), ours(zero)], [at("whole")])
    yield make("MatMulInteger", [at("whole"), whole, ours(zero)], [at("sums")])
    yield make("Cast", [at("sums")], [at("float")], to=TensorProto.FLOAT)
    yield make("Mul", [at("float"), scale], [at("scaled")])


def _names(node: "onnx.NodeProto") -> tuple[Callable[[str], str], Callable[[str], str]]:
    """Return how tensors of a product are called, and constants."""
    return f"{_OURS}_of_{node.output[0]}_{{}}".format, f"{_OURS}_{{}}".format


def _reduced(kind: str, taken: str, made: str, opset: int) -> "onnx.NodeProto":
    """Return a node that takes the largest or least number of every row."""
    from onnx import helper

    if opset >= _AXES_ARE_INPUTS:
        return helper.make_node(kind, [taken, f"{_OURS}_axes"], [made])
    return helper.make_node(kind, [taken], [made], axes=[-1])
