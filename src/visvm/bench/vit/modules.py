"""What may be trained in a network: adapters, scales and shifts, or tokens in every block.

A module is arrays by name, such as ``3.down``: the block, and the part in it.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from visvm.bench.vit.network import Adapter, Added, Network

KINDS = ("adapter", "ssf", "vpt")
N_TOKENS = 5  # of VPT, in each block
_LINEAR = ("norm1", "qkv", "proj", "norm2", "fc1", "fc2")
_SPREAD = 0.02  # of SSF's factors about 1, and of its shifts about 0

Module = dict[str, NDArray[np.float32]]


def drawn_module(
    kind: str,
    network: Network,
    generator: np.random.Generator,
    *,
    rank: int = 64,
    first: int = 0,
) -> Module:
    """Return a module before its training.

    Parameters
    ----------
    kind : str
        One of `KINDS`: adapters beside the MLPs (AdaptFormer), scales and shifts of all that is
        put out (SSF), tokens behind the patches in each block (deep VPT).
    network : Network
    generator : np.random.Generator
    rank : int
        Of adapters.
    first : int
        The first block that gets an adapter, or tokens.
    """
    blocks = range(first, network.depth)
    if kind == "vpt":
        shape = N_TOKENS, network.width
        return {f"{block}.tokens": np.zeros(shape, dtype=np.float32) for block in blocks}
    if kind == "ssf":
        return _scales(network, generator)
    found, (width, bound) = {}, (network.width, 1.0 / math.sqrt(network.width))
    for block in blocks:
        found[f"{block}.down"] = generator.uniform(-bound, bound, size=(rank, width))
        found[f"{block}.up"] = np.zeros((width, rank))
        found |= {f"{block}.down_bias": np.zeros(rank), f"{block}.up_bias": np.zeros(width)}
    return {name: value.astype(np.float32) for name, value in found.items()}


def added(
    kind: str, parts: Mapping[str, Tensor], generator: torch.Generator | None = None
) -> Added:
    """Return a module as a network takes it; adapters drop out where there is a generator."""
    blocks = sorted({int(name.partition(".")[0]) for name in parts}) if kind != "ssf" else []
    if kind == "vpt":
        return Added(tokens={block: parts[f"{block}.tokens"][None] for block in blocks})
    if kind == "ssf":
        places = sorted({name.rpartition(".")[0] for name in parts})
        pairs = {place: (parts[f"{place}.factor"], parts[f"{place}.shift"]) for place in places}
        return Added(scales=pairs)
    names = ("down", "down_bias", "up", "up_bias")
    adapters = {block: Adapter(*(parts[f"{block}.{name}"] for name in names)) for block in blocks}
    return Added(adapters=adapters, generator=generator)


def as_tensors(module: Module, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Copy arrays to tensors."""
    return {
        name: torch.tensor(value, dtype=torch.float32, device=device)
        for name, value in module.items()
    }


def as_arrays(parts: Mapping[str, Tensor]) -> Module:
    """Copy tensors to arrays."""
    return {name: part.detach().cpu().numpy().copy() for name, part in parts.items()}


def _scales(network: Network, generator: np.random.Generator) -> Module:
    places = ["patch", *(["before"] if "before.weight" in network.weights else [])]
    places += [f"{block}.{part}" for block in range(network.depth) for part in _LINEAR]
    found: Module = {}
    for place in [*places, "norm"]:
        width = len(network.weights[f"{place}.weight"])
        found[f"{place}.factor"] = generator.normal(1.0, _SPREAD, width).astype(np.float32)
        found[f"{place}.shift"] = generator.normal(0.0, _SPREAD, width).astype(np.float32)
    return found
