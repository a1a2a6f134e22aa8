"""Layer features → fused features: a small residual network, trained once.

Legend (the paper's eq. 3-6)::

    m = concat of h_l over the tapped layers          (n, sum of their dims)
    a = GELU(m V' + b_V)                               (n, hidden)
    r = a U' + b_U                                     (n, layer_dim)   residual, zero at the start
    u = h_L + r                                        (n, layer_dim)   the fused feature
    loss = mean over samples of  cross-entropy(u W' + b_W, y) + identity_weight * |r|^2

V, U and the auxiliary classifier W learn by gradient descent on the base session; W is then thrown
away and the mixer never changes again. Training is done in units in which |h_L| is 8 on average, so
that features of any scale train alike. CLIP's ViT-B/16, the paper's kind of encoder, gives about 8.

The paper trains by plain SGD. Starting from the identity, a few dozen such steps lead nowhere: the
residual stays below 1 % of the feature and hardly an answer changes (benchmarks/BASE_SESSION.md).
Adam gets somewhere in as few epochs, and is the default; RESULTS.md says what it gains.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import erf, log_softmax

from visvm.errors import InputError
from visvm.head.products import Array, Indices

_NORM = 8.0  # root mean square length of h_L in training


class MixerWeights(NamedTuple):
    """The two linear layers of the mixer."""

    v: Array  # (hidden, width of m)
    v_bias: Array  # (hidden,)
    u: Array  # (layer_dim, hidden)
    u_bias: Array  # (layer_dim,)


class TrainingWeights(NamedTuple):
    """The mixer and the auxiliary classifier, which exists during training only."""

    v: Array
    v_bias: Array
    u: Array
    u_bias: Array
    auxiliary: Array  # (n_classes, layer_dim)
    auxiliary_bias: Array  # (n_classes,)


class ResidualMixer:
    """u(x) = h_L(x) + M(m(x)), eq. 4 and 5.

    Parameters
    ----------
    layer_dims : sequence of int
        Widths of the layers that stand side by side in X.
    layers : sequence of int
        The tapped layers, 1-based positions in `layer_dims`.
    weights : MixerWeights

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> start = initial_weights((2, 3), (1, 2), hidden=4, n_classes=2, generator=generator)
    >>> mixer = ResidualMixer((2, 3), (1, 2), MixerWeights(*start[:4]))
    >>> X = np.arange(10.0).reshape(2, 5)
    >>> mixer.fuse(X).tolist() == X[:, 2:].tolist()  # untrained: the final layer, unchanged
    True
    """

    def __init__(
        self, layer_dims: Sequence[int], layers: Sequence[int], weights: MixerWeights
    ) -> None:
        self.layer_dims = tuple(layer_dims)
        self.layers = tuple(layers)
        self.weights = weights

    @property
    def is_identity(self) -> bool:
        """Whether the residual is zero for every input."""
        return not (self.weights.u.any() or self.weights.u_bias.any())

    @property
    def digest(self) -> str:
        """SHA-256 of what `fuse` computes with."""
        sha = hashlib.sha256(f"visvm mixer 1 {self.layer_dims} {self.layers}\n".encode())
        for array in self.weights:
            sha.update(np.ascontiguousarray(array, dtype="<f8").data)
        return sha.hexdigest()

    def fuse(self, layer_features: Array) -> Array:
        """Fuse the layers of samples, (n, sum(layer_dims)), to (n, layer_dims[-1])."""
        final = final_layer(layer_features, self.layer_dims)
        if self.is_identity:
            return final
        tapped = tapped_layers(layer_features, self.layer_dims, self.layers)
        return final + _residual(self.weights, tapped)[-1]


def final_layer(layer_features: Array, layer_dims: Sequence[int]) -> Array:
    """Return h_L, (n, layer_dims[-1]), in float64."""
    return np.asarray(layer_features[:, -layer_dims[-1] :], dtype=np.float64)


def tapped_layers(layer_features: Array, layer_dims: Sequence[int], layers: Sequence[int]) -> Array:
    """Return m, the tapped layers side by side in the order of `layers`, in float64."""
    ends = np.cumsum(layer_dims)
    parts = [layer_features[:, ends[i - 1] - layer_dims[i - 1] : ends[i - 1]] for i in layers]
    return np.concatenate(parts, axis=1, dtype=np.float64)


def initial_weights(
    layer_dims: Sequence[int],
    layers: Sequence[int],
    *,
    hidden: int,
    n_classes: int,
    generator: np.random.Generator,
) -> TrainingWeights:
    """Return the weights of the identity.

    U and b_U are zero; the rest is uniform in ±1/sqrt(inputs), as torch's Linear starts.
    """
    width, out = sum(layer_dims[i - 1] for i in layers), layer_dims[-1]

    def uniform(inputs: int, *shape: int) -> Array:
        return np.asarray(generator.uniform(-1.0, 1.0, shape) / np.sqrt(inputs))

    return TrainingWeights(
        v=uniform(width, hidden, width),
        v_bias=uniform(width, hidden),
        u=np.zeros((out, hidden)),
        u_bias=np.zeros(out),
        auxiliary=uniform(out, n_classes, out),
        auxiliary_bias=uniform(out, n_classes),
    )


def _residual(weights: MixerWeights | TrainingWeights, tapped: Array) -> tuple[Array, Array, Array]:
    """Return z = m V' + b_V, its normal distribution function, and r (eq. 4, exact GELU)."""
    z = tapped @ weights.v.T + weights.v_bias
    below = 0.5 * (1.0 + erf(z / np.sqrt(2.0)))
    return z, below, (z * below) @ weights.u.T + weights.u_bias


