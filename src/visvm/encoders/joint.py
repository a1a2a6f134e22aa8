"""What follows the final block of CLIP: its last norm, then a linear map to the joint space.

Images and texts meet in the joint space, (n, p). Methods that train this map, or that look for the
image feature a text would belong to, need both steps apart.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visvm.encoders.encoder import Encoder
from visvm.errors import EncoderError

if TYPE_CHECKING:
    import onnx


_VECTORS = {"Mul": "gain", "Add": "bias"}  # by the operation that a norm's parameter is read by


@dataclass(frozen=True, eq=False)
class Tail:
    """The last norm and the projection of CLIP's image tower.

    Parameters
    ----------
    matrix : array of shape (width, p)
        The projection, P.
    gain, bias : array of shape (width,), or None
        Of the last norm; None where there is no norm.
    epsilon : float
        Of the last norm.

    Examples
    --------
    >>> tail = Tail(np.array([[1.0], [1.0], [0.0]]), np.ones(3), np.zeros(3))
    >>> tail.project(tail.preimage(np.array([[1.0]]))).round(2).tolist()
    [[1.41]]
    """

    matrix: NDArray[np.float64]
    gain: NDArray[np.float64] | None = None
    bias: NDArray[np.float64] | None = None
    epsilon: float = 1e-5

    def normed(self, final: NDArray[Any]) -> NDArray[np.float64]:
        """Return the features behind the norm, h, (n, width)."""
        x = np.asarray(final, dtype=np.float64)
        if self.gain is None or self.bias is None:
            return x
        centred = x - x.mean(axis=1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=1, keepdims=True) + self.epsilon)
        return np.asarray(centred / spread * self.gain + self.bias)

    def project(self, final: NDArray[Any]) -> NDArray[np.float64]:
        """Return the features in the joint space, (n, p)."""
        return self.normed(final) @ self.matrix

    def preimage(self, texts: NDArray[Any]) -> NDArray[np.float64]:
        """Return the shortest final features, (n, width), that project in these directions.

        Without a norm this is t·P⁺. With one, x̂ is the shortest of mean 0 for which
        ``(g∘x̂ + b)·P = c·t``, and c > 0 gives it the variance 1 that the norm would give it.
        """
        if self.gain is None or self.bias is None:
            return np.asarray(texts @ np.linalg.pinv(self.matrix))
        width = len(self.matrix)
        system = np.hstack([self.gain[:, None] * self.matrix, np.ones((width, 1))])
        inverse = np.linalg.pinv(system)  # (p + 1, width)
        along, fixed = texts @ inverse[:-1], -(self.bias @ self.matrix) @ inverse[:-1]
        a, b = (along**2).sum(axis=1), along @ fixed
        root = b**2 - a * (fixed @ fixed - width)
        if (root <= 0).any() or (scale := (np.sqrt(root) - b) / a).min() <= 0:
            raise EncoderError(
                "The bias of the last norm is so long that no image feature projects to some of "
                "the texts. Use another reading.",
                code="preimage-missing",
            )
        return np.asarray(scale[:, None] * along + fixed)


def read_tail(model: "onnx.ModelProto") -> Tail | None:
    """Return the tail that the graph of a projection has; None if it is of another kind.

    The norm is LayerNormalization, or the same written out; the last node is the projection.
    """
    from onnx import numpy_helper

    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    found: dict[str, Any] = {}
    for node in model.graph.node:
        read = [constants[name].astype(np.float64) for name in node.input if name in constants]
        if node.op_type == "LayerNormalization" and len(read) == 2:
            found["gain"], found["bias"] = read
            found |= {each.name: each.f for each in node.attribute if each.name == "epsilon"}
        elif node.op_type == "Add" and not read:
            found["epsilon"] = _constant(model, node.input)
        elif node.op_type in _VECTORS and read[0].ndim == 1:
            found[_VECTORS[node.op_type]] = read[0]
        elif node.op_type == "MatMul" and node is model.graph.node[-1]:
            found["matrix"] = read[0]
    return Tail(**found) if {"gain", "bias", "matrix"} <= found.keys() else None


def _constant(model: "onnx.ModelProto", names: Any) -> float:
    """Return the number that one of some tensors is."""
    from onnx import numpy_helper

    (node,) = (
        node for node in model.graph.node if node.op_type == "Constant" and node.output[0] in names
    )
    return float(numpy_helper.to_array(node.attribute[0].t).item())


def tail_of(encoder: Encoder) -> Tail | None:
    """Return the tail of an encoder; None where it has none, or where it is not known."""
    tail = getattr(encoder, "tail", None)
    return tail if isinstance(tail, Tail) else None
