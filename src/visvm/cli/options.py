"""What several commands share: arguments, options, and how a model file is held and replaced."""

import importlib.util
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visvm.errors import InputError, ModelFileError, shown

if TYPE_CHECKING:
    from visvm.image_classifier import ImageClassifier


def home(path: Path | None) -> Path | None:
    """Expand ``~``, which not every shell does."""
    from visvm.encoders.sources import expanded

    return None if path is None else expanded(path)


Json = Annotated[
    bool, typer.Option("--json", help="Write JSON to standard output, and nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars and no notes.")]
ModelPath = Annotated[Path, typer.Argument(help="The model file.", metavar="MODEL", callback=home)]
Folder = Annotated[
    str,
    typer.Argument(
        help="A folder with one sub-folder per class, also as a URI (s3://…), or a CSV file of "
        "path,label.",
        metavar="FOLDER",
    ),
]
Nested = Annotated[
    bool | None,
    typer.Option(
        "--nested/--top-level",
        help="Where images lie in folders of folders: the class is the whole path (dogs/pug), or "
        "the first folder (dogs).",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Encode every image again and keep no features.")
]
SkipUnreadable = Annotated[
    bool, typer.Option("--skip-unreadable", help="Skip files that are not images.")
]
Where = Annotated[
    str | None,
    typer.Option("--encoder", help="Path of the model's encoder on this machine, if it has moved."),
]

Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="OUT", callback=home, help="Write a page with the photos."),
]

# Of a new model
NewEncoder = Annotated[
    str | None,
    typer.Option(
        help="Encoder for a new model: a name of 'visvm weights list', an .onnx file or a "
        "transformers folder; NAME@336 shows it larger pictures; auto tries those that are fetched "
        "on the first session's photos. For an existing one: path of its encoder on this machine.",
        show_default="dinov2-s14",
    ),
]
NewQuality = Annotated[
    str | None,
    typer.Option(
        help="For a new model: how closely the encoder looks. fast takes less than half of the "
        "time of standard with DINOv2, and looks less closely; best takes two to four times as "
        "long.",
        show_default="standard",
    ),
]
NewTransform = Annotated[
    str | None,
    typer.Option(
        help="For a new model: how photos become square, crop, squash or pad; auto tries them on "
        "the first session's photos.",
        show_default="auto",
    ),
]
NewViews = Annotated[
    str | None,
    typer.Option(
        help="For a new model: what to learn of every photo: one (the photo), mirror (also "
        "mirrored, 2 × the time) or crops (also its corners, 5 × the time).",
        show_default="one",
    ),
]
Views = Annotated[
    str,
    typer.Option(
        help="Average the scores of several views of a photo: mirror (2 × the time) or crops (5 × "
        "the time)."
    ),
]
Unknown = Annotated[
    str,
    typer.Option(
        help="Answer 'none of these' to photos that look unfamiliar. About this share of photos of "
        "known classes is refused by mistake; off refuses none."
    ),
]
NewComponents = Annotated[
    int | None,
    typer.Option(help="For a new model: width of the random kernel map.", show_default="15000"),
]
NewRidge = Annotated[
    float | None,
    typer.Option(
        help="For a new model: λ. If not given, the first session chooses it; if that has fewer "
        "than ten classes, later ones choose it anew."
    ),
]
NewSeed = Annotated[
    int | None, typer.Option(help="For a new model: decides the random map.", show_default="0")
]

_OTHER_FORMS = {
    *(".pt", ".pth", ".ckpt", ".bin", ".pkl", ".pickle", ".joblib", ".npy", ".npz", ".h5", ".hdf5"),
    *(".keras", ".pb", ".tflite", ".mlmodel", ".mlpackage", ".engine", ".onnx", ".zip", ".tar"),
    *(".gz", ".json", ".jsonl", ".csv", ".tsv", ".xlsx", ".txt", ".md", ".html", ".pdf", ".svg"),
}

