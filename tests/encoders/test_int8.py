"""Encoders that multiply in whole numbers, beside numpy that does it as the docstring says."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests import tiny
from tests.encoders import attentive
from tests.encoders.attentive import SIZE
from tests.encoders.graphs import ROUNDING, constant
from tests.model.test_portable import compare
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.encoders.int8 import multiply_in_int8
from visvm.encoders.loading import known_digest, load_encoder
from visvm.errors import EncoderError


@pytest.fixture
def file(tmp_path):
    return attentive.write_encoder(tmp_path)


def images(n=5, seed=1):
    return np.random.default_rng(seed).normal(size=(n, 3, SIZE, SIZE)).astype(np.float32)


def product(opset, matrix):
    """x → x·W, and a use of W beside that."""
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["y"]),
        helper.make_node("Transpose", ["W"], ["turned"]),
    ]
    k, m = matrix.shape
    shapes = {"x": ["n", "t", k], "y": ["n", "t", m], "turned": [m, k]}
    given, made, turned = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    )
    graph = helper.make_graph(nodes, "product", [given], [made, turned], [constant("W", matrix)])
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def wanted(x, matrix):
    """What the docstring says."""
    pairs = [np.abs(matrix[row : row + 2]).sum(axis=0) for row in range(0, len(matrix), 2)]
    scales = np.maximum(np.max(pairs, axis=0) / 127, np.abs(matrix).max(axis=0) / 127)
    scales = np.maximum(scales, 1e-30)
    whole = np.rint(matrix / scales)
    assert (
        max(np.abs(whole[row : row + 2]).sum(axis=0).max() for row in range(len(whole) - 1)[::2])
        <= 128
    )
    if matrix.shape[0] <= matrix.shape[1]:
        peaks = np.abs(x).max(axis=-1, keepdims=True) + 1e-12
        return np.rint(127 * x / peaks) @ whole * peaks / 127 * scales
    low = x.min(axis=-1, keepdims=True)
    width = x.max(axis=-1, keepdims=True) - low + 1e-12
    return np.rint(255 * (x - low) / width) @ whole * width / 255 * scales + low * matrix.sum(
        axis=0
    )


@pytest.mark.parametrize("opset", [14, 18])
@pytest.mark.parametrize("sides", [(33, 12), (12, 33)])
def test_a_product_is_that_of_whole_numbers(opset, sides):
    generator = np.random.default_rng(0)
    matrix = generator.normal(size=sides).astype(np.float32)
    matrix[:, 3] = 0.0
    x = generator.normal(size=(2, 5, len(matrix))) * 10.0 ** np.arange(-2, 3)[:, None]
    x = x.astype(np.float32)
    x[0, 0], x[0, 1] = 0.0, 7.0
    model = product(opset, matrix)
    multiply_in_int8("product", model)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    y, turned = session.run(None, {"x": x})
    peaks = np.abs(x).max(axis=-1, keepdims=True) + 1e-12
    np.testing.assert_allclose(y / peaks, wanted(x.astype(float), matrix) / peaks, atol=2e-2)
    errors = np.abs(y - x @ matrix) / peaks
    assert 0 < errors.max() < 0.2
    np.testing.assert_array_equal(turned, matrix.T)


def test_features_are_nearly_the_same(file):
    pixels = images(40)
    exact, whole = (load_encoder(f"{file}{form}").encode(pixels) for form in ("", f"@{SIZE}:int8"))
    assert not np.array_equal(exact, whole)
    assert np.corrcoef(exact.ravel(), whole.ravel())[0, 1] > 0.999
    fewer = load_encoder(f"{file}@{SIZE}:5:int8").encode(pixels)
    exactly = load_encoder(f"{file}@{SIZE}:5").encode(pixels)
    assert np.abs(fewer - exactly).mean() < np.abs(fewer - whole).mean()


def test_an_image_is_encoded_alike_in_any_batch(file):
    encoder, pixels = load_encoder(f"{file}@{SIZE}:int8"), images()
    pixels[0] *= 100.0  # which must not take digits from the others
    alone = np.concatenate([encoder.encode(pixels[[row]]) for row in range(len(pixels))])
    np.testing.assert_allclose(encoder.encode(pixels), alone, **ROUNDING)


def test_it_is_an_encoder_of_its_own(file):
    names = [str(file), *(f"{file}@{SIZE}:{form}" for form in ("5", "int8", "5:int8"))]
    encoders = [load_encoder(name) for name in names]
    assert [each.name for each in encoders] == names
    assert len({each.digest for each in encoders}) == 4
    forms = ("", "@336", "@224:96", "@224:int8", "@336:int8", "@224:96:int8")
    assert len({known_digest(f"dinov2-s14{form}") for form in forms} - {None}) == len(forms)


def test_a_model_remembers_it(file, tmp_path):
    photos = tiny.write_photos(tmp_path / "photos")
    name = f"{file}@{SIZE}:5:int8"
    taught = ImageClassifier(name, n_components=50, cache=False)
    taught.learn(photos)
    taught.save(tmp_path / "m.visvm")
    again = ImageClassifier.load(tmp_path / "m.visvm", cache=False)
    assert again.encoder_name == name
    photo = next(photos.rglob("*.png"))
    assert again.predict(photo, raw=True)[0].score == taught.predict(photo, raw=True)[0].score
    taught.export_onnx(tmp_path / "m.onnx")
    compare(taught, tmp_path / "m.onnx", [photo], tolerance=1e-5)


def test_what_cannot_be_is_refused(tmp_path):
    with refused("int8-unsupported", EncoderError):  # in torch
        load_encoder("owner/model@224:int8")
    model = attentive.model()
    del model.graph.initializer[:]
    with refused("int8-unsupported", EncoderError):
        multiply_in_int8("none", model)
