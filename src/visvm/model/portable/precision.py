"""Smaller files: weights of a graph in half precision or in 8 bits, made float32 when it is loaded.

Only what is stored changes: every product is computed in float32, on every processor. A runtime
makes the weights float32 once, as they are constants. Numbers of 8 bits have one scale for each
output of their layer; those of half precision have one power of two, so that none is too small.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from visvm.errors import InputError
from visvm.model.portable.net import EXACT

PRECISIONS = ("float32", "float16", "int8")
_SMALLEST = 4096  # numbers in a tensor; below, there is nothing to save
_OUTPUTS = {"MatMul": 1, "Conv": 0}  # axis of a layer's outputs in its weights


def check_precision(precision: object) -> None:
    """Refuse an unknown precision."""
    if precision not in PRECISIONS:
        raise InputError(
            f"The 'precision' parameter must be one of {', '.join(PRECISIONS)}. "
            f"Got {precision!r} instead.",
            code="precision-unknown",
        )


def store_smaller(model: ModelProto, precision: str) -> None:
    """Store the weights of a graph in this precision, in place."""
    if precision == "float32":
        return
    graph = model.graph
    axes = _output_axes(graph)
    kept: list[TensorProto] = []
    nodes: list[NodeProto] = []
    for tensor in graph.initializer:
        small = tensor.data_type != TensorProto.FLOAT or np.prod(tensor.dims) < _SMALLEST
        if small or tensor.name.startswith(EXACT):
            kept.append(tensor)
            continue
        values, axis = numpy_helper.to_array(tensor), axes.get(tensor.name)
        eight = precision == "int8" and axis is not None
        stored, scale = _eight_bits(values, axis or 0) if eight else _half(values)
        kept += [
            numpy_helper.from_array(stored, f"{tensor.name}/stored"),
            numpy_helper.from_array(scale, f"{tensor.name}/scale"),
        ]
        nodes += _restored(tensor.name)
    nodes += graph.node
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(kept)
    graph.node.extend(nodes)


def _restored(name: str) -> Iterator[NodeProto]:
    whole = f"{name}/float32"
    yield helper.make_node("Cast", [f"{name}/stored"], [whole], to=TensorProto.FLOAT)
    yield helper.make_node("Mul", [whole, f"{name}/scale"], [name])


def _output_axes(graph: GraphProto) -> dict[str, int]:
    """Return the axis of the outputs of those constants that are weights of a layer."""
    matrices = {tensor.name for tensor in graph.initializer if len(tensor.dims) > 1}
    return {
        node.input[1]: _OUTPUTS[node.op_type]
        for node in graph.node
        if node.op_type in _OUTPUTS and node.input[1] in matrices
    }


def _eight_bits(values: NDArray[np.float32], axis: int) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Return whole numbers from -127 to 127, and the scale of every output."""
    others = tuple(each for each in range(values.ndim) if each != axis)
    peaks = np.abs(values).max(axis=others, keepdims=True)
    scale = np.where(peaks > 0.0, peaks / 127.0, 1.0).astype(np.float32)
    return np.rint(values / scale).astype(np.int8), scale


def _half(values: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Return numbers of half precision, and the power of two that they were divided by."""
    peak = float(np.abs(values).max(initial=0.0))
    exponent = np.frexp(peak)[1] - 15  # so that the largest is just in range
    scale = np.float32(np.ldexp(1.0, exponent)) if peak > 0.0 else np.float32(1.0)
    return (values / scale).astype(np.float16), np.asarray(scale)
