import copy
import pickle

import numpy as np
import pytest

from tests import reference
from visvm.head.lift import KernelMap, frozen_normal


def test_the_stream_is_frozen():
    # Philox4x64-10 with key 0 and the polar method; these bits may never change, or old models
    # could not be read.
    drawn = frozen_normal(0, 4)
    assert [value.hex() for value in drawn.tolist()] == GOLDEN_NORMALS
    assert KernelMap(384, 1000, seed=0).digest == GOLDEN_DIGEST


def test_philox_is_the_published_one():
    # Random123's known answer for philox4x64-10, counter and key zero; numpy counts up before it
    # draws.
    source = np.random.Philox(key=0, counter=2**256 - 1)
    assert [hex(word) for word in source.random_raw(4).tolist()] == [
        "0x16554d9eca36314c",
        "0xdb20fe9d672d0fdc",
        "0xd7e772cee186176b",
        "0x7e68b68aec7ba23b",
    ]


def test_a_longer_draw_begins_with_the_shorter():
    np.testing.assert_array_equal(frozen_normal(7, 200_000)[:1000], frozen_normal(7, 1000))


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_the_numbers_are_standard_normal(seed):
    from scipy.stats import kstest

    drawn = frozen_normal(seed, 200_000)
    assert kstest(drawn, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.01


def test_seeds_differ():
    assert abs(np.corrcoef(frozen_normal(0, 10_000), frozen_normal(1, 10_000))[0, 1]) < 0.05


def test_entries_have_variance_one_over_inputs():
    assert KernelMap(50, 4000, seed=0).matrix.std() == pytest.approx(1 / np.sqrt(50), rel=0.01)


def test_the_kernel_becomes_the_arc_cosine_kernel_as_the_width_grows():
    x = np.random.default_rng(0).normal(size=(12, 8)) + 0.5
    wanted = reference.arc_cosine_kernel(x, x) / (2 * 8)  # φ·φ / D, with variance 1/d
    errors = []
    for width in (100, 2500, 62_500):
        phi = KernelMap(8, width, seed=3).lift(x)
        errors.append(np.abs(phi @ phi.T / width - wanted).max() / wanted.max())
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.02
    assert errors[0] / errors[2] > 8  # 25 where it falls with the square root of D


def test_a_map_is_pickled_without_its_matrix_and_drawn_again():
    kernel_map = KernelMap(20, 500, seed=9)
    data = pickle.dumps(kernel_map)
    assert len(data) < 1000
    np.testing.assert_array_equal(pickle.loads(data).matrix, kernel_map.matrix)
    state = kernel_map.__getstate__() | {"digest": "0" * 64}
    with pytest.raises(RuntimeError):
        copy.copy(kernel_map).__setstate__(state)


def test_no_map_copies():
    x = np.ones((2, 3), dtype=np.float32)
    lifted = KernelMap(3, None, seed=0).lift(x)
    assert lifted.dtype == np.float64
    lifted += 1
    assert x.max() == 1


GOLDEN_NORMALS = [
    "-0x1.061a6039cc8d0p-2",
    "-0x1.e95c38971e138p-6",
    "-0x1.962f6cf863d86p+0",
    "-0x1.0bec8eb952d57p-2",
]
GOLDEN_DIGEST = "5a70d1c6c7be72040fc70d2ec36ae0c805aa0c58045c31853d9bd4606e7ee21c"


@pytest.mark.parametrize("n_components", [None, 6])
def test_steps_say_what_lift_computes_and_whether_it_is_ever_negative(n_components):
    kernel_map, fused = KernelMap(4, n_components, seed=3), np.linspace(-1.0, 1.0, 20).reshape(5, 4)
    compute = {"MatMul": np.matmul, "Relu": lambda rows: np.maximum(rows, 0.0)}
    lifted = fused
    for operator, constant in kernel_map.steps:
        lifted = compute[operator](lifted, *(() if constant is None else (constant,)))
    assert lifted == pytest.approx(kernel_map.lift(fused))
    assert kernel_map.nonnegative == (lifted.min() >= 0.0)


def test_the_features_of_one_image_can_be_computed_from_what_comes_back():
    """What SECURITY.md says of exports: the mean of a class of one image hides nothing."""
    kernel_map, u = KernelMap(8, 300, 0), np.random.default_rng(1).normal(size=8)
    back = kernel_map.recovered(kernel_map.lift(u[None]))[0]
    found = back
    for _ in range(20):  # Newton
        along = kernel_map.matrix * (found @ kernel_map.matrix > 0.0)
        slope = kernel_map.back_scale * along @ kernel_map.matrix.T
        missing = kernel_map.recovered(kernel_map.lift(found[None]))[0] - back
        found = found - np.linalg.solve(slope, missing)
    assert np.abs(back - u).max() > 0.05
    assert found == pytest.approx(u, abs=1e-12)
