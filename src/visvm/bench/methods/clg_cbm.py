"""CLG-CBM: short phrases about every class are a bottleneck, and a linear head is on top of it."""

from typing import TYPE_CHECKING

import numpy as np

from visvm.bench.methods.gaussians import ClassGaussians
from visvm.bench.methods.gradient import (
    Adam,
    array,
    cross_entropy,
    descend,
    linear_start,
    numbers,
    steps,
    tensor,
    unit_rows,
)
from visvm.bench.methods.method import Costs, Entry, Setup
from visvm.bench.methods.text import joint, texts_of
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.texts import unit
from visvm.errors import EncoderError
from visvm.head.checks import is_count, require
from visvm.head.products import Array

if TYPE_CHECKING:
    from torch import Tensor

_PER_CLASS = 10  # concepts
_ELASTIC = 0.001
_N_DRAWN = 2  # old classes of which an image is made up for a batch


class CLGCBM:
    """Yu et al., *Language Guided Concept Bottleneck Models* (CVPR 2025), in the clean form.

    The concepts of a class are what the file of text features says of it alone. The public code
    keeps the epoch with the best accuracy on *test* images; here it is the last one.

    Parameters
    ----------
    choice_epochs, bottleneck_epochs : int
        Of the throw-away model by which concepts are chosen, and of the bottleneck.
    """

    def __init__(
        self, setup: Setup, *, choice_epochs: int = 30, bottleneck_epochs: int = 60
    ) -> None:
        self.choice_epochs, self.bottleneck_epochs = choice_epochs, bottleneck_epochs
        for name in ("choice_epochs", "bottleneck_epochs"):
            require(is_count(getattr(self, name)), self, name, "a whole number of at least 1")
        self._setup, self._known = setup, ClassGaussians()
        self._generator = np.random.default_rng(setup.seed)
        self._concepts: Array = np.zeros((0, 0))  # B, (K, p)
        self._explainer: Array = np.zeros((0, 0))  # E, (K, p)
        self._head: Array = np.zeros((0, 0))  # (C, K)

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Choose concepts of new classes, and train the grown bottleneck again."""
        f = joint(features, self._setup)
        old = np.array(sorted(self._known.counts), dtype=np.intp)
        new = np.setdiff1d(labels, old)
        if len(new):
            self._grow(f, labels, new)
        images, targets = self._with_old(f, labels, np.setdiff1d(old, labels), new)
        self._train(images, targets, old)
        self._known.learn(f, labels)

    def predict(self, features: LayerFeatures) -> ClassNumbers:
        """Return class numbers, (n,)."""
        scores = joint(features, self._setup) @ self._explainer.T @ self._head.T
        return np.asarray(scores.argmax(axis=1))

    def costs(self) -> Costs:
        """Return what was trained and kept so far."""
        trained = self._explainer.size + self._head.size
        kept = 8 * trained + self._concepts.nbytes + self._known.nbytes
        return Costs(trained, kept, {"concepts": len(self._concepts)})

    def _grow(self, f: Array, labels: ClassNumbers, new: ClassNumbers) -> None:
        """Add concepts of new classes, with rows and columns for them."""
        n_classes = int(new.max()) + 1
        said = texts_of(self._setup).phrases(range(n_classes))
        alone = said.features[said.classes[:, 1] < 0] if len(said.classes) else np.empty((0, 0))
        of = said.classes[said.classes[:, 1] < 0, 0]
        if missing := np.setdiff1d(new, of).tolist():
            name = texts_of(self._setup).names(missing[:1])[0]
            raise EncoderError(
                f"clg-cbm needs a list of concepts for every class, and {name!r} has none. "
                "Encode the names with --phrases.",
                code="concepts-missing",
            )
        mine = np.isin(labels, new)
        offered = alone[np.isin(of, new)].astype(np.float64)
        wanted = min(_PER_CLASS * len(new), len(offered))
        chosen = offered
        if wanted < len(offered):
            rows = self._choosing_rows(f[mine], np.searchsorted(new, labels[mine]), offered)
            chosen = offered[nearest_concepts(rows, offered)[:wanted]]
        width, known = f.shape[1], len(self._concepts)
        self._concepts = np.vstack([self._concepts.reshape(-1, width), chosen])
        fresh = linear_start(self._generator, len(self._concepts), width)
        fresh[:known] = self._explainer.reshape(-1, width)
        self._explainer = fresh
        head = linear_start(self._generator, n_classes, len(self._concepts))
        head[: len(self._head), :known] = self._head
        self._head = head

    def _choosing_rows(self, f: Array, labels: ClassNumbers, offered: Array) -> Array:
        """Return the first layer, (N, p), of the throw-away model that classifies new classes."""
        import torch

        first = tensor(linear_start(self._generator, *offered.shape)).requires_grad_()
        last = tensor(linear_start(self._generator, int(labels.max()) + 1, len(offered)))
        norm = torch.nn.BatchNorm1d(len(offered))
        if len(f) < 2:  # nothing to normalise over
            return array(first)
        centre = offered.mean(axis=0)
        inverse = np.linalg.pinv(np.cov(offered.T), hermitian=True)
        mean, spread = tensor(centre), tensor(inverse)
        own = float(np.einsum("ij,jk,ik->i", offered - centre, inverse, offered - centre).mean())
        images, targets = tensor(f), numbers(labels)

        def loss(places: ClassNumbers, _epoch: int) -> "Tensor":
            scores = norm(images[places] @ first.T) @ last.T
            away = unit_rows(first) - mean
            distance = ((away @ spread) * away).sum(-1).mean()
            return cross_entropy(scores, targets[places]) + (distance - own).abs() / own**5

        descend(
            Adam([first, last.requires_grad_(), *norm.parameters()], 0.01),
            loss,
            len(f),
            epochs=self.choice_epochs,
            batch_size=64,
            generator=self._generator,
        )
        return array(first)

    def _with_old(
        self, f: Array, labels: ClassNumbers, old: ClassNumbers, new: ClassNumbers
    ) -> tuple[Array, ClassNumbers]:
        """Return the images, and those of the most alike new class moved to every old one."""
        if not len(old) or not len(new):
            return f, labels
        means = np.stack([f[labels == label].mean(axis=0) for label in new])
        alike = (texts_of(self._setup).features(list(old)) @ unit(means).T).argmax(axis=1)
        parts, targets = [f], [labels]
        for label, place in zip(old, alike, strict=True):
            theirs = f[labels == new[place]]
            parts.append(theirs - means[place] + self._known.means[int(label)])
            targets.append(np.full(len(theirs), label))
        return np.concatenate(parts), np.concatenate(targets)

    def _train(self, f: Array, labels: ClassNumbers, old: ClassNumbers) -> None:
        """Train explainer and head on images, made-up ones of two old classes in every batch."""
        explainer, head = (tensor(each).requires_grad_() for each in (self._explainer, self._head))
        images, concepts = tensor(f), tensor(self._concepts)

        def loss(places: ClassNumbers, _epoch: int) -> "Tensor":
            drawn = self._generator.permutation(old)[:_N_DRAWN]
            made = [tensor(self._known.draw(int(o), 1, self._generator)) for o in drawn]
            rows = _stacked([images[places], *made])
            targets = numbers(np.concatenate([labels[places], drawn]))
            explained = rows @ explainer.T
            total = cross_entropy(explained @ head.T, targets) + elastic(head)
            return total + alignment(rows @ concepts.T, explained)

        descend(
            Adam([explainer, head], 1e-3),
            loss,
            len(f),
            epochs=self.bottleneck_epochs,
            batch_size=64,
            generator=self._generator,
            factor=steps(30, 40, 50),
        )
        self._explainer, self._head = array(explainer), array(head)


def _stacked(parts: "list[Tensor]") -> "Tensor":
    import torch

    return torch.cat(parts)


def nearest_concepts(rows: Array, concepts: Array) -> ClassNumbers:
    """Return for each row in turn the nearest concept, by direction, that none before it took.

    Examples
    --------
    >>> nearest_concepts(np.array([[2.0, 0.0], [3.0, 1.0]]), np.eye(2)).tolist()
    [0, 1]
    """
    cosines, taken = unit(rows) @ unit(concepts).T, list[int]()
    for row in cosines:
        row[taken] = -np.inf
        taken.append(int(row.argmax()))
    return np.array(taken, dtype=np.intp)


def alignment(similarities: "Tensor", explained: "Tensor") -> "Tensor":
    """Return minus the mean cosine over concepts of cubed similarities and explanations, (n, K)."""
    return -(unit_rows(similarities.T**3) * unit_rows(explained.T**3)).sum(-1).mean()


def elastic(head: "Tensor") -> "Tensor":
    """Return the elastic net of the heads' weights."""
    return _ELASTIC * (0.99 * head.abs().sum() + 0.005 * (head**2).sum())


ENTRIES = [Entry("clg-cbm", CLGCBM, needs=("text", "concepts", "torch"), published="clg-cbm")]
