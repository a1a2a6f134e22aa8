"""Checkpoints of open_clip: CLIP vision transformers, turned into transformers' own layout when they are loaded.

open_clip itself is not needed, only the extra ``torch``.
"""

import json
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visvm.encoders.catalog import CLIP_MEAN, CLIP_STD
from visvm.encoders.encoder import Preprocessing
from visvm.encoders.huggingface import (
    CLIP_CLASS,
    TowerEncoder,
    first_line,
    import_torch,
    load_module,
    normalisation,
    quiet,
    square_side,
)
from visvm.errors import EncoderError, WeightsError

if TYPE_CHECKING:
    import torch

    State = dict[str, torch.Tensor]


CONFIG_NAME = "open_clip_config.json"

_VISUAL = "visual."
_BLOCK = re.compile(r"transformer\.resblocks\.(\d+)\.(.+)")

# Names in open_clip, without "visual." → names in transformers, without "vision_model.".
_OUTER = {
    "class_embedding": "embeddings.class_embedding",
    "conv1.weight": "embeddings.patch_embedding.weight",
    "positional_embedding": "embeddings.position_embedding.weight",
    **{f"ln_pre.{p}": f"pre_layrnorm.{p}" for p in ("weight", "bias")},
    **{f"ln_post.{p}": f"post_layernorm.{p}" for p in ("weight", "bias")},
}
_INNER = {
    f"{theirs}.{p}": f"{ours}.{p}"
    for theirs, ours in {
        "ln_1": "layer_norm1",
        "ln_2": "layer_norm2",
        "attn.out_proj": "self_attn.out_proj",
        "mlp.c_fc": "mlp.fc1",
        "mlp.c_proj": "mlp.fc2",
    }.items()
    for p in ("weight", "bias")
}
_IN_PROJ = {"attn.in_proj_weight": "weight", "attn.in_proj_bias": "bias"}
_AFTER_BLOCKS = ("proj", "attn_pool.", "attn_pool_contrastive.")

# Wider vision towers of open_clip (H, g, G) have heads of other widths, which the weights do not
# show.
_WIDEST_WITH_64 = 1024


def load_checkpoint(path: str | Path, *, device: str | None = None) -> TowerEncoder:
    """An encoder from an open_clip checkpoint of a CLIP vision transformer.

    Width, depth, patch and picture size are read from the shapes. The activation is the exact GELU
    and a head 64 wide, unless an ``open_clip_config.json`` beside the file says ``quick_gelu`` or
    ``head_width``; mean, std and size come from there too, or are CLIP's.

    Parameters
    ----------
    path : str or Path
        A ``.pt``, ``.pth``, ``.bin`` or ``.safetensors`` file: a state dict, or a dict that has one
        as ``state_dict``.
    device : str, optional
        A device of torch; CUDA where there is one, otherwise the CPU.

    Raises
    ------
    EncoderError
        torch or transformers is missing, or the checkpoint is not that of a plain CLIP vision
        transformer.
    WeightsError
        The file cannot be read, or lacks a parameter that the features need.
    """
    path = Path(path)
    _, transformers = import_torch()
    said = _read_config(path.with_name(CONFIG_NAME))
    visual = _visual(_read_state(path), path)
    model = said.get("model_cfg", {})
    picture = said.get("preprocess_cfg", {})
    vision = model.get("vision_cfg", {})
    settings = _architecture(visual, path, vision)
    size = square_side(picture.get("size", settings["image_size"]), f"{CONFIG_NAME}: size")
    if size // settings["patch_size"] != settings["image_size"] // settings["patch_size"]:
        raise EncoderError(
            f"{CONFIG_NAME}: size must be that of the weights, {settings['image_size']}, got {size}"
        )
    settings |= {
        "image_size": size,
        "hidden_act": "quick_gelu" if model.get("quick_gelu") else "gelu",
    }
    with quiet(transformers):
        state = _converted(visual, path)
        if _projects_cls(visual, vision):
            state["visual_projection.weight"] = visual["proj"].T.contiguous()
            settings["projection_dim"] = visual["proj"].shape[1]
        module = load_module(
            CLIP_CLASS,
            str(path),
            None,
            config=transformers.CLIPVisionConfig(**settings),
            state_dict=state,
        )
    colours = normalisation(
        picture.get("mean", CLIP_MEAN), picture.get("std", CLIP_STD), f"{CONFIG_NAME}:"
    )
    return TowerEncoder(
        str(path), module, Preprocessing(size=size, resize=size, **colours), device=device
    )


def _read_config(path: Path) -> dict[str, Any]:
    """What lies beside the weights; nothing said where there is no such file."""
    if not path.is_file():
        return {}
    try:
        said: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EncoderError(
            f"{path}: must be readable JSON: {first_line(error)}; correct it or take it away"
        ) from None
    model = said.get("model_cfg", {}) if isinstance(said, dict) else None
    inner = (
        [model, said.get("preprocess_cfg", {}), model.get("vision_cfg", {})]
        if isinstance(model, dict)
        else [None]
    )
    if not all(isinstance(part, dict) for part in inner):
        raise EncoderError(
            f"{path}: must be an object, and so its model_cfg, vision_cfg, preprocess_cfg; correct it or take it away"
        )
    return said


