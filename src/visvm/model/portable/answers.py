"""Layer features → answers, as nodes of a graph: what ``head`` and ``Model.answers`` compute."""

import numpy as np
from onnx import helper

from visvm.head.calibration import inverse_temperature
from visvm.head.familiarity import DISTANCES, MOST_SCORE, smoothing
from visvm.head.fusion import ResidualMixer
from visvm.head.lift import KernelMap
from visvm.head.nearness import Spread
from visvm.head.products import Array
from visvm.model.portable.net import Net
from visvm.model.state import Model

SCORES, PROBABILITIES, TOP, KNOWN, FUSED = "scores", "probabilities", "top", "known", "fused"


def add_answers(
    net: Net, features: str, model: Model, top: int, *, teach: bool = False
) -> list[str]:
    """Add what turns layer features into answers.

    Parameters
    ----------
    net : Net
    features : str
        The tensor of layer features, (n, n_inputs).
    model : Model
        Which knows a class.
    top : int
        How many classes to name.
    teach : bool
        Whether to give the fused features, too, by weights that no precision changes.

    Returns
    -------
    list of str
        The outputs: ``scores`` and ``probabilities``, (n, C), ``top``, (n, top), the places of the
        likeliest classes, ``known``, (n,), unless the model cannot tell, and, to teach, ``fused``,
        (n, d).
    """
    lift, coefficients = model.head.settled.lift, model.head.coefficients
    assert coefficients is not None, "a model that knows a class has them"
    lifted = features if lift.mixer is None else _fused(net, features, lift.mixer, exact=teach)
    names = [SCORES, PROBABILITIES, TOP]
    if teach:
        names.append(net.op("Identity", lifted, name=FUSED))
    constants: list[str] = []
    for operator, constant in lift.kernel_map.steps:
        beside = () if constant is None else (net.constant(constant),)
        lifted = net.op(operator, lifted, *beside)
        constants += beside
    shown = coefficients[:, model.answerable]
    product = net.op("MatMul", lifted, net.constant(shown[:-1]))
    scores = net.op("Add", product, net.constant(shown[-1]), name=SCORES)
    beta = inverse_temperature(model.calibration.likelihoods)
    net.op("Softmax", net.op("Mul", scores, net.constant(beta)), name=PROBABILITIES, axis=1)
    count = net.constant([min(top, shown.shape[1])], np.int64)
    _top(net, scores, count)
    smoothed = smoothing(model.calibration.distances)
    if model.spread is None or smoothed is None:
        return names
    recovered = _back(net, lifted, lift.kernel_map, constants) if constants else lifted
    _known(net, recovered, scores, model.spread, smoothed)
    return [*names, KNOWN]


def _back(net: Net, lifted: str, kernel_map: KernelMap, constants: list[str]) -> str:
    """Add ``KernelMap.back``, for which no second matrix is stored."""
    turned = net.op("Transpose", constants[0], perm=[1, 0])
    scaled = net.op("Mul", lifted, net.constant(kernel_map.back_scale))
    return net.op("MatMul", scaled, turned)


def _top(net: Net, scores: str, count: str) -> None:
    # of equal scores the first class comes first, in TopK as in a stable sort
    net.nodes.append(helper.make_node("TopK", [scores, count], [f"{TOP}_scores", TOP], axis=1))


def _fused(net: Net, features: str, mixer: ResidualMixer, *, exact: bool) -> str:
    """Add ``ResidualMixer.fuse``: (n, sum of layer_dims) → (n, layer_dim)."""
    ends = np.cumsum(mixer.layer_dims)
    final = _columns(net, features, ends[-1] - mixer.layer_dims[-1], ends[-1])
    if mixer.is_identity:
        return final
    parts = [
        _columns(net, features, ends[layer - 1] - mixer.layer_dims[layer - 1], ends[layer - 1])
        for layer in mixer.layers
    ]
    tapped, weights = net.op("Concat", *parts, axis=1), mixer.weights
    z = _linear(net, tapped, weights.v, weights.v_bias, exact=exact)
    erf = net.op("Erf", net.op("Mul", z, net.constant(np.sqrt(0.5))))
    below = net.op("Mul", net.op("Add", erf, net.constant(1.0)), net.constant(0.5))
    hidden = net.op("Mul", z, below)
    return net.op("Add", final, _linear(net, hidden, weights.u, weights.u_bias, exact=exact))


def _columns(net: Net, features: str, start: int, end: int) -> str:
    edges = (net.constant([edge], np.int64) for edge in (start, end, 1))
    return net.op("Slice", features, *edges)


def _linear(net: Net, inputs: str, weight: Array, bias: Array, *, exact: bool) -> str:
    """Add x · weightᵀ + bias."""
    product = net.op("MatMul", inputs, net.constant(weight.T, exact=exact))
    return net.op("Add", product, net.constant(bias))


def _known(
    net: Net,
    recovered: str,
    scores: str,
    spread: Spread,
    smoothed: tuple[Array, Array, float],
) -> None:
    """Add ``Spread.squares``, ``strangeness`` and ``known_shares``: (n, d), (n, C) → (n,)."""
    # Differences from a centre in the middle, so that squares of float32 keep digits.
    middle = spread.centres.mean(axis=0)
    centres = (spread.centres - middle) @ spread.root
    root = net.constant(spread.root, exact=True)
    inside = net.op("MatMul", net.op("Sub", recovered, net.constant(middle, exact=True)), root)
    lengths = net.op("ReduceSumSquare", inside, net.constant([1], np.int64), keepdims=1)
    across = net.op("MatMul", inside, net.constant(-2.0 * centres.T, exact=True))
    own = net.constant(np.square(centres).sum(axis=1), exact=True)
    squares = net.op("Add", lengths, own)
    squares = net.op("Add", squares, across)
    nearest = net.op("ReduceMin", squares, net.constant([1], np.int64), keepdims=1)
    scaled = net.op("Div", nearest, net.constant(centres.shape[1]))
    best = net.op("ReduceMax", scores, net.constant([1], np.int64), keepdims=1)
    best = net.op("Clip", best, net.constant(-MOST_SCORE), net.constant(MOST_SCORE))
    least = net.constant(DISTANCES[0] ** 2)
    logs = net.op("Sub", net.op("Log", net.op("Max", scaled, least)), best)
    logs = net.op("Mul", logs, net.constant(0.5))
    weights, places, width = smoothed
    seen = weights > 0.0
    away = net.op("Sub", net.constant(places[seen]), logs)
    away = net.op("Mul", away, net.constant(np.sqrt(0.5) / width))
    share = net.op("Add", net.op("Erf", away), net.constant(1.0))
    column = net.constant(0.5 * weights[seen][:, None] / weights.sum())
    net.op("Squeeze", net.op("MatMul", share, column), net.constant([1], np.int64), name=KNOWN)
