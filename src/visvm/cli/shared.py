"""What several commands share: arguments, and how a model file is held and replaced."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visvm.errors import ModelFileError

if TYPE_CHECKING:
    from visvm.image_classifier import ImageClassifier

Json = Annotated[
    bool, typer.Option("--json", help="Write JSON to standard output, and nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars and no notes.")]


def home(path: Path | None) -> Path | None:
    """With ``~`` expanded, which not every shell does."""
    from visvm.encoders.sources import expanded

    return None if path is None else expanded(path)


Model = Annotated[
    Path, typer.Argument(help="The model file.", metavar="MODEL", show_default=False, callback=home)
]
Force = Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")]


def tell_waiting(model: Path, quiet: bool = False) -> Callable[[], None]:
    """What tells, the first time it is called, that another process holds the model."""
    from visvm.cli.terminal import note

    told = quiet

    def tell() -> None:
        nonlocal told
        if not told:
            note(f"another process is changing {model}; waiting for it")
        told = True

    return tell


@contextmanager
def changed(model: Path, **options: Any) -> "Iterator[ImageClassifier]":
    """Hold a model file, and write it anew if all goes well."""
    from visvm.image_classifier import ImageClassifier
    from visvm.model import file as model_file

    model_file.read_header(model)  # a file that is none needs no lock
    with model_file.locked(model, tell_waiting(model)):
        classifier = ImageClassifier.load(model, **options)
        yield classifier
        classifier.save(model)


def require_new(output: Path, force: bool) -> None:
    """Refuse to replace a file unless that is asked for."""
    if output.exists() and not force:
        raise ModelFileError(
            f"{output} must be a new file; it exists: choose another name, or --force to replace it"
        )
