"""What is refused of a user's own ONNX file, in one line."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests import tiny
from tests.encoders import refusals
from tests.encoders.descriptions import write_model, write_split
from visvm.encoders.loading import load_encoder
from visvm.errors import EncoderError

pytestmark = pytest.mark.slow

EXAMPLE = '{"blocks": ["tensor", …], "size": 224'


def refusal(code, path, *facts):
    refusals.refusal(code, lambda: load_encoder(str(path)), *facts, kind=EncoderError)


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
