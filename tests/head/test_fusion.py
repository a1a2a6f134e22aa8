import numpy as np
import pytest

from tests.refusals import refused
from visvm.head.fusion import (
    OPTIMIZERS,
    MixerOptions,
    MixerWeights,
    ResidualMixer,
    TrainingWeights,
    adaptation_loss,
    initial_weights,
    train_mixer,
)

torch = pytest.importorskip("torch")


def random_weights(generator, width=7, hidden=5, out=4, n_classes=3):
    shapes = [(hidden, width), (hidden,), (out, hidden), (out,), (n_classes, out), (n_classes,)]
    return TrainingWeights(*(generator.normal(size=shape) for shape in shapes))


def torch_loss(weights, tapped, final, targets, sample_weight, identity_weight):
    """Eq. 4-6 in torch, word for word."""
    hidden = torch.nn.functional.gelu(torch.nn.functional.linear(tapped, weights[0], weights[1]))
    residual = torch.nn.functional.linear(hidden, weights[2], weights[3])
    fused = final + residual
    logits = torch.nn.functional.linear(fused, weights[4], weights[5])
    entropy = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return ((entropy + identity_weight * (fused - final).pow(2).sum(dim=1)) * sample_weight).mean()


@pytest.mark.parametrize("identity_weight", [0.0, 0.01, 3.0])
def test_the_gradient_is_autograds(identity_weight):
    generator = np.random.default_rng(0)
    weights = random_weights(generator)
    data = (
        generator.normal(size=(9, 7)),
        generator.normal(size=(9, 4)),
        generator.integers(0, 3, 9),
        generator.random(9) + 0.5,
    )
    loss, gradient = adaptation_loss(weights, *data, identity_weight)
    tensors = [torch.tensor(array, requires_grad=True) for array in weights]
    wanted = torch_loss(tensors, *(torch.tensor(part) for part in data), identity_weight)
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-12)
    for ours, tensor in zip(gradient, tensors, strict=True):
        np.testing.assert_allclose(ours, tensor.grad.numpy(), rtol=1e-9, atol=1e-12)


def make_layers(n=90, scale=1.0):
    generator = np.random.default_rng(1)
    y = generator.integers(0, 3, n)
    return scale * (generator.normal(size=(n, 9)) + 2 * generator.normal(size=(3, 9))[y]), y.astype(
        np.intp
    )


OPTIONS = MixerOptions(hidden=6, epochs=2, batch_size=16)


def train(X, y, *, layers=(1, 3), options=OPTIONS, seed=0, weight=None):
    weight = np.ones(len(y)) if weight is None else weight
    return train_mixer(
        X, y, weight, layer_dims=(2, 3, 4), layers=layers, options=options, seed=seed
    )


