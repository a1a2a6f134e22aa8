"""Images in, answers out: a model, its file, and the encoder that it sees through.

``ImageClassifier`` is this and learning, which predicting does not import.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from visvm.encoders.cache import FeatureCache, opened_cache
from visvm.encoders.encoder import Encoder, LayerFeatures
from visvm.encoders.loading import absolute, known_digest, load_encoder
from visvm.encoders.pipeline import Unreadable, encode_files, encode_stream, refuse_unreadable
from visvm.encoders.sources import ImageLike, Source, expanded, sources_of
from visvm.encoders.transform import (
    DEFAULT_TRANSFORM,
    Transform,
    check_transform,
    check_views,
)
from visvm.encoders.video import MAX_SECONDS, camera_frames, video_frames
from visvm.errors import EncoderError, IncompatibleModelError, ModelFileError, WeightsError, shown
from visvm.head.calibration import probabilities
from visvm.head.checks import parameter_error
from visvm.head.familiarity import UNKNOWN
from visvm.head.products import Array
from visvm.head.settle import HeadOptions
from visvm.model import file as model_file
from visvm.model.exporter import Exporter
from visvm.model.formats import counted
from visvm.model.levels import SURE
from visvm.model.over_time import Moment, moments
from visvm.model.results import Prediction
from visvm.model.state import Model, check_how
from visvm.progress import Progress, silent, watched

if TYPE_CHECKING:
    from visvm.head.estimators import VisClassifier


class ImagePredictor(Exporter):
    """Encodes images and says what they show; ``load`` reads its model from a file.

    Parameters
    ----------
    encoder, transform, views, cache
        As in ``ImageClassifier``.
    options : HeadOptions, optional
        Of the head, before there is a model.

    Attributes
    ----------
    model_ : Model or None
        All that is remembered, frozen; None before the first session.
    """

    def __init__(
        self,
        encoder: str | Encoder,
        *,
        transform: str = "auto",
        views: str = "one",
        cache: bool | Path | FeatureCache = True,
        options: HeadOptions | None = None,
    ) -> None:
        check_transform(transform, "auto")
        check_views(views)
        self._encoder = None if isinstance(encoder, str) else encoder
        self._by_name = self._encoder is None  # whether it can be loaded again
        self.encoder_name = absolute(encoder) if isinstance(encoder, str) else encoder.name
        self.transform = transform
        self.views = views
        self.cache = cache
        self.model_: Model | None = None
        self._options = options or HeadOptions()
        self._from_hub = True  # whether the encoder may be fetched by a name on the hub

    def __getstate__(self) -> dict[str, Any]:
        # an encoder that has a name is loaded again
        cache = self.cache.path if isinstance(self.cache, FeatureCache) else self.cache
        encoder = None if self._by_name else self._encoder
        return {**vars(self), "_encoder": encoder, "cache": cache}

    def __repr__(self) -> str:
        sessions = counted(len(self.history_), "session")
        known = f"{counted(len(self.classes_), 'class')}, {sessions}"
        return f"{type(self).__name__}({self.encoder_name!r}: {known})"

    # The file

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        encoder: str | Encoder | None = None,
        cache: bool | Path | FeatureCache = True,
        memory_limit: float | None = None,
        for_prediction: bool = False,
    ) -> Self:
        """Read a model from a file.

        Parameters
        ----------
        path : path
        encoder : str or Encoder, optional
            Where the encoder is on this machine, if it has no name of the catalogue; its weights
            must be the same.
        cache, memory_limit
            As in the constructor.
        for_prediction : bool, default=False
            Leave the sums on disk: quicker, and enough for predicting.
        """
        model = model_file.read(Path(path), sums=not for_prediction)
        if model.head.coefficients is None:
            raise ModelFileError(
                f"{shown(path)} holds sums and no model to ask. Add it to one with "
                f"'visvm merge OUT MODEL {shown(Path(path).name)}'.",
                code="sums-only",
            )
        return cls.of(model, encoder=encoder, cache=cache, memory_limit=memory_limit)

    @classmethod
    def from_pretrained(cls, name: str | Path, **options: Any) -> Self:
        """Read what ``save_pretrained`` wrote: a folder, or a name on the hub (owner/model).

        The other parameters are those of ``load``. The hub needs the extra ``hub``.
        """
        from visvm.model.sharing import folder_file

        return cls.load(folder_file(name), **options)

    @classmethod
    def of(
        cls,
        model: Model,
        *,
        encoder: str | Encoder | None = None,
        cache: bool | Path | FeatureCache = True,
        memory_limit: float | None = None,
    ) -> Self:
        """Return a classifier with a model; the other parameters are those of ``load``."""
        own = model.encoder
        made = cls(encoder or own.name, transform=own.transform, views=own.views, cache=cache)
        # the file may be anybody's: it decides neither what is fetched nor from whom
        made._from_hub = encoder is not None
        made._options = replace(model.head.settled.options, memory_limit=memory_limit)
        made.model_ = replace(model, head=model.head.with_options(made._options))
        if made._encoder is not None:
            made._check_encoder(made._encoder)
        return made

    # The head

    @property
    def head_(self) -> "VisClassifier":
        """The head as a scikit-learn estimator; what it learns is not the classifier's."""
        # here, as scikit-learn takes longer to import than to predict with
        from visvm.head.estimators import VisClassifier

        if self.model_ is None:
            return VisClassifier.of(self._options, None)
        if self.model_.sums_on_disk:
            advice = "This model was loaded for predicting only. Load it whole."
            raise ModelFileError(advice, code="sums-missing")
        head, noted = self.model_.head, self.model_.calibration.likelihoods
        return VisClassifier.of(head.settled.options, head, noted)

    # The encoder

    def load_encoder(self, progress: Progress = silent) -> Encoder:
        """Return the encoder, loaded when it is first needed; missing weights are fetched."""
        if self._encoder is None:
            if (digest := known_digest(self.encoder_name)) is not None:  # before it is fetched
                self._check_digest(digest)
            try:
                encoder = load_encoder(self.encoder_name, progress, from_hub=self._from_hub)
            except (EncoderError, WeightsError) as error:
                path = Path(self.encoder_name)
                if not self._from_hub and error.code == "weights-missing" and "/" in str(path):
                    raise EncoderError(
                        f"The model's encoder {self.encoder_name} is not on this machine. If you "
                        f"trust it, allow the download with --encoder {self.encoder_name} "
                        "(encoder=…).",
                        code="encoder-elsewhere",
                    ) from error
                if self.model_ is None or not path.is_absolute() or path.exists():
                    raise
                raise EncoderError(
                    f"The model's encoder is not at {self.encoder_name} ({error}). "
                    "Say where it is with --encoder (encoder=…).",
                    code="encoder-elsewhere",
                ) from error
            self._check_encoder(encoder)
            self._encoder = encoder
        return self._encoder

    def _transform(self, encoder: Encoder) -> Transform:
        """Return how images are prepared; by the default as long as nothing has chosen it."""
        kind = DEFAULT_TRANSFORM if self.transform == "auto" else self.transform
        return Transform(kind, encoder.preprocessing)

    def with_encoder(self, encoder: Encoder) -> Self:
        """Return a copy that uses this encoder, which must have the same weights."""
        twin = copy.copy(self)
        twin._check_encoder(encoder)
        twin._encoder, twin._by_name = encoder, False
        return twin

    def _check_encoder(self, encoder: Encoder) -> None:
        self._check_digest(encoder.digest)
        if self.model_ is None:
            return
        dims, own = encoder.layer_dims, self.model_.head.settled.options.layer_dims
        if own != tuple(dims):  # which only a file that was altered says of the same weights
            raise IncompatibleModelError(
                f"The model expects other blocks than those of {self.encoder_name}. "
                "Use an older copy of the model.",
                code="encoder-mismatch",
            )

    def _check_digest(self, digest: str) -> None:
        own = None if self.model_ is None else self.model_.encoder
        if own is not None and own.digest != digest:
            raise IncompatibleModelError(
                f"The model was learned through {own.name} ({own.digest[:12]}), and "
                f"{self.encoder_name} is another encoder ({digest[:12]}). Leave --encoder out, "
                "give the model's own, or begin a new model.",
                code="encoder-mismatch",
            )

    # Predicting

    def predict(
        self,
        images: ImageLike | Sequence[ImageLike],
        *,
        top: int = 5,
        raw: bool = False,
        unknown: float | None = UNKNOWN,
        sure: float = SURE,
        views: str = "one",
        progress: Progress = watched,
    ) -> list[Prediction]:
        """Say what images show.

        Parameters
        ----------
        images : image, folder, or sequence of images
            Each a path, a URI, the content of a file, an image of Pillow, or an array of uint8 and
            shape (H, W, 3). Of a folder, all images below it are taken, sorted.
        top : int, default=5
            How many classes to name for each.
        raw : bool, default=False
            Give the head's scores (near +1 for the right class, near -1 for others) instead of
            probabilities.
        unknown : float or None, default=0.05
            Say that an image shows none of the classes where at most this share of the learned
            images would look less familiar; None never says so.
        sure : float, default=0.6
            Where classes have groups: how probable an answer must be to be more than the likeliest
            group of the top level.
        views : "one", "mirror" or "crops", default="one"
            Take the mean of the scores over these views of each image, which takes 1, 2 or 5 times
            as long; whichever views were learned.
        """
        sources = sources_of(images)
        how: Any = {"top": top, "raw": raw, "unknown": unknown, "sure": sure, "views": views}
        outcomes = list(self.predict_stream(sources, **how, progress=progress))
        refuse_unreadable([each for each in outcomes if isinstance(each, Unreadable)], "")
        return [each for each in outcomes if isinstance(each, Prediction)]

    def predict_proba(
        self,
        images: ImageLike | Sequence[ImageLike],
        *,
        views: str = "one",
        progress: Progress = watched,
    ) -> Array:
        """Return the probabilities of ``classes_``, (n, C), for images as in ``predict``."""
        check_views(views)
        model, encoder = self._known(), self.load_encoder(progress)
        transforms = self._transform(encoder).views(views)
        with opened_cache(self.cache) as cache:
            parts = sources_of(images), encoder, transforms, cache
            encoded = encode_files(*parts, progress, "predicting")
        refuse_unreadable(encoded.unreadable, "")
        return probabilities(model.scores(encoded.features), model.calibration.likelihoods)

    def predict_stream(
        self,
        images: Sequence[Source],
        *,
        top: int = 5,
        raw: bool = False,
        unknown: float | None = UNKNOWN,
        sure: float = SURE,
        views: str = "one",
        progress: Progress = watched,
    ) -> Iterator[Prediction | Unreadable]:
        """Say what images show, as the answers come; files that are none come as ``Unreadable``."""
        model = self._known()
        check_how(top, unknown, sure)
        check_views(views)
        encoder, done = self.load_encoder(progress), 0
        transforms = self._transform(encoder).views(views)
        with opened_cache(self.cache) as cache:
            for outcomes in encode_stream(images, encoder, transforms, cache):
                readable = [each for each in outcomes if not isinstance(each, Unreadable)]
                answers: Iterator[Prediction] = iter(())
                if readable:
                    looks = model.looks(np.array([each for _, each in readable]))
                    names = [str(path) for path, _ in readable]
                    how: Any = {"top": top, "raw": raw, "unknown": unknown, "sure": sure}
                    answers = iter(model.answers(looks, names, **how))
                for outcome in outcomes:
                    yield outcome if isinstance(outcome, Unreadable) else next(answers)
                done += len(outcomes)
                progress("predicting", done, len(images))

    def predict_video(
        self,
        video: str | Path | int,
        *,
        every: float = 1.0,
        window: float = 3.0,
        duration: float | None = None,
        views: str = "one",
        progress: Progress = watched,
        **how: Any,
    ) -> Iterator[Moment]:
        """Say what a video shows, as the answers come; it needs the extra ``video``.

        Parameters
        ----------
        video : path or int
            A file, or the number of a camera of this machine; 0 is the first.
        every : float, default=1.0
            Seconds between answers.
        window : float, default=3.0
            Average the scores over the last so many seconds; 0 takes each frame alone.
        duration : float, optional
            How many seconds to look at; a camera goes on and on by default.
        views, progress
            As in ``predict``.
        **how
            The other parameters of ``predict``.
        """
        model = self._known()
        how = {"top": 5, "unknown": UNKNOWN, "sure": SURE, **how}
        check_how(how["top"], how["unknown"], how["sure"])
        check_views(views)
        for name, value, least in (("every", every, 1e-3), ("window", window, 0.0)):
            if not least <= value <= MAX_SECONDS:
                wanted = f"{least:g} to {MAX_SECONDS:g} seconds"
                raise parameter_error("predict_video", name, value, wanted)
        encoder = self.load_encoder(progress)
        shown = self._transform(encoder).views(views)
        if isinstance(video, int):
            found, name = camera_frames(video, every, duration), f"camera {video}"
        else:
            found, name = video_frames(expanded(video), every, duration), str(video)
        return moments(found, model, encoder, shown, window, name, how)

    def scores(self, features: LayerFeatures) -> Array:
        """Return the scores of ``classes_``, (n, C), for layer features, (n, width)."""
        return self._known().scores(features)
