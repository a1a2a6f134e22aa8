"""A few inputs of the campaign (``make fuzz``), and proof that it finds what it looks for."""

import sys

import pytest

from tests.fuzz import campaign as fuzz
from tests.fuzz.mutations import VALUES, damage, mutation, places
from tests.model.raw import contents, rewrite

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does it"),
]

N = 16  # inputs in the ordinary suite


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    fuzz.prepare(folder)
    return folder


def test_no_input_ends_in_a_traceback(folder):
    tried = list(fuzz.campaign(folder, first=0, most=N))
    assert [seed for seed, _ in tried] == list(range(N))
    assert not [str(failure) for _, failures in tried for failure in failures]


def test_every_place_of_a_header_is_reached(folder):
    header, _ = contents(folder / "whole.visvm")
    found = places(header)
    assert {("encoder", "name"), ("head", "n_components"), ("sessions", 0, "ridge")} <= set(found)
    assert len(found) * len(VALUES) > 1000


def test_one_seed_is_one_input(folder, tmp_path):
    written = []
    for name in ("a", "b"):
        path = tmp_path / name
        path.write_bytes((folder / "whole.visvm").read_bytes())
        rewrite(path, mutation(5))
        written.append(str(contents(path)))
    assert written[0] == written[1] != str(contents(folder / "whole.visvm"))
    assert damage(b"picture" * 9, 1) == damage(b"picture" * 9, 1) != b"picture" * 9


@pytest.mark.parametrize(
    ("ends", "found"),
    [
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: sys.stderr.write("one\ntwo\n") and sys.exit(2), "2 lines"),
        (lambda: sys.stdout.write("\x1b[2J") and sys.exit(0), "steers"),
        (lambda: sys.stdout.write("red nan %") and sys.exit(0), "nan"),
        (lambda: sys.exit(1), "exit code 1"),
        (lambda: sys.stderr.write("visvm: wrong.\n") and sys.exit(2), ""),
    ],
)
def test_what_a_command_does_wrong_is_found(monkeypatch, ends, found):
    monkeypatch.setattr("visvm.cli.main.main", ends)
    monkeypatch.setattr(sys, "argv", ["visvm"])
    said = fuzz.run(("info", "x"))
    assert found in said
    assert bool(found) == bool(said)
