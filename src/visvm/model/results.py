"""What people get: a prediction, how good a model is, what a session did."""

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace

from visvm.model.estimate import SessionEstimate
from visvm.model.formats import counted, percent
from visvm.model.labels import Label
from visvm.model.notebook import html_table


@dataclass(frozen=True)
class ClassResult:
    """How the images of one class were recognised."""

    n: int
    accuracy: float


@dataclass(frozen=True)
class Confusion:
    """How many images of one class were taken for another."""

    label: Label
    predicted: Label
    n: int


@dataclass(frozen=True)
class WrongAnswer:
    """A photo that was answered wrongly.

    Attributes
    ----------
    path : str
    label, predicted : str or int
    score : float
        Probability of the answer.
    unknown : bool
        Whether the model would say "none of these".
    """

    path: str
    label: Label
    predicted: Label
    score: float
    unknown: bool


@dataclass(frozen=True)
class Evaluation:
    """How labelled images were recognised.

    Attributes
    ----------
    accuracy : float
        From 0 to 1, over all images.
    n : int
        Number of images.
    per_class : dict of ClassResult
        By label.
    confusions : tuple of Confusion
        Pairs of classes that were taken for one another, the most frequent first.
    never_learned : tuple of labels
        Classes the model does not know; their images are left out.
    skipped : tuple of str
        Files that could not be read.
    wrong : tuple of WrongAnswer
        Images that were answered wrongly, the surest answers first.
    n_unknown : int
        Images, rightly answered ones among them, for which it would say "none of these".
    """

    accuracy: float
    n: int
    per_class: dict[Label, ClassResult]
    confusions: tuple[Confusion, ...] = ()
    never_learned: tuple[Label, ...] = ()
    skipped: tuple[str, ...] = ()
    wrong: tuple[WrongAnswer, ...] = ()
    n_unknown: int = 0

    def _repr_html_(self) -> str:
        worst = sorted(self.per_class.items(), key=lambda item: item[1].accuracy)
        rows = [(label, each.n, percent(each.accuracy)) for label, each in worst]
        accuracy = f"accuracy on {counted(self.n, 'image')}: {percent(self.accuracy)}"
        title = f"{accuracy}; by class, worst first"
        return html_table(title, ["class", "images", "accuracy"], rows)


@dataclass(frozen=True)
class SessionTest:
    """Accuracy after a session, from 0 to 1: on all test images, on old and on new classes.

    `accuracy_before` is what the model had before the session on the test images of the classes
    known then.
    """

    n: int
    accuracy: float
    old_accuracy: float | None
    new_accuracy: float | None
    accuracy_before: float | None = None


@dataclass(frozen=True)
class TransformChoice:
    """Which transform the first session chose.

    Attributes
    ----------
    transform : str
    n : int
        Photos on which all were tried, each scored as if it had not been learned; 0 where there
        were too few to tell, so that the default was taken.
    accuracies : dict
        Share of them that were recognised, by transform.
    """

    transform: str
    n: int = 0
    accuracies: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EncoderChoice:
    """Which encoder the first session chose.

    Attributes
    ----------
    encoder : str
        Its name, with the size of the pictures it is shown.
    why : str
        In words.
    n : int
        Photos on which encoders were tried, each scored as if it had not been learned; 0 where none
        was.
    accuracies : dict
        Share of them that were recognised, by name.
    milliseconds : dict
        What an image takes here, reading it included, by name. Encoders too slow for the time given
        have no accuracy.
    minutes : float or None
        The time that was given.
    """

    encoder: str
    why: str
    n: int = 0
    accuracies: dict[str, float] = field(default_factory=dict)
    milliseconds: dict[str, float] = field(default_factory=dict)
    minutes: float | None = None


@dataclass(frozen=True)
class RidgeChoice:
    """That a session chose λ anew, from the sums.

    Attributes
    ----------
    before : float
        λ until then.
    n_images, n_classes : int
        What is in the sums by which it was chosen.
    """

    before: float
    n_images: int
    n_classes: int


@dataclass(frozen=True)
class Prediction:
    """What an image shows.

    Attributes
    ----------
    label : str or int
        The likeliest class.
    score : float
        Its probability, or with ``raw=True`` its score.
    top : tuple of (label, score)
        The likeliest classes, best first.
    path : str
        The image.
    known : float or None
        How familiar it looks: the share of the learned images that would look less so, had they not
        been learned. None where the model has noted none.
    unknown : bool
        Whether that share is so small that the image is taken to show none of the classes; `label`
        is then the closest.
    level : str or None
        Where classes have groups, such as "bird" with "bird/owl" and "bird/wren" in it: the class
        or group that is probable enough. None where they have none.
    level_score : float or None
        Its probability, which for a group is the sum of those of its classes.
    """

    label: Label
    score: float
    top: tuple[tuple[Label, float], ...]
    path: str
    known: float | None = None
    unknown: bool = False
    level: str | None = None
    level_score: float | None = None


