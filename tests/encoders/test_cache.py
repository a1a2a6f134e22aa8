"""The feature cache: what goes in comes out, even if others write or are killed."""

import multiprocessing
import os
import random
import signal
import sqlite3
import threading
import time
from contextlib import closing

import numpy as np
import pytest

from tests.encoders.entries import WIDTH, held, key, row, rows
from tests.encoders.refusals import refusal
from visvm.encoders.cache import (
    DEFAULT_LIMIT,
    FeatureCache,
    clear,
    feature_key,
    limit_from_environment,
)
from visvm.errors import InputError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "features.sqlite"


def test_features_come_back_bit_for_bit(path):
    special = np.array([0.0, -0.0, 1e-45, 3.4e38, -3.4e38, 1 / 3], dtype=np.float32)
    with FeatureCache(path) as cache:
        cache.put({b"special": special, **rows(range(5))})
        back = cache.get(b"special")
        assert back.dtype == np.float32
        assert back.shape == special.shape
        assert back.tobytes() == special.tobytes()
        assert held(cache, range(5)) == [0, 1, 2, 3, 4]
        assert cache.get(b"another") is None


def test_rows_of_a_larger_array_come_back(path):
    array = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    with FeatureCache(path) as cache:
        cache.put({b"row": array[1], b"column": array[:, 1]})
        assert np.array_equal(cache.get(b"row"), array[1])
        assert np.array_equal(cache.get(b"column"), array[:, 1])


def test_second_put_replaces_the_first(path):
    with FeatureCache(path) as cache:
        cache.put({key(0): row(1)})
        cache.put({key(0): row(0)})
        assert held(cache, [0]) == [0]
        assert cache.info().n_images == 1


def test_entries_outlast_the_object(path):
    with FeatureCache(path) as cache:
        cache.put(rows(range(10)))
    with FeatureCache(path) as cache:
        assert held(cache, range(12)) == list(range(10))


def test_entries_that_were_put_are_there_for_others_at_once(path):
    with FeatureCache(path) as cache, FeatureCache(path) as other:
        cache.put(rows(range(3)))
        assert held(other, range(4)) == [0, 1, 2]


def test_default_place_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "here"))
    with FeatureCache() as cache:
        assert cache.path == tmp_path / "here" / "features.sqlite"
        cache.put(rows([0]))
    clear()
    with FeatureCache() as cache:
        assert cache.get(key(0)) is None


def test_key_depends_on_content_weights_and_transform():
    keys = {
        feature_key(content, digest, transform)
        for content in (b"", b"a", b"ab")
        for digest in ("", "1", "2")
        for transform in ("", "crop", "squash")
    }
    assert len(keys) == 27


def test_info_counts(path):
    with FeatureCache(path, limit=10**7) as cache:
        empty = cache.info()
        cache.put(rows(range(50)))
        full = cache.info()
    assert (empty.path, empty.n_images, empty.limit) == (path, 0, 10**7)
    assert full.n_images == 50
    assert 50 * WIDTH * 4 < full.n_bytes - empty.n_bytes < 50 * WIDTH * 4 * 2


def test_size_stays_below_the_limit(path):
    limit = 300_000
    with FeatureCache(path, limit) as cache:
        for start in range(0, 800, 20):
            cache.put(rows(range(start, start + 20)))
            assert cache.info().n_bytes <= limit
            assert held(cache, range(start, start + 20)) == list(range(start, start + 20))
        assert cache.info().n_bytes > limit // 2
    assert path.stat().st_size < 1.2 * limit


def test_size_stays_below_the_limit_when_entries_differ_in_size(path):
    with FeatureCache(path, 400_000) as cache:
        cache.put(rows(range(1000), width=4))
        for start in range(1000, 1040, 10):
            cache.put(rows(range(start, start + 10), width=3000))
            assert cache.info().n_bytes <= 400_000
        assert held(cache, range(1030, 1040)) == list(range(1030, 1040))


def test_longest_unused_entries_give_way(path):
    with FeatureCache(path, limit=10**7) as cache:
        for number in range(100):
            cache.put(rows([number]))
    used_lately = range(0, 100, 10)
    with FeatureCache(path, limit=10**7) as cache:
        assert held(cache, used_lately) == list(used_lately)
    with FeatureCache(path, limit=10**7) as cache:
        half = cache.info().n_bytes // 2
    with FeatureCache(path, half) as cache:
        cache.put(rows([100]))
        left = held(cache, range(101))
    assert len(left) > 20
    assert set(used_lately) | {100} <= set(left)
    others = [number for number in left if number not in used_lately]
    assert others == [number for number in range(others[0], 101) if number not in used_lately]


