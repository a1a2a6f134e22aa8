"""A model as one frozen value: all that is remembered, in memory and in a file alike."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visvm.head.calibration import INVERSE_TEMPERATURES, probabilities
from visvm.head.checks import Labels, parameter_error
from visvm.head.familiarity import DISTANCES, known_shares, learned_spread, strangeness
from visvm.head.head import Head
from visvm.head.lift import Features
from visvm.head.nearness import Spread
from visvm.head.products import Array
from visvm.model.events import Event
from visvm.model.labels import FORGOTTEN, Label
from visvm.model.levels import SURE, Levels
from visvm.model.remembered import RememberedPhotos
from visvm.model.results import Prediction, SessionReport

FileKind = Literal["whole", "predictor", "site", "sums", "journal"]
"""What a file is for: learn and ask, ask only, learn for a model elsewhere, be merged, resume."""


@dataclass(frozen=True)
class EncoderId:
    """Which encoder a model was learned through, and what it was shown of every image.

    Attributes
    ----------
    name, digest : str
        Its name, and the SHA-256 of its weights.
    transform, views : str
        How images became square, and which views of each are in the sums.
    """

    name: str
    digest: str
    transform: str
    views: str = "one"


@dataclass(frozen=True, eq=False)
class Calibration:
    """How far scores can be trusted (``head/calibration.py``).

    Attributes
    ----------
    likelihoods : array of shape (49,)
        Log-likelihood of the labels under every β of the grid.
    n_classes : int
        How many classes were known when it was last measured.
    distances : array of shape (161,)
        How many images were so far from the nearest class (``head/familiarity.py``).
    """

    likelihoods: Array = field(default_factory=lambda: np.zeros(len(INVERSE_TEMPERATURES)))
    n_classes: int = 0
    distances: Array = field(default_factory=lambda: np.zeros(len(DISTANCES)))

    def plus(self, other: "Calibration", weight: float = 1.0) -> "Calibration":
        """Return what both have measured together, the other one counted with this weight."""
        return Calibration(
            self.likelihoods + weight * other.likelihoods,
            max(self.n_classes, other.n_classes),
            np.maximum(self.distances + weight * other.distances, 0.0),  # for rounding
        )


@dataclass(frozen=True)
class MergedSite:
    """A site whose sums a model holds.

    Attributes
    ----------
    id : str
    merged_at : str
        When, in UTC.
    n_images : int
        Images in its sums; 0 where it is in a total of masked sums, which does not tell.
    digest : str
        SHA-256 of its sums, so that no others are taken out in their place; of a masked site, the
        id of its round.
    labels : tuple of labels
        What its classes, sorted as in its sums, are called in the model by now; of a masked site,
        those of the total.
    calibration_weight : float
        How much of its calibration is left in the model's, which halves older ones every session.
    file : str
        The name of the file that it came in; empty where it came in none.
    """

    id: str
    merged_at: str
    n_images: int
    digest: str
    labels: tuple[Label, ...]
    calibration_weight: float = 1.0
    file: str = ""


@dataclass(frozen=True)
class AnsweredRequest:
    """A change that the service was asked for under a key, so that it is never done twice.

    Attributes
    ----------
    key, body : str
        SHA-256 of the key, and of what was asked for.
    kind, job : str
        Of the job that made it, and its id.
    result : dict
        Its result.
    """

    key: str
    body: str
    kind: str
    job: str
    result: dict[str, Any]


class Looks(NamedTuple):
    """How images look to a model.

    Attributes
    ----------
    scores : array of shape (n, C)
        In the order of ``Model.classes``.
    strangeness : array of shape (n,)
        How far they are from all of these (``head/familiarity.py``).
    """

    scores: Array
    strangeness: Array


@dataclass(frozen=True, eq=False)
class Model:
    """All that is remembered; changes (``changes.py``) return another one.

    Attributes
    ----------
    encoder : EncoderId
    head : Head
        What was settled, the sums and the coefficients, as far as they are there.
    calibration : Calibration
    sessions : tuple of SessionReport
    site : str or None
        The id of the site that the model belongs to.
    sites : tuple of MergedSite
        The sites whose sums are in it.
    learned : tuple of str
        By which the last sessions are known when they come again, the last one last; none is
        of images that were taken out.
    exported_counts : tuple of int
        Images of every class of a model without sums, which cannot tell them.
    sums_on_disk : bool
        Whether the file has sums that were not read, as only predicting was asked for.
    requests : tuple of AnsweredRequest
        The last changes that were asked for under a key.
    spread : Spread or None
        How the features of learned images of ``classes`` scatter; None in files of older versions.
    change : str or None
        By which the last command is known when it comes again (``changes.noted``).
    events : tuple of Event
        Changes other than sessions, the last one last.
    photos : RememberedPhotos or None
        Photos learned, by salted digests; None where they are not to be remembered.
    """

    encoder: EncoderId
    head: Head
    calibration: Calibration = field(default_factory=Calibration)
    sessions: tuple[SessionReport, ...] = ()
    site: str | None = None
    sites: tuple[MergedSite, ...] = ()
    learned: tuple[str, ...] = ()
    exported_counts: tuple[int, ...] = ()
    sums_on_disk: bool = False
    requests: tuple[AnsweredRequest, ...] = ()
    spread: Spread | None = None
    change: str | None = None
    events: tuple[Event, ...] = ()
    photos: RememberedPhotos | None = None

    def with_head(self, head: Head) -> "Model":
        """Return the model with another head, which is solved and has its sums."""
        model = replace(self, head=head)
        assert head.coefficients is not None, "only a head that is solved gives scores"
        back, chosen = head.settled.lift.kernel_map.back, np.flatnonzero(model.answerable)
        return replace(model, spread=learned_spread(head.statistics, back, chosen))

    @property
    def kind(self) -> FileKind:
        """What the model can be used for."""
        if self.head.sums is None:
            return "predictor"
        if self.head.coefficients is None:
            return "sums"
        fresh = not len(self.head.classes) and not self.sessions
        return "site" if fresh and self.site is not None else "whole"

    # Classes

    @property
    def counts(self) -> dict[Label, int]:
        """How many images of each class were learned, those of forgotten classes included."""
        counts = self.exported_counts
        if self.head.sums is not None:
            counts = tuple(round(count) for count in self.head.sums.class_counts.tolist())
        return dict(zip(self.head.classes.tolist(), counts, strict=True))

    @property
    def answerable(self) -> NDArray[np.bool_]:
        """Which classes of the head may be answered with, (C,): forgotten ones may not."""
        return np.array(
            [label not in FORGOTTEN for label in self.head.classes.tolist()], dtype=bool
        )

    @property
    def classes(self) -> Labels:
        """The classes that may be answered with, sorted."""
        return self.head.classes[self.answerable]

    @property
    def class_counts(self) -> tuple[int, ...]:
        """How many images of each of ``classes`` were learned."""
        return tuple(count for label, count in self.counts.items() if label not in FORGOTTEN)

    @property
    def numbers(self) -> bool:
        """Whether the classes are numbers; forgotten ones count as well."""
        return len(self.head.classes) > 0 and self.head.classes.dtype.kind != "U"

    @cached_property
    def levels(self) -> Levels:
        """The groups among ``classes``."""
        return Levels(self.classes.tolist())

    # Answers

    def scores(self, features: Features) -> Array:
        """Return the scores of ``classes``, (n, C).

        Parameters
        ----------
        features : array of shape (n, n_inputs) or (n, V, n_inputs)
            Layer features; of several views, the mean of their scores is returned.
        """
        if features.ndim == 2:
            return self.head.scores(features)[:, self.answerable]
        n, n_views, width = features.shape
        scores = self.head.scores(features.reshape(n * n_views, width))
        return np.asarray(scores.reshape(n, n_views, -1).mean(axis=1)[:, self.answerable])

    def looks(self, features: Features) -> Looks:
        """Return how images look whose features, as in ``scores``, are given."""
        if self.spread is None:
            return Looks(self.scores(features), np.zeros(len(features)))
        rows = features.reshape(-1, features.shape[-1])
        scores, recovered = (
            each.reshape(len(features), -1, each.shape[1]).mean(axis=1)
            for each in self.head.looks(rows)
        )
        scores = scores[:, self.answerable]
        return Looks(scores, strangeness(self.spread.squares(recovered), scores))

    def predict(self, features: Features) -> Labels:
        """Return the likeliest class, (n,), for features as in ``scores``."""
        return np.asarray(self.classes[self.scores(features).argmax(axis=1)])

    def known(self, looks: Looks) -> Array | None:
        """Return how familiar images look, as shares, (n,); None where the model cannot tell."""
        if self.spread is None or not len(looks.strangeness):
            return None
        return known_shares(looks.strangeness, self.calibration.distances)

    def answers(
        self,
        looks: Looks,
        names: Sequence[str],
        *,
        top: int,
        raw: bool = False,
        unknown: float | None = None,
        sure: float = SURE,
    ) -> list[Prediction]:
        """Say what images show that look so.

        Parameters
        ----------
        looks : Looks
        names : sequence of str
            What to call the images.
        top : int
            How many classes to name for each.
        raw : bool, default=False
            Give the scores themselves instead of probabilities.
        unknown : float, optional
            The share of known images that may be taken for none of the classes.
        sure : float
            How probable the answer must be to be more than the likeliest group of the top level.
        """
        familiar, scores = self.known(looks), looks.scores
        shares = [None] * len(names) if familiar is None else familiar.tolist()
        probable = probabilities(scores, self.calibration.likelihoods)
        levels: list[tuple[str | None, float | None]] = [(None, None)] * len(names)
        if self.levels.groups:
            levels = list(self.levels.answers(probable, sure))
        tops = self._best(scores if raw else probable, top)
        return [
            Prediction(
                *best[0],
                top=best,
                path=name,
                known=known,
                unknown=known is not None and unknown is not None and known < unknown,
                level=level,
                level_score=level_score,
            )
            for best, name, known, (level, level_score) in zip(
                tops, names, shares, levels, strict=True
            )
        ]

    def _best(self, given: Array, top: int) -> list[tuple[tuple[Label, float], ...]]:
        """Return the best classes of each row of numbers, (n, C), with these numbers."""
        order = np.argsort(-given, axis=1, kind="stable")[:, :top]
        labels = self.classes[order].tolist()
        values = np.take_along_axis(given, order, axis=1).tolist()
        return [tuple(zip(*pair, strict=True)) for pair in zip(labels, values, strict=True)]


def check_how(top: int, unknown: float | None, sure: float) -> None:
    """Refuse what ``Model.answers`` cannot be asked."""
    if top < 1:
        raise parameter_error("predict", "top", top, "at least 1")
    if unknown is not None and not 0.0 < unknown < 1.0:
        raise parameter_error("predict", "unknown", unknown, "between 0 and 1, or None")
    if not 0.0 < sure <= 1.0:
        raise parameter_error("predict", "sure", sure, "above 0 and at most 1")
