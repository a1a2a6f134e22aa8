"""A small joint space of images and texts, made on the spot, for the methods that lean on text."""

import numpy as np

from visvm.bench.methods import METHODS
from visvm.bench.methods.method import Setup
from visvm.bench.texts import ClassTexts
from visvm.encoders.joint import Tail
from visvm.encoders.texts import Phrases, TextFeatures, unit

DIMS, WIDTH, N_CLASSES = (5, 9), 9, 6
_generator = np.random.default_rng(8)
TAIL = Tail(
    _generator.normal(size=(WIDTH, 4)),
    _generator.uniform(0.8, 1.2, size=WIDTH),
    0.1 * _generator.normal(size=WIDTH),
)
CENTRES = _generator.normal(size=(N_CLASSES, sum(DIMS)))
RUNNING = [entry.name for entry in METHODS.values() if "text" in entry.needs]


def draw(n=90, seed=0, spread=0.4):
    """Layer features and class numbers."""
    generator = np.random.default_rng(seed)
    y = generator.permutation(np.arange(n) % N_CLASSES)
    return (CENTRES[y] + spread * generator.normal(size=(n, sum(DIMS)))).astype(np.float32), y


def text_features(noise=0.1, n_prompts=2, phrases=True, tail=TAIL):
    """Text features near the images of their class, and phrases near these."""
    generator = np.random.default_rng(3)
    exact = unit(tail.project(CENTRES[:, -WIDTH:]))

    def near(places):
        rows = exact[places] + noise * generator.normal(size=(len(places), exact.shape[1]))
        return unit(rows).astype(np.float32)

    features = np.stack([near(np.arange(N_CLASSES)) for _ in range(n_prompts)], axis=1)
    alone = [(label, -1) for label in range(N_CLASSES) for _ in range(12)]
    pairs = [(a, b) for a in range(N_CLASSES) for b in range(N_CLASSES) if a != b]
    classes = np.array(alone + pairs)
    said = Phrases(tuple(map(str, classes)), near(classes[:, 0]), classes)
    names = tuple(f"class {label}" for label in range(N_CLASSES))
    return TextFeatures(names, features, phrases=said if phrases else Phrases())


QUICK = {
    "clg-cbm": {"choice_epochs": 2, "bottleneck_epochs": 4},
    **{key: {"fusion_epochs": 2} for key in ("proof", "proof (20 exemplars)")},
}
"""Options for tests that only compare answers."""


class Learner:
    """A method whose texts are those of the classes it has been given, and no others."""

    def __init__(self, name, texts=None, tail=TAIL, dims=DIMS, seed=0, **options):
        self.n_seen = 0
        texts = text_features(tail=tail) if texts is None else texts
        said = ClassTexts(texts, range(len(texts.names)), lambda: self.n_seen)
        small = {"n_components": 60} if "n_components" in METHODS[name].options else {}
        setup = Setup(dims, tail.project, seed, tail, said)
        self.method = METHODS[name].make(setup, **{**small, **options})

    def learn(self, features, labels):
        self.n_seen = max(self.n_seen, int(labels.max()) + 1)
        self.method.learn(features, labels)
        return self

    def predict(self, features):
        return self.method.predict(features)


def sessions_of(y):
    """Three classes; one, with more of class 1; the last two."""
    first = np.flatnonzero((y < 3) & ~((y == 1) & (np.arange(len(y)) % 2 == 0)))
    second = np.flatnonzero((y == 3) | ((y == 1) & (np.arange(len(y)) % 2 == 0)))
    return [first, second, np.flatnonzero(y > 3)]
