"""Gradient descent on cached features, for the methods that train something (extra ``torch``).

torch takes seconds to import, and the registry imports every method: it is imported by calls.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

BatchLoss = Callable[[NDArray[np.intp], int], "Tensor"]
"""Takes the places of a batch and the number of the epoch, and returns what is to be lowered."""


def tensor(array: NDArray[Any]) -> "Tensor":
    """Copy an array to a tensor of float32."""
    import torch

    return torch.tensor(np.asarray(array), dtype=torch.float32)


def numbers(labels: NDArray[np.intp]) -> "Tensor":
    """Copy class numbers to a tensor."""
    import torch

    return torch.tensor(labels, dtype=torch.int64)


def array(parameter: "Tensor") -> NDArray[np.float64]:
    """Copy a tensor to an array of float64."""
    return np.asarray(parameter.detach().numpy(), dtype=np.float64)


def linear_start(
    generator: np.random.Generator, n_outputs: int, n_inputs: int
) -> NDArray[np.float64]:
    """Draw the weights of a linear layer as torch does, (n_outputs, n_inputs): U(±1/√n_inputs)."""
    bound = 1.0 / math.sqrt(n_inputs)
    return generator.uniform(-bound, bound, size=(n_outputs, n_inputs))


def unit_rows(rows: "Tensor") -> "Tensor":
    """Return vectors of unit length, along the last axis."""
    import torch

    return torch.nn.functional.normalize(rows, dim=-1)


def cross_entropy(scores: "Tensor", targets: "Tensor") -> "Tensor":
    """Return the mean cross-entropy of scores, (n, C), and class numbers, (n,)."""
    import torch

    return torch.nn.functional.cross_entropy(scores, targets)


def contrast(images: "Tensor", texts: "Tensor", scale: float) -> "Tensor":
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


class SGD:
    """Stochastic gradient descent with momentum 0.9 and weight decay.

    torch's own optimisers import its compiler, which takes seconds; these do what they do.
    """

    def __init__(self, parameters: "Sequence[Tensor]", rate: float, decay: float) -> None:
        self.parameters, self.rate, self._decay = list(parameters), rate, decay
        self._speeds: list[Any] = [0.0] * len(self.parameters)

    def step(self) -> None:
        """Move every parameter by its gradient."""
        for place, parameter in enumerate(self.parameters):
            slope: Any = parameter.grad
            pull = slope + self._decay * parameter.detach()
            self._speeds[place] = 0.9 * self._speeds[place] + pull
            parameter.data -= self.rate * self._speeds[place]


class Adam:
    """Adam as published, with its published constants; AdamW where weights decay."""

    def __init__(self, parameters: "Sequence[Tensor]", rate: float, decay: float = 0.0) -> None:
        self.parameters, self.rate, self._decay, self._n = list(parameters), rate, decay, 0
        self._moments: list[Any] = [(0.0, 0.0)] * len(self.parameters)

    def step(self) -> None:
        """Move every parameter by its gradient."""
        self._n += 1
        for place, parameter in enumerate(self.parameters):
            first, second = self._moments[place]
            pull: Any = parameter.grad
            first, second = 0.9 * first + 0.1 * pull, 0.999 * second + 0.001 * pull**2
            self._moments[place] = first, second
            spread = (second / (1.0 - 0.999**self._n)).sqrt() + 1e-8
            parameter.data *= 1.0 - self.rate * self._decay
            parameter.data -= self.rate * first / (1.0 - 0.9**self._n) / spread


def descend(
    optimizer: SGD | Adam,
    loss: BatchLoss,
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
    optimizer : SGD or Adam
        With the parameters to change.
    loss : callable
        Of the samples at some places, in an epoch.
    n, epochs, batch_size : int
    generator
        Shuffles.
    factor : callable
        What the rate is multiplied by in an epoch.
    """
    rate = optimizer.rate
    for epoch in range(epochs):
        optimizer.rate = rate * factor(epoch)
        for rows in np.array_split(generator.permutation(n), -(-n // batch_size)):
            for parameter in optimizer.parameters:
                parameter.grad = None
            loss(rows, epoch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
