import gc
import sys

import numpy as np
import pytest
from hypothesis import settings

from visvm.cli import main as cli

settings.register_profile("visvm", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("visvm")


def pytest_collection_finish():
    """Let the garbage collector pass over all that was imported: it is there to stay."""
    gc.collect()
    gc.freeze()


def make_stream(n=120, d=6, n_classes=4, mean=0.5, seed=0, dtype=np.float64):
    """Features with class structure, and string labels."""
    generator = np.random.default_rng(seed)
    y = generator.permutation(np.arange(n) % n_classes)
    X = generator.normal(size=(n, d)) + 2.0 * generator.normal(size=(n_classes, d))[y] + mean
    return X.astype(dtype), np.array([f"class {label}" for label in y])


@pytest.fixture
def stream():
    return make_stream()


class Outcome(tuple):
    """Exit code, standard output and standard error of a command, and the code of its error."""

    error_code = None


@pytest.fixture
def visvm(monkeypatch, capsys):
    """Run a command and return its ``Outcome``."""
    describe_error = cli.describe_error

    def run(*arguments):
        described = []

        def noting(error):
            said = describe_error(error)
            described.append(said and said[0])
            return said

        monkeypatch.setattr(cli, "describe_error", noting)
        monkeypatch.setattr(sys, "argv", ["visvm", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        outcome = Outcome((stop.value.code or 0, *capsys.readouterr()))
        outcome.error_code = described[0] if described else None
        return outcome

    return run
