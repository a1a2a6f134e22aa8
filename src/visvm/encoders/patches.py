"""Let an encoder look at fewer patches: those at which it looks least itself are left out.

From one block on only the others go on, which makes all later ones that much faster (EViT does so,
https://arxiv.org/abs/2202.07800; here nothing is trained for it). As nothing but CLS tokens is
read, the last block's network sees that one alone, which changes no feature.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from visvm.encoders.resolution import Form, patch_side, resize_graph
from visvm.errors import EncoderError

if TYPE_CHECKING:
    import onnx

_OURS = "visvm_patches"  # what the names of added tensors begin with


def chosen_in(n_blocks: int) -> int:
    """Return the block, from 1, in which the patches are chosen: at a third of the depth.

    Examples
    --------
    >>> chosen_in(12), chosen_in(2)
    (4, 1)
    """
    return max(1, n_blocks // 3)


def take_form(
    name: str,
    model: "onnx.ModelProto",
    blocks: Sequence[str],
    positions: Sequence[str],
    own_size: int,
    form: Form,
) -> None:
    """Give a graph a form, in place; parameters as in ``resize_graph`` and ``keep_patches``."""
    if form.size is not None:
        resize_graph(name, model, positions, form.size)
    if form.patches is not None:
        keep_patches(name, model, blocks, form.size or own_size, form.patches)


def keep_patches(
    name: str, model: "onnx.ModelProto", blocks: Sequence[str], size: int, kept: int
) -> None:
    """Let only some patches go on after the attention of one block (``chosen_in``), in place.

    They are those with the most attention in that block, summed over its heads: the CLS token's,
    and the mean of all tokens'.

    Parameters
    ----------
    name : str
        For messages.
    model : onnx.ModelProto
        A convolution cuts the patches, and every block adds an attention and then a network to the
        tokens; opset 12 or later.
    blocks : sequence of str
        The tensors that the blocks output, (n, 1 + patches, width), the CLS token first.
    size : int
        Side of the picture.
    kept : int
        How many patches go on.
    """
    patch = patch_side(model)
    if patch is None:
        raise _refusal(name, "no convolution of its graph cuts patches")
    n_patches = (size // patch) ** 2
    if not 1 <= kept < n_patches:
        raise EncoderError(
            f"{name} can keep 1 to {n_patches - 1} of its {n_patches} patches. Got {kept} instead.",
            code="patches-unsupported",
        )
    last = len(blocks) - 1
    tokens, attention = _parts(name, model.graph, blocks, chosen_in(len(blocks)) - 1)
    _replace(model.graph, tokens, *_choosing(tokens, attention, kept))
    tokens, _ = _parts(name, model.graph, blocks, last)
    _replace(model.graph, tokens, *_cls_alone(tokens))
    del model.graph.value_info[:]  # shapes that are no longer so


def _refusal(name: str, why: str) -> EncoderError:
    return EncoderError(
        f"{name} looks at all patches only: {why}. Leave out the colon and what is behind it.",
        code="patches-unsupported",
    )


def _parts(
    name: str, graph: "onnx.GraphProto", blocks: Sequence[str], block: int
) -> tuple[str, str]:
    """Return a block's tokens between its attention and its network, and that attention.

    The tokens are (n, tokens, width), the attention (n, heads, tokens, tokens) or (n · heads,
    tokens, tokens).
    """
    makers = {output: node for node in graph.node for output in node.output}
    before = {blocks[block - 1]} if block else set()
    end = makers.get(blocks[block])
    if end is not None and end.op_type == "Add":
        behind = {each: _behind(each, makers, before) for each in end.input}
        for tokens, others in (end.input, end.input[::-1]):
            looks = [each for each in behind[tokens] if makers[each].op_type == "Softmax"]
            if tokens in behind[others] and len(looks) == 1:
                return tokens, looks[0]
    why = f"block {block + 1} of its graph does not add an attention and then a network"
    raise _refusal(name, why)


def _behind(name: str, makers: "dict[str, onnx.NodeProto]", before: set[str]) -> set[str]:
    """Return the tensors that one is made of, and itself, back to those before the block."""
    found: set[str] = set()
    open_ends = [name]
    while open_ends:
        each = open_ends.pop()
        if each in makers and each not in found | before:
            found.add(each)
            open_ends.extend(makers[each].input)
    return found


def _choosing(
    tokens: str, attention: str, kept: int
) -> "tuple[list[onnx.NodeProto], dict[str, list[int] | int]]":
    """Return nodes that choose among the patches, and their constants; the last has the tokens."""
    from onnx import TensorProto, helper

    at = f"{_OURS}_{{}}".format
    constants: dict[str, list[int] | int] = {
        **{at("cls"): 0, at("zero"): [0], at("one"): [1], at("all"): [-1]},
        **{at("end"): [2**31 - 1], at("kept"): [kept], at("column"): [0, -1, 1]},
    }
    make = helper.make_node
    nodes = [
        make("Shape", [tokens], [at("shape")]),
        make("Gather", [at("shape"), at("zero")], [at("n")]),
        make("Gather", [at("shape"), at("one")], [at("t")]),
        make("Concat", [at("n"), at("all"), at("t"), at("t")], [at("by_head")], axis=0),
        make("Reshape", [attention, at("by_head")], [at("heads")]),  # (n, heads, t, t)
        make("Einsum", [at("heads")], [at("sums")], equation="nhqk->nk"),
        make("Cast", [at("t")], [at("number")], to=TensorProto.FLOAT),
        make("Div", [at("sums"), at("number")], [at("mean")]),
        make("Gather", [at("heads"), at("cls")], [at("row")], axis=2),
        make("Einsum", [at("row")], [at("of_cls")], equation="nhk->nk"),
        make("Add", [at("of_cls"), at("mean")], [at("looks")]),  # (n, t)
        make("Slice", [at("looks"), at("one"), at("end"), at("one")], [at("of_patches")]),
        make("TopK", [at("of_patches"), at("kept")], [at("most"), at("ranked")]),
        make("Add", [at("ranked"), at("one")], [at("places")]),  # the CLS token is the first
        make("Reshape", [at("places"), at("column")], [at("rows")]),  # (n, kept, 1)
        make("GatherND", [tokens, at("rows")], [at("chosen")], batch_dims=1),
        make("Gather", [tokens, at("zero")], [at("first")], axis=1),
        make("Concat", [at("first"), at("chosen")], [at("going_on")], axis=1),
    ]
    return nodes, constants


def _cls_alone(tokens: str) -> "tuple[list[onnx.NodeProto], dict[str, list[int] | int]]":
    """Return a node that takes the CLS token alone, (n, 1, width), and its constant."""
    from onnx import helper

    first = f"{_OURS}_first_alone"
    return [helper.make_node("Gather", [tokens, first], [f"{_OURS}_last"], axis=1)], {first: [0]}


def _replace(
    graph: "onnx.GraphProto",
    tensor: str,
    nodes: "list[onnx.NodeProto]",
    constants: dict[str, list[int] | int],
) -> None:
    """Put nodes behind a tensor, and let what read that tensor read what the last one outputs."""
    from onnx import numpy_helper

    for node in graph.node:
        for place, name in enumerate(node.input):
            if name == tensor:
                node.input[place] = nodes[-1].output[0]
    made = next(place for place, node in enumerate(graph.node) if tensor in node.output)
    for step, node in enumerate(nodes, 1):
        graph.node.insert(made + step, node)
    graph.initializer.extend(
        numpy_helper.from_array(np.array(value, dtype=np.int64), name)
        for name, value in constants.items()
    )
