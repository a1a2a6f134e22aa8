"""The command that serves a model: ``visvm serve``."""

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visvm.cli.options import (
    ModelPath,
    NewComponents,
    NewEncoder,
    NewQuality,
    NewRidge,
    NewSeed,
    NewTransform,
    NewViews,
    Quiet,
    open_for_learning,
    tell_waiting,
)
from visvm.errors import InputError, ModelFileError

if TYPE_CHECKING:
    from visvm.image_classifier import ImageClassifier
    from visvm.service.store import Signature

Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to serve on; 0 takes a free one.")]


def serve(
    model: ModelPath,
    host: Annotated[
        str,
        typer.Option(help="Address to serve on; any but this machine's own needs VISVM_TOKEN."),
    ] = "127.0.0.1",
    port: Port = 8000,
    encoder: NewEncoder = None,
    quality: NewQuality = None,
    transform: NewTransform = None,
    views: NewViews = None,
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
        from visvm.service.server import run_server
    except ModuleNotFoundError as error:
        raise InputError(
            f"The service needs {error.name}, which is not installed. Install it with: "
            "pip install 'visvm[serve]'",
            code="package-missing",
        ) from error
    if verbose:
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
        logging.getLogger("visvm.service").setLevel(logging.INFO)
    new = (_named(encoder), transform, views, components, ridge, seed, quality)
    run_server(
        model,
        lambda: _opened(model, partial(open_for_learning, model, *new, cache=False), quiet),
        host=host,
        port=port,
        tokens=Tokens(os.environ.get("VISVM_TOKEN"), os.environ.get("VISVM_READ_TOKEN")),
        limits=Limits(upload_bytes=max_upload << 20),
        started=lambda address, classifier: _welcome(model, address, classifier, quiet),
    )


def _named(encoder: str | None) -> str | None:
    """Return an encoder's name; refuse to let photos choose it, which are decoded before that."""
    if encoder == "auto":
        raise InputError(
            "The service encodes photos before a first session could choose an encoder. Name one, "
            "or make the model with 'visvm learn --encoder auto'.",
            code="encoder-auto-served",
        )
    return encoder


def _opened(
    model: Path, load: "Callable[[], ImageClassifier]", quiet: bool
) -> "tuple[ImageClassifier, Signature]":
    """Open a model, and take the signature of its file before it is read."""
    from visvm.cli.terminal import note, progress_bars
    from visvm.model.container import locked
    from visvm.service.store import signature_of

    with progress_bars(quiet) as progress:
        try:
            # also sees whether it could be written
            with locked(model, tell_waiting(model, quiet)):
                signature, classifier = signature_of(model), load()
        except ModelFileError as error:
            if os.access(model.parent, os.W_OK) or not model.is_file():
                raise
            note(f"{error} It can be asked, but not taught.")
            signature, classifier = signature_of(model), load()
        classifier.check_options(progress)
    return classifier, signature


def _welcome(model: Path, address: str, classifier: "ImageClassifier", quiet: bool) -> None:
    from visvm.cli.terminal import out
    from visvm.model.formats import counted

    if not quiet:
        n = len(classifier.classes_)
        known = f"{model.name} knows {counted(n, 'class') if n else 'nothing yet'}"
        out().print(f"{known}. Teach and ask it at {address}  (stop with Ctrl+C)", markup=False)
