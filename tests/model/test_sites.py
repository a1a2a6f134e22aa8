"""Several sites, one model: what each gets and sends, into the model and out of it again."""

import copy
import itertools
import json
import re
import shutil
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests import tiny
from tests.cli.test_main import refused as refused_line
from tests.learning.test_local import Stop, stop_at
from tests.model.raw import contents, rewrite
from tests.refusals import refused
from visvm import ImageClassifier, SiteStatistics
from visvm.encoders.loading import load_encoder
from visvm.errors import IncompatibleModelError, InputError, ModelFileError, NeverLearnedError
from visvm.head.head import Head
from visvm.head.lift import KernelMap, Lift
from visvm.head.scatter import DenseScatter, ThinScatter
from visvm.head.settle import HeadOptions, settle
from visvm.learning import local as learning
from visvm.learning.local import LocalEngine
from visvm.model import file as model_file
from visvm.model.journal import Journal
from visvm.model.results import first_session_note
from visvm.model.sites import Minimum
from visvm.model.state import EncoderId, Model

FORMS = {"thin": (150, ThinScatter), "dense": (12, DenseScatter)}
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Resuming after")]
# classes, images of each
SITES = {
    "north": (("yellow",), 5),
    "south": (("red", "green", "yellow"), 4),
    "west": (("blue",), 1),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The encoder, and the pictures of the base, of every site, of a later day, and for testing."""
    folder = tmp_path_factory.mktemp("sites")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "base")
    for seed, (name, (classes, n)) in enumerate(SITES.items(), start=1):
        tiny.write_photos(folder / name, classes=classes, n=n, seed=seed)
    tiny.write_photos(folder / "later", classes=("red", "blue"), n=3, seed=8)
    tiny.write_photos(folder / "test", classes=tuple(tiny.COLOURS), n=4, seed=9)
    return folder


@pytest.fixture(scope="module")
def encoder(place):
    return load_encoder(str(place / "tiny.onnx"))


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


@pytest.fixture(scope="module")
def bases(encoder, place):
    """The coordinator's model in every form."""
    made = {}
    for form, (width, kind) in FORMS.items():
        made[form] = ImageClassifier(
            encoder, n_components=width, cache=False, ridge=1.0, layers=(1, 3)
        )
        made[form].learn(place / "base")
        assert isinstance(made[form].head_.statistics_.scatter, kind)
    return made


@pytest.fixture
def base(form, bases):
    """The coordinator's model."""
    return copy.copy(bases[form])


@pytest.fixture
def load(encoder):
    return lambda path: ImageClassifier.load(path, encoder=encoder, cache=False)


@pytest.fixture(scope="module")
def folders_of_sites(bases, place, encoder, tmp_path_factory):
    """A folder for every form, with what every site gets and sends."""
    folders = {form: tmp_path_factory.mktemp(form) for form in bases}
    for (form, folder), name in itertools.product(folders.items(), SITES):
        site = copy.copy(bases[form]).export_for_site(folder / f"{name}.visvm")
        there = ImageClassifier.load(folder / f"{name}.visvm", encoder=encoder, cache=False)
        made = there.learn_statistics(place / name)
        assert made.site == site
        made.save(folder / f"{name}.sums", reveal_features=True)
    return folders


@pytest.fixture
def sums(form, folders_of_sites, tmp_path):
    """What every site sends, through files."""
    shutil.copytree(folders_of_sites[form], tmp_path, dirs_exist_ok=True)
    return {name: SiteStatistics.load(tmp_path / f"{name}.sums") for name in SITES}


def grown(model, place, *names):
    """A model that has learned the folders itself."""
    model = copy.copy(model)
    for name in names:
        model.learn(place / name)
    return model


def scores(model, place):
    got = model.predict(sorted((place / "test").rglob("*.png")), raw=True, top=99)
    return np.array([[dict(each.top)[label] for label in model.classes_] for each in got])


def assert_same(model, other, place, tolerance=1e-8):
    assert (model.classes_, model.class_counts_) == (other.classes_, other.class_counts_)
    np.testing.assert_allclose(scores(model, place), scores(other, place), rtol=0, atol=tolerance)


def saved(model, path):
    """The bytes of a model's file."""
    model.save(path)
    return path.read_bytes()


# What a site gets


def test_a_site_gets_nothing_of_what_was_learned(base, place, tmp_path):
    site = base.export_for_site(tmp_path / "site.visvm")
    header, tensors = contents(tmp_path / "site.visvm")
    assert (header["kind"], header["site"], len(site)) == ("site", site, 16)
    assert [header[name] for name in ("classes", "counts", "sessions")] == [[], [], []]
    assert not {"calibrated_classes", "merged"} & set(header)
    assert (header["head"]["ridge_path"], header["head"]["layer_path"]) == ([], [])
    assert not tensors["calibration"].any()
    assert {name for name, tensor in tensors.items() if tensor.any()} <= {
        f"mixer.{part}" for part in ("v", "v_bias", "u", "u_bias")
    }
    content = (tmp_path / "site.visvm").read_bytes()
    assert not any(name.encode() in content for name in (*tiny.COLOURS, "learned_at", "accuracy"))


def test_what_a_site_gets_depends_on_the_base_session_alone(
    base, place, load, tmp_path, monkeypatch
):
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 2 * size)
    later = grown(base, place, "north", "later")
    later.rename_class("red", "crimson").forget_class("blue")
    later.save(tmp_path / "later.visvm")
    later.export(tmp_path / "small.visvm")
    models = [
        base,
        later,
        load(tmp_path / "later.visvm"),
        ImageClassifier.load(tmp_path / "small.visvm", for_prediction=True),
    ]
    for model in models:
        model.encoder_name = "tiny"
    assert len({_exported(model, tmp_path) for model in models[:3]}) == 1
    light = models[3].model_
    models[3].model_ = replace(light, encoder=replace(light.encoder, name="tiny"))
    assert _exported(models[3], tmp_path) == _exported(base, tmp_path)


