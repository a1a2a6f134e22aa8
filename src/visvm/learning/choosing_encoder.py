"""Which encoder, and which size of the picture, suits the photos of a first session."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from visvm.encoders import weights
from visvm.encoders.cache import feature_key, opened_cache
from visvm.encoders.catalog import CATALOG, DEFAULT_ENCODER
from visvm.encoders.encoder import Encoder, FinalFeatures, LayerFeatures, Pixels, Projected
from visvm.encoders.loading import load_encoder
from visvm.encoders.presets import AUTO, STANDARD, at_every_quality, at_quality, check_quality
from visvm.errors import InputError
from visvm.head.checks import is_positive, parameter_error
from visvm.learning.choosing import (
    encoded_for_trial,
    rights_of,
    shares,
    trial_sample,
    winner,
    with_chosen_transform,
)
from visvm.learning.work import Work
from visvm.model.results import EncoderChoice
from visvm.progress import Progress

_TIMED = 16  # photos by which the speed of a candidate is measured
# The rest is for the trial: the candidates beside the winner take a third of its time at most.
_ENCODING = 0.75  # of the time given
_FEW = "too few photos or classes to try others"


@dataclass(frozen=True)
class WantedEncoder:
    """Which encoder a new model is to have.

    Parameters
    ----------
    name : str or None
        As ``ImageClassifier`` takes it; None means one that is loaded already.
    quality, minutes
        As in ``ImageClassifier``.
    """

    name: str | None
    quality: str | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.quality is not None:
            check_quality(self.quality)
            if self.name is None:
                raise InputError(
                    "An encoder that is loaded takes one size. Give quality=… with its name.",
                    code="size-unsupported",
                )
        if self.minutes is None:
            return
        if not is_positive(self.minutes):
            what = "a number above 0, or None"
            raise parameter_error("ImageClassifier", "minutes", self.minutes, what)
        if self.name != AUTO or self.quality is not None:
            raise InputError(
                "--minutes (minutes=…) lets --encoder auto (encoder=…) choose the size as well. "
                "Give it with that, and without --quality (quality=…).",
                code="minutes-without-auto",
            )

    def candidates(self, progress: Progress) -> list[str]:
        """Return the names of the encoders to choose from, the default one first.

        Of the name "auto" they are the encoders of the catalogue whose weights are on this machine,
        or else the default encoder.
        """
        if self.name is None:
            return []
        if self.name != AUTO and self.quality is None:
            return [self.name]
        quality = self.quality or STANDARD
        if self.name != AUTO:
            return [at_quality(self.name, quality, progress)]
        fetched = [name for name in CATALOG if weights.find(name) is not None] or [DEFAULT_ENCODER]
        names = [at_quality(name, quality) for name in fetched]
        if self.minutes is not None:
            names += [each for name in fetched for each in at_every_quality(name).values()]
        return list(dict.fromkeys(names))


def with_choices(work: Work, wanted: WantedEncoder, transform: str, progress: Progress) -> Work:
    """Return the work of a first session with what is left to it: the encoder, then `transform`."""
    begin = time.perf_counter()
    if wanted.name == AUTO:
        work = with_chosen_encoder(work, wanted, progress)
    if transform == "auto":
        work = with_chosen_transform(work, progress)
    encoder, square = work.encoder_choice, work.choice
    tried = (encoder and encoder.milliseconds) or (square and square.accuracies)
    return replace(work, chosen_since=begin) if tried else work


def with_chosen_encoder(work: Work, wanted: WantedEncoder, progress: Progress) -> Work:
    """Return the work of a first session with the encoder that suits its photos.

    The candidates are tried as the transforms are (``with_chosen_transform``), with the transform
    of the work.

    Parameters
    ----------
    work : Work
        With the default encoder.
    wanted : WantedEncoder
        Candidates that do not learn all photos in its minutes are out. How long they take stays in
        the cache, so that a session that was cut off chooses the same again.
    """
    choice = _choose(work, wanted.candidates(progress), wanted.minutes, progress)
    return replace(_through(work, choice.encoder, progress), encoder_choice=choice)


def _choose(
    work: Work, names: Sequence[str], minutes: float | None, progress: Progress
) -> EncoderChoice:
    if len(names) == 1:
        only = "the only one whose weights are here ('visvm weights list' has others)"
        return EncoderChoice(names[0], only)
    sample = trial_sample(work, len(names))
    if sample is None and minutes is None:
        return EncoderChoice(names[0], f"the default: {_FEW}")
    limit = np.inf if minutes is None else 60 * minutes * _ENCODING / len(work.images.labels)
    trial = _Trial(names[0], limit)
    for name in names:
        candidate = _through(work, name, progress)
        trial.seconds[name] = _seconds_an_image(candidate, progress)
        if sample is not None and trial.seconds[name] <= limit:
            stage = f"trying the encoder {name}"
            trial.rights[name] = rights_of(candidate, sample, stage, progress)
    chosen, why = trial.verdict()
    return EncoderChoice(
        chosen,
        why,
        max(map(len, trial.rights.values()), default=0),
        shares(trial.rights),
        {name: round(1000 * seconds, 1) for name, seconds in trial.seconds.items()},
        minutes,
    )


@dataclass(frozen=True)
class _Trial:
    """What candidates have shown.

    Attributes
    ----------
    default : str
    limit : float
        Seconds that an image may take.
    seconds : dict
        What it takes, by candidate.
    rights : dict of arrays of shape (n,)
        What ``right_unlearned`` returns, by candidate within the limit.
    """

    default: str
    limit: float
    seconds: dict[str, float] = field(default_factory=dict)
    rights: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def verdict(self) -> tuple[str, str]:
        """Return the candidate to take, and why."""
        fitting = {name: each for name, each in self.seconds.items() if each <= self.limit}
        if not fitting:
            fastest = min(self.seconds, key=lambda name: self.seconds[name])
            return fastest, "the fastest, as none encodes all photos in the time given"
        if self.default in fitting and not self.rights:
            return self.default, f"the default: {_FEW}"
        if self.default in fitting:
            best = winner(self.rights, self.default)
            ahead = best != self.default
            return best, "clearly ahead" if ahead else "as no other is clearly ahead"
        late = f"of those that fit the time given, which {self.default} does not"
        if not self.rights:
            return max(fitting, key=lambda name: fitting[name]), f"the most thorough {late}"
        right = shares(self.rights)
        return max(right, key=lambda name: (right[name], -fitting[name])), f"the best {late}"


def _through(work: Work, name: str, progress: Progress) -> Work:
    """Return the same work with the encoder of this name."""
    if name == work.encoder.name:
        return work
    encoder = load_encoder(name, progress)
    options = replace(work.options, layer_dims=encoder.layer_dims)
    options.check("ImageClassifier")
    transform = replace(work.transform, preprocessing=encoder.preprocessing)
    return replace(work, encoder=encoder, transform=transform, options=options)


def _seconds_an_image(work: Work, progress: Progress) -> float:
    """Return how long a photo takes, as measured now or when these photos were first tried."""
    n = len(work.images.sources)
    photos = work.images.at(np.linspace(0, n - 1, min(n, _TIMED)).astype(int).tolist())
    counted, stage = _Counted(work.encoder), f"timing {work.encoder.name}"
    begin = time.perf_counter()
    encoded = encoded_for_trial(replace(work, encoder=counted), photos, stage, progress)
    seconds = time.perf_counter() - begin
    key = feature_key(encoded.features.tobytes(), work.encoder.digest, "seconds an image")
    with opened_cache(work.cache) as cache:
        known = None if cache is None else cache.get(key)
        if known is not None:
            return float(known[0])
        if counted.n < len(encoded.places):  # the others were encoded earlier, which took no time
            begin = time.perf_counter()
            encoded_for_trial(work, photos, stage, progress, cached=False)
            seconds = time.perf_counter() - begin
        # rounded as the cache keeps it, so that a limit is met or missed the same way again
        found = np.array([seconds / max(1, len(encoded.places))], dtype=np.float32)
        if cache is not None:
            cache.put({key: found})
    return float(found[0])


class _Counted:
    """An encoder that counts the images it is given."""

    def __init__(self, encoder: Encoder) -> None:
        self.name, self.digest = encoder.name, encoder.digest
        self.layer_dims, self.preprocessing = encoder.layer_dims, encoder.preprocessing
        self._encoder, self.n = encoder, 0

    def encode(self, pixels: Pixels) -> LayerFeatures:
        self.n += len(pixels)
        return self._encoder.encode(pixels)

    def project(self, final: FinalFeatures) -> Projected:
        return self._encoder.project(final)
