"""A model as one graph: photos, or layer features, → answers."""

from dataclasses import dataclass

import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto, compose, helper, version_converter

from visvm.encoders.encoder import Preprocessing
from visvm.encoders.graph import OUTPUT
from visvm.errors import EncoderError, InputError
from visvm.head.checks import parameter_error
from visvm.model.portable.answers import FUSED, KNOWN, PROBABILITIES, SCORES, TOP, add_answers
from visvm.model.portable.metadata import described, write_metadata
from visvm.model.portable.net import IR_VERSION, OPSET, Net
from visvm.model.portable.pixels import PIXELS, add_pixels
from visvm.model.portable.precision import check_precision, store_smaller
from visvm.model.state import Model

IMAGE = "image"
INSIDE = "encoder/"
"""Before every name in the encoder's own graph."""


@dataclass(frozen=True)
class PortableOptions:
    """What an exported graph is to be like.

    Parameters
    ----------
    precision : "float32", "float16" or "int8"
        In which its weights are stored.
    pixels : "uint8" or "float32"
        What it takes: grey levels 0…255, or numbers 0…1.
    top : int
        How many classes it names.
    head_only : bool
        Whether it takes layer features instead of photos.
    teach : bool
        Whether it also gives the fused features, from which a page can learn.
    """

    precision: str = "float32"
    pixels: str = "uint8"
    top: int = 5
    head_only: bool = False
    teach: bool = False

    def __post_init__(self) -> None:
        check_precision(self.precision)
        if self.pixels not in PIXELS:
            raise InputError(
                f"The 'pixels' parameter must be one of {', '.join(PIXELS)}. "
                f"Got {self.pixels!r} instead.",
                code="pixels-unknown",
            )
        if self.top < 1:
            raise parameter_error("export_onnx", "top", self.top, "at least 1")


def portable(
    model: Model,
    encoder: ModelProto | None,
    preprocessing: Preprocessing | None,
    options: PortableOptions,
) -> ModelProto:
    """Return a model as one graph.

    Parameters
    ----------
    model : Model
        Which knows a class.
    encoder : onnx.ModelProto or None
        The graph of its encoder, prepared (``encoders/graph.py``); None for the head alone. It is
        changed.
    preprocessing : Preprocessing or None
        Of the encoder.
    options : PortableOptions
    """
    net = Net()
    if encoder is None or preprocessing is None:
        n_inputs, opset, ir_version = model.head.settled.lift.n_inputs, OPSET, IR_VERSION
        inputs = [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["n", n_inputs])]
        features = OUTPUT
    else:
        sides: list[str | int] = ["n", "height", "width", 3]
        inputs = [helper.make_tensor_value_info(IMAGE, PIXELS[options.pixels], sides)]
        how = options.pixels, model.encoder.transform, preprocessing
        features, opset, ir_version = _add_encoder(net, encoder, add_pixels(net, IMAGE, *how))
    names = add_answers(net, features, model, options.top, teach=options.teach)
    graph = net.graph("visvm", inputs, _outputs(names, model, options.top))
    imports = [helper.make_opsetid("", opset)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
    made.producer_name = "visvm"
    store_smaller(made, options.precision)
    kind = None if encoder is None else options.pixels
    write_metadata(made, described(model, kind, options.precision))
    return made


def _outputs(names: list[str], model: Model, top: int) -> list[ValueInfoProto]:
    n_classes = len(model.classes)
    shapes: dict[str, tuple[int, list[str | int]]] = {
        SCORES: (TensorProto.FLOAT, ["n", n_classes]),
        PROBABILITIES: (TensorProto.FLOAT, ["n", n_classes]),
        TOP: (TensorProto.INT64, ["n", min(top, n_classes)]),
        KNOWN: (TensorProto.FLOAT, ["n"]),
        FUSED: (TensorProto.FLOAT, ["n", model.head.settled.lift.kernel_map.n_inputs]),
    }
    return [helper.make_tensor_value_info(name, *shapes[name]) for name in names]


def _add_encoder(net: Net, encoder: ModelProto, pixels: str) -> tuple[str, int, int]:
    """Add the encoder's graph; return its output's name, its opset and its IR version."""
    raised = compose.add_prefix(_raised(encoder), INSIDE, inplace=True)
    (taken,) = raised.graph.input
    net.op("Identity", pixels, name=taken.name)
    net.nodes += raised.graph.node
    net.constants += raised.graph.initializer
    (opset,) = (each.version for each in raised.opset_import if not each.domain)
    return f"{INSIDE}{OUTPUT}", opset, max(IR_VERSION, raised.ir_version)


def _raised(encoder: ModelProto) -> ModelProto:
    """Return the graph in an opset that has all that is needed."""
    others = sorted({node.domain for node in encoder.graph.node} - {"", "ai.onnx"})
    if others or encoder.functions:
        raise EncoderError(
            f"The encoder's graph has operators of {', '.join(others) or 'its own'}, which other "
            "runtimes do not know. Export the encoder with standard ones, or write the head alone "
            "with --head-only (head_only=True).",
            code="operators-nonstandard",
        )
    for each in (*encoder.opset_import, *encoder.graph.node):
        each.domain = "" if each.domain == "ai.onnx" else each.domain  # two names of one
    (opset,) = (each.version for each in encoder.opset_import if not each.domain)
    if opset >= OPSET:
        return encoder
    try:
        return version_converter.convert_version(encoder, OPSET)
    except (RuntimeError, onnx.checker.ValidationError) as error:
        reason = " ".join(str(error).split())
        raise EncoderError(
            f"The encoder's graph cannot be brought from opset {opset} to {OPSET} ({reason:.200}). "
            f"Export it with opset {OPSET}, or write the head alone with --head-only "
            "(head_only=True).",
            code="opset-too-old",
        ) from error
