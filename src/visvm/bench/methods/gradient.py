"""Gradient descent on cached features, for the methods that train something (extra ``torch``).

torch takes seconds to import, and the registry imports every method: it is imported by calls.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Loss = Callable[[NDArray[np.intp], int], "torch.Tensor"]
"""Takes the places of a batch and the number of the epoch, and returns what is to be lowered."""


def tensor(array: NDArray[Any]) -> "torch.Tensor":
    """Copy an array to a tensor of float32."""
    import torch

    return torch.tensor(np.asarray(array), dtype=torch.float32)


def numbers(labels: NDArray[np.intp]) -> "torch.Tensor":
    """Copy class numbers to a tensor."""
    import torch

    return torch.tensor(labels, dtype=torch.int64)


def array(parameter: "torch.Tensor") -> NDArray[np.float64]:
    """Copy a tensor to an array of float64."""
    return np.asarray(parameter.detach().numpy(), dtype=np.float64)


def linear_start(
    generator: np.random.Generator, n_outputs: int, n_inputs: int
) -> NDArray[np.float64]:
    """Draw the weights of a linear layer as torch does, (n_outputs, n_inputs): U(±1/√n_inputs)."""
    bound = 1.0 / math.sqrt(n_inputs)
    return generator.uniform(-bound, bound, size=(n_outputs, n_inputs))


def unit_rows(rows: "torch.Tensor") -> "torch.Tensor":
    """Return vectors of unit length, along the last axis."""
    import torch

    return torch.nn.functional.normalize(rows, dim=-1)


def cross_entropy(scores: "torch.Tensor", targets: "torch.Tensor") -> "torch.Tensor":
    """Return the mean cross-entropy of scores, (n, C), and class numbers, (n,)."""
    import torch

    return torch.nn.functional.cross_entropy(scores, targets)


def contrast(images: "torch.Tensor", texts: "torch.Tensor", scale: float) -> "torch.Tensor":
    """Return CLIP's loss of pairs of unit length, (n, p) each, in both directions.

    The target of an image is its own text, also where another image has the same.
    """
    scores = scale * images @ texts.T
    places = numbers(np.arange(len(scores)))
    return (cross_entropy(scores, places) + cross_entropy(scores.T, places)) / 2


def cosine(n_epochs: int) -> Callable[[int], float]:
    """Return the factor of the rate by epoch that falls from 1 to 0 by half a cosine."""
    return lambda epoch: 0.5 * (1.0 + math.cos(math.pi * epoch / n_epochs))


def steps(*after: int) -> Callable[[int], float]:
    """Return the factor of the rate by epoch that is divided by ten after each of these."""
    return lambda epoch: float(0.1 ** sum(epoch >= each for each in after))


def sgd(parameters: Sequence["torch.Tensor"], rate: float, decay: float) -> Any:
    """Return stochastic gradient descent with momentum 0.9."""
    import torch

    return torch.optim.SGD(list(parameters), lr=rate, momentum=0.9, weight_decay=decay)


def adam(parameters: Sequence["torch.Tensor"], rate: float) -> Any:
    """Return Adam as published."""
    import torch

    return torch.optim.Adam(list(parameters), lr=rate)


def descend(
    optimizer: Any,
    loss: Loss,
    n: int,
    *,
    epochs: int,
    batch_size: int,
    generator: np.random.Generator,
    factor: Callable[[int], float] = lambda _: 1.0,
) -> None:
    """Lower a loss over n samples, in shuffled batches of nearly one size.

    Parameters
    ----------
    optimizer
        Of torch, with the parameters to change.
    loss : callable
        Of the samples at some places, in an epoch.
    n, epochs, batch_size : int
    generator
        Shuffles.
    factor : callable
        What the rate is multiplied by in an epoch.
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    for epoch in range(epochs):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor(epoch)
        for rows in np.array_split(generator.permutation(n), -(-n // batch_size)):
            optimizer.zero_grad()
            loss(rows, epoch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
