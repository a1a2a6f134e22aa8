"""A feature cache that is damaged, full, locked or in the way."""

import sqlite3
import threading
from contextlib import closing

import numpy as np
import pytest

from tests.encoders.entries import held, key, rows
from tests.encoders.refusals import refusal
from visvm.encoders import cache as cache_module
from visvm.encoders.cache import (
    FeatureCache,
    clear,
)
from visvm.errors import VisvmError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "features.sqlite"


ADVICE = ("'visvm cache clear'", "VISVM_CACHE", "--no-cache")


def unusable(call, *facts):
    refusal("cache-unusable", call, *facts, *ADVICE)


def test_file_that_is_no_cache(path):
    path.parent.mkdir()
    path.write_bytes(b"not a database, and long enough to see that" * 100)
    unusable(lambda: FeatureCache(path), str(path))
    assert clear(path) > 0
    with FeatureCache(path) as cache:
        cache.put(rows([0]))
        assert held(cache, [0]) == [0]


def test_file_that_was_cut(path):
    with FeatureCache(path) as cache:
        cache.put(rows(range(200)))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    def use():
        with FeatureCache(path) as cache:
            held(cache, range(200))

    unusable(use, str(path))
    clear(path)
    use()


def test_database_of_another_program(path):
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE features (something TEXT)")
    with FeatureCache(path) as cache:
        unusable(lambda: cache.get(b"key"), str(path))
        unusable(lambda: cache.put(rows([0])), str(path))


@pytest.mark.parametrize("value", ["text", b"12345", 7])
def test_an_entry_that_is_no_features_is_a_miss(path, value):
    with FeatureCache(path) as cache:
        cache.put(rows([0]))
        with closing(sqlite3.connect(path)) as database:
            database.execute("UPDATE features SET value = ?", (value,))
            database.commit()
        assert cache.get(key(0)) is None


def test_damage_anywhere_gives_an_answer_or_one_line(path):
    with FeatureCache(path) as cache:
        cache.put(rows(range(60), width=20))
    whole, generator, refused = path.read_bytes(), np.random.default_rng(0), []
    for _ in range(40):
        content = bytearray(whole)
        place = int(generator.integers(len(content) - 64))
        content[place : place + 64] = generator.bytes(64)
        path.write_bytes(content)
        try:
            with FeatureCache(path) as cache:
                for number in range(60):
                    cache.get(key(number))
                cache.put(rows([100], width=20))
        except VisvmError as error:
            refused.append(error)
        clear(path)
        with FeatureCache(path) as cache:
            assert cache.info().n_images == 0
        path.unlink()
    assert len(refused) > 5
    assert {error.code for error in refused} == {"cache-unusable"}
    assert not any("\n" in str(error) for error in refused)


def test_full_disk_says_so_and_loses_nothing(path):
    with FeatureCache(path) as cache:
        cache.put(rows(range(5)))
        (pages,) = cache._database.execute("PRAGMA page_count").fetchone()
        cache._database.execute(f"PRAGMA max_page_count = {pages + 2}")
        unusable(lambda: cache.put(rows(range(5, 50))), str(path), "full")
        assert held(cache, range(50)) == [0, 1, 2, 3, 4]
        cache._database.execute("PRAGMA max_page_count = 100000")
        cache.put(rows(range(5, 50)))
        assert held(cache, range(50)) == list(range(50))


def test_transaction_that_sqlite_ended_itself_is_told_by_its_reason(path, monkeypatch):
    def end():
        cache._database.execute("ROLLBACK")
        raise sqlite3.OperationalError("disk I/O error")

    with FeatureCache(path) as cache:
        with monkeypatch.context() as patch:
            patch.setattr(cache, "_evict", end)
            unusable(lambda: cache.put(rows([0])), str(path), "disk I/O error")
        cache.put(rows([1]))
        assert held(cache, [0, 1]) == [1]


def test_opening_waits_even_where_sqlite_does_not(path, monkeypatch):
    path.parent.mkdir()
    connect = sqlite3.connect
    holder = connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(
        sqlite3, "connect", lambda path, timeout, **options: connect(path, timeout=0, **options)
    )
    release = threading.Timer(0.1, holder.execute, args=["COMMIT"])
    release.start()
    with FeatureCache(path) as cache:
        release.join()
        cache.put(rows([0]))
        assert held(cache, [0]) == [0]
    holder.close()


def test_path_that_cannot_be_a_file(tmp_path):
    (tmp_path / "folder.sqlite").mkdir()
    unusable(lambda: FeatureCache(tmp_path / "folder.sqlite"), "folder.sqlite")
    refusal("cache-unusable", lambda: clear(tmp_path / "folder.sqlite"), "folder.sqlite")
    (tmp_path / "file").write_text("")
    unusable(lambda: FeatureCache(tmp_path / "file" / "x.sqlite"), "x.sqlite")


def test_use_after_close_says_so(path):
    cache = FeatureCache(path)
    cache.close()
    unusable(lambda: cache.get(b"key"), str(path), "closed")
    cache.close()


def test_clear_frees_the_space(path):
    with FeatureCache(path) as cache:
        cache.put(rows(range(300)))
    before = path.stat().st_size
    assert clear(path) == before - path.stat().st_size > 300_000
    with FeatureCache(path) as cache:
        assert cache.info().n_images == 0


def test_clear_of_nothing(path):
    assert clear(path) == 0
    assert not path.exists()


def test_clear_while_another_uses_it(path):
    with FeatureCache(path) as cache:
        cache.put(rows(range(300)))
        assert held(cache, [7]) == [7]
        assert clear(path) > 300_000
        assert held(cache, range(300)) == []
        cache.put(rows([1]))
        assert held(cache, [1]) == [1]
    with FeatureCache(path) as cache:
        assert held(cache, [0, 1]) == [1]


def test_waiting_for_a_writer_ends_in_one_line(path, monkeypatch):
    with FeatureCache(path) as cache:
        cache.put(rows([0]))
    monkeypatch.setattr(cache_module, "_PATIENCE", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        refusal("cache-in-use", lambda: clear(path), str(path))
        with FeatureCache(path) as cache:
            assert held(cache, [0]) == [0]
            unusable(lambda: cache.put(rows([1])), "locked")
        database.execute("COMMIT")
    with FeatureCache(path) as cache:
        assert held(cache, [0, 1]) == [0]
