"""Commands that change what a model knows: ``learn``, ``forget``, and those of single classes."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visvm.cli.options import (
    Folder,
    Json,
    ModelPath,
    Nested,
    NewComponents,
    NewEncoder,
    NewQuality,
    NewRidge,
    NewSeed,
    NewTransform,
    NewViews,
    NoCache,
    Quiet,
    SkipUnreadable,
    Where,
    answer_made,
    changed,
    home,
    open_for_learning,
    require_new,
    require_other,
    tell_views,
    tell_waiting,
)
from visvm.cli.undo import NoUndo, tell_kept
from visvm.errors import InputError, ModelFileError, shown

if TYPE_CHECKING:
    from visvm.image_classifier import ImageClassifier
    from visvm.learning.work import Engine
    from visvm.progress import Progress

Minutes = Annotated[
    float | None,
    typer.Option(
        help="With --encoder auto: choose the size as well, so that this session is learned in so "
        "many minutes."
    ),
]
Test = Annotated[
    str | None, typer.Option(help="A folder like FOLDER to test with after the session.")
]
Text = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        callback=home,
        help="Text features of FOLDER's classes ('visvm text encode'), with a CLIP encoder: the "
        "text of a class counts as 32 photos of it. Pays with up to about eight photos of a class.",
    ),
]
StatisticsOnly = Annotated[
    Path | None,
    typer.Option(
        metavar="OUT",
        callback=home,
        help="Leave MODEL as it is, and write the sums of FOLDER's images to the file OUT, for "
        "'visvm merge'. They are not anonymous: features of single photos can be computed from "
        "them.",
    ),
]
ReplaceSums = Annotated[
    bool, typer.Option("--force", help="With --statistics-only: replace OUT if it exists.")
]
RevealFeatures = Annotated[
    bool,
    typer.Option(
        "--reveal-features",
        help="With --statistics-only: write sums of too few photos, too, from which features of "
        "single ones can be computed.",
    ),
]
Again = Annotated[
    bool,
    typer.Option("--again", help="Learn FOLDER once more if a recent session has learned it."),
]
Ray = Annotated[
    str | None,
    typer.Option(
        help="Learn on a Ray cluster: its address, 'auto' for this machine's, or 'local' for one "
        "started here.",
        metavar="ADDRESS",
    ),
]
Actors = Annotated[int | None, typer.Option(min=1, help="With --ray: encoders that run at once.")]
BatchSize = Annotated[
    int | None, typer.Option(min=1, help="With --ray: images an encoder takes at a time.")
]
Remember = Annotated[
    bool | None,
    typer.Option(
        "--remember/--no-remember",
        help="Keep salted digests of photos in MODEL, so that it knows them when they come again, "
        "however many it has learned. Who has MODEL and a photo can then see whether it was "
        "learned. --no-remember drops them.",
        show_default="as before, and at first not",
    ),
]
KnownClass = Annotated[str, typer.Argument(help="A class the model knows.", metavar="CLASS")]


def learn(
    model: ModelPath,
    folder: Folder,
    encoder: NewEncoder = None,
    quality: NewQuality = None,
    minutes: Minutes = None,
    transform: NewTransform = None,
    views: NewViews = None,
    components: NewComponents = None,
    ridge: NewRidge = None,
    seed: NewSeed = None,
    test: Test = None,
    text: Text = None,
    remember: Remember = None,
    nested: Nested = None,
    statistics_only: StatisticsOnly = None,
    force: ReplaceSums = False,
    reveal: RevealFeatures = False,
    again: Again = False,
    skip_unreadable: SkipUnreadable = False,
    ray: Ray = None,
    actors: Actors = None,
    batch_size: BatchSize = None,
    no_cache: NoCache = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn one session: new classes, more images of known ones, or both. Creates MODEL if new.

    With --statistics-only: for the model that 'visvm export --for-site' exported this one for.
    """
    from visvm.cli.terminal import answer, progress_bars
    from visvm.model.container import locked

    asked = {"test": test, "text": text, "remember": remember}
    output = _output(model, statistics_only, asked, force or reveal, ray, actors or batch_size)
    with locked(output, tell_waiting(output, quiet)), progress_bars(quiet) as progress:
        new = (encoder, transform, views, components, ridge, seed, quality, minutes)
        classifier = open_for_learning(model, *new, cache=not no_cache)
        if not again and _has_learned(classifier, folder, nested, statistics_only, force):
            return _answer_known(folder, output, as_json, quiet)
        require_new(output, force or statistics_only is None)
        tell_views(classifier.views, quiet)
        with _engine(output, ray, actors, batch_size) as engine:
            given: Any = {"nested": nested, "skip_unreadable": skip_unreadable, "engine": engine}
            if statistics_only is None:
                said, show = _learned(classifier, folder, output, progress, given | asked)
            else:
                said, show = _summed(classifier, folder, output, reveal, progress, given)
    return answer(said, show, as_json=as_json, quiet=quiet)


