"""Turn an ONNX file as published into one that gives layer features, once, after the download.

Two changes to the graph, neither of which changes what it computes:

- int8 weights become float32 again. They are symmetric per output channel, so they stand for
  ``weight · scale``. What goes wrong on CPUs whose 8-bit products saturate is the 8-bit
  *activations* between them.
- the CLS tokens of all blocks, side by side, become the only output, and everything that does not
  lead there is dropped.

What leads from the final CLS token to the projection, if there is one, becomes a small model of its
own. It travels in the file's metadata: the same digest covers it, and it costs nothing until it is
opened.

``onnx.utils.Extractor`` also cuts graphs, but drops constants that only branches and loops read.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from visvm.encoders.encoder import Preprocessing
from visvm.errors import EncoderError

if TYPE_CHECKING:
    import onnx

OUTPUT = "layer_features"
METADATA = "visvm"
"""Key of the JSON that a prepared file carries: the number of blocks, and preprocessing."""
PROJECTION = "visvm_projection"
"""Key of the model, in base64, that projects final CLS tokens: (n, width) → (n, p)."""


def prepare(
    model: "onnx.ModelProto",
    blocks: Sequence[str],
    preprocessing: Preprocessing,
    projection: tuple[str, str] | None = None,
) -> bytes:
    """Make a vision transformer's graph give layer features, and note how images are prepared.

    Parameters
    ----------
    model : onnx.ModelProto
        Changed in place.
    blocks : sequence of str
        The tensors that the blocks output, (n, tokens, width) with the CLS token first, or (n,
        width); the final one last.
    preprocessing : Preprocessing
    projection : tuple of two str, optional
        First and last tensor of the projection: the final block's CLS token, (n, width), and the
        model's own output, (n, p).

    Returns
    -------
    bytes
        The new file's content.
    """
    shapes = _shapes(model)  # of the graph as it came: shape inference is slow on large constants
    dequantise(model.graph)
    described = {METADATA: json.dumps({"n_blocks": len(blocks), **asdict(preprocessing)})}
    if projection is not None:
        part = _between(model, *projection)
        described[PROJECTION] = base64.b64encode(
            part.SerializeToString(deterministic=True)
        ).decode()
    _tap(model.graph, blocks, shapes)
    _drop_unused(model.graph)
    del model.metadata_props[:]
    for key, value in described.items():
        model.metadata_props.add(key=key, value=value)
    return bytes(model.SerializeToString(deterministic=True))


def dequantise(graph: "onnx.GraphProto") -> None:
    """Replace products of dynamically quantised activations and int8 weights by float32 products.

    ``x → DynamicQuantizeLinear → MatMulInteger(·, weight) → Cast → Mul(·, scale) → y`` becomes
    ``x → MatMul(·, weight · scale) → y``.
    """
    from onnx import helper, numpy_helper

    constants = {tensor.name: tensor for tensor in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    products: dict[str, onnx.NodeProto] = {}  # by the name of what they put out
    for node in graph.node:
        if node.op_type != "MatMulInteger":
            continue
        quantised, weight, _, zero = (*node.input, "", "")[:4]
        try:
            (cast,) = readers[node.output[0]]
            (scaled,) = readers[cast.output[0]]
            (factor,) = (name for name in scaled.input if name != cast.output[0])
            (scale,) = (name for name in makers[factor].input if name in constants)
            lifted = numpy_helper.to_array(constants[zero]).any() if zero else False
            whole = numpy_helper.to_array(constants[weight]).astype(
                np.float32
            ) * numpy_helper.to_array(constants[scale])
        except (KeyError, ValueError):  # a part is missing, or there is one too many
            raise EncoderError(
                f"The int8 product {node.output[0]} cannot become float32: only dynamic "
                "quantisation with constant weights can. Export the model in float32.",
                code="quantisation-unsupported",
            ) from None
        if lifted:
            raise EncoderError(
                f"The int8 weights {weight} are not symmetric: they have a zero point. "
                "Export the model in float32.",
                code="quantisation-unsupported",
            )
        graph.initializer.append(numpy_helper.from_array(whole, f"{weight}_float32"))
        product = helper.make_node(
            "MatMul", [makers[quantised].input[0], f"{weight}_float32"], scaled.output
        )
        products[scaled.output[0]] = product
    nodes = [products.get(node.output[0], node) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _shapes(model: "onnx.ModelProto") -> dict[str, list[int]]:
    """Return the shapes of a graph's tensors, as far as they can be inferred; 0 where open."""
    from onnx import shape_inference

    try:
        graph = shape_inference.infer_shapes(model).graph
    except (shape_inference.InferenceError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise EncoderError(
            f"The ONNX graph is not valid ({reason}). Export the model again.", code="graph-invalid"
        ) from error
    shapes = {
        info.name: info.type.tensor_type.shape.dim for info in [*graph.value_info, *graph.output]
    }
    return {name: [side.dim_value for side in sides] for name, sides in shapes.items()}


def _between(model: "onnx.ModelProto", start: str, end: str) -> "onnx.ModelProto":
    """Return what leads from one tensor, (n, any), to another, as a model of its own."""
    from onnx import TensorProto, helper

    graph = model.graph
    nodes, needed = _leading_to(
        {end}, (node for node in reversed(graph.node) if start not in node.output)
    )
    constants = [tensor for tensor in graph.initializer if tensor.name in needed]
    outside = needed.intersection([start, *(info.name for info in graph.input)]) - {
        tensor.name for tensor in constants
    }
    if outside != {start}:
        raise EncoderError(
            f"The projection to {end!r} does not start from {start!r} alone but from "
            f"{sorted(outside)}. Name other tensors.",
            code="projection-ends",
        )
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", None])]
        for name in (start, end)
    )
    part = helper.make_graph(nodes, "projection", inputs, outputs, constants)
    return helper.make_model(part, opset_imports=model.opset_import, ir_version=model.ir_version)


