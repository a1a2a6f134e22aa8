"""LDA of ``benchmarks/few_photos.py``, in the span of its samples, against its definition."""

import numpy as np
import pytest
from few_photos import Discriminant


def slow_scores(X, y, asked, nu):
    means = np.array([X[y == each].mean(axis=0) for each in np.unique(y)])
    rest = X - means[y]
    inverse = np.linalg.inv(rest.T @ rest + nu * np.eye(X.shape[1]))
    return asked @ inverse @ means.T - 0.5 * np.diag(means @ inverse @ means.T)


@pytest.mark.parametrize("nu", [0.1, 3.0, 100.0])
@pytest.mark.parametrize("width", [6, 30])
def test_scores_and_those_without_a_sample_are_those_of_the_definition(nu, width):
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 5)
    X = generator.normal(size=(20, width)) + 2 * generator.normal(size=(4, width))[y]
    asked, found = generator.normal(size=(7, width)), Discriminant(X, y)
    assert found.scores(asked, nu) == pytest.approx(slow_scores(X, y, asked, nu), abs=1e-6)
    left_out = [
        slow_scores(np.delete(X, place, 0), np.delete(y, place), X[[place]], nu)[0]
        for place in range(len(X))
    ]
    assert found.left_out(nu) == pytest.approx(np.array(left_out), abs=1e-6)
