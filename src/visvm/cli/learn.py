"""Commands that change what a model knows: ``learn``, ``forget``, and those of single classes."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visvm.cli.options import (
    Folder,
    Json,
    ModelPath,
    NewComponents,
    NewEncoder,
    NewRidge,
    NewSeed,
    NewTransform,
    NoCache,
    Quiet,
    SkipUnreadable,
    Where,
    changed,
    home,
    open_for_learning,
    require_new,
    require_other,
    tell_waiting,
)
from visvm.errors import InputError, ModelFileError

if TYPE_CHECKING:
    from visvm.learning.work import Engine
    from visvm.model.journal import Journal

Test = Annotated[
    str | None, typer.Option(help="A folder like FOLDER to test with after the session.")
]
StatisticsOnly = Annotated[
    Path | None,
    typer.Option(
        metavar="OUT",
        callback=home,
        help="Leave MODEL as it is, and write the sums of FOLDER's images to the file OUT, for "
        "'visvm merge'.",
    ),
]
ReplaceSums = Annotated[
    bool, typer.Option("--force", help="With --statistics-only: replace OUT if it exists.")
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
KnownClass = Annotated[str, typer.Argument(help="A class the model knows.", metavar="CLASS")]


def learn(
    model: ModelPath,
    folder: Folder,
    encoder: NewEncoder = None,
    transform: NewTransform = None,
    components: NewComponents = None,
    ridge: NewRidge = None,
    seed: NewSeed = None,
    test: Test = None,
    statistics_only: StatisticsOnly = None,
    force: ReplaceSums = False,
    skip_unreadable: SkipUnreadable = False,
    ray: Ray = None,
    actors: Actors = None,
    batch_size: BatchSize = None,
    no_cache: NoCache = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn one session: new classes, more images of known ones, or both. Creates MODEL if new.

    With --statistics-only: for a model elsewhere, which this one was exported for ('visvm export
    --for-site').
    """
    from visvm.cli.reporting import show_report, show_statistics
    from visvm.cli.terminal import answer, progress_bars
    from visvm.model.container import locked
    from visvm.model.journal import Journal

    _check_options(model, statistics_only, test, force, ray, actors or batch_size)
    output = model if statistics_only is None else statistics_only
    with locked(output, tell_waiting(output, quiet)), progress_bars(quiet) as progress:
        if statistics_only is not None:
            require_new(output, force)
        new = (encoder, transform, components, ridge, seed)
        classifier = open_for_learning(model, *new, cache=not no_cache)
        with Journal(output) as journal:
            engine = _engine(journal, ray, actors, batch_size)
            given: Any = {"skip_unreadable": skip_unreadable, "engine": engine}
            if statistics_only is not None:
                sums = classifier.learn_statistics(folder, progress=progress, **given)
                said: object = {**sums.history[0], "site": sums.site}
                save, show = sums.save, partial(show_statistics, output, sums)
            else:
                said = report = classifier.learn(folder, test=test, progress=progress, **given)
                save, show = classifier.save, partial(show_report, output, report)
            progress("writing the model", 0, 1)
            save(output)
            progress("writing the model", 1, 1)
    answer(said, show, as_json=as_json, quiet=quiet)


def _check_options(
    model: Path, output: Path | None, test: str | None, force: bool, ray: str | None, more: object
) -> None:
    """Refuse options that do not go together, or not without another."""
    if ray is None and more:
        raise InputError(
            "--actors and --batch-size were given without --ray. Add it, or leave them out.",
            code="option-without-ray",
        )
    if output is None and force:
        raise InputError(
            "--force was given without --statistics-only. Leave it out: learning replaces "
            "no model.",
            code="option-without-statistics",
        )
    if output is None:
        return
    if test is not None:
        raise InputError(
            "--statistics-only makes no model that --test could ask. Leave one of them out.",
            code="option-test-without-model",
        )
    if not model.exists():
        raise ModelFileError(
            f"There is no file {model}. Make one with 'visvm export MODEL --for-site'.",
            code="file-missing",
        )
    require_other(output, model, "--statistics-only")


def _engine(
    journal: "Journal", address: str | None, actors: int | None, batch_size: int | None
) -> "Engine":
    if address is None:
        from visvm.learning.local import LocalEngine

        return LocalEngine(journal)
    from visvm.learning.ray import RayEngine

    given = {} if batch_size is None else {"batch_size": batch_size}
    return RayEngine(address, actors=actors, **given)


def forget(
    model: ModelPath,
    folder: Folder,
    skip_unreadable: SkipUnreadable = False,
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

    with (
        changed(model, encoder=encoder, cache=not no_cache) as classifier,
        progress_bars(quiet) as progress,
    ):
        n = classifier.forget(folder, skip_unreadable=skip_unreadable, progress=progress)
    said = f"forgot {n} images; {knows(model, classifier)}"
    answer_change(model, said, as_json, quiet, n_images=n)


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

    with changed(model) as classifier:
        names = (as_number(old), as_number(new)) if classifier.numbers else (old, new)
        classifier.rename_class(*names, merge=merge)
    said = f"{old} is now called {new}"
    answer_change(model, said, as_json, quiet, old=names[0], new=names[1])


def forget_class(
    model: ModelPath, label: KnownClass, as_json: Json = False, quiet: Quiet = False
) -> None:
    """Never answer with a class again; no images needed. Other classes' scores stay as they are."""
    from visvm.cli.reporting import answer_change, knows
    from visvm.model.labels import as_number

    with changed(model) as classifier:
        name = as_number(label) if classifier.numbers else label
        before = sum(classifier.class_counts_)
        classifier.forget_class(name)
    n, said = before - sum(classifier.class_counts_), f"forgot {label}; {knows(model, classifier)}"
    answer_change(model, said, as_json, quiet, label=name, n_images=n)
