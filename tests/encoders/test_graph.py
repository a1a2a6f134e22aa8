"""What the prepared graph computes, beside numpy."""

import base64
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

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
from visvm.encoders.graph import METADATA, OUTPUT, PROJECTION, prepare
from visvm.errors import EncoderError

MATRIX = np.random.default_rng(3).normal(size=(tiny.WIDTH, 5)).astype(np.float32)
ENDS = ("cls", "embeds")


def projecting_model():
    """The tiny model, and after it what CLIP has: the CLS token less its mean, times a matrix."""
    model = tiny.model()
    model.graph.initializer.extend([constant("first", np.int64(0)), constant("P", MATRIX)])
    model.graph.node.extend(
        [
            helper.make_node("Gather", ["block_3", "first"], ["cls"], axis=1),
            helper.make_node("ReduceMean", ["cls"], ["mean"], axes=[1]),
            helper.make_node("Sub", ["cls", "mean"], ["centred"]),
            helper.make_node("MatMul", ["centred", "P"], ["embeds"]),
        ]
    )
    model.graph.output.append(helper.make_tensor_value_info("embeds", TensorProto.FLOAT, ["n", 5]))
    return model


def projection_of(content):
    """The small model that a prepared file carries."""
    (packed,) = (
        entry.value
        for entry in onnx.load_from_string(content).metadata_props
        if entry.key == PROJECTION
    )
    return onnx.load_from_string(base64.b64decode(packed))


def test_prepared_graph_gives_all_blocks_side_by_side():
    pixels = images()
    features = run(prepare(tiny.model(), tiny.BLOCKS, PREPROCESSING), pixels)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, tiny.reference(pixels), **ROUNDING)


def test_each_block_is_exactly_what_the_graph_as_it_came_puts_out():
    pixels, model = images(), tiny.model()
    model.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1, None])
        for name in tiny.BLOCKS[:2]
    )
    came = [run(model.SerializeToString(), pixels, name)[:, 0] for name in tiny.BLOCKS]
    assert np.array_equal(
        run(prepare(tiny.model(), tiny.BLOCKS, PREPROCESSING), pixels), np.concatenate(came, axis=1)
    )


def test_blocks_come_in_the_order_asked_for():
    pixels = images()
    turned = run(prepare(tiny.model(), tiny.BLOCKS[::-1], PREPROCESSING), pixels)
    blocks = np.split(tiny.reference(pixels), 3, axis=1)
    np.testing.assert_allclose(turned, np.concatenate(blocks[::-1], axis=1), **ROUNDING)


def test_first_token_is_taken():
    model = tiny.model()
    model.graph.node.append(helper.make_node("Neg", ["block_3"], ["negative"]))
    model.graph.node.append(
        helper.make_node("Concat", ["block_3", "negative"], ["two tokens"], axis=1)
    )
    pixels = images()
    features = run(prepare(model, ["two tokens"], PREPROCESSING), pixels)
    np.testing.assert_allclose(features, tiny.reference(pixels)[:, 2 * tiny.WIDTH :], **ROUNDING)


def test_output_of_rank_two_is_taken_whole():
    model = tiny.model()
    model.graph.initializer.append(constant("first", np.int64(0)))
    model.graph.node.append(helper.make_node("Gather", ["block_3", "first"], ["pooled"], axis=1))
    pixels = images()
    features = run(prepare(model, ["block_1", "pooled"], PREPROCESSING), pixels)
    expected = np.delete(tiny.reference(pixels), np.s_[tiny.WIDTH : 2 * tiny.WIDTH], axis=1)
    np.testing.assert_allclose(features, expected, **ROUNDING)


def test_what_the_output_does_not_need_is_dropped():
    model = tiny.model()
    model.graph.initializer.append(constant("unused", np.ones(1000, dtype=np.float32)))
    model.graph.node.append(helper.make_node("Exp", ["block_3"], ["also unused"]))
    model.graph.input.append(helper.make_tensor_value_info("text", TensorProto.INT64, ["n", 7]))
    graph = prepared(model, ["block_1", "block_2"]).graph
    assert {tensor.name for tensor in graph.initializer} == {"shape", "W1", "W2", "visvm_cls"}
    assert [node.op_type for node in graph.node] == [
        "Reshape",
        "MatMul",
        "MatMul",
        "Relu",
        "Add",
        "Gather",
        "Gather",
        "Concat",
    ]
    assert [info.name for info in graph.input] == ["pixels"]
    assert [info.name for info in graph.output] == [OUTPUT]


def test_constants_listed_as_inputs_do_not_become_inputs():
    """Files of IR version 3 list every constant among the inputs too."""
    model = tiny.model()
    model.ir_version = 3
    model.graph.initializer.append(constant("unused", np.ones(3, dtype=np.float32)))
    model.graph.input.extend(
        helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in model.graph.initializer
    )
    pixels = images()
    np.testing.assert_allclose(
        run(prepare(model, tiny.BLOCKS, PREPROCESSING), pixels), tiny.reference(pixels), **ROUNDING
    )


