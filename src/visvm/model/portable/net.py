"""A graph that is being written, node by node."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

OPSET = 18
"""The first in which Resize can filter as Pillow does, and take some of the axes."""

EXACT = "visvm/exact_"
"""Before the names of constants that stay float32 in every precision."""

IR_VERSION = 8  # that of this opset: older runtimes read it too


class Net:
    """Nodes and constants, each of which gets a name of its own.

    Examples
    --------
    >>> net = Net()
    >>> net.op("Mul", "x", net.constant(np.array([2.0])))
    'visvm/Mul_1'
    """

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def constant(self, value: Any, dtype: Any = np.float32, *, exact: bool = False) -> str:
        """Add a constant; return its name."""
        name = f"{EXACT if exact else 'visvm/constant_'}{len(self.constants)}"
        array: NDArray[Any] = np.ascontiguousarray(value, dtype=dtype).reshape(np.shape(value))
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """Add a node with one output; return the output's name."""
        output = name or f"visvm/{kind}_{len(self.nodes) + len(self.constants)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def cast(self, name: str, kind: int) -> str:
        """Add a conversion to a kind of number of ``TensorProto``."""
        return self.op("Cast", name, to=kind)

    def graph(
        self, title: str, inputs: Iterable[ValueInfoProto], outputs: Iterable[ValueInfoProto]
    ) -> GraphProto:
        """Return the graph."""
        return helper.make_graph(self.nodes, title, list(inputs), list(outputs), self.constants)
