"""Only ordinary files of a bounded size are read as images: no device, no pipe, nothing endless."""

import os
import signal
from pathlib import Path

import pytest

from visvm.encoders import sources
from visvm.encoders.sources import MAX_BYTES, RemoteFile, content_of
from visvm.errors import VisvmError

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")


@pytest.fixture(autouse=True)
def patience():
    """End what would wait for ever."""
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for ever"))
    signal.alarm(20)
    yield
    signal.alarm(0)


@pytest.fixture(params=["path", "uri"])
def content(request):
    """Read a file as an image is read."""
    if request.param == "path":
        return content_of
    pytest.importorskip("pyarrow")
    pytest.importorskip("fsspec")
    return lambda path: content_of(RemoteFile(Path(path).as_uri()))


def test_an_ordinary_file_is_read_also_through_a_link(tmp_path, content):
    (tmp_path / "a.png").write_bytes(b"picture" * 1000)
    (tmp_path / "b.png").symlink_to(tmp_path / "a.png")
    for name in ("a.png", "b.png"):
        assert content(tmp_path / name) == b"picture" * 1000


def test_a_pipe_is_refused_at_once(tmp_path, content):
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(OSError, match="ordinary file"):
        content(tmp_path / "pipe.png")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_link_to_a_device_is_refused(tmp_path, content, device):
    if not os.path.exists(device):
        pytest.skip(f"no {device} here")
    (tmp_path / "endless.png").symlink_to(device)
    with pytest.raises(OSError, match="ordinary file"):
        content(tmp_path / "endless.png")


def _readers():
    """What else reads a file that others may have written, and the ending of its name."""
    from visvm.bench import diagnoses
    from visvm.bench.recipe import read_recipe
    from visvm.cli.masked import _named_classes
    from visvm.cli.text import _content
    from visvm.encoders.onnx import _describe
    from visvm.encoders.texts import read_texts
    from visvm.learning.labelled import read_labelled

    return {
        "recipe.toml": lambda path: read_recipe(str(path)),
        "diagnosis.json": diagnoses._read,
        "classes.txt": lambda path: _named_classes(str(path), None),
        "names.names": _content,
        "tiny.onnx.json": lambda path: _describe(path.with_suffix("")),
        "texts.npz": read_texts,
        "table.csv": read_labelled,
    }


@pytest.mark.parametrize("name", _readers())
@pytest.mark.parametrize("kind", ["pipe", "device", "holes"])
def test_neither_is_any_other_file_that_never_ends(tmp_path, name, kind):
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        os.truncate(path, 10 * 2**30)
    with pytest.raises((VisvmError, OSError)) as caught:
        _readers()[name](path)
    assert "ordinary file" in str(caught.value) or "larger than" in str(caught.value)


def test_a_file_of_holes_is_refused_before_it_is_read(tmp_path, content):
    with (tmp_path / "holes.png").open("wb") as file:
        file.truncate(10 * 2**30)
    assert MAX_BYTES < 10 * 2**30
    with pytest.raises(OSError, match="larger than"):
        content(tmp_path / "holes.png")


def test_the_limit_is_a_bound_on_what_is_read(tmp_path, monkeypatch, content):
    monkeypatch.setattr(sources, "MAX_BYTES", 10)
    (tmp_path / "small.png").write_bytes(b"0123456789")
    assert content(tmp_path / "small.png") == b"0123456789"
    (tmp_path / "large.png").write_bytes(b"0123456789+")
    with pytest.raises(OSError, match="larger than"):
        content(tmp_path / "large.png")


def test_a_file_that_does_not_tell_its_size_is_bounded_as_well(monkeypatch):
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("no /proc here")
    monkeypatch.setattr(sources, "MAX_BYTES", 10)
    with pytest.raises(OSError, match="larger than"):
        content_of(Path("/proc/self/maps"))


def test_what_lies_in_an_archive_is_bounded(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    pytest.importorskip("fsspec")
    import zipfile

    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("red/a.png", bytes(10**6))
    monkeypatch.setattr(sources, "MAX_BYTES", 1000)
    source = RemoteFile(f"zip://red::{(tmp_path / 'bomb.zip').as_uri()}", "a.png")
    with pytest.raises(OSError, match="larger than"):
        content_of(source)
