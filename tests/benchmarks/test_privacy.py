"""The attacks of ``benchmarks/privacy_attack.py`` on small sums whose photos are known."""

import numpy as np
import pytest
from privacy_attack import Descent, Seen, Vertices, from_class_sum

from visvm.head.lift import KernelMap
from visvm.head.scatter import DenseScatter, ThinScatter
from visvm.head.statistics import Statistics

WIDTH, D = 6, 150
MAP = KernelMap(WIDTH, D, seed=0)


def photos(n, n_classes=2, seed=0):
    generator = np.random.default_rng(seed)
    labels = np.arange(n) % n_classes
    centres = generator.normal(size=(1 + n_classes, WIDTH))
    return centres[0] + centres[1 + labels] + generator.normal(size=(n, WIDTH)), labels


def sums_of(fused, labels, *, dense=False):
    sums = Statistics(D)
    sums.add(MAP.lift(fused), labels)
    if dense:
        sums.scatter = sums.scatter.to_dense()
    return sums


@pytest.mark.parametrize("dense", [False, True], ids=["thin", "dense"])
@pytest.mark.parametrize("method", [Vertices, Descent])
def test_sums_of_few_photos_give_all_of_them_away(method, dense):
    fused, labels = photos(12)
    sums = sums_of(fused, labels, dense=dense)
    assert isinstance(sums.scatter, DenseScatter if dense else ThinScatter)
    found = method(Seen.of(sums), MAP.matrix).run(budget=20)
    assert found.n_right(fused) == len(fused) == len(found.features)


def test_a_session_is_attacked_alone():
    wide, n = KernelMap(WIDTH, 400, seed=0), 70  # too many to be mixed with the session before
    fused, labels = photos(2 * n)
    sums = Statistics(400)
    for begin in (0, n):
        sums.add(wide.lift(fused[begin : begin + n]), labels[begin : begin + n] + begin)
    found = Descent(Seen.of_last_block(sums), wide.matrix).run(budget=20)
    assert found.n_right(fused[n:]) == len(found.features) == n


def test_as_many_photos_as_features_leave_no_hull():
    fused, labels = photos(2 * D)
    found = Descent(Seen.of(sums_of(fused, labels)), MAP.matrix).run(budget=0.3)
    assert found.n_right(fused) == 0


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_class_sum_of_few_photos_gives_them_away(n):
    fused, _ = photos(n)
    found = from_class_sum(MAP.lift(fused).sum(axis=0), n, MAP.matrix, budget=20)
    assert found.n_right(fused) == n
