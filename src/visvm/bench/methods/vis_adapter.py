"""Ours with an adapter in the encoder, trained in the first session; then everything is sums."""

from typing import TYPE_CHECKING

import numpy as np

from visvm.bench.methods.first_session import FirstSession, Training
from visvm.bench.methods.gradient import Adam, cross_entropy, linear_start
from visvm.bench.methods.lssvm import VisualLSSVMKernel
from visvm.bench.methods.method import Entry, Method, Setup, Traits
from visvm.bench.methods.through import Loss
from visvm.bench.methods.vis import Vis
from visvm.bench.streams import ClassNumbers
from visvm.head.checks import is_count, is_positive, require

if TYPE_CHECKING:
    from torch import Tensor

    from visvm.bench.vit.modules import Module
    from visvm.bench.vit.network import Network

_LENGTH = 8.0  # of the last block's feature in training, as for the mixer


class VisAdapter(FirstSession):
    """``vis`` on an encoder with an adapter of the first session in place of the mixer.

    The adapter stands in the last blocks alone, so what enters these is computed once, and an epoch
    costs their share of an encoding. It is trained as eq. 6 trains the mixer, with the feature h of
    the last block with it and h₀ without it, in units in which h₀ has length 8::

        cross-entropy(W'h + b, y) + identity_weight·|h - h₀|²

    by Adam, at a rate that falls to 0 by half a cosine. W' is thrown away. The rest is
    ``visual-lssvm+kernel``, or ``vis`` where the mixer is to come on top.

    Parameters
    ----------
    n_blocks : int
        How many blocks get an adapter, the last ones.
    rank : int
        Of the adapters.
    epochs : int
    learning_rate : float
    identity_weight : float
    augmentation : str
        As in ``FirstSession``; with views, nothing is computed once, and h₀ is that of the whole
        picture.
    mixer : bool
        Whether the mixer is trained on the features of the adapted encoder.
    n_components : int
    device : str
        Of torch.
    """

    name = "vis+adapter"

    def __init__(
        self,
        setup: Setup,
        *,
        n_blocks: int = 4,
        rank: int = 64,
        epochs: int = 10,
        learning_rate: float = 1e-3,
        identity_weight: float = 0.01,
        augmentation: str = "none",
        mixer: bool = False,
        n_components: int = 15000,
        device: str = "cpu",
    ) -> None:
        self.n_blocks, self.rank, self.mixer = n_blocks, rank, mixer
        self.learning_rate, self.identity_weight = learning_rate, identity_weight
        depth = len(setup.layer_dims)
        valid = is_count(n_blocks) and n_blocks <= depth
        require(valid, self, "n_blocks", f"a whole number from 1 to {depth}")
        require(is_count(rank), self, "rank", "a whole number of at least 1")
        require(is_positive(learning_rate), self, "learning_rate", "a number above 0")
        valid = is_positive(identity_weight, or_zero=True)
        require(valid, self, "identity_weight", "a number of at least 0")
        require(isinstance(mixer, bool), self, "mixer", "True or False")
        learner: Method = (Vis if mixer else VisualLSSVMKernel)(setup, n_components=n_components)
        super().__init__(
            setup,
            learner,
            kind="adapter",
            epochs=epochs,
            batch_size=64,
            augmentation=augmentation,
            device=device,
        )

    def _drawn(self, network: "Network", generator: np.random.Generator) -> "Module":
        from visvm.bench.vit import modules

        first = network.depth - self.n_blocks
        return modules.drawn_module("adapter", network, generator, rank=self.rank, first=first)

    def _head(self, network: "Network", n_classes: int, generator: np.random.Generator) -> "Module":
        rows = linear_start(generator, n_classes, network.width)
        return {"rows": rows.astype(np.float32), "bias": np.zeros(n_classes, np.float32)}

    def _optimizer(self, parameters: "list[Tensor]") -> Adam:
        return Adam(parameters, self.learning_rate)

    def _loss(self, training: Training) -> Loss:
        import torch

        network, added, head = training.network, training.added, training.head
        before = training.features[:, -network.width :]
        unit = float(np.linalg.norm(before, axis=1).mean()) / _LENGTH
        old = torch.tensor(before / unit, device=network.device)

        def loss(tokens: "Tensor", places: ClassNumbers) -> "Tensor":
            cls = network.onward(tokens, training.level, added)[:, -1] / unit
            moved = ((cls - old[places]) ** 2).sum(dim=1).mean()
            scores = cls @ head["rows"].T + head["bias"]
            return cross_entropy(scores, training.targets[places]) + self.identity_weight * moved

        return loss


ENTRIES = [
    Entry(
        "vis+adapter",
        VisAdapter,
        "relative",
        needs=("torch", "images"),
        traits=Traits(trains="first"),
    )
]