def _tap(graph: "onnx.GraphProto", blocks: Sequence[str], shapes: dict[str, list[int]]) -> None:
    """Make the blocks' CLS tokens, side by side, the only output."""
    from onnx import TensorProto, helper

    known = {name for node in graph.node for name in node.output}
    widths = {shapes[name][-1] for name in blocks if shapes.get(name)} - {0}
    if len(widths) > 1:
        raise EncoderError(
            f"The blocks have different widths, {sorted(widths)}. Name no projection among them.",
            code="blocks-shape",
        )
    graph.initializer.append(helper.make_tensor("visvm_cls", TensorProto.INT64, [], [0]))
    tokens = []
    for number, name in enumerate(blocks):
        if name not in known:
            raise EncoderError(
                f"The ONNX graph has no tensor {name!r}. Name those that its blocks output.",
                code="block-unknown",
            )
        if len(shapes.get(name, [])) == 2:
            tokens.append(name)
            continue
        tokens.append(f"visvm_block_{number}")
        graph.node.append(helper.make_node("Gather", [name, "visvm_cls"], [tokens[-1]], axis=1))
    graph.node.append(helper.make_node("Concat", tokens, [OUTPUT], axis=1))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", None]))


def _drop_unused(graph: "onnx.GraphProto") -> None:
    """Drop nodes, constants and inputs that the output does not need."""
    kept, needed = _leading_to({output.name for output in graph.output}, reversed(graph.node))
    constants = [tensor for tensor in graph.initializer if tensor.name in needed]
    inputs = [info for info in graph.input if info.name in needed]
    del graph.node[:], graph.initializer[:], graph.input[:], graph.value_info[:]
    graph.node.extend(kept)
    graph.initializer.extend(constants)
    graph.input.extend(inputs)


def _leading_to(
    needed: set[str], backwards: "Iterable[onnx.NodeProto]"
) -> "tuple[list[onnx.NodeProto], set[str]]":
    """Return the nodes that some tensors need, from first to last, and all names they need."""
    kept: list[onnx.NodeProto] = []
    for node in backwards:
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(_reads(node))
    return kept[::-1], needed


def _reads(node: "onnx.NodeProto") -> Iterator[str]:
    """Yield the names of what a node, its branches and its loop bodies read."""
    yield from node.input
    for attribute in node.attribute:
        for inside in (attribute.g, *attribute.graphs):
            for each in inside.node:
                yield from _reads(each)
