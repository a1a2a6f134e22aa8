"""How many copies of photos ``visvm check`` knows, and how many other photos it takes for copies.

::

    python benchmarks/alike.py --data FOLDER [--encoder NAME] [--datasets cub200] [--classes 20]

Copies are made of some training photos: smaller, of poor quality, cut at the edges, darker,
mirrored. All training photos of these classes and the copies are compared as ``visvm check`` does.
A copy is found if it is in one group with its photo. Groups of photos without any copy are false,
or copies that the data set has itself. CUB's photos here have 224 × 224 pixels, all of which the
encoder sees: half of that is a small thumbnail, while a photo of a camera can be made ten times
smaller without losing any pixel that the encoder sees. The limits in use are in bold: the least
cosine of features about their mean, and how small a part of the usual distance within their classes
two photos must be apart. Encoded features come from the cache.

Prints the table and keeps it in ALIKE.md beside this file.
"""

import argparse
import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from visvm import load_encoder
from visvm.bench.loading import LabelledImages, load_dataset
from visvm.encoders.cache import FeatureCache
from visvm.encoders.encoder import Encoder
from visvm.encoders.pipeline import encode_files
from visvm.encoders.sources import content_of
from visvm.encoders.transform import Transform
from visvm.head.doubts import ALIKE, likeness_of

HERE = Path(__file__).parent
COPIES = 20  # of each kind
LIMITS = ((0.95, 0.1), (0.9, 0.15), ALIKE, (0.8, 0.25), (0.75, 0.3), (0.7, 0.4))


def smaller(photo: Image.Image) -> Image.Image:
    """Return it at half its size."""
    return photo.resize((photo.width // 2, photo.height // 2))


def cut(photo: Image.Image, share: float) -> Image.Image:
    """Return it without so much of each edge."""
    across, down = round(share * photo.width), round(share * photo.height)
    return photo.crop((across, down, photo.width - across, photo.height - down))


KINDS = {
    "JPEG of quality 40": (lambda photo: photo, 40),
    "half the size": (smaller, 90),
    "half the size, JPEG of quality 40": (smaller, 40),
    "5 % cut off at each edge": (lambda photo: cut(photo, 0.05), 90),
    "15 % cut off at each edge": (lambda photo: cut(photo, 0.15), 90),
    "darker by 40 %": (lambda photo: ImageEnhance.Brightness(photo).enhance(0.6), 90),
    "mirrored": (ImageOps.mirror, 90),
}


def copy_of(content: bytes, kind: str) -> bytes:
    """Return a copy of this kind, as a file."""
    change, quality = KINDS[kind]
    file = io.BytesIO()
    with Image.open(io.BytesIO(content)) as photo:
        change(photo.convert("RGB")).save(file, "JPEG", quality=quality)
    return file.getvalue()


def found_copies(groups: list[list[int]], originals: list[int], n_photos: int) -> list[bool]:
    """Return whether each copy, which come after all photos, is in one group with its photo."""
    group_of = {member: number for number, group in enumerate(groups) for member in group}
    return [
        group_of.get(n_photos + number, -1) == group_of.get(place, -2)
        for number, place in enumerate(originals)
    ]


def section(encoder: Encoder, train: LabelledImages, name: str, n_classes: int) -> list[str]:
    """Return the lines on one data set."""
    classes = np.random.default_rng(0).permutation(int(train.targets.max()) + 1)[:n_classes]
    places = np.flatnonzero(np.isin(train.targets, classes))
    photos = [train.images[place] for place in places]
    chosen = np.random.default_rng(1).permutation(len(photos))[: COPIES * len(KINDS)].tolist()
    kinds = [kind for kind in KINDS for _ in range(COPIES)]
    pairs = zip(chosen, kinds, strict=True)
    copies = [copy_of(content_of(photos[place]), kind) for place, kind in pairs]
    transform = Transform("squash", encoder.preprocessing)
    with FeatureCache() as cache:
        found = encode_files([*photos, *copies], encoder, [transform], cache)
    features = found.features[:, 0, -encoder.layer_dims[-1] :]
    targets = train.targets[np.concatenate([places, places[chosen]])]
    each = [likeness_of(features, targets, limits).groups for limits in LIMITS]
    held = [found_copies(groups, chosen, len(photos)) for groups in each]
    titles = [f"{cosine} and {part}" for cosine, part in LIMITS]
    titles[LIMITS.index(ALIKE)] = f"**{titles[LIMITS.index(ALIKE)]}**"
    lines = [f"## {name}: {len(photos)} photos of {len(classes)} classes, {len(copies)} copies", ""]
    lines += [f"| found, of {COPIES} each | {' | '.join(titles)} |"]
    lines += ["|---|" + "---:|" * len(LIMITS)]
    for kind in KINDS:
        counts = [
            sum(one for one, of in zip(found, kinds, strict=True) if of == kind) for found in held
        ]
        lines.append(f"| {kind} | {' | '.join(map(str, counts))} |")
    false = [sum(max(group) < len(photos) for group in groups) for groups in each]
    return [*lines, f"| groups without any copy | {' | '.join(map(str, false))} |", ""]


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", default="dinov2-s14")
    parser.add_argument("--datasets", default="cub200")
    parser.add_argument("--classes", type=int, default=20)
    given = parser.parse_args()
    encoder = load_encoder(given.encoder)
    lines = ["# Copies of photos", "", __doc__.split("::", 1)[0].strip(), ""]
    lines += ["Copies are" + __doc__.split("Copies are", 1)[1].split("Encoded", 1)[0].rstrip(), ""]
    for name in given.datasets.split(","):
        train = load_dataset(name, given.data).train
        lines += section(encoder, train, name, given.classes)
    how = f"--encoder {given.encoder} --datasets {given.datasets} --classes {given.classes}"
    lines += [f"Written by `python benchmarks/alike.py --data FOLDER {how}`.", ""]
    print("\n".join(lines))
    (HERE / "ALIKE.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