def adaptation_loss(
    weights: TrainingWeights,
    tapped: Array,
    final: Array,
    targets: Indices,
    sample_weight: Array,
    identity_weight: float,
) -> tuple[float, TrainingWeights]:
    """Return the loss of eq. 6, and its derivative by each array of `weights`.

    Parameters
    ----------
    weights : TrainingWeights
    tapped : array of shape (n, width of m)
    final : array of shape (n, layer_dim)
    targets : array of shape (n,)
        Class indices.
    sample_weight : array of shape (n,)
        Ones give the plain mean.
    identity_weight : float
        λ_adapt.
    """
    rows = np.arange(len(targets))
    share = (sample_weight / len(targets))[:, None]
    z, below, residual = _residual(weights, tapped)
    fused = final + residual
    log_p = log_softmax(fused @ weights.auxiliary.T + weights.auxiliary_bias, axis=1)
    per_sample = identity_weight * np.einsum("ij,ij->i", residual, residual) - log_p[rows, targets]
    loss = float(share[:, 0] @ per_sample)

    d_logits = np.exp(log_p)
    d_logits[rows, targets] -= 1.0
    d_logits *= share
    d_fused = d_logits @ weights.auxiliary + 2.0 * identity_weight * share * residual
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    d_z = (d_fused @ weights.u) * (below + z * density)
    return loss, TrainingWeights(
        v=d_z.T @ tapped,
        v_bias=d_z.sum(axis=0),
        u=d_fused.T @ (z * below),
        u_bias=d_fused.sum(axis=0),
        auxiliary=d_logits.T @ fused,
        auxiliary_bias=d_logits.sum(axis=0),
    )


def _plain_steps(weights: TrainingWeights, rate: float) -> Callable[[TrainingWeights], None]:
    """Return the step of SGD, which moves `weights` by one gradient, in place."""

    def step(gradient: TrainingWeights) -> None:
        for array, slope in zip(weights, gradient, strict=True):
            array -= rate * slope

    return step


def _adam_steps(weights: TrainingWeights, rate: float) -> Callable[[TrainingWeights], None]:
    """Return the step of Adam (Kingma and Ba, 2015) with its usual constants."""
    means, squares = ([np.zeros_like(array) for array in weights] for _ in range(2))
    keep_mean, keep_square, smallest = 0.9, 0.999, 1e-8
    count = 0

    def step(gradient: TrainingWeights) -> None:
        nonlocal count
        count += 1
        length = rate * np.sqrt(1.0 - keep_square**count) / (1.0 - keep_mean**count)
        least = smallest * np.sqrt(1.0 - keep_square**count)
        for array, slope, mean, square in zip(weights, gradient, means, squares, strict=True):
            mean += (1.0 - keep_mean) * (slope - mean)
            square += (1.0 - keep_square) * (slope * slope - square)
            array -= length * mean / (np.sqrt(square) + least)

    return step


