"""Load an encoder by its name."""

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from visvm.encoders import weights
from visvm.encoders.catalog import CATALOG
from visvm.encoders.encoder import Encoder
from visvm.encoders.resolution import Form, split_form
from visvm.errors import EncoderError, WeightsError
from visvm.progress import Progress, silent

if TYPE_CHECKING:
    import onnx

_CHECKPOINTS = {".pt", ".pth", ".bin", ".safetensors"}


def load_encoder(name: str, progress: Progress = silent, *, from_hub: bool = True) -> Encoder:
    """Load an encoder.

    Parameters
    ----------
    name : str
        Any of these, or with the side of the pictures it is to take behind it (``NAME@336``), and
        in ONNX with the number of patches that go on, or ``int8``, or both (``NAME@224:112:int8``;
        ``patches.py``, ``int8.py``): a name of the catalogue; a file ``.onnx`` with its description
        beside it; an open_clip checkpoint (``.pt``, ``.pth``, ``.bin``, ``.safetensors``); a folder
        of a transformers model, or its name on the hub (``owner/model``).
    progress : callable, optional
        Called with the bytes downloaded, where a catalogue's weights are not on this machine yet.
    from_hub : bool, default=True
        Whether a name on the hub may be fetched from there; what is on this machine always serves.
    """
    bare, form = named(name)
    if bare in CATALOG:
        from visvm.encoders.onnx import load_named

        return load_named(bare, form, progress)
    # os.path's leaves the home of an unknown user as it is, where Path's raises
    expanded = os.path.expanduser(bare)
    path = Path(expanded)
    if path.suffix == ".onnx":
        from visvm.encoders.onnx import load_file

        return load_file(path, form)
    fewer = form.patches is not None
    if (fewer or form.int8) and bare.partition("@")[0] not in CATALOG:
        what = "looks at all patches" if fewer else "multiplies in float32"
        raise EncoderError(
            f"{bare} {what}: only encoders in ONNX can do otherwise. Name it {bare}@{form.size}.",
            code="patches-unsupported" if fewer else "int8-unsupported",
        )
    if path.suffix in _CHECKPOINTS:
        from visvm.encoders.open_clip import load_checkpoint

        return load_checkpoint(path, size=form.size)
    if path.is_dir() or bare.count("/") == 1:
        if not from_hub:
            require_local(bare)
        from visvm.encoders.huggingface import TransformersEncoder

        return TransformersEncoder(expanded, size=form.size, from_hub=from_hub)
    raise _unknown(name)


def _unknown(name: str) -> EncoderError:
    front = re.split("[@:]", name)[0]
    if front in CATALOG:
        return EncoderError(
            f"There is no such form of {front} as {name!r}. A size goes behind an @, as in "
            f"{front}@336, and int8 behind that, as in {front}@224:int8.",
            code="size-unsupported",
        )
    close = get_close_matches(front.casefold(), CATALOG, n=1, cutoff=0.4)
    meant = f" Did you mean {close[0]}?" if close else ""
    return EncoderError(
        f"There is no encoder {name!r}.{meant} Give one of {', '.join(CATALOG)}, an .onnx file, an "
        "open_clip checkpoint, or the folder or hub name (owner/model) of a transformers model.",
        code="encoder-unknown",
    )


def encoder_graph(name: str) -> "onnx.ModelProto":
    """Return the ONNX graph of an encoder: pixels → ``layer_features``, for pictures of its size.

    Raises
    ------
    EncoderError
        It runs in torch.
    """
    bare, form = named(name)
    path = Path(os.path.expanduser(bare))
    if bare in CATALOG:
        from visvm.encoders.onnx import named_graph

        return named_graph(bare, form)
    if path.suffix == ".onnx":
        import onnx

        from visvm.encoders.onnx import prepared_file

        return onnx.load_from_string(prepared_file(path, form).content)
    raise EncoderError(
        f"The encoder {name} runs in torch and has no ONNX graph. Write the head alone with "
        "--head-only (head_only=True), or learn through an ONNX file of the encoder.",
        code="encoder-not-onnx",
    )


def named(name: str) -> tuple[str, Form]:
    """Return the encoder that a name means, and the form behind it without a size of its own."""
    bare, form = split_form(name)
    return bare, form.beside(CATALOG[bare].preprocessing.size) if bare in CATALOG else form


def known_digest(name: str) -> str | None:
    """Return the digest of an encoder of the catalogue, of others None: before it is fetched."""
    bare, form = named(name)
    return form.digest(CATALOG[bare].sha256) if bare in CATALOG else None


def absolute(name: str) -> str:
    """Return the name of an encoder; where it is a path, one that holds from any folder."""
    bare, _ = split_form(name)
    path = Path(os.path.expanduser(bare))
    if known_digest(name) is not None or not path.exists():
        return name
    return f"{path.resolve()}{name.removeprefix(bare)}"


def require_local(name: str) -> None:
    """Refuse an encoder whose weights are not on this machine, and say how to get them."""
    name, _ = named(name)
    if name in CATALOG:
        weights.locate(name)
    elif name.count("/") == 1 and not Path(os.path.expanduser(name)).exists():
        from visvm.encoders.tower import import_torch

        import_torch()
        from huggingface_hub import try_to_load_from_cache

        files = (
            "model.safetensors",
            "model.safetensors.index.json",
            "pytorch_model.bin",
            "pytorch_model.bin.index.json",
        )
        if not any(isinstance(try_to_load_from_cache(name, file), str) for file in files):
            raise WeightsError(
                f"{name} is not on this machine. "
                "Load it once, for example by running 'visvm bench' without --dry-run.",
                code="weights-missing",
            )