# Messages speak to Python; parameters of a recipe's methods keep their names.
_IN_OPTIONS = (
    (r"The '(\w+)' parameter(?: of ImageClassifier)? must be (?:'auto' or )?", r"\1 must be "),
    (r", or None\. Got", ". Got"),
    (r", lower n_components, or raise memory_limit", " or lower --components"),
    (r" \(\w+=(?:True|False|…)\)", ""),
    (r"(?<!')\bn_components\b(?!')", "--components"),
    (r"(?<!')\brandom_state\b(?!')|^Seed(?= must be)", "--seed"),
    (r" \(export_for_site\)", ""),
    (r"\bsamples\b", "photos"),
    (r"\bstrings\b", "names"),
    (r"^(ridge|transform|views|quality|minutes)(?= must be)", r"--\1"),
)


def tell_waiting(model: Path, quiet: bool = False) -> Callable[[], None]:
    """Return what says, the first time it is called, that another process holds the model."""
    from visvm.cli.terminal import note

    said = quiet

    def say() -> None:
        nonlocal said
        if not said:
            note(f"Another process is changing {model}; waiting for it.")
        said = True

    return say


def tell_views(views: str, quiet: bool) -> None:
    """Say what more than one view of every photo will cost."""
    from visvm.cli.terminal import note
    from visvm.encoders.transform import VIEWS

    if not quiet and (n_views := len(VIEWS[views])) > 1:
        note(f"Showing the encoder {n_views} views of every photo takes {n_views} × as long.")


@contextmanager
def changed(
    model: Path, *command: object, again: bool = False, undo: bool = True, **options: Any
) -> "Iterator[ImageClassifier | None]":
    """Hold a model file, and replace it if all goes well.

    If this very command was the last one to change it, there is nothing to do: None is given,
    unless it is to be done `again`. So it may be when a kill came after its last step. With `undo`
    the file from before is kept.
    """
    from visvm.image_classifier import ImageClassifier
    from visvm.model import changes
    from visvm.model import undo as kept
    from visvm.model.container import locked
    from visvm.model.file import read_header

    kept.is_wanted()  # refuses what is neither on nor off
    read_header(model)  # a file that is not a model needs no lock
    with locked(model, tell_waiting(model)):
        classifier = ImageClassifier.load(model, **options)
        assert classifier.model_ is not None
        if changes.is_made(classifier.model_, *command) and not again:
            yield None
            return
        yield classifier
        classifier.model_ = changes.noted(classifier.model_, *command)
        classifier.save(model, undo=undo)


def answer_made(model: Path, as_json: bool, quiet: bool, more: str = "", **facts: object) -> None:
    """Say that the last command was this one, so that nothing is left to do."""
    from visvm.cli.reporting import answer_change
    from visvm.model import undo

    undo.tidy(model)  # which a kill may have prevented

    said = f"{model}: already done; nothing changed{more}"
    answer_change(model, said, as_json, quiet, already_done=True, **facts)


