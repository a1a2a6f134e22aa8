"""Images in, labels out: the one object that knows both halves, encoder and head, and learns."""

import copy
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from visvm.encoders.cache import FeatureCache
from visvm.encoders.catalog import DEFAULT_ENCODER
from visvm.encoders.encoder import Encoder
from visvm.encoders.images import Transform
from visvm.encoders.sources import Source
from visvm.errors import (
    ImageError,
    IncompatibleModelError,
    InputError,
    ModelFileError,
    NeverLearnedError,
    shown,
)
from visvm.head.calibration import log_likelihoods
from visvm.head.checks import check_one_kind, is_count, require, seed_of
from visvm.head.memory import peak_bytes
from visvm.head.predictor import Predictor
from visvm.head.scatter import ThinScatter
from visvm.head.statistics import Statistics
from visvm.image_predictor import (
    HOW_TO_LEAVE_OUT,
    ImagePredictor,
    distinct,
    refuse_unreadable,
    some_of,
)
from visvm.learning.labelled import Images, Labelled, read_labelled
from visvm.learning.local import LocalEngine
from visvm.learning.work import Engine, Learned, Work, stratified
from visvm.model import file as model_file
from visvm.model.head_state import head_state, require_solved, restore_head, restore_predictor
from visvm.model.labels import Label, check_label, forgotten_label, is_forgotten
from visvm.model.results import SessionReport, session_test
from visvm.model.sites import (
    MergedSite,
    SiteStatistics,
    derived_id,
    is_shared,
    merged_sites,
    numbered,
    require_merged,
    require_new,
)
from visvm.progress import Progress, silent

if TYPE_CHECKING:
    from visvm.head.estimators import VisClassifier

Array = NDArray[np.float64]

MOST_CALIBRATION_IMAGES = 500
"""So many images of a session, at most, are scored as if they had not been learned."""