class Optimizer(NamedTuple):
    """A way to train the mixer."""

    start: Callable[[TrainingWeights, float], Callable[[TrainingWeights], None]]
    rate: float  # where none is given


OPTIMIZERS = {"adam": Optimizer(_adam_steps, 0.001), "sgd": Optimizer(_plain_steps, 0.01)}
"""By name; "sgd" with its rate is the paper's."""


@dataclass(frozen=True)
class MixerOptions:
    """How the mixer is trained.

    The defaults are the paper's, except for the optimizer and its rate.
    """

    hidden: int = 256
    epochs: int = 5
    optimizer: str = "adam"
    learning_rate: float | None = None
    batch_size: int = 64
    identity_weight: float = 0.01

    @property
    def rate(self) -> float:
        """The learning rate in use: the one given, or the optimizer's own."""
        return OPTIMIZERS[self.optimizer].rate if self.learning_rate is None else self.learning_rate


def train_mixer(
    layer_features: Array,
    targets: Indices,
    sample_weight: Array,
    *,
    layer_dims: Sequence[int],
    layers: Sequence[int],
    options: MixerOptions,
    seed: int,
) -> ResidualMixer:
    """Train the mixer on the base session.

    With one class, or a final layer that is zero, there is nothing to adapt to, and the mixer stays
    the identity.

    Parameters
    ----------
    layer_features : array of shape (n, sum(layer_dims))
    targets : array of shape (n,)
        Class indices from 0.
    sample_weight : array of shape (n,)
    layer_dims, layers : sequence of int
    options : MixerOptions
    seed : int
        Decides the initial weights and the order of the samples.
    """
    n_classes = int(targets.max()) + 1
    generator = np.random.default_rng([seed, 0])
    weights = initial_weights(
        layer_dims, layers, hidden=options.hidden, n_classes=n_classes, generator=generator
    )
    tapped = tapped_layers(layer_features, layer_dims, layers)
    final = final_layer(layer_features, layer_dims)
    length = _mean_length(final)
    if n_classes == 1 or length == 0.0:
        return ResidualMixer(layer_dims, layers, MixerWeights(*weights[:4]))
    unit = length / _NORM
    data = tapped / unit, final / unit, targets, sample_weight / sample_weight.mean()
    with np.errstate(over="ignore", invalid="ignore"):
        first, last = _descend(weights, data, options, np.random.default_rng([seed, 1]))
    if not last <= 2.0 * first:  # NaN too
        raise InputError(
            f"The mixer's loss grew from {first:.3g} to {last:.3g} in training with learning_rate "
            f"{options.rate:g}. Use a smaller learning_rate or a smaller identity_weight.",
            code="mixer-diverged",
        )
    v, v_bias, u, u_bias = weights[:4]
    return ResidualMixer(
        layer_dims, layers, MixerWeights(v / unit, v_bias, u * unit, u_bias * unit)
    )


def _mean_length(features: Array) -> float:
    """Return the root mean square length of the rows, whatever their scale."""
    peak = float(np.abs(features).max(initial=0.0))
    if peak == 0.0:
        return 0.0
    return peak * float(np.sqrt(np.square(features / peak).sum(axis=1).mean()))


def _descend(
    weights: TrainingWeights,
    data: tuple[Array, Array, Indices, Array],
    options: MixerOptions,
    generator: np.random.Generator,
) -> tuple[float, float]:
    """Run all epochs, in place; return the loss at first, and its mean over the last epoch."""
    step = OPTIMIZERS[options.optimizer].start(weights, options.rate)
    tapped, final, targets, share = data
    losses: list[float] = []
    for _ in range(options.epochs):
        order = generator.permutation(len(targets))
        for begin in range(0, len(order), options.batch_size):
            batch = order[begin : begin + options.batch_size]
            part = tapped[batch], final[batch], targets[batch], share[batch]
            loss, gradient = adaptation_loss(weights, *part, options.identity_weight)
            losses.append(loss)
            step(gradient)
    steps = -(-len(targets) // options.batch_size)
    return losses[0], float(np.mean(losses[-steps:]))
