"""What every method answers on a tiny stream: stored, so that no change of answers goes unnoticed.

A row of results is found again by the ``revision`` that its method declares. Raise the revision
when a method answers differently, then store the new answers::

    python -m tests.bench.golden
"""

import json
from pathlib import Path

import numpy as np

from tests.bench.small_vit import SmallEncoder, Stream
from visvm.bench.methods import METHODS
from visvm.bench.methods.method import Setup
from visvm.bench.plan import unmet
from visvm.bench.streams import ClassStream, Samples, class_order, session_sizes
from visvm.bench.texts import ClassTexts
from visvm.encoders.joint import Tail
from visvm.encoders.texts import Phrases, TextFeatures, unit

FILE = Path(__file__).with_name("golden.json")
DIMS = (8, 8, 12)
SIZES = session_sizes("sessions 4,3,2", 9)
WIDTH = 100  # more than the first session has images, and less than all have: thin, then dense
ROUNDING = 1e-5  # of features; far above what another BLAS can make of them


def draw(noise=0.0):
    """Training and test images of 9 classes, 20 each, and a projection; with relative noise."""
    generator = np.random.default_rng(3)
    centres = generator.normal(size=(9, sum(DIMS)))
    targets = np.repeat(np.arange(9), 20)
    parts = []
    for _ in ("train", "test"):
        rows = centres[targets] + 1.35 * generator.normal(size=(180, sum(DIMS))) + 0.5
        rows *= 1.0 + noise * np.random.default_rng(0).normal(size=rows.shape)
        parts.append(Samples(rows.astype(np.float32), targets))
    return *parts, generator.normal(size=(DIMS[-1], 10)).astype(np.float32)


def say(projection):
    """Text features of the nine classes, by two prompts; and what is said of them and of pairs."""
    centres = np.random.default_rng(3).normal(size=(9, sum(DIMS)))[:, -DIMS[-1] :] + 0.5
    generator, exact = np.random.default_rng(4), unit(centres @ projection)

    def near(places):
        noise = generator.normal(size=(len(places), exact.shape[1]))
        return unit(exact[places] + 0.15 * noise).astype(np.float32)

    alone = [(label, -1) for label in range(9) for _ in range(12)]
    pairs = [(a, b) for a in range(9) for b in range(9) if a != b]
    classes = np.array(alone + pairs)
    phrases = Phrases(tuple(map(str, classes)), near(classes[:, 0]), classes)
    features = np.stack([near(np.arange(9)) for _ in range(2)], axis=1)
    return TextFeatures(tuple("abcdefghi"), features, ("a {}", "the {}"), phrases=phrases)


def answers(entry, noise=0.0):
    """What a method answers after every session for the test images of all it has seen: digits."""
    if "images" in entry.needs:
        return seen_answers(entry, noise)
    train, test, projection = draw(noise)
    small = {"n_components": WIDTH} if "n_components" in entry.options else {}
    order = class_order(9, 1993)
    stream = ClassStream(train, test, order, SIZES)
    about = {}
    if "text" in entry.needs:
        texts = ClassTexts(say(projection), order, lambda: sum(stream.sizes))
        about = {"tail": Tail(projection.astype(np.float64)), "texts": texts}
    method = entry.make(Setup(DIMS, lambda final: final @ projection, **about), **small)
    found = []
    for session in stream:
        method.learn(session.features, session.labels)
        found.append("".join(map(str, method.predict(stream.test()[0]))))
    return found


def seen_answers(entry, noise):
    """The same of a method that trains through the encoder, whose weights get the noise."""
    small = {"n_components": WIDTH} if "n_components" in entry.options else {}
    encoder = SmallEncoder()
    generator = np.random.default_rng(0)
    for weight in encoder.built.weights.values():
        weight *= 1.0 + noise * float(generator.normal())
    stream, found, seen = Stream(entry.name, encoder=encoder, epochs=2, **small), [], 0
    for size in (3, 2, 1):
        stream.learn(*range(seen, seen + size))
        seen += size
        tested = np.flatnonzero(stream.test_labels < seen)
        found.append("".join(map(str, stream.answers(tested))))
    return found


def describe(entry):
    """What is stored of a method."""
    return {
        "revision": entry.revision,
        "defaults": entry.options,
        "answers": answers(entry),
    }


def complaint(entry, stored):
    """What is wrong with a method beside what is stored of it; empty if nothing is."""
    name, revision = entry.name, entry.revision
    if name not in stored:
        return f"{name} has no stored answers: run python -m tests.bench.golden"
    known = stored[name]["revision"]
    if revision != known:
        return (
            f"{name} declares revision {revision}; the stored answers are of {known}: "
            "run python -m tests.bench.golden"
        )
    now = describe(entry)
    for what in ("defaults", "answers"):
        if now[what] != stored[name][what]:
            return (
                f"the {what} of {name} are not those of revision {revision}: "
                "raise its revision if they should be others, or undo the change"
            )
    return ""


def read():
    return json.loads(FILE.read_text("utf-8"))


def store(entries, stored):
    """Add what methods answer whose revision has no stored answers yet."""
    for entry in entries:
        if entry.name in stored and stored[entry.name]["revision"] >= entry.revision:
            continue
        if answers(entry) != answers(entry, ROUNDING):
            raise SystemExit(
                f"{entry.name} answers otherwise when features are rounded: draw another stream"
            )
        stored[entry.name] = describe(entry)
    return stored


def runnable():
    """The methods whose needs can be met here."""
    return [entry for entry in METHODS.values() if not unmet(entry, "text", "concepts", "images")]


def main():
    text = json.dumps(store(runnable(), read()), indent=1)
    FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
