"""A user's own ONNX file: what is taken, what is refused and in which words, what its digest depends on; and projections."""

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
from tests.encoders import refusals
from tests.encoders.test_graph import ENDS, MATRIX, projecting_model
from tests.refusals import refused
from visvm.encoders import catalog, huggingface, weights
from visvm.encoders import onnx as engine
from visvm.encoders.encoder import Preprocessing
from visvm.encoders.loading import load_encoder
from visvm.errors import EncoderError, InputError

REAL = Path(weights.platformdirs.user_cache_path("visvm", appauthor=False)) / "weights"
CLIP, DINO = catalog.CATALOG["clip-b16-openai"], catalog.CATALOG["dinov2-s14"]
GOOD = {
    "blocks": list(tiny.BLOCKS),
    "size": tiny.SIDE,
    "resize": tiny.SIDE + 2,
    "mean": list(tiny.MEAN),
    "std": list(tiny.STD),
}


EXAMPLE = '{"blocks": ["tensor", …], "size": 224'


def images(n=5, seed=1):
    return np.random.default_rng(seed).normal(size=(n, 3, tiny.SIDE, tiny.SIDE)).astype(np.float32)


def describe(path, **changes):
    """Write the description, with some entries changed; None leaves one out."""
    described = {key: value for key, value in (GOOD | changes).items() if value is not None}
    Path(f"{path}.json").write_text(json.dumps(described))


def write_model(folder, change=lambda model: None, **description):
    model = tiny.model()
    change(model)
    onnx.save(model, folder / "changed.onnx")
    describe(folder / "changed.onnx", **description)
    return folder / "changed.onnx"


def refusal(code, path, *facts):
    refusals.refusal(code, lambda: load_encoder(str(path)), *facts, kind=EncoderError)


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
        "tiny",
        "tiny",
        "none",
        "parcel",
        "1",
        path.name,
        size,
        digest,
        tiny.BLOCKS,
        preprocessing,
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
    monkeypatch.setattr(huggingface, "TransformersEncoder", lambda name: name)
    (tmp_path / "model").mkdir()
    assert load_encoder("~/model") == str(tmp_path / "model")
    assert load_encoder("owner/model") == "owner/model"


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


def write_split(folder):
    """The weights in a file beside the model, as exporters write large ones."""
    path = folder / "split.onnx"
    onnx.save(
        tiny.model(), path, save_as_external_data=True, location="split.data", size_threshold=1000
    )
    describe(path)
    return path


def test_weights_in_a_file_beside_count_too(tmp_path):
    path, pixels = write_split(tmp_path), images()
    encoder = load_encoder(str(path))
    np.testing.assert_allclose(encoder.encode(pixels), tiny.reference(pixels), rtol=1e-5, atol=1e-6)
    content = bytearray((tmp_path / "split.data").read_bytes())
    content[2] ^= 1
    (tmp_path / "split.data").write_bytes(content)
    assert digest(path) != encoder.digest


@pytest.mark.parametrize("content", [None, b"too short"])
def test_weights_beside_that_are_missing_or_cut(tmp_path, content):
    path = write_split(tmp_path)
    (tmp_path / "split.data").unlink() if content is None else (
        tmp_path / "split.data"
    ).write_bytes(content)
    refusal("onnx-damaged", path, str(path))


def test_missing_description(tmp_path):
    path = tiny.write_encoder(tmp_path)
    Path(f"{path}.json").unlink()
    refusal("description-missing", path, f"{path}.json", EXAMPLE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1, 2]",
        "3",
        "null",
        '"blocks"',
        "{}",
        '{"size": 8}',
        '{"blocks": ["a"]} x',
        "\x00",
        "line\nline",
    ],
)
def test_description_that_is_no_description(tmp_path, text):
    path = tiny.write_encoder(tmp_path)
    Path(f"{path}.json").write_text(text)
    refusal("description-invalid", path, f"{path}.json", EXAMPLE)


def test_description_that_is_no_text(tmp_path):
    path = tiny.write_encoder(tmp_path)
    Path(f"{path}.json").write_bytes(b"\xff\xfe\x00")
    refusal("description-invalid", path, f"{path}.json", EXAMPLE)
    Path(f"{path}.json").unlink()
    Path(f"{path}.json").mkdir()
    refusal("description-invalid", path, f"{path}.json", EXAMPLE)


@pytest.mark.parametrize(
    "blocks", [[], "block_1", 3, ["block_1", 2], [["block_1"]], {"block_1": 1}]
)
def test_blocks_that_are_no_names(tmp_path, blocks):
    path = write_model(tmp_path, blocks=blocks)
    refusal("description-invalid", path, f"{path}.json", "$.blocks")


