"""Whether text helps, on a small joint space instead of CIFAR-100."""

from argparse import Namespace

import numpy as np
import pytest
import text

from tests.bench.joint_space import DIMS, TAIL, draw, text_features
from visvm.bench.features import EncodedData
from visvm.bench.methods.method import Setup
from visvm.bench.streams import Samples


@pytest.fixture
def made(monkeypatch):
    texts = text_features(phrases=False)
    data = EncodedData(list(texts.names), *(Samples(*draw(60, seed)) for seed in (0, 1)), texts)
    monkeypatch.setattr(text, "encoded", lambda *_: (data, Setup(DIMS, TAIL.project, 0, TAIL)))
    monkeypatch.setattr(text, "PROTOCOLS", ("B0 Inc3",))
    return data


def test_first_images_of_every_class(made):
    kept = text.first(made, 2).train
    assert np.bincount(kept.targets).tolist() == [2] * 6


def test_tables_have_a_row_for_every_method(made):
    rows = [("zs-clip", {}), ("simplecil", {}), ("vis+text", {"reading": "padded"})]
    few = list(text.few(Namespace(learn="1,4", ask=5, rows=rows)))
    assert few[2] == "| method | 1 a class | 4 a class |"
    assert [line.split(" | ")[0] for line in few[4:]] == [
        *("| zs-clip", "| simplecil"),
        "| vis+text, reading padded",
    ]
    table = list(text.table(Namespace(learn="10", ask=5, rows=[*rows[:2], ("clg-cbm", {})])))
    assert len(table) == 4 + 3
    assert "refused: clg-cbm needs phrases" in table[-1]