def _read_state(path: Path) -> dict[str, Any]:
    """The state dict of a checkpoint; no code in the file is run."""
    torch, _ = import_torch()
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise WeightsError(
            f"{path}: an open_clip checkpoint must be a file, but there is none; check the path"
        )
    try:
        if path.suffix == ".safetensors":
            loaded: Any = load_file(path)
        else:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (
        OSError,
        RuntimeError,
        ValueError,
        KeyError,
        EOFError,
        SafetensorError,
        pickle.UnpicklingError,
    ) as error:
        raise WeightsError(
            f"{path}: must be a file of weights without code, but cannot be read: {first_line(error)}"
        ) from None
    state = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else loaded
    if not isinstance(state, dict):
        raise WeightsError(f"{path}: must hold a state dict, got {type(state).__name__}")
    return state


def _visual(state: dict[str, Any], path: Path) -> "State":
    """The vision tower's weights, by their names without "visual."."""
    plain = {str(key).removeprefix("module."): value for key, value in state.items()}
    visual = {
        key.removeprefix(_VISUAL): value for key, value in plain.items() if key.startswith(_VISUAL)
    }
    for key, value in visual.items():
        block = _BLOCK.fullmatch(key)
        known = (
            block[2] in _INNER or block[2] in _IN_PROJ
            if block
            else key in _OUTER or key.startswith(_AFTER_BLOCKS)
        )
        if not known:
            raise EncoderError(
                f"{path}: must be a plain CLIP vision transformer of open_clip, but it has {_VISUAL}{key}"
            )
        if not hasattr(value, "shape"):
            raise WeightsError(
                f"{path}: {_VISUAL}{key} must be a tensor, got {type(value).__name__}; check the file"
            )
    for key, dimensions in (("conv1.weight", 4), ("positional_embedding", 2)):
        if key not in visual:
            raise WeightsError(
                f"{path}: an open_clip checkpoint must hold {_VISUAL}{key}, but it is missing; check the file"
            )
        if visual[key].ndim != dimensions:
            raise WeightsError(
                f"{path}: {_VISUAL}{key} must be a tensor of {dimensions} dimensions, got {visual[key].ndim}"
            )
    return visual


def _architecture(visual: "State", path: Path, vision: dict[str, Any]) -> dict[str, Any]:
    """Settings of CLIPVisionConfig, from shapes and, where the shapes do not show them, from the config file."""
    changed = [key for key in ("act_kwargs", "norm_kwargs") if vision.get(key)]
    if changed:
        raise EncoderError(
            f"{path}: vision_cfg must not change the activation or the norms, but has {changed[0]}"
        )
    width, _, patch, _ = visual["conv1.weight"].shape
    grid = round((visual["positional_embedding"].shape[0] - 1) ** 0.5)
    depth = 1 + max(
        (int(found[1]) for key in visual if (found := _BLOCK.fullmatch(key))), default=-1
    )
    if depth == 0:
        raise WeightsError(
            f"{path}: an open_clip checkpoint must hold {_VISUAL}transformer.resblocks, but has none; check the file"
        )
    head = vision.get("head_width", 64 if width <= _WIDEST_WITH_64 else None)
    if not isinstance(head, int) or head < 1 or width % head:
        raise EncoderError(
            f"{path}: the width of a head must be known and divide {width}, got {head}; "
            f"put its {CONFIG_NAME} with vision_cfg.head_width beside it"
        )
    fc = visual.get("transformer.resblocks.0.mlp.c_fc.weight")
    return {
        "hidden_size": width,
        "num_hidden_layers": depth,
        "num_attention_heads": width // head,
        "intermediate_size": 4 * width if fc is None else fc.shape[0],
        "patch_size": patch,
        "image_size": grid * patch,
        "layer_norm_eps": 1e-5,
    }


def _projects_cls(visual: "State", vision: dict[str, Any]) -> bool:
    """Whether there is a projection, and of the CLS token alone: not of a mean or a mixture of all tokens."""
    pooled = vision.get("global_average_pool") or any(key.startswith("attn_pool") for key in visual)
    return (
        "proj" in visual
        and visual["proj"].ndim == 2
        and not pooled
        and vision.get("pool_type", "tok") == "tok"
    )


def _converted(visual: "State", path: Path) -> "State":
    """The weights by transformers' names; the one projection to queries, keys and values becomes three."""
    state: State = {}
    for key, value in visual.items():
        block = _BLOCK.fullmatch(key)
        if block is None:
            if key in _OUTER:
                state[f"vision_model.{_OUTER[key]}"] = value
            continue
        start = f"vision_model.encoder.layers.{block[1]}."
        if block[2] in _INNER:
            state[start + _INNER[block[2]]] = value
            continue
        if value.shape[0] % 3:
            raise WeightsError(
                f"{path}: {_VISUAL}{key} must have rows for queries, keys and values, got {tuple(value.shape)}"
            )
        for part, rows in zip("qkv", value.chunk(3), strict=True):
            state[f"{start}self_attn.{part}_proj.{_IN_PROJ[block[2]]}"] = rows.clone()
    return state
