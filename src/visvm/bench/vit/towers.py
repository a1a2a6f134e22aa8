"""The weights of an encoder that runs in torch: of transformers' models, of open_clip's files."""

import re

import torch
from torch import Tensor

from visvm.bench.vit.network import Network
from visvm.encoders.tower import TowerEncoder
from visvm.errors import EncoderError

_PARAMETER = re.compile(r"(?:.*\.)?layers?\.(\d+)\.(?:\w+\.)*(\w+)\.(weight|bias|lambda1)")

_INNER = {
    **{name: f"qkv.{name[0]}" for name in ("q_proj", "k_proj", "v_proj")},
    **dict.fromkeys(("o_proj", "out_proj"), "proj"),
    **dict.fromkeys(("layernorm_before", "layer_norm1", "norm1"), "norm1"),
    **dict.fromkeys(("layernorm_after", "layer_norm2", "norm2"), "norm2"),
    **{name: name for name in ("fc1", "fc2")},
    **{f"layer_scale{number}": f"scale{number}" for number in (1, 2)},
}
_OUTER = {
    "embeddings.patch_embedding": "patch",  # CLIP
    "embeddings.patch_embeddings.projection": "patch",
    "pre_layrnorm": "before",
    **dict.fromkeys(("post_layernorm", "layernorm"), "norm"),
    "visual_projection": "projection",
}


def from_tower(encoder: TowerEncoder) -> Network:
    """Build the network of an encoder of transformers that has a CLS token.

    Raises
    ------
    EncoderError
        Its blocks have other parts, such as a gated MLP.
    """
    inside = encoder.inside()
    weights: dict[str, Tensor] = {}
    for key, value in inside.weights.items():
        if (found := _PARAMETER.fullmatch(key)) and found[2] in _INNER:
            ending = "" if found[3] == "lambda1" else f".{found[3]}"
            weights[f"{found[1]}.{_INNER[found[2]]}{ending}"] = value
        elif found:
            raise EncoderError(
                f"{encoder.name} cannot be trained through: its blocks have {found[2]}. "
                "Use another encoder.",
                code="encoder-kind-unsupported",
            )
        elif (start := key.rpartition(".")[0]) in _OUTER:
            weights[f"{_OUTER[start]}.{key.rpartition('.')[2]}"] = value
    for block in range(len(encoder.layer_dims)):
        for part in ("weight", "bias"):
            rows = [weights.pop(f"{block}.qkv.{which}.{part}", None) for which in "qkv"]
            if all(each is not None for each in rows):
                weights[f"{block}.qkv.{part}"] = torch.cat([row for row in rows if row is not None])
    if "projection.weight" in weights:
        weights["projection"] = weights.pop("projection.weight")
    patch, blank = weights["patch.weight"], inside.blank.clone()
    if "patch.bias" in weights:
        n_patches = (encoder.preprocessing.size // patch.shape[-1]) ** 2
        blank[-n_patches:] -= weights["patch.bias"]
    weights["positions"] = blank
    return Network(
        weights, heads=inside.heads, activation=inside.activation, epsilon=inside.epsilon
    )