def _exported(model, folder):
    model.export_for_site(folder / "exported.visvm")
    return (folder / "exported.visvm").read_bytes()


def test_every_export_is_for_another_site(base, tmp_path):
    assert len({base.export_for_site(tmp_path / "site.visvm") for _ in range(20)}) == 20


def test_a_site_can_learn_by_itself_and_is_not_told_that_it_began_poorly(
    base, place, load, tmp_path
):
    site = base.export_for_site(tmp_path / "site.visvm")
    model = load(tmp_path / "site.visvm")
    assert (model.classes_, model.history_, model.site_) == ((), [], site)
    assert first_session_note(model.learn(place / "north")) is None
    model.save(tmp_path / "site.visvm")
    assert load(tmp_path / "site.visvm").site_ == site
    assert base.merge(model).merged_[0].id == site


# What it sends


def test_the_sums_are_those_of_the_folder_alone_and_the_model_stays(base, place, load, tmp_path):
    before = saved(base, tmp_path / "m.visvm")
    of_model, of_site = (
        base.learn_statistics(place / "south"),
        base.export_for_site(tmp_path / "site.visvm"),
    )
    assert saved(base, tmp_path / "m.visvm") == before
    of_site = load(tmp_path / "site.visvm").learn_statistics(place / "south")
    assert of_model.counts == of_site.counts == {"green": 4, "red": 4, "yellow": 4}
    digest = of_model.model.head.statistics.digest()
    assert digest == of_site.model.head.statistics.digest()
    assert of_model.site == digest[:16] != of_site.site
    (report,) = of_model.history
    assert (report["session"], report["n_images"], report["n_classes"], report["test"]) == (
        1,
        12,
        3,
        None,
    )
    assert report["new_classes"] == ["green", "red", "yellow"]
    assert not of_model.model.calibration.likelihoods.any()


def test_sums_come_back_from_their_file(sums, tmp_path):
    for name, each in sums.items():
        each.save(tmp_path / "again.sums", reveal_features=True)
        assert (tmp_path / "again.sums").read_bytes() == (tmp_path / f"{name}.sums").read_bytes()
        header, tensors = contents(tmp_path / "again.sums")
        assert (header["kind"], header["head"]["solved"]) == ("sums", False)
        assert "coefficients" not in tensors


