"""Run encoders in ONNX Runtime: on the CPU, or on a GPU if ``onnxruntime-gpu`` finds one.

A user's own ONNX file needs a description beside it, in a file of the same name with ``.json``
added, such as ``vit.onnx.json``. It names the tensors that the blocks output, the final one last,
and says how images are prepared; ``resize`` is ``size`` where it is left out. Where it also names
``positions`` (``resize_graph`` says which tensors), the file can be used at other sizes::

    {"blocks": ["block_1", "block_2"], "size": 224, "resize": 256,
     "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
"""

import base64
import hashlib
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state

from visvm.encoders import weights
from visvm.encoders.catalog import CATALOG
from visvm.encoders.encoder import (
    FinalFeatures,
    LayerFeatures,
    Pixels,
    Preprocessing,
    Projected,
    check_final,
)
from visvm.encoders.files import MOST_OF_TEXT, read_file
from visvm.encoders.graph import METADATA, OUTPUT, PROJECTION, prepare
from visvm.encoders.int8 import multiply_in_int8
from visvm.encoders.joint import Tail, read_tail
from visvm.encoders.patches import take_form
from visvm.encoders.resolution import Form, patch_side
from visvm.errors import EncoderError
from visvm.progress import Progress

if TYPE_CHECKING:
    import onnx


# The exceptions of ONNX Runtime have no base class of their own.
_FAILURES: tuple[type[Exception], ...] = (
    *(
        kind
        for kind in vars(onnxruntime_pybind11_state).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ),
    *(RuntimeError, ValueError),
)
_EXAMPLE = (
    '{"blocks": ["tensor", …], "size": 224, "resize": 256, "mean": [r, g, b], "std": [r, g, b]}'
)


