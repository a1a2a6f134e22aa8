"""Which encoder a first session chooses by its own photos, and in which time."""

import numpy as np
import pytest

from tests import tiny
from tests.encoders import patched
from tests.encoders.patched import BEST, FAST, model, put_into_catalog
from tests.learning.test_choosing import Counting
from tests.refusals import refused
from visvm import ImageClassifier, LocalEngine
from visvm.encoders.loading import load_encoder
from visvm.errors import InputError
from visvm.learning import choosing_encoder
from visvm.learning.choosing_encoder import WantedEncoder, _Trial
from visvm.model.journal import Journal
from visvm.model.results import EncoderChoice
from visvm.progress import silent

pytestmark = pytest.mark.slow

N = 24  # photos of each of four classes
RIGHT = np.array([1.0] * 15 + [0.0] * 5)


@pytest.fixture
def photos(tmp_path):
    return tiny.write_photos(tmp_path / "photos", classes=tuple(tiny.COLOURS), n=N)


@pytest.fixture
def two(monkeypatch, tmp_path):
    """A default encoder that sees no colours, and one that does."""
    put_into_catalog(monkeypatch, tmp_path, blind=model(blind=True), seeing=model(1))


@pytest.fixture
def counting(monkeypatch):
    """Count what each encoder is given, by name."""
    made = {}

    def load(name, progress=silent):
        return made.setdefault(name, Counting(load_encoder(name, progress)))

    monkeypatch.setattr(choosing_encoder, "load_encoder", load)
    monkeypatch.setattr("visvm.image_classifier.load_encoder", load)
    return made


def chosen(photos, **options):
    learned = ImageClassifier("auto", 50, **{"cache": False, "transform": "crop"} | options)
    return learned, learned.learn(photos).encoder


def timed(monkeypatch, **milliseconds):
    """Let encoders take this long, by their name with _ for @."""
    monkeypatch.setattr(
        choosing_encoder,
        "_seconds_an_image",
        lambda work, progress: milliseconds[work.encoder.name.replace("@", "_")] / 1000,
    )


def test_the_encoder_that_is_clearly_ahead_is_chosen(two, photos, tmp_path):
    learned, choice = chosen(photos)
    assert choice.encoder == learned.encoder_name == "seeing"
    assert choice.n >= 12
    assert choice.accuracies["seeing"] > choice.accuracies["blind"]
    assert set(choice.milliseconds) == {"blind", "seeing"}
    assert set(learned.history_[0]["seconds"]) == {"choose", "encode", "learn"}
    learned.save(tmp_path / "m.visvm")
    again = ImageClassifier.load(tmp_path / "m.visvm", cache=False)
    assert again.encoder_name == "seeing"
    assert again.history_[0]["encoder"]["accuracies"] == choice.accuracies
    assert again.evaluate(photos).accuracy == learned.evaluate(photos).accuracy > 0.9
    later = learned.learn(photos)
    assert (later.encoder, set(later.seconds)) == (None, {"encode", "learn"})
    assert "encoder" not in learned.history_[1]


def test_without_a_clear_lead_the_default_stays(monkeypatch, photos, tmp_path):
    put_into_catalog(monkeypatch, tmp_path, one=model(1), other=model(2))
    _, choice = chosen(photos)
    assert choice.encoder == "one"
    assert set(choice.accuracies) == {"one", "other"}


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("transform", ["crop", "auto"])
def test_what_the_winner_encoded_is_not_encoded_again(two, photos, counting, cached, transform):
    learned, choice = chosen(photos, cache=cached, transform=transform)
    report = learned.history_[0]
    again = 0 if transform == "crop" else 2 * report["transform"]["n"]
    assert counting["seeing"].n == 4 * N + again
    assert choice.n <= counting["blind"].n <= choice.n + 16
    assert (report["transform"] is None) == (transform == "crop")


def test_few_photos_take_the_default(two, photos, counting):
    learned, choice = chosen(tiny.write_photos(photos.parent / "few"))
    assert choice == EncoderChoice("blind", choice.why)
    assert set(counting) == {"blind"}
    assert learned.encoder_name == "blind"


def test_the_candidates_are_those_fetched(monkeypatch, tmp_path, photos):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "empty"))
    assert WantedEncoder("auto").candidates(silent) == ["dinov2-s14"]
    put_into_catalog(monkeypatch, tmp_path, one=model(1), other=model(2))
    assert WantedEncoder("auto").candidates(silent) == ["one", "other"]
    at_best = WantedEncoder("auto", "best").candidates(silent)
    assert at_best == [f"one@{BEST}", f"other@{BEST}"]
    sizes = WantedEncoder("auto", minutes=1).candidates(silent)
    assert sizes[:2] == ["one", "other"]
    assert {*sizes[2:]} == {f"{name}@{size}" for name in ("one", "other") for size in (FAST, BEST)}
    put_into_catalog(monkeypatch, tmp_path, one=model(1))
    assert chosen(photos)[1].n == 0


def test_a_quality_holds_for_all_candidates(two, photos):
    learned, choice = chosen(photos, quality="best")
    assert choice.encoder == learned.encoder_name == f"seeing@{BEST}"
    assert learned.load_encoder().preprocessing.size == BEST