def test_use_counts_also_within_one_object(path):
    with FeatureCache(path, limit=150_000) as cache:
        cache.put(rows([0]))
        for start in range(1, 400, 10):
            assert held(cache, [0]) == [0]
            cache.put(rows(range(start, start + 10)))
        assert held(cache, [1]) == []


def test_limit_below_one_entry_keeps_nothing(path):
    with FeatureCache(path, limit=0) as cache:
        cache.put(rows(range(5)))
        assert cache.info().n_images == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(
            ("", DEFAULT_LIMIT),
            ("0", 0),
            ("12345", 12345),
            ("1K", 1024),
            ("500M", 500 * 2**20),
            ("20G", 20 * 2**30),
        ),
        *((" 2 t ", 2 * 2**40), ("3gb", 3 * 2**30), ("3GiB", 3 * 2**30), ("7B", 7)),
    ],
)
def test_limit_from_environment(monkeypatch, path, text, expected):
    monkeypatch.setenv("VISVM_CACHE_LIMIT", text)
    assert limit_from_environment() == expected
    with FeatureCache(path) as cache:
        assert cache.limit == expected


def test_limit_when_nothing_is_set(monkeypatch):
    monkeypatch.delenv("VISVM_CACHE_LIMIT", raising=False)
    assert limit_from_environment() == 5 * 2**30


@pytest.mark.parametrize("text", ["lots", "-1", "1.5G", "5 bananas", "G", "1e9", "5G\n5G", " "])
def test_limit_that_is_no_size(monkeypatch, path, text):
    monkeypatch.setenv("VISVM_CACHE_LIMIT", text)
    refusal(
        "cache-limit-invalid",
        lambda: FeatureCache(path),
        "VISVM_CACHE_LIMIT",
        "500M",
        repr(text),
        kind=InputError,
    )
    assert not path.exists()


def test_threads_share_one_object(path):
    problems = []

    def work(start):
        try:
            for number in range(start, start + 30):
                cache.put(rows([number]))
                assert held(cache, [number, number // 2]) != []
        except BaseException as error:  # noqa: BLE001
            problems.append(error)

    with FeatureCache(path) as cache:
        threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 240, 30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        assert held(cache, range(240)) == list(range(240))


def write_with_others(path, start, barrier):
    barrier.wait(30)
    for number in range(start, start + 40):
        with FeatureCache(path) as cache:  # opened, and at first made, while the others do the same
            cache.put(rows([number]))


def test_processes_that_write_at_once_lose_nothing(path):
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    children = [
        context.Process(target=write_with_others, args=(path, start, barrier))
        for start in (0, 40, 80)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0, 0]
    with FeatureCache(path) as cache:
        assert held(cache, range(120)) == list(range(120))


def large_row(number):
    """Quick to make, so that most of a writer's time goes into writing."""
    return np.full(5000, number, dtype=np.float32)


def write_until_killed(path, log, start):
    """Write batches of twenty; note in the log which are certain to be there."""
    with FeatureCache(path) as cache, log.open("a") as file:
        for number in range(start, start + 10_000, 20):
            cache.put({key(each): large_row(each) for each in range(number, number + 20)})
            file.write(f"{number}\n")
            file.flush()


def kill_writers(path, log, turns):
    """Forks, which is quick, in a process that has no threads.

    There are as many turns as it takes to write some batches: on a busy machine a writer may be
    killed before its first.
    """
    generator, turn = random.Random(0), 0
    while turn < 12 or not log.exists() or log.read_text().count("\n") <= 10:
        child = os.fork()
        if child == 0:
            try:
                write_until_killed(path, log, turn * 10_000)
            finally:
                os._exit(1)
        time.sleep(generator.uniform(0.005, 0.12))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        turn += 1
        turns.write_text(str(turn))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.kill
def test_kill_of_a_writer_leaves_a_good_cache(path, tmp_path):
    log, turns = tmp_path / "log", tmp_path / "turns"
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=kill_writers, args=(path, log, turns), daemon=True)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    certain = [
        number for start in map(int, log.read_text().split()) for number in range(start, start + 20)
    ]
    assert len(certain) > 200
    with FeatureCache(path) as cache:
        for number in certain:
            assert np.array_equal(cache.get(key(number)), large_row(number))
        count = cache.info().n_images
        assert count % 20 == 0  # all of a batch or nothing
        assert len(certain) <= count <= len(certain) + int(turns.read_text()) * 20
        cache.put(rows([10**6]))
        assert held(cache, [10**6]) == [10**6]
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
