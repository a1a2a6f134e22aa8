"""How commands hold, open and replace a model file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visvm.errors import InputError, ModelFileError

if TYPE_CHECKING:
    from visvm.image_classifier import ImageClassifier


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


@contextmanager
def changed(model: Path, **options: Any) -> "Iterator[ImageClassifier]":
    """Hold a model file, and replace it if all goes well."""
    from visvm.image_classifier import ImageClassifier
    from visvm.model.container import locked
    from visvm.model.file import read_header

    read_header(model)  # a file that is not a model needs no lock
    with locked(model, tell_waiting(model)):
        classifier = ImageClassifier.load(model, **options)
        yield classifier
        classifier.save(model)


def open_for_learning(model: Path, options: dict[str, Any], *, cache: bool) -> "ImageClassifier":
    """Load a model, or begin one with these options; they must not contradict a model's own."""
    from visvm.image_classifier import ImageClassifier

    if not model.exists():
        return ImageClassifier(**options, cache=cache)
    classifier = ImageClassifier.load(model, cache=cache, encoder=options.get("encoder"))
    assert classifier.model_ is not None
    settled = classifier.model_.head.settled
    own = {
        "transform": ("--transform", classifier.transform),
        "n_components": ("--components", settled.options.n_components),
        "ridge": ("--ridge", settled.ridge),
        "random_state": ("--seed", settled.seed),
    }
    for name, (option, value) in own.items():
        if options.get(name, value) not in (value, "auto"):
            raise InputError(
                f"{option} {options[name]} was given, but {model} already has {value}. "
                "Leave the option out.",
                code="option-of-new-model",
            )
    return classifier


def require_new(output: Path, force: bool) -> None:
    """Refuse to replace a file unless that is asked for."""
    if output.exists() and not force:
        raise ModelFileError(
            f"{output} already exists. Choose another name, or replace it with --force.",
            code="file-exists",
        )
