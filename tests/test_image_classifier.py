"""Images in, labels out: sessions, predictions, merging, forgetting, renaming, the file."""

import copy
import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from tests import tiny
from tests.refusals import refused
from visvm import ImageClassifier, VisClassifier
from visvm.encoders.cache import FeatureCache
from visvm.encoders.loading import load_encoder
from visvm.errors import (
    ImageError,
    IncompatibleModelError,
    InputError,
    MemoryLimitError,
    ModelFileError,
    NeverLearnedError,
)
from visvm.head.calibration import log_likelihoods
from visvm.head.scatter import DenseScatter, ThinScatter
from visvm.model import file as model_file
from visvm.model.results import ClassResult, SessionTest

FORMS = {"thin": (150, ThinScatter), "dense": (15, DenseScatter)}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The encoder, and pictures: three classes, a fourth, more of the first two, tests of all."""
    folder = tmp_path_factory.mktemp("images")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "base")
    tiny.write_photos(folder / "yellow", classes=("yellow",), n=5, seed=1)
    tiny.write_photos(folder / "more", classes=("red", "green"), n=3, seed=2)
    tiny.write_photos(folder / "test", classes=tuple(tiny.COLOURS), n=4, seed=3)
    return folder


@pytest.fixture(scope="module")
def encoder(place):
    return load_encoder(str(place / "tiny.onnx"))


@pytest.fixture
def make(encoder):
    def made(n_components=60, **options):
        return ImageClassifier(
            encoder,
            n_components=n_components,
            **{"cache": False, "ridge": 1.0, "layers": (1, 3), **options},
        )

    return made


@pytest.fixture
def based(make, place):
    """A model that has learned the base classes."""
    model = make()
    model.learn(place / "base")
    return model


def pictures(folder: Path) -> tuple[list[Path], list[str]]:
    paths = sorted(folder.rglob("*.png"))
    return paths, [path.parent.name for path in paths]


def scores(model, place) -> np.ndarray:
    """Raw scores of the test pictures, (n, C)."""
    got = model.predict(pictures(place / "test")[0], raw=True, top=99)
    return np.array([[dict(each.top)[label] for label in model.classes_] for each in got])


def assert_same(model, other, place, tolerance=1e-5):
    assert model.classes_ == other.classes_
    assert model.class_counts_ == other.class_counts_
    np.testing.assert_allclose(scores(model, place), scores(other, place), atol=tolerance, rtol=0)


class Unchanged:
    """On leaving, the model must be the very one that it was on entering, and answer as it did."""

    def __init__(self, model, place):
        self.model, self.place = model, place

    def state(self):
        model = self.model
        answers = scores(model, self.place).tolist() if model.classes_ else None
        return model.classes_, model.class_counts_, model.history_, model.encoder_name, answers

    def __enter__(self):
        self.remembered, self.before = self.model.model_, self.state()

    def __exit__(self, *exception):
        if exception[0] is None:
            assert self.model.model_ is self.remembered
            assert self.state() == self.before


def likelihoods(model):
    return model.model_.calibration.likelihoods


@pytest.fixture
def spoiled(place, tmp_path):
    """A folder of four classes, three files of which are no images."""
    folder = tiny.write_photos(tmp_path / "spoiled", classes=tuple(tiny.COLOURS), n=2, seed=4)
    (folder / "red" / "empty.jpg").write_bytes(b"")
    (folder / "red" / "text.png").write_text("this is no picture")
    (folder / "blue" / "cut.png").write_bytes((folder / "blue" / "4-0.png").read_bytes()[:200])
    return folder


# Learning


def test_a_folder_a_list_and_a_table_teach_the_same(make, place, tmp_path):
    paths, labels = pictures(place / "base")
    table = tmp_path / "labels.csv"
    table.write_text(
        "path,label\n"
        + "".join(f"{path},{label}\n" for path, label in zip(paths, labels, strict=True))
    )
    models = [make(), make(), make()]
    models[0].learn(place / "base")
    models[1].learn(paths, labels)
    models[2].learn(str(table))
    for model in models[1:]:
        assert_same(models[0], model, place, tolerance=0)


def test_a_report_says_what_a_session_did(make, place):
    model = make(ridge="auto", layers="auto")
    report = model.learn(place / "base")
    assert (report.session, report.n_images, report.n_classes) == (1, 18, 3)
    assert (report.new_classes, report.returning_classes) == (("blue", "green", "red"), ())
    assert report.ridge == model.head_.ridge_ > 0
    assert report.layers == model.head_.layers_
    assert set(report.seconds) == {"encode", "learn"}
    assert all(seconds > 0 for seconds in report.seconds.values())
    assert report.peak_memory is None or report.peak_memory > 10**7
    assert report.learned_at.endswith("+00:00")
    assert (report.skipped, report.test) == ((), None)
    assert [entry["session"] for entry in model.history_] == [1]
    assert list(model.history_[0]["new_classes"]) == ["blue", "green", "red"]


def test_classes_come_back_and_new_ones_come(based, place, tmp_path):
    tiny.write_photos(tmp_path, classes=("yellow", "red"), n=2, seed=7)
    report = based.learn(tmp_path)
    assert (report.session, report.new_classes, report.returning_classes, report.n_classes) == (
        2,
        ("yellow",),
        ("red",),
        4,
    )
    assert dict(zip(based.classes_, based.class_counts_, strict=True)) == {
        "blue": 6,
        "green": 6,
        "red": 8,
        "yellow": 2,
    }
    assert [entry["session"] for entry in based.history_] == [1, 2]


@pytest.mark.parametrize("form", FORMS)
def test_several_sessions_are_one(make, place, form):
    """The mixer is trained in the base session: the base session and one for all the rest."""
    width, kind = FORMS[form]
    several, once = make(width), make(width)
    several.learn(place / "base")
    several.learn(place / "yellow")
    several.learn(place / "more")
    once.learn(place / "base")
    rest = [pictures(place / name) for name in ("yellow", "more")]
    once.learn(
        [path for paths, _ in rest for path in paths],
        [label for _, labels in rest for label in labels],
    )
    assert isinstance(several.head_.statistics_.scatter, kind)
    assert_same(several, once, place)


def test_sessions_are_one_session_where_no_mixer_is_trained(make, place):
    """A first session of one class trains no mixer: order and division do not matter at all."""
    several, other = make(), make()
    for name in ("yellow", "base", "more"):
        several.learn(place / name)
    other.learn(place / "yellow")
    paths = [path for name in ("more", "base") for path in pictures(place / name)[0]]
    labels = [path.parent.name for path in paths]
    order = np.random.default_rng(0).permutation(len(paths))
    other.learn([paths[at] for at in order], [labels[at] for at in order])
    assert several.head_.mixer_.is_identity
    assert_same(several, other, place)


def test_a_session_is_tested_on_known_classes_only(make, place):
    model = make()
    first = model.learn(place / "base", test=place / "test")
    known = model.evaluate(place / "test")
    assert first.test == SessionTest(12, known.accuracy, None, known.accuracy)
    second = model.learn(place / "yellow", test=place / "test")
    now = model.evaluate(place / "test")
    old = [result for label, result in now.per_class.items() if label != "yellow"]
    wanted = sum(result.accuracy * result.n for result in old) / 12
    assert second.test.n == 16
    assert second.test.accuracy == now.accuracy
    assert second.test.old_accuracy == pytest.approx(wanted)
    assert second.test.new_accuracy == now.per_class["yellow"].accuracy
    assert now.accuracy > 0.9
    third = model.learn(place / "more", test=place / "test")
    assert third.test.new_accuracy is None
    assert third.test.old_accuracy == third.test.accuracy
    assert model.history_[1]["test"]["n"] == 16
    assert "test" in third.seconds


def test_test_images_teach_nothing(make, place):
    plain, tested = make(), make()
    plain.learn(place / "base")
    tested.learn(place / "base", test=place / "test")
    assert_same(plain, tested, place, tolerance=0)


def test_a_test_without_known_classes_is_refused(make, place):
    model = make()
    with refused("test-classes-unknown"):
        model.learn(place / "base", test=place / "yellow")
    assert model.model_ is None


def test_unreadable_files_stop_the_session_and_are_all_named(based, place, spoiled):
    with Unchanged(based, place):
        for given in ({"images": spoiled}, {"images": place / "yellow", "test": spoiled}):
            with refused("images-unreadable", ImageError) as caught:
                based.learn(**given)
            for fact in ("3 files", "empty.jpg", "text.png", "cut.png", "skip_unreadable"):
                assert fact in str(caught.value)
        with refused("images-unreadable", ImageError) as caught:
            based.learn([place / "nowhere.png", place], ["red", "red"])
        assert "2 files" in str(caught.value)


def test_unreadable_files_with_strange_names_are_told_on_one_line(based, tmp_path):
    paths = [
        tmp_path / "two\nlines.png",
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")),
    ]
    for path in paths:
        path.write_bytes(b"")
    with refused("images-unreadable", ImageError) as caught:
        based.learn(paths, ["red", "red"])
    str(caught.value).encode()


def test_unreadable_files_can_be_skipped(make, place, spoiled):
    model, plain = make(), make()
    report = model.learn(spoiled, test=spoiled, skip_unreadable=True)
    assert (report.n_images, report.n_classes, report.test.n) == (8, 4, 8)
    assert sorted({Path(path).name for path in report.skipped}) == [
        "cut.png",
        "empty.jpg",
        "text.png",
    ]
    good = sorted(spoiled.rglob("4-*.png"))
    plain.learn(good, [path.parent.name for path in good])
    assert_same(model, plain, place, tolerance=0)
    assert len(model.evaluate(spoiled, skip_unreadable=True).skipped) == 3


def test_what_is_exported_names_no_file_that_was_skipped(make, spoiled, tmp_path):
    model = make()
    model.learn(spoiled, skip_unreadable=True)
    model.export(tmp_path / "small.visvm")
    model.save_pretrained(tmp_path / "shared")
    for path in (tmp_path / "small.visvm", *(tmp_path / "shared").iterdir()):
        assert b"cut.png" not in path.read_bytes()
    assert len(model.history_[0]["skipped"]) == 3


def test_a_skipped_file_of_any_name_can_be_saved(make, place, tmp_path):
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png"))
    strange.write_bytes(b"")
    paths, labels = pictures(place / "base")
    model = make()
    model.learn([*paths, strange], [*labels, "red"], skip_unreadable=True)
    model.save(tmp_path / "m.visvm")
    assert ImageClassifier.load(tmp_path / "m.visvm").history_ == model.history_
    model.export(tmp_path / "out.visvm")  # which is for others: no names of photos
    assert b"caf" not in (tmp_path / "out.visvm").read_bytes()


def test_a_class_of_which_nothing_can_be_read_is_not_learned(make, place, spoiled):
    for path in (spoiled / "yellow").iterdir():
        path.write_bytes(b"")
    report = make().learn(spoiled, skip_unreadable=True)
    assert report.new_classes == ("blue", "green", "red")
    with refused("sample-unreadable", ImageError):
        make().learn(sorted((spoiled / "yellow").iterdir()), ["a", "b"], skip_unreadable=True)


def test_nothing_to_learn_is_refused(based, place):
    with Unchanged(based, place), refused("images-empty", InputError):
        based.learn([], [])


def test_labels_of_another_kind_are_refused(based, place):
    paths, _ = pictures(place / "yellow")
    with Unchanged(based, place):
        with refused("labels-other-kind", InputError):
            based.learn(paths, [1] * 5)
        with refused("labels-mixed", InputError):
            based.learn(paths, ["yellow", 1, 2, 3, 4])


def test_numbers_can_be_labels(make, place, tmp_path):
    numbers = {"red": 10, "green": 9, "blue": -1, "yellow": 3}
    model = make()
    for name in ("base", "yellow"):
        paths, labels = pictures(place / name)
        report = model.learn(paths, np.array([numbers[label] for label in labels]))
    assert model.classes_ == (-1, 3, 9, 10)
    assert report.new_classes == (3,)
    paths, labels = pictures(place / "test")
    predicted = [each.label for each in model.predict(paths)]
    assert {type(label) for label in predicted} == {int}
    result = model.evaluate(paths, [numbers[label] for label in labels])
    assert (
        result.accuracy
        == np.mean(
            [guess == numbers[label] for guess, label in zip(predicted, labels, strict=True)]
        )
        > 0.9
    )
    model.rename_class(9, 90)
    model.save(tmp_path / "m.visvm")
    again = ImageClassifier.load(tmp_path / "m.visvm", encoder=model.load_encoder(), cache=False)
    assert again.classes_ == (-1, 3, 10, 90)
    assert {type(label) for label in again.classes_} == {int}
    assert_same(model, again, place, tolerance=0)


def test_a_failure_in_the_middle_leaves_all_as_it_was(based, place, monkeypatch):
    def broken(*arguments):
        raise RuntimeError("broken")

    other = copy.copy(based)
    other.learn(place / "yellow")
    with Unchanged(based, place):
        for name in ("log_likelihoods", "peak_bytes", "changes.learned", "session_test"):
            with monkeypatch.context() as patched:
                patched.setattr(f"visvm.learning.session.{name}", broken)
                with pytest.raises(RuntimeError, match="broken"):
                    based.learn(place / "yellow", test=place / "test")
        with monkeypatch.context() as patched:
            patched.setattr("visvm.head.head.solve", broken)
            reds = pictures(place / "base" / "red")
            for change in (
                lambda: based.learn(place / "yellow"),
                lambda: based.forget(*reds),
                lambda: based.merge(other),
                lambda: based.rename_class("red", "blue", merge=True),
            ):
                with pytest.raises(RuntimeError, match="broken"):
                    change()


def test_a_model_that_has_forgotten_everything_can_be_kept_and_learn_again(based, place, tmp_path):
    based.forget(place / "base")
    assert based.classes_ == ()
    based.save(tmp_path / "empty.visvm")
    again = ImageClassifier.load(
        tmp_path / "empty.visvm", encoder=based.load_encoder(), cache=False
    )
    with pytest.raises(NotFittedError, match="knows no class"):
        again.predict(sorted((place / "yellow").rglob("*.png")))
    again.learn(place / "yellow")
    assert again.classes_ == ("yellow",)


def test_a_model_loaded_for_predicting_cannot_replace_the_whole_one(based, place, tmp_path):
    based.save(tmp_path / "m.visvm")
    before = (tmp_path / "m.visvm").read_bytes()
    light = ImageClassifier.load(
        tmp_path / "m.visvm", encoder=based.load_encoder(), cache=False, for_prediction=True
    )
    assert_same(based, light, place, tolerance=0)
    for work in (
        lambda: light.save(tmp_path / "m.visvm"),
        lambda: light.rename_class("red", "x"),
        lambda: light.learn(place / "yellow"),
        lambda: light.head_,
    ):
        with refused("sums-missing", ModelFileError) as caught:
            work()
        assert "loaded" in str(caught.value)
    assert (tmp_path / "m.visvm").read_bytes() == before
    light.export(tmp_path / "small.visvm")
    assert_same(
        based,
        ImageClassifier.load(tmp_path / "small.visvm", encoder=based.load_encoder(), cache=False),
        place,
        tolerance=0,
    )


def test_work_beyond_the_memory_limit_is_not_begun(make, place):
    model = make(memory_limit=1000)
    with Unchanged(model, place), pytest.raises(MemoryLimitError):
        model.learn(place / "base")
    assert not model.classes_


def test_every_option_makes_a_difference(make, place):
    plain = make()
    plain.learn(place / "base")
    for option in (
        {"n_components": 50},
        {"random_state": 1},
        {"ridge": 30.0},
        {"svm_cost": 1.0},
        {"layers": (3,)},
        {"transform": "crop"},
    ):
        other = make(**option)
        other.learn(place / "base")
        assert np.abs(scores(plain, place) - scores(other, place)).max() > 1e-4, option


def test_progress_is_told(make, place):
    told = []
    make().learn(place / "base", test=place / "test", progress=lambda *what: told.append(what))
    assert {stage for stage, _, _ in told} >= {"encoding", "encoding test images", "learning"}
    assert ("encoding", 18, 18) in told
    assert [what for what in told if what[0] == "learning"] == [
        ("learning", 0, 1),
        ("learning", 1, 1),
    ]
    assert all(0 <= done <= total for _, done, total in told)


def test_features_are_kept_in_the_cache(make, place, tmp_path):
    with FeatureCache(tmp_path / "features.sqlite") as cache:
        cached = make(cache=cache)
        cached.learn(place / "base")
        assert cache.info().n_images == 18
        cached.learn(place / "base")
        assert cache.info().n_images == 18
    plain = make()
    plain.learn(place / "base")
    plain.learn(place / "base")
    assert_same(cached_again(cached), plain, place)
    own_file = make(cache=tmp_path / "own.sqlite")
    own_file.learn(place / "base")
    assert (tmp_path / "own.sqlite").exists()


def cached_again(model):
    """The model without its cache, which is closed."""
    model.cache = False
    return model


# Predicting


def test_predictions_are_those_of_the_head_on_layer_features(based, make, place):
    paths, _ = pictures(place / "test")
    train, labels = pictures(place / "base")
    head = VisClassifier(layer_dims=(tiny.WIDTH,) * 3, layers=(1, 3), n_components=60, ridge=1.0)
    head.fit(based.layer_features(train), labels)
    features = based.layer_features(paths)
    assert features.shape == (16, 3 * tiny.WIDTH)
    np.testing.assert_allclose(scores(based, place), head.decision_function(features), atol=1e-9)
    assert [each.label for each in based.predict(paths)] == head.predict(features).tolist()


def test_layer_features_can_be_had_before_anything_is_learned(make, place, based):
    paths, _ = pictures(place / "test")
    np.testing.assert_array_equal(make().layer_features(paths), based.layer_features(paths))


def test_a_prediction_has_path_label_score_and_the_best_classes(based, place):
    paths, _ = pictures(place / "test")
    for path, each in zip(paths, based.predict(paths), strict=True):
        assert each.path == str(path)
        assert (each.label, each.score) == each.top[0]
        assert sorted(label for label, _ in each.top) == ["blue", "green", "red"]
        shown = [score for _, score in each.top]
        assert shown == sorted(shown, reverse=True)
        assert sum(shown) == pytest.approx(1.0)
        assert all(0 < score < 1 for score in shown)


def test_raw_scores_have_the_same_order_and_are_no_probabilities(based, place):
    paths, _ = pictures(place / "test")
    for raw, calibrated in zip(based.predict(paths, raw=True), based.predict(paths), strict=True):
        assert [label for label, _ in raw.top] == [label for label, _ in calibrated.top]
        assert any(score < 0 for _, score in raw.top)


def test_top_says_how_many_classes_to_name(based, place):
    path = place / "test/red/3-0.png"
    (whole,) = based.predict(path)
    assert len(whole.top) == 3
    for top in (1, 2, 3, 10):
        (each,) = based.predict(str(path), top=top)
        assert each.top == whole.top[:top]
    for top in (0, -1):
        with refused("parameter-top", InputError) as caught:
            based.predict(path, top=top)
        assert str(top) in str(caught.value)


def test_the_only_class_is_certain(make, place):
    model = make()
    model.learn(place / "yellow")
    (each,) = model.predict(place / "test/red/3-0.png")
    assert (each.label, each.score) == ("yellow", 1.0)


def test_no_images_no_predictions(based):
    assert based.predict([]) == []


def test_unreadable_images_are_named_or_come_in_their_place(based, spoiled):
    paths = sorted((spoiled / "red").iterdir())
    with refused("images-unreadable", ImageError) as caught:
        based.predict(paths)
    assert "2 files" in str(caught.value)
    outcomes = list(based.predict_stream(paths))
    assert [Path(outcome.path).name for outcome in outcomes] == [path.name for path in paths]
    assert [hasattr(outcome, "reason") for outcome in outcomes] == [False, False, True, True]


def test_what_has_learned_nothing_says_so(make, place, tmp_path):
    model = make()
    for attempt in (
        lambda: model.predict(place / "test/red/3-0.png"),
        lambda: model.evaluate(place / "test"),
        lambda: model.save(tmp_path / "m.visvm"),
        lambda: model.export(tmp_path / "m.visvm"),
        lambda: model.forget(place / "base"),
        lambda: model.rename_class("red", "blue"),
    ):
        with pytest.raises(NotFittedError) as caught:
            attempt()
        assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_what_probabilities_rest_on_adds_up_over_sessions_and_merged_models(make, place):
    model = make(150)
    model.learn(place / "base")
    first, other = likelihoods(model), copy.copy(model)
    assert first.any()
    for name, each in (("yellow", model), ("more", other)):
        each.learn(place / name)
        paths, labels = pictures(place / name)
        left_out = each.head_.leave_one_out_scores(each.layer_features(paths), labels)
        own = log_likelihoods(left_out, np.searchsorted(each.head_.classes_, labels))
        np.testing.assert_allclose(likelihoods(each), 0.5 * first + own, rtol=1e-5)
    wanted = likelihoods(model) + likelihoods(other)
    np.testing.assert_array_equal(likelihoods(model.merge(other)), wanted)


def test_what_is_done_to_the_head_is_not_done_to_the_model(based, place):
    paths, labels = pictures(place / "yellow")
    with Unchanged(based, place):
        head = based.head_.partial_fit(based.layer_features(paths), labels)
        assert head.classes_.tolist() == ["blue", "green", "red", "yellow"]
        with pytest.raises(AttributeError):
            based.head_ = head
    assert based.head_.classes_.tolist() == ["blue", "green", "red"]


# Evaluating


def test_an_evaluation_leaves_out_and_names_classes_never_learned(based, place):
    result = based.evaluate(place / "test")
    assert result.never_learned == ("yellow",)
    assert result.n == 12
    assert list(result.per_class) == ["blue", "green", "red"]
    paths, labels = pictures(place / "test")
    known = [(path, label) for path, label in zip(paths, labels, strict=True) if label != "yellow"]
    right = [based.predict(path)[0].label == label for path, label in known]
    assert result.accuracy == np.mean(right)


def test_wrong_labels_show_as_confusions(based, place):
    paths, _ = pictures(place / "test" / "red")
    result = based.evaluate([*paths, *paths], ["red"] * 4 + ["green"] * 4)
    assert result.per_class == {"green": ClassResult(4, 0.0), "red": ClassResult(4, 1.0)}
    assert [(each.label, each.predicted, each.n) for each in result.confusions] == [
        ("green", "red", 4)
    ]


def test_an_evaluation_with_no_known_class_is_refused(based, place):
    with refused("classes-unknown", InputError) as caught:
        based.evaluate(place / "yellow")
    assert "yellow" in str(caught.value)


# Merging


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("through_files", [False, True], ids=["in memory", "through files"])
def test_two_copies_grown_from_one_base_are_merged(
    make, place, tmp_path, encoder, form, through_files
):
    base = make(FORMS[form][0])
    base.learn(place / "base")
    base.save(tmp_path / "base.visvm")
    one = base
    other = (
        ImageClassifier.load(tmp_path / "base.visvm", encoder=encoder, cache=False)
        if through_files
        else copy.copy(base)
    )
    one.learn(place / "yellow")
    other.learn(place / "more")
    # base and more, and then what `one` has learned: base again, and yellow
    wanted = copy.copy(other)
    wanted.learn(place / "base")
    wanted.learn(place / "yellow")
    with Unchanged(other, place):
        assert one.merge(other) is one
    assert_same(one, wanted, place)
    assert [entry["session"] for entry in one.history_] == [1, 2, 3]
    assert [entry["n_images"] for entry in one.history_] == [18, 5, 6]


def test_models_that_cannot_be_merged_are_refused(based, make, place, tmp_path):
    tiny.write_encoder(tmp_path, seed=1)
    others = {
        "merge-encoder": ImageClassifier(
            str(tmp_path / "tiny.onnx"), n_components=60, cache=False, ridge=1.0, layers=(1, 3)
        ),
        "merge-kernel-map": make(random_state=1),
        "merge-mixer": make(layers=(3,)),
    }
    cropped = make(transform="crop")
    with Unchanged(based, place):
        for code, other in (*others.items(), ("merge-encoder", cropped)):
            other.learn(place / "base")
            with refused(code, IncompatibleModelError) as caught:
                based.merge(other)
        assert "transforms" in str(caught.value)
        for one, other in ((based, make()), (make(), based)):
            with refused("merge-empty", IncompatibleModelError):
                one.merge(other)


# Forgetting


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", ["yellow", "more"])
def test_what_is_forgotten_was_never_learned(make, place, form, what):
    width, _ = FORMS[form]
    model, never = make(width), make(width)
    model.learn(place / "base")
    never.learn(place / "base")
    model.learn(place / what)
    assert model.forget(place / what) == len(pictures(place / what)[0])
    assert_same(model, never, place)


def test_some_images_of_the_base_session_are_forgotten(make, place):
    """A base session of one class trains no mixer, so it might as well have been smaller."""
    paths, labels = pictures(place / "yellow")
    model, never = make(), make()
    model.learn(paths, labels)
    never.learn(paths[2:], labels[2:])
    for each in (model, never):
        each.learn(place / "base")
    assert model.forget(paths[:2], labels[:2]) == 2
    assert_same(model, never, place)


def test_what_was_never_learned_cannot_be_forgotten(based, place):
    paths, _ = pictures(place / "test" / "red")
    with Unchanged(based, place):
        for attempt in ((place / "yellow",), (paths * 2, ["red"] * 8), (paths[:1], ["mauve"])):
            with pytest.raises(NeverLearnedError) as caught:
                based.forget(*attempt)
            assert len(str(caught.value).splitlines()) == 1
        with refused("images-unreadable", ImageError):
            based.forget([place / "nowhere.png"], ["red"])


def test_all_can_be_forgotten_and_learned_again(based, place):
    before = scores(based, place)
    based.forget(place / "base")
    assert based.classes_ == ()
    with pytest.raises(NotFittedError):
        based.predict(place / "test/red/3-0.png")
    based.learn(place / "base")
    np.testing.assert_allclose(scores(based, place), before, atol=1e-5)


# Renaming


def test_a_renamed_class_goes_on_under_its_new_name(based, place, tmp_path):
    before = based.predict(pictures(place / "test")[0])
    based.rename_class("red", "aubergine")
    assert based.classes_ == ("aubergine", "blue", "green")
    after = based.predict(pictures(place / "test")[0])
    for old, new in zip(before, after, strict=True):
        assert new.label == {"red": "aubergine"}.get(old.label, old.label)
        assert new.score == pytest.approx(old.score, abs=1e-12)
    assert list(based.history_[0]["new_classes"]) == ["blue", "green", "aubergine"]
    paths, _ = pictures(place / "more" / "red")
    report = based.learn(paths, ["aubergine"] * len(paths))
    assert report.returning_classes == ("aubergine",)
    assert based.class_counts_ == (9, 6, 6)


def test_classes_put_together_are_one_in_all_that_is_told(based, place, tmp_path):
    based.rename_class("red", "blue", merge=True)
    assert (based.classes_, based.class_counts_) == (("blue", "green"), (12, 6))
    assert list(based.history_[0]["new_classes"]) == ["blue", "green"]
    based.save(tmp_path / "m.visvm")
    assert_same(ImageClassifier.load(tmp_path / "m.visvm"), based, place)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("numbers", [False, True])
def test_a_forgotten_class_is_never_answered_and_the_others_score_as_before(
    make, place, tmp_path, form, numbers
):
    model = make(FORMS[form][0])
    paths, labels = pictures(place / "base")
    model.learn(paths, [len(label) for label in labels] if numbers else labels)
    gone = 3 if numbers else "red"
    before = {each.path: dict(each.top) for each in model.predict(paths, raw=True, top=99)}
    model.forget_class(gone)
    model.save(tmp_path / "m.visvm")
    model.export(tmp_path / "light.visvm")
    loads = [
        ImageClassifier.load(tmp_path / "m.visvm", for_prediction=fast, cache=False)
        for fast in (False, True)
    ]
    for same in (model, *loads, ImageClassifier.load(tmp_path / "light.visvm", cache=False)):
        assert gone not in same.classes_
        assert same.class_counts_ == (6, 6)
        for each in same.predict(paths, raw=True, top=99):
            assert dict(each.top) == pytest.approx(
                {k: v for k, v in before[each.path].items() if k != gone}, abs=1e-9
            )
    again = loads[0]
    again.learn(
        *pictures(place / "yellow") if not numbers else (pictures(place / "yellow")[0], [9] * 5)
    )
    assert len(again.classes_) == 3
    assert again.predict(place / "test/yellow/3-0.png").pop().label == (9 if numbers else "yellow")
    red = [path for path, label in zip(paths, labels, strict=True) if label == "red"]
    again.learn(red, [gone] * 6)
    assert dict(zip(again.classes_, again.class_counts_, strict=True))[gone] == 6


def test_all_classes_can_be_forgotten_and_learned_again(based, place):
    for label in based.classes_:
        based.forget_class(label)
    assert based.classes_ == ()
    with pytest.raises(NotFittedError):
        based.predict(place / "test/red/3-0.png")
    based.learn(place / "base")
    assert based.class_counts_ == (6, 6, 6)


@pytest.mark.parametrize(
    ("label", "code"), [("mauve", "class-unknown"), ("", "label-empty"), (3, "class-unknown")]
)
def test_a_class_that_is_not_known_cannot_be_forgotten(based, place, label, code):
    with Unchanged(based, place), refused(code):
        based.forget_class(label)


def test_contents_are_learned_as_their_files_are(make, based, place, tmp_path):
    paths, labels = pictures(place / "base")
    model = make()
    tests, truths = pictures(place / "test")
    report = model.learn(
        [path.read_bytes() for path in paths],
        labels,
        test=([path.read_bytes() for path in tests], truths),
    )
    assert_same(model, based, place)
    assert report.test.n == 12  # yellow is not known
    assert model.predict(tests[0].read_bytes())[0].label == model.predict(tests[0])[0].label
    with refused("images-unreadable", ImageError) as caught:
        model.predict([b"no image"])
    assert "an image in memory" in str(caught.value)


def test_the_accuracy_before_a_session_is_told_beside_that_after_it(based, place):
    report = based.learn(place / "yellow", test=place / "test")
    assert report.test.accuracy_before == 1.0
    assert based.history_[-1]["test"]["accuracy_before"] == 1.0


def test_a_new_name_is_kept_as_names_of_folders_are(based):
    decomposed = unicodedata.normalize("NFD", "Ärmel")
    based.rename_class("red", f" {decomposed} ")
    assert based.classes_ == ("blue", "green", unicodedata.normalize("NFC", "Ärmel"))
    based.rename_class(decomposed, "red")
    assert based.classes_ == ("blue", "green", "red")


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("red", "blue", "class-exists"),
        ("mauve", "pink", "class-unknown"),
        ("red", "", "label-empty"),
        ("red", "a\nb", "label-unprintable"),
        ("red", 1.5, "label-kind"),
    ],
)
def test_a_name_that_cannot_be_is_refused(based, place, old, new, code):
    with Unchanged(based, place), refused(code, InputError):
        based.rename_class(old, new)


def test_a_number_is_no_name_for_a_class_among_names(based, place):
    with Unchanged(based, place), refused("labels-other-kind", InputError):
        based.rename_class("red", 3)


def test_counts_go_with_their_classes_when_an_exported_model_is_renamed(
    based, place, tmp_path, encoder
):
    based.learn(place / "more")
    assert based.class_counts_ == (6, 9, 9)
    based.export(tmp_path / "small.visvm")
    small = ImageClassifier.load(tmp_path / "small.visvm", encoder=encoder, cache=False)
    small.rename_class("blue", "zinc")
    based.rename_class("blue", "zinc")
    assert based.class_counts_ == (9, 9, 6)
    assert_same(small, based, place, tolerance=0)


# The file


@pytest.mark.parametrize("form", FORMS)
def test_a_saved_model_predicts_and_learns_on_as_the_one_in_memory(
    make, place, tmp_path, encoder, form
):
    width, kind = FORMS[form]
    model = make(width, ridge="auto")
    model.learn(place / "base", test=place / "test")
    model.learn(place / "more")
    assert isinstance(model.head_.statistics_.scatter, kind)
    model.save(tmp_path / "m.visvm")
    again = ImageClassifier.load(tmp_path / "m.visvm", encoder=encoder, cache=False)
    assert again.predict(pictures(place / "test")[0]) == model.predict(pictures(place / "test")[0])
    assert again.history_ == model.history_
    assert again.encoder_name == model.encoder_name
    for step in (
        lambda each: each.learn(place / "yellow"),
        lambda each: each.forget(place / "more"),
        lambda each: each.rename_class("red", "zinc"),
        lambda each: each.learn(place / "yellow"),
    ):
        for each in (model, again):
            step(each)
        assert_same(model, again, place, tolerance=1e-9)
        np.testing.assert_allclose(likelihoods(model), likelihoods(again), rtol=1e-9)
    again.save(tmp_path / "m.visvm")
    assert_same(
        ImageClassifier.load(tmp_path / "m.visvm", encoder=encoder, cache=False),
        again,
        place,
        tolerance=0,
    )


def test_numpy_numbers_as_options_can_be_saved(make, place, tmp_path, encoder):
    model = make(
        np.int64(50),
        ridge=np.int64(2),
        svm_cost=np.int32(5),
        layers=np.array([1, 3]),
        random_state=np.int64(4),
    )
    model.learn(place / "base")
    model.save(tmp_path / "m.visvm")
    assert_same(
        ImageClassifier.load(tmp_path / "m.visvm", encoder=encoder, cache=False),
        model,
        place,
        tolerance=0,
    )


def test_without_a_kernel_map(make, place, tmp_path, encoder):
    model = make(None)
    model.learn(place / "base")
    model.save(tmp_path / "m.visvm")
    again = ImageClassifier.load(tmp_path / "m.visvm", encoder=encoder, cache=False)
    for each in (model, again):
        each.learn(place / "yellow")
    assert_same(model, again, place, tolerance=1e-9)


def test_the_encoder_is_found_again_by_its_path(place, tmp_path):
    model = ImageClassifier(str(place / "tiny.onnx"), n_components=30, cache=False)
    model.learn(place / "base")
    model.save(tmp_path / "m.visvm")
    assert_same(ImageClassifier.load(tmp_path / "m.visvm", cache=False), model, place, tolerance=0)


def test_an_exported_model_predicts_the_same_and_cannot_learn(based, place, tmp_path, encoder):
    based.save(tmp_path / "whole.visvm")
    based.export(tmp_path / "small.visvm")
    assert (tmp_path / "small.visvm").stat().st_size < (tmp_path / "whole.visvm").stat().st_size
    small = ImageClassifier.load(tmp_path / "small.visvm", encoder=encoder, cache=False)
    assert not small.can_learn
    assert_same(small, based, place, tolerance=0)
    assert small.predict(pictures(place / "test")[0]) == based.predict(pictures(place / "test")[0])
    assert small.evaluate(place / "test") == based.evaluate(place / "test")
    with Unchanged(small, place), Unchanged(based, place):
        for attempt in (
            lambda: small.learn(place / "yellow"),
            lambda: small.merge(based),
            lambda: based.merge(small),
            lambda: small.forget(place / "base"),
        ):
            with refused("sums-missing", ModelFileError) as caught:
                attempt()
            assert "exported" in str(caught.value)
    small.save(tmp_path / "again.visvm")  # what it has can be written again
    assert_same(
        ImageClassifier.load(tmp_path / "again.visvm", encoder=encoder, cache=False),
        based,
        place,
        tolerance=0,
    )


def test_loaded_for_prediction_the_sums_stay_on_disk(based, place, tmp_path, encoder):
    based.save(tmp_path / "m.visvm")
    light = ImageClassifier.load(
        tmp_path / "m.visvm", encoder=encoder, cache=False, for_prediction=True
    )
    assert not light.can_learn
    assert_same(light, based, place, tolerance=0)
    light.export(tmp_path / "small.visvm")
    based.export(tmp_path / "direct.visvm")
    assert model_file.read_header(tmp_path / "small.visvm") == model_file.read_header(
        tmp_path / "direct.visvm"
    )


def test_another_encoder_of_the_same_name_is_refused(place, tmp_path):
    path = tiny.write_encoder(tmp_path)
    model = ImageClassifier(str(path), n_components=30, cache=False)
    model.learn(place / "base")
    model.save(tmp_path / "m.visvm")
    tiny.write_encoder(tmp_path, seed=1)
    again = ImageClassifier.load(tmp_path / "m.visvm", cache=False)
    for attempt in (
        lambda: again.predict(place / "test/red/3-0.png"),
        lambda: again.learn(place / "yellow"),
        lambda: again.forget(place / "base"),
        lambda: ImageClassifier.load(tmp_path / "m.visvm", encoder=load_encoder(str(path))),
    ):
        with refused("encoder-mismatch", IncompatibleModelError) as caught:
            attempt()
        assert "tiny.onnx" in str(caught.value)
    assert again.classes_ == model.classes_
    assert again.history_ == model.history_


def test_other_preprocessing_is_another_encoder(place, tmp_path):
    path = tiny.write_encoder(tmp_path)
    model = ImageClassifier(str(path), n_components=30, cache=False)
    model.learn(place / "base")
    model.save(tmp_path / "m.visvm")
    beside = Path(f"{path}.json")
    beside.write_text(beside.read_text().replace("0.5", "0.25"))
    with refused("encoder-mismatch", IncompatibleModelError):
        ImageClassifier.load(tmp_path / "m.visvm", cache=False).predict(place / "test/red/3-0.png")


def test_a_memory_limit_can_be_given_when_loading(based, place, tmp_path, encoder):
    based.save(tmp_path / "m.visvm")
    again = ImageClassifier.load(
        tmp_path / "m.visvm", encoder=encoder, cache=False, memory_limit=1000
    )
    with Unchanged(again, place), pytest.raises(MemoryLimitError):
        again.learn(place / "yellow")
