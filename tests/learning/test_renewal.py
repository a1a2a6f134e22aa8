"""λ chosen anew by later sessions: what is said of it, kept of it, and left alone."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests import tiny
from tests.data.make_format_1 import write_shades
from tests.model.raw import contents, rewrite
from tests.refusals import refused
from visvm import ImageClassifier, SiteStatistics
from visvm.encoders.loading import load_encoder
from visvm.errors import ImageError, ModelFileError
from visvm.head.calibration import log_likelihoods
from visvm.head.evidence import ridge_by_evidence
from visvm.head.selection import RidgeBasis
from visvm.learning import local as learning
from visvm.learning.local import LocalEngine
from visvm.model.journal import Journal
from visvm.model.results import RidgeChoice, ridge_note

WIDTHS = {"thin": 400, "dense": 20}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "base", classes=("red", "green"), n=5)
    tiny.write_photos(folder / "later", classes=("blue", "yellow"), n=6, seed=1)
    tiny.write_photos(folder / "test", classes=tuple(tiny.COLOURS), n=2, seed=3)
    return folder


@pytest.fixture(scope="module")
def encoder(place):
    return load_encoder(str(place / "tiny.onnx"))


def make(encoder, width=400, **options):
    return ImageClassifier(encoder, width, cache=False, layers=(1, 3), **options)


@pytest.fixture
def based(place, encoder):
    """A model that has learned ten images of two classes."""
    model = make(encoder)
    model.learn(place / "base")
    assert model.model_.head.settled.ridge_basis == RidgeBasis(10, 2)
    return model


def settled(model):
    return model.model_.head.settled


def files(folder):
    paths = sorted(folder.rglob("*.png"))
    return paths, np.array([path.parent.name for path in paths])


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_a_session_that_doubles_the_images_chooses_anew_and_says_so(place, encoder, width):
    model = make(encoder, width)
    model.learn(place / "base")
    before = settled(model).ridge
    report = model.learn(place / "later")
    assert report.ridge_choice == RidgeChoice(before, 22, 4)
    assert report.ridge == settled(model).ridge != before
    assert settled(model).ridge_basis == RidgeBasis(22, 4)
    assert ridge_by_evidence(model.head_.statistics_, before, 10.0) == report.ridge
    said = f"λ was chosen anew from the sums: {before:g} → {report.ridge:g}, by 22 images of 4 clas"
    assert ridge_note(report).startswith(said)
    assert model.history_[1]["ridge_choice"] == {"before": before, "n_images": 22, "n_classes": 4}
    assert "ridge_choice" not in model.history_[0]
    # scores and their calibration are those of the λ that was chosen
    other = make(encoder, width, ridge=report.ridge)
    other.learn(place / "base")
    other.learn(place / "later")
    np.testing.assert_array_equal(model.head_.coefficients_, other.head_.coefficients_)
    paths, labels = files(place / "later")
    loo = other.head_.leave_one_out_scores(other.layer_features(paths), labels)
    measured = log_likelihoods(loo, np.searchsorted(model.classes_, labels))
    np.testing.assert_allclose(
        model.model_.calibration.likelihoods,
        0.5 * first_calibration(place, encoder, width) + measured,
        rtol=1e-9,
    )


def first_calibration(place, encoder, width):
    model = make(encoder, width)
    model.learn(place / "base")
    return model.model_.calibration.likelihoods


def test_dense_sums_are_calibrated_anew_where_the_ridge_is_another(place, encoder, tmp_path):
    model = make(encoder, WIDTHS["dense"])
    model.learn(place / "base")
    more = tiny.write_photos(tmp_path / "more", classes=("red", "green"), n=6, seed=5)
    twin = make(encoder, WIDTHS["dense"], renew_ridge=False)
    twin.learn(place / "base")
    measured = [each.learn(more) and each.model_.calibration.likelihoods for each in (model, twin)]
    assert settled(model).ridge != settled(twin).ridge
    before = first_calibration(place, encoder, WIDTHS["dense"])
    # no class came: it would not be worth another factorisation
    np.testing.assert_array_equal(measured[1], before)
    assert not np.allclose(measured[0], before)


def test_it_stays_where_that_is_not_due(place, encoder, based, tmp_path):
    before = settled(based)
    few = tiny.write_photos(tmp_path / "few", classes=("blue",), n=9, seed=7)
    report = based.learn(few)
    assert (report.ridge_choice, settled(based)) == (None, before)
    for options in ({"renew_ridge": False}, {"ridge": 7.0}):
        model = make(encoder, **options)
        model.learn(place / "base")
        ridge = settled(model).ridge
        assert model.learn(place / "later").ridge_choice is None
        assert settled(model).ridge == ridge


def test_a_base_session_settles_on_its_sample_and_the_next_one_may_choose_anew(place, encoder):
    model = make(encoder, max_base_images=10)
    assert model.learn(place / "later").ridge_choice is None
    assert settled(model).ridge_basis == RidgeBasis(10, 2)
    assert model.learn(place / "base").ridge_choice.n_images == 22


def test_a_refused_session_changes_nothing(place, based, tmp_path):
    based.save(tmp_path / "m.visvm")
    content, remembered = (tmp_path / "m.visvm").read_bytes(), based.model_
    bad = tiny.write_photos(tmp_path / "bad", classes=("blue", "yellow"), n=7, seed=2)
    (bad / "blue" / "2-0.png").write_text("no picture")
    with refused("images-unreadable", ImageError):
        based.learn(bad)
    with pytest.raises(ZeroDivisionError):
        based.learn(place / "later", progress=lambda stage, *_: 1 / (stage != "calibrating"))
    assert based.model_ is remembered
    based.save(tmp_path / "m.visvm")
    assert (tmp_path / "m.visvm").read_bytes() == content


# Files


def test_a_file_goes_on_as_the_model_would(place, encoder, based, tmp_path):
    based.save(tmp_path / "m.visvm")
    loaded = ImageClassifier.load(tmp_path / "m.visvm", encoder=encoder, cache=False)
    reports = [each.learn(place / "later") for each in (based, loaded)]
    assert reports[0].ridge_choice == reports[1].ridge_choice != None  # noqa: E711
    np.testing.assert_array_equal(based.head_.coefficients_, loaded.head_.coefficients_)
    loaded.save(tmp_path / "m.visvm")
    header, _ = contents(tmp_path / "m.visvm")
    assert header["head"]["ridge_basis"] == {"n_images": 22, "n_classes": 4}
    again = ImageClassifier.load(tmp_path / "m.visvm", encoder=encoder, cache=False)
    assert settled(again).ridge_basis == RidgeBasis(22, 4)
    assert again.model_.sessions == loaded.model_.sessions


@pytest.mark.parametrize("options", [{"renew_ridge": False}, {"ridge": 7.0}])
def test_a_file_whose_ridge_is_final_stays_so(place, encoder, tmp_path, options):
    model = make(encoder, **options)
    model.learn(place / "base")
    model.save(tmp_path / "m.visvm")
    assert "ridge_basis" not in contents(tmp_path / "m.visvm")[0]["head"]
    loaded = ImageClassifier.load(tmp_path / "m.visvm", encoder=encoder, cache=False)
    assert loaded.learn(place / "later").ridge == settled(model).ridge


def test_a_file_from_before_keeps_its_ridge(tmp_path):
    from tests.model.test_file import DATA

    model = ImageClassifier.load(
        DATA / "format-1.visvm", encoder=str(DATA / "tiny.onnx"), cache=False
    )
    report = model.learn(write_shades(tmp_path / "more", tuple(tiny.COLOURS), range(4)))
    assert sum(model.class_counts_) == 28 > 2 * 12
    assert (report.ridge, report.ridge_choice) == (3.0, None)


BASES = [{"n_images": 0, "n_classes": 2}, {"n_images": 10, "n_classes": 2**60}, {"n_images": 10}, 3]
CHOICES = [
    {"before": 1.0, "n_images": -1, "n_classes": 2},
    {"before": 0.0, "n_images": 9, "n_classes": 2},
    {"before": 1.0, "n_images": 9, "n_classes": "2"},
]


@pytest.mark.parametrize("basis", BASES)
def test_a_basis_that_cannot_be_is_refused(based, tmp_path, basis):
    based.save(tmp_path / "m.visvm")
    rewrite(tmp_path / "m.visvm", lambda header, _: header["head"].update(ridge_basis=basis))
    with refused("file-altered", ModelFileError):
        ImageClassifier.load(tmp_path / "m.visvm")


@pytest.mark.parametrize("choice", CHOICES)
def test_a_choice_that_cannot_be_is_refused(based, tmp_path, choice):
    based.save(tmp_path / "m.visvm")
    path = tmp_path / "m.visvm"
    rewrite(path, lambda header, _: header["sessions"][0].update(ridge_choice=choice))
    with refused("file-altered", ModelFileError):
        ImageClassifier.load(path)


# Journal


class Stop(KeyboardInterrupt):
    """What Ctrl+C raises."""


@pytest.mark.parametrize(("stage", "moment"), [("encoding", 12), ("learning", 1)])
@pytest.mark.filterwarnings("ignore:Resuming after")
def test_a_session_that_resumes_chooses_as_one_that_did_not_stop(
    place, encoder, based, tmp_path, monkeypatch, stage, moment
):
    monkeypatch.setattr(learning, "_MOST_ROWS", 3)
    undisturbed = make(encoder)
    undisturbed.learn(place / "base")
    wanted = undisturbed.learn(place / "later").ridge_choice

    def stop(now, done, _):
        if now == stage and done >= moment:
            raise Stop

    journal = Journal(tmp_path / "m.visvm", every=0)
    with pytest.raises(Stop):
        based.learn(place / "later", engine=LocalEngine(journal), progress=stop)
    assert journal.path.exists()
    assert based.learn(place / "later", engine=LocalEngine(journal)).ridge_choice == wanted
    np.testing.assert_array_equal(based.head_.coefficients_, undisturbed.head_.coefficients_)


# Sites


def test_sites_merge_whatever_their_ridge_and_leave_without_a_trace(place, based, tmp_path):
    based.export_for_site(tmp_path / "site.visvm")
    header, _ = contents(tmp_path / "site.visvm")
    assert "ridge_basis" not in header["head"]  # what the owner has learned is nobody's business
    site = ImageClassifier.load(tmp_path / "site.visvm", encoder=based._encoder, cache=False)
    sums = site.learn_statistics(place / "later")
    assert site.learn(place / "later").ridge == settled(based).ridge  # a site keeps its λ
    more = tiny.write_photos(tmp_path / "more", classes=("blue", "green"), n=6, seed=9)
    based.learn(more)
    ridge, basis, before = (
        settled(based).ridge,
        settled(based).ridge_basis,
        based.head_.coefficients_,
    )
    assert ridge != settled(site).ridge
    sums.save(tmp_path / "site.sums", reveal_features=True)
    based.merge(SiteStatistics.load(tmp_path / "site.sums"))
    assert (settled(based).ridge, settled(based).ridge_basis) == (ridge, basis)
    based.unmerge(sums)
    np.testing.assert_allclose(based.head_.coefficients_, before, atol=1e-9)
    based.forget(more)
    assert (settled(based).ridge, settled(based).ridge_basis) == (ridge, basis)
    twice = replace(sums.model, site=None)
    based.merge(SiteStatistics(twice)).learn(place / "test")  # 10 + 12 + 8 images, 22 at the choice
    assert settled(based).ridge_basis == basis
    based.learn(more)  # 42
    assert settled(based).ridge_basis == basis
    based.learn(place / "base")  # 52: what was merged counts
    assert settled(based).ridge_basis == RidgeBasis(52, 4)


# Command line


def test_the_command_line_says_it(place, based, tmp_path, visvm):
    path = tmp_path / "m.visvm"
    based.save(path)
    refusal = visvm("learn", path, place / "later", "--ridge", settled(based).ridge, "--no-cache")
    assert (refusal[0], refusal.error_code) == (2, "option-of-new-model")
    assert "a λ it may change" in refusal[2]
    content = path.read_bytes()
    code, out, _ = visvm("learn", path, place / "later", "--no-cache", "--json")
    said = json.loads(out)
    assert (code, said["ridge_choice"]["n_images"]) == (0, 22)
    path.write_bytes(content)
    code, out, _ = visvm("learn", path, place / "later", "--no-cache")
    lines = (
        f"λ was chosen anew from the sums: {said['ridge_choice']['before']:g} → {said['ridge']:g}"
    )
    assert lines in out
    _, out, _ = visvm("info", path)
    assert f"λ = {said['ridge']:g}, chosen by 22 images of 4 classes" in " ".join(out.split())
    _, out, _ = visvm("info", path, "--json")
    assert json.loads(out)["ridge_basis"] == {"n_images": 22, "n_classes": 4}
    assert visvm("learn", path, place / "test", "--ridge", said["ridge"], "--no-cache")[0] == 2