@pytest.mark.parametrize(
    ("counts", "fewer"),
    [({"a": 30}, 31), ({"a": 30, "b": 1}, 2), ({"a": 12, "b": 9, "c": 9}, 31), ({"b": 40}, None)],
)
def test_sums_of_too_few_images_are_not_written_unless_asked_for(counts, fewer, tmp_path):
    lift = Lift(None, KernelMap(20, 30, seed=0))
    phi, labels = np.random.default_rng(0).random((sum(counts.values()), 20)), [*counts]
    settled = settle(phi, np.arange(len(phi)) % 2, HeadOptions(fused=False, n_components=30))
    head = Head.blank(settled).learned(phi, np.repeat(labels, [*counts.values()]))
    assert Minimum.of(lift) == Minimum(31, 2)
    if fewer is None:
        Minimum.of(lift).require(counts)
        return
    with refused("sums-revealing", InputError) as caught:
        SiteStatistics(Model(EncoderId("", "", ""), head)).save(tmp_path / "x.sums")
    assert f"fewer than {fewer}" in str(caught.value)
    assert not (tmp_path / "x.sums").exists()


def test_names_of_files_stay_at_the_site(base, place, tmp_path):
    folder = tiny.write_photos(tmp_path / "private", classes=("red",), n=2)
    (folder / "red" / "secret.png").write_text("no picture")
    made = base.learn_statistics(folder, skip_unreadable=True)
    assert made.history[0]["skipped"] == [str(folder / "red" / "secret.png")]
    made.save(tmp_path / "red.sums", reveal_features=True)
    content = (tmp_path / "red.sums").read_bytes()
    assert not any(word in content for word in (b"secret", b"private", str(place).encode()))
    assert SiteStatistics.load(tmp_path / "red.sums").model.encoder.name == "tiny.onnx"


def test_sums_need_a_model_that_is_settled(encoder, place):
    with refused("sums-unsettled", InputError) as caught:
        ImageClassifier(encoder, n_components=12, cache=False).learn_statistics(place / "north")
    assert "--for-site" in str(caught.value)


def test_sums_go_on_where_they_stopped(base, place, load, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "_MOST_ROWS", 5)
    base.export_for_site(tmp_path / "site.visvm")
    model, out = load(tmp_path / "site.visvm"), tmp_path / "south.sums"
    undisturbed = model.learn_statistics(place / "south")

    with pytest.raises(Stop), Journal(out, every=0) as journal:
        model.learn_statistics(place / "south", engine=LocalEngine(journal), progress=stop_at(12))
    assert journal.path == tmp_path / ".south.sums.journal"
    assert model_file.read_header(journal.path).journal.done in (5, 10)
    with Journal(out, every=0) as journal:
        resumed = model.learn_statistics(place / "south", engine=LocalEngine(journal))
    assert not journal.path.exists()
    assert resumed.counts == undisturbed.counts
    assert_same(copy.copy(base).merge(resumed), base.merge(undisturbed), place)


def test_a_file_of_sums_is_no_model(sums, tmp_path):
    for options in ({}, {"for_prediction": True}):
        with refused("sums-only", ModelFileError) as caught:
            ImageClassifier.load(tmp_path / "north.sums", **options)
        assert "visvm merge OUT MODEL north.sums" in str(caught.value)


# Into the model


@pytest.mark.parametrize("order", list(itertools.permutations(SITES)), ids="-".join)
def test_sites_merged_in_any_order_are_one_model(base, sums, place, order):
    whole = copy.copy(base).merge(*(sums[name] for name in order))
    assert_same(whole, grown(base, place, *SITES), place)
    assert [each.id for each in whole.merged_] == [sums[name].site for name in order]
    assert [entry["n_images"] for entry in whole.history_] == [
        18,
        *(sums[name].n_images for name in order),
    ]
    assert [entry["session"] for entry in whole.history_] == [1, 2, 3, 4]
    one_by_one = copy.copy(base)
    for name in order:
        one_by_one.merge(sums[name])
    assert_same(one_by_one, whole, place)


def test_sites_alone_make_a_model(base, sums, place, load, tmp_path):
    base.export_for_site(tmp_path / "bare.visvm")
    whole = load(tmp_path / "bare.visvm").merge(*sums.values())
    assert_same(whole.merge(base), grown(base, place, *SITES), place)