TORCHS = {
    "adam": lambda tensors: torch.optim.Adam(tensors, lr=0.001),
    "sgd": lambda tensors: torch.optim.SGD(tensors, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_torchs_step_by_step(name):
    X, y = make_layers()
    X *= 8 / np.sqrt(np.mean(np.sum(X[:, 5:] ** 2, axis=1)))  # the units of training
    mixer = train(X, y, options=MixerOptions(hidden=6, epochs=2, batch_size=16, optimizer=name))
    start = initial_weights(
        (2, 3, 4), (1, 3), hidden=6, n_classes=3, generator=np.random.default_rng([0, 0])
    )
    tensors = [torch.tensor(array, requires_grad=True) for array in start]
    optimiser = TORCHS[name](tensors)
    generator = np.random.default_rng([0, 1])
    tapped, final, targets = X[:, [0, 1, 5, 6, 7, 8]], X[:, 5:], torch.tensor(y)
    for _ in range(2):
        order = generator.permutation(len(y))
        for begin in range(0, len(y), 16):
            batch = order[begin : begin + 16]
            optimiser.zero_grad()
            parts = (
                torch.tensor(tapped[batch]),
                torch.tensor(final[batch]),
                targets[batch],
                torch.ones(len(batch)),
            )
            torch_loss(tensors, *parts, 0.01).backward()
            optimiser.step()
    # the auxiliary classifier is thrown away
    for ours, tensor in zip(mixer.weights, tensors[:4], strict=True):
        np.testing.assert_allclose(ours, tensor.detach().numpy(), rtol=1e-9, atol=1e-12)
    hidden = torch.nn.functional.gelu(
        torch.nn.functional.linear(torch.tensor(tapped), tensors[0], tensors[1])
    )
    fused = torch.tensor(final) + torch.nn.functional.linear(hidden, tensors[2], tensors[3])
    np.testing.assert_allclose(mixer.fuse(X), fused.detach().numpy(), atol=1e-12)


def test_before_training_the_mixer_is_the_identity():
    X, _ = make_layers()
    start = initial_weights(
        (2, 3, 4), (1, 2, 3), hidden=6, n_classes=3, generator=np.random.default_rng(0)
    )
    mixer = ResidualMixer((2, 3, 4), (1, 2, 3), MixerWeights(*start[:4]))
    assert mixer.is_identity
    np.testing.assert_array_equal(mixer.fuse(X), X[:, 5:])


def test_one_class_leaves_the_mixer_the_identity():
    X, y = make_layers()
    assert train(X, np.zeros_like(y)).is_identity


def test_training_lowers_the_loss():
    X, y = make_layers()
    start = initial_weights(
        (2, 3, 4), (1, 3), hidden=6, n_classes=3, generator=np.random.default_rng([0, 0])
    )
    data = X[:, [0, 1, 5, 6, 7, 8]], X[:, 5:], y, np.ones(len(y))
    untrained, _ = adaptation_loss(start, *data, 0.01)
    mixer = train(X, y, options=MixerOptions(hidden=6, epochs=20, batch_size=16))
    # With the classifier it started with, the trained mixer must do better than the identity.
    trained, _ = adaptation_loss(TrainingWeights(*mixer.weights, *start[4:]), *data, 0.01)
    assert not mixer.is_identity
    assert trained < untrained


@pytest.mark.parametrize("scale", [0.0, 1e-200, 1e-3])
def test_small_features_are_no_reason_to_refuse(scale):
    X, y = make_layers(scale=scale)
    assert np.isfinite(train(X, y, options=MixerOptions(hidden=6, batch_size=16)).fuse(X)).all()


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": 7},
        {"epochs": 3},
        {"optimizer": "sgd"},
        {"learning_rate": 0.02},
        {"batch_size": 8},
        {"identity_weight": 0.5},
    ],
)
def test_every_option_changes_the_result(change):
    X, y = make_layers()
    options = MixerOptions(**(vars(OPTIONS) | change))
    assert not np.allclose(
        train(X, y, options=options).fuse(X), train(X, y).fuse(X), rtol=0, atol=1e-7
    )


def test_seed_layers_and_weights_change_the_result():
    X, y = make_layers()
    fused = train(X, y).fuse(X)
    for other in (
        train(X, y, seed=1),
        train(X, y, layers=(3,)),
        train(X, y, weight=np.linspace(0.1, 2, len(y))),
    ):
        assert not np.allclose(other.fuse(X), fused, rtol=0, atol=1e-7)


def test_a_large_identity_weight_keeps_the_feature():
    X, y = make_layers()
    weak, strong = (
        train(X, y, options=MixerOptions(6, 5, batch_size=16, identity_weight=weight))
        for weight in (0.0, 5.0)
    )
    assert np.abs(strong.fuse(X) - X[:, 5:]).mean() < 0.5 * np.abs(weak.fuse(X) - X[:, 5:]).mean()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("scale", [1e-150, 1e-3, 200.0, 1e150])
def test_features_of_any_scale_train_alike(name, scale):
    X, y = make_layers()
    options = MixerOptions(hidden=6, epochs=2, batch_size=16, optimizer=name)
    wanted = train(X, y, options=options).fuse(X)
    np.testing.assert_allclose(
        train(scale * X, y, options=options).fuse(scale * X) / scale, wanted, rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize(("name", "rate"), [("adam", 1e3), ("sgd", 50.0), ("sgd", 1e300)])
def test_steps_too_long_are_refused(name, rate):
    X, y = make_layers()
    options = MixerOptions(6, 5, optimizer=name, learning_rate=rate, batch_size=16)
    with refused("mixer-diverged") as caught:
        train(X, y, options=options)
    assert f"learning_rate {rate:g}" in str(caught.value)
