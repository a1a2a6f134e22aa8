"""Commands that change what a model knows: ``learn``, ``forget``, and those of single classes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visvm.cli.opening import changed, open_for_learning, require_new, tell_waiting
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
    given_options,
    home,
)
from visvm.errors import InputError, ModelFileError

if TYPE_CHECKING:
    from visvm.learning.work import Engine
    from visvm.model.journal import Journal
    from visvm.model.results import SessionReport
    from visvm.model.sites import SiteStatistics

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
KnownClass = Annotated[
    str, typer.Argument(help="A class the model knows.", metavar="CLASS", show_default=False)
]


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
    from visvm.cli.terminal import progress_bars
    from visvm.model.container import locked
    from visvm.model.journal import Journal
    from visvm.model.sites import SiteStatistics

    options = given_options(encoder, transform, components, ridge, seed)
    _check_ray(ray, actors, batch_size)
    _check_statistics_only(model, statistics_only, test, force)
    output = model if statistics_only is None else statistics_only
    with locked(output, tell_waiting(output, quiet)), progress_bars(quiet) as progress:
        if statistics_only is not None:
            require_new(output, force)
        classifier = open_for_learning(model, options, cache=not no_cache)
        with Journal(output) as journal:
            engine = _engine(journal, ray, actors, batch_size)
            given: Any = {"skip_unreadable": skip_unreadable, "engine": engine}
            learned: SessionReport | SiteStatistics
            if statistics_only is None:
                learned = classifier.learn(folder, test=test, progress=progress, **given)
            else:
                learned = classifier.learn_statistics(folder, progress=progress, **given)
            progress("writing the model", 0, 1)
            (learned if isinstance(learned, SiteStatistics) else classifier).save(output)
            progress("writing the model", 1, 1)
    _show(output, learned, as_json=as_json, quiet=quiet)


def _show(
    output: Path, learned: "SessionReport | SiteStatistics", *, as_json: bool, quiet: bool
) -> None:
    from visvm.cli.reporting import show_report, show_statistics
    from visvm.cli.terminal import print_json
    from visvm.model.sites import SiteStatistics

    if isinstance(learned, SiteStatistics):
        if as_json:
            print_json({**learned.history[0], "site": learned.site})
        elif not quiet:
            show_statistics(output, learned)
    elif as_json:
        print_json(learned)
    elif not quiet:
        show_report(output, learned)


def _check_ray(address: str | None, actors: int | None, batch_size: int | None) -> None:
    if address is None and (actors or batch_size):
        raise InputError(
            "--actors and --batch-size were given without --ray. Add it, or leave them out.",
            code="option-without-ray",
        )


def _check_statistics_only(model: Path, output: Path | None, test: str | None, force: bool) -> None:
    """Refuse what does not go with --statistics-only, or without."""
    if output is None:
        if force:
            raise InputError(
                "--force was given without --statistics-only. Leave it out: learning replaces "
                "no model.",
                code="option-without-statistics",
            )
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
    if output.exists() and output.samefile(model):
        raise ModelFileError(
            f"--statistics-only would write over the model {output}. Choose another name.",
            code="output-is-model",
        )


def _engine(
    journal: "Journal", address: str | None, actors: int | None, batch_size: int | None
) -> "Engine":
    from visvm.learning.local import LocalEngine

    if address is None and (actors or batch_size):
        raise InputError(
            "--actors and --batch-size were given without --ray. Add it, or leave them out.",
            code="option-without-ray",
        )
    if address is None:
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
    quiet: Quiet = False,
) -> None:
    """Take images out again, as if they had never been learned: the very images, not others.

    Without them, 'visvm forget-class' makes the model never answer with a class again.
    """
    from visvm.cli.reporting import counted
    from visvm.cli.terminal import out, progress_bars

    with (
        changed(model, encoder=encoder, cache=not no_cache) as classifier,
        progress_bars(quiet) as progress,
    ):
        n = classifier.forget(folder, skip_unreadable=skip_unreadable, progress=progress)
    if not quiet:
        known = len(classifier.classes_)
        out().print(f"forgot {n} images; {model} knows {counted(known, 'class')}", markup=False)


def rename_class(
    model: ModelPath,
    old: KnownClass,
    new: Annotated[str, typer.Argument(help="Its new name.", metavar="NEW", show_default=False)],
    merge: Annotated[
        bool, typer.Option("--merge", help="If NEW is a class already, make both one.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Give a class another name, or put two classes together."""
    from visvm.cli.terminal import out
    from visvm.model.labels import as_number

    with changed(model) as classifier:
        names = (as_number(old), as_number(new)) if classifier.numbers else (old, new)
        classifier.rename_class(*names, merge=merge)
    if not quiet:
        out().print(f"{old} is now called {new}", markup=False)


def forget_class(model: ModelPath, label: KnownClass, quiet: Quiet = False) -> None:
    """Never answer with a class again; no images needed. Other classes' scores stay as they are."""
    from visvm.cli.reporting import counted
    from visvm.cli.terminal import out
    from visvm.model.labels import as_number

    with changed(model) as classifier:
        classifier.forget_class(as_number(label) if classifier.numbers else label)
    if not quiet:
        known = len(classifier.classes_)
        out().print(f"forgot {label}; {model} knows {counted(known, 'class')}", markup=False)