def test_the_file_of_a_site_may_take_its_own_sums_in(base, sums, place, load, tmp_path):
    model = ImageClassifier.merge_files(
        tmp_path / "north.visvm", [tmp_path / "north.sums", tmp_path / "south.sums"]
    )
    assert (model.site_, len(model.merged_)) == (None, 2)
    other = ImageClassifier.merge_files(
        tmp_path / "west.visvm", [tmp_path / "south.sums", tmp_path / "north.sums"]
    )
    assert_same(model, other, place)


def test_nobody_writes_the_model_while_it_is_merged(
    visvm, base, sums, place, tmp_path, monkeypatch
):
    base.save(tmp_path / "all.visvm")
    plain, ask = (
        ImageClassifier.merge_files.__func__,
        "import sys, filelock; filelock.FileLock(sys.argv[1]).acquire(timeout=0)",
    )
    asked = []

    def merge_files(cls, *arguments):
        process = subprocess.run(
            [sys.executable, "-c", ask, tmp_path / ".all.visvm.lock"],
            capture_output=True,
            text=True,
        )
        asked.append("Timeout" in process.stderr)
        return plain(cls, *arguments)

    monkeypatch.setattr(ImageClassifier, "merge_files", classmethod(merge_files))
    names = [tmp_path / name for name in ("all.visvm", "all.visvm", "north.sums")]
    assert visvm("merge", *names, "--force", "--quiet")[0] == 0
    assert asked == [True]


def test_numbers_as_labels(base, place, load, tmp_path):
    base.export_for_site(tmp_path / "a.visvm")
    site, whole = load(tmp_path / "a.visvm"), load(tmp_path / "a.visvm")
    paths = sorted((place / "base").rglob("*.png"))
    numbers = [len(path.parent.name) for path in paths]
    whole.model_ = replace(whole.model_, site=None)
    central = copy.copy(whole)
    central.learn(paths, numbers)
    whole.learn(paths[:9], numbers[:9])
    alone = copy.copy(whole)
    of_site = site.learn_statistics(paths[9:], numbers[9:])
    assert_same(whole.merge(of_site), central, place)
    assert_same(whole.unmerge(of_site), alone, place)
    with refused("labels-other-kind", InputError):
        base.merge(of_site)


def test_nothing_is_merged_twice(base, sums, place, load, tmp_path):
    base.merge(sums["north"])
    before = saved(base, tmp_path / "m.visvm")
    site = load(tmp_path / "north.visvm")
    site.learn(place / "later")  # other images, but the same site
    with_north = load(tmp_path / "south.visvm")
    with_north.learn(place / "south")
    with_north.merge(sums["north"])
    for code, *others in (
        ("site-merged-twice", sums["north"]),
        ("site-merged-twice", sums["south"], sums["south"]),
        ("site-merged-twice", site),
        ("site-merged-twice", with_north),
        ("merge-self", base),
        ("merge-self", copy.copy(base)),
    ):
        with refused(code, IncompatibleModelError):
            base.merge(*others)
    assert saved(base, tmp_path / "m.visvm") == before
    with_north.unmerge(sums["north"])
    base.merge(with_north)
    with refused("site-merged-twice", IncompatibleModelError):
        base.merge(sums["south"])


def test_what_has_learned_nothing_or_otherwise_is_refused(base, place, encoder, load, tmp_path):
    base.export_for_site(tmp_path / "site.visvm")
    other = ImageClassifier(encoder, n_components=14, cache=False, ridge=1.0, layers=(1, 3))
    other.learn(place / "base")
    north = other.learn_statistics(place / "north").model
    cropped = replace(north, encoder=replace(north.encoder, transform="crop"))
    cases = {
        "merge-empty": load(tmp_path / "site.visvm"),
        "merge-kernel-map": other,
        "merge-encoder": SiteStatistics(cropped),
    }
    before = base.model_
    for code, each in cases.items():
        with refused(code, IncompatibleModelError):
            base.merge(each)
    assert base.model_ is before


