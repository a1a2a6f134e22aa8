"""Views of photos from files: learned, remembered, asked, merged and forgotten together."""

import numpy as np
import pytest

from tests import tiny
from tests.cli.test_main import refused as refused_line
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.encoders.images import decode
from visvm.encoders.transform import Transform
from visvm.errors import IncompatibleModelError, InputError
from visvm.head.head import as_rows
from visvm.learning import local as learning
from visvm.learning.local import LocalEngine
from visvm.model.journal import Journal


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "base", n=8)
    tiny.write_photos(folder / "later", classes=("yellow", "red"), n=5, seed=1)
    tiny.write_photos(folder / "test", classes=tuple(tiny.COLOURS), n=4, seed=3)
    return folder


def make(place, views="mirror", width=300):
    return ImageClassifier(
        str(place / "tiny.onnx"), width, transform="squash", views=views, cache=False, ridge=1.0
    )


def files(place, folder="test"):
    return sorted((place / folder).rglob("*.png"))


def scores(model, place, views="one"):
    got = model.predict(files(place), raw=True, top=99, views=views)
    return np.array([[dict(each.top)[label] for label in model.classes_] for each in got])


def features(model, paths, views):
    """Layer features of every view, (n, V, width), one picture at a time."""
    encoder = model.load_encoder()
    transforms = Transform("squash", encoder.preprocessing).views(views)
    return np.array(
        [
            [encoder.encode(decode(path.read_bytes(), view)[None])[0] for view in transforms]
            for path in paths
        ]
    )


@pytest.mark.parametrize("views", ["mirror", "crops"])
@pytest.mark.parametrize("width", [20, 300])
def test_the_sums_hold_every_view_and_count_every_photo_once(place, views, width):
    model = make(place, views, width)
    model.learn(place / "base")
    model.learn(place / "later")
    assert model.class_counts_ == (8, 8, 13, 5)
    paths = files(place, "base") + files(place, "later")
    rows, labels, weight = as_rows(
        features(model, paths, views), np.array([path.parent.name for path in paths])
    )
    blank = make(place, "one", width)
    blank.learn(place / "base")
    plain, settled = blank.model_.head.settled, model.model_.head.settled
    assert settled.lift.digests == plain.lift.digests  # settled on whole pictures
    sums = model.model_.head.statistics
    lifted = settled.lift(rows)
    wanted = (weight[:, None] * lifted).T @ (labels[:, None] == np.array(model.classes_))
    np.testing.assert_allclose(sums.class_sums[:-1], wanted, rtol=1e-5, atol=1e-5)
    assert np.abs(scores(model, place)[:, :3] - scores(blank, place)).max() > 1e-3


def test_forgetting_takes_all_views_and_a_file_remembers_them(place, tmp_path):
    model, never = make(place), make(place)
    for each in (model, never):
        each.learn(place / "base")
    model.learn(place / "later")
    model.save(tmp_path / "m.visvm")
    again = ImageClassifier.load(tmp_path / "m.visvm", cache=False)
    assert again.views == "mirror"
    assert again.forget(place / "later") == 10
    assert again.class_counts_ == never.class_counts_
    np.testing.assert_allclose(scores(again, place), scores(never, place), atol=1e-6)


def test_predicting_takes_the_mean_over_views_whatever_was_learned(place):
    model = make(place, "one")
    model.learn(place / "base")
    for views in ("mirror", "crops"):
        every = features(model, files(place), views)
        wanted = np.mean([model.scores(every[:, view]) for view in range(every.shape[1])], axis=0)
        np.testing.assert_allclose(scores(model, place, views), wanted, atol=1e-5)
        assert np.abs(wanted - scores(model, place)).max() > 1e-3
    right = model.evaluate(place / "test", views="crops")
    guesses = [each.label for each in model.predict(files(place), views="crops")]
    known = [path for path in files(place) if path.parent.name in model.classes_]
    pairs = zip(files(place), guesses, strict=True)
    hits = sum(guess == path.parent.name for path, guess in pairs)
    assert right.accuracy == hits / len(known)


def test_models_of_other_views_are_not_merged(place):
    mirror, plain = make(place), make(place, "one")
    for model in (mirror, plain):
        model.learn(place / "base")
    with refused("merge-encoder", IncompatibleModelError):
        mirror.merge(plain)


def test_a_session_of_several_views_goes_on_where_it_stopped(place, tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "_MOST_ROWS", 4)

    def stop(stage, done, _total):
        if stage == "encoding" and done >= 6:
            raise KeyboardInterrupt

    straight, broken = make(place), make(place)
    for model in (straight, broken):
        model.learn(place / "base")
    straight.learn(place / "later")
    journal = Journal(tmp_path / "m.visvm", every=0.0)
    with pytest.raises(KeyboardInterrupt):
        broken.learn(place / "later", engine=LocalEngine(journal), progress=stop)
    with pytest.warns(UserWarning, match="Resuming after"):
        broken.learn(place / "later", engine=LocalEngine(journal))
    np.testing.assert_allclose(scores(broken, place), scores(straight, place), atol=1e-9)
    likelihoods = [each.model_.calibration.likelihoods for each in (broken, straight)]
    np.testing.assert_allclose(*likelihoods, rtol=1e-6)


def test_the_command_line_says_what_views_cost_and_refuses_others(place, tmp_path, visvm):
    model = tmp_path / "m.visvm"
    new = ("--encoder", place / "tiny.onnx", "--components", 50, "--no-cache")
    refused_line(
        visvm("learn", model, place / "base", *new, "--views", "all"), code="views-unknown"
    )
    learned = visvm("learn", model, place / "base", *new, "--views", "crops")
    assert (learned[0], "5 × as long" in learned[2]) == (0, True)
    assert "views crops" in visvm("info", model)[1]
    refused_line(
        visvm("learn", model, place / "later", "--views", "one"), code="option-of-new-model"
    )
    photo = files(place)[0]
    one, mirror = (visvm("predict", model, photo, "--raw", "--views", v) for v in ("one", "mirror"))
    assert "2 × as long" in mirror[2]
    assert "as long" not in one[2]
    assert one[1] != mirror[1]
    refused_line(visvm("predict", model, photo, "--views", "x"), code="views-unknown")


def test_views_that_are_none_are_refused(place):
    with refused("views-unknown", InputError):
        make(place, "both")
    model = make(place, "one")
    model.learn(place / "base")
    with refused("views-unknown", InputError):
        model.predict(files(place), views=["whole"])
