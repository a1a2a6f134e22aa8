"""Images in, answers out: what a model does that has learned, or was read from a file.

``ImageClassifier`` is this and learning.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, cast

import numpy as np
from numpy.typing import NDArray

from visvm.encoders.cache import FeatureCache, opened_cache
from visvm.encoders.catalog import CATALOG
from visvm.encoders.encoder import Encoder, LayerFeatures
from visvm.encoders.images import Transform, check_transform
from visvm.encoders.loading import load_encoder
from visvm.encoders.pipeline import Unreadable, encode_files, encode_stream
from visvm.encoders.sources import Source, as_source, expanded
from visvm.errors import (
    EncoderError,
    ImageError,
    IncompatibleModelError,
    InputError,
    WeightsError,
    shown,
)
from visvm.head.calibration import INVERSE_TEMPERATURES, probabilities
from visvm.head.predictor import Predictor
from visvm.learning.labelled import Images, Labelled, read_labelled
from visvm.model.labels import Label
from visvm.model.results import Evaluation, Prediction, evaluate_labels
from visvm.progress import Progress, silent

Array = NDArray[np.float64]

HOW_TO_LEAVE_OUT = (
    "repair or remove them, or leave them out with --skip-unreadable (skip_unreadable=True)"
)


class ImagePredictor(ABC):
    """What encodes images and says what they show, by a head that is somebody else's.

    Parameters
    ----------
    encoder, transform, cache
        As in ``ImageClassifier``.
    """

    def __init__(
        self, encoder: str | Encoder, transform: str, cache: bool | Path | FeatureCache
    ) -> None:
        self._encoder = None if isinstance(encoder, str) else encoder
        self.encoder_name = _absolute(encoder) if isinstance(encoder, str) else encoder.name
        self.transform = transform
        self.cache = cache
        self._encoder_digest: str | None = None
        self._calibration: Array = np.zeros(len(INVERSE_TEMPERATURES))
        check_transform(transform)

    @property
    @abstractmethod
    def _predictor(self) -> Predictor | None:
        """What predicts, once there is something to predict with."""

    @property
    def classes_(self) -> tuple[Label, ...]:
        """The classes known, sorted."""
        predictor = self._predictor
        return () if predictor is None else tuple(predictor.classes.tolist())

    def load_encoder(self, progress: Progress = silent) -> Encoder:
        """The encoder, loaded when it is first needed; weights that are not on this machine yet are fetched."""
        if self._encoder is None:
            if self.encoder_name in CATALOG:  # known before anything is fetched
                self._check_digest(CATALOG[self.encoder_name].sha256)
            try:
                encoder = load_encoder(self.encoder_name, progress)
            except (EncoderError, WeightsError) as error:
                if (
                    self._encoder_digest is None
                    or not Path(self.encoder_name).is_absolute()
                    or Path(self.encoder_name).exists()
                ):
                    raise
                raise EncoderError(
                    f"the model's encoder must be on this machine; it is not at {self.encoder_name} ({error}): say where it is "
                    "with --encoder (encoder=…)"
                ) from error
            self._check_digest(encoder.digest)
            self._encoder = encoder
        return self._encoder

    def with_encoder(self, encoder: Encoder) -> Self:
        """A copy that uses this encoder, which must have the same weights."""
        twin = copy.copy(self)
        twin._check_digest(encoder.digest)
        twin._encoder = encoder
        return twin

    def _check_digest(self, digest: str) -> None:
        if self._encoder_digest not in (None, digest):
            raise IncompatibleModelError(
                f"a model must be used with the encoder it was learned through, of weights {str(self._encoder_digest)[:12]}; "
                f"those of {self.encoder_name} are {digest[:12]}: give that encoder, or begin a new model"
            )

    # Predicting

    def predict(
        self,
        images: str | Source | Sequence[str | Source],
        *,
        top: int = 5,
        raw: bool = False,
        progress: Progress = silent,
    ) -> list[Prediction]:
        """Say what images show.

        Parameters
        ----------
        images : path or content, or sequence of such
        top : int, default=5
            How many classes to name for each.
        raw : bool, default=False
            Give the head's scores (near +1 for the right class, near -1 for others) instead of
            probabilities.
        progress : callable, optional
        """
        one = isinstance(images, (str, bytes)) or not isinstance(images, Sequence)
        sources = [
            as_source(image)
            for image in cast("Sequence[str | Source]", [images] if one else images)
        ]
        outcomes = list(self.predict_stream(sources, top=top, raw=raw, progress=progress))
        refuse_unreadable(
            [outcome for outcome in outcomes if isinstance(outcome, Unreadable)], "leave them out"
        )
        return [outcome for outcome in outcomes if isinstance(outcome, Prediction)]

    def predict_stream(
        self,
        images: Sequence[Source],
        *,
        top: int = 5,
        raw: bool = False,
        progress: Progress = silent,
    ) -> Iterator[Prediction | Unreadable]:
        """Say what images show, one after the other as they come; those that cannot be read come as ``Unreadable``."""
        self._fitted()
        _check_top(top)
        encoder, done = self.load_encoder(progress), 0
        with opened_cache(self.cache) as cache:
            for outcomes in encode_stream(
                images, encoder, Transform(self.transform, encoder.preprocessing), cache
            ):
                readable = [outcome for outcome in outcomes if not isinstance(outcome, Unreadable)]
                features = np.array([each for _, each in readable])
                predictions = iter(
                    self.predict_features(
                        features, [str(path) for path, _ in readable], top=top, raw=raw
                    )
                )
                for outcome in outcomes:
                    yield outcome if isinstance(outcome, Unreadable) else next(predictions)
                done += len(outcomes)
                progress("predicting", done, len(images))

    def predict_features(
        self, features: LayerFeatures, names: Sequence[str], *, top: int = 5, raw: bool = False
    ) -> list[Prediction]:
        """Say what images show whose layer features are known.

        Parameters
        ----------
        features : array of shape (n, sum of the encoder's layer_dims)
        names : sequence of str
            What to call the images.
        top, raw
            As in ``predict``.
        """
        _check_top(top)
        return (
            self.predict_scores(self.scores(features), names, top=top, raw=raw)
            if len(features)
            else []
        )

    def scores(self, features: LayerFeatures) -> Array:
        """Scores of the classes, (n, C), for layer features, (n, sum of the encoder's layer_dims)."""
        return self._fitted().scores(features)

    def predict_scores(
        self, scores: Array, names: Sequence[str], *, top: int = 5, raw: bool = False
    ) -> list[Prediction]:
        """Say what images show that have these scores, (n, C); other parameters as in ``predict_features``."""
        _check_top(top)
        shown_scores = scores if raw else probabilities(scores, self._calibration)
        order = np.argsort(-shown_scores, axis=1, kind="stable")[:, :top]
        labels, values = (
            self._fitted().classes[order].tolist(),
            np.take_along_axis(shown_scores, order, axis=1).tolist(),
        )
        tops = [tuple(zip(*pair, strict=True)) for pair in zip(labels, values, strict=True)]
        return [
            Prediction(*best[0], top=best, path=name)
            for best, name in zip(tops, names, strict=True)
        ]

    def layer_features(
        self, images: Sequence[str | Source], *, progress: Progress = silent
    ) -> LayerFeatures:
        """Layer features of images, (n, sum of the encoder's layer_dims): what ``VisClassifier`` takes."""
        sources = [as_source(image) for image in images]
        return self._encode(
            Labelled(sources, [0] * len(sources)), "encoding", progress, skip_unreadable=False
        ).features

    def evaluate(
        self,
        images: Images,
        labels: Sequence[Label] | None = None,
        *,
        skip_unreadable: bool = False,
        progress: Progress = silent,
    ) -> Evaluation:
        """Compare predictions with labels; classes the model does not know are left out, and named.

        Parameters
        ----------
        images, labels, skip_unreadable, progress
            As in ``learn``.
        """
        self._fitted()
        given = read_labelled(images, labels)
        classes = set(self.classes_)
        unknown, known = (
            [label for label in distinct(given.labels) if label not in classes],
            given.only(classes),
        )
        if not known.labels:
            raise InputError(
                f"some class must be one the model knows; it knows none of {some_of(unknown)}: learn them first"
            )
        samples = self._encode(known, "encoding", progress, skip_unreadable)
        predicted = self._predict(samples.features)
        return evaluate_labels(
            samples.labels, predicted, never_learned=unknown, skipped=samples.skipped
        )

    # Parts

    def _encode(
        self, given: Labelled, stage: str, progress: Progress, skip_unreadable: bool
    ) -> "Samples":
        """Layer features of labelled files."""
        encoder = self.load_encoder(progress)
        transform = Transform(self.transform, encoder.preprocessing)
        with opened_cache(self.cache) as cache:
            encoded = encode_files(
                given.sources,
                encoder,
                transform,
                cache,
                progress,
                stage,
            )
        if not skip_unreadable:
            refuse_unreadable(encoded.unreadable, HOW_TO_LEAVE_OUT)
        labels = [given.labels[place] for place in encoded.places]
        if given.labels and not labels:
            raise ImageError("there must be at least one image that can be read; there is none")
        return Samples(
            encoded.features,
            labels,
            tuple(str(unreadable.path) for unreadable in encoded.unreadable),
        )

    def _predict(self, features: LayerFeatures) -> list[Label]:
        return list(self._fitted().predict(features).tolist())

    def _fitted(self) -> Predictor:
        predictor = self._predictor
        if predictor is None or not len(predictor.classes):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError("this model knows no class: let it learn some first")
        return predictor


@dataclass(frozen=True)
class Samples:
    """Layer features, (n, width), with their labels."""

    features: LayerFeatures
    labels: list[Label]
    skipped: tuple[str, ...]

    def only(self, classes: set[Label]) -> "Samples":
        """Those of the given classes."""
        kept = [label in classes for label in self.labels]
        labels = [label for label, wanted in zip(self.labels, kept, strict=True) if wanted]
        return Samples(self.features[np.array(kept, dtype=bool)], labels, self.skipped)


def _absolute(name: str) -> str:
    """The name of an encoder; where it is a path, one that holds from any folder."""
    path = expanded(name)
    return str(path.resolve()) if name not in CATALOG and path.exists() else name


def distinct(labels: Sequence[Label]) -> list[Label]:
    """Every label once, in the order in which they come."""
    return list(dict.fromkeys(labels))


def some_of(labels: Sequence[Label]) -> str:
    """The first labels, for a message."""
    return ", ".join(map(str, labels[:5])) + (
        f" and {len(labels) - 5} more" if len(labels) > 5 else ""
    )


def _check_top(top: int) -> None:
    if top < 1:
        raise InputError(f"top must be at least 1; got {top}")


def refuse_unreadable(unreadable: Sequence[Unreadable], advice: str) -> None:
    """Stop where files are no images, naming them."""
    if unreadable:
        named = "; ".join(f"{shown(each.path)} ({each.reason})" for each in unreadable)
        raise ImageError(
            f"every file must be an image; {len(unreadable)} cannot be read: {named}: {advice}"
        )