def open_for_learning(
    model: Path,
    encoder: str | None,
    transform: str | None,
    views: str | None,
    components: int | None,
    ridge: float | None,
    seed: int | None,
    quality: str | None = None,
    minutes: float | None = None,
    *,
    cache: bool,
) -> "ImageClassifier":
    """Load a model, or begin one with these options; they must not contradict a model's own."""
    from visvm.encoders.presets import AUTO
    from visvm.image_classifier import ImageClassifier

    if not model.exists():
        require_ending(model)
        options: dict[str, Any] = {
            "encoder": encoder,
            "transform": transform,
            "views": views,
            "n_components": components,
            "ridge": ridge,
            "random_state": seed,
            "quality": quality,
            "minutes": minutes,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return ImageClassifier(**given, cache=cache)
    auto, where = (encoder, None) if encoder == AUTO else (None, encoder)
    classifier = ImageClassifier.load(model, cache=cache, encoder=where)
    assert classifier.model_ is not None
    settled, name = classifier.model_.head.settled, classifier.encoder_name
    owned = (
        ("--encoder", auto, name),
        ("--quality", quality, _own_quality(name, quality)),
        ("--minutes", minutes, f"the encoder {name}"),
        ("--transform", transform, classifier.transform),
        ("--views", views, classifier.views),
        ("--components", components, settled.options.n_components),
        ("--ridge", ridge, "a λ it may change" if settled.may_renew_ridge else settled.ridge),
        ("--seed", seed, settled.seed),
    )
    _require_own(model, owned)
    return classifier


def _require_own(model: Path, owned: tuple[tuple[str, object, object], ...]) -> None:
    """Refuse options, with the values given, that contradict what a model has."""
    for option, value, own in owned:
        if value not in (None, own):
            raise InputError(
                f"{option} {value} was given, but {model} already has {own}. "
                "Leave the option out, or begin a new model.",
                code="option-of-new-model",
            )


def _own_quality(encoder: str, wanted: str | None) -> str:
    """Return the quality that is wanted of a model's encoder if it has it, or else its name."""
    from visvm.encoders.presets import has_quality

    return encoder if wanted is None or not has_quality(encoder, wanted) else wanted


def require_ending(output: Path) -> None:
    """Refuse to give a model's file the ending of another form."""
    from visvm.encoders.images import SUFFIXES

    ending = output.suffix.lower()
    if ending in _OTHER_FORMS or ending in SUFFIXES:
        raise InputError(
            f"{output} would be a model of visvm, not a {ending} file. "
            f"Call it {output.with_suffix('.visvm').name}.",
            code="ending-other",
        )


def require_new(output: Path, force: bool) -> None:
    """Refuse to replace a file unless that is asked for, and another ending than a model's."""
    require_ending(output)
    require_absent(output, force)


def require_page(output: Path | None, force: bool) -> None:
    """Refuse to write a page to what is called a model or a photo, or to replace one unasked."""
    if output is None:
        return
    if output.suffix.lower() not in (".html", ".htm"):
        advice = f"{shown(output)} would be a page. Call it {shown(output.stem)}.html."
        raise InputError(advice, code="ending-other")
    require_absent(output, force)


def can_draw() -> bool:
    """Tell whether matplotlib is here; the core needs none."""
    return importlib.util.find_spec("matplotlib") is not None


def require_drawing() -> None:
    """Refuse what ends in a figure where none can be drawn, before work is spent on it."""
    if not can_draw():
        raise InputError(
            "Figures need matplotlib, which is not installed. Install it with: "
            "pip install 'visvm[plot]'",
            code="package-missing",
        )


def require_absent(output: Path, force: bool) -> None:
    """Refuse to replace a file unless that is asked for."""
    if output.exists() and not force:
        advice = f"{output} already exists. Choose another name, or replace it with --force."
        raise ModelFileError(advice, code="file-exists")


def require_other(output: Path, model: Path, writing: str) -> None:
    """Refuse to write over the model that is read."""
    if model.exists() and output.exists() and output.samefile(model):
        advice = f"{writing} would write over the model {output}. Choose another name."
        raise ModelFileError(advice, code="output-is-model")


def require_unread(output: Path, *read: str | Path | None) -> None:
    """Refuse to write over a file that the same command reads, also by force.

    What describes an encoder lies beside it.
    """
    for each in (name for path in read if path is not None for name in (path, f"{path}.json")):
        if output.exists() and Path(each).exists() and output.samefile(each):
            advice = f"{shown(output)} is read by this command. Choose another name for what it "
            raise ModelFileError(advice + "writes.", code="output-is-input")


def require_no_photo(output: Path | None, folder: str, nested: bool | None = None) -> None:
    """Refuse to write over a labelled photo that the same command reads, also by force."""
    from visvm.learning.labelled import read_labelled

    if output is not None and output.exists():
        photos = read_labelled(folder, nested=nested).sources
        require_unread(output, *(each for each in photos if isinstance(each, Path)))


def in_options(line: str) -> str:
    """Say with the names of options what a message says with those of Python's parameters.

    Examples
    --------
    >>> in_options("The 'ridge' parameter of ImageClassifier must be above 0. Got -1 instead.")
    '--ridge must be above 0. Got -1 instead.'
    >>> in_options("Give both the same n_components and random_state.")
    'Give both the same --components and --seed.'
    """
    for pattern, option in _IN_OPTIONS:
        line = re.sub(pattern, option, line)
    return line