def test_files_are_merged_with_one_beside_the_model_in_memory(encoder, place, tmp_path):
    width, names = 1200, (*SITES, "later")
    model = ImageClassifier(encoder, n_components=width, cache=False, ridge=1.0, layers=(1, 3))
    model.learn(place / "base")
    for name, each in (
        ("base", model),
        *((name, model.learn_statistics(place / name)) for name in names),
    ):
        statistics = (model.model_ if each is model else each.model).head.statistics
        statistics.scatter = statistics.scatter.to_dense()
        each.save(tmp_path / name, **({} if each is model else {"reveal_features": True}))
    tracemalloc.start()
    whole = ImageClassifier.merge_files(tmp_path / "base", [tmp_path / name for name in names])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2.8 * 8 * width**2  # two matrices, and half of one as it is read from a file
    assert whole.class_counts_ == tuple(grown(model, place, *names).class_counts_)


# Out of it again


@pytest.mark.parametrize(
    "gone", [["north"], ["south"], ["west", "north"], ["south", "west", "north"]], ids="-".join
)
def test_a_site_that_withdraws_was_never_there(base, sums, place, load, tmp_path, gone):
    whole = copy.copy(base).merge(*sums.values())
    whole.learn(place / "later")
    whole.save(tmp_path / "whole.visvm")
    whole = load(tmp_path / "whole.visvm")
    for name in gone:
        whole.unmerge(sums[name])
    stays = [name for name in SITES if name not in gone]
    assert_same(whole, grown(base, place, *stays, "later"), place)
    assert [each.id for each in whole.merged_] == [sums[name].site for name in stays]
    assert [entry["n_images"] for entry in whole.history_] == [
        18,
        *(sums[name].n_images for name in stays),
        6,
    ]
    assert [entry["session"] for entry in whole.history_] == list(range(1, len(stays) + 3))
    assert_same(whole.merge(sums[gone[0]]), grown(base, place, *stays, gone[0], "later"), place)


def test_classes_renamed_put_together_and_forgotten_are_found_again(
    base, sums, place, load, tmp_path
):
    def changed(model):
        return (
            model.rename_class("yellow", "amber")
            .rename_class("green", "blue", merge=True)
            .forget_class("red")
        )

    for name in SITES:
        whole = changed(copy.copy(base).merge(*sums.values()))
        whole.save(tmp_path / "whole.visvm")
        whole = load(tmp_path / "whole.visvm")
        rest = [other for other in SITES if other != name]
        wanted = changed(copy.copy(base).merge(*(sums[other] for other in rest)))
        assert_same(whole.unmerge(sums[name]), wanted, place)
        assert whole.model_.counts == wanted.model_.counts


def test_a_name_that_was_given_to_other_images_is_not_taken_for_the_old_one(base, sums, place):
    whole = copy.copy(base).merge(sums["north"]).rename_class("yellow", "amber")
    paths = sorted((place / "south" / "yellow").rglob("*.png")) + sorted(
        (place / "test" / "yellow").rglob("*.png")
    )
    whole.learn(paths, ["yellow"] * len(paths))
    base.learn(paths, ["yellow"] * len(paths))
    assert_same(whole.unmerge(sums["north"]), base, place)


def test_a_model_is_taken_out_with_the_sites_in_it(base, sums, place, load, tmp_path):
    region = load(tmp_path / "south.visvm")
    region.learn(place / "south")
    region.merge(sums["north"])
    whole = copy.copy(base).merge(region, sums["west"])
    assert_same(whole, grown(base, place, *SITES), place)
    without_north = copy.copy(whole).unmerge(sums["north"])
    assert_same(without_north, grown(base, place, "south", "west"), place)
    with refused("site-removed-separately", NeverLearnedError) as caught:
        without_north.unmerge(region)
    assert sums["north"].site in str(caught.value)
    renamed = copy.copy(without_north).rename_class("yellow", "gold").merge(sums["north"])
    with refused("site-renamed", NeverLearnedError) as caught:
        renamed.unmerge(region)
    assert re.search("gold.*yellow", str(caught.value))
    renamed.unmerge(sums["north"]).rename_class("gold", "yellow")
    for again in (without_north, renamed):
        assert_same(again.merge(sums["north"]).unmerge(region), grown(base, place, "west"), place)
    with refused("merge-inside-out", IncompatibleModelError):
        copy.copy(base).merge(copy.copy(grown(base, place, "west")).merge(base))
    assert_same(whole.unmerge(region), grown(base, place, "west"), place)
    assert [entry["n_images"] for entry in whole.history_] == [18, 1]


