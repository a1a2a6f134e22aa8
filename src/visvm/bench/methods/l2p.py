"""L2P: a pool of prompts, of which each image takes those whose keys its query is most like."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from visvm.bench.kept import Arrays
from visvm.bench.methods.method import Entry, Setup, Traits
from visvm.bench.methods.prompting import Prompted, cosines, uniform
from visvm.head.checks import is_count, is_positive, require

if TYPE_CHECKING:
    from torch import Tensor

    from visvm.bench.methods.prompting import Parts

_LENGTH = 5  # tokens of a prompt


class L2P(Prompted):
    """Wang et al., *Learning to Prompt for Continual Learning* (2022), in a clean form.

    Each image takes the prompts whose keys have the greatest cosine with its query, and has their
    tokens between CLS and the patches from the input on, without positions. The loss is
    cross-entropy over the session's classes, less `pull` times the sum of these cosines. The head
    reads CLS; the official one reads the mean over the prompts' tokens. In the public code the
    images of a batch vote on the prompts, in tests as well.

    Parameters
    ----------
    n_prompts, top : int
        Size of the pool, and how many an image takes.
    pull : float
    epochs, batch_size, learning_rate, device
        As in ``Prompted``.
    """

    name, n_blocks = "l2p", 1

    def __init__(
        self,
        setup: Setup,
        *,
        n_prompts: int = 10,
        top: int = 5,
        pull: float = 0.1,
        epochs: int = 10,
        batch_size: int = 16,
        learning_rate: float = 0.001875,
        device: str = "cpu",
    ) -> None:
        super().__init__(setup, epochs, batch_size, learning_rate, device)
        self.n_prompts, self.top, self.pull = n_prompts, top, pull
        require(is_count(n_prompts), self, "n_prompts", "a whole number of at least 1")
        valid = is_count(top) and top <= n_prompts
        require(valid, self, "top", f"a whole number from 1 to {n_prompts}")
        require(is_positive(pull, or_zero=True), self, "pull", "a number of at least 0")

    def _begin(self, before: Arrays, generator: np.random.Generator) -> Arrays:
        network = self._through.network
        width = network.output_width
        return {
            "prompts": before.get(
                "prompts", uniform(generator, self.n_prompts, _LENGTH, network.width)
            ),
            "keys": before.get("keys", uniform(generator, self.n_prompts, width)),
        }

    def _prompted(
        self, tokens: "Tensor", queries: NDArray[np.float32], parts: "Parts", _session: int | None
    ) -> "tuple[Tensor, Tensor | float]":
        import torch

        network, given = self._through.network, torch.tensor(queries, device=tokens.device)
        likeness, chosen = cosines(given, parts["keys"]).topk(self.top, dim=1)
        taken = network.before(parts["prompts"][chosen].flatten(1, 2))  # (n, top·length, width)
        whole = torch.cat([tokens[:, :1], taken, tokens[:, 1:]], dim=1)
        put_out = network.tail(network.onward(whole, 0)[:, -1])
        return put_out, -self.pull * likeness.sum(dim=1).mean()


ENTRIES = [Entry("l2p", L2P, needs=("torch", "images"), traits=Traits(trains="every"))]
