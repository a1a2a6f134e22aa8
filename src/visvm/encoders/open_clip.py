"""Load CLIP vision transformers from checkpoints of open_clip, converted to transformers' layout.

This needs the extra ``torch``, not open_clip, which cannot be a dependency: it imports torchvision.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visvm.encoders.catalog import CLIP_MEAN, CLIP_STD
from visvm.encoders.encoder import Preprocessing
from visvm.encoders.files import MOST_OF_TEXT, read_file
from visvm.encoders.huggingface import UNREADABLE, load_module, normalisation, quiet
from visvm.encoders.tower import CLIP_CLASS, TowerEncoder, first_line, import_torch, square_side
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

# Names of the text tower in open_clip → names in transformers, without "text_model.".
_TEXT_OUTER = {
    "token_embedding.weight": "embeddings.token_embedding.weight",
    "positional_embedding": "embeddings.position_embedding.weight",
    **{f"ln_final.{p}": f"final_layer_norm.{p}" for p in ("weight", "bias")},
}

# Wider vision towers of open_clip (H, g, G) have heads of other widths, which the weights do not
# show.
_WIDEST_WITH_64 = 1024


def load_checkpoint(
    path: str | Path, *, size: int | None = None, device: str | None = None
) -> TowerEncoder:
    """Load an open_clip checkpoint of a CLIP vision transformer; no code in it runs.

    Width, depth, patch and image size are read from the shapes. The activation is the exact GELU
    and a head 64 wide, unless an ``open_clip_config.json`` beside the file gives ``quick_gelu`` or
    ``head_width``. Mean, std and size also come from there, and are CLIP's otherwise.

    Parameters
    ----------
    path : str or Path
        A ``.pt``, ``.pth``, ``.bin`` or ``.safetensors`` file: a state dict, or a dict that has one
        as ``state_dict``.
    size : int, optional
        Side of the pictures that it is to take.
    device : str, optional
        A device of torch; by default CUDA if there is one, otherwise the CPU.
    """
    path = Path(path)
    _, transformers = import_torch()
    said = _read_config(path.with_name(CONFIG_NAME))
    visual = _visual(_read_state(path), path)
    model = said.get("model_cfg", {})
    picture = said.get("preprocess_cfg", {})
    vision = model.get("vision_cfg", {})
    settings = _architecture(visual, path, vision)
    own = square_side(picture.get("size", settings["image_size"]), f"{CONFIG_NAME}: size")
    if own // settings["patch_size"] != settings["image_size"] // settings["patch_size"]:
        raise EncoderError(
            f"{CONFIG_NAME} gives the size {own}, the weights take {settings['image_size']}. "
            "Correct it.",
            code="preprocessing-invalid",
        )
    settings |= {
        "image_size": own,
        "hidden_act": "quick_gelu" if model.get("quick_gelu") else "gelu",
    }
    state = _converted(visual, path, "visual.", "vision_model.", _OUTER)
    if _projects_cls(visual, vision):
        state["visual_projection.weight"] = visual["proj"].T.contiguous()
        settings["projection_dim"] = visual["proj"].shape[1]
    with quiet(transformers):
        config = transformers.CLIPVisionConfig(**settings)
        module = load_module(CLIP_CLASS, str(path), None, config=config, state_dict=state)
    colours = normalisation(
        picture.get("mean", CLIP_MEAN), picture.get("std", CLIP_STD), f"{CONFIG_NAME}:"
    )
    preprocessing = Preprocessing(size=own, resize=own, **colours)
    return TowerEncoder(str(path), module, preprocessing, size=size, device=device)


def read_text_half(path: Path) -> tuple[Any, "State", float]:
    """Return configuration and weights of a text tower, for transformers, and exp(logit_scale).

    Activation and heads are as in ``load_checkpoint``; a head is 64 wide.
    """
    _, transformers = import_torch()
    said = _read_config(path.with_name(CONFIG_NAME)).get("model_cfg", {})
    plain = {str(key).removeprefix("module."): value for key, value in _read_state(path).items()}
    text = {key.removeprefix("text."): each for key, each in plain.items()}
    needed = ("token_embedding.weight", "positional_embedding", "text_projection")
    if missing := [key for key in needed if getattr(text.get(key), "ndim", 0) != 2]:
        raise WeightsError(
            f"{path} has no text tower of CLIP: it lacks {missing[0]}. Get a complete checkpoint.",
            code="weights-incomplete",
        )
    blocks = [int(found[1]) for key in text if (found := _BLOCK.fullmatch(key))]
    width = text["token_embedding.weight"].shape[1]
    fc = text.get("transformer.resblocks.0.mlp.c_fc.weight")
    config = transformers.CLIPTextConfig(
        vocab_size=text["token_embedding.weight"].shape[0],
        hidden_size=width,
        intermediate_size=4 * width if fc is None else fc.shape[0],
        projection_dim=text["text_projection"].shape[1],
        num_hidden_layers=1 + max(blocks, default=-1),
        num_attention_heads=said.get("text_cfg", {}).get("heads", max(width // 64, 1)),
        max_position_embeddings=text["positional_embedding"].shape[0],
        hidden_act="quick_gelu" if said.get("quick_gelu") else "gelu",
        eos_token_id=2,  # which means the greatest id, as open_clip has it
    )
    state = _converted(text, path, "", "text_model.", _TEXT_OUTER)
    state["text_projection.weight"] = text["text_projection"].T.contiguous()
    scale = float(text["logit_scale"].exp()) if "logit_scale" in text else 100.0
    return config, state, scale


def _read_config(path: Path) -> dict[str, Any]:
    """Read the configuration beside the weights; empty if there is none."""
    if not path.is_file():
        return {}
    try:
        said: dict[str, Any] = json.loads(read_file(path, MOST_OF_TEXT))
    except (OSError, ValueError) as error:
        raise EncoderError(
            f"{path} cannot be read as JSON ({first_line(error)}). Correct or remove it.",
            code="encoder-config-invalid",
        ) from None
    model = said.get("model_cfg", {}) if isinstance(said, dict) else None
    inner = (
        [model, said.get("preprocess_cfg", {}), model.get("vision_cfg", {})]
        if isinstance(model, dict)
        else [None]
    )
    if not all(isinstance(part, dict) for part in inner):
        raise EncoderError(
            f"{path} or its model_cfg, vision_cfg or preprocess_cfg is not an object. "
            "Correct or remove it.",
            code="encoder-config-invalid",
        )
    return said


def _read_state(path: Path) -> dict[str, Any]:
    """Read the state dict of a checkpoint; no code in the file runs."""
    torch, _ = import_torch()
    from safetensors.torch import load_file

    if not path.is_file():
        raise WeightsError(
            f"There is no open_clip checkpoint {path}. Correct the path.",
            code="encoder-file-missing",
        )
    try:
        if path.suffix == ".safetensors":
            loaded: Any = load_file(path)
        else:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        state = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else loaded
        if not isinstance(state, dict):
            raise ValueError(f"a {type(state).__name__} instead of a state dict")
    except UNREADABLE as error:
        raise WeightsError(
            f"{path} cannot be read as weights without code ({first_line(error)}). Get it again.",
            code="weights-unreadable",
        ) from None
    return state


def _visual(state: dict[str, Any], path: Path) -> "State":
    """Return the vision tower's weights, by their names without "visual."."""
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
                f"{path} is not a plain CLIP vision transformer of open_clip: it has "
                f"{_VISUAL}{key}. Use another encoder.",
                code="encoder-kind-unsupported",
            )
        if not hasattr(value, "shape"):
            raise WeightsError(
                f"{_VISUAL}{key} in {path} is not a tensor but a {type(value).__name__}. "
                "Get the file again.",
                code="weights-shape",
            )
    for key, dimensions in (("conv1.weight", 4), ("positional_embedding", 2)):
        if key not in visual:
            raise WeightsError(
                f"{path} lacks {_VISUAL}{key}. Get the complete checkpoint.",
                code="weights-incomplete",
            )
        if visual[key].ndim != dimensions:
            raise WeightsError(
                f"{_VISUAL}{key} in {path} has {visual[key].ndim} dimensions instead of "
                f"{dimensions}. Get the file again.",
                code="weights-shape",
            )
    return visual