class ImageClassifier(ImagePredictor):
    """Learns to recognise images class by class, and never forgets.

    Parameters
    ----------
    encoder : str or Encoder, default="dinov2-s14"
        A name of the catalogue, an .onnx file, an open_clip checkpoint, a transformers folder or
        hub name; or an encoder.
    n_components : int or None, default=15000
        D, the width of the random kernel map.
    random_state : int, default=0
    transform : "crop" or "squash", default="crop"
        How images become square: by cutting out the centre, or by squeezing.
    cache : bool, Path or FeatureCache, default=True
        Where features are kept so that an image is encoded once: in the user's cache folder, a file
        of one's own, or nowhere.
    layers, ridge, svm_cost, memory_limit
        As in ``VisClassifier``.
    max_base_images : int or None, default=10000
        What the first session settles for good (λ, blocks, mixer) it settles on about so many
        images of it at most, the same share of every class; None means all. All are learned.

    Attributes
    ----------
    classes_ : tuple of labels
    history_ : list of dict
        The reports of all sessions.
    site_ : str or None
        The id of the site that this model belongs to, if it was made by ``export_for_site``.
    merged_ : tuple of MergedSite
        The sites whose sums were merged into this model.
    head_ : VisClassifier
        Which turns layer features into scores.
    """

    def __init__(
        self,
        encoder: str | Encoder = DEFAULT_ENCODER,
        n_components: int | None = 15000,
        random_state: int = 0,
        *,
        transform: str = "crop",
        cache: bool | Path | FeatureCache = True,
        layers: Any = "auto",
        ridge: float | str = "auto",
        svm_cost: float = 10.0,
        max_base_images: int | None = 10_000,
        memory_limit: float | None = None,
    ) -> None:
        super().__init__(encoder, transform, cache)
        self.max_base_images = max_base_images
        self.history_: list[dict[str, Any]] = []
        self.site_: str | None = None
        self.merged_: tuple[MergedSite, ...] = ()
        self._counts: dict[Label, int] = {}  # images of every class, of a model without sums
        self._options = {
            "layers": layers,
            "n_components": n_components,
            "ridge": ridge,
            "svm_cost": svm_cost,
            "random_state": random_state,
            "memory_limit": memory_limit,
        }
        self._head: VisClassifier | None = None
        # of a file loaded for predicting, which has no head
        self._loaded_predictor: Predictor | None = None
        self._read: tuple[model_file.Header, model_file.Tensors] | None = None  # of such a file
        self._calibrated_classes = 0  # known when the calibration was last measured

    def __repr__(self) -> str:
        return f"ImageClassifier({self.encoder_name!r}: {len(self.classes_)} classes, {len(self.history_)} sessions)"

    # What is known

    @property
    def head_(self) -> "VisClassifier":
        """Layer features → scores: the scikit-learn estimator."""
        if self._read is not None:
            raise ModelFileError(
                "a model must be loaded whole for this; this one was loaded for predicting: load it again"
            )
        if self._head is None:
            # here, as scikit-learn takes longer to import than to predict with
            from visvm.head.estimators import VisClassifier

            self._head = VisClassifier(**self._options)
        return self._head

    @property
    def _predictor(self) -> Predictor | None:
        """What predicts, once there is something to predict with."""
        head = self._head
        if head is None or not hasattr(head, "coefficients_"):
            return self._loaded_predictor
        return _without_forgotten(
            Predictor(head.mixer_, head.kernel_map_, head.coefficients_, head.classes_)
        )

    @property
    def class_counts_(self) -> tuple[int, ...]:
        """How many images of each class were learned."""
        return tuple(
            count for label, count in self._all_counts().items() if not is_forgotten(label)
        )

    @property
    def numbers(self) -> bool:
        """Whether the classes are numbers; those forgotten count as well."""
        return any(isinstance(label, int) for label in self._all_counts())

    def _all_counts(self) -> dict[Label, int]:
        """How many images of each class were learned, and of those forgotten since."""
        if not hasattr(self._head, "statistics_"):
            return self._counts
        statistics = self.head_.statistics_
        return dict(
            zip(
                statistics.classes.tolist(),
                map(round, statistics.class_counts.tolist()),
                strict=True,
            )
        )

    @property
    def can_learn(self) -> bool:
        """Whether the sums are there; a model exported or loaded for predicting has none."""
        return hasattr(self._head, "statistics_") or self._predictor is None

    def check_options(self, progress: Progress = silent) -> None:
        """Refuse options that learning would refuse; the encoder is loaded for it."""
        most = self.max_base_images
        require(
            most is None or is_count(most),
            self,
            "max_base_images",
            "a whole number of at least 1, or None",
        )
        self._head_for(self.load_encoder(progress))._validate_parameters()

    # Learning

    def learn(
        self,
        images: Images,
        labels: Sequence[Label] | None = None,
        *,
        test: str | Path | tuple[Sequence[str | Source], Sequence[Label]] | None = None,
        skip_unreadable: bool = False,
        engine: Engine | None = None,
        progress: Progress = silent,
    ) -> SessionReport:
        """Learn one session: any mix of new classes and more images of known ones.

        Images are encoded and added to the sums piece by piece: memory does not grow with their
        number.

        Parameters
        ----------
        images : path, or sequence of paths or contents
            A folder with one sub-folder per class, a CSV file of path,label, or image files or
            their contents.
        labels : sequence of str or int, optional
            With image files or contents, one each.
        test : path, or pair of sequences, optional
            Folder or CSV file of images to test with after the session, or images and their labels;
            those of classes not yet known are left out. Their features are held in memory.
        skip_unreadable : bool, default=False
            Leave out files that are no images; otherwise they stop the session.
        engine : Engine, optional
            Who does the work: ``LocalEngine(journal)`` in this process, which is also the default,
            or ``RayEngine(…)``.
        progress : callable, optional

        Returns
        -------
        SessionReport
        """
        self._require_sums("learn more")
        given = read_labelled(images, labels)
        tests = (
            None
            if test is None
            else read_labelled(*test)
            if isinstance(test, tuple)
            else read_labelled(test)
        )
        self.check_options(progress)  # before hours are spent on encoding
        if hasattr(self.head_, "statistics_"):
            check_one_kind(self.head_.classes_, np.array(given.labels[:1]))
        clock, known, held_out = _Clock(), set(self.classes_), None
        if tests is not None:
            held_out = self._encode(
                tests.only({*known, *given.labels}),
                "encoding test images",
                progress,
                skip_unreadable,
            )
            clock.lap("test")
        work = self._work(given, skip_unreadable)
        draft = copy.copy(self)
        draft._head = self._head_for(work.encoder)
        learned, labels_learned = draft._accumulate(work, engine, clock, progress)
        new = set(labels_learned) - known
        progress("learning", 0, 1)
        draft._head.solve()
        progress("learning", 1, 1)
        draft._encoder_digest = work.encoder.digest
        draft._calibrate(work, learned, progress)
        clock.lap("learn")
        outcome = None
        if held_out is not None and (tested := held_out.only(known | new)).labels:
            before = self._predict(tested.features) if known else None
            outcome = session_test(tested.labels, draft._predict(tested.features), new, before)
            clock.lap("test")
        report = draft._report(work, learned, new, clock)
        skipped = report.skipped + (held_out.skipped if held_out is not None else ())
        report = replace(report, skipped=skipped, test=outcome)
        draft.history_ = [*self.history_, _as_in_a_file(report)]
        self.__dict__ = draft.__dict__
        return report

    def learn_statistics(
        self,
        images: Images,
        labels: Sequence[Label] | None = None,
        *,
        skip_unreadable: bool = False,
        engine: Engine | None = None,
        progress: Progress = silent,
    ) -> SiteStatistics:
        """The sums of images, for a model elsewhere to take in with ``merge``. This model stays as it is.

        What it has learned itself is not in them. Nothing is solved, and nothing calibrated.

        Parameters
        ----------
        images, labels, skip_unreadable, engine, progress
            As in ``learn``.
        """
        self._require_sums("learn")
        if not hasattr(self.head_, "statistics_"):
            raise InputError(
                "sums are made with the mixer and the map of a model that has settled them; this one has learned nothing: "
                "use one that 'visvm export MODEL --for-site' (export_for_site) wrote"
            )
        given = read_labelled(images, labels)
        self.check_options(progress)
        clock, draft = _Clock(), copy.copy(self)
        draft._head = head = self._head_for(self.load_encoder())
        head.statistics_, head.ridge_path_, head.layer_path_ = (
            Statistics(head.kernel_map_.width),
            [],
            [],
        )
        head.solve()  # knows no class now
        work = replace(draft._work(given, skip_unreadable), calibration=frozenset())
        learned, labels_learned = draft._accumulate(work, engine, clock, progress)
        report = replace(draft._report(work, learned, set(labels_learned), clock), session=1)
        site = self.site_ or derived_id(head.statistics_.digest())
        return SiteStatistics(site, self._described_encoder(), head, [_as_in_a_file(report)])

    def _accumulate(
        self, work: Work, engine: Engine | None, clock: "_Clock", progress: Progress
    ) -> tuple[Learned, list[Label]]:
        """Add images to the sums of a draft; gives what became of them, and the labels of those that were learned."""
        engine = LocalEngine() if engine is None else engine
        if isinstance(engine, type) or not hasattr(engine, "learn"):
            raise InputError(
                f"engine must be a LocalEngine() or a RayEngine(); got {engine!r:.80}: make one, or leave it out"
            )
        learned = engine.learn(self.head_, work, progress)
        clock.lap("encode")
        clock.move(learned.learn_seconds, "encode", "learn")
        if not work.skip_unreadable:
            refuse_unreadable(list(learned.unreadable.values()), HOW_TO_LEAVE_OUT)
        labels = [
            label
            for place, label in enumerate(work.images.labels)
            if place not in learned.unreadable
        ]
        if not labels:
            raise ImageError("there must be at least one image that can be read; there is none")
        return learned, labels

    def _report(
        self, work: Work, learned: Learned, new: set[Label], clock: "_Clock"
    ) -> SessionReport:
        """What a session did on this draft, of whose labels these are new."""
        labels = [
            label
            for place, label in enumerate(work.images.labels)
            if place not in learned.unreadable
        ]
        return SessionReport(
            session=len(self.history_) + 1,
            learned_at=_now(),
            n_images=len(labels),
            new_classes=tuple(label for label in distinct(labels) if label in new),
            returning_classes=tuple(label for label in distinct(labels) if label not in new),
            n_classes=sum(not is_forgotten(label) for label in self._all_counts()),
            ridge=self.head_.ridge_,
            layers=self.head_.layers_,
            seconds=clock.seconds,
            peak_memory=peak_bytes(),
            skipped=tuple(str(each.path) for each in learned.unreadable.values()),
            base=len(work.sample) > 0,
            settled_on=len(work.sample) if 0 < len(work.sample) < len(work.images.labels) else None,
        )

    def _work(self, given: Labelled, skip_unreadable: bool) -> Work:
        """What a session that learns these images is to do."""
        encoder, base = self.load_encoder(), not hasattr(self.head_, "statistics_")
        seed = seed_of(self._options["random_state"]) if base else self.head_.seed_
        chosen = np.random.default_rng(0).permutation(len(given.labels))[:MOST_CALIBRATION_IMAGES]
        return Work(
            images=given,
            encoder=encoder,
            transform=Transform(self.transform, encoder.preprocessing),
            cache=self.cache,
            skip_unreadable=skip_unreadable,
            sample=stratified(given.labels, self.max_base_images, seed) if base else (),
            calibration=frozenset(chosen.tolist()),
        )

    def _calibrate(self, work: Work, learned: Learned, progress: Progress) -> None:
        """Measure, by some images of a session, how far scores can be trusted."""
        head, thin = self.head_, isinstance(self.head_.statistics_.scatter, ThinScatter)
        # Of dense sums, leaving samples out costs another factorisation: only where many classes
        # have come since the last time.
        if len(self.classes_) < 2 or not (
            thin or len(self.classes_) > 1.2 * self._calibrated_classes
        ):
            return
        progress("calibrating", 0, 1)
        places = sorted(work.calibration - set(learned.unreadable))
        # which were encoded elsewhere
        if missing := [place for place in places if place not in learned.features]:
            sources, labels = work.images.sources, work.images.labels
            there = Labelled(
                [sources[place] for place in missing], [labels[place] for place in missing]
            )
            encoded = self._encode(
                there, "encoding for calibration", progress, skip_unreadable=True
            )
            if encoded.skipped:  # gone meanwhile: the others will do
                missing = [place for place in missing if str(sources[place]) not in encoded.skipped]
            learned.features |= dict(zip(missing, encoded.features, strict=True))
            places = [place for place in places if place in learned.features]
        labels_there = work.labels(places)
        named = np.array([not is_forgotten(label) for label in head.classes_.tolist()])
        scores = head.leave_one_out_scores(
            np.array([learned.features[place] for place in places]), labels_there
        )[:, named]
        targets = np.searchsorted(head.classes_[named], labels_there)
        # What was measured among fewer classes counts half from session to session.
        self._calibration = 0.5 * self._calibration + log_likelihoods(scores, targets)
        self._calibrated_classes = len(self.classes_)
        self.merged_ = tuple(
            replace(each, calibration_weight=0.5 * each.calibration_weight) for each in self.merged_
        )
        progress("calibrating", 1, 1)

    # Sums of others

    def merge(self, *others: "ImageClassifier | SiteStatistics") -> Self:
        """Add what other models or sites have learned, as if this one had learned it too; their order does not matter.

        Parameters
        ----------
        *others : ImageClassifier or SiteStatistics
            Of the same encoder, transform, kernel map and mixer: grown from copies of one model, or
            from what ``export_for_site`` wrote. They are left as they are.

        Returns
        -------
        self

        Raises
        ------
        IncompatibleModelError
            They are of another model; or a site, or the same model, would be counted twice.
        """
        draft = copy.copy(self)
        own = draft._own_ids()
        draft._head = copy.copy(self.head_)
        draft._head.statistics_ = self.head_.statistics_.copy()
        for other in others:
            draft._add_sums(_as_site(other), own)
        draft._head.solve()
        self.__dict__ = draft.__dict__
        return self

    @classmethod
    def merge_files(cls, model: str | Path, others: Sequence[str | Path]) -> Self:
        """What ``merge`` makes of files, of which one is held in memory at a time beside the model.

        Parameters
        ----------
        model : path
            Of a model.
        others : sequence of paths
            Of models, or of what ``SiteStatistics.save`` wrote.
        """
        whole = cls.load(model)
        own = whole._own_ids()
        for path in others:
            try:
                whole._add_sums(SiteStatistics.load(path), own)
            except IncompatibleModelError as error:
                raise IncompatibleModelError(f"{shown(Path(path))}: {error}") from error
        whole.head_.solve()
        return whole

    def unmerge(self, other: "ImageClassifier | SiteStatistics") -> Self:
        """Take out again what was merged, as if it had never been: a site withdraws.

        Classes that were renamed or forgotten since then are found under their new names.
        Calibration that was measured while the site was part of the model stays as it is. Images of
        the site that ``forget`` has taken out already would be taken out twice.

        Parameters
        ----------
        other : ImageClassifier or SiteStatistics
            As it was merged.

        Returns
        -------
        self

        Raises
        ------
        NeverLearnedError
            The site was never merged, or its sums were others; or ``forget`` has taken out images
            of it; or a site that it held was taken out, or got other names, by itself.
        """
        self._require_sums("unmerge")
        given = _as_site(other)
        gone = given.entries(_now())
        require_merged(gone, self.merged_)
        mine, head = (
            next(each for each in self.merged_ if each.id == given.site),
            copy.copy(given.head),
        )
        head.statistics_ = head.statistics_.renamed(np.array(mine.labels))
        try:
            self._head = copy.copy(self.head_).unmerge(head)
        except NeverLearnedError as error:
            raise NeverLearnedError(
                f"all images of site {given.site} must still be in the model; some were taken out one by one ({error}): "
                "learn those again first"
            ) from error
        self._calibration = self._calibration - mine.calibration_weight * given.calibration
        self._calibrated_classes = min(self._calibrated_classes, len(self.classes_))
        ids = {entry.id for entry in gone}
        self.merged_ = tuple(each for each in self.merged_ if each.id not in ids)
        self.history_ = numbered([entry for entry in self.history_ if entry.get("site") not in ids])
        return self

    def _as_site(self) -> SiteStatistics:
        """What merging needs of this model."""
        self._require_sums("merge")
        if not hasattr(self.head_, "statistics_"):
            raise IncompatibleModelError(
                "models to merge must have learned something; one has not: learn first"
            )
        return SiteStatistics(
            self.site_ or derived_id(self.head_.statistics_.digest()),
            self._described_encoder(),
            self.head_,
            self.history_,
            self.merged_,
            self._calibration,
            self._calibrated_classes,
        )

    def _own_ids(self) -> set[str]:
        """The id of a model that is about to take sums in; one that has learned nothing is no site any more."""
        own = self._as_site().site
        if self._all_counts():
            return {own}
        self.site_ = None
        return set()

    def _add_sums(self, other: SiteStatistics, own: set[str]) -> None:
        """Add the sums of a site to those of this model, whose id is in `own`, in place; solving is left to the caller."""
        if not other.counts:
            raise IncompatibleModelError(
                "what is merged must have learned something; this has not: learn first, or leave it out"
            )
        mine = self._described_encoder()
        for name, what in (("digest", "encoder weights"), ("transform", "transform")):
            if mine[name] != other.encoder[name]:
                raise IncompatibleModelError(
                    f"models to merge must share the {what}; theirs is {other.encoder[name]:.12}, this one's {mine[name]:.12}: "
                    "grow both from copies of one model"
                )
        added = other.entries(_now())
        require_new(added, own, {each.id for each in self.merged_})
        self.head_._add_sums(other.head)
        self._calibration = self._calibration + other.calibration
        self._calibrated_classes = max(self._calibrated_classes, other.calibrated_classes)
        new = [entry for entry in other.history if not is_shared(entry, self.history_)]
        self.history_ = numbered(
            [*self.history_, *({"site": other.site, **entry} for entry in new)]
        )
        self.merged_ = (*self.merged_, *added)

    def forget(
        self,
        images: Images,
        labels: Sequence[Label] | None = None,
        *,
        skip_unreadable: bool = False,
        progress: Progress = silent,
    ) -> int:
        """Take images out again, as if they had never been learned; gives their number.

        The calibration of scores and the history stay as they are.

        Parameters
        ----------
        images, labels, skip_unreadable, progress
            As in ``learn``; the images must be those that were learned.
        """
        self._require_sums("forget")
        self._fitted()
        samples = self._encode(read_labelled(images, labels), "encoding", progress, skip_unreadable)
        progress("forgetting", 0, 1)
        self._head = copy.copy(self.head_).forget(samples.features, np.array(samples.labels))
        progress("forgetting", 1, 1)
        return len(samples.labels)

    def rename_class(self, old: Label, new: Label, *, merge: bool = False) -> Self:
        """Give a class another name.

        Parameters
        ----------
        old, new : str or int
        merge : bool, default=False
            If the new name is a class already, make both one, as if their images had been learned
            under one label.
        """
        self._fitted()
        old, new = check_label(old, "the class to rename"), check_label(new, "the new name")
        if merge and new in self.classes_:
            self._require_sums("put classes together")
        self._head = head = copy.copy(self.head_).rename_class(old, new, merge=merge)
        if not self.can_learn:
            self._counts = {
                label: self._counts[old if label == new else label]
                for label in head.classes_.tolist()
            }

        def renamed(labels: Sequence[Label]) -> list[Label]:
            return distinct([new if label == old else label for label in labels])

        names = ("new_classes", "returning_classes")
        self.history_ = [
            {**entry, **{name: renamed(entry[name]) for name in names}} for entry in self.history_
        ]
        self.merged_ = tuple(each.renamed(old, new) for each in self.merged_)
        return self

    def forget_class(self, label: Label) -> Self:
        """Never answer with a class again; its images need not be there.

        The scores of all other classes stay as they are: to them, the images it was learned from go
        on being examples of something else. So they do to a class of the same name that is learned
        later, which then needs many more images to be answered. ``forget`` takes images out of
        everything, but has to be given them, before the class is forgotten so.

        Parameters
        ----------
        label : str or int
        """
        self._fitted()
        self._require_sums("forget")
        label = check_label(label, "the class to forget")
        if label not in self.classes_:
            known = some_of(self.classes_)
            raise NeverLearnedError(
                f"a class to forget must be known; {label!r} is not: the model knows {known}"
            )
        forgotten = forgotten_label(isinstance(label, str))
        self._head = copy.copy(self.head_).rename_class(label, forgotten, merge=True)
        self.merged_ = tuple(each.renamed(label, forgotten) for each in self.merged_)
        return self

    # The file

    def save(self, path: str | Path) -> None:
        """Write the model to a file; an old one stays until the new one is whole."""
        if self._predictor is None:
            self._fitted()
        if self._read is not None and self._read[0]["head"]["form"] is not None:
            raise ModelFileError(
                "a model must be loaded whole to be saved; this one was loaded for predicting: export it instead"
            )
        model_file.write(Path(path), *self._state())

    def export(self, path: str | Path) -> None:
        """Write only what predicting needs: the file cannot learn, merge or forget."""
        if self._predictor is None:
            self._fitted()
        model_file.write(Path(path), *model_file.for_prediction(*self._state()))

    def export_for_site(self, path: str | Path) -> str:
        """Write what another site needs to learn for this model: encoder, mixer, map and λ; gives the id of the site.

        No class, no sums, no coefficients and no history are in it. What the base session settled
        is: the mixer's weights, λ and which blocks are fused.
        """
        if self._predictor is None:
            self._fitted()
        site = secrets.token_hex(8)
        model_file.write(Path(path), *model_file.for_site(*self._state(), site))
        return site

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
        header, tensors = model_file.read(Path(path), for_prediction=for_prediction)
        require_solved(Path(path), header["head"])
        described, classes = header["encoder"], header["classes"]
        model = cls(encoder or described["name"], transform=described["transform"], cache=cache)
        if for_prediction:
            model._read = header, tensors
            model._loaded_predictor = _without_forgotten(
                restore_predictor(Path(path), header["head"], classes, tensors)
            )
        else:
            model._head = restore_head(Path(path), header["head"], classes, tensors)
            model._head.memory_limit = memory_limit
        model._calibration = tensors["calibration"]
        model._counts = dict(zip(classes, header["counts"], strict=True))
        model._calibrated_classes = header.get("calibrated_classes", 0)
        model.history_, model.site_, model.merged_ = (
            header["sessions"],
            header.get("site"),
            merged_sites(header),
        )
        model._encoder_digest = described["digest"]
        if model._encoder is not None:
            model._check_digest(model._encoder.digest)
        return model

    def _state(self) -> tuple[model_file.Header, model_file.Tensors]:
        if self._read is not None:
            return self._read
        head, tensors = head_state(self.head_)
        counts = self._all_counts()
        header = {
            "encoder": self._described_encoder(),
            "head": head,
            "classes": list(counts),
            "counts": list(counts.values()),
            "calibrated_classes": self._calibrated_classes,
            "sessions": self.history_,
            **({} if self.site_ is None else {"site": self.site_}),
            **({"merged": [asdict(each) for each in self.merged_]} if self.merged_ else {}),
        }
        return header, {**tensors, "calibration": self._calibration}

    # Parts

    def _described_encoder(self) -> dict[str, Any]:
        return {
            "name": self.encoder_name,
            "digest": self._encoder_digest,
            "transform": self.transform,
        }

    def _head_for(self, encoder: Encoder) -> "VisClassifier":
        """A copy of the head that takes this encoder's features."""
        head = copy.copy(self.head_)
        head.layer_dims = encoder.layer_dims
        return head

    def _require_sums(self, what: str) -> None:
        if not self.can_learn:
            how = (
                "exported"
                if self._read is None or self._read[0]["head"]["form"] is None
                else "loaded"
            )
            raise ModelFileError(
                f"a model must have its sums to {what}; this one was {how} for predicting: use the whole one"
            )


class _Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Count the time since the last lap to a stage."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now

    def move(self, seconds: float, stage: str, other: str) -> None:
        """Count some of a stage's time to another one."""
        self.seconds[stage] -= seconds
        self.seconds[other] = self.seconds.get(other, 0.0) + seconds


def _as_site(other: "ImageClassifier | SiteStatistics") -> SiteStatistics:
    if isinstance(other, ImageClassifier):
        return other._as_site()
    if not isinstance(other, SiteStatistics):
        raise InputError(
            f"what is merged must be an ImageClassifier or SiteStatistics; got {other!r:.80}: load it, or use merge_files"
        )
    return other


def _as_in_a_file(report: SessionReport) -> dict[str, Any]:
    """The report as a model file gives it back, so that the histories of models can be compared wherever they come from."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(report)))
    return plain


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _without_forgotten(whole: Predictor) -> Predictor:
    """The predictor that never answers with a class that was forgotten."""
    hidden = forgotten_label(whole.classes.dtype.kind == "U")
    return Predictor(whole.mixer, whole.kernel_map, whole.coefficients, whole.classes, hidden)
