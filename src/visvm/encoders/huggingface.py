"""CLIP, SigLIP, DINOv2 and ViT through transformers: a hub name or a local folder → an encoder (extra ``torch``).

torch and transformers take seconds to import and are not required by the rest of visvm: only the
functions here import them, when an encoder is made.
"""

import hashlib
import math
import pickle
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from visvm.encoders.encoder import FinalFeatures, LayerFeatures, Pixels, Preprocessing, check_final
from visvm.errors import EncoderError, InputError, WeightsError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class _Family:
    """What has to be known of a family of vision transformers."""

    vision_class: str
    # parameters that no block output depends on, by the start of their names
    after_blocks: tuple[str, ...]
    has_cls: bool = True
    any_size: bool = False  # position embeddings are interpolated to the size of the image
    # modules, one after the other, that turn the final CLS token into what is put out
    projection: tuple[str, ...] = ()


CLIP_CLASS = "CLIPVisionModelWithProjection"
_CLIP = _Family(
    CLIP_CLASS,
    ("post_layernorm.", "visual_projection."),
    projection=("post_layernorm", "visual_projection"),
)
_SIGLIP = _Family("SiglipVisionModel", ("post_layernorm.", "head."), has_cls=False)
_DINO_UNUSED = ("layernorm.", "embeddings.mask_token")
_FAMILIES = {
    "clip": _CLIP,
    "clip_vision_model": _CLIP,
    "siglip": _SIGLIP,
    "siglip_vision_model": _SIGLIP,
    "dinov2": _Family("Dinov2Model", _DINO_UNUSED, any_size=True, projection=("layernorm",)),
    "dinov2_with_registers": _Family(
        "Dinov2WithRegistersModel", _DINO_UNUSED, any_size=True, projection=("layernorm",)
    ),
    "vit": _Family("ViTModel", ("layernorm.", "pooler."), projection=("layernorm",)),
}

# Settings that change the features and leave no trace in the weights.
_SETTINGS = ("model_type", "hidden_act", "layer_norm_eps", "num_attention_heads")

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


class TowerEncoder:
    """A frozen vision transformer of the transformers library.

    The feature of a block is its raw output, before any final layer norm, at the CLS token. SigLIP
    has no CLS token: there it is the mean over the patch tokens. Calls from several threads wait
    for each other.

    Parameters
    ----------
    name : str
        What the user calls it.
    module : transformers.PreTrainedModel
        The vision tower with its weights; it is turned to float32 and to evaluation.
    preprocessing : Preprocessing
        How pixels are prepared for it.
    device : str, optional
        A device of torch; CUDA where there is one, otherwise the CPU.

    Attributes
    ----------
    name : str
    digest : str
        SHA-256 of every weight the block outputs depend on, and of the settings that the weights do
        not show.
    layer_dims : tuple of int
        The width of the model, once for every block.
    preprocessing : Preprocessing
    """

    name: str
    digest: str
    layer_dims: tuple[int, ...]
    preprocessing: Preprocessing

    def __init__(
        self,
        name: str,
        module: "torch.nn.Module",
        preprocessing: Preprocessing,
        *,
        device: str | None = None,
    ) -> None:
        config: Any = module.config
        family = _FAMILIES[config.model_type]
        image_size = square_side(config.image_size, "image_size of config.json")
        if preprocessing.size != image_size and not family.any_size:
            raise EncoderError(
                f"{name}: the picture size of the preprocessing must be that of the model, {image_size}, but it is "
                f"{preprocessing.size}; correct preprocessor_config.json"
            )
        self.name = name
        self.preprocessing = preprocessing
        self._module = _to_device(module.float().eval().requires_grad_(False), device)
        self._blocks = _blocks(self._module)
        self._family = family
        self._lock = threading.Lock()  # two passes at once would mix what their hooks collect
        self.layer_dims = (int(config.hidden_size),) * len(self._blocks)
        self.digest = _digest(name, self._module, family)

    def encode(self, pixels: Pixels) -> LayerFeatures:
        """Layer features of normalised images, (n, 3, size, size) → (n, blocks * width)."""
        size = self.preprocessing.size
        if pixels.ndim != 4 or pixels.shape[1:] != (3, size, size):
            raise InputError(
                f"pixels must have the shape (n, 3, {size}, {size}), got {pixels.shape}"
            )
        if len(pixels) == 0:
            return np.empty((0, sum(self.layer_dims)), dtype=np.float32)
        torch, _ = import_torch()
        taken: list[Any] = []

        def take(_module: object, _inputs: object, output: Any) -> None:
            tokens = output[0] if isinstance(output, tuple) else output  # (n, tokens, width)
            # A copy, because a view of one token would keep all of them in memory.
            taken.append(tokens[:, 0].clone() if self._family.has_cls else tokens.mean(dim=1))

        with self._lock:
            hooks = [block.register_forward_hook(take) for block in self._blocks]
            try:
                with torch.inference_mode():
                    device = next(self._module.parameters()).device
                    self._module(
                        torch.tensor(np.ascontiguousarray(pixels, dtype=np.float32), device=device)
                    )
            finally:
                for hook in hooks:
                    hook.remove()
        return cast(LayerFeatures, torch.cat(taken, dim=1).cpu().numpy())

    def project(self, final: FinalFeatures) -> NDArray[np.float32]:
        """What the encoder itself puts out, (n, layer_dims[-1]) → (n, p): last norm, and CLIP's projection; of SigLIP `final`.

        Raises
        ------
        WeightsError
            The checkpoint lacks what follows the blocks.
        """
        final = check_final(final, self.layer_dims)
        if not self._family.projection:
            return final
        torch, _ = import_torch()
        parts = {_plain(name): part for name, part in self._module.named_modules()}
        with torch.inference_mode():
            features = torch.tensor(final, device=next(self._module.parameters()).device)
            for name in self._family.projection:
                if name not in parts or not all(
                    value.isfinite().all() for value in parts[name].parameters()
                ):
                    raise WeightsError(
                        f"{self.name}: the weights must hold {name}, finite, to project features, but it is missing, of "
                        "another shape, or not finite; get the complete checkpoint"
                    )
                features = parts[name](features)
        return cast(NDArray[np.float32], features.cpu().numpy())


