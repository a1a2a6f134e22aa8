"""What the methods that train are made of: gradient descent, and Gaussians of classes."""

import numpy as np
import pytest

pytest.importorskip("torch")

from visvm.bench.methods.gaussians import ClassGaussians
from visvm.bench.methods.gradient import (
    SGD,
    Adam,
    array,
    contrast,
    cosine,
    descend,
    steps,
    tensor,
)
from visvm.encoders.texts import unit


def test_descent_finds_the_least_squares_and_follows_its_schedule():
    rows, factors = np.random.default_rng(0).normal(size=(40, 3)), []
    wanted = np.array([1.0, -2.0, 0.5])
    weights, data = tensor(np.zeros(3)).requires_grad_(), tensor(rows)
    optimizer = Adam([weights], 0.1)

    def loss(places, epoch):
        factors.append((epoch, optimizer.rate))
        return ((data[places] @ weights - data[places] @ tensor(wanted)) ** 2).mean()

    given = {"batch_size": 15, "generator": np.random.default_rng(0)}
    descend(optimizer, loss, 40, epochs=60, factor=steps(40, 50), **given)
    assert array(weights) == pytest.approx(wanted, abs=0.01)
    assert len(factors) == 60 * 3
    assert [rate for epoch, rate in factors if epoch in (0, 40, 59)][::3] == pytest.approx(
        [0.1, 0.01, 0.001]
    )
    assert [cosine(4)(epoch) for epoch in (0, 2, 4)] == pytest.approx([1.0, 0.5, 0.0])


@pytest.mark.parametrize(("kind", "decay"), [(SGD, 0.2), (Adam, 0.0), (Adam, 0.2)])
def test_steps_are_those_of_the_formulas(kind, decay):
    pulls = np.random.default_rng(0).normal(size=(5, 3))  # torch's own would import its compiler
    weights, wanted = tensor(np.ones(3)).requires_grad_(), np.ones(3)
    optimizer = SGD([weights], 0.1, decay) if kind is SGD else Adam([weights], 0.1, decay)
    past = []
    for step, pull in enumerate(pulls, start=1):
        weights.grad = tensor(pull)
        optimizer.step()
        past.append(pull + decay * wanted if kind is SGD else pull)
        ages = np.arange(step)[::-1, None]
        if kind is SGD:
            wanted = wanted - 0.1 * (0.9**ages * past).sum(axis=0)
            continue
        mean = (0.1 * 0.9**ages * past).sum(axis=0) / (1 - 0.9**step)
        spread = (0.001 * 0.999**ages * np.square(past)).sum(axis=0) / (1 - 0.999**step)
        wanted = (1 - 0.1 * decay) * wanted - 0.1 * mean / (np.sqrt(spread) + 1e-8)
    assert array(weights) == pytest.approx(wanted, abs=1e-5)


def test_contrast_is_clips_loss():
    generator = np.random.default_rng(0)
    v, t = (unit(generator.normal(size=(4, 3))) for _ in range(2))
    logits = 7.0 * v @ t.T
    rows = [np.log(np.exp(each).sum(axis=1)) - np.diag(each) for each in (logits, logits.T)]
    assert contrast(tensor(v), tensor(t), 7.0).item() == pytest.approx(np.mean(rows), abs=1e-5)


def test_gaussians_are_those_of_all_images_of_a_class():
    rows = np.random.default_rng(0).normal([1.0, 2.0, 3.0], size=(30, 3))
    known = ClassGaussians()
    for part in np.split(rows, [1, 11]):
        known.learn(part, np.zeros(len(part), np.intp))
    assert known.means[0] == pytest.approx(rows.mean(axis=0))
    assert known.covariance(0) == pytest.approx(np.cov(rows.T) + 1e-4 * np.eye(3))
    made = known.draw(0, 40000, np.random.default_rng(1))
    assert np.cov(made.T) == pytest.approx(np.cov(rows.T), abs=0.05)
    assert made.mean(axis=0) == pytest.approx(rows.mean(axis=0), abs=0.05)
    shrunk = ClassGaussians(shrinkage=True)
    shrunk.learn(rows, np.zeros(30, np.intp))
    cov = np.cov(rows.T)
    beside = (cov.sum() - np.trace(cov)) / 6
    wanted = cov + np.trace(cov) / 3 * np.eye(3) + beside * (np.ones((3, 3)) - np.eye(3))
    assert shrunk.covariance(0) == pytest.approx(wanted + 1e-4 * np.eye(3))
