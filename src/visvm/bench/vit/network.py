"""A plain vision transformer in torch, frozen, with places for what methods train in it.

With nothing added it gives the features of the encoder whose weights it has. Only CLS tokens leave
it, so the last block computes the other tokens' keys and values alone.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from visvm.errors import EncoderError

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
}
_DROPOUT = 0.1  # within adapters, while they are trained


@dataclass(frozen=True)
class Adapter:
    """A bottleneck beside an MLP: 0.1·Up(relu(Down x)).

    Parameters
    ----------
    down, down_bias : tensors of shape (rank, width), (rank,)
    up, up_bias : tensors of shape (width, rank), (width,)
    """

    down: Tensor
    down_bias: Tensor
    up: Tensor
    up_bias: Tensor

    def __call__(self, tokens: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return what is added to the tokens; a generator drops out a tenth inside."""
        inside = functional.linear(tokens, self.down, self.down_bias).relu()
        if generator is not None:
            kept = torch.rand(inside.shape, generator=generator).to(inside.device) >= _DROPOUT
            inside = inside * kept / (1.0 - _DROPOUT)
        return 0.1 * functional.linear(inside, self.up, self.up_bias)


@dataclass(frozen=True)
class Added:
    """What is trained within a network, by the number of the block, from 0.

    Parameters
    ----------
    prefixes : mapping to keys and values
        (n or 1, p, width) each; they join a block's own keys and values.
    tokens : mapping to tensors of shape (n or 1, p, width)
        Behind the patches at a block's input, and dropped at its output.
    adapters : mapping to Adapter
    scales : mapping of a place to factors and shifts
        Of what is put out there, y ← γ∘y + β, such as "patch", "0.qkv" or "norm".
    generator : torch.Generator, optional
        Of dropout, while there is training.
    """

    prefixes: Mapping[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    tokens: Mapping[int, Tensor] = field(default_factory=dict)
    adapters: Mapping[int, Adapter] = field(default_factory=dict)
    scales: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    generator: torch.Generator | None = None

    @property
    def level(self) -> int | None:
        """The first block in which something is added; -1 before all of them, None nowhere."""
        blocks = [*self.prefixes, *self.tokens, *self.adapters]
        return -1 if self.scales else min(blocks, default=None)


NOTHING = Added()


class Network:
    """A frozen vision transformer.

    Parameters
    ----------
    weights : dict of tensors
        ``patch``, ``before`` (a norm before the blocks), ``0.norm1``, ``0.qkv``, ``0.proj``,
        ``0.norm2``, ``0.fc1``, ``0.fc2``, …, ``norm`` with ``.weight`` and ``.bias`` each, of which
        ``before`` and biases may be missing; ``0.scale1``, ``0.scale2`` where branches are scaled;
        ``positions`` (tokens, width): what the tokens are without a picture, CLS first; and
        ``projection`` (p, width) where one follows the last norm.
    heads : int
    activation : str
        As transformers calls it.
    epsilon : float
        Of all norms.
    """

    def __init__(
        self, weights: dict[str, Tensor], *, heads: int, activation: str, epsilon: float
    ) -> None:
        if activation not in _ACTIVATIONS:
            raise EncoderError(
                f"The activation {activation} cannot be trained through. Use another encoder.",
                code="encoder-kind-unsupported",
            )
        self.weights = {
            name: weight.detach().to(torch.float32).contiguous().clone()
            for name, weight in weights.items()
        }
        self.heads, self.epsilon = heads, epsilon
        self.activation, self._activate = activation, _ACTIVATIONS[activation]
        self.depth = sum(name.endswith(".qkv.weight") for name in weights)
        self.width, _, self.patch, _ = weights["patch.weight"].shape

    @property
    def digest(self) -> str:
        """SHA-256 of all weights: it stays what it was, whatever is trained in between."""
        summed = hashlib.sha256()
        for name in sorted(self.weights):
            summed.update(name.encode() + self.weights[name].cpu().numpy().tobytes())
        return summed.hexdigest()

    @property
    def output_width(self) -> int:
        """Width of what the encoder itself puts out, p."""
        return len(self.weights.get("projection", self.weights["norm.weight"]))

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.weights["positions"].device

    def to(self, device: str) -> "Network":
        """Move it to a device of torch."""
        self.weights = {name: weight.to(device) for name, weight in self.weights.items()}
        return self

    def until(self, pixels: Tensor, level: int) -> Tensor:
        """Return what enters a block of the frozen network, (n, tokens, width).

        Of level -1, that is the patches alone, (n, patches, width).
        """
        patches = functional.conv2d(
            pixels.to(self.device),
            self.weights["patch.weight"],
            self.weights.get("patch.bias"),
            stride=self.patch,
        )
        tokens = patches.flatten(2).transpose(1, 2)
        if level < 0:
            return tokens
        tokens = self._enter(tokens, NOTHING)
        for block in range(level):
            tokens = self._block(block, tokens, NOTHING)
        return tokens

    def onward(self, tokens: Tensor, level: int, added: Added = NOTHING) -> Tensor:
        """Return the CLS tokens of the blocks from a level on, (n, blocks, width)."""
        if level < 0:
            tokens = self._enter(self._scaled("patch", tokens, added), added)
        found = []
        for block in range(max(level, 0), self.depth):
            tokens = self._block(block, tokens, added)
            found.append(tokens[:, 0])
        return torch.stack(found, dim=1)

    def layers(self, pixels: Tensor, added: Added = NOTHING) -> Tensor:
        """Return layer features, (n, depth · width)."""
        level = -1 if added.scales else 0
        return self.onward(self.until(pixels, level), level, added).flatten(1)

    def tail(self, cls: Tensor, added: Added = NOTHING) -> Tensor:
        """Return what the encoder itself puts out, (n, p), of the last block's CLS tokens."""
        normed = self._norm("norm", cls, added)
        projection = self.weights.get("projection")
        return normed if projection is None else functional.linear(normed, projection)

    def before(self, tokens: Tensor, added: Added = NOTHING) -> Tensor:
        """Return tokens as they are after the norm before the blocks, if there is one."""
        return self._norm("before", tokens, added) if "before.weight" in self.weights else tokens

    def folded(self, added: Added) -> "Network":
        """Return a network that has scales and shifts within its weights."""
        weights = dict(self.weights)
        for place, (factor, shift) in added.scales.items():
            weight, bias = weights[f"{place}.weight"], weights.get(f"{place}.bias")
            shape = (-1, *[1] * (weight.ndim - 1))
            weights[f"{place}.weight"] = factor.reshape(shape) * weight
            weights[f"{place}.bias"] = shift if bias is None else factor * bias + shift
        return Network(weights, heads=self.heads, activation=self.activation, epsilon=self.epsilon)

    def _enter(self, patches: Tensor, added: Added) -> Tensor:
        positions = self.weights["positions"]
        n_front = len(positions) - patches.shape[1]  # CLS, and registers where there are any
        front = positions[:n_front].expand(len(patches), -1, -1)
        return self.before(torch.cat([front, patches + positions[n_front:]], dim=1), added)

    def _block(self, block: int, tokens: Tensor, added: Added) -> Tensor:
        """Return a block's output; of the last block, its CLS token alone, (n, 1, width)."""
        n_tokens = 1 if block == self.depth - 1 else tokens.shape[1]
        if (extra := added.tokens.get(block)) is not None:
            tokens = torch.cat([tokens, extra.expand(len(tokens), -1, -1)], dim=1)
            n_tokens = 1 if n_tokens == 1 else tokens.shape[1]
        inside = self._attention(block, tokens, n_tokens, added)
        tokens = tokens[:, :n_tokens] + self._branch(f"{block}.scale1", inside)
        inside = self._norm(f"{block}.norm2", tokens, added)
        inside = self._activate(self._linear(f"{block}.fc1", inside, added))
        inside = self._branch(f"{block}.scale2", self._linear(f"{block}.fc2", inside, added))
        if (adapter := added.adapters.get(block)) is not None:
            inside = inside + adapter(tokens, added.generator)
        tokens = tokens + inside
        return tokens if extra is None or n_tokens == 1 else tokens[:, : -extra.shape[1]]

    def _attention(self, block: int, tokens: Tensor, n_queries: int, added: Added) -> Tensor:
        place, width = f"{block}.qkv", self.width
        normed = self._norm(f"{block}.norm1", tokens, added)
        weight, bias = self.weights[f"{place}.weight"], self.weights.get(f"{place}.bias")
        parts = []
        for rows, given in (
            (slice(width), normed[:, :n_queries]),
            (slice(width, None), normed),
        ):
            found = functional.linear(given, weight[rows], None if bias is None else bias[rows])
            if place in added.scales:
                factor, shift = added.scales[place]
                found = factor[rows] * found + shift[rows]
            parts.append(found)
        keys, values = parts[1].chunk(2, dim=-1)
        if block in added.prefixes:
            keys, values = (
                torch.cat([prefix.expand(len(tokens), -1, -1), own], dim=1)
                for prefix, own in zip(added.prefixes[block], (keys, values), strict=True)
            )
        return self._linear(f"{block}.proj", attend(parts[0], keys, values, self.heads), added)

    def _linear(self, place: str, x: Tensor, added: Added) -> Tensor:
        weight, bias = self.weights[f"{place}.weight"], self.weights.get(f"{place}.bias")
        return self._scaled(place, functional.linear(x, weight, bias), added)

    def _norm(self, place: str, x: Tensor, added: Added) -> Tensor:
        weight, bias = self.weights[f"{place}.weight"], self.weights[f"{place}.bias"]
        normed = functional.layer_norm(x, (self.width,), weight, bias, self.epsilon)
        return self._scaled(place, normed, added)

    def _branch(self, place: str, x: Tensor) -> Tensor:
        scale = self.weights.get(place)
        return x if scale is None else x * scale

    def _scaled(self, place: str, x: Tensor, added: Added) -> Tensor:
        if place not in added.scales:
            return x
        factor, shift = added.scales[place]
        return factor * x + shift


def attend(queries: Tensor, keys: Tensor, values: Tensor, heads: int) -> Tensor:
    """Return softmax(QKᵀ/√(width of a head))V, (n, queries, width), of several heads."""
    q, k, v = (
        # (n, heads, tokens, width of a head)
        each.reshape(*each.shape[:2], heads, -1).transpose(1, 2)
        for each in (queries, keys, values)
    )
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
