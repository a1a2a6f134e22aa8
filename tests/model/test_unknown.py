""" "None of these": in every kind of model, on the command line, and when not to say so."""

import json

import numpy as np
import pytest

from tests import tiny
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.errors import InputError
from visvm.model.predictor import ImagePredictor

STRANGE = ("yellow",)
KNOWN = ("red", "green", "blue")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "photos", KNOWN, n=12)
    tiny.write_photos(folder / "strange", STRANGE, n=12, seed=1)
    tiny.write_photos(folder / "held out", KNOWN, n=12, seed=2)
    return folder


@pytest.fixture
def learn(place):
    def run(*labels, model=None):
        encoder = str(place / "tiny.onnx")
        made = model or ImageClassifier(encoder, 150, cache=False, ridge=30.0, layers=(3,))
        files = [path for label in labels for path in sorted((place / "photos" / label).iterdir())]
        made.learn(files, [path.parent.name for path in files])
        return made

    return run


@pytest.fixture
def refusals(place):
    """The share of strange images, and of other ones of these classes, that are refused."""

    def run(model, *labels, **how):
        strange = model.predict(sorted((place / "strange").rglob("*.png")), **how)
        known = [
            path for label in labels for path in sorted((place / "held out" / label).iterdir())
        ]
        shares = [
            [each.unknown for each in made] for made in (strange, model.predict(known, **how))
        ]
        return tuple(float(np.mean(each)) for each in shares)

    return run


@pytest.mark.parametrize("labels", [KNOWN, KNOWN[:2], KNOWN[:1]])
def test_strangers_are_none_of_the_classes(learn, refusals, labels):
    strange, known = refusals(learn(*labels), *labels)
    assert strange > 0.8
    assert known < 0.25


def test_what_was_learned_since_is_no_stranger_any_more(learn, refusals, place):
    model = learn(*KNOWN)
    model.learn(place / "strange")
    strange, known = refusals(model, *KNOWN)
    assert strange < 0.25
    assert known < 0.25


def test_it_survives_the_file_an_export_a_merge_and_forgetting(learn, refusals, place, tmp_path):
    model = learn(*KNOWN)
    asked = sorted((place / "held out").rglob("*.png")) + sorted((place / "strange").rglob("*.png"))
    wanted = [each.known for each in model.predict(asked)]
    model.save(tmp_path / "m.visvm")
    model.export(tmp_path / "p.visvm")
    for name in ("m.visvm", "p.visvm"):
        read = ImagePredictor.load(tmp_path / name, for_prediction=True)
        assert [each.known for each in read.predict(asked)] == pytest.approx(wanted)
    exported = ImageClassifier.load(tmp_path / "p.visvm").rename_class("blue", "a")
    assert [each.known for each in exported.predict(asked)] == pytest.approx(wanted)
    base = learn("red")
    base.export_for_site(tmp_path / "s.visvm")
    other = learn("green", "blue", model=ImageClassifier.load(tmp_path / "s.visvm"))
    base.merge(other)
    strange, known = refusals(base, *KNOWN)
    assert (strange > 0.8, known < 0.25) == (True, True)
    base.forget_class("blue")
    strange, known = refusals(base, "red", "green")
    assert (strange > 0.8, known < 0.25) == (True, True)
    assert refusals(base, "blue")[1] > 0.5


def test_the_share_is_what_the_user_allows(learn, refusals):
    model = learn(*KNOWN)
    (_, none), (_, some), (_, most) = (
        refusals(model, *KNOWN, unknown=share) for share in (None, 0.05, 0.7)
    )
    assert none == 0.0
    assert some < 0.25 < most
    for share in (0.0, 1.0, -0.1, float("nan")):
        with refused("parameter-unknown", InputError):
            refusals(model, *KNOWN, unknown=share)


def test_files_of_older_versions_cannot_tell(learn, place, tmp_path):
    from tests.model.raw import rewrite

    def older(_, tensors):
        for name in [name for name in tensors if name.startswith("known.")]:
            del tensors[name]

    learn(*KNOWN).save(tmp_path / "m.visvm")
    rewrite(tmp_path / "m.visvm", older)
    read = ImageClassifier.load(tmp_path / "m.visvm", cache=False)
    (said,) = read.predict(place / "strange/yellow/1-0.png")
    assert (said.known, said.unknown) == (None, False)
    read.learn(place / "strange")
    assert read.predict(place / "strange/yellow/1-0.png")[0].known > 0.05


def test_the_command_line_says_none_of_these(learn, place, tmp_path, visvm):
    learn(*KNOWN).save(tmp_path / "m.visvm")
    given = ("predict", tmp_path / "m.visvm", place / "strange/yellow/1-0.png", "--no-cache")
    code, out, _ = visvm(*given)
    assert code == 0
    assert ": none of these · closest: " in out
    said = json.loads(visvm(*given, "--json")[1])
    assert (said["unknown"], said["known"] < 0.05) == (True, True)
    assert "none of these" not in visvm(*given, "--unknown", "off")[1]
    for wrong in ("5", "no", "100%", "0%", "-1%", "%"):
        outcome = visvm(*given, "--unknown", wrong)
        assert (outcome[0], outcome.error_code) == (2, "unknown-share")
