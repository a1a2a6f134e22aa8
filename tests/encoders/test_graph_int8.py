"""int8 weights become float32 again: weight · scale, beside the same done by hand."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType

from tests import tiny
from tests.encoders.graphs import (
    PREPROCESSING,
    ROUNDING,
    constant,
    images,
    int8_model,
    prepared,
    run,
)
from tests.encoders.refusals import refusal
from visvm.encoders.graph import dequantise, prepare
from visvm.errors import EncoderError


def product_model(weight, scale, zero, x_shape=("n", 4)):
    """One product as dynamic quantisation writes it; no zero point where `zero` is None."""
    inputs = ["quantised", "weight", "x_zero", *(["zero"] if zero is not None else [])]
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["quantised", "x_scale", "x_zero"]),
        helper.make_node("MatMulInteger", inputs, ["sums"]),
        helper.make_node("Cast", ["sums"], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x_scale", "scale"], ["factor"]),
        helper.make_node("Mul", ["cast", "factor"], ["y"]),
    ]
    constants = [constant("weight", weight), constant("scale", scale)]
    if zero is not None:
        constants.append(constant("zero", zero))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, x_shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "product", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def int8_parts(seed=0):
    generator = np.random.default_rng(seed)
    weight = generator.integers(-127, 128, size=(4, 3)).astype(np.int8)
    return (
        weight,
        generator.uniform(0.01, 0.1, size=3).astype(np.float32),
        np.zeros(3, dtype=np.int8),
    )


def test_quantised_model_becomes_float32_again(tmp_path):
    model = int8_model(tmp_path)
    parts = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    first, *others = (
        parts[f"W{n}_quantized"].astype(np.float32) * parts[f"W{n}_scale"] for n in (1, 2, 3)
    )
    pixels = images()
    blocks = [pixels.reshape(len(pixels), -1) @ first]
    for matrix in others:
        blocks.append(blocks[-1] + np.maximum(blocks[-1] @ matrix, 0.0))
    ready = prepared(model)
    np.testing.assert_allclose(
        run(ready.SerializeToString(), pixels), np.concatenate(blocks, axis=1), **ROUNDING
    )
    assert not any(
        "Integer" in node.op_type or "Quantize" in node.op_type for node in ready.graph.node
    )
    assert all(
        tensor.data_type in (TensorProto.FLOAT, TensorProto.INT64)
        for tensor in ready.graph.initializer
    )


def test_quantised_model_is_near_the_one_it_was_made_of(tmp_path):
    pixels = images()
    features, expected = (
        run(prepare(int8_model(tmp_path), tiny.BLOCKS, PREPROCESSING), pixels),
        tiny.reference(pixels),
    )
    error = np.abs(features - expected).max() / np.abs(expected).max()
    assert 0 < error < 0.02


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("has_zero", [True, False])
def test_weights_are_multiplied_by_their_scale(channels, has_zero):
    weight, scale, zero = int8_parts()
    scale, zero = (scale, zero) if channels == 3 else (scale[0], zero[0])
    model = product_model(weight, scale, zero if has_zero else None)
    dequantise(model.graph)
    x = np.random.default_rng(2).normal(size=(6, 4)).astype(np.float32)
    np.testing.assert_allclose(
        run(model.SerializeToString(), x, "y"), x @ (weight * scale), **ROUNDING
    )
    (whole,) = (
        numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if tensor.name == "weight_float32"
    )
    assert np.array_equal(whole, weight.astype(np.float32) * scale)


def test_float_graph_is_left_as_it_is():
    model = tiny.model()
    dequantise(model.graph)
    assert model == tiny.model()


def unsupported(call, *facts):
    refusal("quantisation-unsupported", call, *facts, kind=EncoderError)


@pytest.mark.parametrize("channel", [0, 2])
def test_zero_point_is_refused(channel):
    weight, scale, zero = int8_parts()
    zero[channel] = 3
    unsupported(
        lambda: dequantise(product_model(weight, scale, zero).graph), "weight", "zero point"
    )


def test_asymmetric_quantisation_is_refused(tmp_path):
    model = int8_model(
        tmp_path, weight_type=QuantType.QUInt8, extra_options={"WeightSymmetric": False}
    )
    unsupported(lambda: prepare(model, tiny.BLOCKS, PREPROCESSING), "zero point")


def weight_is_no_constant(graph):
    graph.initializer[0].name = "elsewhere"
    graph.node.insert(0, helper.make_node("Identity", ["elsewhere"], ["weight"]))


def sums_are_read_twice(graph):
    graph.node.append(helper.make_node("Cast", ["sums"], ["again"], to=TensorProto.FLOAT))


def scale_is_no_constant(graph):
    graph.initializer[1].name = "elsewhere"
    graph.node.insert(0, helper.make_node("Identity", ["elsewhere"], ["scale"]))


def sums_are_not_scaled(graph):
    del graph.node[-1]


@pytest.mark.parametrize(
    "change",
    [weight_is_no_constant, sums_are_read_twice, scale_is_no_constant, sums_are_not_scaled],
)
def test_other_int8_products_are_refused(change):
    model = product_model(*int8_parts())
    change(model.graph)
    unsupported(lambda: dequantise(model.graph), "sums")