@pytest.mark.parametrize("block", ["block_9", "pixels", "W1", "", "two\nlines"])
def test_blocks_that_the_graph_does_not_have(tmp_path, block):
    refusal("block-unknown", write_model(tmp_path, blocks=["block_1", block]), repr(block))


BAD = [
    *({"size": None}, {"mean": None}, {"std": None}),
    *({"size": value} for value in (0, -8, "8", 8.5, [8], 11, float("inf"), float("nan"))),
    *({"resize": value} for value in (0, tiny.SIDE - 1, "big", 9.5, {})),
    *(
        {"mean": value}
        for value in (
            0.5,
            [0.5, 0.5],
            [0.5] * 4,
            ["a", "b", "c"],
            "abc",
            [float("nan")] * 3,
            [10**400] * 3,
        )
    ),
    *(
        {"std": value}
        for value in ([0.5, 0.5, 0.0], [0.5, -0.5, 0.5], [float("inf")] * 3, [None] * 3)
    ),
    {"rezise": 9},
]


@pytest.mark.parametrize("change", BAD, ids=str)
def test_preprocessing_that_cannot_be(tmp_path, change):
    path = write_model(tmp_path, **change)
    refusal("description-invalid", path, f"{path}.json", next(iter(change)))


def test_size_that_the_graph_does_not_take(tmp_path):
    path = write_model(tmp_path, size=9, resize=9)
    refusal("onnx-input", path, str(path), "9 × 9")


@pytest.mark.parametrize(
    "content", [b"", b"no ONNX", b"\x89PNG\r\n\x1a\n" + bytes(100), b"<html>\n</html>"]
)
def test_file_that_is_no_onnx(tmp_path, content):
    path = tiny.write_encoder(tmp_path)
    path.write_bytes(content)
    refusal("onnx-damaged", path, str(path))


def test_file_that_was_cut(tmp_path):
    path = tiny.write_encoder(tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    refusal("onnx-damaged", path, str(path))


def test_file_that_is_missing(tmp_path):
    (tmp_path / "folder.onnx").mkdir()
    for path in (tmp_path / "none.onnx", tmp_path / "folder.onnx"):
        refusal("encoder-file-missing", path, str(path))


def unknown_operation(model):
    model.graph.node[-1].op_type = "Nothing"


def one_image_only(model):
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1


def half_precision(model):
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16


def second_input(model):
    model.graph.input.append(
        helper.make_tensor_value_info("more", TensorProto.FLOAT, ["n", 1, tiny.WIDTH])
    )
    model.graph.node[1].output[0] = "before"
    model.graph.node.insert(2, helper.make_node("Add", ["before", "more"], ["block_1"]))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (unknown_operation, "onnx-unusable"),
        (one_image_only, "onnx-input"),
        (half_precision, "onnx-unusable"),
        (second_input, "onnx-input"),
    ],
)
def test_model_that_cannot_be_used(tmp_path, change, code):
    path = write_model(tmp_path, change)
    refusal(code, path, str(path))


def feature_map(model):
    model.graph.node.append(helper.make_node("Relu", ["pixels"], ["map"]))


def test_tensor_that_is_no_row_of_tokens(tmp_path):
    path = write_model(tmp_path, feature_map, blocks=["map"])
    refusal("blocks-shape", path, str(path), "(n, tokens, width)")


def test_damaged_files_give_features_or_one_line(tmp_path, capfd):
    path = tiny.write_encoder(tmp_path)
    whole, generator = path.read_bytes(), np.random.default_rng(0)
    lines = []
    for _ in range(200):
        content = bytearray(whole)
        for place in generator.integers(1, 500, size=2):
            # names, shapes and the version are at the end
            content[-place] = generator.integers(256)
        path.write_bytes(content)
        try:
            load_encoder(str(path))
        except EncoderError as error:
            lines.append(str(error))
    assert len(lines) > 20
    assert not any("\n" in line for line in lines)
    assert capfd.readouterr() == ("", "")


def test_name_that_is_no_text_is_refused_in_silence(tmp_path, capfd):
    path = tiny.write_encoder(tmp_path)
    before, name, after = path.read_bytes().rpartition(b"inside_3")  # where it is read
    path.write_bytes(before + name[:-1] + b"\xff" + after)
    refusal("onnx-unusable", path, str(path))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["nobody", "dinov2", "DINOV2-S14", "tiny.ONNX", "a/b/c", "x\0y"])
def test_unknown_name(name):
    facts = "dinov2-s14", "clip-b16-openai", ".onnx", "transformers", repr(name)
    refusal("encoder-unknown", name, *facts)


def test_file_of_an_unknown_user():
    refusal("encoder-file-missing", "~no such user/x.onnx", "~no such user")


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
