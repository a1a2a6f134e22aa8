"""The encoders of transformers beside a plain forward pass in numpy, and ONNX Runtime."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import erf
from sklearn.datasets import load_sample_images

from tests.encoders.refusals import refused_naming as refused
from tests.encoders.towers import (
    DEPTH,
    FAMILIES,
    HEADS,
    MLP,
    PATCH,
    PROCESSOR,
    SIZE,
    TWO_TOWERS,
    WIDTH,
    fill,
    save,
    tiny,
)
from visvm.encoders.encoder import Encoder, Preprocessing
from visvm.encoders.huggingface import TransformersEncoder
from visvm.errors import EncoderError, InputError, WeightsError

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VIT_TINY = Path(__file__).parents[3] / "shared/weights/vit-tiny-patch16-224"
needs_vit_tiny = pytest.mark.skipif(not VIT_TINY.is_dir(), reason="the real ViT-Tiny is not here")

GELU = {
    "gelu": lambda x: x * 0.5 * (1 + erf(x / np.sqrt(2))),
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "gelu_pytorch_tanh": lambda x: (
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    ),
}


def plain_forward(weights, names, pixels, act, eps):
    """Tokens after every block, in float64 and from the weights alone: [(n, tokens, width)]."""
    w = {key: value.double().numpy() for key, value in weights.items()}

    def norm(x, at):
        x = x - x.mean(axis=-1, keepdims=True)
        return (
            x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * w[f"{at}.weight"]
            + w[f"{at}.bias"]
        )

    def linear(x, at):
        return x @ w[f"{at}.weight"].T + w[f"{at}.bias"]

    n, grid = len(pixels), pixels.shape[-1] // PATCH
    patches = (
        pixels.astype(float)
        .reshape(n, 3, grid, PATCH, grid, PATCH)
        .transpose(0, 2, 4, 1, 3, 5)
        .reshape(n, grid**2, -1)
    )
    x = patches @ w[names.patch + ".weight"].reshape(WIDTH, -1).T + w.get(names.patch + ".bias", 0)
    if names.cls in w:
        x = np.concatenate(
            [np.broadcast_to(w[names.cls].reshape(1, 1, WIDTH), (n, 1, WIDTH)), x], axis=1
        )
    x = x + w[names.position].reshape(1, -1, WIDTH)
    if "embeddings.register_tokens" in w:
        registers = np.broadcast_to(w["embeddings.register_tokens"], (n, 3, WIDTH))
        x = np.concatenate([x[:, :1], registers, x[:, 1:]], axis=1)
    if "pre_layrnorm.weight" in w:
        x = norm(x, "pre_layrnorm")
    after = []
    for i in range(DEPTH):
        at = names.block.format(i)
        q, k, v = (
            linear(norm(x, at + names.norms[0]), at + part).reshape(n, -1, HEADS, WIDTH // HEADS)
            for part in names.attention[:3]
        )
        scores = np.exp(np.einsum("nqhd,nkhd->nhqk", q, k) / np.sqrt(WIDTH // HEADS))
        mixed = np.einsum(
            "nhqk,nkhd->nqhd", scores / scores.sum(axis=-1, keepdims=True), v
        ).reshape(x.shape)
        x = x + linear(mixed, at + names.attention[3]) * w.get(at + "layer_scale1.lambda1", 1)
        hidden = GELU[act](linear(norm(x, at + names.norms[1]), at + "mlp.fc1"))
        x = x + linear(hidden, at + "mlp.fc2") * w.get(at + "layer_scale2.lambda1", 1)
        after.append(x)
    return after


@pytest.fixture
def pixels():
    return np.random.default_rng(1).normal(size=(3, 3, SIZE, SIZE)).astype(np.float32)


def real_pixels():
    """Two photographs, as the real ViT-Tiny wants them: (2, 3, 224, 224)."""
    pictures = [picture[:224, :224] for picture in load_sample_images().images]
    return ((np.stack(pictures).transpose(0, 3, 1, 2) / 255 - 0.5) / 0.5).astype(np.float32)


@pytest.mark.parametrize("family", FAMILIES)
def test_features_are_the_raw_block_outputs_of_a_plain_forward_pass(family, pixels, tmp_path):
    model, names = tiny(family), FAMILIES[family][1]
    part = getattr(model, "vision_model", getattr(model, "vit", model))
    encoder: Encoder = TransformersEncoder(save(model, tmp_path))
    tokens = plain_forward(
        part.state_dict(), names, pixels, part.config.hidden_act, part.config.layer_norm_eps
    )
    expected = [x.mean(axis=1) if "siglip" in family else x[:, 0] for x in tokens]
    features = encoder.encode(pixels)
    assert encoder.layer_dims == (WIDTH,) * DEPTH
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, np.concatenate(expected, axis=1), atol=1e-4)


CLIP_PROJECTIONS = {
    "both towers": FAMILIES["clip, both towers"][0],
    "vision tower": lambda: transformers.CLIPVisionModelWithProjection(
        transformers.CLIPVisionConfig(**MLP, projection_dim=8)
    ),
    "usual width": lambda: transformers.CLIPModel(transformers.CLIPConfig(**TWO_TOWERS)),
}


@pytest.mark.parametrize("kind", CLIP_PROJECTIONS)
def test_projection_of_clip_is_that_of_transformers(kind, pixels, tmp_path):
    model = fill(CLIP_PROJECTIONS[kind]())
    encoder = TransformersEncoder(save(model, tmp_path))
    with torch.no_grad():
        given = torch.tensor(pixels)
        if kind == "vision tower":
            expected = model(given).image_embeds
        else:
            expected = model.get_image_features(given)
            # older releases give it by itself
            expected = getattr(expected, "pooler_output", expected)
    projected = encoder.project(encoder.encode(pixels)[:, -WIDTH:])
    assert projected.shape == (3, 512 if kind == "usual width" else 8)
    assert projected.dtype == np.float32
    np.testing.assert_allclose(projected, expected, rtol=1e-4, atol=1e-4)
    with refused("features-shape", InputError, "(n, 32)", "(3, 96)"):
        encoder.project(encoder.encode(pixels))


@pytest.mark.parametrize(
    "family", [family for family in FAMILIES if family.startswith(("dinov2", "vit"))]
)
def test_projection_of_dinov2_and_vit_is_the_last_norm(family, pixels, tmp_path):
    model = tiny(family)
    encoder = TransformersEncoder(save(model, tmp_path))
    with torch.no_grad():
        expected = getattr(model, "vit", model)(torch.tensor(pixels)).last_hidden_state[:, 0]
    np.testing.assert_allclose(
        encoder.project(encoder.encode(pixels)[:, -WIDTH:]), expected, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("family", [family for family in FAMILIES if family.startswith("siglip")])
def test_siglip_leaves_the_final_features_as_they_are(family, pixels, tmp_path):
    encoder = TransformersEncoder(save(tiny(family), tmp_path))
    final = encoder.encode(pixels)[:, -WIDTH:]
    np.testing.assert_array_equal(encoder.project(final), final)
    with refused("features-shape", InputError, "(n, 32)", "(3, 31)"):
        encoder.project(final[:, 1:])


@pytest.mark.parametrize("part", ["post_layernorm", "visual_projection"])
@pytest.mark.parametrize(
    "spoil", [None, lambda value: value[:3].clone(), lambda value: value * float("nan")]
)
def test_projection_that_the_weights_do_not_hold_is_refused(part, spoil, pixels, tmp_path):
    from safetensors.torch import load_file, save_file

    whole = TransformersEncoder(save(tiny("clip, both towers"), tmp_path))
    weights = load_file(tmp_path / "model.safetensors")
    key = next(key for key in weights if key.endswith(f"{part}.weight") and "text_model" not in key)
    value = weights.pop(key)
    if spoil is not None:
        weights[key] = spoil(value)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    encoder = TransformersEncoder(tmp_path)
    assert encoder.digest == whole.digest
    np.testing.assert_array_equal(encoder.encode(pixels), whole.encode(pixels))
    with refused("projection-missing", WeightsError, part):
        encoder.project(encoder.encode(pixels)[:, -WIDTH:])


def test_dinov2_takes_another_size_than_it_was_trained_on(tmp_path):
    model = tiny("dinov2")
    processor = {
        **PROCESSOR,
        "size": {"shortest_edge": 28},
        "crop_size": {"height": 24, "width": 24},
        "do_center_crop": True,
    }
    encoder = TransformersEncoder(save(model, tmp_path, processor))
    assert (encoder.preprocessing.size, encoder.preprocessing.resize) == (24, 28)
    pixels = np.random.default_rng(0).normal(size=(2, 3, 24, 24)).astype(np.float32)
    with torch.no_grad():
        hidden = model(torch.tensor(pixels), output_hidden_states=True).hidden_states
    np.testing.assert_allclose(
        encoder.encode(pixels), np.concatenate([x[:, 0] for x in hidden[1:]], axis=1), atol=1e-4
    )


@needs_vit_tiny
def test_real_vit_tiny_on_real_pictures():
    encoder = TransformersEncoder(VIT_TINY)
    pixels = real_pixels()
    features = encoder.encode(pixels)
    assert encoder.layer_dims == (192,) * 12
    assert encoder.preprocessing == Preprocessing(
        size=224, resize=224, mean=(0.5,) * 3, std=(0.5,) * 3
    )
    model = transformers.ViTModel.from_pretrained(VIT_TINY, add_pooling_layer=False).float().eval()
    with torch.no_grad():
        hidden = model(torch.tensor(pixels), output_hidden_states=True).hidden_states
    # transformers gives the embeddings and then every block, the last one before the final norm
    assert len(hidden) == 13
    np.testing.assert_allclose(
        features, np.concatenate([x[:, 0] for x in hidden[1:]], axis=1), atol=1e-4
    )
    assert np.abs(features[0, -192:] - features[1, -192:]).max() > 1
    np.testing.assert_allclose(encoder.encode(pixels[1:]), features[1:], atol=1e-4)


@needs_vit_tiny
def test_loading_and_encoding_leave_the_surroundings_alone(capfd, caplog):
    seed = torch.random.get_rng_state()
    verbosity = transformers.utils.logging.get_verbosity()
    encoder = TransformersEncoder(VIT_TINY)
    first = encoder.encode(real_pixels())
    assert torch.equal(torch.random.get_rng_state(), seed)
    assert transformers.utils.logging.get_verbosity() == verbosity
    assert transformers.utils.logging.is_progress_bar_enabled()
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    np.testing.assert_array_equal(encoder.encode(real_pixels()), first)


def test_same_features_alone_as_in_a_batch_and_for_any_memory_layout(pixels, tmp_path):
    encoder = TransformersEncoder(save(tiny("vit"), tmp_path))
    together = encoder.encode(pixels)
    for i in range(len(pixels)):
        np.testing.assert_allclose(
            encoder.encode(pixels[i : i + 1]), together[i : i + 1], atol=1e-4
        )
    frozen = np.asfortranarray(pixels)
    frozen.flags.writeable = False
    np.testing.assert_array_equal(encoder.encode(frozen), together)
    assert encoder.encode(pixels[:0]).shape == (0, WIDTH * DEPTH)


def test_half_precision_weights_are_computed_in_single_precision(pixels, tmp_path):
    model = tiny("clip").half()
    half = TransformersEncoder(save(model, tmp_path / "half"))
    single = TransformersEncoder(save(model.float(), tmp_path / "single"))
    np.testing.assert_array_equal(half.encode(pixels), single.encode(pixels))
    assert half.digest == single.digest


def test_digest_follows_weights_and_activation_and_nothing_random(tmp_path):
    model = tiny("vit")
    digest = TransformersEncoder(save(model, tmp_path / "a")).digest
    assert len(digest) == 64
    # without its pooler the checkpoint gets a random one at every load
    without = transformers.ViTModel(model.config, add_pooling_layer=False)
    without.load_state_dict(model.state_dict(), strict=False)
    save(without, tmp_path / "b")
    assert {TransformersEncoder(tmp_path / "b").digest for _ in range(2)} == {digest}
    config = json.loads((tmp_path / "b/config.json").read_text())
    (tmp_path / "b/config.json").write_text(json.dumps({**config, "hidden_act": "quick_gelu"}))
    assert TransformersEncoder(tmp_path / "b").digest != digest
    assert TransformersEncoder(save(fill(model, seed=1), tmp_path / "c")).digest != digest


def test_device_is_the_one_asked_for(tmp_path):
    folder = save(tiny("vit"), tmp_path)
    assert next(TransformersEncoder(folder, device="cpu")._module.parameters()).device.type == "cpu"
    with refused("device-unusable", EncoderError, "'nowhere'"):
        TransformersEncoder(folder, device="nowhere")


def test_pixels_of_another_size_are_refused(pixels, tmp_path):
    encoder = TransformersEncoder(save(tiny("vit"), tmp_path))
    with refused("pixels-shape", InputError, "(n, 3, 16, 16)", "(3, 3, 8, 16)"):
        encoder.encode(pixels[:, :, ::2])


def test_importing_the_module_does_not_import_torch():
    code = (
        "import sys, visvm.encoders.huggingface, visvm.encoders.open_clip; "
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "set()\n"
    )


@needs_vit_tiny
@pytest.mark.filterwarnings(
    "ignore:You are using the legacy TorchScript-based ONNX export:DeprecationWarning"
)
@pytest.mark.filterwarnings("ignore:The feature will be removed:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_same_features_as_onnx_runtime(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    encoder = TransformersEncoder(VIT_TINY)
    pixels = real_pixels()

    class AllBlocks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.vit = encoder._module

        def forward(self, x):
            hidden = self.vit(x, output_hidden_states=True).hidden_states
            return tuple(tokens[:, 0] for tokens in hidden[1:])

    torch.onnx.export(
        AllBlocks(), (torch.tensor(pixels),), tmp_path / "vit.onnx", dynamo=False, opset_version=17
    )
    session = onnxruntime.InferenceSession(
        tmp_path / "vit.onnx", providers=["CPUExecutionProvider"]
    )
    outputs = session.run(None, {session.get_inputs()[0].name: pixels})
    assert len(outputs) == 12
    np.testing.assert_allclose(encoder.encode(pixels), np.concatenate(outputs, axis=1), atol=1e-3)
