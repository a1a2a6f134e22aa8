"""Images and labels in, findings out: how good a model is, and what is wrong with labels.

``ImageClassifier`` is this and learning.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from visvm.encoders.encoder import LayerFeatures
from visvm.encoders.sources import ImageLike, as_source
from visvm.encoders.transform import check_views
from visvm.errors import InputError
from visvm.head.checks import check_one_kind, suggestion
from visvm.head.familiarity import UNKNOWN
from visvm.learning.checking import check_labelled
from visvm.learning.findings import Check
from visvm.learning.labelled import (
    Images,
    Labelled,
    LabelledFeatures,
    encode_labelled,
    read_labelled,
)
from visvm.model import changes
from visvm.model.labels import Label, some_of
from visvm.model.levels import SURE
from visvm.model.predictor import ImagePredictor
from visvm.model.results import Evaluation, WrongAnswer, evaluate_labels
from visvm.model.state import check_how
from visvm.progress import Progress, watched


class ImageExaminer(ImagePredictor):
    """Compares images with their labels; parameters are those of ``ImagePredictor``."""

    def evaluate(
        self,
        images: Images,
        labels: Sequence[Label] | None = None,
        *,
        nested: bool | None = None,
        skip_unreadable: bool = False,
        views: str = "one",
        unknown: float | None = UNKNOWN,
        progress: Progress = watched,
    ) -> Evaluation:
        """Compare predictions with labels; classes the model does not know are left out, and named.

        Parameters are those of ``learn``, `views` and `unknown` those of ``predict``.
        """
        check_views(views)
        check_how(1, unknown, SURE)
        model, classes = self._known(), set(self.classes_)
        given = read_labelled(images, labels, nested=nested)
        never = [label for label in dict.fromkeys(given.labels) if label not in classes]
        known = given.only(classes)
        if not known.labels:
            raise InputError(
                f"The model knows none of the classes {some_of(never)}. "
                f"{suggestion(never[0], model.classes)} Learn them first.",
                code="classes-unknown",
            )
        samples = self._encode(known, progress, skip_unreadable, views)
        answers = model.answers(
            model.looks(samples.features), samples.paths, top=1, unknown=unknown
        )
        predicted = [each.label for each in answers]
        found = evaluate_labels(
            samples.labels, predicted, never_learned=never, skipped=samples.skipped
        )
        pairs = zip(samples.labels, answers, strict=True)
        wrong = [
            WrongAnswer(each.path, label, each.label, each.score, each.unknown)
            for label, each in pairs
            if each.label != label
        ]
        wrong.sort(key=lambda each: -each.score)
        n_unknown = sum(each.unknown for each in answers)
        return replace(found, wrong=tuple(wrong), n_unknown=n_unknown)

    def check(
        self,
        images: Images,
        labels: Sequence[Label] | None = None,
        *,
        nested: bool | None = None,
        progress: Progress = watched,
    ) -> Check:
        """Find what is wrong with labelled images, before they are learned or without that.

        Each is scored as if it had not been learned: by a head of its own for these images, or, if
        this model knows classes already, by what it would be with them. It stays as it is.

        Parameters
        ----------
        images, labels, nested
            As in ``learn``. Images that this model has learned from the same files lately are not
            added to it again.
        """
        given = read_labelled(images, labels, nested=nested)
        encoder = self.load_encoder(progress)
        model = None if self.model_ is None or not len(self.model_.classes) else self.model_
        if model is not None:
            changes.require_sums(model, "check photos")
            check_one_kind(model.head.classes, np.array(given.labels[:1]))
        views = self._transform(encoder).views(self.views)
        return check_labelled(given, encoder, views, self.cache, model, progress)

    def layer_features(
        self, images: Sequence[ImageLike], *, progress: Progress = watched
    ) -> LayerFeatures:
        """Return the layer features of images, (n, width): what ``VisClassifier`` takes."""
        sources = [as_source(image, number) for number, image in enumerate(images, 1)]
        given = Labelled(sources, [0] * len(sources))
        return self._encode(given, progress, skip_unreadable=False).features[:, 0]

    # Parts

    def _encode(
        self, given: Labelled, progress: Progress, skip_unreadable: bool, views: str = "one"
    ) -> LabelledFeatures:
        encoder = self.load_encoder(progress)
        parts = given, encoder, self._transform(encoder).views(views), self.cache
        return encode_labelled(*parts, "encoding", progress, skip_unreadable=skip_unreadable)
