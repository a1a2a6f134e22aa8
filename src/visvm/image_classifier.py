"""Images and labels in, a model out: what ``ImageExaminer`` does, and learning."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from visvm.encoders.cache import FeatureCache
from visvm.encoders.catalog import DEFAULT_ENCODER
from visvm.encoders.encoder import Encoder
from visvm.encoders.loading import load_encoder
from visvm.encoders.presets import AUTO
from visvm.encoders.sources import expanded
from visvm.encoders.texts import read_texts
from visvm.head.checks import is_count, require
from visvm.head.settle import HeadOptions
from visvm.learning.checking import contents_of
from visvm.learning.choosing import trial_cache
from visvm.learning.choosing_encoder import WantedEncoder, with_choices
from visvm.learning.examining import ImageExaminer
from visvm.learning.labelled import Images, Labelled, TestImages, read_labelled, read_tests
from visvm.learning.session import learn_session, learn_sums, require_settled
from visvm.learning.texts import text_samples
from visvm.learning.work import Engine, Work, plan_session
from visvm.model import changes, merging, undo
from visvm.model import file as model_file
from visvm.model.advice import ImageAdvisor
from visvm.model.container import locked
from visvm.model.labels import Label, check_label
from visvm.model.results import SessionReport
from visvm.model.sites import SiteStatistics, require_merged_sites
from visvm.progress import Progress, silent, watched


class ImageClassifier(ImageExaminer, ImageAdvisor):
    """Learns to recognise images class by class, and never forgets.

    Parameters
    ----------
    encoder : str or Encoder, default="dinov2-s14"
        A name of the catalogue, an .onnx file, an open_clip checkpoint, a transformers folder or
        hub name; or an encoder. "auto" lets the first session try those of the catalogue that are
        on this machine.
    n_components : int or None, default=15000
        D, the width of the random kernel map.
    random_state : int, default=0
    transform : "auto", "crop", "squash" or "pad", default="auto"
        How images become square: by cutting out the centre, by squeezing, or with margins. By
        default the first session tries them on its own images.
    views : "one", "mirror" or "crops", default="one"
        What is learned of every image: the image; also mirrored; or also its four corners. All
        views of an image together count as one, and are forgotten with it.
    cache : bool, Path or FeatureCache, default=True
        Where features are kept so that an image is encoded once: in the user's cache folder, a file
        of your own, or nowhere.
    quality : "fast", "standard" or "best", optional
        How closely the encoder looks: fast takes less than half of the time of standard with
        DINOv2 (products in int8, fewer patches; of an encoder of your own a smaller picture), best
        two to four times as long (a larger one). None means standard.
    minutes : float, optional
        With encoder="auto": choose the size as well, so that the first session takes this time.
    layers, ridge, svm_cost, memory_limit
        As in ``VisClassifier``.
    max_base_images : int or None, default=10000
        What the first session settles (λ, blocks, mixer) it settles on about this many of its
        images at most, the same share of every class; None means all. All are learned.
    renew_ridge : bool, default=True
        If the first session has fewer than ten classes, let ``learn`` choose λ anew, from the sums,
        whenever the number of images has doubled (benchmarks/CHOICES.md). Blocks and mixer stay,
        and so does a λ that was given, or is in a file from before there was such a choice.

    Attributes
    ----------
    model_ : Model or None
        All that is remembered, frozen; None before the first session.
    encoder_name, transform, views : str
    """

    def __init__(
        self,
        encoder: str | Encoder = DEFAULT_ENCODER,
        n_components: int | None = 15000,
        random_state: int = 0,
        *,
        transform: str = "auto",
        views: str = "one",
        cache: bool | Path | FeatureCache = True,
        quality: str | None = None,
        minutes: float | None = None,
        layers: Any = "auto",
        ridge: float | str = "auto",
        svm_cost: float = 10.0,
        max_base_images: int | None = 10_000,
        memory_limit: float | None = None,
        renew_ridge: bool = True,
    ) -> None:
        options = HeadOptions(
            layers=layers,
            n_components=n_components,
            ridge=ridge,
            svm_cost=svm_cost,
            random_state=random_state,
            memory_limit=memory_limit,
            renew_ridge=renew_ridge,
        )
        super().__init__(encoder, transform=transform, views=views, cache=cache, options=options)
        self.max_base_images = max_base_images
        if encoder == AUTO:  # also where a folder has that name
            self.encoder_name = AUTO
        self._wanted = WantedEncoder(None if self._encoder else self.encoder_name, quality, minutes)

    def load_encoder(self, progress: Progress = silent) -> Encoder:
        """Return the encoder; as long as none is chosen, the default one of the candidates."""
        if self._encoder is None and self.model_ is None:
            name = self._wanted.candidates(progress)[0]
            if self.encoder_name == AUTO:
                self._encoder = load_encoder(name, progress)
            else:
                self.encoder_name = name
        return super().load_encoder(progress)

    def check_options(self, progress: Progress = silent) -> None:
        """Refuse options that learning would refuse; the encoder is loaded for it."""
        undo.is_wanted()  # refuses what is neither on nor off
        counted = self.max_base_images is None or is_count(self.max_base_images)
        require(counted, self, "max_base_images", "a whole number of at least 1, or None")
        dims = self.load_encoder(progress).layer_dims
        replace(self._options, layer_dims=dims).check(type(self).__name__)

    # Learning

    def learn(
        self,
        images: Images,
        labels: Sequence[Label] | None = None,
        *,
        test: TestImages | None = None,
        nested: bool | None = None,
        skip_unreadable: bool = False,
        text: str | Path | None = None,
        remember: bool | None = None,
        engine: Engine | None = None,
        progress: Progress = watched,
    ) -> SessionReport:
        """Learn one session: new classes, more images of known ones, or both, in bounded memory.

        Parameters
        ----------
        images : path, or sequence of paths or contents
            A folder with one sub-folder per class, a CSV file, or image files or contents.
        labels : sequence of str or int, optional
            With image files or contents, one each.
        test : path, or pair of sequences, optional
            Images to test with after the session. Those of classes not yet known are left out.
        nested : bool, optional
            Of folders in folders, True takes the whole path as the class, False the first folder.
        skip_unreadable : bool, default=False
            Leave out files that are not images; otherwise they stop the session.
        text : path, optional
            Text features of the classes given (``visvm text encode``), for a CLIP encoder, which
            the model keeps: each counts as 32 photos of its class (benchmarks/TEXT.md).
        remember : bool, optional
            Keep salted digests of photos in the model, by which it knows them again; False drops
            them, None does as before. What they reveal is in docs/understand/privacy.md.
        engine : Engine, optional
            Who does the work: ``LocalEngine(journal)``, the default, or ``RayEngine(…)``.
        """
        self._require_sums("learn more")
        given, tests = read_labelled(images, labels, nested=nested), read_tests(test, nested)
        said = None if text is None else read_texts(expanded(text))
        self.check_options(progress)  # before hours are spent on encoding
        with trial_cache(self.cache, self._chooses) as cache:
            work = replace(self._work(given, skip_unreadable, cache, progress), remember=remember)
            texts = None if said is None else text_samples(said, work.encoder, given.labels)
            model, report = learn_session(
                self.model_, work, test=tests, engine=engine, progress=progress, texts=texts
            )
        if self.model_ is None:
            self._encoder, self.encoder_name = work.encoder, model.encoder.name
        self.model_, self.transform = model, model.encoder.transform
        return report

    def has_learned(
        self,
        images: Images,
        labels: Sequence[Label] | None = None,
        *,
        nested: bool | None = None,
        sums: SiteStatistics | None = None,
    ) -> bool:
        """Return whether one of the last sessions has learned these very files.

        ``learn`` does not ask. Contents are never known. Parameters are those of ``learn``; with
        `sums`, whether these are what ``learn_statistics`` has made of the files.
        """
        if self.model_ is None or (sums is not None and not sums.is_for(self.model_)):
            return False
        keys = (self.model_ if sums is None else sums.model).learned
        return bool(keys) and read_labelled(images, labels, nested=nested).key in keys

    def learn_statistics(
        self,
        images: Images,
        labels: Sequence[Label] | None = None,
        *,
        nested: bool | None = None,
        skip_unreadable: bool = False,
        engine: Engine | None = None,
        progress: Progress = watched,
    ) -> SiteStatistics:
        """Return the sums of images, for a model elsewhere to take in with ``merge``.

        This model stays as it is, and what it has learned itself is not in them; features of single
        images can be computed from them. Parameters are those of ``learn``.
        """
        self._require_sums("learn")
        model = require_settled(self.model_)
        given = read_labelled(images, labels, nested=nested)
        self.check_options(progress)
        work = self._work(given, skip_unreadable, self.cache, progress)
        return SiteStatistics(learn_sums(model, work, engine=engine, progress=progress))

    @property
    def _chooses(self) -> bool:
        """Whether the next session chooses the transform, or the encoder."""
        return self.model_ is None and "auto" in (self.transform, self.encoder_name)

    def _work(
        self,
        given: Labelled,
        skip_unreadable: bool,
        cache: bool | Path | FeatureCache,
        progress: Progress,
    ) -> Work:
        encoder = self.load_encoder()
        work = plan_session(
            given,
            encoder,
            self._transform(encoder),
            cache,
            options=replace(self._options, layer_dims=encoder.layer_dims),
            start=None if self.model_ is None else self.model_.head,
            max_base_images=self.max_base_images,
            skip_unreadable=skip_unreadable,
            views=self.views,
        )
        if not self._chooses:
            return work
        return with_choices(work, self._wanted, self.transform, progress)

    def forget(
        self,
        images: Images,
        labels: Sequence[Label] | None = None,
        *,
        nested: bool | None = None,
        skip_unreadable: bool = False,
        progress: Progress = watched,
    ) -> int:
        """Take images out again, as if they had never been learned; return their number.

        λ, the calibration of scores and the history stay as they are. Parameters are those of
        ``learn``; the images must be those that were learned.
        """
        self._require_sums("forget")
        model = self._known()
        given = read_labelled(images, labels, nested=nested)
        samples = self._encode(given, progress, skip_unreadable, self.views)
        progress("forgetting", 0, 1)
        contents = contents_of(given.sources) if model.photos is not None else []
        self.model_ = changes.forgotten(model, samples.features, np.array(samples.labels), contents)
        progress("forgetting", 1, 1)
        return len(samples.labels)

    # Sums of others

    def merge(self, *others: "ImageClassifier | SiteStatistics") -> Self:
        """Add what other models or sites have learned, in any order, as if this one had, too.

        λ stays this model's: others may have another, and only ``learn`` chooses it anew. So
        ``unmerge`` takes out exactly what was added.

        Parameters
        ----------
        *others : ImageClassifier or SiteStatistics
            Of the same encoder, transform, kernel map and mixer: grown from copies of one model, or
            from what ``export_for_site`` wrote. They are left as they are.

        Raises
        ------
        IncompatibleModelError
            They are of another model; or a site, or the same model, would be counted twice.
        """
        self.model_ = merging.merged(merging.site_of(self).model, map(merging.site_of, others))
        return self

    @classmethod
    def merge_files(cls, model: str | Path, others: Sequence[str | Path]) -> Self:
        """Return what ``merge`` makes of files, of which one is held in memory at a time.

        Parameters
        ----------
        model : path
            Of a model.
        others : sequence of paths
            Of models, or of what ``SiteStatistics.save`` wrote.
        """
        whole = cls.load(model)
        sites = map(SiteStatistics.load, others)
        whole.model_ = merging.merged(whole._settled(), sites, consume=True)
        return whole

    def unmerge(self, other: "ImageClassifier | SiteStatistics") -> Self:
        """Take out again what was merged, as if it had never been: a site withdraws.

        Classes that were renamed or forgotten since then are found under their new names.
        Calibration that was measured with the site stays as it is.

        Parameters
        ----------
        other : ImageClassifier or SiteStatistics
            As it was merged.

        Raises
        ------
        NeverLearnedError
            The site was never merged, or its sums were others; or ``forget`` has taken out images
            of it; or a site that it held was taken out, or renamed, separately.
        """
        site = merging.site_of(other)
        if self.model_ is None:
            require_merged_sites(site.entries(""), ())
        self.model_ = merging.unmerged(self._settled(), site)
        return self

    # Classes

    def rename_class(self, old: Label, new: Label, *, merge: bool = False) -> Self:
        """Give a class another name.

        With `merge`, if the new name is a class already, both become one, as if their images had
        been learned under one label.
        """
        model = self._known()
        if old not in model.counts:  # an older model may have any
            old = check_label(old, "the class to rename")
        new = check_label(new, "the new name")
        self.model_ = changes.renamed(model, old, new, merge=merge)
        return self

    def forget_class(self, label: Label) -> Self:
        """Never answer with a class again; its images need not be there.

        To all other classes, also to one learned under its name later, its images stay examples of
        something else. ``forget`` takes images out of everything, but needs them, and before this.
        """
        model = self._known()
        if label not in model.counts:
            label = check_label(label, "the class to forget")
        self.model_ = changes.class_forgotten(model, label)
        return self

    # The last change

    @classmethod
    def undo(
        cls,
        path: str | Path,
        *,
        encoder: str | Encoder | None = None,
        cache: bool | Path | FeatureCache = True,
    ) -> Self:
        """Take the last change of a model file back; return the model as it was before.

        That is what the last ``save`` has changed. It can be done once: undoing is not undone.
        Other parameters are those of ``load``.

        Raises
        ------
        ModelFileError
            The file before the last change was not kept, or is there no more.
        """
        with locked(Path(path)):
            now = model_file.read(Path(path), sums=False)
            found = cls.of(changes.before_last(Path(path), now), encoder=encoder, cache=cache)
            found.save(path, undo=False)
        return found

    # Parts

    def _require_sums(self, what: str) -> None:
        if self.model_ is not None:
            changes.require_sums(self.model_, what)