def test_the_calibration_of_a_model_goes_with_it(base, place, load, tmp_path):
    base.export_for_site(tmp_path / "site.visvm")
    site, whole = load(tmp_path / "site.visvm"), copy.copy(base)
    site.learn(place / "south")
    assert likelihoods(site).any()
    whole.merge(site)
    np.testing.assert_allclose(likelihoods(whole), likelihoods(base) + likelihoods(site))
    # so that the next session measures it anew
    measured = replace(whole.model_.calibration, n_classes=0)
    whole.model_ = replace(whole.model_, calibration=measured)
    whole.learn(place / "later")
    (entry,) = whole.merged_
    assert entry.calibration_weight == 0.5
    before = likelihoods(whole)
    whole.unmerge(site)
    np.testing.assert_allclose(likelihoods(whole), before - 0.5 * likelihoods(site))


def likelihoods(model):
    return model.model_.calibration.likelihoods


def test_two_models_of_one_base_part_again(base, place):
    one, other = grown(base, place, "north"), grown(base, place, "later")
    both = copy.copy(one).merge(other)
    assert [entry["n_images"] for entry in both.history_] == [18, 5, 6]
    assert_same(both.unmerge(other), one, place)
    assert both.history_ == one.history_


def test_what_was_not_merged_or_otherwise_is_not_taken_out(base, sums, place, load, tmp_path):
    base.merge(sums["north"])
    before = base.model_
    other = load(tmp_path / "north.visvm").learn_statistics(place / "later")
    for each, code in (
        (sums["south"], "site-unknown"),
        (other, "site-altered"),
        (copy.copy(base), "site-unknown"),
    ):
        with refused(code, NeverLearnedError):
            base.unmerge(each)
    forgetful = copy.copy(base)
    forgetful.forget(place / "north")
    with refused("site-incomplete", NeverLearnedError):
        forgetful.unmerge(sums["north"])
    for each in ("north.sums", None):
        for change in (base.unmerge, base.merge):
            with refused("merge-kind", InputError) as caught:
                change(each)
            assert "merge_files" in str(caught.value)
    assert base.model_ is before


# The file


@pytest.mark.parametrize(
    "change",
    [
        {"site": 3},
        {"site": "../../etc"},
        {"site": "0" * 15 + "\n"},
        {"merged": 3},
        {"merged": {"id": 3}},
        {"merged": ["text"]},
        {"merged": [{}]},
        *(
            {"merged": [{name: wrong}]}
            for name in ("id", "n_images", "digest", "merged_at", "labels")
            for wrong in (None, 1.5, [[]])
        ),
        {"merged": [{"labels": ["a", 1]}]},
        {"merged": [{"calibration_weight": float("nan")}]},
        {"merged": [{"calibration_weight": 2.0}]},
        {"merged": [{"file": 3}]},
    ],
    ids=repr,
)
def test_sites_that_cannot_be_are_refused(base, sums, load, tmp_path, change):
    base.merge(sums["north"]).save(tmp_path / "m.visvm")

    def altered(header, tensors):
        merged = change.get("merged")
        if isinstance(merged, list) and merged not in (["text"], [{}]):
            return {**header, "merged": [{**header["merged"][0], **merged[0]}]}
        return {**header, **change}

    rewrite(tmp_path / "m.visvm", altered)
    with refused("file-altered", ModelFileError):
        load(tmp_path / "m.visvm")


def test_what_another_version_notes_of_a_site_is_no_hindrance(base, sums, load, tmp_path):
    base.merge(sums["north"]).save(tmp_path / "m.visvm")

    def change(header, tensors):
        header["merged"][0]["note"] = "new"
        del header["merged"][0]["file"]  # which was not always there

    rewrite(tmp_path / "m.visvm", change)
    again = load(tmp_path / "m.visvm")
    assert again.merged_ == tuple(replace(each, file="") for each in base.merged_)
    again.save(tmp_path / "m.visvm")
    assert contents(tmp_path / "m.visvm")[0]["merged"][0]["file"] == ""


# The command line


