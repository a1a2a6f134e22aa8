"""A small vision transformer made on the spot, images for it, and a stream of them in sessions."""

import io

import numpy as np
from PIL import Image

from visvm.bench.kept import Kept
from visvm.bench.methods import METHODS
from visvm.bench.methods.method import Setup
from visvm.bench.pictures import Pictures
from visvm.encoders.encoder import Preprocessing
from visvm.encoders.transform import Transform

SIDE, PATCH, WIDTH, DEPTH, HEADS = 16, 8, 24, 5, 2
HALF = Preprocessing(SIDE, SIDE, (0.5,) * 3, (0.5,) * 3)
TRANSFORM = Transform("squash", HALF)
DIMS = (WIDTH,) * DEPTH


def weights(seed=0, *, clip=False, scaled=False):
    """Random weights by the names of ``Network``; of CLIP, a norm before and a projection."""
    import torch

    generator = np.random.default_rng(seed)

    def draw(*shape, spread=None, mean=0.0):
        spread = 1.2 / np.sqrt(shape[-1]) if spread is None else spread
        return torch.tensor(generator.normal(mean, spread, shape), dtype=torch.float32)

    n_tokens, inputs = 1 + (SIDE // PATCH) ** 2, 3 * PATCH * PATCH
    found = {"patch.weight": draw(WIDTH, 3, PATCH, PATCH, spread=2.0 / np.sqrt(inputs))}
    found["positions"] = draw(n_tokens, WIDTH, spread=0.3)
    sizes = {"qkv": (3 * WIDTH, WIDTH), "proj": (WIDTH, WIDTH)}
    sizes |= {"fc1": (4 * WIDTH, WIDTH), "fc2": (WIDTH, 4 * WIDTH)}
    norms = ["norm", *(["before"] if clip else [])]
    for block in range(DEPTH):
        norms += [f"{block}.norm1", f"{block}.norm2"]
        for name, (n_out, n_in) in sizes.items():
            found[f"{block}.{name}.weight"] = draw(n_out, n_in)
            found[f"{block}.{name}.bias"] = draw(n_out, spread=0.1)
        if scaled:
            found |= {f"{block}.scale{each}": draw(WIDTH, spread=0.1, mean=0.7) for each in (1, 2)}
    for name in norms:
        found[f"{name}.weight"] = draw(WIDTH, spread=0.1, mean=1.0)
        found[f"{name}.bias"] = draw(WIDTH, spread=0.1)
    if clip:
        found["projection"] = draw(10, WIDTH)
    else:
        found["patch.bias"] = draw(WIDTH, spread=0.1)
    return found


def network(**kind):
    from visvm.bench.vit.network import Network

    return Network(weights(**kind), heads=HEADS, activation="gelu", epsilon=1e-6)


class SmallEncoder:
    """The network as an encoder that can be trained through."""

    name, digest, layer_dims, preprocessing = "small", "0" * 64, DIMS, HALF

    def __init__(self, **kind):
        self.built = network(**kind)
        self.encoder = self

    def network(self, device="cpu"):
        return self.built.to(device)

    def encode(self, pixels):
        import torch

        with torch.no_grad():
            return self.built.layers(torch.tensor(pixels)).numpy()

    def project(self, final):
        import torch

        with torch.no_grad():
            return self.built.tail(torch.tensor(final)).numpy()


def draw_pictures(n_classes=6, n=8, seed=0):
    """Noisy patterns, one for each class, as PNG files; and their classes."""
    patterns = np.random.default_rng(9).normal(128, 45, size=(n_classes, SIDE, SIDE, 3))
    generator, sources = np.random.default_rng(seed), []
    labels = np.repeat(np.arange(n_classes), n)
    for label in labels:
        pixels = patterns[label] + generator.normal(0, 45, size=(SIDE, SIDE, 3))
        file = io.BytesIO()
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file, "PNG")
        sources.append(file.getvalue())
    return sources, labels


class Stream:
    """A method, and sessions of pictures with the frozen encoder's features."""

    def __init__(self, name, *, n=8, n_test=6, folder=None, seed=0, encoder=None, **options):
        self.encoder = encoder or SmallEncoder()
        (train, self.labels), (test, self.test_labels) = (
            draw_pictures(n=n),
            draw_pictures(n=n_test, seed=1),
        )
        self.train, self.test = Pictures(train, TRANSFORM), Pictures(test, TRANSFORM)
        self.features, self.test_features = (
            each.encode(self.encoder) for each in (self.train, self.test)
        )
        kept = Kept(None if folder is None else folder / "kept")
        self.setup = Setup(DIMS, self.encoder.project, seed, trainable=self.encoder, kept=kept)
        self.method = METHODS[name].make(self.setup, **options)

    def learn(self, *classes):
        rows = np.flatnonzero(np.isin(self.labels, classes))
        self.method.learn(self.features[rows], self.labels[rows], self.train.at(rows))
        return self

    def answers(self, rows=None):
        rows = np.arange(len(self.test_labels)) if rows is None else rows
        return self.method.predict(self.test_features[rows], self.test.at(rows)).tolist()
