"""Small graphs, with a projection or in int8."""

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from tests import tiny
from visvm.encoders.encoder import Preprocessing
from visvm.encoders.graph import OUTPUT, prepare

PREPROCESSING = Preprocessing(tiny.SIDE, tiny.SIDE + 2, tiny.MEAN, tiny.STD)
# ONNX Runtime and numpy add the products of a row in different orders.
ROUNDING = {"rtol": 1e-5, "atol": 1e-6}


def images(n=5, seed=1):
    return np.random.default_rng(seed).normal(size=(n, 3, tiny.SIDE, tiny.SIDE)).astype(np.float32)


def run(content, pixels, output=OUTPUT):
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run([output], {session.get_inputs()[0].name: pixels})[0]


def prepared(model, blocks=tiny.BLOCKS):
    return onnx.load_from_string(prepare(model, blocks, PREPROCESSING))


def constant(name, values):
    return numpy_helper.from_array(np.asarray(values), name)


def int8_model(folder, model=None, **options):
    """The tiny model, or another, after ONNX Runtime's dynamic quantisation."""
    onnx.save(model or tiny.model(), folder / "float.onnx")
    settings = {
        "per_channel": True,
        "weight_type": QuantType.QInt8,
        "extra_options": {"WeightSymmetric": True},
    } | options
    quantize_dynamic(folder / "float.onnx", folder / "int8.onnx", **settings)
    return onnx.load(folder / "int8.onnx")
