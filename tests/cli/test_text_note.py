"""``visvm text note``: text features from elsewhere become a file that says what they are."""

import numpy as np
import pytest

from tests.cli.test_main import refused
from tests.tiny import write_encoder
from visvm.encoders.loading import load_encoder
from visvm.encoders.texts import read_texts
from visvm.progress import silent


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.eye(2, 3, dtype=np.float16)
    np.savez("given.npz", names=np.array(["ape", "bee"]), features=rows)
    return tmp_path


def test_what_was_encoded_and_for_which_tower_is_noted(visvm, place):
    write_encoder(place)
    given = ("given.npz", "--prompt", "one definition per class", "--out", "noted.npz")
    code, out, err = visvm("text", "note", *given)
    assert (code, err) == (0, "")
    assert out == "noted.npz: 2 classes, one definition per class\n"
    noted = read_texts(place / "noted.npz")
    assert (noted.prompts, noted.tower) == (("one definition per class",), "")
    assert not noted.image_digest
    assert np.array_equal(noted.features, read_texts(place / "given.npz").features)
    more = ("--tower", "CLIP", "--image-encoder", "tiny.onnx", "--quiet")
    assert visvm("text", "note", *given, *more) == (0, "", "")
    noted = read_texts(place / "noted.npz")
    assert noted.image_digest == load_encoder("tiny.onnx", silent).digest
    assert noted.tower == "CLIP"


def test_every_prompt_is_described(visvm, place):
    given = ("given.npz", "--prompt", "a {}", "--prompt", "the {}", "--out", "noted.npz")
    refused(visvm("text", "note", *given), code="prompt-count")
    assert not (place / "noted.npz").exists()
