"""predict on a clip and on a camera."""

import json
import sys

import numpy as np
import pytest
from PIL import Image

from tests import tiny
from tests.clips import write_clip
from tests.encoders.test_video import video
from visvm import ImageClassifier
from visvm.cli.figures import draw_moments
from visvm.encoders.video import video_frames
from visvm.model.over_time import Moment
from visvm.model.results import Prediction


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """m.visvm and clip.mp4: two seconds of red, two of blue."""
    folder = tmp_path_factory.mktemp("watched")
    tiny.write_model(folder)
    write_clip(folder / "clip.mp4")
    return folder


@pytest.fixture
def said(visvm, place, monkeypatch):
    monkeypatch.chdir(place)

    def run(*arguments):
        code, out, err = visvm("predict", "m.visvm", *arguments, "--json", "--quiet")
        assert (code, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]

    return run


def test_a_clip_is_answered_over_time(said):
    lines = said("clip.mp4", "--every", "1s", "--window", "0s")
    assert [line["seconds"] for line in lines] == [0.0, 1.0, 2.0, 3.0]
    assert [line["label"] for line in lines] == ["red", "red", "blue", "blue"]
    assert {line["frames"] for line in lines} == {1}
    assert {line["path"] for line in lines} == {"clip.mp4"}
    assert lines == said("clip.mp4", "--window", "0s")  # its name says that it is one
    assert len(said("clip.mp4", "--every", "500ms")) == 8
    assert len(said("clip.mp4", "--for", "2s")) == 2


def test_scores_are_averaged_over_the_window(said, place):
    lines = said("clip.mp4", "--window", "2s", "--raw", "--top", "3")
    assert [line["frames"] for line in lines] == [1, 2, 2, 2]
    assert lines == said("clip.mp4", "--window", "1.5s", "--raw", "--top", "3")
    assert [line["frames"] for line in said("clip.mp4")] == [1, 2, 3, 3]
    model = ImageClassifier.load(place / "m.visvm", cache=False)
    shown = [frame.image for frame in video_frames(place / "clip.mp4", 1.0)]
    alone = [dict(each.top) for each in model.predict(shown, raw=True)]
    wanted = {label: (alone[1][label] + alone[2][label]) / 2 for label in alone[1]}
    assert {each["label"]: each["score"] for each in lines[2]["top"]} == pytest.approx(wanted)


def test_views(said):
    one, mirrored = (said("clip.mp4", "--raw", "--views", each) for each in ("one", "crops"))
    assert [line["label"] for line in one] == [line["label"] for line in mirrored]
    assert one != mirrored


def pixels_of(path):
    with Image.open(path) as image:
        return np.asarray(image)


def test_lines_to_read_and_a_figure(visvm, place, monkeypatch, tmp_path):
    monkeypatch.chdir(place)
    code, out, _ = visvm("predict", "m.visvm", "clip.mp4", "--plot", tmp_path / "a.png")
    assert code == 0
    assert out.splitlines()[3].startswith("clip.mp4 0:03.0: ")
    assert pixels_of(tmp_path / "a.png").shape[1] > 500
    model = ImageClassifier.load(place / "m.visvm", cache=False)
    moments = list(model.predict_video(place / "clip.mp4"))
    drawn = []
    for given, raw in ((moments, False), (moments[:2], False), (moments, True), ([], False)):
        draw_moments(given, tmp_path / "b.png", raw=raw)
        drawn.append(pixels_of(tmp_path / "b.png").tobytes())
    assert len(set(drawn)) == 4


def test_a_line_does_not_end_where_its_class_is_not_named(tmp_path):
    drawn = []
    for last in ((("a", 1.0),), (("a", 1.0), ("b", 0.0)), (("a", 1.0), ("c", 0.01))):
        tops = (("a", 0.6), ("b", 0.4)), last
        moments = [
            Moment(float(place), 1, Prediction(*top[0], top, "v")) for place, top in enumerate(tops)
        ]
        draw_moments(moments, tmp_path / "a.png", raw=False)
        drawn.append(pixels_of(tmp_path / "a.png").tobytes())
    assert len(set(drawn)) == 1


def test_a_figure_does_not_change_the_lines(said, tmp_path):
    plain = said("clip.mp4", "--top", "1")
    assert [len(line["top"]) for line in plain] == [1] * len(plain)
    assert said("clip.mp4", "--top", "1", "--plot", str(tmp_path / "a.png")) == plain


def test_a_camera_until_it_is_interrupted(said, place, monkeypatch, tmp_path):
    monkeypatch.setitem(
        video._CAMERAS, sys.platform, ("lavfi", "color=c=0xdc1e1e:size=64x48:rate=1{}")
    )
    lines = said("--camera", "0", "--for", "3s")
    assert [(line["path"], line["label"]) for line in lines] == [("camera 0", "red")] * 3
    shown, whole = [], video.Frame.__init__

    def interrupted(*arguments, **options):
        shown.append(arguments)
        if len(shown) > 2:
            raise KeyboardInterrupt
        whole(*arguments, **options)

    monkeypatch.setattr(video.Frame, "__init__", interrupted)
    assert len(said("--camera", "0", "--plot", str(tmp_path / "a.svg"))) == 2
    assert (tmp_path / "a.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--camera", "93"), "camera-missing"),
        (("--camera", "0", "clip.mp4"), "option-camera-or-image"),
        ((), "images-missing"),
        (("clip.mp4", "m.visvm"), "video-alone"),
        (("photos", "photos", "--every", "1s"), "video-alone"),
        (("photos", "--window", "1s"), "option-of-video"),
        (("photos", "--every", "1s"), "video-unreadable"),
        (("clip.mp4", "--csv"), "option-csv-or-video"),
        (("clip.mp4", "--every", "0s"), "time-invalid"),
        (("clip.mp4", "--every", "soon"), "time-invalid"),
        (("clip.mp4", "--for", "9999min"), "time-invalid"),
        (("clip.mp4", "--plot", "a.txt"), "figure-kind-unknown"),
        (("none.mp4",), "video-unreadable"),
    ],
)
def test_refused(visvm, place, monkeypatch, arguments, code):
    monkeypatch.chdir(place)
    outcome = visvm("predict", "m.visvm", *arguments)
    assert (outcome[0], outcome[1], outcome.error_code) == (2, "", code)
    assert outcome[2].count("\n") == 1


@pytest.mark.parametrize("wrong", [{"every": 0.0}, {"window": -1.0}, {"top": 0}])
def test_parameters(place, wrong):
    model = ImageClassifier.load(place / "m.visvm", cache=False)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        model.predict_video(place / "clip.mp4", **wrong)