@dataclass(frozen=True)
class SessionReport:
    """What a session did.

    Attributes
    ----------
    session : int
        Its number, from 1.
    learned_at : str
        When, in UTC.
    n_images : int
    new_classes, returning_classes : tuple of labels
    n_classes : int
        Classes known after it.
    ridge : float
        λ.
    layers : tuple of int
        Blocks that are fused.
    seconds : dict
        By stage: choose (the encoder or the transform, by trying), encode, learn, test.
    peak_memory : int or None
        Bytes, of the whole process.
    skipped : tuple of str
        Files that could not be read.
    test : SessionTest or None
        Accuracy on the test images of all classes known, where there are some.
    base : bool
        Whether it was the base session, in which λ, blocks and mixer are settled.
    settled_on : int or None
        Of a base session of many images, on how many of them that was done.
    site : str or None
        The site that learned it, where its sums were merged.
    transform : TransformChoice or None
        Of a base session that chose it.
    encoder : EncoderChoice or None
        Likewise.
    ridge_choice : RidgeChoice or None
        Of a session that chose λ anew.
    estimate : SessionEstimate or None
        Accuracy as its own photos tell it.
    """

    session: int
    learned_at: str
    n_images: int
    new_classes: tuple[Label, ...]
    returning_classes: tuple[Label, ...]
    n_classes: int
    ridge: float
    layers: tuple[int, ...]
    seconds: dict[str, float] = field(default_factory=dict)
    peak_memory: int | None = None
    skipped: tuple[str, ...] = ()
    test: SessionTest | None = None
    base: bool = False
    settled_on: int | None = None
    site: str | None = None
    transform: TransformChoice | None = None
    encoder: EncoderChoice | None = None
    ridge_choice: RidgeChoice | None = None
    estimate: SessionEstimate | None = None

    def _repr_html_(self) -> str:
        images, classes = counted(self.n_images, "image"), counted(self.n_classes, "class")
        title = f"session {self.session}: {images}, {classes} known"
        news = [(label, "new") for label in self.new_classes]
        rows = [*news, *((label, "known before") for label in self.returning_classes)]
        return html_table(title, ["class", ""], rows)

    def is_same_as(self, other: "SessionReport") -> bool:
        """Whether both report one session, under whatever number and from whatever site."""
        return self._bare() == other._bare()

    def _bare(self) -> "SessionReport":
        """Return the report without what is another one in a model that it was merged into."""
        classes = tuple(sorted({*self.new_classes, *self.returning_classes}, key=str))
        bare = replace(self, new_classes=classes, returning_classes=())
        return replace(bare, session=0, site=None, n_classes=0, skipped=(), estimate=None)

    def among(self, known: Set[Label]) -> "SessionReport":
        """Return the report as it is for a model that knew these classes before the session."""
        classes = (*self.new_classes, *self.returning_classes)
        return replace(
            self,
            new_classes=tuple(label for label in classes if label not in known),
            returning_classes=tuple(label for label in classes if label in known),
            n_classes=len({*known, *classes}),
        )


def first_session_note(report: SessionReport) -> str | None:
    """Return what a user who began with little should know."""
    if report.base and report.n_classes < 2:
        return (
            "The first session sets a model up for good, and this one had a single class. "
            "Better begin a new model with two or more."
        )
    if report.base and report.n_images < 5 * report.n_classes:
        return (
            "The first session sets a model up for good, and this one had few classes or images. "
            "Better begin a new model with more of both."
        )
    return None


def ridge_note(report: SessionReport) -> str | None:
    """Say that λ is another one after a session, and by what it was chosen."""
    choice = report.ridge_choice
    if choice is None or choice.before == report.ridge:
        return None
    return (
        f"λ was chosen anew from the sums: {choice.before:g} → {report.ridge:g}, by "
        f"{choice.n_images} images of {choice.n_classes} classes"
    )


def accuracy(labels: Sequence[Label], predicted: Sequence[Label]) -> float:
    """Return the share of labels that were predicted.

    Examples
    --------
    >>> accuracy(["cat", "dog"], ["cat", "cat"])
    0.5
    """
    return sum(label == guess for label, guess in zip(labels, predicted, strict=True)) / len(labels)


def evaluate_labels(
    labels: Sequence[Label],
    predicted: Sequence[Label],
    *,
    never_learned: Sequence[Label] = (),
    skipped: Sequence[str] = (),
) -> Evaluation:
    """Compare labels with predictions.

    Examples
    --------
    >>> result = evaluate_labels(["cat", "cat", "dog"], ["cat", "dog", "dog"])
    >>> result.per_class["cat"].accuracy, result.confusions
    (0.5, (Confusion(label='cat', predicted='dog', n=1),))
    """
    pairs = Counter(zip(labels, predicted, strict=True))
    totals = Counter(labels)
    wrong = [Confusion(label, guess, n) for (label, guess), n in pairs.items() if label != guess]
    return Evaluation(
        accuracy=accuracy(labels, predicted),
        n=len(labels),
        per_class={
            label: ClassResult(n, pairs[label, label] / n)
            for label, n in sorted(totals.items(), key=lambda item: item[0])
        },
        confusions=tuple(
            sorted(wrong, key=lambda pair: (-pair.n, str(pair.label), str(pair.predicted)))
        ),
        never_learned=tuple(never_learned),
        skipped=tuple(skipped),
    )


def session_test(
    labels: Sequence[Label],
    predicted: Sequence[Label],
    new: set[Label],
    before: Sequence[Label] | None = None,
) -> SessionTest:
    """Return the accuracy on all test images, and on those of old and of new classes.

    Parameters
    ----------
    labels, predicted : sequences of labels
    new : set of labels
        Classes that the session brought.
    before : sequence of labels, optional
        What the model predicted before it.

    Examples
    --------
    >>> session_test(["cat", "dog"], ["cat", "cat"], new={"dog"}, before=["cat", "cat"])
    SessionTest(n=2, accuracy=0.5, old_accuracy=1.0, new_accuracy=0.0, accuracy_before=1.0)
    """

    def share(guesses: Sequence[Label] | None, of_new: bool) -> float | None:
        chosen = [place for place, label in enumerate(labels) if (label in new) == of_new]
        if guesses is None or not chosen:
            return None
        return accuracy([labels[place] for place in chosen], [guesses[place] for place in chosen])

    old, recent = share(predicted, False), share(predicted, True)
    return SessionTest(len(labels), accuracy(labels, predicted), old, recent, share(before, False))
