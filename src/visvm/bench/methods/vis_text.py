"""The paper's Vis + Text: a class name is one more sample of its class, in the same sums."""

import hashlib
import time
from typing import Any, Literal, get_args

import numpy as np

from visvm.bench.methods.method import Entry, Setup, Traits
from visvm.bench.methods.text import joint, require_tail, texts_of
from visvm.bench.methods.vis import Vis
from visvm.bench.streams import ClassNumbers
from visvm.encoders.encoder import LayerFeatures
from visvm.head.checks import require
from visvm.head.estimators import VisClassifier
from visvm.head.head import Head
from visvm.head.products import Array

TextReading = Literal["preimage", "ridge", "padded", "shifted"]

_RIDGE = 0.01  # of the map from the joint space back, by the mean square of a coordinate

# What the last base session settled, and its seconds: readings and weights differ in neither.
_SETTLED: dict[str, tuple[Head, float]] = {}


class VisText(Vis):
    """``vis``, whose sums also get a row for the text feature of every class.

    The paper says that class prototypes of CLIP's text tower enter "the same classifier feature
    space and sufficient statistics", and not how a text feature, (p,), becomes an image feature,
    (width,). Blocks, mixer and λ are those of ``vis``.

    Parameters
    ----------
    reading : {"preimage", "ridge", "padded", "shifted"}
        The shortest image feature that projects to the text, as long as a mean image of the first
        session; what a ridge regression of that session makes of the text; the text with zeros
        behind it; or the first, moved by the difference of the means of images and texts.
    text_weight : float or {"images", "prompts"}
        How many images a text counts as: a number, 0 being ``vis``; as many as its class has; or
        one for each prompt, each of which is a row.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        reading: TextReading = "preimage",
        text_weight: float | Literal["images", "prompts"] = 1.0,
        n_components: int | None = 15000,
        max_selection_samples: int | None = 5000,
    ) -> None:
        super().__init__(
            setup, n_components=n_components, max_selection_samples=max_selection_samples
        )
        self.reading, self.text_weight = reading, text_weight
        require(
            reading in get_args(TextReading), self, "reading", f"one of {get_args(TextReading)}"
        )
        number = isinstance(text_weight, int | float) and 0 <= text_weight < np.inf
        valid = number or text_weight in ("images", "prompts")
        require(valid, self, "text_weight", "a number of at least 0, 'images' or 'prompts'")
        self._setup = setup
        if reading in ("preimage", "shifted"):
            require_tail(setup, "vis+text")
        self._counts: Array = np.zeros(0)
        self._weights: Array = np.zeros(0)  # of the texts in the sums, by class
        self._length = 1.0
        self._shift: Array = np.zeros(1)
        self._back: Array = np.zeros((0, 0))

    def learn(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Learn one session, and the texts of its new classes."""
        base = self._model.head_ is None
        if base:
            self._settle(features, labels)
        self._model.accumulate(features, labels)
        if self.text_weight:
            if base:
                self._measure(features, labels)
            self._add_texts(labels)
        self._model.solve()

    def text_rows(self, numbers: range) -> Array:
        """Return the image features that texts are taken for, (C or C·K, width)."""
        texts = texts_of(self._setup)
        by_prompt = self.text_weight == "prompts"
        said = texts.each(numbers) if by_prompt else texts.features(numbers)[:, None]
        return self._raw(said.reshape(-1, said.shape[2])) * self._length + self._shift

    def _settle(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Settle, or take what another run has settled by the same images and options."""
        said = f"{self._model.get_params()} {features.shape}".encode()
        digest = hashlib.sha256(said + labels.tobytes())
        digest.update(np.ascontiguousarray(features).data)
        if digest.hexdigest() in _SETTLED:
            head, seconds = _SETTLED[digest.hexdigest()]
            self._setup.kept.seconds += seconds
            self._model = VisClassifier.of(head.settled.options, head)
            return
        start = time.perf_counter()
        self._model.settle(features, labels)
        _SETTLED.clear()
        assert self._model.head_ is not None
        _SETTLED[digest.hexdigest()] = self._model.head_, time.perf_counter() - start

    def _measure(self, features: LayerFeatures, labels: ClassNumbers) -> None:
        """Find length, shift and the map back in the first session."""
        images = self._model.mixer_.fuse(features.astype(np.float64))
        n_classes = int(labels.max()) + 1
        if self.reading == "ridge":
            f = joint(features, self._setup)
            gram, width = f.T @ f, f.shape[1]
            shift = _RIDGE * np.trace(gram) / width
            self._back = np.linalg.solve(gram + shift * np.eye(width), f.T @ images)
            return
        raw = self._raw(texts_of(self._setup).features(range(n_classes)))
        lengths = np.linalg.norm(raw, axis=1)
        self._length = float(np.linalg.norm(images, axis=1).mean() / lengths.mean())
        if self.reading == "shifted":
            self._shift = images.mean(axis=0) - self._length * raw.mean(axis=0)

    def _raw(self, said: Array) -> Array:
        """Return text features, (n, p), as image features, (n, width), before length and shift."""
        if self.reading == "ridge":
            return said @ self._back
        width = self._setup.layer_dims[-1]
        if self.reading == "padded":
            return np.pad(said, ((0, 0), (0, width - said.shape[1])))
        return require_tail(self._setup, "vis+text").preimage(said)

    def _add_texts(self, labels: ClassNumbers) -> None:
        """Add the rows of new classes, or what their weight has grown by."""
        counts = np.bincount(labels, minlength=len(self._counts)).astype(np.float64)
        known = np.pad(self._counts, (0, len(counts) - len(self._counts)))
        self._counts = known + counts
        wanted = self._counts if self.text_weight == "images" else np.ones(len(counts))
        if isinstance(self.text_weight, int | float):
            wanted = wanted * self.text_weight
        added = wanted - np.pad(self._weights, (0, len(wanted) - len(self._weights)))
        self._weights = wanted
        rows = self.text_rows(range(len(counts)))
        n_each = len(rows) // len(counts)
        weight, numbers = np.repeat(added, n_each), np.repeat(np.arange(len(counts)), n_each)
        kept = weight > 0
        head = self._model.head_
        assert head is not None
        sums = head.statistics.copy()
        lifted = head.settled.lift.kernel_map.lift(rows[kept])
        if kept.any():
            sums.add(lifted, numbers[kept], weight[kept])
        self._model.head_ = Head.of(head.settled, sums)

    def _choices(self) -> dict[str, Any]:
        return super()._choices() | {"text_weight": self.text_weight}


ENTRIES = [
    Entry(
        "vis+text",
        VisText,
        "relative",
        needs=("text",),
        traits=Traits(mixes=True),
        published="vis-text",
    )
]
