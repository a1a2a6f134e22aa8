"""PROOF: linear maps of both towers a session, and attention between image, texts and prototypes.

The texts, prototypes and prompts are the same tokens for every image. With the shared tokens' keys
K, values V and queries q, an image with key k and value v changes the attention of a shared token
to::

    (1 - w)·softmax(qKᵀ)V + w·v,   w = sigmoid(q·k - logsumexp(qKᵀ))

so only the image's own row costs anything by the image. What is asked of the shared tokens is their
products with the image's own token, behind a norm: these, too, follow from products of images with
shared tokens, and no token of every pair of these is held.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from visvm.bench.methods.gradient import (
    SGD,
    Adam,
    array,
    cosine,
    cross_entropy,
    descend,
    linear_start,
    numbers,
    tensor,
    unit_rows,
)
from visvm.bench.methods.method import Costs, Entry, Setup
from visvm.bench.methods.sums import ClassSums
from visvm.bench.methods.text import project_final, published_setting, texts_of
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.texts import unit
from visvm.head.checks import is_count, require
from visvm.head.products import Array

if TYPE_CHECKING:
    from torch import Tensor

_LENGTH = 10.0  # of a text feature, about what CLIP puts out; files have them of unit length
_N_PROMPTS = 3
_CHUNK = 1024  # images whose products are held at once
_EPSILON = 1e-5  # of the norm, as torch has it


@dataclass(frozen=True)
class _Setting:
    """Hyper-parameters as published for a data set and protocol."""

    epochs: int = 10
    batch_size: int = 64
    rate: float = 0.001
    adam: bool = False  # with the same decay of weights, in place of SGD


SETTINGS = {
    "cifar100": _Setting(5),
    "imagenet-r": _Setting(batch_size=48),
    "food101-half": _Setting(5, 32, 0.002),
    "aircraft-half": _Setting(adam=True),
    "others": _Setting(),
}
"""By data set, and for its protocol that begins with half of the classes where that differs."""
_DECAY = 0.05


class Attention:
    """One head of self-attention, an output layer, and a norm behind the sum with the input.

    `weights` are W_q, W_k, W_v, (p, p); the output's (p, p) and bias (p,); gain and bias, (p,).
    """

    def __init__(self, weights: "list[Tensor]") -> None:
        self.weights = weights

    @classmethod
    def start(cls, width: int, generator: np.random.Generator) -> "Attention":
        """Draw the weights as published."""
        spread = np.sqrt(2.0 / (2 * width))
        maps = spread * generator.normal(size=(3, width, width))
        output = np.sqrt(2.0 / (2 * width)) * generator.normal(size=(width, width))
        vectors = (np.zeros(width), np.ones(width), np.zeros(width))
        return cls([tensor(each) for each in (*maps, output, *vectors)])

    def __call__(self, images: "Tensor", shared: "Tensor") -> "tuple[Tensor, Tensor]":
        """Return the tokens of images, (n, p), and their products with the shared ones, (n, N).

        The shared token j beside image i is ``a_j + s_ij·(b_i - m_j)`` before its norm.
        """
        import torch

        q, k, v, output, bias, gain, shift = self.weights
        scale = 1.0 / np.sqrt(images.shape[1])
        keys, values = shared @ k.T, shared @ v.T @ output.T
        queries, own_keys = images @ q.T, images @ k.T
        logits = scale * (shared @ q.T) @ keys.T  # (N, N)
        to_image = scale * own_keys @ (shared @ q.T).T  # (n, N)
        share = torch.sigmoid(to_image - torch.logsumexp(logits, dim=1))
        own_values = images @ v.T @ output.T
        itself = scale * (queries * own_keys).sum(-1, keepdim=True)
        shares = torch.softmax(torch.cat([scale * queries @ keys.T, itself], dim=1), dim=1)
        mixed_own = shares[:, :-1] @ values + shares[:, -1:] * own_values
        tokens = torch.nn.functional.layer_norm(
            mixed_own + images + bias, images.shape[-1:], gain, shift
        )
        mixed = torch.softmax(logits, dim=1) @ values  # (N, p)
        a, b, m = (_centred(rows) for rows in (mixed + shared + bias, own_values, mixed))
        along = a @ b.T - (a * m).sum(-1, keepdim=True)  # (N, n), as all that follow
        apart = (b**2).sum(-1) - 2.0 * m @ b.T + (m**2).sum(-1, keepdim=True)
        s, w = share.T, gain * tokens
        squares = (a**2).sum(-1, keepdim=True) + 2.0 * s * along + s**2 * apart
        lengths = (squares.clamp(min=0.0) / images.shape[1] + _EPSILON).sqrt()
        products = (a @ w.T + s * ((b * w).sum(-1) - m @ w.T)) / lengths + tokens @ shift
        return tokens, products.T


def _centred(rows: "Tensor") -> "Tensor":
    return rows - rows.mean(-1, keepdim=True)


class Proof:
    """Zhou et al., *Learning without Forgetting for Vision-Language Models* (TPAMI 2025), clean.

    An answer does not depend on other test images (the public code averages text tokens over the
    batch), no image is kept, the maps of earlier sessions are frozen (the paper says so; the public
    code trains those of texts on), nothing is dropped out, and the three parts of the score are
    those of the loss.

    Parameters
    ----------
    proof_setting : str, optional
        The published hyper-parameters to use; by default those of the data set and protocol.
    fusion_epochs : int, optional
        Of every session, where they are to be others.
    """

    _n_exemplars = 0

    def __init__(
        self, setup: Setup, *, proof_setting: str | None = None, fusion_epochs: int | None = None
    ) -> None:
        chosen = proof_setting or published_setting(setup, SETTINGS, "others")
        self.proof_setting = chosen
        require(chosen in SETTINGS, self, "proof_setting", f"one of {', '.join(SETTINGS)}")
        self._how = SETTINGS[chosen]
        self.fusion_epochs = self._how.epochs if fusion_epochs is None else fusion_epochs
        require(is_count(self.fusion_epochs), self, "fusion_epochs", "a whole number of at least 1")
        self._setup, self._generator = setup, np.random.default_rng(setup.seed)
        self._means: ClassSums | None = None  # of unit features
        self._maps: list[Array] = []  # of images and of texts, all sessions together, (p, p + 1)
        self._prompts: Array = np.zeros((0, 0))
        self._attention: Attention | None = None
        self._n_trained = 0
        self._memory: dict[int, Array] = {}

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Train maps, prompts and attention on one session."""
        f = project_final(features, self._setup).astype(np.float64)
        width = f.shape[1]
        self._means = ClassSums(width) if self._means is None else self._means
        self._means.learn(unit(f), labels)
        if self._attention is None:
            self._attention = Attention.start(width, self._generator)
            self._n_trained += sum(each.numel() for each in self._attention.weights)
        if self._memory:
            f = np.concatenate([f, *self._memory.values()])
            kept = np.repeat(list(self._memory), [len(each) for each in self._memory.values()])
            labels = np.concatenate([labels, kept])
        self._train(f, labels)
        if self._n_exemplars:
            for label in map(int, np.unique(labels)):
                rows = f[labels == label]
                self._memory[label] = rows[herded(unit(rows), self._n_exemplars)]

    def predict(self, features: LayerFeatures) -> ClassNumbers:
        """Return class numbers, (n,)."""
        import torch

        f = tensor(project_final(features, self._setup))
        with torch.no_grad():
            chunks = (f[begin : begin + _CHUNK] for begin in range(0, len(f), _CHUNK))
            parts = [torch.stack(self._parts(chunk)).sum(dim=0).argmax(dim=1) for chunk in chunks]
        return np.asarray(torch.cat(parts).numpy(), dtype=np.intp)

    def costs(self) -> Costs:
        """Return what was trained and kept so far."""
        assert self._means is not None
        assert self._attention is not None
        memory = sum(each.nbytes for each in self._memory.values())
        kept = sum(each.nbytes for each in (*self._maps, self._prompts)) + self._means.nbytes
        kept += 4 * sum(each.numel() for each in self._attention.weights)
        exemplars = {"exemplars": self._n_exemplars} if self._n_exemplars else {}
        return Costs(self._n_trained, kept + memory, {"setting": self.proof_setting, **exemplars})

    def _parts(
        self,
        f: "Tensor",
        maps: "list[Tensor] | None" = None,
        prompts: "Tensor | None" = None,
        *,
        train: bool = False,
    ) -> "tuple[Tensor, Tensor, Tensor]":
        """Return the three scores, (n, C) each: cosine, with texts and with prototypes fused."""
        import torch

        assert self._means is not None
        assert self._attention is not None
        means, said = tensor(self._means.means.T), texts_of(self._setup)
        numbers_seen = range(len(means))
        first = said.each(numbers_seen)[:, 0] if train else said.features(numbers_seen)
        maps = [tensor(each) for each in self._maps] if maps is None else maps
        prompts = tensor(self._prompts) if prompts is None else prompts
        images = unit_rows(_affine(f, maps[0]))
        texts = unit_rows(_affine(tensor(_LENGTH * first), maps[1]))
        prototypes = unit_rows(_affine(means, maps[0]))
        _, products = self._attention(images, torch.cat([texts, prototypes, prompts]))
        n = len(means)
        return said.scale * images @ texts.T, products[:, :n], products[:, n : 2 * n]

    def _train(self, f: Array, labels: ClassNumbers) -> None:
        """Train new maps and prompts, and the attention, on one session."""
        import torch

        assert self._attention is not None
        width = f.shape[1]
        new = []
        for _ in range(2):
            bias = self._generator.uniform(-1, 1, size=width) / np.sqrt(width)
            start = linear_start(self._generator, width, width)
            new.append(tensor(np.hstack([start, bias[:, None]])).requires_grad_())
        prompts = tensor(self._generator.normal(size=(_N_PROMPTS, width))).requires_grad_()
        old_prompts = tensor(self._prompts.reshape(-1, width))
        before: list[Any] = [tensor(each) for each in self._maps] or [0.0, 0.0]
        images, targets = tensor(f), numbers(labels)
        for each in self._attention.weights:
            each.requires_grad_()

        def loss(places: ClassNumbers, _epoch: int) -> "Tensor":
            maps = [a + b for a, b in zip(before, new, strict=True)]
            every = torch.cat([old_prompts, prompts])
            rows, known = images[places], targets[places]
            cosines, by_text, by_prototype = self._parts(rows, maps, every, train=True)
            total = cross_entropy(by_text, known) + cross_entropy(by_prototype, known)
            own = cosines[:, known]  # the text of each image of the batch, as a column
            here = numbers(np.arange(len(known)))
            return total + (cross_entropy(own, here) + cross_entropy(own.T, here)) / 2

        every_part, how = [*new, prompts, *self._attention.weights], self._how
        descend(
            (Adam if how.adam else SGD)(every_part, how.rate, _DECAY),
            loss,
            len(f),
            epochs=self.fusion_epochs,
            batch_size=how.batch_size,
            generator=self._generator,
            factor=cosine(self.fusion_epochs),
        )
        for each in self._attention.weights:
            each.requires_grad_(False)
        trained = [array(each) for each in new]
        self._maps = (
            [a + b for a, b in zip(self._maps, trained, strict=True)] if self._maps else trained
        )
        self._prompts = array(torch.cat([old_prompts, prompts]))
        self._n_trained += sum(each.numel() for each in (*new, prompts))


class ProofReplay(Proof):
    """PROOF with 20 images of every class kept, as its published numbers have it."""

    _n_exemplars = 20


def herded(rows: Array, n: int) -> ClassNumbers:
    """Return the places of n rows whose running mean stays nearest the mean of all.

    Examples
    --------
    >>> herded(np.array([[0.0], [5.0], [1.0], [2.0]]), 2).tolist()
    [3, 2]
    """
    mean, total, chosen = rows.mean(axis=0), np.zeros(rows.shape[1]), list[int]()
    for number in range(min(n, len(rows))):
        distances = np.linalg.norm(mean - (total + rows) / (number + 1), axis=1)
        distances[chosen] = np.inf
        chosen.append(int(distances.argmin()))
        total += rows[chosen[-1]]
    return np.array(chosen, dtype=np.intp)


def _affine(rows: "Tensor", weights: "Tensor") -> "Tensor":
    return rows @ weights[:, :-1].T + weights[:, -1]


ENTRIES = [
    Entry("proof", Proof, needs=("text", "torch"), revision=3, published="proof"),
    Entry(
        "proof (20 exemplars)", ProofReplay, needs=("text", "torch"), revision=3, published="proof"
    ),
]
