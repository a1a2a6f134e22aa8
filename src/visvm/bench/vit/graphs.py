"""The weights of an encoder of the catalogue, from the constants of its ONNX graph."""

import base64
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import torch
from torch import Tensor

from visvm.bench.vit.network import Network
from visvm.encoders.graph import PROJECTION

if TYPE_CHECKING:
    import onnx

_HEAD = 64  # the width of a head of every vision transformer of the catalogue

# of the modules that its files were exported from, those of our network
_Layout = dict[str, str | tuple[str, ...]]

_DINO: _Layout = {
    "cls": "model.cls_token",
    "start": "/blocks.{}/",
    "norm1": "norm1",
    "qkv": ("attn/qkv",),
    "proj": "attn/proj",
    "scale1": "ls1",
    "norm2": "norm2",
    "fc1": "mlp/fc1",
    "fc2": "mlp/fc2",
    "scale2": "ls2",
}
_CLIP: _Layout = {
    "cls": "vision_model.embeddings.class_embedding",
    "start": "/vision_model/encoder/layers.{}/",
    "norm1": "layer_norm1",
    "qkv": ("self_attn/q_proj", "self_attn/k_proj", "self_attn/v_proj"),
    "proj": "self_attn/out_proj",
    "norm2": "layer_norm2",
    "fc1": "mlp/fc1",
    "fc2": "mlp/fc2",
}


class _Constants:
    """The numbers that the nodes of a graph read, by what the nodes put out."""

    def __init__(self, model: "onnx.ModelProto") -> None:
        from onnx import numpy_helper

        self._read = numpy_helper.to_array
        self._tensors = {each.name: each for each in model.graph.initializer}
        self._tensors |= {
            node.output[0]: node.attribute[0].t
            for node in model.graph.node
            if node.op_type == "Constant"
        }
        self._makers = {node.output[0]: node for node in model.graph.node}

    def of(self, module: str, operation: str) -> Tensor | None:
        """Return the constant that an operation of a module reads; None where there is none."""
        node = self._makers.get(f"{module}/{operation}_output_0")
        names = [] if node is None else [name for name in node.input if name in self._tensors]
        return self.named(names[0]) if names else None

    def named(self, name: str) -> Tensor:
        return torch.tensor(np.array(self._read(self._tensors[name]), dtype=np.float32))

    def starting(self, kind: str) -> list[Tensor]:
        """Return what the first node of a kind reads."""
        node = next(each for each in self._makers.values() if each.op_type == kind)
        return [self.named(name) for name in node.input if name in self._tensors]

    def linear(self, modules: tuple[str, ...], place: str) -> dict[str, Tensor]:
        """Return weight and bias of a linear map, or of several on top of each other."""
        rows = [(self.of(each, "MatMul"), self.of(each, "Add")) for each in modules]
        parts = list(zip(*rows, strict=True))
        found = {}
        for name, values in zip(("weight", "bias"), parts, strict=True):
            known = [value.T if value.ndim == 2 else value for value in values if value is not None]
            if len(known) == len(modules):
                found[f"{place}.{name}"] = torch.cat(known)
        return found

    def norm(self, module: str, place: str) -> dict[str, Tensor]:
        found = {"weight": self.of(module, "Mul"), "bias": self.of(module, "Add_1")}
        return {f"{place}.{name}": value for name, value in found.items() if value is not None}


def from_graph(model: "onnx.ModelProto", positions: str) -> Network:
    """Build the network of a prepared graph of the catalogue.

    Parameters
    ----------
    model : onnx.ModelProto
        As ``prepare`` leaves it, for pictures of its size.
    positions : str
        The tensor that is added to the tokens.
    """
    constants = _Constants(model)
    clip = constants.of(_module(_CLIP, 0, "fc1"), "MatMul") is not None
    layout = _CLIP if clip else _DINO
    patch = constants.starting("Conv")
    weights = dict(zip(("patch.weight", "patch.bias"), patch, strict=False))
    weights |= constants.norm("/vision_model/pre_layrnorm", "before")
    depth = 0
    while constants.of(_module(layout, depth, "fc1"), "MatMul") is not None:
        weights |= _block(constants, layout, depth)
        depth += 1
    weights["positions"] = _value(model, positions).reshape(-1, patch[0].shape[0])
    weights["positions"][0] += constants.named(str(layout["cls"])).flatten()
    weights |= _tail(model, clip)
    operations = {node.op_type for node in model.graph.node}
    epsilon = constants.of(_module(layout, 0, "norm1"), "Add")
    assert epsilon is not None, "every norm has one"
    return Network(
        weights,
        heads=patch[0].shape[0] // min(_HEAD, patch[0].shape[0]),
        activation="gelu" if "Erf" in operations else "quick_gelu",
        epsilon=float(epsilon),
    )


def _module(layout: _Layout, block: int, part: str) -> str:
    return f"{layout['start']}".format(block) + str(layout[part])


def _block(constants: _Constants, layout: _Layout, block: int) -> dict[str, Tensor]:
    start = f"{layout['start']}".format(block)
    found: dict[str, Tensor] = {}
    for part in ("norm1", "norm2"):
        found |= constants.norm(_module(layout, block, part), f"{block}.{part}")
    for part in ("proj", "fc1", "fc2"):
        found |= constants.linear((_module(layout, block, part),), f"{block}.{part}")
    found |= constants.linear(tuple(start + each for each in layout["qkv"]), f"{block}.qkv")
    for part in ("scale1", "scale2"):
        scale = constants.of(_module(layout, block, part), "Mul") if part in layout else None
        if scale is not None:
            found[f"{block}.{part}"] = scale
    return found


def _tail(model: "onnx.ModelProto", clip: bool) -> dict[str, Tensor]:
    """Return the last norm, and CLIP's projection, which a prepared graph keeps apart."""
    import onnx

    (packed,) = (each.value for each in model.metadata_props if each.key == PROJECTION)
    apart = onnx.load_from_string(base64.b64decode(packed))
    constants = _Constants(apart)
    found = constants.norm("/vision_model/post_layernorm" if clip else "/norm", "norm")
    matrices = [node for node in apart.graph.node if node.op_type == "MatMul"]
    if matrices:
        found["projection"] = constants.named(matrices[-1].input[1]).T
    return found


def _value(model: "onnx.ModelProto", name: str) -> Tensor:
    """Return what a tensor is that depends on no picture."""
    import onnx
    from onnx import numpy_helper

    known = {each.name: each for each in model.graph.initializer}
    if name in known:
        return torch.tensor(np.array(numpy_helper.to_array(known[name]), dtype=np.float32))
    apart = onnx.ModelProto()
    apart.CopyFrom(model)
    del apart.graph.output[:]
    output = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
    apart.graph.output.append(output)
    session = onnxruntime.InferenceSession(
        apart.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (given,) = session.get_inputs()
    shape = [each if isinstance(each, int) else 1 for each in given.shape]
    (found,) = session.run([name], {given.name: np.zeros(shape, dtype=np.float32)})
    return torch.tensor(np.asarray(found, dtype=np.float32))