@pytest.fixture
def coordinator(visvm, place, tmp_path, monkeypatch):
    """A model of the base, and a folder to work in."""
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    options = ["--encoder", place / "tiny.onnx", "--components", 60]
    assert visvm("learn", "m.visvm", place / "base", *options)[0] == 0
    return Path("m.visvm")


@pytest.fixture
def sent(visvm, place, coordinator):
    """The files that two sites have sent."""
    for name in ("north", "south"):
        code, out, _ = visvm("export", "m.visvm", "--for-site", f"{name}.visvm")
        assert (code, "for site" in out) == (0, True)
        before = Path(f"{name}.visvm").read_bytes()
        given = ["learn", f"{name}.visvm", place / name, "--statistics-only", f"{name}.sums"]
        code, out, err = visvm(*given, "--reveal-features")
        assert (code, err) == (0, "")
        assert f"visvm merge OUT MODEL {name}.sums" in out
        assert Path(f"{name}.visvm").read_bytes() == before
    return [Path("north.sums"), Path("south.sums")]


def answers(visvm, model, place):
    lines = [
        json.loads(line)
        for line in visvm("predict", model, place / "test", "--json", "--raw", "--top", 4)[
            1
        ].splitlines()
    ]
    return [
        [(each["label"], pytest.approx(each["score"], abs=1e-8)) for each in line["top"]]
        for line in lines
    ]


def test_two_sites_and_a_coordinator(visvm, place, coordinator, sent):
    base = coordinator.read_bytes()
    for name, folders in {"central": ("north", "south"), "without": ("south",)}.items():
        Path(f"{name}.visvm").write_bytes(base)
        for folder in folders:
            visvm("learn", f"{name}.visvm", place / folder)
    code, out, err = visvm("merge", "whole.visvm", "m.visvm", *sent)
    assert (code, err) == (0, "")
    assert "4 classes from 35 images" in out
    wanted = answers(visvm, "central.visvm", place)
    assert len(wanted) == 16
    assert answers(visvm, "whole.visvm", place) == wanted
    told = json.loads(visvm("info", "whole.visvm", "--json")[1])
    assert [(each["file"], each["n_images"]) for each in told["merged"]] == [
        ("north.sums", 5),
        ("south.sums", 12),
    ]
    assert told["merged"][0]["id"] in visvm("info", "whole.visvm")[1]
    visvm("export", "whole.visvm", "small.visvm")
    SiteStatistics.load("whole.visvm").save("region.sums", reveal_features=True)
    for written in ("small.visvm", "region.sums"):  # files that others get
        assert b"north.sums" not in Path(written).read_bytes()
    before = Path("whole.visvm").read_bytes()
    twice = ["merge", "twice.visvm"]
    for arguments, code, facts in (
        ([*twice, "whole.visvm", "north.sums"], "site-merged-twice", ["north.sums", "unmerge"]),
        ([*twice, "m.visvm", "north.sums", "north.sums"], "site-merged-twice", ["north.sums"]),
        ([*twice, "north.sums", "m.visvm"], "sums-only", ["visvm merge OUT MODEL north.sums"]),
        (["merge", "whole.visvm", "m.visvm", "north.sums"], "file-exists", ["--force"]),
        (["unmerge", "m.visvm", "north.sums"], "site-unknown", ["visvm info"]),
    ):
        refused_line(visvm(*arguments), *facts, code=code)
    assert not Path("twice.visvm").exists()
    assert (coordinator.read_bytes(), Path("whole.visvm").read_bytes()) == (base, before)
    code, out, _ = visvm("unmerge", "whole.visvm", "north.sums")
    assert (code, "took out the 5 images" in out) == (0, True)
    assert answers(visvm, "whole.visvm", place) == answers(visvm, "without.visvm", place)
    before = Path("whole.visvm").read_bytes()
    code, out, _ = visvm("unmerge", "whole.visvm", "north.sums")
    assert (code, "already done; nothing changed" in out) == (0, True)
    assert Path("whole.visvm").read_bytes() == before
    assert visvm("merge", "again.visvm", "whole.visvm", "north.sums", "--quiet") == (0, "", "")
    assert answers(visvm, "again.visvm", place) == wanted


