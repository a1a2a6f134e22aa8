"""Frames of clips: which, when, upright, and of nothing that could do harm."""

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from tests.clips import write_clip
from tests.refusals import refused
from visvm.encoders import video
from visvm.encoders.video import camera_frames, video_frames
from visvm.errors import ImageError, InputError


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("video") / "clip.mp4")


def test_a_frame_for_every_so_many_seconds(clip):
    frames = list(video_frames(clip, 1.0))
    assert [frame.seconds for frame in frames] == [0.0, 1.0, 2.0, 3.0]
    colours = [np.array(frame.image).mean(axis=(0, 1)) for frame in frames]
    assert colours[0] == pytest.approx((220, 30, 30), abs=8)
    assert colours[3] == pytest.approx((40, 40, 230), abs=8)
    assert frames[0].image.size == (64, 48)
    assert [frame.seconds for frame in video_frames(clip, 0.5)][:3] == [0.0, 0.6, 1.0]
    assert len(list(video_frames(clip, 0.01))) == 20  # all there are
    assert [frame.seconds for frame in video_frames(clip, 1.0, duration=2.0)] == [0.0, 1.0]


@pytest.mark.parametrize("quarters", [-1, 0, 1, 2])
def test_a_frame_is_turned_as_its_metadata_say(quarters):
    pixels = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    frame = SimpleNamespace(rotation=90 * quarters, to_ndarray=lambda **_: pixels)
    found = np.asarray(video._picture(frame))
    assert found.tolist() == np.rot90(pixels, quarters).tolist()


def test_a_camera_that_is_none():
    with refused("camera-missing", InputError):
        next(camera_frames(93, 1.0))


def test_a_camera(monkeypatch):
    pytest.importorskip("av")
    monkeypatch.setitem(video._CAMERAS, sys.platform, ("lavfi", "testsrc=size=64x48:rate=1{}"))
    frames = list(camera_frames(0, 0.5, duration=2.0))  # ten a second, for ever
    assert [frame.seconds for frame in frames] == [0.0, 0.5, 1.0, 1.5]
    monkeypatch.setattr(video, "_CAMERAS", {})
    with refused("camera-missing", InputError):
        next(camera_frames(0, 1.0))


def test_what_is_no_video_and_what_names_other_files(clip, tmp_path):
    for name, content in {
        "empty.mp4": b"",
        "text.mp4": b"no video" * 1000,
        "cut.mp4": clip.read_bytes()[:900],
        "list.mp4": b"#EXTM3U\n#EXTINF:1,\n" + os.fsencode(clip) + b"\n#EXT-X-ENDLIST\n",
        "concat.mp4": b"ffconcat version 1.0\nfile " + os.fsencode(clip) + b"\n",
    }.items():
        (tmp_path / name).write_bytes(content)
        with refused("video-unreadable", ImageError):
            next(video_frames(tmp_path / name, 1.0))
    for other in (tmp_path / "none.mp4", tmp_path, "/dev/zero"):
        with refused("video-unreadable", ImageError):
            next(video_frames(other, 1.0))


def test_a_codec_of_others_and_a_text_that_is_none(clip, tmp_path):
    content = write_clip(tmp_path / "a.avi", codec="ffvhuff").read_bytes()
    for name in (b"FFVH", b"zzzz"):  # one that is not allowed, one that nobody knows
        (tmp_path / "a.avi").write_bytes(content.replace(b"FFVH", name))
        with refused("video-unreadable", ImageError):
            next(video_frames(tmp_path / "a.avi", 1.0))
    content = clip.read_bytes()
    assert content.count(b"isomiso2") == 1
    (tmp_path / "b.mp4").write_bytes(content.replace(b"isomiso2", b"isom\xff\xff\xff\xff"))
    assert len(list(video_frames(tmp_path / "b.mp4", 1.0))) == 4


def test_sound_alone(tmp_path):
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "a.mp4"), "w") as made:
        stream = made.add_stream("aac", rate=8000)
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 2048), np.float32), "fltp", "mono")
        silence.sample_rate = 8000
        made.mux(stream.encode(silence))
        made.mux(stream.encode())
    with refused("video-empty", ImageError):
        next(video_frames(tmp_path / "a.mp4", 1.0))


def test_bounds(clip, monkeypatch):
    monkeypatch.setattr(video, "MAX_FRAME_PIXELS", 64 * 48 - 1)
    with refused("video-unreadable", ImageError):
        next(video_frames(clip, 1.0))
    monkeypatch.undo()
    monkeypatch.setattr(video, "MAX_SECONDS", 1.5)
    found = video_frames(clip, 1.0)
    assert [next(found).seconds for _ in range(2)] == [0.0, 1.0]
    with refused("video-excessive", ImageError):
        next(found)
    monkeypatch.undo()
    monkeypatch.setattr(video, "_MAX_RATE", 4)
    with refused("video-excessive", ImageError):
        list(video_frames(clip, 1.0))


def test_without_pyav(clip, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with refused("package-missing", InputError):
        next(video_frames(clip, 1.0))
    with refused("package-missing", InputError):
        next(camera_frames(0, 1.0))
