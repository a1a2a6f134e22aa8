"""Run the text tower of CLIP or SigLIP: texts → features in the joint space (extra ``torch``)."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visvm.encoders.bpe import clip_tokenizer, fetch_bpe
from visvm.encoders.huggingface import UNREADABLE, load_module, quiet
from visvm.encoders.open_clip import read_text_half
from visvm.encoders.prompts import spoken
from visvm.encoders.texts import Phrases, TextFeatures, unit
from visvm.encoders.tower import first_line, import_torch
from visvm.errors import EncoderError, WeightsError
from visvm.progress import Progress, silent

if TYPE_CHECKING:
    import torch

_BATCH = 64
_CHECKPOINTS = {".pt", ".pth", ".bin", ".safetensors"}
_CLASSES = {
    **dict.fromkeys(("clip", "clip_text_model"), "CLIPTextModelWithProjection"),
    **dict.fromkeys(("siglip", "siglip_text_model"), "SiglipTextModel"),
}


class TextEncoder:
    """A frozen text tower of the transformers library.

    Parameters
    ----------
    name : str
        As the user gives it.
    module : transformers.PreTrainedModel
        Its output has ``text_embeds`` or ``pooler_output``, in the joint space.
    tokenizer
        Of transformers.
    scale : float
        What cosines were multiplied by in training, exp(logit_scale).

    Attributes
    ----------
    digest : str
        SHA-256 of the weights.
    """

    def __init__(
        self, name: str, module: "torch.nn.Module", tokenizer: Any, scale: float = 100.0
    ) -> None:
        self.name, self._tokenizer, self.scale = name, tokenizer, scale
        self._module = module.float().eval().requires_grad_(False)
        config: Any = module.config
        self._length = int(config.max_position_embeddings)
        digest = hashlib.sha256(f"{config.model_type} {config.hidden_act}".encode())
        for key, value in sorted(self._module.state_dict().items()):
            array = value.cpu().numpy()
            if not np.isfinite(array).all():
                raise WeightsError(
                    f"{key} of {name} holds NaN or infinity. Get the weights again.",
                    code="weights-not-finite",
                )
            digest.update(f"{key} {array.dtype} {array.shape}\n".encode() + array.tobytes())
        self.digest = digest.hexdigest()

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> NDArray[np.float32]:
        """Return the features of texts, (n, p), not scaled to unit length."""
        torch, _ = import_torch()
        given = {"padding": "max_length", "truncation": True, "max_length": self._length}
        parts = []
        for begin in range(0, len(texts), _BATCH):
            progress("encoding texts", begin, len(texts))
            tokens = self._tokenizer(list(texts[begin : begin + _BATCH]), **given)
            with torch.inference_mode():
                found = self._module(input_ids=torch.tensor(tokens["input_ids"]))
            parts.append(getattr(found, "text_embeds", None))
            if parts[-1] is None:
                parts[-1] = found.pooler_output
        progress("encoding texts", len(texts), len(texts))
        return np.asarray(torch.cat(parts).numpy())


def load_text_encoder(name: str, progress: Progress = silent) -> TextEncoder:
    """Load a text tower: an open_clip checkpoint, or the folder or hub name of transformers."""
    path = Path(os.path.expanduser(name))
    _, transformers = import_torch()
    with quiet(transformers):
        if path.suffix in _CHECKPOINTS:
            config, state, scale = read_text_half(path)
            given = {"config": config, "state_dict": state}
            module = load_module("CLIPTextModelWithProjection", name, None, whole=True, **given)
            return TextEncoder(name, module, clip_tokenizer(fetch_bpe(progress)), scale)
        source = str(path) if path.is_dir() else name
        try:
            config, _ = transformers.PretrainedConfig.get_config_dict(source)
            tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        except UNREADABLE as error:
            raise WeightsError(
                f"The configuration or the tokenizer of {name} cannot be read or fetched "
                f"({first_line(error)}). Check the name and the network, or give a folder.",
                code="weights-unreadable",
            ) from None
        kind = config.get("model_type")
        if kind not in _CLASSES:
            raise EncoderError(
                f"{name} has the model_type {kind!r}, which has no text tower that visvm can use. "
                f"Use one of {', '.join(_CLASSES)}.",
                code="encoder-kind-unsupported",
            )
        module = load_module(_CLASSES[kind], name, source, whole=True)
        return TextEncoder(name, module, tokenizer, _scale_of(source))


def _scale_of(source: str) -> float:
    """Read exp(logit_scale) of a folder or a hub model that is here; 100 where it has none."""
    from huggingface_hub import try_to_load_from_cache
    from safetensors import safe_open

    file = "model.safetensors"
    folder = os.path.join(source, file)
    path = folder if os.path.isdir(source) else try_to_load_from_cache(source, file)
    if not isinstance(path, str) or not os.path.exists(path):
        return 100.0
    with safe_open(path, framework="numpy") as weights:
        if "logit_scale" not in weights.keys():  # noqa: SIM118 - it is no dict
            return 100.0
        return float(np.exp(weights.get_tensor("logit_scale").item()))


def encode_names(
    tower: TextEncoder,
    names: Sequence[str],
    prompts: Sequence[str],
    said: Sequence[tuple[str, int, int]] = (),
    phrase_prompt: str = "{name} with {phrase}",
    image_digest: str = "",
    progress: Progress = silent,
) -> TextFeatures:
    """Encode class names by every prompt, and phrases.

    Parameters
    ----------
    tower : TextEncoder
    names, prompts : sequence of str
        Of C classes, and K prompts with {} where the name goes.
    said : sequence of (str, int, int)
        Phrases, with the places of their class and of the one they compare it with, or -1.
    phrase_prompt : str
        With {phrase}, and {name} where the name of the class goes.
    image_digest : str
        Of the image tower that shares the joint space.
    progress : callable
    """
    plain = [spoken(name) for name in names]
    texts = [prompt.replace("{}", name) for name in plain for prompt in prompts]
    about = [
        phrase_prompt.replace("{name}", plain[place]).replace("{phrase}", phrase)
        for phrase, place, _ in said
    ]
    rows = unit(tower.encode([*texts, *about], progress).astype(np.float64)).astype(np.float32)
    features = rows[: len(texts)].reshape(len(plain), len(prompts), -1)
    phrases = Phrases()
    if said:
        classes = np.array([[place, other] for _, place, other in said], dtype=np.intp)
        phrases = Phrases(tuple(about), rows[len(texts) :], classes)
    about_towers = (tower.name, image_digest)
    more = (*about_towers, tower.scale, phrases)
    return TextFeatures(tuple(names), features, tuple(prompts), *more)
