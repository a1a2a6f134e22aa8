"""kill -9 at any moment of a session: the file is the model before or after it, never another.

One helper process imports everything and forks a child for every kill, so that none pays for the
start of Python. Each child goes on from the file, session by session, and tells when it begins and
when it has ended writing. Writing is slowed down to the time a large model takes, so that many
kills strike there. Sessions learn one folder after the other, so that the model after any number of
sessions is known.
"""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests import tiny
from visvm import ImageClassifier
from visvm.encoders.loading import load_encoder
from visvm.head.scatter import DenseScatter
from visvm.model.container import locked
from visvm.model.file import read

KILLS, WIDTH = 30, 60

pytestmark = [
    pytest.mark.kill,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]

HELPER = """
import io, os, sys, time
from pathlib import Path
from visvm import ImageClassifier
from visvm.model.container import locked
from visvm.encoders.loading import load_encoder
import visvm.encoders.onnx, visvm.head.estimators

path, encoder, folders = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]

class SlowFile:
    def __init__(self, file):
        self.file = file
    def __enter__(self):
        return self
    def __exit__(self, *exception):
        self.file.close()
    def flush(self):
        self.file.flush()
    def fileno(self):
        return self.file.fileno()
    def write(self, content):
        content = memoryview(content).cast("B") if memoryview(content).nbytes else b""
        for begin in range(0, len(content), 10_000):
            self.file.write(content[begin : begin + 10_000])
            self.file.flush()
            time.sleep(0.001)

plain_open = io.open

def slow_open(file, mode="r", *arguments, **options):
    opened = plain_open(file, mode, *arguments, **options)
    return SlowFile(opened) if mode == "xb" else opened

io.open = slow_open

def tell(line):
    os.write(1, (line + "\\n").encode())

def learn_on():
    loaded = load_encoder(encoder)
    tell("ready")
    while True:
        with locked(path):
            model = ImageClassifier.load(path, encoder=loaded, cache=False)
            number = len(model.history_) + 1
            model.learn(folders[number % len(folders)])
            tell(f"begin {number}")
            model.save(path)
            tell(f"end {number}")

for line in sys.stdin:
    child = os.fork()
    if not child:
        learn_on()
    tell(f"child {child}")
    os.waitpid(child, 0)
    tell("gone")
"""


class Lines:
    """The lines a process writes, with a limit to the patience."""

    def __init__(self, file):
        self.descriptor, self.rest = file.fileno(), b""

    def next(self, seconds=20.0) -> str:
        end = time.monotonic() + seconds
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.descriptor], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the helper says nothing"
            content = os.read(self.descriptor, 65536)
            assert content, "the helper has ended"
            self.rest += content
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode()

    def until(self, wanted: str) -> list[str]:
        found = []
        while not (line := self.next()).startswith(wanted):
            found.append(line)
        return [*found, line]


class Sequence:
    """What the model is after any number of sessions."""

    def __init__(self, path, encoder, folders, pictures):
        self.model, self.folders, self.pictures = (
            ImageClassifier.load(path, encoder=encoder, cache=False),
            folders,
            pictures,
        )
        self.known = {1: self.state(self.model)}

    def state(self, model):
        scores = np.array(
            [
                [score for _, score in sorted(each.top)]
                for each in model.predict(self.pictures, raw=True, top=9)
            ]
        )
        return model.classes_, model.class_counts_, scores

    def after(self, number):
        while number not in self.known:
            session = len(self.model.history_) + 1
            self.model.learn(self.folders[session % len(self.folders)])
            self.known[session] = self.state(self.model)
        return self.known[number]


@pytest.fixture
def folders(tmp_path):
    """Eight sessions, of new and of returning classes."""
    sessions = [
        ("blue",),
        ("yellow",),
        ("red", "green"),
        ("yellow", "blue"),
        ("green",),
        ("red",),
        ("blue", "red"),
        ("green", "yellow"),
    ]
    return [
        tiny.write_photos(tmp_path / f"session {number}", classes, n=2, seed=number)
        for number, classes in enumerate(sessions)
    ]


@pytest.fixture
def helper(tmp_path, folders):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", HELPER, tmp_path / "m.visvm", tmp_path / "tiny.onnx", *folders]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    yield process
    process.stdin.close()
    process.kill()
    process.wait()
    process.stdout.close()


def start(helper, lines) -> int:
    """The number of a child that is about to learn."""
    helper.stdin.write(b"go\n")
    helper.stdin.flush()
    told = [lines.next(), lines.next()]  # from two processes, in either order
    assert "ready" in told
    (child,) = (int(line.split()[1]) for line in told if line.startswith("child"))
    return child


def kill(child, lines) -> list[str]:
    """Kill the child; give what it had said."""
    os.kill(child, signal.SIGKILL)
    return lines.until("gone")[:-1]


def numbers(told, what) -> list[int]:
    return [int(line.split()[1]) for line in told if line.startswith(what)]


def test_a_kill_at_any_moment_leaves_the_old_model_or_the_new_one(tmp_path, folders, helper):
    path, encoder = tmp_path / "m.visvm", load_encoder(str(tiny.write_encoder(tmp_path)))
    first = ImageClassifier(encoder, n_components=WIDTH, cache=False, layers=(1, 3), ridge=1.0)
    first.learn(tiny.write_photos(tmp_path / "base", n=3))
    first.save(path)
    pictures = sorted(
        tiny.write_photos(tmp_path / "test", tuple(tiny.COLOURS), n=2, seed=99).rglob("*.png")
    )
    sequence, lines, generator = (
        Sequence(path, encoder, folders, pictures),
        Lines(helper.stdout),
        np.random.default_rng(0),
    )

    child, before = start(helper, lines), time.monotonic()
    told = lines.until("end 6")
    duration = (time.monotonic() - before) / len(numbers(told, "end"))
    told += kill(child, lines)

    seen, in_the_middle = 1, 0
    for moment in [
        None,
        *generator.permutation((np.arange(KILLS) + generator.random(KILLS)) / KILLS),
    ]:
        if moment is not None:
            child = start(helper, lines)
            time.sleep(2 * duration * moment)
            told = kill(child, lines)
            # a machine that grows busier or idler changes how long a session takes
            duration *= 1.2 ** (int(2 * moment) - len(numbers(told, "end")))
        begun, ended = (
            max(numbers(told, "begin"), default=seen),
            max(numbers(told, "end"), default=seen),
        )
        in_the_middle += begun > ended
        read(path)  # every digest is checked
        model = ImageClassifier.load(path, encoder=encoder, cache=False)
        number = len(model.history_)
        assert ended <= number <= max(begun, ended)
        assert [entry["session"] for entry in model.history_] == list(range(1, number + 1))
        classes, counts, scores = sequence.after(number)
        assert (model.classes_, model.class_counts_) == (classes, counts)
        np.testing.assert_allclose(sequence.state(model)[2], scores, atol=1e-6)
        seen = number

    assert seen > 6  # sessions did go on between the kills
    assert in_the_middle >= KILLS // 10  # and some were struck while they wrote
    assert isinstance(model.head_.statistics_.scatter, DenseScatter)
    with locked(path, lambda: pytest.fail("a killed process still holds the lock")):
        model.learn(folders[0])
        model.save(path)
    assert len(ImageClassifier.load(path, encoder=encoder, cache=False).history_) == seen + 1
    # the killed ones left nothing for ever
    assert {each.name for each in Path(tmp_path).glob(".*")} == {f".{path.name}.undo"}