class TransformersEncoder(TowerEncoder):
    """CLIP, SigLIP, DINOv2 (also with registers) or ViT, from a folder or the hub; of two towers only the vision tower.

    Parameters
    ----------
    source : str or Path
        A local folder with config.json, preprocessor_config.json and the weights, or a name of the
        hub.
    device : str, optional
        A device of torch; CUDA where there is one, otherwise the CPU.

    Raises
    ------
    EncoderError
        torch or transformers is missing, the kind of model is not supported, or its preprocessing
        is not known.
    WeightsError
        The weights cannot be found, read or fetched, or lack a parameter that the features need.
    """

    def __init__(self, source: str | Path, *, device: str | None = None) -> None:
        name = str(source)
        _, transformers = import_torch()
        if not Path(source).is_dir() and not _HUB_NAME.fullmatch(name):
            raise EncoderError(
                f"an encoder must be an existing folder or a name of the hub like 'owner/model', got {name!r}"
            )
        if Path(source).is_dir() and not (Path(source) / "config.json").is_file():
            raise EncoderError(
                f"{name}: the folder of an encoder must hold config.json; save it with save_pretrained"
            )
        with quiet(transformers):
            config = _read_config(transformers, name)
            model_type = config.get("model_type")
            if model_type not in _FAMILIES:
                raise EncoderError(
                    f"{name}: model_type must be one of {', '.join(_FAMILIES)}, got {model_type!r}"
                )
            preprocessing = _read_preprocessing(transformers, name)
            family = _FAMILIES[model_type]
            # Where there are two towers, this stands beside them and holds for both; 512 is
            # transformers' own default.
            given = (
                {"projection_dim": config.get("projection_dim") or 512}
                if family.vision_class == CLIP_CLASS
                else {}
            )
            module = load_module(family.vision_class, name, name, **given)
        super().__init__(name, module, preprocessing, device=device)