def branch(name, operation):
    out = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    return helper.make_graph(
        [helper.make_node(operation, ["block_3", "only inside"], [name])], name, [], [out]
    )


def test_constants_that_only_a_branch_reads_are_kept():
    model = tiny.model()
    model.graph.initializer.extend(
        [constant("yes", np.array(True)), constant("only inside", np.float32(2.0))]
    )
    branches = {"then_branch": branch("double", "Mul"), "else_branch": branch("more", "Add")}
    model.graph.node.append(helper.make_node("If", ["yes"], ["chosen"], **branches))
    pixels = images()
    features = run(prepare(model, ["chosen"], PREPROCESSING), pixels)
    np.testing.assert_allclose(
        features, 2 * tiny.reference(pixels)[:, 2 * tiny.WIDTH :], **ROUNDING
    )


def test_file_says_how_images_are_prepared():
    (entry,) = prepared(tiny.model()).metadata_props
    assert entry.key == METADATA
    described = {
        "n_blocks": 3,
        "size": tiny.SIDE,
        "resize": tiny.SIDE + 2,
        "mean": list(tiny.MEAN),
        "std": list(tiny.STD),
    }
    assert json.loads(entry.value) == described


def test_projection_is_what_the_graph_makes_of_the_final_cls_token():
    pixels = images()
    final = tiny.reference(pixels)[:, -tiny.WIDTH :].astype(np.float32)
    part = projection_of(prepare(projecting_model(), tiny.BLOCKS, PREPROCESSING, ENDS))
    projected = run(part.SerializeToString(), final, "embeds")
    np.testing.assert_allclose(
        projected, (final - final.mean(axis=1, keepdims=True)) @ MATRIX, **ROUNDING
    )
    np.testing.assert_allclose(
        projected,
        run(projecting_model().SerializeToString(), pixels, "embeds"),
        rtol=1e-4,
        atol=1e-5,
    )
    assert {tensor.name for tensor in part.graph.initializer} == {"P"}


def test_projection_leaves_the_graph_of_the_layer_features_as_it_is():
    without, with_it = (
        prepare(projecting_model(), tiny.BLOCKS, PREPROCESSING, ends) for ends in (None, ENDS)
    )
    assert onnx.load_from_string(without).graph == onnx.load_from_string(with_it).graph
    assert [entry.key for entry in onnx.load_from_string(without).metadata_props] == [METADATA]


def test_quantised_projection_becomes_float32_again(tmp_path):
    model = int8_model(tmp_path, projecting_model())
    parts = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    part = projection_of(prepare(model, tiny.BLOCKS, PREPROCESSING, ENDS))
    final = np.random.default_rng(4).normal(size=(6, tiny.WIDTH)).astype(np.float32)
    expected = (final - final.mean(axis=1, keepdims=True)) @ (
        parts["P_quantized"] * parts["P_scale"]
    )
    np.testing.assert_allclose(run(part.SerializeToString(), final, "embeds"), expected, **ROUNDING)
    assert [node.op_type for node in part.graph.node] == ["ReduceMean", "Sub", "MatMul"]


@pytest.mark.parametrize(
    "ends", [("cls", "nothing"), ("nothing", "embeds"), ("embeds", "cls"), ("mean", "embeds")]
)
def test_projection_that_does_not_lie_between_its_ends_is_refused(ends):
    refusal(
        "projection-ends",
        lambda: prepare(projecting_model(), tiny.BLOCKS, PREPROCESSING, ends),
        *map(repr, ends),
        kind=EncoderError,
    )


def test_same_model_gives_same_bytes():
    first, second = (prepare(tiny.model(), tiny.BLOCKS, PREPROCESSING) for _ in range(2))
    assert first == second


def test_unknown_block_is_refused():
    refusal(
        "block-unknown",
        lambda: prepare(tiny.model(), ["block_1", "block_9"], PREPROCESSING),
        "'block_9'",
        kind=EncoderError,
    )


def test_blocks_of_two_widths_are_refused():
    model = tiny.model()
    model.graph.initializer.append(constant("P", np.ones((tiny.WIDTH, 5), dtype=np.float32)))
    model.graph.node.append(helper.make_node("MatMul", ["block_3", "P"], ["projected"]))
    refusal(
        "blocks-shape",
        lambda: prepare(model, ["block_1", "projected"], PREPROCESSING),
        "[5, 12]",
        kind=EncoderError,
    )


def test_invalid_graph_is_refused():
    model = tiny.model()
    del model.graph.node[0].input[1]
    refusal("graph-invalid", lambda: prepare(model, tiny.BLOCKS, PREPROCESSING), kind=EncoderError)