def _learned(
    classifier: "ImageClassifier",
    folder: str,
    output: Path,
    progress: "Progress",
    given: Any,
) -> "tuple[object, Callable[[], None]]":
    """Learn and save; return the report, and what shows it."""
    from visvm.cli.reporting import show_report
    from visvm.cli.terminal import note
    from visvm.model.results import first_session_note

    report = classifier.learn(folder, progress=progress, **given)
    if report.base and report.n_classes < 2:  # also where nobody wants notes
        note(first_session_note(report) or "")
    _write(classifier.save, output, progress)
    return report, partial(show_report, output, report)


def _summed(
    classifier: "ImageClassifier",
    folder: str,
    output: Path,
    reveal: bool,
    progress: "Progress",
    given: Any,
) -> "tuple[object, Callable[[], None]]":
    """Make and save sums for a model elsewhere; return what they are, and what shows it."""
    from visvm.cli.reporting import show_statistics
    from visvm.learning.labelled import read_labelled
    from visvm.model.sites import Minimum

    model = classifier.model_
    if not reveal and model is not None and model.head.sums is not None:  # before hours of encoding
        Minimum.of(model.head.settled.lift).require(
            Counter(read_labelled(folder, nested=given["nested"]).labels)
        )
    sums = classifier.learn_statistics(folder, progress=progress, **given)
    _write(partial(sums.save, reveal_features=reveal), output, progress)
    return {**sums.history[0], "site": sums.site}, partial(show_statistics, output, sums)


def _write(save: "Callable[[Path], None]", output: Path, progress: "Progress") -> None:
    progress("writing the model", 0, 1)
    save(output)
    progress("writing the model", 1, 1)


def _output(
    model: Path,
    output: Path | None,
    asked: Mapping[str, object],
    force: bool,
    ray: str | None,
    more: object,
) -> Path:
    """Return what is written; refuse options that do not go together, or not without another."""
    if ray is None and more:
        advice = "--actors and --batch-size were given without --ray. Add it, or leave them out."
        raise InputError(advice, code="option-without-ray")
    if output is None and force:
        raise InputError(
            "--force or --reveal-features was given without --statistics-only. Leave it out: "
            "learning replaces no model.",
            code="option-without-statistics",
        )
    if output is None:
        return model
    for option in (name for name, value in asked.items() if value is not None):
        raise InputError(
            f"--{option} needs a model, and --statistics-only makes none. Leave one of them out.",
            code="option-test-without-model",
        )
    if not model.exists():
        advice = f"There is no file {model}. Make one with 'visvm export MODEL --for-site'."
        raise ModelFileError(advice, code="file-missing")
    require_other(output, model, "--statistics-only")
    return output


def _has_learned(
    classifier: "ImageClassifier",
    folder: str,
    nested: bool | None,
    output: Path | None,
    force: bool,
) -> bool:
    """Whether this very session is in the model, or its sums are in the output."""
    from visvm.model.sites import SiteStatistics

    if output is None:
        return classifier.has_learned(folder, nested=nested)
    if output.exists() and not force:
        with suppress(ModelFileError):  # another file, which is not to be replaced
            sums = SiteStatistics.load(output)
            return classifier.has_learned(folder, nested=nested, sums=sums)
    return False


