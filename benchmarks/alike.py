"""How many copies of photos ``visvm check`` knows, and how many other photos it takes for copies.

::

    python benchmarks/alike.py --data FOLDER [--encoder NAME] [--datasets cub200]

Copies are made of some photos of 20 classes: of half the size and poor quality, cut at the edges,
darker, mirrored. All photos of these classes and the copies are compared as ``visvm check`` does. A
copy is found if it is in one group with its photo. Groups of photos without any copy are false, or
copies that the data set has itself. Encoded features come from the cache.

Prints the table and keeps it in ALIKE.md beside this file.
"""

import argparse
import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from visvm import load_encoder
from visvm.bench.loading import load_dataset
from visvm.encoders.cache import FeatureCache
from visvm.encoders.pipeline import encode_files
from visvm.encoders.sources import content_of
from visvm.encoders.transform import Transform
from visvm.head.doubts import likeness_of

HERE = Path(__file__).parent
CLASSES = 20
COPIES = 20  # of each kind


def smaller(photo: Image.Image) -> Image.Image:
    """Return it at half its size."""
    return photo.resize((photo.width // 2, photo.height // 2))


def cut(photo: Image.Image, share: float) -> Image.Image:
    """Return it without so much of each edge."""
    across, down = round(share * photo.width), round(share * photo.height)
    return photo.crop((across, down, photo.width - across, photo.height - down))


KINDS = {
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


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", default="dinov2-s14")
    parser.add_argument("--datasets", default="cub200")
    given = parser.parse_args()
    encoder = load_encoder(given.encoder)
    transform = Transform("squash", encoder.preprocessing)
    lines = ["# Copies of photos", "", __doc__.split("::", 1)[0].strip(), ""]
    lines += ["Copies are" + __doc__.split("Copies are", 1)[1].split("Encoded", 1)[0].rstrip(), ""]
    for name in given.datasets.split(","):
        train = load_dataset(name, given.data).train
        classes = np.random.default_rng(0).permutation(int(train.targets.max()) + 1)[:CLASSES]
        places = np.flatnonzero(np.isin(train.targets, classes))
        photos = [train.images[place] for place in places]
        chosen = np.random.default_rng(1).permutation(len(photos))[: COPIES * len(KINDS)]
        kinds = [kind for kind in KINDS for _ in range(COPIES)]
        pairs = zip(chosen, kinds, strict=True)
        copies = [copy_of(content_of(photos[place]), kind) for place, kind in pairs]
        with FeatureCache() as cache:
            parts = [*photos, *copies], encoder, [transform], cache
            features = encode_files(*parts).features[:, 0, -encoder.layer_dims[-1] :]
        targets = train.targets[np.concatenate([places, places[chosen]])]
        groups = likeness_of(features, targets).groups
        group_of = {member: number for number, group in enumerate(groups) for member in group}
        lines += [f"## {name}: {len(photos)} photos, {len(copies)} copies", ""]
        lines += ["| copies | found |", "|---|---:|"]
        for kind in KINDS:
            found = [
                group_of.get(len(photos) + number, -1) == group_of.get(int(place), -2)
                for number, place in enumerate(chosen)
                if kinds[number] == kind
            ]
            lines.append(f"| {kind} | {sum(found)} of {len(found)} |")
        false = sum(max(group) < len(photos) for group in groups)
        lines += ["", f"Groups of photos without any copy: {false}.", ""]
    how = f"--encoder {given.encoder} --datasets {given.datasets}"
    lines += [f"Written by `python benchmarks/alike.py --data FOLDER {how}`.", ""]
    print("\n".join(lines))
    (HERE / "ALIKE.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
