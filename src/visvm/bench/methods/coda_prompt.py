"""CODA-Prompt: prefixes that are sums of components, weighted by each image's own query."""

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from visvm.bench.kept import Arrays
from visvm.bench.methods.method import Entry, Setup, Traits
from visvm.bench.methods.prompting import Prompted
from visvm.head.checks import is_count, require

if TYPE_CHECKING:
    from torch import Tensor

    from visvm.bench.methods.prompting import Parts

_LENGTH = 8  # of a component: half of it keys, half of it values
_BLOCKS = range(5)
_PARTS = ("components", "keys", "attention")


class CodaPrompt(Prompted):
    """Smith et al., *CODA-Prompt: COntinual Decomposed Attention-based Prompting* (2023), clean.

    In each of the blocks 1 to 5, with query q, attention A, keys K and components P::

        α_m = cos(q∘A_m, K_m)        prompt = Σ_m α_m P_m

    of which the first half are keys that join the block's own, and the second half values. Every
    session adds so many components, drawn orthonormal to those before as far as there is room,
    and trains these alone; earlier ones stay in the sum. (The official code divides 100 of them
    among the number of sessions, which it must know.) The loss is cross-entropy over the session's
    classes. The rate of epoch e of E is multiplied by cos(99π·e / (200·(E - 1))).

    Parameters
    ----------
    n_new : int
        Components of a session.
    epochs, batch_size, learning_rate, device
        As in ``Prompted``.
    """

    name, n_blocks = "coda-prompt", 5

    def __init__(
        self,
        setup: Setup,
        *,
        n_new: int = 10,
        epochs: int = 10,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        device: str = "cpu",
    ) -> None:
        super().__init__(setup, epochs, batch_size, learning_rate, device)
        self.n_new = n_new
        require(is_count(n_new), self, "n_new", "a whole number of at least 1")

    def _begin(self, before: Arrays, generator: np.random.Generator) -> Arrays:
        network = self._through.network
        width = network.output_width
        shapes = ((_LENGTH, network.width), (width,), (width,))
        found: Arrays = {}
        for block in _BLOCKS:
            for part, shape in zip(_PARTS, shapes, strict=True):
                old = [before[f"{block}.{part}.{each}"] for each in range(1, self._session)]
                rows = np.concatenate([*old, np.empty((0, *shape), np.float32)])
                earlier = rows.reshape(len(rows), math.prod(shape))
                new = orthonormal(earlier, self.n_new, generator)
                found[f"{block}.{part}.{self._session}"] = new.reshape(-1, *shape)
        return found

    def _prompted(
        self, tokens: "Tensor", queries: NDArray[np.float32], parts: "Parts", _session: int | None
    ) -> "tuple[Tensor, Tensor | float]":
        import torch

        from visvm.bench.vit.network import Added

        network, given = self._through.network, torch.tensor(queries, device=tokens.device)
        prefixes = {}
        for block in _BLOCKS:
            components, keys, attention = (
                torch.cat([parts[f"{block}.{part}.{each}"] for each in range(1, self._session + 1)])
                for part in _PARTS
            )
            prompt = torch.einsum("nm,mld->nld", weights_of(given, attention, keys), components)
            prefixes[block] = prompt[:, : _LENGTH // 2], prompt[:, _LENGTH // 2 :]
        return network.tail(network.onward(tokens, 0, Added(prefixes))[:, -1]), 0.0

    def _factor(self, epoch: int) -> float:
        return math.cos(99 * math.pi * epoch / (200 * max(self.epochs - 1, 1)))


def weights_of(queries: "Tensor", attention: "Tensor", keys: "Tensor") -> "Tensor":
    """Return the weights of components, cos(q∘A_m, K_m), (n, m)."""
    import torch

    return torch.nn.functional.cosine_similarity(queries[:, None] * attention, keys, dim=-1)


def orthonormal(
    earlier: NDArray[np.float32], n_new: int, generator: np.random.Generator
) -> NDArray[np.float32]:
    """Draw rows of length 1 that are orthogonal to each other and to earlier ones.

    Where there is no room for that, rows are Gaussian, of length 1.

    Parameters
    ----------
    earlier : array of shape (m, d)
    n_new : int
    generator : np.random.Generator

    Returns
    -------
    array of shape (n_new, d)
    """
    drawn = generator.normal(size=(n_new, earlier.shape[1]))
    basis = np.linalg.qr(earlier.T.astype(np.float64))[0] if len(earlier) else None
    n_taken = 0 if basis is None else basis.shape[1]
    room = max(earlier.shape[1] - n_taken, 0)
    free = drawn[:room]
    if basis is not None:
        for _ in range(2):  # twice, as rounding leaves some after once
            free = free - free @ basis @ basis.T
    drawn[:room] = np.linalg.qr(free.T)[0].T if room else free
    rows = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return np.asarray(rows, dtype=np.float32)


ENTRIES = [
    Entry(
        "coda-prompt",
        CodaPrompt,
        needs=("torch", "images"),
        traits=Traits(trains="every"),
        published="coda-prompt",
    )
]
