"""Whether text helps where photos are few, on a small joint space instead of CIFAR-100."""

from argparse import Namespace

import numpy as np
import text

from tests.bench.joint_space import DIMS, TAIL, draw, text_features
from visvm.bench.streams import Samples

TRAIN, TEST = (Samples(*draw(60, seed)) for seed in (0, 1))


def test_a_draw_has_so_many_images_of_every_class():
    one, other = (text.drawn(TRAIN, 3, seed) for seed in (0, 1))
    assert np.bincount(one.targets).tolist() == [3] * 6
    assert not np.array_equal(one.features, other.features)


def test_the_table_has_a_row_for_every_number_of_photos(monkeypatch, capsys):
    monkeypatch.setattr(text, "WIDTH", 40)
    given = Namespace(shots="1,4", draws=2)
    lines = text.few(TRAIN, TEST, TAIL, DIMS, text_features(phrases=False), given)
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| 1", "| 4"]
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
    assert capsys.readouterr().out.splitlines() == lines[2:]


def test_the_weight_is_that_by_which_most_photos_are_named(monkeypatch):
    monkeypatch.setattr(text, "WIDTH", 40)
    directions = TAIL.preimage(text_features().prototypes.astype(float))
    accuracies = text.trial(text.drawn(TRAIN, 2, 0), TEST, DIMS, directions)
    assert accuracies[-1] in accuracies[1:-1]
    wrong = text.trial(text.drawn(TRAIN, 2, 0), TEST, DIMS, directions[::-1].copy())
    assert min(accuracies[1:-1]) > max(wrong[1:-1])
