"""Let an encoder take pictures of another size: position embeddings for another grid of patches.

What a name says behind its ``@`` is read here as well.

The embeddings are interpolated as transformers does it: bicubic, cells aligned by their edges, from
the grid in which they were trained, and without a filter where the new grid is the coarser one.
"""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visvm.errors import EncoderError

if TYPE_CHECKING:
    import onnx

_NAMED = re.compile(r"(.+)@(\d+)(?::(\d+))?(:int8)?")
_CUBIC = -0.75  # torch's and ONNX's coefficient


@dataclass(frozen=True)
class Form:
    """What an encoder does otherwise than as it was trained; None is as trained.

    Parameters
    ----------
    size : int, optional
        Side of the picture.
    patches : int, optional
        How many patches go on through all blocks (``keep_patches``).
    int8 : bool, default=False
        Whether it multiplies in whole numbers of 8 bits (``multiply_in_int8``).
    """

    size: int | None = None
    patches: int | None = None
    int8: bool = False

    def beside(self, own_size: int) -> "Form":
        """Return the same form, of an encoder that was trained with pictures of this size."""
        return replace(self, size=None) if self.size == own_size else self

    def digest(self, weights: str) -> str:
        """Return the digest of an encoder in this form: its features are others."""
        for sign, number in (("@", self.size), (":", self.patches)):
            if number is not None:
                weights = hashlib.sha256(f"{weights}{sign}{number}".encode()).hexdigest()
        return hashlib.sha256(f"{weights}:int8".encode()).hexdigest() if self.int8 else weights

    def name(self, bare: str, own_size: int) -> str:
        """Return an encoder's name in this form, given the size that it was trained with."""
        if self == Form():
            return bare
        patches = "" if self.patches is None else f":{self.patches}"
        return f"{bare}@{self.size or own_size}{patches}{':int8' if self.int8 else ''}"


def split_form(name: str) -> tuple[str, Form]:
    """Return an encoder's name without the form behind it, and the form.

    A file or folder that has such a name itself is meant as it is.

    Examples
    --------
    >>> split_form("dinov2-s14@336")
    ('dinov2-s14', Form(size=336, patches=None, int8=False))
    >>> split_form("dinov2-s14") == ("dinov2-s14", Form())
    True
    >>> split_form("dinov2-s14@224:112:int8")
    ('dinov2-s14', Form(size=224, patches=112, int8=True))
    """
    match = _NAMED.fullmatch(name)
    if match is None or Path(name).expanduser().exists():
        return name, Form()
    return match[1], Form(int(match[2]), int(match[3]) if match[3] else None, bool(match[4]))


def check_size(name: str, size: int, patch: int, grid: int) -> None:
    """Refuse a size that is no multiple of the patch, or that the position embeddings do not bear.

    Parameters
    ----------
    name : str
        The encoder's, without a size.
    size, patch : int
        Side of the picture and of a patch, in pixels.
    grid : int
        Patches along a side for which there are embeddings; a quarter to twice as many will do.
    """
    least, most = patch * max(2, math.ceil(grid / 4)), patch * 2 * grid
    if size % patch or not least <= size <= most:
        near = min(max(round(size / patch) * patch, least), most)
        raise EncoderError(
            f"{name} takes sizes from {least} to {most} in steps of {patch}. "
            f"Got {size}; the nearest is {name}@{near}.",
            code="size-unsupported",
        )


def interpolated(table: NDArray[Any], side: int) -> NDArray[np.float32]:
    """Return position embeddings for another grid.

    Parameters
    ----------
    table : array of shape (prefix + grid², width)
        At most a few rows, such as that of the CLS token, before those of the square grid.
    side : int
        Patches along a side of the new grid.

    Returns
    -------
    array of shape (prefix + side², width)

    Examples
    --------
    >>> interpolated(np.array([[9.0], [0.0], [0.0], [2.0], [2.0]]), 1).ravel().tolist()
    [9.0, 1.0]
    """
    grid = math.isqrt(len(table))
    prefix, cells = np.split(table.astype(np.float64), [len(table) - grid * grid])
    weights = _cubic_weights(grid, side)
    square = cells.reshape(grid, grid, -1)
    resized = np.einsum("ij,jkw,lk->ilw", weights, square, weights, optimize=True)
    return np.concatenate([prefix, resized.reshape(side * side, -1)]).astype(np.float32)


def _cubic_weights(old: int, new: int) -> NDArray[np.float64]:
    """Return what every old cell along a side adds to every new one, (new, old)."""
    places = (np.arange(new) + 0.5) * old / new - 0.5
    first = np.floor(places).astype(np.int64)
    weights = np.zeros((new, old))
    for step in range(-1, 3):
        distance = np.abs(places - (first + step))
        near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1
        far = _CUBIC * (((distance - 5) * distance + 8) * distance - 4)
        share = np.where(distance <= 1, near, far)
        np.add.at(weights, (np.arange(new), np.clip(first + step, 0, old - 1)), share)
    return weights


def patch_side(model: "onnx.ModelProto") -> int | None:
    """Return the side of the patches that a graph cuts pictures into, None where it cuts none."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    kernels = [node.input[1] for node in model.graph.node if node.op_type == "Conv"]
    return next((constants[name].dims[-1] for name in kernels if name in constants), None)


def resize_graph(name: str, model: "onnx.ModelProto", positions: Sequence[str], size: int) -> None:
    """Make a vision transformer's graph take pictures of another size, in place.

    Parameters
    ----------
    name : str
        For messages.
    model : onnx.ModelProto
        With one input, (n, 3, old size, old size), and a convolution that cuts it into patches.
    positions : sequence of str
        The tensor that is added to the tokens, and the constants that it is made of, one below the
        other; the tensor alone where it is a constant itself.
    size : int
    """
    from onnx import numpy_helper

    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    sources = positions[1:] or positions
    missing = [source for source in sources if source not in constants]
    patch = patch_side(model)
    if not sources or missing or patch is None:
        what = f"constant {missing[0]!r}" if missing else "convolution that cuts patches"
        raise EncoderError(
            f"{name} takes one size only: its graph has no "
            f"{what if sources else 'position embeddings that are known'}. Leave the size out, or "
            "name its 'positions' in the description.",
            code="size-unsupported",
        )
    parts = [numpy_helper.to_array(constants[source]) for source in sources]
    table = np.concatenate([part.reshape(-1, part.shape[-1]) for part in parts])
    check_size(name, size, patch, math.isqrt(len(table)))
    added = interpolated(table, size // patch)[None]
    target = positions[0]
    kept = [tensor for tensor in graph.initializer if tensor.name != target]
    nodes = [node for node in graph.node if target not in node.output]
    del graph.initializer[:], graph.node[:], graph.value_info[:]
    graph.initializer.extend([*kept, numpy_helper.from_array(added, target)])
    graph.node.extend(nodes)
    for side in graph.input[0].type.tensor_type.shape.dim[2:]:
        side.dim_value = size
