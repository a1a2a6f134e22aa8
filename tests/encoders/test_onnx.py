"""A user's own ONNX file: what is taken, what its digest depends on; and projections."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from sklearn.datasets import load_sample_images

from tests import tiny
from tests.encoders.descriptions import GOOD, describe, write_model, write_split
from tests.encoders.test_graph import ENDS, MATRIX, projecting_model
from tests.refusals import refused
from visvm.encoders import catalog, huggingface, weights
from visvm.encoders import onnx as engine
from visvm.encoders.encoder import Preprocessing
from visvm.encoders.loading import load_encoder
from visvm.errors import InputError

pytestmark = pytest.mark.slow

REAL = Path(weights.platformdirs.user_cache_path("visvm", appauthor=False)) / "weights"
CLIP, DINO = catalog.CATALOG["clip-b16-openai"], catalog.CATALOG["dinov2-s14"]


def images(n=5, seed=1):
    return np.random.default_rng(seed).normal(size=(n, 3, tiny.SIDE, tiny.SIDE)).astype(np.float32)


def test_features_are_those_of_the_graph(tmp_path):
    path = tiny.write_encoder(tmp_path)
    encoder, pixels = load_encoder(str(path)), images()
    features = encoder.encode(pixels)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, tiny.reference(pixels), rtol=1e-5, atol=1e-6)
    assert encoder.name == str(path)
    assert encoder.layer_dims == (tiny.WIDTH,) * 3
    assert encoder.preprocessing == Preprocessing(tiny.SIDE, tiny.SIDE + 2, tiny.MEAN, tiny.STD)


def test_final_features_of_a_file_of_ones_own_are_left_as_they_are(tmp_path):
    encoder = load_encoder(str(write_model(tmp_path)))
    final = encoder.encode(images())[:, -tiny.WIDTH :]
    assert np.array_equal(encoder.project(final), final)
    for wrong in (final[:, 1:], final[0]):
        with refused("features-shape", InputError) as caught:
            encoder.project(wrong)
        assert "(n, 12)" in str(caught.value)
        assert str(wrong.shape) in str(caught.value)


def tiny_entry(folder):
    """An entry of the catalogue with a projection, and the file it means."""
    path = folder / "projecting.onnx"
    onnx.save(projecting_model(), path)
    preprocessing = Preprocessing(tiny.SIDE, tiny.SIDE, tiny.MEAN, tiny.STD)
    digest, size = weights.file_digest(path), path.stat().st_size
    entry = catalog.CatalogEntry(
        name="tiny",
        what="tiny",
        licence="none",
        project="parcel",
        version="1",
        member=path.name,
        n_bytes=size,
        sha256=digest,
        blocks=tiny.BLOCKS,
        preprocessing=preprocessing,
        projection=ENDS,
    )
    return entry, path


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    """The weights of a catalogue's encoder with a projection, in a cache of the test."""
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    entry, path = tiny_entry(tmp_path)
    monkeypatch.setitem(catalog.CATALOG, "tiny", entry)
    return weights.fetch("tiny", lambda done, total: None, path)


