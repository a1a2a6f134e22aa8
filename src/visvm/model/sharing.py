"""A folder as model hubs have it: the model's file, and its card."""

import os
from contextlib import suppress
from pathlib import Path

from visvm.encoders.files import MOST_OF_TEXT, make_folder, read_file, replacing
from visvm.errors import EncoderError, ModelFileError, shown
from visvm.model.card import LIBRARY, model_card
from visvm.model.file import write
from visvm.model.results import Evaluation
from visvm.model.state import Model

MODEL, CARD = "model.visvm", "README.md"


def save_folder(folder: Path, model: Model, evaluation: Evaluation | None) -> None:
    """Write the model's file and its card into a folder, which is made where there is none."""
    text = model_card(model, folder.resolve().name, evaluation)
    if not _is_free(folder / CARD):
        raise ModelFileError(
            f"{shown(folder / CARD)} is there, and is no card of visvm. Give another folder.",
            code="folder-foreign",
        )
    try:
        make_folder(folder)
        with replacing(folder / CARD) as file:
            file.write(text.encode())
    except OSError as error:
        raise ModelFileError(
            f"{shown(folder)} cannot be written: {' '.join(str(error).split())}. "
            "Make room, or choose another place.",
            code="file-unwritable",
        ) from error
    write(folder / MODEL, model)


def _is_free(card_file: Path) -> bool:
    """Whether there is no such file, or a card of this."""
    if not os.path.lexists(card_file):
        return True
    with suppress(OSError):
        return f"\n{LIBRARY}\n".encode() in read_file(card_file, MOST_OF_TEXT)[:1000]
    return False


def folder_file(name: str | Path) -> Path:
    """Return the model's file in a folder, or in one that a hub has under this name."""
    folder = Path(name)
    if folder.is_dir():
        return folder / MODEL
    if str(name).count("/") != 1 or folder.is_absolute():
        raise ModelFileError(
            f"There is no folder {shown(name)}. Give one that save_pretrained has written, or a "
            "name on the hub (owner/model).",
            code="file-missing",
        )
    try:
        import huggingface_hub
    except ImportError as error:
        raise EncoderError(
            "Models on the hub need the package huggingface_hub. "
            "Install it with: pip install 'visvm[hub]'",
            code="package-missing",
        ) from error
    try:
        return Path(huggingface_hub.hf_hub_download(str(name), MODEL))
    except (OSError, ValueError) as error:  # as most of its own are
        raise ModelFileError(
            f"{shown(name)} cannot be had from the hub ({' '.join(str(error).split())[:200]}). "
            "Correct the name, check the network, or download its folder yourself.",
            code="hub-unreachable",
        ) from error