def test_what_takes_too_long_is_not_tried(two, photos, monkeypatch):
    slow = {f"seeing_{size}": 1e6 for size in (FAST, BEST)} | {"seeing": 1e6}
    timed(monkeypatch, blind=1, **{f"blind_{FAST}": 1, f"blind_{BEST}": 1}, **slow)
    learned, choice = chosen(tiny.write_photos(photos, tuple(tiny.COLOURS), 80), minutes=1)
    assert learned.encoder_name.startswith("blind")
    assert set(choice.accuracies) == {"blind", f"blind@{FAST}", f"blind@{BEST}"}
    assert set(choice.milliseconds) > set(choice.accuracies)
    assert choice.minutes == 1


def test_where_none_fits_the_fastest_is_taken(two, photos, counting, monkeypatch):
    names = [f"{name}{size}" for name in ("blind", "seeing") for size in ("", "_10", "_24")]
    timed(monkeypatch, **dict.fromkeys(names, 9e6) | {"seeing_10": 8e6})
    learned, choice = chosen(photos, minutes=0.01)
    assert learned.encoder_name == f"seeing@{FAST}"
    assert "none" in choice.why
    assert counting["blind"].n == 0


@pytest.mark.parametrize(
    ("limit", "seconds", "rights", "wanted"),
    [
        (9, {"a": 1, "b": 5}, {"a": RIGHT, "b": np.ones(20)}, "b"),
        (9, {"a": 1, "b": 5}, {"a": RIGHT, "b": np.r_[RIGHT[:-1], 1.0]}, "a"),
        (3, {"a": 1, "b": 5}, {"a": RIGHT}, "a"),
        (3, {"a": 5, "b": 1, "c": 2}, {"b": RIGHT, "c": np.r_[RIGHT[:-1], 1.0]}, "c"),
        (3, {"a": 5, "b": 1, "c": 2}, {"b": RIGHT, "c": RIGHT}, "b"),
        (3, {"a": 5, "b": 1, "c": 2}, {}, "c"),
        (3, {"a": 2, "b": 1}, {}, "a"),
        (0.5, {"a": 5, "b": 1, "c": 2}, {}, "b"),
    ],
)
def test_the_verdict(limit, seconds, rights, wanted):
    assert _Trial("a", limit, seconds, rights).verdict()[0] == wanted


def test_the_time_of_a_photo_is_measured_once(two, photos, counting, monkeypatch):
    clock = iter(range(0, 10_000, 16))
    monkeypatch.setattr(choosing_encoder.time, "perf_counter", lambda: next(clock))
    first = chosen(photos, cache=True)[1].milliseconds
    assert set(first.values()) == {1000.0}
    monkeypatch.setattr(choosing_encoder.time, "perf_counter", lambda: 0.0)
    assert chosen(photos, cache=True)[1].milliseconds == first


def test_photos_encoded_before_are_timed_all_the_same(two, photos, counting):
    ImageClassifier("blind", 50, transform="crop").learn(photos)
    assert chosen(photos, cache=True)[1].milliseconds["blind"] > 0
    assert counting["blind"].n == 16


@pytest.mark.parametrize("minutes", [None, 60])
def test_a_session_that_was_cut_off_resumes(two, photos, tmp_path, minutes):
    def stop(stage, done, total):
        if stage == "encoding" and done == total:
            raise KeyboardInterrupt

    def taught(progress=silent):
        made = ImageClassifier("auto", 50, transform="crop", minutes=minutes, max_base_images=20)
        engine = LocalEngine(Journal(tmp_path / "m", every=0))
        return made, made.learn(photos, engine=engine, progress=progress)

    with pytest.raises(KeyboardInterrupt):
        taught(stop)
    with pytest.warns(UserWarning, match="Resuming after"):
        learned, report = taught()
    assert (report.n_images, learned.encoder_name) == (4 * N, report.encoder.encoder)


def test_what_fails_leaves_the_choice_open(two, photos):
    (photos / "red" / "broken.png").write_bytes(b"no image")
    learned = ImageClassifier("auto", 50, transform="crop", cache=False)
    with refused("images-unreadable"):
        learned.learn(photos)
    assert (learned.encoder_name, learned.model_) == ("auto", None)
    assert learned.learn(photos, skip_unreadable=True).encoder.encoder == "seeing"


def test_a_folder_called_auto_is_not_meant(two, photos, monkeypatch, tmp_path):
    (tmp_path / "auto").mkdir()
    monkeypatch.chdir(tmp_path)
    assert chosen(photos)[1].encoder == "seeing"


def test_minutes_need_auto(tmp_path):
    with refused("minutes-without-auto", InputError):
        ImageClassifier(minutes=5)
    with refused("minutes-without-auto", InputError):
        ImageClassifier("auto", minutes=5, quality="best")
    for minutes in (0, -1, float("nan"), "5"):
        with refused("parameter-minutes", InputError):
            ImageClassifier("auto", minutes=minutes)
    with refused("minutes-without-auto", InputError):
        ImageClassifier(load_encoder(str(patched.write_encoder(tmp_path))), minutes=5)
