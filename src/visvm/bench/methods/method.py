"""What a method of the benchmark is: layer features and labels in, session by session; labels out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Features = NDArray[np.float32]
"""Layer features, (n, sum of layer_dims): the CLS token of every block, side by side, the final block last."""

Labels = NDArray[np.intp]
"""Class numbers in the order in which classes arrive: the first session's begin with 0."""

Projection = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""The final block's feature, (n, layer_dim) → what the encoder itself puts out, (n, any width)."""


@dataclass(frozen=True)
class Setup:
    """All that a method is told before the first session: nothing of the images to come, nor of how many classes there will be.

    Parameters
    ----------
    layer_dims : tuple of int
        Width of every block's feature.
    project : Projection
        The encoder's last norm, and CLIP's projection after it.
    seed : int
        Of whatever the method draws at random.
    """

    layer_dims: tuple[int, ...]
    project: Projection
    seed: int = 0


@dataclass(frozen=True)
class Costs:
    """What a method has cost so far.

    Parameters
    ----------
    trainable_parameters : int
        Numbers that were trained by gradient descent and are kept.
    state_bytes : int
        What must be kept to learn the next session and to predict, the encoder not counted.
    choices : dict
        What it has settled on: λ, blocks and the like, as JSON has it.
    """

    trainable_parameters: int
    state_bytes: int
    choices: dict[str, Any] = field(default_factory=dict)


class Method(Protocol):
    """A class-incremental learner on a frozen encoder's features.

    Its class is called with a ``Setup`` and, by name, the options that a recipe may change.
    """

    def learn(self, features: Features, labels: Labels) -> None:
        """Learn one session: layer features, (n, sum of layer_dims), and class numbers, (n,). No old image comes back."""

    def predict(self, features: Features) -> Labels:
        """Class numbers, (n,), among all classes learned so far."""

    def costs(self) -> Costs:
        """What was trained, kept and chosen so far."""
