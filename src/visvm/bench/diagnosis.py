"""The paper's diagnosis: what class names are to images, before and while a head is trained.

Everything is in the joint space, with f of unit length, the class mean μ_c = n(mean of n(f)) and
the text t_c. A cosine head whose rows are μ is a nearest class mean, one whose rows are t is
zero-shot CLIP. The gap g_c = 1 - μ_c·t_c is compared with the gain Δ_c in accuracy of the first
over the second. Part of that correlation is built in: the accuracy by text falls with the gap, and
that by means hardly depends on the text. So each is also reported alone.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import Struct
from scipy.stats import linregress

from visvm.bench.rows import Share
from visvm.bench.streams import ClassNumbers, class_order, session_sizes
from visvm.encoders.texts import unit
from visvm.head.products import Array

Point = tuple[float, float]

STARTS = ("text", "image")
EPOCHS = 10
_BATCH = 64
_BINS = 40
_SHOWN, _MOST_SHOWN = 20, 2000  # images of a class, and in all, in the map


@dataclass(frozen=True)
class Joint:
    """Images in the joint space, of unit length, with classes; and the texts, (C, p)."""

    train: Array
    train_targets: ClassNumbers
    test: Array
    test_targets: ClassNumbers
    texts: Array

    @property
    def means(self) -> Array:
        """μ, (C, p)."""
        return class_means(self.train, self.train_targets, len(self.texts))


class Correlation(Struct, frozen=True, forbid_unknown_fields=True):
    """Pearson's r with its interval of 95 %, and the line."""

    r: float
    low: float | None  # of three classes or fewer there is none
    high: float | None
    slope: float
    intercept: float


class Curve(Struct, frozen=True, forbid_unknown_fields=True):
    """What one training of the head was like, epoch by epoch over all sessions."""

    start: str
    scale: float
    rate: float
    loss: list[float]
    accuracy: list[Share]  # on test images of all classes seen


class Cosines(Struct, frozen=True, forbid_unknown_fields=True):
    """Cosines between the gradients of classes before the first step."""

    counts: list[int]  # in bins of equal width from -1 to 1
    mean: float
    deviation: float
    large: Share  # beyond ±0.5


def class_means(rows: Array, targets: ClassNumbers, n_classes: int) -> Array:
    """Return the unit means of classes, (C, p).

    Examples
    --------
    >>> class_means(np.array([[1.0, 0.0], [0.8, 0.6]]), np.array([0, 0]), 1).round(6).tolist()
    [[0.948683, 0.316228]]
    """
    return unit(np.stack([rows[targets == label].mean(axis=0) for label in range(n_classes)]))


def class_accuracies(rows: Array, targets: ClassNumbers, heads: Array) -> Array:
    """Return the share of images of each class that are nearest to its row, (C,)."""
    right = (rows @ unit(heads).T).argmax(axis=1) == targets
    return np.array([right[targets == label].mean() for label in range(len(heads))])


def correlate(gaps: Array, values: Array) -> Correlation:
    """Return how values go with gaps; 0 where either is constant.

    Examples
    --------
    >>> correlate(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0])).slope
    2.0
    """
    if len(gaps) < 2 or not (np.ptp(gaps) and np.ptp(values)):
        return Correlation(0.0, None, None, 0.0, float(np.mean(values)))
    line = linregress(gaps, values)
    r = float(np.clip(line.rvalue, -1.0, 1.0))
    low = high = None
    if len(gaps) > 3 and abs(r) < 1:
        reach = 1.96 / math.sqrt(len(gaps) - 3)
        low, high = (math.tanh(math.atanh(r) + sign * reach) for sign in (-1, 1))
    return Correlation(r, low, high, float(line.slope), float(line.intercept))


def gradient(heads: Array, rows: Array, targets: ClassNumbers, scale: float) -> tuple[float, Array]:
    """Return mean loss and gradient, (C, p), of a cosine head's cross-entropy.

    Row j of the gradient of one image of class c is ``scale·(p_j - [j=c])·(I - ŵŵᵀ)·f/|w|``.

    Examples
    --------
    >>> loss, found = gradient(np.eye(2), np.array([[0.6, 0.8]]), np.array([0]), 10.0)
    >>> found.round(6).tolist()
    [[0.0, -7.046377], [5.284782, 0.0]]
    """
    lengths = np.linalg.norm(heads, axis=1, keepdims=True)
    directions = heads / lengths
    logits = scale * rows @ directions.T
    logits -= logits.max(axis=1, keepdims=True)
    shares = np.exp(logits)
    shares /= shares.sum(axis=1, keepdims=True)
    places = np.arange(len(rows))
    loss = float(-np.log(np.maximum(shares[places, targets], 1e-300)).mean())
    shares[places, targets] -= 1.0
    pulls = scale / len(rows) * shares.T @ rows
    along = (pulls * directions).sum(axis=1, keepdims=True)
    return loss, np.asarray((pulls - along * directions) / lengths)


