"""The tail of CLIP: read from ONNX and from transformers, and turned round."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.refusals import refused
from visvm.encoders.joint import Tail, read_tail, tail_of
from visvm.encoders.texts import unit
from visvm.errors import EncoderError

WIDTH, P = 6, 4


def draw(seed, width=WIDTH, p=P):
    generator = np.random.default_rng(seed)
    gain = generator.uniform(0.5, 1.5, size=width)
    return Tail(generator.normal(size=(width, p)), gain, 0.1 * generator.normal(size=width), 1e-5)


def graph(tail, written_out):
    """The projection as exporters write it: one node for the norm, or each of its steps."""
    parts = {"gain": tail.gain, "bias": tail.bias, "matrix": tail.matrix}
    constants = [
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in parts.items()
    ]
    steps = [
        helper.make_node("LayerNormalization", ["x", "gain", "bias"], ["h"], epsilon=1e-5, axis=-1)
    ]
    if written_out:
        numbers = {"two": 2.0, "eps": 1e-5}
        steps = [
            *(
                helper.make_node(
                    "Constant", [], [name], value=numpy_helper.from_array(np.float32(n))
                )
                for name, n in numbers.items()
            ),
            helper.make_node("ReduceMean", ["x"], ["mean"], axes=[-1]),
            helper.make_node("Sub", ["x", "mean"], ["centred"]),
            helper.make_node("Pow", ["centred", "two"], ["squares"]),
            helper.make_node("ReduceMean", ["squares"], ["variance"], axes=[-1]),
            helper.make_node("Add", ["variance", "eps"], ["more"]),
            helper.make_node("Sqrt", ["more"], ["spread"]),
            helper.make_node("Div", ["centred", "spread"], ["standard"]),
            helper.make_node("Mul", ["standard", "gain"], ["scaled"]),
            helper.make_node("Add", ["scaled", "bias"], ["h"]),
        ]
    steps.append(helper.make_node("MatMul", ["h", "matrix"], ["y"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", None]) for name in "xy"]
    made = helper.make_graph(steps, "projection", ends[:1], ends[1:], constants)
    opset = helper.make_opsetid("", 14 if written_out else 17)
    return helper.make_model(made, opset_imports=[opset], ir_version=8)


@pytest.mark.parametrize("written_out", [False, True])
def test_the_tail_of_a_graph_computes_what_the_graph_does(written_out):
    import onnxruntime

    tail = draw(0)
    model = graph(tail, written_out)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    rows = np.random.default_rng(1).normal(size=(5, WIDTH)).astype(np.float32)
    (wanted,) = session.run(None, {"x": rows})
    found = read_tail(model)
    assert found.epsilon == pytest.approx(1e-5)
    assert found.project(rows) == pytest.approx(wanted, abs=1e-5)


def test_a_projection_without_a_norm_is_none():
    model = graph(draw(0), written_out=False)
    del model.graph.node[0]
    model.graph.node[0].input[0] = "x"
    assert read_tail(model) is None
    assert tail_of(object()) is None


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(4, 12), st.integers(1, 3))
def test_a_preimage_projects_where_its_text_is_and_is_the_shortest(seed, width, p):
    tail = draw(seed, width, p)
    texts = unit(np.random.default_rng(seed).normal(size=(3, p)))
    rows = tail.preimage(texts)
    assert unit(tail.project(rows)) == pytest.approx(texts, abs=1e-4)
    assert rows.mean(axis=1) == pytest.approx(np.zeros(3), abs=1e-9)
    assert (rows**2).mean(axis=1) == pytest.approx(np.ones(3))
    assert unit(tail.project(7.0 * rows)) == pytest.approx(texts, abs=1e-4)
    bare = Tail(tail.matrix)
    assert bare.preimage(texts) @ tail.matrix == pytest.approx(texts, abs=1e-9)


def test_a_bias_that_no_feature_overcomes_is_refused():
    tail = Tail(np.eye(4)[:, :2], np.ones(4), np.array([9.0, 0.0, 0.0, 0.0]))
    with refused("preimage-missing", EncoderError):
        tail.preimage(np.array([[0.0, 1.0]]))


def test_the_tail_of_transformers_clip_is_its_projection(tmp_path):
    transformers = pytest.importorskip("transformers")
    from visvm.encoders.catalog import CLIP_MEAN, CLIP_STD
    from visvm.encoders.encoder import Preprocessing
    from visvm.encoders.tower import TowerEncoder

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = transformers.CLIPVisionConfig(
        **sizes, num_attention_heads=2, image_size=8, patch_size=4, projection_dim=3
    )
    module = transformers.CLIPVisionModelWithProjection(config)
    encoder = TowerEncoder("tiny", module, Preprocessing(8, 8, CLIP_MEAN, CLIP_STD))
    rows = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    assert tail_of(encoder).project(rows) == pytest.approx(encoder.project(rows), abs=1e-5)