def import_torch() -> tuple[Any, Any]:
    """The modules torch and transformers; an EncoderError that names the extra where they are not installed."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise EncoderError(
            f"this encoder needs torch and transformers: pip install 'visvm[torch]' ({first_line(error)})"
        ) from None
    return torch, transformers


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, for errors that must be one line."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """No progress bars and no load report of transformers inside; its settings are put back afterwards."""
    log = transformers.utils.logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()


def load_module(
    vision_class: str, name: str, source: str | None, **given: Any
) -> "torch.nn.Module":
    """A vision tower of transformers with every weight its block outputs need; what else is missing is NaN.

    Parameters
    ----------
    vision_class : str
        A class of transformers.
    name : str
        What messages call the checkpoint.
    source : str or None
        Folder or hub name; None when `given` holds ``config`` and ``state_dict``.
    **given
        Passed on to ``from_pretrained``.
    """
    runtime, transformers = import_torch()
    from safetensors import SafetensorError

    try:
        # What comes after the blocks may be missing and is then drawn: not from the caller's
        # generator.
        with runtime.random.fork_rng(devices=[]):
            module, info = getattr(transformers, vision_class).from_pretrained(
                source,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                trust_remote_code=False,
                **given,
            )
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
            f"{name}: the weights cannot be read or fetched: {first_line(error)}"
        ) from None
    # Mismatched entries are (name, shape, shape). Either kind was filled with random numbers.
    random = {
        *info["missing_keys"],
        *(key if isinstance(key, str) else key[0] for key in info["mismatched_keys"]),
    }
    needed = sorted(_needed(random, _FAMILIES[module.config.model_type]))
    if needed:
        raise WeightsError(
            f"{name}: the weights must hold every parameter up to the last block, but {needed[0]} is missing or of "
            f"another shape ({len(needed)} in all); get the complete checkpoint"
        )
    drawn = {_plain(key) for key in random}
    for key, value in module.state_dict().items():
        if _plain(key) in drawn:
            value.fill_(math.nan)  # so that nothing random is ever taken for weights
    return cast("torch.nn.Module", module)


def square_side(value: Any, what: str) -> int:
    """Side of a square given as a number, ``[n, n]``, ``{"height": n, "width": n}`` or ``{"shortest_edge": n}``."""
    if isinstance(value, Mapping):
        value = (
            [value["shortest_edge"]]
            if "shortest_edge" in value
            else [value.get("height"), value.get("width")]
        )
    sides = list(value) if isinstance(value, list | tuple) else [value]
    if not sides or any(type(side) is not int or side < 1 or side != sides[0] for side in sides):
        raise EncoderError(f"{what} must be the side of one square, got {value!r}")
    return cast(int, sides[0])


def normalisation(mean: Any, std: Any, where: str) -> dict[str, tuple[float, float, float]]:
    """The fields ``mean`` and ``std`` of Preprocessing, each a number for every channel."""
    for value, what in ((mean, "mean"), (std, "std")):
        if (
            not isinstance(value, list | tuple)
            or len(value) != 3
            or not all(isinstance(x, int | float) for x in value)
        ):
            raise EncoderError(f"{where} {what} must be three numbers, got {value!r}")
    if min(std) <= 0:
        raise EncoderError(f"{where} std must be above 0, got {std!r}")
    return {
        "mean": (float(mean[0]), float(mean[1]), float(mean[2])),
        "std": (float(std[0]), float(std[1]), float(std[2])),
    }


def _read_config(transformers: Any, name: str) -> dict[str, Any]:
    try:
        config, _ = transformers.PretrainedConfig.get_config_dict(name)
    except (OSError, ValueError) as error:
        raise WeightsError(
            f"{name}: config.json cannot be read or fetched: {first_line(error)}; "
            "give a folder, or check the name and the network"
        ) from None
    return cast(dict[str, Any], config)


def _read_preprocessing(transformers: Any, name: str) -> Preprocessing:
    try:
        config, _ = (
            transformers.image_processing_base.ImageProcessingMixin.get_image_processor_dict(name)
        )
    except (OSError, ValueError):
        raise EncoderError(
            f"{name}: preprocessor_config.json must lie beside the weights, but it cannot be read; "
            "take it from where the weights came from"
        ) from None
    return _preprocessing(config, f"{name}: preprocessor_config.json:")


def _preprocessing(config: Mapping[str, Any], where: str) -> Preprocessing:
    """Preprocessing as an image processor of transformers has it; nothing is guessed."""
    resize = square_side(config.get("size"), f"{where} size")
    cut = config.get("do_center_crop", config.get("crop_size") is not None)
    size = square_side(config.get("crop_size"), f"{where} crop_size") if cut else resize
    if resize < size:
        raise EncoderError(
            f"{where} size must not be smaller than crop_size, got {resize} and {size}"
        )
    if (
        not math.isclose(config.get("rescale_factor", 1 / 255), 1 / 255, rel_tol=1e-3)
        or config.get("do_normalize") is False
    ):
        raise EncoderError(
            f"{where} pixels must be scaled by 1/255 and then normalised with image_mean and image_std"
        )
    colours = normalisation(config.get("image_mean"), config.get("image_std"), f"{where} image")
    return Preprocessing(size=size, resize=resize, **colours)


def _needed(names: set[str], family: _Family) -> set[str]:
    """Those parameters that a block output depends on."""
    return {name for name in names if not _plain(name).startswith(family.after_blocks)}


def _plain(name: str) -> str:
    """A parameter's name without the tower's, which some releases of transformers put in front."""
    return name.removeprefix("vision_model.")


def _blocks(module: "torch.nn.Module") -> "list[torch.nn.Module]":
    """The transformer blocks in order: the one list of modules as long as the model is deep."""
    from torch.nn import ModuleList

    depth = cast(Any, module.config).num_hidden_layers
    return next(
        list(part)
        for part in module.modules()
        if isinstance(part, ModuleList) and len(part) == depth
    )


def _to_device(module: "torch.nn.Module", device: str | None) -> "torch.nn.Module":
    torch, _ = import_torch()
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return module.to(chosen)
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
        raise EncoderError(
            f"device must be one that torch can use, got {chosen!r}: {first_line(error)}"
        ) from None


def _digest(name: str, module: "torch.nn.Module", family: _Family) -> str:
    """SHA-256 over the needed weights by name, with dtype and shape, and over the settings they do not show.

    What comes after the blocks is left out: a checkpoint may lack it, and no feature depends on it.
    """
    weights = module.state_dict()
    summed = hashlib.sha256(
        repr([(key, getattr(module.config, key)) for key in _SETTINGS]).encode()
    )
    for key in sorted(_needed(set(weights), family), key=_plain):
        array = weights[key].cpu().contiguous().numpy()
        if not np.isfinite(array).all():
            raise WeightsError(
                f"{name}: the weights must be finite, but {key} holds NaN or infinity; get them anew"
            )
        summed.update(f"{_plain(key)} {array.dtype} {array.shape}\n".encode())
        summed.update(array.tobytes())
    return summed.hexdigest()
