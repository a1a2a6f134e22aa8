"""Write a model as an ONNX file, after trying it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from PIL import Image

from visvm.encoders.encoder import Encoder
from visvm.encoders.files import has_content
from visvm.encoders.graph import OUTPUT
from visvm.encoders.loading import encoder_graph
from visvm.encoders.transform import Transform
from visvm.errors import EncoderError, InputError, ModelFileError, shown
from visvm.head.calibration import probabilities
from visvm.head.memory import human_bytes
from visvm.model.container import locked, rewritten
from visvm.model.portable.answers import KNOWN, PROBABILITIES
from visvm.model.portable.graph import IMAGE, INSIDE, PortableOptions, portable
from visvm.model.state import Model

if TYPE_CHECKING:
    from onnx import ModelProto

SUFFIX = ".onnx"
_MOST_BYTES = 2**31 - 2**20  # protobuf's limit is 2 GiB
_TOLERANCE = {"float32": 1e-3, "float16": 0.05, "int8": 0.5}


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes
    ----------
    bytes, encoder_bytes : int
        Of the file, and how many of them are the encoder's weights.
    precision : str
    difference : float
        The largest difference of a probability, or of ``known``, from that of the model, on the
        picture that the file was tried on.
    already_done : bool
        Whether the file was there, with this very content.
    """

    bytes: int
    encoder_bytes: int
    precision: str
    difference: float
    already_done: bool = False


def write_onnx(
    path: Path,
    model: Model,
    encoder: Encoder | None,
    options: PortableOptions,
    *,
    replaces: bool = True,
) -> Written:
    """Write the file of a model, unless it has this content already.

    Parameters
    ----------
    path : Path
    model : Model
        Which knows a class.
    encoder : Encoder or None
        The model's; None for the head alone.
    options : PortableOptions
    replaces : bool
        Whether another file of this name may be replaced.
    """
    content, written = made_content(model, encoder, options)
    with locked(path):
        if has_content(path, content):
            return replace(written, already_done=True)
        if path.exists() and not replaces:
            raise ModelFileError(
                f"{shown(path)} already exists. Choose another name, or replace it with --force.",
                code="file-exists",
            )
        with rewritten(path) as file:
            file.write(content)
    return written


def made_content(
    model: Model, encoder: Encoder | None, options: PortableOptions
) -> tuple[bytes, Written]:
    """Return the content of the file, tried, and what it is like; parameters as ``write_onnx``."""
    graph = None if encoder is None else encoder_graph(encoder.name)
    _require_size(model, graph)
    preprocessing = None if encoder is None else encoder.preprocessing
    made = portable(model, graph, preprocessing, options)
    content: bytes = made.SerializeToString(deterministic=True)
    onnx.checker.check_model(content, full_check=True)
    written = Written(
        len(content),
        sum(each.ByteSize() for each in made.graph.initializer if each.name.startswith(INSIDE)),
        options.precision,
        _difference(content, model, encoder, options),
    )
    return content, written


def check_name(path: Path) -> None:
    """Refuse a name that does not say what the file is."""
    if path.suffix.lower() != SUFFIX:
        raise InputError(
            f"An ONNX file has a name that ends in {SUFFIX}. Got {shown(path)} instead.",
            code="onnx-name",
        )


def _require_size(model: Model, encoder: "ModelProto | None") -> None:
    """Refuse what would be larger than an ONNX file may be, before any of it is made."""
    lift, n_classes = model.head.settled.lift, len(model.classes)
    numbers = lift.width * (n_classes + (lift.kernel_map.matrix is not None) * lift.n_inputs)
    if model.spread is not None:
        numbers += model.spread.centres.size + model.spread.root.size
    n_bytes = 4 * numbers + (0 if encoder is None else encoder.ByteSize())
    if n_bytes > _MOST_BYTES:
        raise ModelFileError(
            f"The file would have {human_bytes(n_bytes)} with {n_classes} classes and D = "
            f"{lift.width}; ONNX files have 2 GiB at most. Export a smaller model with 'visvm "
            "export MODEL OUT', which visvm reads.",
            code="onnx-too-large",
        )


def _difference(
    content: bytes, model: Model, encoder: Encoder | None, options: PortableOptions
) -> float:
    """Return how far probabilities of the file are from the model's, on one picture; not far."""
    generator = np.random.default_rng(0)
    taken: dict[str, NDArray[Any]]
    if encoder is None:
        width = model.head.settled.lift.n_inputs
        features = generator.normal(size=(1, width)).astype(np.float32)
        taken = {OUTPUT: features}
    else:
        # Smooth, as photos are: of noise, what resizing rounds and clips on the way would show.
        spots = Image.fromarray(generator.integers(60, 196, (4, 6, 3), dtype=np.uint8))
        side = encoder.preprocessing.size
        photo = spots.resize((2 * side, side + 1), Image.Resampling.BICUBIC)
        transform = Transform(model.encoder.transform, encoder.preprocessing)
        features = encoder.encode(transform.pixels(photo)[None])
        levels = np.asarray(photo)
        given = levels if options.pixels == "uint8" else levels.astype(np.float32) / 255
        taken = {IMAGE: given[None]}
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    looks = model.looks(features)
    wanted = {PROBABILITIES: probabilities(looks.scores, model.calibration.likelihoods)}
    known = model.known(looks)
    if known is not None:
        wanted[KNOWN] = known
    found = session.run([*wanted], taken)
    far = [np.abs(each - own).max() for each, own in zip(found, wanted.values(), strict=True)]
    difference = float(np.max(far))  # NaN where there is one
    if not difference <= _TOLERANCE[options.precision]:  # NaN too
        raise EncoderError(
            "In ONNX Runtime the exported graph gives other answers than the model (by "
            f"{difference:.2g}). Export in float32, or write the head alone with --head-only "
            "(head_only=True).",
            code="export-differs",
        )
    return difference