def test_projection_of_the_catalogue_is_that_of_its_graph(fetched):
    encoder = load_encoder("tiny")
    final = encoder.encode(images())[:, -tiny.WIDTH :]
    projected = encoder.project(final)
    assert projected.dtype == np.float32
    np.testing.assert_allclose(
        projected, (final - final.mean(axis=1, keepdims=True)) @ MATRIX, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(encoder.project(final.astype(float)), projected)
    assert encoder.project(final[:0]).shape == (0, 5)


def test_projection_is_opened_once_and_not_before_it_is_needed(fetched, monkeypatch):
    opened, plain = [], engine._open
    monkeypatch.setattr(
        engine, "_open", lambda name, model: opened.append(type(model)) or plain(name, model)
    )
    encoder = load_encoder("tiny")
    final = encoder.encode(images())[:, -tiny.WIDTH :]
    assert bytes not in opened
    for _ in range(2):
        encoder.project(final)
    assert opened.count(bytes) == 1


def test_file_without_the_projection_is_not_taken_for_one_with_it(fetched, monkeypatch):
    digest = load_encoder("tiny").digest
    monkeypatch.setitem(
        catalog.CATALOG, "tiny", dataclasses.replace(catalog.CATALOG["tiny"], projection=None)
    )
    assert weights.find("tiny") is None
    fetched.rename(
        fetched.with_name(
            f"tiny.{weights._recipe(catalog.CATALOG['tiny'])}.{fetched.name.split('.')[2]}.onnx"
        )
    )
    # the features are the same, and so are the keys of those in the cache
    assert load_encoder("tiny").digest == digest


@pytest.mark.skipif(
    not list(REAL.glob(f"{CLIP.name}.{weights._recipe(CLIP)}.*.onnx")),
    reason="the weights of CLIP are not here",
)
def test_real_projection_is_that_of_the_published_graph(monkeypatch):
    monkeypatch.delenv("VISVM_CACHE", raising=False)
    encoder = engine.OnnxEncoder(CLIP.name, CLIP.sha256, weights.locate(CLIP.name))
    pictures = np.stack([picture[:224, :224] for picture in load_sample_images().images]) / 255
    pixels = (
        ((pictures - CLIP.preprocessing.mean) / CLIP.preprocessing.std)
        .transpose(0, 3, 1, 2)
        .astype(np.float32)
    )
    projected = encoder.project(encoder.encode(pixels)[:, -768:])
    assert projected.shape == (2, 512)
    # image_embeds of the published file with float32 in place of its int8 products, run whole
    expected = [
        [-0.0203, -0.9697, -0.3777, 0.1406, -0.2139, 0.1072],
        [0.1510, -1.5935, 0.0524, -0.1489, 0.0721, 0.0295],
    ]
    np.testing.assert_allclose(projected[:, :6], expected, rtol=0, atol=1e-3)
    np.testing.assert_allclose(
        np.linalg.norm(projected, axis=1), [10.5580, 11.5963], rtol=0, atol=1e-3
    )


def test_blocks_and_their_order_are_those_of_the_description(tmp_path):
    path = write_model(tmp_path, blocks=["block_3", "block_1"])
    encoder, pixels = load_encoder(str(path)), images()
    first, _, third = np.split(tiny.reference(pixels), 3, axis=1)
    assert encoder.layer_dims == (tiny.WIDTH,) * 2
    np.testing.assert_allclose(
        encoder.encode(pixels), np.concatenate([third, first], axis=1), rtol=1e-5, atol=1e-6
    )


def test_resize_is_size_unless_it_is_given(tmp_path):
    assert load_encoder(str(write_model(tmp_path, resize=None))).preprocessing.resize == tiny.SIDE


def test_home_folder_may_be_written_as_tilde(tmp_path, monkeypatch):
    tiny.write_encoder(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert load_encoder("~/tiny.onnx").layer_dims == (tiny.WIDTH,) * 3


def test_folder_may_be_written_as_tilde_too(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setattr(huggingface, "TransformersEncoder", lambda name, size, **_: (name, size))
    (tmp_path / "model").mkdir()
    assert load_encoder("~/model") == (str(tmp_path / "model"), None)
    assert load_encoder("owner/model@56") == ("owner/model", 56)


def other_input_first(model):
    model.graph.input.insert(0, helper.make_tensor_value_info("text", TensorProto.INT64, ["n", 7]))


def test_inputs_that_the_blocks_do_not_need_are_no_matter(tmp_path):
    pixels = images()
    features = load_encoder(str(write_model(tmp_path, other_input_first))).encode(pixels)
    np.testing.assert_allclose(features, tiny.reference(pixels), rtol=1e-5, atol=1e-6)


def digest(path):
    return load_encoder(str(path)).digest


def test_digest_depends_on_weights_blocks_and_preprocessing(tmp_path):
    path = tiny.write_encoder(tmp_path)
    digests = [digest(path)]
    changes = [
        {"blocks": list(tiny.BLOCKS[:2])},
        {"blocks": list(tiny.BLOCKS[::-1])},
        {"resize": 12},
    ]
    for change in [*changes, {"mean": [0.5, 0.5, 0.4]}, {"std": [0.5, 0.4, 0.5]}]:
        describe(path, **change)
        digests.append(digest(path))
    digests.append(digest(tiny.write_encoder(tmp_path, seed=1)))
    assert len(set(digests)) == len(digests)
    assert all(len(each) == 64 for each in digests)


def test_digest_does_not_depend_on_place_or_spelling(tmp_path):
    path = tiny.write_encoder(tmp_path)
    first = digest(path)
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / "other name.onnx"
    shutil.move(path, moved)
    Path(f"{moved}.json").write_text(json.dumps(GOOD, indent=4, sort_keys=True))
    assert digest(moved) == first


def test_weights_in_a_file_beside_count_too(tmp_path):
    path, pixels = write_split(tmp_path), images()
    encoder = load_encoder(str(path))
    np.testing.assert_allclose(encoder.encode(pixels), tiny.reference(pixels), rtol=1e-5, atol=1e-6)
    content = bytearray((tmp_path / "split.data").read_bytes())
    content[2] ^= 1
    (tmp_path / "split.data").write_bytes(content)
    assert digest(path) != encoder.digest


@pytest.mark.skipif(
    not list(REAL.glob(f"{DINO.name}.{weights._recipe(DINO)}.*.onnx")),
    reason="DINOv2's weights are not here",
)
def test_real_projection_of_dinov2_is_a_layer_norm_with_gain_and_bias(monkeypatch):
    monkeypatch.delenv("VISVM_CACHE", raising=False)
    encoder = engine.OnnxEncoder(DINO.name, DINO.sha256, weights.locate(DINO.name))
    final = np.random.default_rng(0).normal(size=(500, 384)).astype(np.float32)
    normed = (final - final.mean(axis=1, keepdims=True)) / np.sqrt(
        final.var(axis=1, keepdims=True) + 1e-6
    )
    projected = encoder.project(final)
    for column in range(0, 384, 50):
        gain, bias = np.polyfit(normed[:, column], projected[:, column], 1)
        np.testing.assert_allclose(projected[:, column], gain * normed[:, column] + bias, atol=1e-4)
        assert gain > 0.1
