"""ENGINE: linear maps of both towers a session, what is said of pairs, and visual statistics."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from visvm.bench.methods import gda
from visvm.bench.methods.gradient import (
    SGD,
    array,
    contrast,
    cosine,
    cross_entropy,
    descend,
    linear_start,
    numbers,
    tensor,
    unit_rows,
)
from visvm.bench.methods.method import Costs, Entry, Setup
from visvm.bench.methods.sums import ClassScatter, ClassSums
from visvm.bench.methods.text import (
    project_final,
    published_setting,
    require_tail,
    texts_of,
)
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.texts import unit
from visvm.head.checks import is_positive, require
from visvm.head.products import Array

if TYPE_CHECKING:
    from torch import Tensor

_LENGTH = 10.0  # of a text feature, about what CLIP puts out; files have them of unit length
_PHRASE_WEIGHT = 2.0
_TOP = 5


@dataclass(frozen=True)
class _Setting:
    """Hyper-parameters as published for a data set and protocol."""

    statistical_weight: float = 0.8
    rerank_weight: float = 0.8
    noise: float = 0.25


SETTINGS = {
    "aircraft": _Setting(0.99, 0.2),
    "cifar100": _Setting(0.8, 0.5),
    "cifar100-half": _Setting(0.9, 0.8),
    "others": _Setting(),
    "cub200": _Setting(0.95, 0.8, 0.3),
    "cub200-half": _Setting(0.95, 0.8),
    "objectnet": _Setting(0.95, 0.5),
    "ucf101": _Setting(0.85, 0.2, 0.0),
}
"""By data set, and for its protocol that begins with half of the classes where that differs."""


class KnowledgeEngine:
    """Zhou et al., *External Knowledge Injection for CLIP-Based Class-Incremental Learning* (2025).

    With F the sum over sessions of linear maps, one of images and one of texts::

        score = stat·n(GDA(n(h))) + (1 - stat)·[r·rerank + (1 - r)·n(F_v)·n(F_t)]

    In the clean form: what is said of a class names classes that have arrived only; the rerank
    takes the mean over phrases where the public code draws three at random; GDA is that of all
    images. The term of noisy views needs images and is left out. Where the text features have no
    phrases of pairs, neither their loss nor the rerank is there, and ``choices`` says so.

    Parameters
    ----------
    engine_setting : str, optional
        The published hyper-parameters to use; by default those of the data set and protocol.
    statistical_weight, rerank_weight : float, optional
        stat and r, where they are to be others. With stat = 1 it is GDA alone.
    adapter_epochs : int
        Of every session.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        engine_setting: str | None = None,
        statistical_weight: float | None = None,
        rerank_weight: float | None = None,
        adapter_epochs: int = 10,
    ) -> None:
        chosen = engine_setting or published_setting(setup, SETTINGS, "others")
        self.engine_setting = chosen
        require(chosen in SETTINGS, self, "engine_setting", f"one of {', '.join(SETTINGS)}")
        how = SETTINGS[chosen]
        given = (statistical_weight, rerank_weight)
        published = (how.statistical_weight, how.rerank_weight)
        self.statistical_weight, self.rerank_weight = (
            theirs if ours is None else ours for ours, theirs in zip(given, published, strict=True)
        )
        for name in ("statistical_weight", "rerank_weight"):
            value = getattr(self, name)
            valid = is_positive(value, or_zero=True) and value <= 1
            require(valid, self, name, "a number from 0 to 1")
        self.adapter_epochs = adapter_epochs
        whole = isinstance(adapter_epochs, int) and adapter_epochs >= 0
        require(whole, self, "adapter_epochs", "a whole number of at least 0")
        self._setup, self._noise, self._tail = setup, how.noise, require_tail(setup, "engine")
        width, p = self._tail.matrix.shape
        self._means, self._unit_sums = ClassSums(p), ClassScatter(width)
        self._coefficients: Array = np.zeros((width + 1, 0))
        # Of all sessions together: a sum of linear maps is one, (p, p + 1), the bias last.
        self._maps: list[Array] = []
        self._n_trained = 0
        self._described = False
        self._generator = np.random.default_rng(setup.seed)

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Train two maps on one session, and add them to those before."""
        f = self._rows(features)
        known = len(self._means.counts)
        old = self._means.means.T
        self._means.learn(f, labels)
        self._unit_sums.learn(unit(self._hidden(features)), labels)
        self._coefficients = gda.discriminant(self._unit_sums)
        width = f.shape[1]
        start = [
            np.hstack([linear_start(self._generator, width, width), bias[:, None]])
            for bias in self._generator.uniform(-1, 1, size=(2, width)) / np.sqrt(width)
        ]
        new = self._trained(f, labels, old[:known], start)
        self._maps = [a + b for a, b in zip(self._maps, new, strict=True)] if self._maps else new
        self._n_trained += sum(each.size for each in new)

    def predict(self, features: LayerFeatures) -> ClassNumbers:
        """Return class numbers, (n,)."""
        visual = gda.scores(unit(self._hidden(features)), self._coefficients)
        share = self.statistical_weight
        scores = share * unit(visual)
        if share < 1:
            scores = scores + (1.0 - share) * self._adapted(self._rows(features))
        return np.asarray(scores.argmax(axis=1))

    def costs(self) -> Costs:
        """Return what was trained and kept so far, and whether there were phrases of pairs."""
        kept = sum(each.nbytes for each in self._maps) + self._coefficients.nbytes
        kept += self._means.nbytes + self._unit_sums.nbytes
        return Costs(
            self._n_trained, kept, {"descriptions": self._described, "setting": self.engine_setting}
        )

    def _rows(self, features: LayerFeatures) -> Array:
        return project_final(features, self._setup).astype(np.float64)

    def _hidden(self, features: LayerFeatures) -> Array:
        return self._tail.normed(features[:, -self._setup.layer_dims[-1] :])

    def _trained(
        self, f: Array, labels: ClassNumbers, old: Array, start: list[Array]
    ) -> list[Array]:
        """Return this session's map of images and that of texts, (p, p + 1) each."""
        n_classes = len(self._means.counts)
        texts = _LENGTH * texts_of(self._setup).each(range(n_classes))[:, 0]
        said = texts_of(self._setup).phrases(range(n_classes))
        phrases = {label: said.features[_of(said.classes, label)] for label in range(n_classes)}
        self._described = bool((said.classes[:, 1] >= 0).any()) if len(said.classes) else False
        image_map, text_map = (tensor(each).requires_grad_() for each in start)
        before: list[Any] = [tensor(each) for each in self._maps] or [0.0, 0.0]
        scale, own = float(np.log(texts_of(self._setup).scale)), np.arange(len(old))
        noise = self._noise * np.ones_like(old)

        def loss(places: ClassNumbers, _epoch: int) -> "Tensor":
            made = old + noise * self._generator.normal(size=old.shape)
            known = np.concatenate([labels[places], own])
            images = tensor(np.concatenate([f[places], made]))
            v = unit_rows(_affine(images, before[0] + image_map))
            t = unit_rows(_affine(tensor(texts[known]), before[1] + text_map))
            total = contrast(v, t, scale)
            told = [row for row, label in enumerate(known) if len(phrases[label])]
            if told:
                drawn = [self._generator.integers(len(phrases[known[row]])) for row in told]
                pairs = zip(told, drawn, strict=True)
                beside = tensor(np.stack([phrases[known[row]][k] for row, k in pairs]))
                places_told = numbers(np.arange(len(told)))
                total = total + _PHRASE_WEIGHT * cross_entropy(t[told] @ beside.T, places_told)
            return total

        descend(
            SGD([image_map, text_map], 0.05, 0.05),
            loss,
            len(f),
            epochs=self.adapter_epochs,
            batch_size=64,
            generator=self._generator,
            factor=cosine(max(self.adapter_epochs, 1)),
        )
        return [array(image_map), array(text_map)]

    def _adapted(self, f: Array) -> Array:
        """Return the scores, (n, C), of the maps, and of the rerank where there are phrases."""
        texts = _LENGTH * texts_of(self._setup).features(range(len(self._means.counts)))
        v, t = (_mapped(rows, m) for rows, m in zip((f, texts), self._maps, strict=True))
        scores = unit(v) @ unit(t).T
        if not self._described or not self.rerank_weight:
            return np.asarray(scores)
        r = self.rerank_weight
        return np.asarray(r * self._reranked(f, scores) + (1.0 - r) * scores)

    def _reranked(self, f: Array, scores: Array) -> Array:
        """Return cosines with what tells each of the best five from the others; 0 for the rest."""
        n_classes = scores.shape[1]
        said = texts_of(self._setup).phrases(range(n_classes))
        mean = np.zeros((n_classes, n_classes, f.shape[1]))
        for a, b in {(int(a), int(b)) for a, b in said.classes if b >= 0}:
            chosen = (said.classes == [a, b]).all(axis=1)
            mean[a, b] = said.features[chosen].mean(axis=0)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :_TOP]
        result, images = np.zeros_like(scores), unit(f)
        for row, top in enumerate(best):
            beside = unit(mean[np.ix_(top, top)].sum(axis=1))  # (a, a) is zero
            result[row, top] = beside @ images[row]
        return result


def _of(classes: ClassNumbers, label: int) -> ClassNumbers:
    """Return the phrases that tell a class from another."""
    return np.flatnonzero((classes[:, 0] == label) & (classes[:, 1] >= 0))


def _affine(rows: "Tensor", weights: "Tensor") -> "Tensor":
    """Return rows, (n, p), mapped by (p, p + 1) with the bias last."""
    return rows @ weights[:, :-1].T + weights[:, -1]


def _mapped(rows: Array, weights: Array) -> Array:
    return np.asarray(rows @ weights[:, :-1].T + weights[:, -1])


ENTRIES = [
    Entry("engine", KnowledgeEngine, needs=("text", "torch"), revision=2, published="engine")
]
