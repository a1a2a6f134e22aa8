"""No method may answer differently under the revision that its rows were measured with."""

import pytest

from tests.bench import golden
from visvm.bench.methods import METHODS

STORED = golden.read()
RUNNABLE = [name for name in METHODS if name != "zs-clip"]


@pytest.mark.parametrize("name", RUNNABLE)
def test_answers_are_those_of_the_declared_revision(name):
    assert not golden.complaint(name, METHODS[name], 1, STORED)


def test_the_stream_is_neither_easy_nor_hopeless():
    _, test, _ = golden.draw()
    order = golden.class_order(9, 1993)
    truth = "".join(str(order.index(target)) for target in test.targets)
    for name in RUNNABLE:
        last = STORED[name]["answers"][-1]
        right = sum(a == b for a, b in zip(last, truth, strict=True)) / len(truth)
        assert 0.5 < right < 0.9


class Last(METHODS["slda"]):
    """Answers like SLDA, with the last image taken for something else."""

    def predict(self, features):
        found = super().predict(features)
        found[-1] = (found[-1] + 1) % (found.max() + 1)
        return found


class Other(METHODS["slda"]):
    """Answers like SLDA, but has another default."""

    def __init__(self, setup, *, shrinkage=1e-3):
        super().__init__(setup, shrinkage=1e-4)


def test_what_changes_without_a_new_revision_is_refused():
    assert not golden.complaint("slda", METHODS["slda"], 1, STORED)
    assert "the answers of slda are not those of revision 1" in golden.complaint(
        "slda", Last, 1, STORED
    )
    assert "the defaults of slda are not those" in golden.complaint("slda", Other, 1, STORED)


def test_a_revision_without_stored_answers_is_refused():
    assert "revision 2" in golden.complaint("slda", Last, 2, STORED)
    assert "mine has no stored answers" in golden.complaint("mine", Last, 1, STORED)


def test_only_a_raised_revision_is_stored_anew():
    kept = golden.store({"slda": (Last, 1)}, dict(STORED))
    assert kept == STORED
    raised = golden.store({"slda": (Last, 2), "klda": (METHODS["klda"], 1)}, dict(STORED))
    assert not golden.complaint("slda", Last, 2, raised)
    assert {name for name in STORED if raised[name] != STORED[name]} == {"slda"}


def test_answers_that_hang_on_rounding_are_not_stored():
    class Fickle(METHODS["slda"]):
        def predict(self, features):
            return (features[:, 0] * 1e7).astype(int) % 2

    with pytest.raises(SystemExit, match="rounded"):
        golden.store({"mine": (Fickle, 1)}, {})
