"""``visvm text encode``: names to a file, on a tower that is made on the spot."""

import gzip
import json

import pytest

pytest.importorskip("torch")

from tests.cli.test_main import refused
from tests.encoders.test_text_tower import MERGES, build
from visvm.encoders import bpe
from visvm.encoders.texts import read_texts


@pytest.fixture
def place(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bpe, "_N_MERGES", len(MERGES))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bpe.txt.gz"
    path.write_bytes(gzip.compress("\n".join(["#version", *MERGES]).encode()))
    build("gelu").save_pretrained("clip")
    bpe.clip_tokenizer(path).save_pretrained("clip")
    capsys.readouterr()  # the bars of transformers
    (tmp_path / "names.txt").write_text("1.Low_Cat\ncat\n")
    (tmp_path / "said.json").write_text(json.dumps({"cat": ["low"], "1.Low_Cat": {"cat": ["a"]}}))
    return tmp_path


GIVEN = ("--encoder", "clip", "--image-encoder", "unknown", "--out", "texts.npz")


def test_names_become_a_file(visvm, place):
    prompts = ("--prompt", "a {}", "--prompt", "low {}", "--phrases", "said.json")
    code, out, err = visvm("text", "encode", "names.txt", *GIVEN, *prompts)
    assert (code, err) == (0, "")
    assert "2 classes, 2 prompts, 2 phrases, 5 wide" in out
    texts = read_texts(place / "texts.npz")
    assert texts.names == ("1.Low_Cat", "cat")
    assert texts.prompts == ("a {}", "low {}")
    assert texts.phrases.texts == ("cat with low", "Low Cat with a")
    assert texts.phrases.classes.tolist() == [[1, -1], [0, 1]]
    visvm("text", "encode", "names.txt", *GIVEN, "--quiet", "--prompt", "cub200")
    assert read_texts(place / "texts.npz").prompts == ("a photo of a {}, a type of bird.",)


@pytest.mark.parametrize(
    ("changed", "content", "more", "code"),
    [
        ("names.txt", "", [], "names-invalid"),
        ("names.txt", "cat\ncat\n", [], "names-invalid"),
        ("names.txt", None, [], "names-unreadable"),
        ("said.json", '{"dog": ["x"]}', ["--phrases", "said.json"], "phrases-invalid"),
        ("said.json", '{"cat": "x"}', ["--phrases", "said.json"], "phrases-invalid"),
        ("said.json", "{", ["--phrases", "said.json"], "phrases-invalid"),
        (None, None, ["--prompt", "a cat"], "prompt-invalid"),
        (None, None, ["--phrase-prompt", "{name}"], "prompt-invalid"),
        (None, None, ["--image-encoder", "none"], "encoder-unknown"),
    ],
)
def test_mistakes_are_refused(visvm, place, changed, content, more, code):
    if changed:
        path = place / changed
        path.unlink() if content is None else path.write_text(content)
    refused(visvm("text", "encode", "names.txt", *GIVEN, *more), code=code)
    assert not (place / "texts.npz").exists()
