"""What tests of the encoders expect of a refusal: its code, and the facts that its line names."""

from contextlib import contextmanager

from tests.refusals import refused
from visvm.errors import VisvmError


@contextmanager
def refused_naming(code, kind, *facts):
    """Expect an error of this code that names these facts."""
    with refused(code, kind) as caught:
        yield
    for fact in facts:
        assert fact in str(caught.value)


def refusal(code, call, *facts, kind=VisvmError):
    """Call, and expect an error of this code that names these facts."""
    with refused_naming(code, kind, *facts):
        call()
