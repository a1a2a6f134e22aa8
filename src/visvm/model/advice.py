"""What a model says beside answers: which photos to label next, and what an answer rests on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from visvm.encoders.cache import opened_cache
from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.images import aspect_of, decode
from visvm.encoders.occlusion import PASSES, Heat, heat_map, heat_picture, occluded
from visvm.encoders.pipeline import BATCH_SIZE, Unreadable, encode_files, refuse_unreadable
from visvm.encoders.sources import ImageLike, Source, as_source, content_of, in_memory, sources_of
from visvm.errors import ImageError, InputError
from visvm.head.calibration import probabilities
from visvm.head.checks import is_count, parameter_error, suggestion
from visvm.head.familiarity import UNKNOWN
from visvm.head.products import Array
from visvm.head.solver import leverage
from visvm.head.suggest import first_choices, hesitations
from visvm.model import changes
from visvm.model.labels import Label
from visvm.model.predictor import ImagePredictor
from visvm.model.state import Model
from visvm.progress import Progress, watched

MOST_WEIGHED = 1000
"""Of more photos than these, only the most doubtful are weighed against one another."""


@dataclass(frozen=True)
class Suggestion:
    """A photo that is worth a label.

    Attributes
    ----------
    path : str
        The photo.
    place : int
        Which of the photos given it is, from 0.
    label : str or int
        The likeliest class so far.
    score : float
        Its probability.
    unknown : bool
        Whether it looks like none of the classes, at the default rate.
    """

    path: str
    place: int
    label: Label
    score: float
    unknown: bool = False


@dataclass(frozen=True, eq=False)
class Explanation:
    """What an answer rests on.

    Attributes
    ----------
    path : str
        The image.
    label : str or int
        The class that is explained.
    score : float
        Its probability.
    heat : array of shape (8, 8)
        What each cell of the picture gives to the class, or, below zero, takes from it.
    picture : bytes
        The picture under this map, as a PNG file.
    unknown : bool
        Whether the image looks like none of the classes, at the default rate.
    """

    path: str
    label: Label
    score: float
    heat: Heat
    picture: bytes
    unknown: bool = False


class ImageAdvisor(ImagePredictor):
    """A predictor that also says which photos to label next, and what an answer rests on."""

    def suggest(
        self,
        images: ImageLike | Sequence[ImageLike],
        n: int = 20,
        *,
        skip_unreadable: bool = False,
        progress: Progress = watched,
    ) -> list[Suggestion]:
        """Say which photos to label next, the most telling first; no two are near-duplicates.

        Parameters
        ----------
        images : path, or sequence of paths or contents
            A folder, or image files or their contents, whose labels are not known.
        n : int, default=20
            How many photos at most.
        skip_unreadable : bool, default=False
            Leave out files that are not images; otherwise they are refused.
        """
        model = self._known()
        changes.require_sums(model, "suggest photos")
        if not is_count(n):
            raise parameter_error("suggest", "n", n, "a whole number of at least 1")
        sources = sources_of(images)
        encoder = self.load_encoder(progress)
        with opened_cache(self.cache) as cache:
            views = [self._transform(encoder)]
            encoded = encode_files(sources, encoder, views, cache, progress, "encoding")
        if not skip_unreadable:
            remedy = ", or skip unreadable files with --skip-unreadable (skip_unreadable=True)"
            refuse_unreadable(encoded.unreadable, remedy)
        if not encoded.places:
            raise ImageError("There are no photos to choose from. Give some.", code="images-none")
        features = encoded.features[:, 0]
        chosen, given = suggested(model, features, encoder.layer_dims[-1], n)
        best, strange = given.argmax(axis=1), _strange(model, features[chosen])
        return [
            Suggestion(
                str(sources[encoded.places[place]]),
                encoded.places[place],
                model.classes.tolist()[best[place]],
                float(given[place, best[place]]),
                unknown,
            )
            for place, unknown in zip(chosen, strange, strict=True)
        ]

    def explain(
        self,
        image: ImageLike,
        label: Label | None = None,
        *,
        progress: Progress = watched,
    ) -> Explanation:
        """Say which parts of an image an answer rests on, by hiding one after another.

        Parameters
        ----------
        image : path or content
        label : str or int, optional
            The class to explain; the likeliest one by default.
        """
        model, source = self._known(), as_source(image)
        require_class(model, label)
        encoder = self.load_encoder(progress)
        try:
            content = content_of(source)
            pixels = decode(content, self._transform(encoder))
        except (OSError, ImageError) as error:
            reason = str(getattr(error, "strerror", None) or error)
            refuse_unreadable([Unreadable(_name(source), reason)], "")
        parts = []
        for batch in occluded(pixels, BATCH_SIZE):
            parts.append(encoder.encode(batch))
            progress("looking", min(BATCH_SIZE * len(parts), PASSES), PASSES)
        features = np.concatenate(parts)
        which, score, heat = explained(model, features, label)
        (unknown,) = _strange(model, features[:1])  # the first is the picture itself
        aspect = aspect_of(content) if self.transform == "squash" else 1.0
        picture = heat_picture(pixels, encoder.preprocessing, heat, aspect)
        return Explanation(_name(source), which, score, heat, picture, unknown)


def _strange(model: Model, features: LayerFeatures) -> list[bool]:
    """Return which images look like none of the classes."""
    known = model.known(model.looks(features))
    return [False] * len(features) if known is None else (known < UNKNOWN).tolist()


def suggested(model: Model, features: LayerFeatures, width: int, n: int) -> tuple[list[int], Array]:
    """Return which photos to label next, and the probabilities of all, (m, C).

    Parameters
    ----------
    model : Model
        With its sums.
    features : array of shape (m, n_inputs)
        Layer features of one view.
    width : int
        How many of them, the last ones, are those of the final block.
    n : int
        How many photos at most.
    """
    head = model.head
    given = probabilities(model.scores(features), model.calibration.likelihoods)
    doubts = hesitations(given)
    weighed = np.sort(np.argsort(-doubts, kind="stable")[: max(MOST_WEIGHED, n)])
    settled, sums = head.settled, head.solution_sums()
    lifted = settled.lift(features[weighed])[None]
    # as views of one sample, whose leverage is shared by all of them
    covariance = leverage(sums, lifted, settled.ridge, settled.options.svm_cost)[0]
    covariance *= len(weighed)
    chosen = first_choices(
        covariance, doubts[weighed], features[weighed, -width:].astype(np.float64), n
    )
    return weighed[chosen].tolist(), given


def explained(
    model: Model, features: LayerFeatures, label: Label | None = None
) -> tuple[Label, float, Heat]:
    """Return the class that is explained, its probability, and what it rests on, (8, 8).

    Parameters
    ----------
    model : Model
    features : array of shape (50, n_inputs)
        Of ``occluded`` pictures.
    label : str or int, optional
        The class; the likeliest one by default.
    """
    classes, scores = model.classes.tolist(), model.scores(features)
    place = int(scores[0].argmax()) if label is None else classes.index(label)
    score = probabilities(scores[:1], model.calibration.likelihoods)[0, place]
    return classes[place], float(score), heat_map(evidence(scores, place))


def evidence(scores: Array, place: int) -> Array:
    """Return how far the class at a place is ahead of the best other one, (n,), from (n, C)."""
    others = np.delete(scores, place, axis=1)
    return np.asarray(scores[:, place] - (others.max(axis=1) if others.size else 0.0))


def require_class(model: Model, label: Label | None) -> None:
    """Refuse a class that is not known; None stands for whichever is likeliest."""
    if label is not None and label not in model.classes.tolist():
        raise InputError(
            f"There is no class {label!r}. {suggestion(label, model.classes)}", code="class-unknown"
        )


def _name(source: Source) -> str:
    return "an image in memory" if in_memory(source) else str(source)
