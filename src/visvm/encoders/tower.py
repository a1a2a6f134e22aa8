"""Run a vision transformer of the transformers library as an encoder (extra ``torch``).

torch and transformers take seconds to import and the rest of visvm does not need them: the
functions here import them when an encoder is made.
"""

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from visvm.encoders.encoder import (
    FinalFeatures,
    LayerFeatures,
    Pixels,
    Preprocessing,
    Projected,
    check_final,
)
from visvm.encoders.joint import Tail
from visvm.encoders.resolution import Form, check_size
from visvm.errors import EncoderError, InputError, WeightsError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class _Family:
    """What must be known about a family of vision transformers."""

    vision_class: str
    # parameters that no block output depends on, by the start of their names
    after_blocks: tuple[str, ...]
    has_cls: bool = True
    any_size: bool = False  # position embeddings are interpolated to the size of the image
    # modules that turn the final CLS token into the model's own output, in this order
    projection: tuple[str, ...] = ()


CLIP_CLASS = "CLIPVisionModelWithProjection"
_CLIP = _Family(
    CLIP_CLASS,
    ("post_layernorm.", "visual_projection."),
    projection=("post_layernorm", "visual_projection"),
)
_SIGLIP = _Family("SiglipVisionModel", ("post_layernorm.", "head."), has_cls=False)
_DINO_UNUSED = ("layernorm.", "embeddings.mask_token")
FAMILIES = {
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


class Inside(NamedTuple):
    """What an encoder computes with, for code that computes the same in another way."""

    weights: "dict[str, torch.Tensor]"  # by their names without the tower's
    blank: "torch.Tensor"  # what enters the blocks of a black picture, (tokens, width)
    heads: int
    activation: str
    epsilon: float


class TowerEncoder:
    """A frozen vision transformer of the transformers library.

    The feature of a block is its raw output, before any final layer norm, at the CLS token. SigLIP
    has no CLS token: there it is the mean over the patch tokens. Calls from several threads wait
    for each other.

    Parameters
    ----------
    name : str
        As the user gives it.
    module : transformers.PreTrainedModel
        The vision tower with its weights; it is set to float32 and to evaluation.
    preprocessing : Preprocessing
    size : int, optional
        Side of the pictures that it is to take, where that is not the side in `preprocessing`; its
        position embeddings are interpolated.
    device : str, optional
        A device of torch; by default CUDA if there is one, otherwise the CPU.

    Attributes
    ----------
    digest : str
        SHA-256 of every weight the block outputs depend on, and of the settings that the weights do
        not show.
    patch : int
        Side of a patch in pixels.
    layer_dims : tuple of int
        The width of the model, once for every block.
    """

    def __init__(
        self,
        name: str,
        module: "torch.nn.Module",
        preprocessing: Preprocessing,
        *,
        size: int | None = None,
        device: str | None = None,
    ) -> None:
        config: Any = module.config
        family = FAMILIES[config.model_type]
        image_size = square_side(config.image_size, "image_size of config.json")
        if preprocessing.size != image_size and not family.any_size:
            raise EncoderError(
                f"{name} takes images of {image_size}, its preprocessing gives "
                f"{preprocessing.size}. Correct preprocessor_config.json.",
                code="preprocessing-invalid",
            )
        size = None if size == preprocessing.size else size
        self.patch = int(config.patch_size)
        if size is not None:
            check_size(name, size, self.patch, image_size // self.patch)
        self.name = name if size is None else f"{name}@{size}"
        self.preprocessing = preprocessing.at(size)
        given = size is not None and not family.any_size
        self._options = {"interpolate_pos_encoding": True} if given else {}
        self._module = _to_device(module.float().eval().requires_grad_(False), device)
        self._blocks = _blocks(self._module)
        self._family = family
        self._lock = threading.Lock()  # two passes at once would mix what their hooks collect
        self.layer_dims = (int(config.hidden_size),) * len(self._blocks)
        self.digest = Form(size).digest(_digest(name, self._module, family))

    def encode(self, pixels: Pixels) -> LayerFeatures:
        """Return layer features of normalised images, (n, 3, size, size) → (n, blocks * width)."""
        size = self.preprocessing.size
        if pixels.ndim != 4 or pixels.shape[1:] != (3, size, size):
            raise InputError(
                f"The 'pixels' parameter of encode must have the shape (n, 3, {size}, {size}). "
                f"Got {pixels.shape} instead.",
                code="pixels-shape",
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
                    images = np.ascontiguousarray(pixels, dtype=np.float32)
                    self._module(torch.tensor(images, device=device), **self._options)
            finally:
                for hook in hooks:
                    hook.remove()
        return cast(LayerFeatures, torch.cat(taken, dim=1).cpu().numpy())

    def project(self, final: FinalFeatures) -> Projected:
        """Return the encoder's own output, (n, layer_dims[-1]) → (n, p); `final` for SigLIP."""
        final = check_final(final, self.layer_dims)
        if not self._family.projection:
            return final
        torch, _ = import_torch()
        parts = {plain_name(name): part for name, part in self._module.named_modules()}
        with torch.inference_mode():
            features = torch.tensor(final, device=next(self._module.parameters()).device)
            for name in self._family.projection:
                if name not in parts or not all(
                    value.isfinite().all() for value in parts[name].parameters()
                ):
                    raise WeightsError(
                        f"{self.name} cannot project features: its {name} is missing, of another "
                        "shape, or not finite. Get the complete checkpoint.",
                        code="projection-missing",
                    )
                features = parts[name](features)
        return cast(Projected, features.cpu().numpy())

    @property
    def has_cls(self) -> bool:
        """Whether a block's feature is a token, and not the mean over patches."""
        return self._family.has_cls

    def inside(self) -> Inside:
        """Return its weights and settings."""
        torch, _ = import_torch()
        config, side = cast(Any, self._module.config), self.preprocessing.size
        weights = {plain_name(name): value for name, value in self._module.state_dict().items()}
        parts = {plain_name(name): part for name, part in self._module.named_modules()}
        device = next(self._module.parameters()).device
        with torch.inference_mode():
            blank = torch.zeros(1, 3, side, side, device=device)
            tokens = parts["embeddings"](blank, **self._options)[0]
        heads, epsilon = config.num_attention_heads, config.layer_norm_eps
        return Inside(weights, tokens, int(heads), str(config.hidden_act), float(epsilon))

    @property
    def tail(self) -> Tail | None:
        """Last norm and projection, for methods that need them apart; None if it is not CLIP's."""
        if self._family.projection != _CLIP.projection:
            return None
        parts = {plain_name(name): part for name, part in self._module.named_modules()}
        norm, projection = (cast(Any, parts.get(name)) for name in self._family.projection)
        matrix, gain, bias = (
            np.asarray(each.cpu().numpy(), dtype=np.float64)
            for each in (projection.weight.T, norm.weight, norm.bias)
        )
        return Tail(matrix, gain, bias, float(norm.eps))


def import_torch() -> tuple[Any, Any]:
    """Import torch and transformers; the error names the extra where they are not installed."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise EncoderError(
            f"This encoder needs torch and transformers ({first_line(error)}). "
            "Run pip install 'visvm[torch]'.",
            code="package-missing",
        ) from None
    return torch, transformers


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, for errors that must be one line."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def square_side(value: Any, what: str) -> int:
    """Return the side of a square, given in any of the forms that transformers has for it.

    Examples
    --------
    >>> square_side({"height": 8, "width": 8}, "size"), square_side({"shortest_edge": 8}, "size")
    (8, 8)
    """
    if isinstance(value, Mapping):
        value = (
            [value["shortest_edge"]]
            if "shortest_edge" in value
            else [value.get("height"), value.get("width")]
        )
    sides = list(value) if isinstance(value, list | tuple) else [value]
    if not sides or any(type(side) is not int or side < 1 or side != sides[0] for side in sides):
        raise EncoderError(
            f"{what} is not the side of one square but {value!r}. Correct it.",
            code="preprocessing-invalid",
        )
    return cast(int, sides[0])


def needed_names(names: set[str], family: _Family) -> set[str]:
    """Return those parameters that a block output depends on."""
    return {name for name in names if not plain_name(name).startswith(family.after_blocks)}


def plain_name(name: str) -> str:
    """Return a parameter's name without the tower's, which some releases put in front."""
    return name.removeprefix("vision_model.")


def _blocks(module: "torch.nn.Module") -> "list[torch.nn.Module]":
    """Return the transformer blocks: the one list of modules as long as the model is deep."""
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
            f"torch cannot use the device {chosen!r} ({first_line(error)}). Give another.",
            code="device-unusable",
        ) from None


def _digest(name: str, module: "torch.nn.Module", family: _Family) -> str:
    """Return the SHA-256 of the weights by name, dtype and shape, and of settings they do not show.

    What follows the blocks is left out: a checkpoint may lack it, and no feature depends on it.
    """
    weights = module.state_dict()
    summed = hashlib.sha256(
        repr([(key, getattr(module.config, key)) for key in _SETTINGS]).encode()
    )
    for key in sorted(needed_names(set(weights), family), key=plain_name):
        array = weights[key].cpu().contiguous().numpy()
        if not np.isfinite(array).all():
            raise WeightsError(
                f"{key} of {name} holds NaN or infinity. Get the weights again.",
                code="weights-not-finite",
            )
        summed.update(f"{plain_name(key)} {array.dtype} {array.shape}\n".encode())
        summed.update(array.tobytes())
    return summed.hexdigest()
