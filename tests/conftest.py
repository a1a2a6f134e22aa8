import sys

import numpy as np
import pytest
from hypothesis import settings

from visvm.cli import main as cli

settings.register_profile("visvm", deadline=None, derandomize=True, max_examples=150)
settings.load_profile("visvm")


def make_stream(n=120, d=6, n_classes=4, mean=0.5, seed=0, dtype=np.float64):
    """Features with class structure, and string labels."""
    generator = np.random.default_rng(seed)
    y = generator.permutation(np.arange(n) % n_classes)
    X = generator.normal(size=(n, d)) + 2.0 * generator.normal(size=(n_classes, d))[y] + mean
    return X.astype(dtype), np.array([f"class {label}" for label in y])


@pytest.fixture
def stream():
    return make_stream()


@pytest.fixture
def visvm(monkeypatch, capsys):
    """Run a command: exit code, standard output, standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["visvm", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return stop.value.code or 0, *capsys.readouterr()

    return run