def test_a_file_of_sums_is_shown_and_is_no_model(visvm, place, sent):
    told = json.loads(visvm("info", "north.sums", "--json")[1])
    assert (told["classes"], told["statistics_only"], told["can_learn"]) == (
        {"yellow": 5},
        True,
        False,
    )
    out = visvm("info", "north.sums")[1]
    assert f"of site {told['site']}: " in out
    assert "visvm merge" in out
    assert "5 images" in out
    before = Path("north.sums").read_bytes()
    photos = place / "north"
    for arguments in (
        ["predict", "north.sums", photos],
        ["evaluate", "north.sums", photos],
        ["learn", "north.sums", photos],
        ["learn", "north.sums", photos, "--statistics-only", "x.sums"],
        ["forget", "north.sums", photos],
        ["forget-class", "north.sums", "yellow"],
        ["rename-class", "north.sums", "yellow", "amber"],
        ["export", "north.sums", "x.visvm"],
        ["export", "north.sums", "--for-site", "x.visvm"],
        ["unmerge", "north.sums", "south.sums"],
        ["serve", "north.sums", "--port", 0],
    ):
        refused_line(visvm(*arguments), "north.sums", "visvm merge", code="sums-only")
    assert Path("north.sums").read_bytes() == before
    assert not Path("x.visvm").exists()
    assert not Path("x.sums").exists()


def test_mistakes_with_sites_get_one_line(visvm, place, coordinator, sent):
    before = coordinator.read_bytes(), sent[0].read_bytes()
    photos = place / "north"
    visvm("export", "m.visvm", "small.visvm")
    to_sums = ["learn", "m.visvm", photos, "--statistics-only"]
    for arguments, code, facts in (
        (
            ["learn", "new.visvm", photos, "--statistics-only", "x.sums"],
            "file-missing",
            ["new.visvm", "--for-site"],
        ),
        ([*to_sums, "x.sums", "--test", photos], "option-test-without-model", ["--test"]),
        ([*to_sums, "m.visvm", "--force"], "output-is-model", ["m.visvm"]),
        ([*to_sums, "north.sums"], "file-exists", ["--force"]),
        ([*to_sums, "x.sums"], "sums-revealing", ["5 photos", "61", "--reveal-features"]),
        (["learn", "m.visvm", photos, "--force"], "option-without-statistics", ["--force"]),
        (["learn", "m.visvm", photos, "--reveal-features"], "option-without-statistics", []),
        (
            ["learn", "small.visvm", photos, "--statistics-only", "x.sums"],
            "sums-missing",
            ["exported"],
        ),
        (["export", "m.visvm"], "export-output", ["--for-site"]),
        (["export", "m.visvm", "x.visvm", "--for-site", "y.visvm"], "export-output", ["both"]),
        (["export", "m.visvm", "--for-site", "small.visvm"], "file-exists", ["--force"]),
        (["export", "m.visvm", "north.visvm"], "file-exists", ["--force"]),
        (["merge", "x.visvm", "m.visvm", "north.visvm"], "merge-empty", ["north.visvm"]),
        (["merge", "x.visvm", "m.visvm", "small.visvm"], "sums-missing", ["small.visvm"]),
        (["unmerge", "m.visvm", "nothing.sums"], "file-missing", ["nothing.sums"]),
        (["unmerge", "nothing.visvm", "north.sums"], "file-missing", ["nothing.visvm"]),
    ):
        refused_line(visvm(*arguments), *facts, code=code)
    assert (coordinator.read_bytes(), sent[0].read_bytes()) == before
    assert not any(Path(name).exists() for name in ("x.visvm", "x.sums", "y.visvm", "new.visvm"))


def test_sums_of_a_plain_model_are_replaced_when_asked(visvm, place, sent):
    given = ["learn", "m.visvm", place / "later", "--reveal-features", "--statistics-only"]
    code, out, _ = visvm(*given, "north.sums", "--force", "--json")
    report = json.loads(out)
    assert (code, report["n_images"]) == (0, 6)
    told = json.loads(visvm("info", "north.sums", "--json")[1])
    assert (told["site"], told["classes"]) == (report["site"], {"blue": 3, "red": 3})
    assert report["site"] == SiteStatistics.load("north.sums").model.head.statistics.digest()[:16]
    assert visvm(*given, "q.sums", "--quiet") == (0, "", "")
