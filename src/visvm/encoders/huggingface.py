"""Load CLIP, SigLIP, DINOv2 and ViT of transformers, from a folder or the hub (extra ``torch``)."""

import math
import pickle
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
from safetensors import SafetensorError

from visvm.encoders.encoder import Preprocessing
from visvm.encoders.tower import (
    CLIP_CLASS,
    FAMILIES,
    TowerEncoder,
    first_line,
    import_torch,
    needed_names,
    plain_name,
    square_side,
)
from visvm.errors import EncoderError, WeightsError

if TYPE_CHECKING:
    import torch


_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")

# what torch, safetensors and pickle raise on a damaged file, and the hub without a network
UNREADABLE = (
    *(OSError, RuntimeError, ValueError, KeyError, EOFError),
    *(SafetensorError, pickle.UnpicklingError),
)


class TransformersEncoder(TowerEncoder):
    """The vision tower of a CLIP, SigLIP, DINOv2 (also with registers) or ViT checkpoint.

    Parameters
    ----------
    source : str or Path
        A local folder with config.json, preprocessor_config.json and the weights, or a hub name.
    size : int, optional
        Side of the pictures that it is to take.
    device : str, optional
        A device of torch; by default CUDA if there is one, otherwise the CPU.
    from_hub : bool, default=True
        Whether files may be fetched.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        size: int | None = None,
        device: str | None = None,
        from_hub: bool = True,
    ) -> None:
        name, local = str(source), not from_hub
        _, transformers = import_torch()
        if not Path(source).is_dir() and not _HUB_NAME.fullmatch(name):
            raise EncoderError(
                f"{name!r} is neither a folder nor a hub name. Give a name such as 'owner/model'.",
                code="encoder-unknown",
            )
        if Path(source).is_dir() and not (Path(source) / "config.json").is_file():
            raise EncoderError(
                f"The folder {name} has no config.json. Save the encoder with save_pretrained.",
                code="encoder-config-missing",
            )
        with quiet(transformers):
            config = _read_config(transformers, name, local)
            model_type = config.get("model_type")
            if model_type not in FAMILIES:
                raise EncoderError(
                    f"{name} has the model_type {model_type!r}, which visvm cannot use. "
                    f"Use one of {', '.join(FAMILIES)}.",
                    code="encoder-kind-unsupported",
                )
            preprocessing = _read_preprocessing(transformers, name, local)
            family = FAMILIES[model_type]
            # CLIP with two towers has this outside of both; 512 is transformers' own default.
            given: dict[str, Any] = {"local_files_only": local}
            if family.vision_class == CLIP_CLASS:
                given["projection_dim"] = config.get("projection_dim") or 512
            module = load_module(family.vision_class, name, name, **given)
        super().__init__(name, module, preprocessing, size=size, device=device)


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Silence transformers' progress bars and load report for a while."""
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
    kind: str, name: str, source: str | None, *, whole: bool = False, **given: Any
) -> "torch.nn.Module":
    """Load a tower with every weight that is needed; other missing ones become NaN.

    Parameters
    ----------
    kind, name : str
        A class of transformers, and the name of the checkpoint in messages.
    source : str or None
        Folder or hub name; None when `given` holds ``config`` and ``state_dict``.
    whole : bool, default=False
        Whether every weight is needed; otherwise those of a vision tower's block outputs are.
    **given
        Passed on to ``from_pretrained``.
    """
    runtime, transformers = import_torch()
    try:
        # Missing weights are drawn at random: not from the caller's generator.
        with runtime.random.fork_rng(devices=[]):
            module, info = getattr(transformers, kind).from_pretrained(
                source,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                trust_remote_code=False,
                **given,
            )
    except UNREADABLE as error:
        raise WeightsError(
            f"The weights of {name} cannot be read or fetched ({first_line(error)}). "
            "Check the files and the network.",
            code="weights-unreadable",
        ) from None
    # Mismatched entries are (name, shape, shape). Either kind was filled with random numbers.
    random = {
        *info["missing_keys"],
        *(key if isinstance(key, str) else key[0] for key in info["mismatched_keys"]),
    }
    needed = sorted(random if whole else needed_names(random, FAMILIES[module.config.model_type]))
    if needed:
        raise WeightsError(
            f"{name} lacks {needed[0]}, or has it in another shape (such parameters: "
            f"{len(needed)}). Get the complete checkpoint.",
            code="weights-incomplete",
        )
    drawn = {plain_name(key) for key in random}
    for key, value in module.state_dict().items():
        if plain_name(key) in drawn:
            value.fill_(math.nan)  # so that nothing random is ever taken for weights
    return cast("torch.nn.Module", module)


def normalisation(mean: Any, std: Any, where: str) -> dict[str, tuple[float, float, float]]:
    """Return the fields ``mean`` and ``std`` of Preprocessing, three numbers each."""
    try:
        fields = msgspec.convert({"mean": mean, "std": std}, dict[str, tuple[float, float, float]])
    except msgspec.ValidationError:
        fields = {}
    if not fields or min(fields["std"]) <= 0:
        raise EncoderError(
            f"{where} mean {mean!r} and std {std!r} are not three numbers each, std above 0. "
            "Correct them.",
            code="preprocessing-invalid",
        )
    return fields


def _read_config(transformers: Any, name: str, local: bool) -> dict[str, Any]:
    try:
        config, _ = transformers.PretrainedConfig.get_config_dict(name, local_files_only=local)
    except (OSError, ValueError) as error:
        raise WeightsError(
            f"config.json of {name} cannot be read or fetched ({first_line(error)}). "
            "Check the name and the network, or give a folder.",
            code="weights-unreadable",
        ) from None
    return cast(dict[str, Any], config)


def _read_preprocessing(transformers: Any, name: str, local: bool) -> Preprocessing:
    processor = transformers.image_processing_base.ImageProcessingMixin
    try:
        config, _ = processor.get_image_processor_dict(name, local_files_only=local)
    except (OSError, ValueError):
        raise EncoderError(
            f"preprocessor_config.json of {name} cannot be read. "
            "Copy it from where the weights came from, and put it beside them.",
            code="preprocessing-missing",
        ) from None
    return _preprocessing(config, f"{name}: preprocessor_config.json:")


def _preprocessing(config: Mapping[str, Any], where: str) -> Preprocessing:
    """Convert the settings of an image processor of transformers; guess nothing."""
    resize = square_side(config.get("size"), f"{where} size")
    cut = config.get("do_center_crop", config.get("crop_size") is not None)
    size = square_side(config.get("crop_size"), f"{where} crop_size") if cut else resize
    if resize < size:
        raise EncoderError(
            f"{where} size {resize} is smaller than crop_size {size}. Correct it.",
            code="preprocessing-invalid",
        )
    if (
        not math.isclose(config.get("rescale_factor", 1 / 255), 1 / 255, rel_tol=1e-3)
        or config.get("do_normalize") is False
    ):
        raise EncoderError(
            f"{where} pixels are not scaled by 1/255 and normalised with image_mean and image_std. "
            "Use another encoder.",
            code="preprocessing-unsupported",
        )
    colours = normalisation(config.get("image_mean"), config.get("image_std"), f"{where} image")
    return Preprocessing(size=size, resize=resize, **colours)
