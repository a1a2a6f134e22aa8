"""The part of predict that asks about videos and cameras: answers over time, and their figure."""

import re
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visvm.cli.options import require_drawing, require_unread
from visvm.errors import InputError

if TYPE_CHECKING:
    from visvm.model.predictor import ImagePredictor

_DRAWN_FROM = 100  # classes that are named for the figure: another one has less than 1 %

Every = Annotated[
    str | None,
    typer.Option(
        help="IMAGE is a video: answer for every so many seconds of it, such as 0.5s or 2min.",
        show_default="1s",
    ),
]
Window = Annotated[
    str | None,
    typer.Option(
        help="Of a video: average the scores over the last so many seconds; 0s takes each "
        "frame alone.",
        show_default="3s",
    ),
]
Camera = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Ask about what this camera sees instead of IMAGE, until Ctrl-C; 0 is the first.",
    ),
]
Duration = Annotated[
    str | None, typer.Option("--for", help="Of a video or camera: how long to look, such as 30s.")
]
Plot = Annotated[
    Path | None,
    typer.Option(help="Of a video: draw the answers over time to this PNG, PDF or SVG file."),
]

_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "": 1.0}


def video_of(images: list[str], camera: int | None, timing: Mapping[str, Any]) -> str | int | None:
    """Return the video that is meant, or the camera; None where photos are.

    Parameters
    ----------
    images : list of str
    camera : int, optional
    timing : mapping
        The options of videos that were given, by name.
    """
    from visvm.encoders.video import VIDEO_SUFFIXES

    videos = [each for each in images if Path(each).suffix.lower() in VIDEO_SUFFIXES]
    if camera is not None and images:
        advice = "--camera and IMAGE were both given. Leave one of them out."
        raise InputError(advice, code="option-camera-or-image")
    if camera is None and not images:
        advice = "Neither IMAGE nor --camera was given. See 'visvm predict --help'."
        raise InputError(advice, code="images-missing")
    if len(images) > 1 and (videos or timing):
        advice = f"{(videos or images)[0]} is not alone. Give one video at a time."
        raise InputError(advice, code="video-alone")
    if camera is None and timing and "every" not in timing and not videos:
        option = "--" + next(iter(timing)).replace("duration", "for")
        advice = f"{option} is for videos. Give --every, --camera or a video's name."
        raise InputError(advice, code="option-of-video")
    if camera is not None:
        return camera
    return images[0] if videos or timing else None


def seconds_of(text: str, option: str, least: float) -> float:
    """Return the seconds that an option gives.

    Examples
    --------
    >>> seconds_of("500ms", "--every", 0.001), seconds_of("2min", "--for", 0.001)
    (0.5, 120.0)
    """
    from visvm.encoders.video import MAX_SECONDS

    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+) ?(ms|s|min|)", text)
    seconds = float(found[1]) * _UNITS[found[2]] if found else -1.0
    if not least <= seconds <= MAX_SECONDS:
        advice = f"{option} is {text!r}. Give a time such as 1s, 500ms or 2min, at most 24 hours."
        raise InputError(advice, code="time-invalid")
    return seconds


def watch(
    predictor: "ImagePredictor",
    video: str | int,
    timing: Mapping[str, Any],
    how: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Show what a video shows, moment by moment."""
    from visvm.cli.answers import show_answer

    plot = timing.get("plot")
    if plot is not None:
        require_drawing()
        from visvm.cli.figures import check_figure_name, draw_moments

        check_figure_name(plot)
        require_unread(plot, None if isinstance(video, int) else video)
    least = {"every": 1e-3, "window": 0.0, "duration": 1e-3}
    options = {"every": "--every", "window": "--window", "duration": "--for"}
    given: dict[str, Any] = {
        name: seconds_of(timing[name], option, least[name])
        for name, option in options.items()
        if name in timing
    }
    drawn, asked = [], how if plot is None else {**how, "top": max(how["top"], _DRAWN_FROM)}
    # Ctrl-C is how a camera ends
    with suppress(KeyboardInterrupt) if isinstance(video, int) else nullcontext():
        for moment in predictor.predict_video(video, **given, **asked):
            answer = replace(moment.answer, top=moment.answer.top[: how["top"]])
            show_answer(answer, raw=how["raw"], as_json=as_json, moment=moment)
            if plot is not None:
                drawn.append(moment)
    if plot is not None:
        draw_moments(drawn, plot, raw=how["raw"])
