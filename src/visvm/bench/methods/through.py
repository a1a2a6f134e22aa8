"""Training through the encoder: what the methods that need images share (extra ``torch``).

torch takes seconds to import, and the registry imports every method: it is imported by calls.
"""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visvm.bench.methods.gradient import SGD, Adam, descend
from visvm.bench.methods.method import Setup
from visvm.bench.pictures import Pictures
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import Encoder
from visvm.errors import EncoderError, InputError, MemoryLimitError
from visvm.head.memory import available_bytes, human_bytes

if TYPE_CHECKING:
    from torch import Tensor

    from visvm.bench.vit.network import Network

MICRO_BATCH = 8
"""Images that are in memory at once while gradients are found."""

AUGMENTATIONS = ("none", "views")
"""Training images as they are tested, or a random part of each, perhaps mirrored."""

HELD_BYTES = 2**31
"""As much of what enters the first trained place is held, at most, for all images together."""

_TOKENS = 20  # as large as a block's output is what it holds for back-propagation

Loss = Callable[["Tensor", NDArray[np.intp]], "Tensor"]
"""Takes what enters the first trained place for some images and their places, and returns the
mean of what is to be lowered."""


class Through:
    """The network of a method's encoder, made when it is first needed.

    Parameters
    ----------
    setup : Setup
    name : str
        Of the method, for messages.
    device : str
        Of torch.
    """

    def __init__(self, setup: Setup, name: str, device: str) -> None:
        if setup.trainable is None:
            raise EncoderError(
                f"{name} trains through the encoder, and this one cannot be trained through. Use a "
                "transformers model, an open_clip checkpoint, or one of the catalogue.",
                code="encoder-not-trainable",
            )
        self._trainable, self._device = setup.trainable, device
        if device != "cpu":
            require_device(device)

    @property
    def encoder(self) -> Encoder:
        """The encoder whose weights the network has."""
        return self._trainable.encoder

    @cached_property
    def network(self) -> "Network":
        """The frozen network."""
        return self._trainable.network(self._device)


def require_device(device: str) -> None:
    """Refuse a device of torch that is not there."""
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise EncoderError(
            f"torch cannot use the device {device!r} ({said}). Give another.",
            code="device-unusable",
        ) from None


def require_pictures(pictures: Pictures | None, name: str) -> Pictures:
    """Refuse features alone."""
    if pictures is None:
        raise InputError(
            f"{name} needs the images themselves, and was given features only. Give their pictures "
            "with the features.",
            code="pictures-missing",
        )
    return pictures


class Inputs:
    """What enters the first trained place of a network.

    It is computed once where all images fit into two gibibytes, and for each batch otherwise, or
    where every visit shows another part of an image.

    Parameters
    ----------
    network : Network
    pictures : Pictures
    level : int
        The block that is the first trained place; -1 before all of them.
    generator : np.random.Generator, optional
        Of random parts of images.
    """

    def __init__(
        self,
        network: "Network",
        pictures: Pictures,
        level: int,
        generator: np.random.Generator | None = None,
    ) -> None:
        self._network, self._pictures, self._level = network, pictures, level
        self._generator = generator
        size = network.weights["positions"].nbytes * len(pictures)
        self._held: Tensor | None = None
        held = size if generator is None and size <= HELD_BYTES else 0
        require_room(network, held)
        if held:
            self._held = self._of(np.arange(len(pictures)))

    def at(self, places: NDArray[np.intp]) -> "Tensor":
        """Return it for some images, (n, tokens, width)."""
        return self._of(places) if self._held is None else self._held[places]

    def _of(self, places: NDArray[np.intp]) -> "Tensor":
        import torch

        found = []
        with torch.no_grad():
            for begin in range(0, len(places), MICRO_BATCH):
                part = places[begin : begin + MICRO_BATCH]
                pixels = (
                    self._pictures.pixels(part)
                    if self._generator is None
                    else self._pictures.views(part, self._generator)
                )
                found.append(self._network.until(torch.tensor(pixels), self._level))
        return torch.cat(found)


def require_room(network: "Network", held: int = 0) -> None:
    """Refuse training for which there is too little memory."""
    needed = held + training_bytes(network.weights["positions"].nbytes, network.depth)
    free = available_bytes()
    if free is not None and needed > free:
        raise MemoryLimitError(
            f"Training through this encoder needs about {human_bytes(needed)} of memory, and "
            f"{human_bytes(free)} are free. Free some, or use a smaller encoder.",
            code="memory-training",
        )


def training_bytes(token_bytes: int, depth: int) -> int:
    """Return what back-propagation holds, an image's tokens being of so many bytes."""
    return MICRO_BATCH * depth * _TOKENS * token_bytes


def lower(
    optimizer: SGD | Adam,
    loss: Loss,
    inputs: Inputs,
    n: int,
    **given: Any,
) -> None:
    """Lower a loss over n images as ``descend`` does, with few of a batch in memory at once.

    Gradients are added up: the loss must be a mean over images.
    """

    def summed(rows: NDArray[np.intp], _epoch: int) -> "Tensor":
        parts = np.array_split(rows, -(-len(rows) // MICRO_BATCH))
        for part in parts[:-1]:
            share = len(part) / len(rows)
            (share * loss(inputs.at(part), part)).backward()  # type: ignore[no-untyped-call]
        return len(parts[-1]) / len(rows) * loss(inputs.at(parts[-1]), parts[-1])

    descend(optimizer, summed, n, **given)


def numbered(labels: ClassNumbers) -> tuple[ClassNumbers, ClassNumbers]:
    """Return the classes of a session, and the places of its labels among them."""
    classes, places = np.unique(labels, return_inverse=True)
    return classes, places
