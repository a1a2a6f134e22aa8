"""What sums give away of single photos, and what protection costs.

::

    python benchmarks/privacy.py attack --data FOLDER   features of photos from sums: about an hour
    python benchmarks/privacy.py masked --data FOLDER   error and cost of masked sums: minutes
    python benchmarks/privacy.py noise --data FOLDER    accuracy left by noise: some minutes

FOLDER holds CUB-200 and CIFAR-100, which are encoded by dinov2-s14 (cached). Each command stores
its figures in privacy.json and writes PRIVACY.md beside this file; ``privacy_attack.py`` says how
the attacks work. Times are CPU seconds of one thread if ``OPENBLAS_NUM_THREADS=1`` is set.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from privacy_attack import Descent, Found, Seen, Vertices, from_class_sum
from privacy_masked import costs
from privacy_noise import accuracies
from privacy_text import write

from visvm import load_encoder
from visvm.bench.features import encode_data
from visvm.bench.loading import load_dataset
from visvm.bench.streams import Samples, class_order
from visvm.encoders.cache import FeatureCache
from visvm.encoders.transform import Transform
from visvm.head.lift import KernelMap
from visvm.head.scatter import ThinScatter
from visvm.head.statistics import Statistics
from visvm.progress import silent

HERE = Path(__file__).parent
PER_CLASS = 25  # photos of a class in the attacks
HULLS = (  # method, D, N
    (Vertices, 2000, 20),
    (Vertices, 2000, 50),
    (Descent, 2000, 20),
    (Descent, 2000, 100),
    (Descent, 2000, 500),
    (Descent, 2000, 1000),
    (Descent, 2000, 1500),
    (Descent, 2000, 1800),
    (Descent, 2000, 2000),
    (Descent, 2000, 2500),
    (Descent, 15000, 100),
)
CLASS_SUMS = ((2000, 1), (2000, 2), (15000, 2), (15000, 3), (15000, 4))  # D, photos
NOISY: dict[str, dict[str, int]] = {  # images of a class
    "cub200": {},
    "cifar100": {"train_per_class": 20, "test_per_class": 10},
}
SESSIONS = (2000, 10, 100)  # D, sessions, photos of each

Row = dict[str, Any]


def main() -> None:
    """Measure one part, and write the page of all parts measured so far."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=tuple(PARTS))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seconds", type=float, default=120.0, help="CPU time of each attack")
    given = parser.parse_args()
    store = HERE / "privacy.json"
    stored = json.loads(store.read_text()) if store.exists() else {}
    stored[given.part] = {"seconds": given.seconds, "rows": []}
    for row in PARTS[given.part](given):
        print(row, flush=True)
        stored[given.part]["rows"].append(row)
    store.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    write(HERE / "PRIVACY.md", stored)


def measure_attacks(given: argparse.Namespace) -> Iterator[Row]:
    """Yield what each attack recovers of CUB's photos."""
    yield from attacks(*photos(given.data), given.seconds)


def measure_masked(given: argparse.Namespace) -> Iterator[Row]:
    """Yield the costs of rounds of masked sums of CUB's photos."""
    yield from costs(*encoded("cub200", given.data))


def measure_noise(given: argparse.Namespace) -> Iterator[Row]:
    """Yield the accuracies that noise leaves, on both data sets."""
    for name, fewer in NOISY.items():
        for row in accuracies(*encoded(name, given.data, **fewer), range(2)):
            yield {"dataset": name, **row}


PARTS = {"attack": measure_attacks, "masked": measure_masked, "noise": measure_noise}


def encoded(name: str, data: Path | None, **fewer: int) -> tuple[Samples, Samples]:
    """Return final features and class numbers of training and test images."""
    encoder = load_encoder("dinov2-s14")
    transform = Transform("squash", encoder.preprocessing)
    with FeatureCache() as cache:
        found = encode_data(load_dataset(name, data, **fewer), encoder, transform, cache, silent)
    width = encoder.layer_dims[-1]
    return tuple(
        Samples(part.features[:, -width:].astype(np.float64), part.targets)
        for part in (found.train, found.test)
    )


def photos(data: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels of CUB's training photos, class by class, in a drawn order."""
    train, _ = encoded("cub200", data)
    places = [
        np.flatnonzero(train.targets == number)[:PER_CLASS] for number in class_order(200, 1993)
    ]
    rows = np.concatenate(places)
    return train.features[rows], train.targets[rows]


def attacks(fused: np.ndarray, labels: np.ndarray, seconds: float) -> Iterator[Row]:
    """Yield what each attack recovers."""
    maps = {width: KernelMap(fused.shape[1], width, seed=0) for width in (2000, 15000)}

    def row(what: str, width: int, n: int, found: Found, **more: object) -> Row:
        return {
            "what": what,
            "D": width,
            "N": n,
            "recovered": found.n_right(fused[:n] if what != "session" else fused),
            "tries": found.n_tries,
            "seconds": round(found.seconds, 1),
            **more,
        }

    for method, width, n in HULLS:
        sums = Statistics(width)
        sums.add(maps[width].lift(fused[:n]), labels[:n])
        form = "thin" if isinstance(sums.scatter, ThinScatter) else "dense"
        found = method(Seen.of(sums), maps[width].matrix).run(seconds)
        yield row(method.__name__, width, n, found, form=form)
    width, n_sessions, n = SESSIONS
    sums = Statistics(width)
    for begin in range(0, n_sessions * n, n):
        sums.add(maps[width].lift(fused[begin : begin + n]), labels[begin : begin + n])
    found = Descent(Seen.of_last_block(sums), maps[width].matrix).run(seconds)
    yield row("session", width, n_sessions * n, found, session=n)
    for width, n in CLASS_SUMS:
        total = maps[width].lift(fused[:n]).sum(axis=0)
        yield row("class", width, n, from_class_sum(total, n, maps[width].matrix, seconds))


if __name__ == "__main__":
    main()
