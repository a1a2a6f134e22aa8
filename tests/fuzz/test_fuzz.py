"""The corpus of the campaign (``make fuzz``), and proof that it finds what it looks for."""

import os
import re
import signal
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError
from typer.main import get_command

from tests.fuzz import campaign as fuzz
from tests.fuzz.inputs import MAKERS, ON_MODELS, make
from tests.fuzz.judge import Outcome, judged, outcome_of
from tests.fuzz.material import within
from tests.fuzz.mutations import ACTIONS, VALUES, places
from tests.model.raw import contents
from visvm.cli.main import app

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does it"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def files(place):
    return fuzz.material(place)


@pytest.fixture(scope="module")
def tried(files, place):
    """The corpus, each input with its report."""
    return dict(fuzz.campaign(files, place, fuzz.corpus()))


def test_no_input_of_the_corpus_ends_badly(tried):
    assert list(tried) == fuzz.corpus()
    assert not [str(failure) for report in tried.values() for failure in report.failures]
    assert all(report.n_commands for report in tried.values())
    assert max(report.n_bytes for report in tried.values()) < fuzz.MOST


def test_the_corpus_has_every_kind_command_and_action(files, tmp_path):
    kinds = Counter(kind for kind, _ in fuzz.corpus())
    assert set(kinds) == {*MAKERS, "upload"} == set(fuzz.ORDER)
    with within(tmp_path):
        made = [make(*each, files) for each in fuzz.corpus() if each[0] != "upload"]
    assert {action for each in made for action in each.done} == ACTIONS
    assert set(ON_MODELS) <= {command for each in made for command in each.commands}


def test_every_command_that_reads_files_of_others_is_tried(files, tmp_path):
    with within(tmp_path):
        made = [make(kind, number, files) for kind in MAKERS for number in range(12)]
    tried = {command[0] for each in made for command in each.commands}
    # the demo and the doctor look at this machine, and the cache is its own
    assert get_command(app).commands.keys() - tried == {"cache", "demo", "doctor"}


def test_every_place_of_a_header_is_reached(files, tmp_path):
    (tmp_path / "whole.visvm").write_bytes(files["whole.visvm"])
    header, _ = contents(tmp_path / "whole.visvm")
    found = places(header)
    assert {("encoder", "name"), ("head", "n_components"), ("sessions", 0, "ridge")} <= set(found)
    assert len(found) * len(VALUES) > 1000


def as_read(content):
    """What a file holds; of a model not in which order, which safetensors leaves to chance."""
    path = Path("read")
    path.write_bytes(content)
    try:
        return str(contents(path))
    except (SafetensorError, UnicodeDecodeError):
        return content


def test_one_number_is_one_input(files, tmp_path):
    with within(tmp_path):
        for kind in MAKERS:
            one, again, other = (make(kind, number, files) for number in (5, 5, 6))
            assert (one.done, one.commands) == (again.done, again.commands)
            assert all(as_read(one.files[name]) == as_read(again.files[name]) for name in one.files)
            assert one.files != other.files


@pytest.mark.parametrize(
    ("ends", "found"),
    [
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: sys.stderr.write("one\ntwo\n") and sys.exit(2), "0 errors"),
        (lambda: sys.stderr.write("visvm: a\nvisvm: b\n") and sys.exit(2), "2 errors"),
        (lambda: sys.stdout.write("\x1b[2J") and sys.exit(0), "steers"),
        (lambda: sys.stdout.write("red nan %") and sys.exit(0), "nan"),
        (lambda: sys.exit(1), "exit code 1"),
        (lambda: sys.stderr.write("visvm: too little memory\n") and sys.exit(2), "memory"),
        (lambda: sys.stderr.write("visvm: wrong.\n") and sys.exit(2), ""),
    ],
)
def test_what_a_command_does_wrong_is_found(monkeypatch, ends, found):
    monkeypatch.setattr("visvm.cli.main.main", ends)
    monkeypatch.setattr(sys, "argv", ["visvm"])
    said = outcome_of(("info", "x")).wrong
    assert found in said
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("command", "code", "after", "found"),
    [
        ("learn", 0, {"a": b"2"}, ""),
        ("learn", 2, {"a": b"1"}, ""),
        ("learn", 2, {"a": b"2"}, "has changed a"),
        ("learn", 2, {"a": b"1", ".a.part": b""}, "has changed .a.part"),
        ("info", 0, {}, "has changed a"),
        ("merge", 0, {"a": b"1", "out.visvm": b"spoilt"}, "cannot be read"),
    ],
)
def test_what_a_command_leaves_wrong_is_found(monkeypatch, tmp_path, command, code, after, found):
    ended = {"learn": Outcome(code, "", "visvm: no.\n" if code else "")}
    refused = Outcome(2, "", "visvm: no.\n")
    monkeypatch.setattr(
        "tests.fuzz.judge.outcome_of",
        lambda given: refused if given == ("info", "out.visvm") else ended["learn"],
    )
    said = judged((command,), {"a": b"1"}, lambda: after)
    assert found in said
    assert bool(found) == bool(said)


def _dies():
    os.kill(os.getpid(), signal.SIGUSR1)


def _works_on():
    while True:
        pass


def _hangs():
    signal.pause()


def _grows():
    np.ones(fuzz.ROOM // 4)  # of 8 bytes


@pytest.mark.parametrize(
    ("ends", "found"),
    [
        (_dies, "died of SIGUSR1"),
        (_works_on, "works for more than"),
        (_hangs, "hangs"),
        (_grows, "MemoryError"),
    ],
)
def test_processes_that_end_badly_are_found(monkeypatch, files, tmp_path, ends, found):
    monkeypatch.setattr("visvm.cli.main.main", ends)
    monkeypatch.setattr(fuzz, "CPU_SECONDS", 1)
    with within(tmp_path):
        seconds = 1 if ends is _hangs else 60
        # one that ends the process does not keep the next from being tried
        numbers = (4, 5) if ends is _dies else (4,)
        reports = fuzz.tried(tmp_path, files, [("weights", each) for each in numbers], seconds)
    for number, report in zip(numbers, reports, strict=True):
        assert re.search(found, *map(str, report.failures))
        assert f"input weights:{number}," in str(report.failures[0])


def test_numbers_go_through_all_kinds():
    assert {kind for kind, _ in map(fuzz.numbered, range(len(fuzz.ORDER)))} == set(fuzz.ORDER)
    assert Path(fuzz.CORPUS).stat().st_size < 10_000
