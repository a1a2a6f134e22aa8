"""Methods that train a module in the encoder in the first session, and then have features again."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from visvm.bench.methods.gradient import SGD, Adam, cosine, numbers
from visvm.bench.methods.method import Costs, Method, Setup
from visvm.bench.methods.through import (
    AUGMENTATIONS,
    Inputs,
    Loss,
    Through,
    lower,
    numbered,
    require_pictures,
)
from visvm.bench.pictures import Pictures
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.head.checks import is_count, require

if TYPE_CHECKING:
    from torch import Tensor

    from visvm.bench.vit.adapted import AdaptedEncoder
    from visvm.bench.vit.modules import Module
    from visvm.bench.vit.network import Added, Network


@dataclass(frozen=True)
class Training:
    """What a loss is made of."""

    network: "Network"
    added: "Added"
    level: int  # of the first trained place
    head: "dict[str, Tensor]"  # trained with the module, and thrown away
    targets: "Tensor"  # (n,), among the classes of the session
    features: LayerFeatures  # of the frozen encoder


class FirstSession:
    """A module in the encoder, trained once, and a learner on the features of that encoder.

    Everything the learner is given is encoded again, each image once and as it is tested. With a
    first session of one class nothing can be trained, and the module stays as it was drawn.

    Parameters
    ----------
    setup : Setup
    learner : Method
        On features.
    kind : str
        Of the module.
    epochs, batch_size : int
    augmentation : str
        "none": training images are seen as they are tested; "views": a random part of 5 to 100 % of
        the picture, mirrored every second time.
    device : str
        Of torch.
    """

    name: ClassVar[str]

    def __init__(
        self,
        setup: Setup,
        learner: Method,
        *,
        kind: str,
        epochs: int,
        batch_size: int,
        augmentation: str,
        device: str,
    ) -> None:
        self.kind, self.epochs, self.augmentation = kind, epochs, augmentation
        valid = epochs == 0 or is_count(epochs)
        require(valid, self, "epochs", "a whole number of at least 0")
        valid = augmentation in AUGMENTATIONS
        require(valid, self, "augmentation", f"one of {', '.join(AUGMENTATIONS)}")
        self._setup, self._through = setup, Through(setup, self.name, device)
        self._learner, self._batch_size = learner, batch_size
        self._encoder: AdaptedEncoder | None = None
        self._module: Module = {}

    def learn(
        self, features: LayerFeatures, labels: ClassNumbers, pictures: Pictures | None = None
    ) -> None:
        """Learn one session; the first one trains the module."""
        pictures = require_pictures(pictures, self.name)
        if self._encoder is None:
            from visvm.bench.vit.adapted import AdaptedEncoder

            given = (features, labels, pictures)
            self._module = self._setup.kept.once("module", lambda: self._train(*given))
            encoder, network = self._through.encoder, self._through.network
            self._encoder = AdaptedEncoder(encoder, network, self.kind, self._module)
        self._learner.learn(pictures.encode(self._encoder), labels)

    def predict(self, _features: LayerFeatures, pictures: Pictures | None = None) -> ClassNumbers:
        """Return class numbers, (n,)."""
        assert self._encoder is not None, "a session has been learned"
        return self._learner.predict(require_pictures(pictures, self.name).encode(self._encoder))

    def costs(self) -> Costs:
        """Return what was trained, kept and chosen so far; the module is kept, its head is not."""
        costs, n = self._learner.costs(), sum(part.size for part in self._module.values())
        choices = {**costs.choices, "module": self.kind}
        return Costs(costs.trainable_parameters + n, costs.state_bytes + 4 * n, choices)

    def _drawn(self, network: "Network", generator: np.random.Generator) -> "Module":
        """Return the module before its training."""
        from visvm.bench.vit import modules

        return modules.drawn_module(self.kind, network, generator)

    def _head(self, network: "Network", n_classes: int, generator: np.random.Generator) -> "Module":
        """Return the head that the module is trained with, before its training."""
        raise NotImplementedError

    def _loss(self, training: Training) -> Loss:
        """Return what is to be lowered."""
        raise NotImplementedError

    def _optimizer(self, parameters: "list[Tensor]") -> SGD | Adam:
        """Return what lowers it."""
        raise NotImplementedError

    def _train(self, features: LayerFeatures, labels: ClassNumbers, pictures: Pictures) -> "Module":
        import torch

        from visvm.bench.vit import modules

        seed, network = self._setup.seed, self._through.network
        generator = np.random.default_rng(seed)
        start = self._drawn(network, generator)
        classes, places = numbered(labels)
        if len(classes) < 2 or not self.epochs:
            return start
        head = self._head(network, len(classes), generator)
        parts, others = (modules.as_tensors(each, network.device) for each in (start, head))
        trained = [part.requires_grad_() for part in (*parts.values(), *others.values())]
        added = modules.added(self.kind, parts, torch.Generator().manual_seed(seed))
        assert added.level is not None, "a module has parts"
        targets = numbers(places).to(network.device)
        (views,) = generator.spawn(1) if self.augmentation == "views" else (None,)
        schedule: dict[str, Any] = {"epochs": self.epochs, "factor": cosine(self.epochs)}
        lower(
            self._optimizer(trained),
            self._loss(Training(network, added, added.level, others, targets, features)),
            Inputs(network, pictures, added.level, views),
            len(labels),
            batch_size=self._batch_size,
            generator=generator,
            **schedule,
        )
        return modules.as_arrays(parts)
