"""Frames → answers over time: the scores of the last seconds, averaged."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from visvm.encoders.encoder import Encoder
from visvm.encoders.transform import Transform
from visvm.encoders.video import Frame
from visvm.model.results import Prediction
from visvm.model.state import Looks, Model


@dataclass(frozen=True)
class Moment:
    """What a video shows at a moment.

    Attributes
    ----------
    seconds : float
        After its first frame.
    n_frames : int
        Over how many frames the scores were averaged.
    answer : Prediction
    """

    seconds: float
    n_frames: int
    answer: Prediction


def moments(
    frames: Iterable[Frame],
    model: Model,
    encoder: Encoder,
    views: Sequence[Transform],
    window: float,
    name: str,
    how: dict[str, Any],
) -> Iterator[Moment]:
    """Yield what each frame shows, with those of the seconds before it.

    Parameters
    ----------
    frames : iterable of Frame
    model : Model
    encoder : Encoder
    views : sequence of Transform
        Shown of every frame.
    window : float
        Seconds over which scores and familiarity are averaged; 0 for each frame alone.
    name : str
        Of the video.
    how : dict
        As ``Model.answers`` takes it.
    """
    kept: deque[tuple[float, Looks]] = deque()
    for frame in frames:
        pixels = np.stack([view.pixels(frame.image) for view in views])
        kept.append((frame.seconds, model.looks(encoder.encode(pixels)[None])))
        while kept[0][0] <= frame.seconds - window and len(kept) > 1:
            kept.popleft()
        scores, strangeness = zip(*(looks for _, looks in kept), strict=True)
        mean = Looks(np.mean(scores, axis=0), np.mean(strangeness, axis=0))
        (answer,) = model.answers(mean, [name], **how)
        yield Moment(frame.seconds, len(kept), answer)
