"""A model is a frozen value of a certain kind, and so is its file."""

import shutil
from dataclasses import FrozenInstanceError, replace
from typing import get_args

import numpy as np
import pytest

from tests import tiny
from tests.data.make_format_1 import main as make_format_1
from tests.model.raw import contents, rewrite
from tests.model.test_file import DATA
from tests.refusals import refused
from visvm import ImageClassifier, SiteStatistics
from visvm.encoders.loading import load_encoder
from visvm.errors import IncompatibleModelError, ModelFileError
from visvm.head.head import Head
from visvm.learning.local import LocalEngine
from visvm.model import changes, merging
from visvm.model import file as model_file
from visvm.model.journal import Journal
from visvm.model.state import FileKind

KINDS = {
    "thin": "whole",
    "dense": "whole",
    "predictor": "predictor",
    "site": "site",
    "sums": "sums",
    "journal": "journal",
}


class Stop(Exception):  # noqa: N818
    """What ends a session before it is solved."""


def stop(stage, done, total):
    if stage == "learning":
        raise Stop


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model of each form, and a file of every kind; none of the tests changes them."""
    folder = tmp_path_factory.mktemp("kinds")
    encoder = load_encoder(str(tiny.write_encoder(folder)))
    photos = tiny.write_photos(folder / "photos")
    for form, width in {"thin": 150, "dense": 12}.items():
        model = ImageClassifier(encoder, width, cache=False, ridge=1.0, layers=(1, 3))
        model.learn(photos)
        model.save(folder / form)
    model.export(folder / "predictor")
    model.export_for_site(folder / "site")
    model.learn_statistics(photos).save(folder / "sums", reveal_features=True)
    journal = Journal(folder / "m", every=0)
    with pytest.raises(Stop):
        model.learn(photos, engine=LocalEngine(journal), progress=stop)
    journal.path.replace(folder / "journal")
    return folder


@pytest.fixture(params=KINDS)
def path(request, place, tmp_path):
    """A file of every kind, which a test may change."""
    return shutil.copy(place / request.param, tmp_path / request.param)


def read(path):
    """What a file has, and how it is written again."""
    if path.name != "journal":
        model = model_file.read(path)
        return model, lambda other: model_file.write(other, model)
    found = model_file.read_journal(path)
    parts = found.model, found.note, found.features
    return found.model, lambda other: model_file.write_journal(other, *parts)


# Kinds


def test_there_is_a_file_of_every_kind():
    assert set(KINDS.values()) == set(get_args(FileKind))


def test_a_file_of_every_kind_comes_back_as_it_was(path):
    model, write_again = read(path)
    kind = KINDS[path.name]
    assert model.kind == {"journal": "sums"}.get(kind, kind)
    assert contents(path)[0]["kind"] == kind
    write_again(path.with_name("again"))
    assert path.with_name("again").read_bytes() == path.read_bytes()


def test_the_kind_of_a_file_from_before_there_were_kinds_is_found(path):
    content, kind = path.read_bytes(), KINDS[path.name]

    def without_kind(header, tensors):
        assert header.pop("kind") == kind

    rewrite(path, without_kind)
    header = model_file.read_header(path)
    assert (header.kind, header.kind_by_parts) == (None, kind)
    _, write_again = read(path)
    write_again(path)
    assert path.read_bytes() == content


def test_a_kind_that_its_parts_contradict_is_refused(path):
    content = path.read_bytes()
    for kind in {*get_args(FileKind), "nonsense", 3, ""} - {KINDS[path.name]}:
        path.write_bytes(content)
        rewrite(path, lambda header, tensors, kind=kind: {**header, "kind": kind})
        with refused("file-altered", ModelFileError):
            model_file.read_header(path)
        with refused("file-altered", ModelFileError):
            read(path)


def test_a_journal_is_no_model_and_a_model_no_journal(place):
    for load in (model_file.read, ImageClassifier.load, SiteStatistics.load):
        with refused("file-is-journal", ModelFileError):
            load(place / "journal")
    for name in set(KINDS) - {"journal"}:
        with refused("file-altered", ModelFileError):
            model_file.read_journal(place / name)


def test_the_file_of_the_first_version_is_whole_and_is_written_with_all_its_parts(tmp_path):
    assert "kind" not in contents(DATA / "format-1.visvm")[0]
    model = model_file.read(DATA / "format-1.visvm")
    assert model.kind == "whole"
    model_file.write(tmp_path / "m.visvm", model)
    header, tensors = contents(tmp_path / "m.visvm")
    before, tensors_before = contents(DATA / "format-1.visvm")
    assert header["kind"] == "whole"
    for name in ("format", "encoder", "classes", "counts"):
        assert header[name] == before[name]
    for report, old in zip(header["sessions"], before["sessions"], strict=True):
        assert {name: report[name] for name in old} == old
        assert {"base", "settled_on"} <= set(report)
    assert set(tensors) == set(tensors_before)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, tensors_before[name])


def test_what_made_the_file_of_the_first_version_still_makes_such_a_model(tmp_path):
    make_format_1(tmp_path / "made")
    made, kept = (
        ImageClassifier.load(each / "format-1.visvm") for each in (tmp_path / "made", DATA)
    )
    assert made.model_.encoder == kept.model_.encoder
    assert (made.classes_, made.class_counts_) == (kept.classes_, kept.class_counts_)


def test_the_kind_of_a_model_goes_with_what_is_done_to_it(place):
    whole = model_file.read(place / "dense")
    site = changes.for_site(whole, "0123456789abcdef")
    others = [SiteStatistics(whole)]
    assert site.kind == "site"
    assert merging.merged(site, others).kind == "whole"
    assert replace(site, site=None).kind == "whole"
    assert changes.for_prediction(whole).kind == "predictor"
    assert model_file.read(place / "dense", sums=False).kind == "predictor"
    assert replace(whole, head=Head.of(whole.head.settled, whole.head.statistics)).kind == "sums"


# Frozen


def test_a_model_cannot_be_changed(place):
    model = model_file.read(place / "thin")
    with pytest.raises(FrozenInstanceError):
        model.site = "0123456789abcdef"
    with pytest.raises(FrozenInstanceError):
        model.head.coefficients = None


@pytest.mark.parametrize("form", ["thin", "dense"])
def test_a_change_leaves_the_model_as_it_was(place, form):
    model, other = (model_file.read(place / form) for _ in range(2))
    features = np.random.default_rng(0).normal(size=(5, 3 * tiny.WIDTH)).astype(np.float32)
    before = model.scores(features)
    digest = model.head.statistics.digest()
    site = SiteStatistics(replace(other, site="0123456789abcdef"))
    grown = merging.merged(model, [site])
    changed = [
        grown,
        merging.unmerged(grown, site),
        changes.renamed(model, "red", "zinc"),
        changes.renamed(model, "red", "blue", merge=True),
        changes.class_forgotten(model, "red"),
    ]
    for each in changed:
        assert each is not model
    with pytest.raises(IncompatibleModelError):
        merging.merged(grown, [site])
    assert grown.counts == {"blue": 12, "green": 12, "red": 12}
    assert model.counts == {"blue": 6, "green": 6, "red": 6}
    assert model.head.statistics.digest() == digest
    np.testing.assert_array_equal(model.scores(features), before)
