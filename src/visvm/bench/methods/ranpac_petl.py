"""RanPAC whole: a module is trained in the encoder in the first session; the rest is its head."""

from typing import TYPE_CHECKING

import numpy as np

from visvm.bench.methods.first_session import FirstSession, Training
from visvm.bench.methods.gradient import SGD, cross_entropy, linear_start, unit_rows
from visvm.bench.methods.method import Entry, Setup, Traits
from visvm.bench.methods.ranpac import RanPACHead
from visvm.bench.methods.through import Loss
from visvm.bench.streams import ClassNumbers
from visvm.head.checks import require

if TYPE_CHECKING:
    from torch import Tensor

    from visvm.bench.vit.modules import Module
    from visvm.bench.vit.network import Network

_PUBLISHED = {"imagenet-r": "ssf", "cars": "vpt"}  # by data set; an adapter for the others
_MODULES = ("published", "adapter", "ssf", "vpt")
_RATE, _DECAY = 0.01, 5e-4


class RanPAC(FirstSession):
    """McDonnell et al., *RanPAC: Random Projections and Pre-trained Models …* (2023), whole.

    In the first session a module is trained within the frozen encoder, by cross-entropy of
    ``σ·cos(f, w_c)`` over its classes, with f what the encoder puts out, and σ trained from 1 on:
    SGD with momentum 0.9, rate 0.01 falling to 0 by half a cosine, weight decay 5e-4, batches of
    48. Then the w are thrown away, the module stays, and ``ranpac-head`` learns the features of the
    encoder with it.

    Parameters
    ----------
    module : str
        "adapter", "ssf" or "vpt"; "published" is what the official configurations have for the data
        set: SSF for ImageNet-R, VPT for Cars, the adapter for all others.
    epochs : int
    augmentation : str
        "views", as in the official code; "none", as in the toolboxes for CLIP.
    n_components : int
        D of the head.
    device : str
        Of torch.
    """

    name = "ranpac"

    def __init__(
        self,
        setup: Setup,
        *,
        module: str = "published",
        epochs: int = 20,
        augmentation: str = "none",
        n_components: int = 10000,
        device: str = "cpu",
    ) -> None:
        self.module = module
        require(module in _MODULES, self, "module", f"one of {', '.join(_MODULES)}")
        dataset = setup.setting.removesuffix("-half")
        super().__init__(
            setup,
            RanPACHead(setup, n_components=n_components),
            kind=_PUBLISHED.get(dataset, "adapter") if module == "published" else module,
            epochs=epochs,
            batch_size=48,
            augmentation=augmentation,
            device=device,
        )

    def _head(self, network: "Network", n_classes: int, generator: np.random.Generator) -> "Module":
        rows = linear_start(generator, n_classes, network.output_width)
        return {"rows": rows.astype(np.float32), "scale": np.ones(1, np.float32)}

    def _optimizer(self, parameters: "list[Tensor]") -> SGD:
        return SGD(parameters, _RATE, _DECAY)

    def _loss(self, training: Training) -> Loss:
        network, added, head = training.network, training.added, training.head

        def loss(tokens: "Tensor", places: ClassNumbers) -> "Tensor":
            put_out = network.tail(network.onward(tokens, training.level, added)[:, -1], added)
            cosines = unit_rows(put_out) @ unit_rows(head["rows"]).T
            return cross_entropy(head["scale"] * cosines, training.targets[places])

        return loss


ENTRIES = [
    Entry(
        "ranpac",
        RanPAC,
        needs=("torch", "images"),
        traits=Traits(dense=True, resplits=True, trains="first"),
        published="ranpac",
    )
]
