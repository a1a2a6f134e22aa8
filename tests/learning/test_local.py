"""Sessions piece by piece: the same model whatever the pieces, bounded samples, journals."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import tiny
from tests.cli.test_main import refused as refused_line
from tests.forked import Command
from tests.learning.on_workers import encode_slowly
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.encoders.files import part_of
from visvm.encoders.loading import load_encoder
from visvm.errors import ImageError, InputError
from visvm.head.estimators import VisClassifier
from visvm.head.scatter import DenseScatter, ThinScatter
from visvm.learning import local as learning
from visvm.learning.local import LocalEngine
from visvm.learning.work import stratified
from visvm.model.file import read_header
from visvm.model.journal import Journal

FORMS = {"thin": (400, ThinScatter), "dense": (20, DenseScatter)}
N = 12  # pictures of a class

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Resuming after")]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "base", n=N)
    tiny.write_photos(folder / "later", classes=("yellow", "red"), n=N, seed=1)
    tiny.write_photos(folder / "test", classes=tuple(tiny.COLOURS), n=4, seed=3)
    return folder


class Counting:
    """An encoder that counts the images it is given."""

    def __init__(self, encoder):
        self._encoder, self.n_images = encoder, 0
        self.name, self.digest = encoder.name, encoder.digest
        self.layer_dims, self.preprocessing = encoder.layer_dims, encoder.preprocessing

    def encode(self, pixels):
        self.n_images += len(pixels)
        return self._encoder.encode(pixels)

    def project(self, final):
        return self._encoder.project(final)


@pytest.fixture
def encoder(place):
    return Counting(load_encoder(str(place / "tiny.onnx")))


@pytest.fixture(params=FORMS)
def make(request, encoder):
    width, _ = FORMS[request.param]

    def made(**options):
        return ImageClassifier(
            encoder, width, cache=False, **{"ridge": 1.0, "layers": (1, 3), **options}
        )

    return made


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(learning, "_MOST_ROWS", 5)


def scores(model, place):
    got = model.predict(sorted((place / "test").rglob("*.png")), raw=True, top=99)
    return np.array([[dict(each.top)[label] for label in model.classes_] for each in got])


def assert_same(model, other, place, tolerance=1e-9):
    assert (model.classes_, model.class_counts_) == (other.classes_, other.class_counts_)
    np.testing.assert_allclose(scores(model, place), scores(other, place), atol=tolerance, rtol=0)
    np.testing.assert_allclose(
        model.model_.calibration.likelihoods, other.model_.calibration.likelihoods, rtol=1e-9
    )
    assert [entry["n_images"] for entry in model.history_] == [
        entry["n_images"] for entry in other.history_
    ]


# Pieces


def test_pieces_of_any_size_give_the_model_of_all_at_once(make, place, monkeypatch):
    paths = [sorted((place / name).rglob("*.png")) for name in ("base", "later")]
    whole = make()
    features = [whole.layer_features(files) for files in paths]
    labels = [np.array([path.parent.name for path in files]) for files in paths]
    options = {"n_components": whole.head_.n_components, "ridge": 1.0, "layers": (1, 3)}
    head = VisClassifier(layer_dims=(tiny.WIDTH,) * 3, **options)
    for X, y in zip(features, labels, strict=True):
        head.partial_fit(X, y)
    for size in (1, 5, 7, 1000):
        monkeypatch.setattr(learning, "_MOST_ROWS", size)
        model = make()
        model.learn(place / "base")
        model.learn(place / "later")
        tests = sorted((place / "test").rglob("*.png"))
        np.testing.assert_allclose(
            model.scores(model.layer_features(tests)),
            head.decision_function(model.layer_features(tests)),
            atol=1e-9,
        )


def test_what_a_session_learns_is_not_added_to_the_sums_of_a_copy(make, place, small_pieces):
    model = make()
    model.learn(place / "base")
    before, remembered = scores(model, place), model.model_
    sums = remembered.head.statistics
    counts, trace = sums.class_counts.copy(), sums.scatter.trace()
    with pytest.raises(ZeroDivisionError):
        model.learn(place / "later", progress=lambda stage, done, total: 1 / (stage != "learning"))
    assert model.model_ is remembered
    np.testing.assert_array_equal(sums.class_counts, counts)
    assert sums.scatter.trace() == trace
    np.testing.assert_array_equal(scores(model, place), before)


def test_images_are_encoded_once(make, place, encoder, small_pieces):
    make(max_base_images=10).learn(place / "base")
    assert encoder.n_images == 3 * N


def test_labels_of_another_kind_are_refused_before_anything_is_encoded(make, place, encoder):
    model = make()
    model.learn(place / "base")
    before = encoder.n_images
    with refused("labels-other-kind", InputError):
        model.learn(sorted((place / "later").rglob("*.png")), list(range(2 * N)))
    assert encoder.n_images == before


# The sample


def test_a_large_base_session_is_settled_on_a_sample_and_learned_whole(make, place, small_pieces):
    model = make(max_base_images=18, ridge="auto", layers="auto")
    report = model.learn(place / "base")
    assert (report.settled_on, report.n_images) == (18, 3 * N)
    paths = sorted((place / "base").rglob("*.png"))
    labels = np.array([path.parent.name for path in paths])
    chosen = np.array(stratified(labels.tolist(), 18, seed=0))
    head = VisClassifier((tiny.WIDTH,) * 3, n_components=model.head_.n_components)
    features = model.layer_features(paths)
    head.settle(features[chosen], labels[chosen]).partial_fit(features, labels)
    assert (model.head_.ridge_, model.head_.layers_) == (head.ridge_, head.layers_)
    tests = model.layer_features(sorted((place / "test").rglob("*.png")))
    np.testing.assert_allclose(model.scores(tests), head.decision_function(tests), atol=1e-9)


def test_a_sample_without_a_readable_image_is_told(make, place, tmp_path, small_pieces):
    paths = sorted(tiny.write_photos(tmp_path / "photos", n=N, seed=5).rglob("*.png"))
    labels = [path.parent.name for path in paths]
    for number in stratified(labels, 15, seed=0):
        paths[number].write_text("no picture")
    with refused("sample-unreadable", ImageError):
        make(max_base_images=15).learn(paths, labels, skip_unreadable=True)
    with refused("images-unreadable", ImageError) as caught:
        make(max_base_images=15).learn(paths, labels)
    assert str(caught.value).count(".png") == 15


@pytest.mark.parametrize("most", [0, -1, 2.5, "x"])
def test_a_limit_that_is_none_is_refused(make, place, encoder, most):
    with refused("parameter-max-base-images", InputError):
        make(max_base_images=most).learn(place / "base")
    assert encoder.n_images == 0


def test_a_base_session_within_the_limit_says_nothing_of_a_sample(make, place):
    model = make(max_base_images=3 * N)
    assert model.learn(place / "base").settled_on is None
    assert model.learn(place / "later").settled_on is None


def test_settling_and_two_sessions_are_one_fit(stream):
    X, y = stream
    whole, stepwise = (VisClassifier((3, 3), n_components=50) for _ in range(2))
    whole.fit(X, y)
    stepwise.settle(X, y)
    assert len(stepwise.classes_) == 0
    stepwise.partial_fit(X[:50], y[:50]).partial_fit(X[50:], y[50:])
    assert (whole.ridge_, whole.layers_) == (stepwise.ridge_, stepwise.layers_)
    np.testing.assert_allclose(stepwise._scores(X), whole._scores(X), atol=1e-9)


@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=30),
    most=st.integers(1, 200) | st.none(),
    seed=st.integers(0, 99),
)
def test_a_sample_is_bounded_and_has_its_share_of_every_class(counts, most, seed):
    labels = [f"c{number:02}" for number, count in enumerate(counts) for _ in range(count)]
    labels = np.random.default_rng(seed).permutation(np.array(labels)).tolist()
    places = stratified(labels, most, seed)
    assert list(places) == sorted(set(places))
    assert places == stratified(labels, most, seed)
    if most is None or most >= len(labels):
        assert len(places) == len(labels)
        return
    sampled = {label: sum(labels[place] == label for place in places) for label in set(labels)}
    assert len(places) <= most + 5 * min(len(counts), max(1, most // 5)) + len(counts)
    if 5 * len(counts) <= most:
        for label, n in sampled.items():
            total = labels.count(label)
            assert n == min(total, max(5, int(np.ceil(total * most / len(labels)))))
    else:
        assert sum(n > 0 for n in sampled.values()) == min(len(counts), max(1, most // 5))


# The journal


class Stop(KeyboardInterrupt):
    """What Ctrl+C raises."""


def stop_at(n):
    def progress(stage, done, total):
        if stage == "encoding" and done >= n:
            raise Stop

    return progress


@pytest.mark.parametrize("moment", [1, 20, 30, 36])
@pytest.mark.parametrize("later", [False, True])
def test_a_session_goes_on_where_it_stopped(
    make, place, encoder, tmp_path, small_pieces, moment, later
):
    undisturbed, model = make(max_base_images=10), make(max_base_images=10)
    folders = [place / "base", *([place / "later"] if later else [])]
    for each in (undisturbed, model):
        for folder in folders[:-1]:
            each.learn(folder)
    undisturbed.learn(folders[-1])
    total = undisturbed.history_[-1]["n_images"]
    with pytest.raises(Stop), Journal(tmp_path / "m.visvm", every=0) as journal:
        model.learn(folders[-1], engine=LocalEngine(journal), progress=stop_at(min(moment, total)))
    kept = journal.path.exists()
    assert kept or moment < 20
    before = encoder.n_images
    with Journal(tmp_path / "m.visvm", every=0) as journal:
        model.learn(folders[-1], engine=LocalEngine(journal))
    assert encoder.n_images - before < total if kept else encoder.n_images - before == total
    assert_same(model, undisturbed, place)
    assert not list(tmp_path.iterdir())


def test_a_session_that_goes_on_has_the_form_and_the_calibration_of_one_that_did_not_stop(
    place, encoder, tmp_path, small_pieces
):
    folder = tiny.write_photos(tmp_path / "photos", classes=tuple(tiny.COLOURS), n=30, seed=8)
    models = [
        ImageClassifier(encoder, 260, cache=False, ridge=1.0, layers=(1, 3)) for _ in range(2)
    ]
    for model in models:
        model.learn(place / "base")
    with pytest.raises(Stop):
        models[0].learn(
            folder, engine=LocalEngine(Journal(tmp_path / "m", every=0)), progress=stop_at(100)
        )
    models[0].learn(folder, engine=LocalEngine(Journal(tmp_path / "m", every=0)))
    models[1].learn(folder)
    # 156 rows, of at most 173
    assert all(isinstance(model.head_.statistics_.scatter, ThinScatter) for model in models)
    assert_same(*models, place)


def test_what_a_base_session_settled_is_in_the_journal(make, place, encoder, tmp_path):
    undisturbed, model = make(ridge="auto", layers="auto"), make(ridge="auto", layers="auto")
    undisturbed.learn(place / "base")

    def stop_before_solving(stage, done, total):
        if stage == "learning":
            raise Stop

    with pytest.raises(Stop):
        model.learn(
            place / "base",
            engine=LocalEngine(Journal(tmp_path / "m", every=0)),
            progress=stop_before_solving,
        )
    before = encoder.n_images
    with Journal(tmp_path / "m", every=0) as journal:
        part_of(journal.path).write_bytes(b"what a kill left")
        with pytest.warns(UserWarning, match=f"Resuming after {3 * N} of {3 * N} images"):
            model.learn(place / "base", engine=LocalEngine(journal))
    assert encoder.n_images == before
    assert_same(model, undisturbed, place)
    assert not list(tmp_path.iterdir())


def test_images_at_uris_have_a_journal(make, place, encoder, tmp_path, small_pieces):
    pytest.importorskip("pyarrow")
    model = make()
    model.learn(place / "base")
    uri = (place / "later").as_uri()
    with pytest.raises(Stop):
        model.learn(
            uri, engine=LocalEngine(Journal(tmp_path / "m", every=0)), progress=stop_at(2 * N)
        )
    before = encoder.n_images
    model.learn(uri, engine=LocalEngine(Journal(tmp_path / "m", every=0)))
    assert encoder.n_images - before < 2 * N


def test_unreadable_files_of_before_the_stop_are_remembered(make, place, tmp_path, small_pieces):
    folder = tiny.write_photos(tmp_path / "photos", n=N, seed=5)
    (folder / "blue" / "0.png").write_text("no picture")
    model = make()
    model.learn(place / "base")
    with pytest.raises(Stop):
        model.learn(
            folder,
            engine=LocalEngine(Journal(tmp_path / "m", every=0)),
            progress=stop_at(30),
            skip_unreadable=True,
        )
    report = model.learn(
        folder, engine=LocalEngine(Journal(tmp_path / "m", every=0)), skip_unreadable=True
    )
    assert (report.n_images, report.skipped) == (3 * N, (str(folder / "blue" / "0.png"),))


def test_a_refused_session_leaves_no_journal(make, place, tmp_path, small_pieces):
    folder = tiny.write_photos(tmp_path / "photos", n=N, seed=5)
    (folder / "red" / "z.png").write_text("no picture")
    model = make()
    model.learn(place / "base")
    with (
        refused("images-unreadable", ImageError) as caught,
        Journal(tmp_path / "m", every=0) as journal,
    ):
        model.learn(folder, engine=LocalEngine(journal))
    assert "z.png" in str(caught.value)
    assert not journal.path.exists()


@pytest.mark.parametrize("change", ["files", "content", "model", "options"])
def test_the_journal_of_another_session_is_not_used(
    make, place, encoder, tmp_path, small_pieces, change
):
    folder = tiny.write_photos(tmp_path / "photos", n=N, seed=5)
    model = make()
    model.learn(place / "base")
    with pytest.raises(Stop):
        model.learn(
            folder, engine=LocalEngine(Journal(tmp_path / "m", every=0)), progress=stop_at(30)
        )
    options = {}
    if change == "files":
        (folder / "red" / "5-0.png").unlink()
    elif change == "content":
        os.utime(folder / "red" / "5-0.png", ns=(1, 1))
    elif change == "model":
        model.learn(place / "later")
    else:
        options["skip_unreadable"] = True
    before = encoder.n_images
    with pytest.warns(UserWarning, match="of another session"):
        report = model.learn(
            folder, engine=LocalEngine(Journal(tmp_path / "m", every=0)), **options
        )
    assert encoder.n_images - before == report.n_images


def test_a_damaged_journal_is_told_and_not_used(make, place, encoder, tmp_path, small_pieces):
    model, journal = make(), Journal(tmp_path / "m", every=0)
    with pytest.raises(Stop):
        model.learn(place / "base", engine=LocalEngine(journal), progress=stop_at(2 * N))
    journal.path.write_bytes(b"something else")
    with pytest.warns(UserWarning, match="damaged"):
        model.learn(place / "base", engine=LocalEngine(journal))
    assert sum(model.class_counts_) == 3 * N


def test_a_journal_that_cannot_be_written_is_told_once_and_the_session_goes_on(
    make, place, tmp_path, small_pieces
):
    model = make(max_base_images=10)
    with pytest.warns(UserWarning, match="without a journal") as told:
        model.learn(
            place / "base", engine=LocalEngine(Journal(tmp_path / "missing" / "m", every=0))
        )
    assert len(told) == 1
    assert sum(model.class_counts_) == 3 * N


@pytest.mark.parametrize("engine", ["local", 0, LocalEngine])
def test_an_engine_is_one(make, place, engine):
    with refused("engine-kind", InputError):
        make().learn(place / "base", engine=engine)


def test_a_short_session_writes_no_journal(make, place, tmp_path, small_pieces):
    journal = Journal(tmp_path / "m")
    make(max_base_images=10).learn(place / "base", engine=LocalEngine(journal))
    assert not journal.path.exists()


def test_contents_have_no_journal(make, place, tmp_path, small_pieces):
    paths = sorted((place / "base").rglob("*.png"))
    journal = Journal(tmp_path / "m", every=0)
    model = make(max_base_images=10)
    model.learn(
        [path.read_bytes() for path in paths],
        [path.parent.name for path in paths],
        engine=LocalEngine(journal),
    )
    assert not journal.path.exists()


@pytest.mark.parametrize("text", ["soon", "-1", "nan"])
def test_seconds_that_are_none_are_refused_in_one_line(visvm, place, tmp_path, monkeypatch, text):
    monkeypatch.setenv("VISVM_JOURNAL_SECONDS", text)
    outcome = visvm("learn", tmp_path / "m.visvm", place / "base", "--encoder", place / "tiny.onnx")
    refused_line(outcome, "VISVM_JOURNAL_SECONDS", code="journal-seconds")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.kill
def test_after_kill_9_the_same_command_goes_on_and_gives_the_same_model(place, tmp_path, form):
    width, kind = FORMS[form]
    folder = tiny.write_photos(tmp_path / "photos", classes=tuple(tiny.COLOURS), n=40, seed=6)

    def start(model):
        options = ("--encoder", place / "tiny.onnx", "--components", width, "--ridge", 1)
        return Command(
            *("learn", tmp_path / model, folder, *options, "--no-cache", "--quiet"),
            environment={"VISVM_JOURNAL_SECONDS": "0"},
            prepare=encode_slowly,
        )

    for model in ("killed.visvm", "whole.visvm"):
        first = ImageClassifier(str(place / "tiny.onnx"), width, ridge=1.0, cache=False)
        first.learn(place / "base")
        first.save(tmp_path / model)
    before, journal, seen = (
        (tmp_path / "killed.visvm").read_bytes(),
        tmp_path / ".killed.visvm.journal",
        [],
    )
    for _ in range(3):
        process = start("killed.visvm")
        until = time.monotonic() + 60
        while _done(journal) <= (seen[-1] if seen else 0):
            assert time.monotonic() < until
            assert process.poll() is None, "ended before it could be killed"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        seen.append(_done(journal))
        assert (tmp_path / "killed.visvm").read_bytes() == before
    for model in ("killed.visvm", "whole.visvm"):
        process = start(model)
        told = process.stdout.read()
        process.stdout.close()
        assert process.wait(60) == 0, told
    killed, whole = (
        ImageClassifier.load(tmp_path / model, cache=False)
        for model in ("killed.visvm", "whole.visvm")
    )
    assert isinstance(killed.head_.statistics_.scatter, kind)
    assert_same(killed, whole, place)
    assert not journal.exists()


def _done(journal: Path) -> int:
    """How many files a journal speaks for; 0 where there is none."""
    return read_header(journal).journal.done if journal.exists() else 0
