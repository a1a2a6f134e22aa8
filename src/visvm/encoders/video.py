"""Frames of a video or a camera, one at a time: no other file opens videos (extra ``video``).

FFmpeg, through PyAV, reads what anybody may have made. So only containers and codecs that cameras
and phones write are opened, no playlist and nothing that names another file or a server. Pixels of
a frame, frames a second and length are bounded, and only one frame is kept.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from PIL import Image

from visvm.encoders.files import opened_file
from visvm.errors import ImageError, InputError, shown

if TYPE_CHECKING:
    from av.container import InputContainer

VIDEO_SUFFIXES: Final = {
    *(".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mts", ".m2ts", ".ts", ".3gp"),
    *(".mpg", ".mpeg", ".wmv", ".flv", ".ogv"),
}
MAX_SECONDS: Final = 24 * 3600.0
MAX_FRAME_PIXELS: Final = 36_000_000  # 8K
_MAX_RATE: Final = 1000  # frames a second
_FORMATS: Final = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,flv,asf,ogg"
_CODECS: Final = (
    *("h264", "hevc", "av1", "libdav1d", "libaom-av1", "vp8", "libvpx", "vp9", "libvpx-vp9"),
    *("mpeg4", "mpeg2video", "mpeg1video", "h263", "mjpeg", "prores", "theora", "flv"),
    *("wmv1", "wmv2", "wmv3", "vc1"),
)
_SAFE: Final = {
    "format_whitelist": _FORMATS,
    "codec_whitelist": ",".join(_CODECS),  # of what looks for streams, before any is decoded
    "protocol_whitelist": "none",
}
_CAMERAS: Final = {"linux": ("v4l2", "/dev/video{}"), "darwin": ("avfoundation", "{}")}


@dataclass(frozen=True)
class Frame:
    """A picture of a video, upright, and when it is shown: seconds after the first one."""

    seconds: float
    image: Image.Image


def video_frames(path: Path, every: float, duration: float | None = None) -> Iterator[Frame]:
    """Yield the first frame of a file, and then one for every so many seconds.

    Parameters
    ----------
    path : Path
    every : float
    duration : float, optional
        How many seconds to look at; all by default.

    Raises
    ------
    ImageError
        Where it cannot be read, has no frames, or would take days.
    """
    av = _av(str(path))
    try:
        with (
            opened_file(path) as file,
            av.open(file, options=_SAFE, metadata_errors="replace") as container,
        ):
            yield from _frames(container, shown(path), every, duration)
    except (av.error.FFmpegError, OSError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise ImageError(
            f"{shown(path)} cannot be read as a video ({reason}). Correct it, or save it as MP4.",
            code="video-unreadable",
        ) from error


def camera_frames(number: int, every: float, duration: float | None = None) -> Iterator[Frame]:
    """Yield frames of a camera of this machine, 0 is the first; until the end of `duration`."""
    name, av = f"Camera {number}", _av(f"camera {number}")
    kind, place = _CAMERAS.get(sys.platform, (None, ""))
    if kind is None:
        advice = f"{name} cannot be used on this system. Record a video, and give that."
        raise InputError(advice, code="camera-missing")
    try:
        with av.open(place.format(number), format=kind) as container:
            yield from _frames(container, name, every, duration, live=True)
    except (av.error.FFmpegError, OSError, ValueError) as error:  # also a format PyAV lacks
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"{name} cannot be used ({reason}). Connect it, get access to it, close other programs "
            "that use it, or give another number.",
            code="camera-missing",
        ) from error


def _av(what: str) -> ModuleType:
    try:
        import av

        return av
    except ModuleNotFoundError as error:
        raise InputError(
            f"{shown(what)} cannot be read without PyAV. Run pip install 'visvm[video]'.",
            code="package-missing",
        ) from error


def _frames(
    container: "InputContainer",
    name: str,
    every: float,
    duration: float | None,
    live: bool = False,
) -> Iterator[Frame]:
    """Yield the frames of an open container that are due."""
    if not container.streams.video:
        raise ImageError(f"{name} has no frames. Give a video.", code="video-empty")
    stream = container.streams.video[0]
    # None where it is unknown, whatever PyAV's types say; a camera gives what its system does
    codec = getattr(stream.codec_context, "name", None)
    if codec is None or not (live or codec in _CODECS):
        raise OSError("its codec is unknown, or not one of cameras and phones")
    stream.codec_context.options = {"max_pixels": str(MAX_FRAME_PIXELS)}
    first, due, n_decoded = None, 0.0, 0
    for frame in container.decode(stream):
        time = frame.time
        if frame.pts is None:  # some containers have no times
            time = n_decoded / float(stream.average_rate or 25)
        first = time if first is None else first
        seconds, n_decoded = float(time - first), n_decoded + 1
        if duration is not None and seconds >= duration:
            return
        if not live:
            _require_bounded(name, seconds, n_decoded)
        if seconds >= due:
            yield Frame(seconds, _picture(frame))
            due = (seconds // every + 1.0) * every
    if first is None:
        raise ImageError(f"{name} has no frames. Give a video.", code="video-empty")


def _require_bounded(name: str, seconds: float, n_decoded: int) -> None:
    """Refuse what would take days."""
    if seconds > MAX_SECONDS:
        raise ImageError(
            f"{name} is longer than {MAX_SECONDS / 3600:g} hours. Cut it, or say with --for "
            "(duration=…) how much of it to look at.",
            code="video-excessive",
        )
    if n_decoded > _MAX_RATE * (max(seconds, 0.0) + 1.0):
        raise ImageError(
            f"{name} has more than {_MAX_RATE} frames a second. Give another video.",
            code="video-excessive",
        )


def _picture(frame: Any) -> Image.Image:
    """Return a frame in RGB, turned as its metadata say."""
    pixels = frame.to_ndarray(format="rgb24")
    turns = round(frame.rotation / 90) % 4  # counter-clockwise
    return Image.fromarray(np.ascontiguousarray(np.rot90(pixels, turns)))
