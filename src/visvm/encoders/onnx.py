"""The default engine: ONNX Runtime, on the CPU, or on a GPU where the package ``onnxruntime-gpu`` finds one.

A user's own ONNX file is taken when it says which tensors its blocks put out and how images are
prepared: in a file of the same
name with ``.json`` added, such as ``vit.onnx.json``::

    {"blocks": ["block_1", "block_2"], "size": 224, "resize": 256, "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
"""

import base64
import hashlib
import json
import operator
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state

from visvm.encoders import weights
from visvm.encoders.catalog import CATALOG
from visvm.encoders.download import Progress, file_digest
from visvm.encoders.encoder import FinalFeatures, LayerFeatures, Pixels, Preprocessing, check_final
from visvm.encoders.graph import METADATA, OUTPUT, PROJECTION, prepare
from visvm.errors import EncoderError

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


class OnnxEncoder:
    """A vision transformer in a prepared ONNX file (``graph.py``).

    Parameters
    ----------
    name : str
    digest : str
        SHA-256 of the weights.
    model : path or bytes
        The prepared file, or its content.

    Attributes
    ----------
    layer_dims, preprocessing
        As in ``Encoder``.
    """

    def __init__(self, name: str, digest: str, model: Path | bytes) -> None:
        self.name = name
        self.digest = digest
        self._session = _open(name, model)
        described = json.loads(self._session.get_modelmeta().custom_metadata_map[METADATA])
        n_blocks = described.pop("n_blocks")
        self.preprocessing = _preprocessing(described, name)
        side = self.preprocessing.size
        try:
            self._input = _input(self._session, name)
            shape = self.encode(np.zeros((1, 3, side, side), dtype=np.float32)).shape
        except _FAILURES as error:
            raise EncoderError(
                f"{name} must take float32 images of {side} × {side}; it says: {_line(error)}: correct size, or export anew"
            ) from error
        if len(shape) != 2 or shape[1] % n_blocks:
            raise EncoderError(
                f"the blocks of {name} must be (n, tokens, width) or (n, width), of one width; side by side they are {shape}: "
                "name other tensors"
            )
        self.layer_dims = (shape[1] // n_blocks,) * n_blocks

    def encode(self, pixels: Pixels) -> LayerFeatures:
        """Layer features of normalised images, (n, 3, size, size) → (n, sum of layer_dims)."""
        (features,) = self._session.run([OUTPUT], {self._input: pixels})
        return np.asarray(features)

    def project(self, final: FinalFeatures) -> NDArray[np.float32]:
        """What the encoder itself puts out, (n, layer_dims[-1]) → (n, p); of one's own file `final` as it is."""
        final = check_final(final, self.layer_dims)
        if self._projection is None:
            return final
        (projected,) = self._projection.run(None, {self._projection.get_inputs()[0].name: final})
        return np.asarray(projected)

    @cached_property
    def _projection(self) -> onnxruntime.InferenceSession | None:
        packed = self._session.get_modelmeta().custom_metadata_map.get(PROJECTION)
        return None if packed is None else _open(self.name, base64.b64decode(packed))


def load_named(name: str, progress: Progress) -> OnnxEncoder:
    """An encoder of the catalogue; its weights are fetched if they are not there."""
    return OnnxEncoder(name, CATALOG[name].sha256, weights.fetch(name, progress))


def load_file(path: Path) -> OnnxEncoder:
    """A user's own ONNX file, with its description beside it."""
    import onnx
    from google.protobuf.message import DecodeError

    if not path.is_file():
        raise EncoderError(f"{path} must be an ONNX file; there is no such file: correct the path")
    described = _describe(path)
    blocks = described.pop("blocks")
    if not (
        isinstance(blocks, list) and blocks and all(isinstance(block, str) for block in blocks)
    ):
        raise EncoderError(
            f"'blocks' in {path}.json must list tensor names, the final block's last; got {blocks!r}: correct it"
        )
    preprocessing = _preprocessing(described, f"{path}.json")
    try:
        model = onnx.load(path, load_external_data=False)
        files = [path, *(path.parent / place for place in _places(model))]
        onnx.load_external_data_for_model(model, str(path.parent))
        digests = " ".join(file_digest(file) for file in files)
    except (OSError, ValueError, DecodeError, onnx.checker.ValidationError) as error:
        raise EncoderError(
            f"{path} must be an ONNX file; it cannot be read as one ({_line(error)}): export it anew"
        ) from error
    if not model.graph.node:
        raise EncoderError(f"{path} must be an ONNX file; it holds no graph: export it anew")
    digest = hashlib.sha256(f"{digests} {blocks} {preprocessing}".encode()).hexdigest()
    return OnnxEncoder(str(path), digest, prepare(model, blocks, preprocessing))


def _places(model: "onnx.ModelProto") -> list[str]:
    """The files beside the model that hold its weights, where it does not hold them itself."""
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
    """Name of the input, which must be images, any number of them."""
    inputs = session.get_inputs()
    if len(inputs) != 1 or any(isinstance(size, int) for size in inputs[0].shape[:1]):
        got = ", ".join(f"{each.name} {each.shape}" for each in inputs)
        raise EncoderError(
            f"{name} must have one input, any number of images; it has {got}: export it with an open batch axis"
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
            f"{name} must be a model ONNX Runtime can run; it says: {_line(error)}: export it anew"
        ) from error


def _describe(path: Path) -> dict[str, Any]:
    beside = Path(f"{path}.json")
    example = (
        '{"blocks": ["tensor", …], "size": 224, "resize": 256, "mean": [r, g, b], "std": [r, g, b]}'
    )
    try:
        described = json.loads(beside.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EncoderError(
            f"{path} must say which outputs are its blocks; {beside} is missing: write {example} there"
        ) from None
    except (OSError, ValueError) as error:
        raise EncoderError(
            f"{beside} must be JSON such as {example}; it cannot be read ({error}): correct it"
        ) from error
    if not isinstance(described, dict) or "blocks" not in described:
        raise EncoderError(
            f"{beside} must be JSON such as {example}; it has no 'blocks': correct it"
        )
    return described


def _preprocessing(described: dict[str, Any], where: str) -> Preprocessing:
    unknown = sorted(set(described) - {"size", "resize", "mean", "std"})
    if unknown:
        raise EncoderError(
            f"{where} must give blocks, size, resize, mean and std; it has {', '.join(unknown)}: correct it"
        )
    try:
        mean, std = (
            (float(r), float(g), float(b)) for r, g, b in (described["mean"], described["std"])
        )
        size = operator.index(described["size"])
        found = Preprocessing(size, operator.index(described.get("resize", size)), mean, std)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise EncoderError(
            f"{where} must give size, a whole number, mean and std, three numbers each; it does not ({error!r}): correct it"
        ) from error
    if not (0 < found.size <= found.resize and np.isfinite([*mean, *std]).all() and min(std) > 0):
        raise EncoderError(
            f"{where} must have 0 < size <= resize, finite mean, and std above 0; got {found}: correct it"
        )
    return found