class OnnxEncoder:
    """A vision transformer in a prepared ONNX file (``graph.py``).

    Parameters
    ----------
    name : str
    digest : str
        SHA-256 of the weights.
    model : path or bytes
        The prepared file, or its content.
    size : int, optional
        The side of the pictures that it takes, where ``resize_graph`` has changed it.

    Attributes
    ----------
    layer_dims, preprocessing
        As in ``Encoder``.
    patch : int or None
        Side of a patch in pixels; None unless it is known how to take other sizes.
    """

    patch: int | None = None

    def __init__(
        self, name: str, digest: str, model: Path | bytes, size: int | None = None
    ) -> None:
        self.name = name
        self.digest = digest
        self._session = _open(name, model)
        described = msgspec.json.decode(self._session.get_modelmeta().custom_metadata_map[METADATA])
        n_blocks = described.pop("n_blocks")
        self.preprocessing = msgspec.convert(described, Preprocessing).at(size)
        side = self.preprocessing.size
        try:
            self._input = _input(self._session, name)
            shape = self.encode(np.zeros((1, 3, side, side), dtype=np.float32)).shape
        except _FAILURES as error:
            raise EncoderError(
                f"{name} does not take float32 images of {side} × {side} ({_line(error)}). "
                "Correct its size, or export it again.",
                code="onnx-input",
            ) from error
        if len(shape) != 2 or shape[1] % n_blocks:
            raise EncoderError(
                f"The blocks of {name} are not (n, tokens, width) or (n, width), of one width: "
                f"side by side they are {shape}. Name other tensors.",
                code="blocks-shape",
            )
        self.layer_dims = (shape[1] // n_blocks,) * n_blocks

    def encode(self, pixels: Pixels) -> LayerFeatures:
        """Return layer features of images, (n, 3, size, size) → (n, sum of layer_dims)."""
        (features,) = self._session.run([OUTPUT], {self._input: pixels})
        return np.asarray(features)

    def project(self, final: FinalFeatures) -> Projected:
        """Return the encoder's own output, (n, layer_dims[-1]) → (n, p); a user's file has none."""
        final = check_final(final, self.layer_dims)
        if self._projection is None:
            return final
        (projected,) = self._projection.run(None, {self._projection.get_inputs()[0].name: final})
        return np.asarray(projected)

    @cached_property
    def tail(self) -> Tail | None:
        """Last norm and projection, for methods that need them apart; None if there are none."""
        packed = self._session.get_modelmeta().custom_metadata_map.get(PROJECTION)
        if packed is None:
            return None
        import onnx

        return read_tail(onnx.load_from_string(base64.b64decode(packed)))

    @cached_property
    def _projection(self) -> onnxruntime.InferenceSession | None:
        packed = self._session.get_modelmeta().custom_metadata_map.get(PROJECTION)
        return None if packed is None else _open(self.name, base64.b64decode(packed))


def load_named(name: str, form: Form, progress: Progress) -> OnnxEncoder:
    """Load an encoder of the catalogue in this form; fetch its weights first."""
    entry = CATALOG[name]
    path = weights.fetch(name, progress)
    if form == Form():
        return OnnxEncoder(name, entry.sha256, path)
    content = named_graph(name, form).SerializeToString(deterministic=True)
    formed = form.name(name, entry.preprocessing.size)
    return OnnxEncoder(formed, form.digest(entry.sha256), content, form.size)


def named_graph(name: str, form: Form) -> "onnx.ModelProto":
    """Return the prepared graph of an encoder of the catalogue, whose weights must be here."""
    import onnx

    entry, model = CATALOG[name], onnx.load(weights.locate(name))
    take_form(name, model, entry.blocks, entry.positions, entry.preprocessing.size, form)
    if form.int8:
        multiply_in_int8(name, model)
    return model


def load_file(path: Path, form: Form) -> OnnxEncoder:
    """Load a user's own ONNX file, with its description beside it, in this form."""
    content, digest, patch, own = prepared_file(path, form)
    form = form.beside(own.size)
    encoder = OnnxEncoder(form.name(str(path), own.size), form.digest(digest), content, form.size)
    encoder.patch = patch
    return encoder


class PreparedFile(NamedTuple):
    """A user's own file after ``prepare``, and what it was before."""

    content: bytes
    digest: str  # whatever the form
    patch: int | None
    preprocessing: Preprocessing


def prepared_file(path: Path, form: Form) -> PreparedFile:
    """Prepare a user's own ONNX file, with its description beside it, in this form."""
    import onnx
    from google.protobuf.message import DecodeError

    if not path.is_file():
        raise EncoderError(
            f"There is no ONNX file {path}. Correct the path.", code="encoder-file-missing"
        )
    blocks, preprocessing, positions = _describe(path)
    try:
        model = onnx.load(path, load_external_data=False)
        files = [path, *(path.parent / place for place in _places(model))]
        onnx.load_external_data_for_model(model, str(path.parent))
        digests = " ".join(weights.file_digest(file) for file in files)
        if not model.graph.node:
            raise ValueError("it holds no graph")
    except (OSError, ValueError, DecodeError, onnx.checker.ValidationError) as error:
        raise EncoderError(
            f"{path} cannot be read as an ONNX file ({_line(error)}). Export it again.",
            code="onnx-damaged",
        ) from error
    digest = hashlib.sha256(f"{digests} {blocks} {preprocessing}".encode()).hexdigest()
    patch, own = patch_side(model) if positions else None, preprocessing.size
    take_form(str(path), model, blocks, positions, own, form.beside(own))
    content = prepare(model, blocks, preprocessing)
    if form.int8:  # behind prepare, which makes float32 of the products that a file has in int8
        model = onnx.load_from_string(content)
        multiply_in_int8(str(path), model)
        content = model.SerializeToString(deterministic=True)
    return PreparedFile(content, digest, patch, preprocessing)


def _places(model: "onnx.ModelProto") -> list[str]:
    """Return the files beside the model that hold its weights, if it does not hold them itself."""
    tensors = (
        tensor for tensor in model.graph.initializer if tensor.data_location == tensor.EXTERNAL
    )
    return sorted(
        {
            entry.value
            for tensor in tensors
            for entry in tensor.external_data
            if entry.key == "location"
        }
    )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _input(session: onnxruntime.InferenceSession, name: str) -> str:
    """Return the name of the only input, which must take any number of images."""
    inputs = session.get_inputs()
    if len(inputs) != 1 or any(isinstance(size, int) for size in inputs[0].shape[:1]):
        got = ", ".join(f"{each.name} {each.shape}" for each in inputs)
        raise EncoderError(
            f"{name} does not have one input for any number of images, but {got}. "
            "Export it with an open batch axis.",
            code="onnx-input",
        )
    return str(inputs[0].name)


def _open(name: str, model: Path | bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what is wrong comes as an exception
    # Threads that spin while they wait take the cores that decode the next images.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # which ONNX Runtime itself does not heed
    if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdigit():
        options.intra_op_num_threads = int(threads)
    providers = ["CPUExecutionProvider"]
    if (
        "CUDAExecutionProvider" in onnxruntime.get_available_providers()
        and os.environ.get("CUDA_VISIBLE_DEVICES") != ""
    ):
        providers.insert(0, "CUDAExecutionProvider")
    try:
        return onnxruntime.InferenceSession(
            model if isinstance(model, bytes) else str(model),
            options,
            providers=providers,
            enable_fallback=0,
        )
    except _FAILURES as error:
        raise EncoderError(
            f"ONNX Runtime cannot run {name} ({_line(error)}). Export it again.",
            code="onnx-unusable",
        ) from error


_Positive = Annotated[float, msgspec.Meta(gt=0)]


class _Description(msgspec.Struct, forbid_unknown_fields=True):
    """What a user writes beside an ONNX file."""

    blocks: Annotated[list[str], msgspec.Meta(min_length=1)]
    size: Annotated[int, msgspec.Meta(gt=0)]
    mean: tuple[float, float, float]
    std: tuple[_Positive, _Positive, _Positive]
    resize: int | None = None  # as size
    positions: list[str] = []


def _describe(path: Path) -> tuple[list[str], Preprocessing, list[str]]:
    """Read which tensors are the blocks and positions, and how images are prepared."""
    beside = Path(f"{path}.json")
    try:
        said = msgspec.json.decode(read_file(beside, MOST_OF_TEXT), type=_Description)
        resize = said.size if said.resize is None else said.resize
        if resize < said.size:
            raise ValueError(f"resize {resize} is below size {said.size}")
    except FileNotFoundError:
        raise EncoderError(
            f"{beside} is missing, which says what the blocks of {path} are. "
            f"Write {_EXAMPLE} there.",
            code="description-missing",
        ) from None
    except (OSError, ValueError) as error:
        raise EncoderError(
            f"{beside} does not describe an encoder ({_line(error)}). "
            f"Correct it; an example is {_EXAMPLE}.",
            code="description-invalid",
        ) from error
    preprocessing = Preprocessing(said.size, resize, said.mean, said.std)
    return said.blocks, preprocessing, said.positions