def _answer_known(folder: str, output: Path, as_json: bool, quiet: bool) -> None:
    """Say that there is nothing to learn, and remove what a kill has left of that session."""
    from visvm.cli.reporting import answer_change
    from visvm.model import undo
    from visvm.model.journal import Journal

    undo.tidy(output)
    Journal(output).discard_if_done(output)
    said = f"{shown(folder)} is already learned; nothing changed (--again learns it again)"
    answer_change(output, said, as_json, quiet, already_learned=True)


@contextmanager
def _engine(
    output: Path, address: str | None, actors: int | None, batch_size: int | None
) -> "Iterator[Engine]":
    """Give what learns, with the journal of a session in this process."""
    from visvm.learning.local import LocalEngine
    from visvm.model.journal import Journal

    with Journal(output) as journal:
        if address is None:
            yield LocalEngine(journal)
            return
        from visvm.learning.ray import RayEngine

        given = {} if batch_size is None else {"batch_size": batch_size}
        yield RayEngine(address, actors=actors, **given)


def forget(
    model: ModelPath,
    folder: Folder,
    again: Annotated[
        bool,
        typer.Option("--again", help="Forget FOLDER once more if the last command forgot it."),
    ] = False,
    nested: Nested = None,
    skip_unreadable: SkipUnreadable = False,
    no_undo: NoUndo = False,
    encoder: Where = None,
    no_cache: NoCache = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take images out again, as if they had never been learned: the very images, not others.

    Without them, 'visvm forget-class' makes the model never answer with a class again.
    """
    from visvm.cli.reporting import answer_change, knows
    from visvm.cli.terminal import progress_bars
    from visvm.learning.labelled import read_labelled
    from visvm.model.file import read_header
    from visvm.model.formats import counted

    read_header(model)  # before any folder is looked into
    command = "forget", read_labelled(folder, nested=nested).key
    given: Any = {"cache": not no_cache, "encoder": encoder}
    with (
        changed(model, *command, again=again, undo=not no_undo, **given) as classifier,
        progress_bars(quiet) as progress,
    ):
        if classifier is None:
            return answer_made(model, as_json, quiet, " (--again forgets them again)", n_images=0)
        n = classifier.forget(
            folder, nested=nested, skip_unreadable=skip_unreadable, progress=progress
        )
    tell_kept(model, no_undo, quiet)
    said = f"forgot {counted(n, 'image')}; {knows(model, classifier)}"
    return answer_change(model, said, as_json, quiet, n_images=n)


def rename_class(
    model: ModelPath,
    old: KnownClass,
    new: Annotated[str, typer.Argument(help="Its new name.", metavar="NEW")],
    merge: Annotated[
        bool, typer.Option("--merge", help="If NEW is a class already, make both one.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Give a class another name, or put two classes together."""
    from visvm.cli.reporting import answer_change
    from visvm.model.labels import as_number

    with changed(model, "rename-class", old, new, merge) as classifier:
        if classifier is None:
            return answer_made(model, as_json, quiet)
        names = (as_number(old), as_number(new)) if classifier.numbers else (old, new)
        classifier.rename_class(*names, merge=merge)
    said = f"{old} is now called {new}"
    return answer_change(model, said, as_json, quiet, old=names[0], new=names[1])


def forget_class(
    model: ModelPath,
    label: KnownClass,
    no_undo: NoUndo = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Never answer with a class again; no images needed. Other classes' scores stay as they are."""
    from visvm.cli.reporting import answer_change, knows
    from visvm.model.labels import as_number

    with changed(model, "forget-class", label, undo=not no_undo) as classifier:
        if classifier is None:
            return answer_made(model, as_json, quiet)
        name = as_number(label) if classifier.numbers else label
        before = sum(classifier.class_counts_)
        classifier.forget_class(name)
    n, said = before - sum(classifier.class_counts_), f"forgot {label}; {knows(model, classifier)}"
    return answer_change(model, said, as_json, quiet, label=name, n_images=n)
