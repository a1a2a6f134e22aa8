"""Tiny vision transformers of transformers, with weights that are not zero."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZE, PATCH, WIDTH, DEPTH, HEADS = 16, 4, 32, 3, 2
TINY = {
    "hidden_size": WIDTH,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": HEADS,
    "image_size": SIZE,
    "patch_size": PATCH,
}
MLP = {**TINY, "intermediate_size": 48}
TEXT = {
    "hidden_size": WIDTH,
    "intermediate_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "vocab_size": 50,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 1,
}
PROCESSOR = {
    "size": {"height": SIZE, "width": SIZE},
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.3, 0.4],
}
# where a family keeps its weights
CLIP_NAMES = SimpleNamespace(
    cls="embeddings.class_embedding",
    patch="embeddings.patch_embedding",
    position="embeddings.position_embedding.weight",
    block="encoder.layers.{}.",
    norms=["layer_norm1", "layer_norm2"],
    attention=[f"self_attn.{part}_proj" for part in ("q", "k", "v", "out")],
)
VIT_NAMES = SimpleNamespace(
    cls="embeddings.cls_token",
    patch="embeddings.patch_embeddings.projection",
    position="embeddings.position_embeddings",
    block="layers.{}.",
    norms=["layernorm_before", "layernorm_after"],
    attention=[f"attention.{part}_proj" for part in "qkvo"],
)
DINO_NAMES = SimpleNamespace(
    **{**vars(VIT_NAMES), "block": "encoder.layer.{}.", "norms": ["norm1", "norm2"]}
)
t = transformers
TWO_TOWERS = {"text_config": TEXT, "vision_config": MLP}
FAMILIES = {
    "clip": (lambda: t.CLIPVisionModel(t.CLIPVisionConfig(**MLP)), CLIP_NAMES),
    "clip, both towers": (
        lambda: t.CLIPModel(t.CLIPConfig(**TWO_TOWERS, projection_dim=8)),
        CLIP_NAMES,
    ),
    "siglip": (lambda: t.SiglipVisionModel(t.SiglipVisionConfig(**MLP)), CLIP_NAMES),
    "siglip, both towers": (lambda: t.SiglipModel(t.SiglipConfig(**TWO_TOWERS)), CLIP_NAMES),
    "dinov2": (lambda: t.Dinov2Model(t.Dinov2Config(**TINY)), DINO_NAMES),
    "dinov2, registers": (
        lambda: t.Dinov2WithRegistersModel(
            t.Dinov2WithRegistersConfig(**TINY, num_register_tokens=3)
        ),
        DINO_NAMES,
    ),
    "vit": (lambda: t.ViTModel(t.ViTConfig(**MLP)), VIT_NAMES),
    "vit, with classifier": (lambda: t.ViTForImageClassification(t.ViTConfig(**MLP)), VIT_NAMES),
}


def tiny(family):
    """A small model of a family, its weights large enough for every one of them to matter."""
    return fill(FAMILIES[family][0]())


def fill(model, seed=0):
    generator = np.random.default_rng(seed)
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.tensor(generator.normal(scale=0.2, size=tuple(value.shape))))
    return model.eval()


def save(model, folder, processor=PROCESSOR):
    model.save_pretrained(folder)
    if processor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder
