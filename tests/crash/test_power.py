"""What a power cut may leave, of files written in several ways."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.operations import watching
from tests.crash.power import PowerCuts
from tests.crash.sqlite_operations import library, watching_sqlite
from visvm.encoders.files import make_folder, replacing

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="needs /proc, as the crash tests do"
)


def left(folder, write, watch=watching):
    """The contents of the files that power cuts may leave, at every operation and at the end."""
    cuts = PowerCuts(folder)
    with watch(folder, cuts):
        write()
    cuts.cut()
    cuts.close()
    return [
        [{name: each and each.data for name, each in tree.items()} for tree in trees]
        for trees in cuts.outcomes
    ]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    return tmp_path


def test_a_file_written_in_place_may_be_lost_or_torn(folder):
    *_, end = left(folder, lambda: (folder / "a").write_bytes(b"new one"))
    assert end == [{"a": each} for each in (b"old", b"new one", b"new", bytes(7))]


def test_a_new_file_needs_its_folder_flushed(folder):
    def write(flush):
        with (folder / "b").open("wb") as file:
            file.write(b"new")
            file.flush()
            os.fsync(file.fileno())
        if flush:
            descriptor = os.open(folder, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

    old = {"a": b"old"}
    *_, end = left(folder, lambda: write(flush=False))
    assert end == [old, old | {"b": b"new"}]
    (folder / "b").unlink()
    *_, end = left(folder, lambda: write(flush=True))
    assert end == [old | {"b": b"new"}]


def test_a_rename_without_flushing_may_leave_an_empty_file(folder):
    def write():
        (folder / "part").write_bytes(b"new one")
        (folder / "part").replace(folder / "a")

    *_, end = left(folder, write)
    assert {"a": b""} in end
    assert {"a": b"old"} in end


def test_a_file_that_is_replaced_is_old_or_new_at_any_moment(folder):
    def write():
        with replacing(folder / "a") as file:
            file.write(b"new one")

    *before, end = left(folder, write)
    assert end == [{"a": b"new one"}]
    assert {tree["a"] for trees in before for tree in trees} == {b"old", b"new one"}
    assert len(before) == 7  # unlink, open, write, fsync, chmod, rename, and fsync of the folder


def test_a_folder_that_is_made_survives(folder):
    *_, end = left(folder, lambda: make_folder(folder / "b" / "c"))
    assert end == [{"a": b"old", "b": None, "b/c": None}]
    *_, end = left(folder, lambda: (folder / "d").mkdir())
    assert len(end) == 2


def test_a_link_is_where_it_leads_and_whole_at_any_moment(folder):
    *before, end = left(folder, lambda: os.symlink(folder / "a", folder / "b"))
    assert before == [[{"a": b"old"}]]
    assert {"a": b"old", "b": os.fsencode(folder / "a")} in end
    assert {frozenset(tree) for tree in end} == {frozenset("a"), frozenset("ab")}
    assert len(end) == 2


@pytest.mark.skipif(library() is None, reason="needs SQLite as a library")
def test_the_operations_of_sqlite_are_seen(folder):
    def write():
        with closing(sqlite3.connect(folder / "s")) as database:
            database.execute("CREATE TABLE numbers (number)")
            database.execute("INSERT INTO numbers VALUES (1)")
            database.commit()

    *before, end = left(folder, write, watching_sqlite)
    assert len(before) > 8
    assert any("s-journal" in tree for trees in before for tree in trees)
    assert {tree["s"] for tree in end} == {(folder / "s").read_bytes()}
