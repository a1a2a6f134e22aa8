"""The command line: ``visvm --help``.

Exit code 0, or 2 with one clear line on standard error for anything the user can put right. What is
heavy is imported by the command that needs it, so that help and mistakes are answered at once.
"""

import glob
import io
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visvm import __version__
from visvm.cli import bench as cli_bench
from visvm.cli import sites as cli_sites
from visvm.cli.shared import Json, Model, Quiet, changed, home, require_new, tell_waiting
from visvm.cli.upkeep import cache_app, weights_app
from visvm.errors import InputError, ModelFileError, VisvmError

if TYPE_CHECKING:
    from visvm.image_classifier import ImageClassifier
    from visvm.learning.ray import RayEngine
    from visvm.model.sites import SiteStatistics

app = typer.Typer(
    name="visvm",
    help="Learn to recognise images class by class, and never forget.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command()(cli_bench.bench)
app.command()(cli_bench.report)
app.add_typer(weights_app, name="weights")
app.add_typer(cache_app, name="cache")


Folder = Annotated[
    str,
    typer.Argument(
        help="A folder with one sub-folder per class, also as a URI (s3://…), or a CSV file of path,label.",
        metavar="FOLDER",
        show_default=False,
    ),
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Encode every image anew and keep no features.")
]
SkipUnreadable = Annotated[
    bool,
    typer.Option(
        "--skip-unreadable", help="Leave out files that are no images, instead of stopping."
    ),
]
NewEncoder = Annotated[
    str | None,
    typer.Option(
        help="Of a new model: a name of 'visvm weights list', an .onnx file, a transformers folder. Of one that exists: where "
        "its encoder is on this machine, if it has no name.",
        show_default="dinov2-s14",
    ),
]
NewTransform = Annotated[
    str | None, typer.Option(help="Of a new model: crop or squash.", show_default="crop")
]
NewComponents = Annotated[
    int | None,
    typer.Option(help="Of a new model: width of the random kernel map.", show_default="15000"),
]
NewRidge = Annotated[
    float | None,
    typer.Option(help="Of a new model: λ; chosen from the first session if not given."),
]
NewSeed = Annotated[
    int | None, typer.Option(help="Of a new model: decides the random map.", show_default="0")
]
Where = Annotated[
    str | None,
    typer.Option(
        "--encoder", help="Where the model's encoder is on this machine, if it has no name."
    ),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


@app.command()
def learn(
    model: Model,
    folder: Folder,
    encoder: NewEncoder = None,
    transform: NewTransform = None,
    components: NewComponents = None,
    ridge: NewRidge = None,
    seed: NewSeed = None,
    test: Annotated[
        str | None, typer.Option(help="A folder like FOLDER to test with after the session.")
    ] = None,
    statistics_only: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT",
            callback=home,
            help="Leave MODEL as it is, and write the sums of FOLDER's images to the file OUT, for 'visvm merge'.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --statistics-only: replace OUT if it exists.")
    ] = False,
    skip_unreadable: SkipUnreadable = False,
    ray: Annotated[
        str | None,
        typer.Option(
            help="Learn on a Ray cluster: its address, 'auto' for this machine's, or 'local' for one made here.",
            metavar="ADDRESS",
        ),
    ] = None,
    actors: Annotated[
        int | None, typer.Option(min=1, help="With --ray: how many encoders run at once.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="With --ray: images an encoder takes at a time.")
    ] = None,
    no_cache: NoCache = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn one session: new classes, more images of known ones, or both. Creates MODEL if it is new.

    With --statistics-only: for a model elsewhere, which this one was exported for ('visvm export
    --for-site').
    """
    from visvm.cli.reporting import show_report, show_statistics
    from visvm.cli.terminal import print_json, progress_bars
    from visvm.image_classifier import ImageClassifier
    from visvm.learning.local import LocalEngine
    from visvm.model import file as model_file
    from visvm.model.journal import Journal

    if ray is None and (actors or batch_size):
        raise InputError(
            "--actors and --batch-size belong to --ray; got them without it: add it, or leave them out"
        )
    options = _given(encoder, transform, components, ridge, seed)
    _check_statistics_only(model, statistics_only, test, force)
    output = model if statistics_only is None else statistics_only
    with model_file.locked(output, tell_waiting(output, quiet)), progress_bars(quiet) as progress:
        if statistics_only is not None:
            require_new(output, force)
        classifier = _open_for_learning(model, options, cache=not no_cache)
        with Journal(output) as journal:
            engine = LocalEngine(journal) if ray is None else _ray_engine(ray, actors, batch_size)
            made: ImageClassifier | SiteStatistics = classifier
            if statistics_only is None:
                report = classifier.learn(
                    folder,
                    test=test,
                    skip_unreadable=skip_unreadable,
                    engine=engine,
                    progress=progress,
                )
            else:
                made = classifier.learn_statistics(
                    folder, skip_unreadable=skip_unreadable, engine=engine, progress=progress
                )
            progress("writing the model", 0, 1)
            made.save(output)
            progress("writing the model", 1, 1)
    if not isinstance(made, ImageClassifier):
        if as_json:
            print_json({**made.history[0], "site": made.site})
        elif not quiet:
            show_statistics(output, made)
    elif as_json:
        print_json(report)
    elif not quiet:
        show_report(model, report)


def _check_statistics_only(model: Path, output: Path | None, test: str | None, force: bool) -> None:
    """Refuse what does not go with --statistics-only, or without."""
    if output is None:
        if force:
            raise InputError(
                "--force belongs to --statistics-only; got it alone: leave it out, a model learns on"
            )
        return
    if test is not None:
        raise InputError(
            "--test asks a model, and --statistics-only makes none; got both: leave one out"
        )
    if not model.exists():
        raise ModelFileError(
            f"--statistics-only needs a model that is settled; {model} does not exist: 'visvm export MODEL --for-site' makes one"
        )
    if output.exists() and output.samefile(model):
        raise ModelFileError(
            f"--statistics-only must name another file than the model; got {output}: choose another name"
        )


def _ray_engine(address: str, actors: int | None, batch_size: int | None) -> "RayEngine":
    from visvm.learning.ray import RayEngine

    return RayEngine(
        address, actors=actors, **({} if batch_size is None else {"batch_size": batch_size})
    )


def _given(
    encoder: str | None,
    transform: str | None,
    components: int | None,
    ridge: float | None,
    seed: int | None,
) -> dict[str, Any]:
    """Options of a new model that were given, under the names that ``ImageClassifier`` has for them."""
    named = {
        "encoder": encoder,
        "transform": transform,
        "n_components": components,
        "ridge": ridge,
        "random_state": seed,
    }
    return {name: value for name, value in named.items() if value is not None}


def _open_for_learning(model: Path, options: dict[str, Any], *, cache: bool) -> "ImageClassifier":
    from visvm.image_classifier import ImageClassifier

    if not model.exists():
        return ImageClassifier(**options, cache=cache)
    classifier = ImageClassifier.load(model, cache=cache, encoder=options.get("encoder"))
    head = classifier.head_
    settled = {
        "transform": classifier.transform,
        "n_components": head.n_components,
        "ridge": head.ridge_,
        "random_state": head.seed_,
    }
    names = {"n_components": "components", "random_state": "seed"}
    for name, value in settled.items():
        if options.get(name, value) != value:
            option = names.get(name, name)
            raise InputError(
                f"--{option} belongs to a new model; {model} has {value}, {options[name]} was given: leave it out"
            )
    return classifier


@app.command()
def predict(
    model: Model,
    images: Annotated[
        list[str],
        typer.Argument(
            help="Images, folders, or patterns such as 'photos/*.jpg'.", metavar="IMAGE…"
        ),
    ],
    top: Annotated[int, typer.Option(min=1, help="How many classes to name.")] = 5,
    raw: Annotated[
        bool, typer.Option("--raw", help="Give the head's scores instead of probabilities.")
    ] = False,
    encoder: Where = None,
    no_cache: NoCache = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what images show: the likeliest class of each, with its probability."""
    from visvm.bench.report.formats import percent
    from visvm.cli.terminal import out, print_json, progress_bars
    from visvm.encoders.pipeline import Unreadable
    from visvm.errors import shown
    from visvm.image_classifier import ImageClassifier

    paths = _expand(images)
    classifier = ImageClassifier.load(
        model, encoder=encoder, cache=not no_cache, for_prediction=True
    )
    unreadable, console = [], out()
    # Lines that appear one by one are progress enough; a bar between them would tear them.
    with progress_bars(quiet, bars=not console.is_terminal) as progress:
        for outcome in classifier.predict_stream(paths, top=top, raw=raw, progress=progress):
            if isinstance(outcome, Unreadable):
                unreadable.append(f"{outcome.path} ({outcome.reason})")
            elif as_json:
                top_json = [{"label": label, "score": score} for label, score in outcome.top]
                print_json(
                    {
                        "path": outcome.path,
                        "label": outcome.label,
                        "score": outcome.score,
                        "top": top_json,
                    },
                    indent=None,
                )
            else:
                best = [
                    f"{label} {f'{score:.3f}' if raw else percent(score)}"
                    for label, score in outcome.top
                ]
                console.print(f"{shown(Path(outcome.path))}: ", end="", markup=False)
                console.print(best[0], style="bold", end="", markup=False)
                console.print("".join(f" · {each}" for each in best[1:]), style="dim", markup=False)
    if unreadable:
        raise InputError(
            f"every file must be an image; {len(unreadable)} cannot be read: {'; '.join(unreadable)}"
        )


def _expand(images: list[str]) -> list[Path]:
    """Files meant by files, folders and patterns."""
    from visvm.encoders.images import find_images
    from visvm.encoders.sources import expanded

    paths: list[Path] = []
    for given in images:
        path = expanded(given)
        if path.is_dir():
            found = find_images(path)
        elif path.exists() or not glob.has_magic(given):
            found = [path]
        else:
            found = sorted(
                Path(match)
                for match in glob.glob(str(path), recursive=True)
                if Path(match).is_file()
            )
        if not found:
            raise InputError(f"{given} must name images; there are none")
        paths += found
    return paths


@app.command()
def evaluate(
    model: Model,
    folder: Folder,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw accuracy by class and confusions to this PNG, PDF or SVG file."),
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    encoder: Where = None,
    no_cache: NoCache = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure accuracy: overall, by class, and which classes are taken for which."""
    from visvm.cli.reporting import show_evaluation
    from visvm.cli.terminal import note, print_json, progress_bars
    from visvm.image_classifier import ImageClassifier

    if plot is not None:
        from visvm.cli.figures import check_figure_name

        check_figure_name(plot)
    classifier = ImageClassifier.load(
        model, encoder=encoder, cache=not no_cache, for_prediction=True
    )
    with progress_bars(quiet) as progress:
        result = classifier.evaluate(folder, skip_unreadable=skip_unreadable, progress=progress)
    if plot is not None:
        from visvm.cli.figures import draw_evaluation

        draw_evaluation(result, plot)
        if not quiet:
            note(f"figure: {plot}")
    if result.never_learned and not quiet:
        note(
            f"left out, as the model does not know them: {', '.join(map(str, result.never_learned))}"
        )
    if as_json:
        print_json(result)
        return
    show_evaluation(result)


@app.command()
def info(model: Model, as_json: Json = False) -> None:
    """Show what a model knows: classes with counts, sessions, encoder, sizes."""
    from visvm.cli.reporting import describe, show_model
    from visvm.cli.terminal import print_json

    described = describe(model)
    if as_json:
        print_json(described)
    else:
        show_model(described)


app.command()(cli_sites.merge)
app.command()(cli_sites.unmerge)
app.command()(cli_sites.export)


@app.command()
def forget(
    model: Model,
    folder: Folder,
    skip_unreadable: SkipUnreadable = False,
    encoder: Where = None,
    no_cache: NoCache = False,
    quiet: Quiet = False,
) -> None:
    """Take images out again, as if they had never been learned. They must be the very images that were learned.

    Where they are not at hand any more, 'visvm forget-class' makes the model never answer with a
    class again.
    """
    from visvm.cli.terminal import out, progress_bars

    with (
        changed(model, encoder=encoder, cache=not no_cache) as classifier,
        progress_bars(quiet) as progress,
    ):
        n = classifier.forget(folder, skip_unreadable=skip_unreadable, progress=progress)
    if not quiet:
        out().print(
            f"forgot {n} images; {model} knows {len(classifier.classes_)} classes", markup=False
        )


@app.command("rename-class")
def rename_class(
    model: Model,
    old: Annotated[
        str, typer.Argument(help="A class the model knows.", metavar="OLD", show_default=False)
    ],
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
        before, after = (as_number(old), as_number(new)) if classifier.numbers else (old, new)
        classifier.rename_class(before, after, merge=merge)
    if not quiet:
        out().print(f"{old} is now called {new}", markup=False)


@app.command("forget-class")
def forget_class(
    model: Model,
    label: Annotated[
        str, typer.Argument(help="A class the model knows.", metavar="LABEL", show_default=False)
    ],
    quiet: Quiet = False,
) -> None:
    """Never answer with a class again; its images need not be there. The other classes' scores stay as they are."""
    from visvm.cli.terminal import out
    from visvm.model.labels import as_number

    with changed(model) as classifier:
        classifier.forget_class(as_number(label) if classifier.numbers else label)
    if not quiet:
        out().print(
            f"forgot {label}; {model} knows {len(classifier.classes_)} classes", markup=False
        )


@app.command()
def serve(
    model: Model,
    host: Annotated[
        str, typer.Option(help="Address to serve on; any but this machine's own needs VISVM_TOKEN.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to serve on; 0 takes a free one.")
    ] = 8000,
    encoder: NewEncoder = None,
    transform: NewTransform = None,
    components: NewComponents = None,
    ridge: NewRidge = None,
    seed: NewSeed = None,
    max_upload: Annotated[
        int, typer.Option(min=1, help="Megabytes that one request may have.")
    ] = 1024,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Log every request: its route, sizes and time.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Teach and ask in the browser, or over HTTP. Creates MODEL if it is new.

    VISVM_TOKEN is the token that allows changes, VISVM_READ_TOKEN one that only allows questions.
    """
    try:
        from visvm.service.gate import Tokens
        from visvm.service.limits import Limits
        from visvm.service.server import serve as serve_model
        from visvm.service.store import Signature, signature_of
    except ModuleNotFoundError as error:
        raise InputError(
            f"the service needs {error.name}, which is not installed: pip install 'visvm[serve]'"
        ) from error
    from visvm.cli.terminal import note, out, progress_bars
    from visvm.image_classifier import ImageClassifier
    from visvm.model import file as model_file

    tokens = Tokens(os.environ.get("VISVM_TOKEN"), os.environ.get("VISVM_READ_TOKEN"))
    if verbose:
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
        logging.getLogger("visvm.service").setLevel(logging.INFO)

    def opened() -> tuple[ImageClassifier, Signature]:
        options = _given(encoder, transform, components, ridge, seed)
        with progress_bars(quiet) as progress:
            try:
                # also sees whether it could be written
                with model_file.locked(model, tell_waiting(model, quiet)):
                    signature = signature_of(model)
                    classifier = _open_for_learning(model, options, cache=False)
            except ModelFileError as error:
                if os.access(model.parent, os.W_OK) or not model.is_file():
                    raise
                note(f"{error}. It can be asked, but not taught.")
                signature, classifier = (
                    signature_of(model),
                    _open_for_learning(model, options, cache=False),
                )
            classifier.check_options(progress)
        return classifier, signature

    def started(address: str, classifier: ImageClassifier) -> None:
        if not quiet:
            n = len(classifier.classes_)
            known = f"{n} class{'' if n == 1 else 'es'}" if n else "nothing yet"
            out().print(
                f"{model.name} knows {known}. Teach and ask it at {address}  (stop with Ctrl+C)",
                markup=False,
            )

    limits = Limits(upload_bytes=max_upload << 20)
    serve_model(model, opened, host=host, port=port, tokens=tokens, limits=limits, started=started)


@app.command()
def demo(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Your own folder with one sub-folder per class.", metavar="[FOLDER]"),
    ] = None,
    output: Annotated[
        Path, typer.Option("--out", help="Folder for the pictures, the model and the figure.")
    ] = Path("visvm-demo"),
    encoder: Annotated[str, typer.Option(help="The encoder.")] = "dinov2-s14",
    quiet: Quiet = False,
) -> None:
    """Show the whole idea in a few minutes: pictures learned class by class, beside a head that forgets."""
    from visvm.cli import demo as demonstration
    from visvm.cli.terminal import out, progress_bars

    with progress_bars(quiet) as progress:
        demonstration.run(out(), progress, output, folder, encoder)


@app.command()
def doctor(
    what: Annotated[
        str | None,
        typer.Argument(
            help="Which data sets of the benchmark are here, and how to get them.", metavar="data"
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="With 'data': the folder of data sets.", show_default="VISVM_DATA"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what works on this machine: weights, extras, memory, threads, cache; or which data sets are on it."""
    from visvm.cli.doctor import examine, show
    from visvm.cli.terminal import print_json

    if what == "data":
        _doctor_data(data, as_json)
        return
    if what is not None:
        raise InputError(
            f"doctor must be asked about 'data', or nothing in particular; got {what!r}: leave it out"
        )
    if data is not None:
        raise InputError(
            "--data belongs to 'visvm doctor data'; got it without 'data': add the word, or leave it out"
        )
    found = examine()
    if as_json:
        print_json(found)
    else:
        show(found)


def _doctor_data(data: Path | None, as_json: bool) -> None:
    from visvm.bench.loading import examine_data, find_data_root
    from visvm.cli.doctor import show_data
    from visvm.cli.terminal import print_json

    root = find_data_root(data)
    states = examine_data(root)
    if as_json:
        print_json({"root": None if root is None else str(root), "datasets": states})
    else:
        show_data(root, states)


def main() -> None:
    """Run the command line: the outermost frame."""
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal without λ is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(prog_name="visvm", standalone_mode=False)
        if sys.stdout is not None:  # as it is where it was closed before we began
            sys.stdout.flush()
    except SystemExit as stop:  # typer's own end, when whoever read our output has gone
        code = 0 if isinstance(stop.__context__, BrokenPipeError) else stop.code
    except Exception as error:
        line = _sentence(error)
        if line is None:
            raise
        if line:
            sys.stderr.write(f"visvm: {line}\n")
        code = 2
    if code == _INTERRUPTED:
        left = (
            "rows measured so far are kept; the same command goes on"
            if "bench" in sys.argv[1:2]
            else "nothing was changed"
        )
        sys.stderr.write(f"visvm: interrupted; {left}\n")
    sys.exit(code)


_INTERRUPTED = 130


def _sentence(error: Exception) -> str | None:
    """One line for what the user can put right; None for what only we can."""
    if isinstance(error, VisvmError):
        return str(error)
    # what typer raises for a wrong command, option or argument
    if hasattr(error, "format_message"):
        if not error.format_message():  # help was shown, as no command was given
            return ""
        context = getattr(error, "ctx", None)
        command = "visvm" if context is None else context.command_path
        return f"{' '.join(error.format_message().split())} See '{command} --help'."
    if isinstance(error, OSError):
        return f"{error.filename or 'the system'}: {error.strerror or error}"
    if type(error).__name__ == "NotFittedError":
        return str(error)
    return None


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    sys.stderr.write(f"visvm: note: {message}\n")


if __name__ == "__main__":
    main()
