"""Take the last change of a model back: ``visvm undo``."""

from pathlib import Path
from typing import Annotated

import typer

from visvm.cli.options import Json, ModelPath, Quiet, answer_made, tell_waiting

NoUndo = Annotated[
    bool,
    typer.Option(
        "--no-undo",
        help="Keep no copy of the model from before: this and earlier changes cannot be undone.",
    ),
]


def undo(
    model: ModelPath,
    discard: Annotated[
        bool,
        typer.Option(
            "--discard",
            help="Change nothing, and remove the file from before the last change, with what was "
            "forgotten since: it can then no longer be undone. MODEL itself may be gone.",
        ),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take back the last change of MODEL: learn, forget, rename, merge or another. Once only.

    The file from before the last change lies beside the model as .NAME.undo, as large as it was,
    until the next change. VISVM_UNDO=off keeps none.
    """
    from visvm.cli.reporting import answer_change, knows
    from visvm.cli.terminal import answer
    from visvm.image_classifier import ImageClassifier
    from visvm.model import changes
    from visvm.model import undo as kept
    from visvm.model.container import locked
    from visvm.model.events import last_change
    from visvm.model.file import read, read_header

    if model.exists() or not discard:
        read_header(model)
    with locked(model, tell_waiting(model, quiet)):
        if discard:
            gone = kept.place_of(model).exists()
            kept.discard(model)
            said = "the file from before its last change is removed" if gone else "nothing is kept"
            facts = {"path": str(model), "discarded": gone}
            return answer(facts, f"{model}: {said}", as_json=as_json, quiet=quiet)
        if changes.is_made(read(model, sums=False), changes.UNDO):
            return answer_made(
                model,
                as_json,
                quiet,
                " (only the last change can be undone, and it has been)",
                undone=None,
            )
        header = read_header(model)
        undone = last_change(header.sessions, header.events)
        classifier = ImageClassifier.undo(model, cache=False)
    said = f"taken back: {undone}; {knows(model, classifier)}"
    return answer_change(model, said, as_json, quiet, undone=undone)


def tell_kept(model: Path, no_undo: bool, quiet: bool) -> None:
    """Say that what was taken out of a model is still in the file from before."""
    from visvm.cli.terminal import note
    from visvm.model import undo as kept

    if not quiet and not no_undo and (where := kept.available(model)) is not None:
        note(
            f"{where} keeps the model from before, with those images, until its next change. "
            f"'visvm undo {model} --discard' removes it; --no-undo keeps none."
        )