def _architecture(visual: "State", path: Path, vision: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of CLIPVisionConfig, from the shapes, or else from the config."""
    changed = [key for key in ("act_kwargs", "norm_kwargs") if vision.get(key)]
    if changed:
        raise EncoderError(
            f"vision_cfg of {path} has {changed[0]}, which changes the activation or the norms. "
            "Use another encoder.",
            code="encoder-kind-unsupported",
        )
    width, _, patch, _ = visual["conv1.weight"].shape
    grid = round((visual["positional_embedding"].shape[0] - 1) ** 0.5)
    depth = 1 + max(
        (int(found[1]) for key in visual if (found := _BLOCK.fullmatch(key))), default=-1
    )
    if depth == 0:
        raise WeightsError(
            f"{path} lacks {_VISUAL}transformer.resblocks. Get the complete checkpoint.",
            code="weights-incomplete",
        )
    head = vision.get("head_width", 64 if width <= _WIDEST_WITH_64 else None)
    if not isinstance(head, int) or head < 1 or width % head:
        raise EncoderError(
            f"The width of a head of {path} is {head}, which does not divide {width}. "
            f"Put its {CONFIG_NAME} with vision_cfg.head_width beside it.",
            code="head-width-unknown",
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
    """Return whether there is a projection, and one of the CLS token alone."""
    pooled = vision.get("global_average_pool") or any(key.startswith("attn_pool") for key in visual)
    return (
        "proj" in visual
        and visual["proj"].ndim == 2
        and not pooled
        and vision.get("pool_type", "tok") == "tok"
    )


def _converted(
    tower: "State", path: Path, said: str, prefix: str, outer: dict[str, str]
) -> "State":
    """Rename the weights as in transformers; split the projection to queries, keys and values.

    In the file, what these weights are called begins with `said`.
    """
    state: State = {}
    for key, value in tower.items():
        block = _BLOCK.fullmatch(key)
        if block is None:
            if key in outer:
                state[prefix + outer[key]] = value
            continue
        start = f"{prefix}encoder.layers.{block[1]}."
        if block[2] in _INNER:
            state[start + _INNER[block[2]]] = value
            continue
        if value.shape[0] % 3:
            raise WeightsError(
                f"{said}{key} in {path} does not split into queries, keys and values: its shape "
                f"is {tuple(value.shape)}. Get the file again.",
                code="weights-shape",
            )
        for part, rows in zip("qkv", value.chunk(3), strict=True):
            state[f"{start}self_attn.{part}_proj.{_IN_PROJ[block[2]]}"] = rows.clone()
    return state
