"""No method may answer differently under the revision that its rows were measured with."""

from dataclasses import replace

import pytest

from tests.bench import golden
from visvm.bench.methods import METHODS
from visvm.bench.methods.slda import SLDA

STORED = golden.read()
ENTRY = METHODS["slda"]


@pytest.mark.parametrize("entry", golden.runnable(), ids=lambda entry: entry.name)
def test_answers_are_those_of_the_declared_revision(entry):
    assert not golden.complaint(entry, STORED)


def test_the_stream_is_neither_easy_nor_hopeless():
    _, test, _ = golden.draw()
    order = golden.class_order(9, 1993)
    truth = "".join(str(order.index(target)) for target in test.targets)
    slow = {name for name, entry in METHODS.items() if "torch" in entry.needs}
    for known in (STORED[name] for name in STORED.keys() - slow):
        last = known["answers"][-1]
        right = sum(a == b for a, b in zip(last, truth, strict=True)) / len(truth)
        assert 0.5 < right < 0.9


class Last(SLDA):
    """Answers like SLDA, with the last image taken for something else."""

    def predict(self, features):
        found = super().predict(features)
        found[-1] = (found[-1] + 1) % (found.max() + 1)
        return found


class Other(SLDA):
    """Answers like SLDA, but has another default."""

    def __init__(self, setup, *, shrinkage=1e-3):
        super().__init__(setup, shrinkage=1e-4)


def test_what_changes_without_a_new_revision_is_refused(monkeypatch):
    assert not golden.complaint(ENTRY, STORED)
    for kind, what in ((Last, "answers"), (Other, "defaults")):
        said = golden.complaint(replace(ENTRY, factory=kind), STORED)
        assert f"the {what} of slda are not those of revision 1: raise its revision" in said
    answer = SLDA.predict
    monkeypatch.setattr(SLDA, "predict", lambda self, features: answer(self, features)[::-1])
    assert "the answers of slda" in golden.complaint(ENTRY, STORED)


def test_a_revision_without_stored_answers_is_refused():
    assert "declares revision 2" in golden.complaint(replace(ENTRY, revision=2), STORED)
    assert "mine has no stored answers" in golden.complaint(replace(ENTRY, name="mine"), STORED)


def test_only_a_raised_revision_is_stored_anew():
    changed = replace(ENTRY, factory=Last)
    assert golden.store([changed], dict(STORED)) == STORED
    raised = replace(changed, revision=2)
    stored = golden.store([raised, METHODS["klda"]], dict(STORED))
    assert not golden.complaint(raised, stored)
    assert {name for name in STORED if stored[name] != STORED[name]} == {"slda"}


def test_answers_that_hang_on_rounding_are_not_stored():
    class Fickle(SLDA):
        def predict(self, features):
            return (features[:, 0] * 1e7).astype(int) % 2

    with pytest.raises(SystemExit, match="rounded"):
        golden.store([replace(ENTRY, name="mine", factory=Fickle)], {})
