"""What the methods that prompt the encoder share: sessions, a linear head, answers one by one.

All three are in a clean form. Images are answered one by one, whatever stands beside them. Only the
logits of the session's own classes enter the loss, as no old image comes back. Nothing depends on
the number of sessions.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from visvm.bench.kept import Arrays
from visvm.bench.methods.gradient import Adam, cross_entropy, linear_start, numbers, unit_rows
from visvm.bench.methods.method import Costs, Setup
from visvm.bench.methods.sums import count_classes
from visvm.bench.methods.text import project_final
from visvm.bench.methods.through import (
    MICRO_BATCH,
    Inputs,
    Through,
    lower,
    numbered,
    require_pictures,
)
from visvm.bench.pictures import Pictures
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.errors import EncoderError
from visvm.head.checks import is_count, is_positive, require

if TYPE_CHECKING:
    from torch import Tensor

    Parts = Mapping[str, Tensor]


class Prompted:
    """A learner of prompts: a method says what these are, and how an image gets its own.

    The query of an image is what the frozen encoder puts out. The head is linear on what the
    prompted encoder puts out. Training is by Adam, whose state begins anew with every session.

    Parameters
    ----------
    epochs, batch_size : int
        Of every session.
    learning_rate : float
    device : str
        Of torch.
    """

    name: ClassVar[str]
    n_blocks: ClassVar[int]  # that the encoder must have

    def __init__(
        self, setup: Setup, epochs: int, batch_size: int, learning_rate: float, device: str
    ) -> None:
        self.epochs, self.batch_size, self.learning_rate = epochs, batch_size, learning_rate
        valid = epochs == 0 or is_count(epochs)
        require(valid, self, "epochs", "a whole number of at least 0")
        require(is_count(batch_size), self, "batch_size", "a whole number of at least 1")
        require(is_positive(learning_rate), self, "learning_rate", "a number above 0")
        if len(setup.layer_dims) < self.n_blocks:
            raise EncoderError(
                f"{self.name} prompts the first {self.n_blocks} blocks, and this encoder has "
                f"{len(setup.layer_dims)}. Use a deeper one.",
                code="encoder-too-shallow",
            )
        self._setup, self._through = setup, Through(setup, self.name, device)
        self._session, self._n_classes = 0, 0
        self._state: Arrays = {}

    def learn(
        self, features: LayerFeatures, labels: ClassNumbers, pictures: Pictures | None = None
    ) -> None:
        """Learn one session."""
        pictures, before = require_pictures(pictures, self.name), dict(self._state)
        self._n_classes = count_classes(labels, self._n_classes)
        self._session += 1
        given = (before, self._queries(features), labels, pictures)
        kept = self._setup.kept
        self._state = kept.once(f"session-{self._session}", lambda: self._train(*given))

    def predict(self, features: LayerFeatures, pictures: Pictures | None = None) -> ClassNumbers:
        """Return class numbers, (n,)."""
        import torch

        from visvm.bench.vit.modules import as_tensors

        pictures, queries = require_pictures(pictures, self.name), self._queries(features)
        parts, found = as_tensors(self._state, self._through.network.device), []
        with torch.inference_mode():
            for begin in range(0, len(pictures), MICRO_BATCH):
                rows = np.arange(begin, min(begin + MICRO_BATCH, len(pictures)))
                pixels = torch.tensor(pictures.pixels(rows))
                tokens = self._through.network.until(pixels, 0)
                put_out, _ = self._prompted(tokens, queries[rows], parts, None)
                scores = put_out @ parts["head"].T + parts["bias"]
                found.append(scores.argmax(dim=1).cpu().numpy())
        return np.concatenate(found).astype(np.intp) if found else np.empty(0, np.intp)

    def costs(self) -> Costs:
        """Return what was trained and kept so far."""
        n = sum(part.size for part in self._state.values())
        return Costs(n, 4 * n)

    def _begin(self, before: Arrays, generator: np.random.Generator) -> Arrays:
        """Return the prompts that a session begins with and trains."""
        raise NotImplementedError

    def _prompted(
        self, tokens: "Tensor", queries: NDArray[np.float32], parts: "Parts", session: int | None
    ) -> "tuple[Tensor, Tensor | float]":
        """Return what the encoder puts out, (n, p), and what is added to the loss.

        `tokens` enter the first block; in training, the session is given.
        """
        raise NotImplementedError

    def _factor(self, _epoch: int) -> float:
        """Return what the rate is multiplied by in an epoch."""
        return 1.0

    def _queries(self, features: LayerFeatures) -> NDArray[np.float32]:
        return np.asarray(project_final(features, self._setup), dtype=np.float32)

    def _train(
        self,
        before: Arrays,
        queries: NDArray[np.float32],
        labels: ClassNumbers,
        pictures: Pictures,
    ) -> Arrays:
        """Return the state after a session, from that before it."""
        from visvm.bench.vit.modules import as_arrays, as_tensors

        generator = np.random.default_rng((self._setup.seed, self._session))
        network = self._through.network
        classes, targets = numbered(labels)
        head, bias = self._grown(before, queries.shape[1], generator)
        prompts = self._begin(before, generator)
        trained = as_tensors(
            {**prompts, "head": head[classes], "bias": bias[classes]}, network.device
        )
        for part in trained.values():
            part.requires_grad_()
        fixed = as_tensors(before, network.device)
        wanted = numbers(targets).to(network.device)

        def loss(tokens: "Tensor", places: Any) -> "Tensor":
            parts = {**fixed, **trained}
            put_out, more = self._prompted(tokens, queries[places], parts, self._session)
            scores = put_out @ trained["head"].T + trained["bias"]
            return cross_entropy(scores, wanted[places]) + more

        if self.epochs:
            lower(
                Adam([*trained.values()], self.learning_rate),
                loss,
                Inputs(network, pictures, 0),
                len(labels),
                epochs=self.epochs,
                batch_size=self.batch_size,
                generator=generator,
                factor=self._factor,
            )
        after = as_arrays(trained)
        head[classes], bias[classes] = after["head"], after["bias"]
        return {**before, **after, "head": head, "bias": bias}

    def _grown(
        self, before: Arrays, width: int, generator: np.random.Generator
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the head with rows, (C, p), and biases for the classes that are new."""
        new = self._n_classes - len(before.get("bias", ()))
        rows = linear_start(generator, new, width).astype(np.float32)
        if not before:
            return rows, np.zeros(new, np.float32)
        return np.vstack([before["head"], rows]), np.pad(before["bias"], (0, new))


def cosines(queries: "Tensor", keys: "Tensor") -> "Tensor":
    """Return the cosines of queries, (n, q), with keys, (k, q): (n, k)."""
    return unit_rows(queries) @ unit_rows(keys).T


def uniform(generator: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    """Draw from U(-1, 1), as the official codes draw prompts and keys."""
    return generator.uniform(-1.0, 1.0, size=shape).astype(np.float32)
