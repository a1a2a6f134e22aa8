"""DualPrompt: prefixes for all images in the first blocks, and for those like a session's."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from visvm.bench.kept import Arrays
from visvm.bench.methods.method import Entry, Setup, Traits
from visvm.bench.methods.prompting import Prompted, cosines, uniform
from visvm.head.checks import is_positive, require

if TYPE_CHECKING:
    from torch import Tensor

    from visvm.bench.methods.prompting import Parts

_LENGTH = 5  # of keys, and of values
_GENERAL, _EXPERT = range(2), range(2, 5)  # blocks


class DualPrompt(Prompted):
    """Wang et al., *DualPrompt: Complementary Prompting …* (2022), in a clean form.

    In blocks 1 and 2, five keys and five values that all sessions train join the block's own; in
    blocks 3 to 5, those of one session: in training its own, which begin as those before, later of
    the session whose key is most like the image's query. The loss is cross-entropy over the
    session's classes, less `pull` times the cosine of queries and key. Every session adds a prompt
    and a key, however many come. In the toolboxes the images of a test batch vote on one prompt,
    the prefixes of the first blocks stay as drawn, and old images come back.

    Parameters
    ----------
    pull : float
    epochs, batch_size, learning_rate, device
        As in ``Prompted``.
    """

    name, n_blocks = "dualprompt", 5

    def __init__(
        self,
        setup: Setup,
        *,
        pull: float = 0.1,
        epochs: int = 10,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        device: str = "cpu",
    ) -> None:
        super().__init__(setup, epochs, batch_size, learning_rate, device)
        self.pull = pull
        require(is_positive(pull, or_zero=True), self, "pull", "a number of at least 0")

    def _begin(self, before: Arrays, generator: np.random.Generator) -> Arrays:
        network, session = self._through.network, self._session
        shape = 2, _LENGTH, network.width
        last = before.get(f"expert.{session - 1}")
        width = network.output_width
        drawn = uniform(generator, len(_EXPERT), *shape)
        return {
            "general": before.get("general", uniform(generator, len(_GENERAL), *shape)),
            f"expert.{session}": drawn if last is None else last,
            f"key.{session}": uniform(generator, width),
        }

    def _prompted(
        self, tokens: "Tensor", queries: NDArray[np.float32], parts: "Parts", session: int | None
    ) -> "tuple[Tensor, Tensor | float]":
        import torch

        from visvm.bench.vit.network import Added

        network, given = self._through.network, torch.tensor(queries, device=tokens.device)
        more: Tensor | float = 0.0
        if session is None:
            keys = torch.stack([parts[f"key.{each}"] for each in self._sessions])
            chosen = cosines(given, keys).argmax(dim=1)
            prompts = torch.stack([parts[f"expert.{each}"] for each in self._sessions])
            experts = prompts[chosen]  # (n, blocks, 2, length, width)
        else:
            experts = parts[f"expert.{session}"][None]
            more = -self.pull * cosines(given, parts[f"key.{session}"][None]).mean()
        general = parts["general"]
        prefixes = {block: (general[block, 0][None], general[block, 1][None]) for block in _GENERAL}
        prefixes |= {
            block: (experts[:, place, 0], experts[:, place, 1])
            for place, block in enumerate(_EXPERT)
        }
        return network.tail(network.onward(tokens, 0, Added(prefixes))[:, -1]), more

    @property
    def _sessions(self) -> range:
        return range(1, self._session + 1)


ENTRIES = [
    Entry(
        "dualprompt",
        DualPrompt,
        needs=("torch", "images"),
        traits=Traits(trains="every"),
        published="dualprompt",
    )
]