def train(
    joint: Joint, start: str, order: Sequence[int], sizes: Sequence[int], scale: float, rate: float
) -> Curve:
    """Train a cosine head session by session, on current images only, all its rows free.

    Rows of new classes start as their texts or as the means of their images; plain SGD, batches of
    64, ten epochs a session, cross-entropy over the classes seen.
    """
    generator = np.random.default_rng(0)
    rows = joint.texts if start == "text" else joint.means
    heads, begin = np.empty((0, rows.shape[1])), 0
    number = np.argsort(order)
    losses, accuracies = [], []
    for size in sizes:
        end = begin + size
        heads = np.vstack([heads, rows[list(order[begin:end])]])
        seen, mine = (number[each] for each in (joint.test_targets, joint.train_targets))
        tested, images = seen < end, np.flatnonzero((mine >= begin) & (mine < end))
        for _ in range(EPOCHS):
            total = 0.0
            for batch in np.array_split(generator.permutation(images), -(-len(images) // _BATCH)):
                loss, moved = gradient(heads, joint.train[batch], mine[batch], scale)
                heads = heads - rate * moved
                total += loss * len(batch)
            nearest = (joint.test[tested] @ unit(heads).T).argmax(axis=1)
            losses.append(total / len(images))
            accuracies.append(float((nearest == seen[tested]).mean()))
        begin = end
    return Curve(start, scale, rate, losses, accuracies)


def gradient_cosines(joint: Joint, heads: Array, scale: float) -> Cosines:
    """Compare the gradients of all classes' mean losses, each over all heads."""
    pulls = []
    for label in range(len(heads)):
        images = joint.train[joint.train_targets == label]
        targets = np.full(len(images), label)
        pulls.append(gradient(heads, images, targets, scale)[1].ravel())
    directions = unit(np.stack(pulls))
    found = (directions @ directions.T)[np.triu_indices(len(heads), 1)]
    if not len(found):
        return Cosines([0] * _BINS, 0.0, 0.0, 0.0)
    counts = np.histogram(found.clip(-1.0, 1.0), bins=_BINS, range=(-1.0, 1.0))[0]
    large = float((np.abs(found) > 0.5).mean())
    return Cosines(counts.tolist(), float(found.mean()), float(found.std()), large)


def draw_map(joint: Joint) -> dict[str, list[Point]]:
    """Return a t-SNE map of some images, the class means and the texts."""
    from sklearn.manifold import TSNE

    n = len(joint.texts)
    images = _some(joint)
    rows = np.concatenate([images, joint.means, joint.texts])
    given: dict[str, Any] = {"metric": "cosine", "init": "pca", "random_state": 0}
    places = TSNE(perplexity=min(30.0, (len(rows) - 1) / 3), **given).fit_transform(rows)
    points = [(float(x), float(y)) for x, y in places]
    end = len(images)
    return {"images": points[:end], "means": points[end : end + n], "texts": points[end + n :]}


def separation(joint: Joint) -> tuple[float, float]:
    """Return the distance of the means of images and texts, and how well a line tells them apart.

    The second is the balanced accuracy of a linear discriminant on held-out fifths.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    images = _some(joint)
    distance = float(np.linalg.norm(images.mean(axis=0) - joint.texts.mean(axis=0)))
    rows, kinds = (
        np.concatenate([images, joint.texts]),
        np.repeat([0, 1], [len(images), len(joint.texts)]),
    )
    folds = min(5, len(joint.texts), len(images))
    if folds < 2:
        return distance, 1.0
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", priors=[0.5, 0.5])
    cut = StratifiedKFold(folds, shuffle=True, random_state=0)
    right = cross_val_predict(model, rows, kinds, cv=cut) == kinds
    return distance, float(np.mean([right[kinds == kind].mean() for kind in (0, 1)]))


def _some(joint: Joint) -> Array:
    """Take the first images of every class."""
    n_classes = len(joint.texts)
    each = max(1, min(_SHOWN, _MOST_SHOWN // n_classes))
    chosen = [np.flatnonzero(joint.train_targets == label)[:each] for label in range(n_classes)]
    return joint.train[np.concatenate(chosen)]


def diagnose(
    joint: Joint, protocol: str, seed: int, scale: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the fields of a ``diagnoses.Diagnosis``, part by part, each with its name."""
    means = joint.means
    gaps = 1.0 - (means * joint.texts).sum(axis=1)
    by_text, by_image = (
        class_accuracies(joint.test, joint.test_targets, heads) for heads in (joint.texts, means)
    )
    yield (
        "gap",
        {
            "gaps": gaps.tolist(),
            "text_accuracy": by_text.tolist(),
            "image_accuracy": by_image.tolist(),
            "correlations": {
                "gain": correlate(gaps, by_image - by_text),
                "text": correlate(gaps, by_text),
                "image": correlate(gaps, by_image),
            },
        },
    )
    order = class_order(len(joint.texts), seed)
    sizes = session_sizes(protocol, len(order))
    curves = [
        train(joint, start, order, sizes, each, rate)
        for each in (scale, 16.0)
        for rate in (0.01, 0.1)
        for start in STARTS
    ]
    yield "training", {"curves": curves}
    heads = {"text": joint.texts, "image": means}
    cosines = {start: gradient_cosines(joint, heads[start], scale) for start in STARTS}
    yield "gradients", {"cosines": cosines}
    yield "map", {"map": draw_map(joint)}
    distance, separated = separation(joint)
    yield "separation", {"distance": distance, "separated": separated}
