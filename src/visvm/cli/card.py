"""The command that says what a model is, for those who get it."""

from pathlib import Path
from typing import Annotated

import typer

from visvm.cli.options import (
    ModelPath,
    Quiet,
    Where,
    home,
    require_absent,
    require_no_photo,
    require_unread,
)


def card(
    model: ModelPath,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Measure accuracy and confusions on these photos, one sub-folder per class; by "
            "default the card says what the last session was tested with.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--out", help="Write the card to this file.", callback=home),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    encoder: Where = None,
    quiet: Quiet = False,
) -> None:
    """Write a model card: Markdown, as model hubs show it."""
    from visvm.cli.terminal import out, progress_bars
    from visvm.encoders.files import replacing
    from visvm.image_classifier import ImageClassifier
    from visvm.model.card import model_card

    if output is not None:
        require_unread(output, model, encoder)
        require_absent(output, force)
        if test is not None:
            require_no_photo(output, test)
    classifier = ImageClassifier.load(model, encoder=encoder, for_prediction=True)
    if output is not None:
        require_unread(output, classifier.encoder_name)
    evaluation = None
    if test is not None:
        with progress_bars(quiet) as progress:
            evaluation = classifier.evaluate(test, progress=progress)
    text = model_card(classifier.known_model, model.stem, evaluation)
    if output is None:
        out().print(text, end="", markup=False, highlight=False, soft_wrap=True)
        return
    with replacing(output) as file:
        file.write(text.encode())
