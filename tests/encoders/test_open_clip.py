"""open_clip checkpoints beside a plain CLIP vision transformer made of torch.nn modules."""

import json
from functools import partial

import numpy as np
import pytest

from tests.encoders.refusals import refusal
from visvm.encoders.encoder import Encoder, Preprocessing
from visvm.encoders.huggingface import TransformersEncoder
from visvm.encoders.open_clip import CLIP_MEAN, CLIP_STD, load_checkpoint
from visvm.errors import EncoderError, WeightsError

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

WIDTH, DEPTH, PATCH, SIZE = 128, 3, 8, 32


class Block(torch.nn.Module):
    """A residual attention block with open_clip's names."""

    def __init__(self, width, heads, quick):
        super().__init__()
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attn = torch.nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = torch.nn.ModuleDict(
            {"c_fc": torch.nn.Linear(width, 3 * width), "c_proj": torch.nn.Linear(3 * width, width)}
        )
        self.quick = quick

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        y = self.mlp["c_fc"](self.ln_2(x))
        y = y * torch.sigmoid(1.702 * y) if self.quick else torch.nn.functional.gelu(y)
        return x + self.mlp["c_proj"](y)


class Visual(torch.nn.Module):
    """The vision tower; gives the CLS token after every block."""

    def __init__(self, width=WIDTH, head=64, quick=False):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, width, PATCH, stride=PATCH, bias=False)
        self.class_embedding = torch.nn.Parameter(torch.empty(width))
        self.positional_embedding = torch.nn.Parameter(torch.empty((SIZE // PATCH) ** 2 + 1, width))
        self.ln_pre, self.ln_post = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        blocks = torch.nn.ModuleList(Block(width, width // head, quick) for _ in range(DEPTH))
        self.transformer = torch.nn.ModuleDict({"resblocks": blocks})
        self.proj = torch.nn.Parameter(torch.empty(width, 16))
        generator = np.random.default_rng(0)
        with torch.no_grad():
            for value in self.parameters():
                value.copy_(torch.tensor(generator.normal(scale=0.1, size=tuple(value.shape))))

    def forward(self, pixels):
        x = self.conv1(pixels).flatten(2).transpose(1, 2)
        x = (
            torch.cat([self.class_embedding.expand(len(x), 1, -1), x], dim=1)
            + self.positional_embedding
        )
        x = self.ln_pre(x)
        taken = []
        for block in self.transformer["resblocks"]:
            x = block(x)
            taken.append(x[:, 0])
        return torch.cat(taken, dim=1)


def state_of(visual):
    """A checkpoint's state dict, with something of the text tower in it."""
    state = {f"visual.{key}": value for key, value in visual.state_dict().items()}
    return {
        **state,
        "logit_scale": torch.tensor(4.6),
        "transformer.resblocks.0.ln_1.weight": torch.ones(8),
    }


def write(state, path, config=None):
    if path.suffix == ".safetensors":
        from safetensors.torch import save_file

        save_file(state, path)
    else:
        torch.save(state, path)
    if config is not None:
        path.with_name("open_clip_config.json").write_text(json.dumps(config))
    return path


@pytest.fixture
def pixels():
    return np.random.default_rng(1).normal(size=(3, 3, SIZE, SIZE)).astype(np.float32)


def refused(code, kind, path, *facts):
    refusal(code, lambda: load_checkpoint(path), *facts, kind=kind)


def expected_of(visual, pixels):
    with torch.no_grad():
        return visual(torch.tensor(pixels)).numpy()


@pytest.mark.parametrize("file", ["model.pt", "model.pth", "model.bin", "model.safetensors"])
def test_features_are_those_of_a_plain_transformer(file, pixels, tmp_path):
    visual = Visual()
    encoder: Encoder = load_checkpoint(write(state_of(visual), tmp_path / file))
    np.testing.assert_allclose(encoder.encode(pixels), expected_of(visual, pixels), atol=1e-4)
    assert encoder.layer_dims == (WIDTH,) * DEPTH
    assert encoder.preprocessing == Preprocessing(
        size=SIZE, resize=SIZE, mean=CLIP_MEAN, std=CLIP_STD
    )
    assert encoder.name == str(tmp_path / file)


def projected_by(encoder, pixels):
    return encoder.project(encoder.encode(pixels)[:, -WIDTH:])


def test_projection_is_that_of_a_plain_transformer(pixels, tmp_path):
    visual = Visual()
    projected = projected_by(
        load_checkpoint(write(state_of(visual), tmp_path / "model.pt")), pixels
    )
    with torch.no_grad():
        expected = visual.ln_post(visual(torch.tensor(pixels))[:, -WIDTH:]) @ visual.proj
    assert projected.shape == (3, 16)
    np.testing.assert_allclose(projected, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "vision", "part"),
    [
        ({"proj": None}, {}, "visual_projection"),
        ({"proj": torch.ones(())}, {}, "visual_projection"),
        ({"proj": torch.ones(WIDTH - 1, 16)}, {}, "visual_projection"),
        ({"ln_post.bias": None}, {}, "post_layernorm"),
        # what is projected there is not the CLS token
        ({"attn_pool.query": torch.ones(4, WIDTH)}, {}, "visual_projection"),
        ({}, {"pool_type": "avg"}, "visual_projection"),
        ({}, {"global_average_pool": True}, "visual_projection"),
    ],
)
def test_projection_that_the_checkpoint_does_not_hold_is_refused(
    changes, vision, part, pixels, tmp_path
):
    whole = load_checkpoint(write(state_of(Visual()), tmp_path / "whole.pt"))
    state = state_of(Visual()) | {f"visual.{key}": value for key, value in changes.items()}
    state = {key: value for key, value in state.items() if value is not None}
    encoder = load_checkpoint(
        write(state, tmp_path / "model.pt", {"model_cfg": {"vision_cfg": vision}})
    )
    assert encoder.digest == whole.digest
    np.testing.assert_array_equal(encoder.encode(pixels), whole.encode(pixels))
    project = partial(projected_by, encoder, pixels)
    refusal("projection-missing", project, part, kind=WeightsError)


def test_quick_gelu_when_the_config_says_so(pixels, tmp_path):
    visual = Visual(quick=True)
    path = write(state_of(visual), tmp_path / "model.pt", {"model_cfg": {"quick_gelu": True}})
    quick = load_checkpoint(path)
    np.testing.assert_allclose(quick.encode(pixels), expected_of(visual, pixels), atol=1e-4)
    path.with_name("open_clip_config.json").unlink()
    exact = load_checkpoint(path)
    assert np.abs(exact.encode(pixels) - quick.encode(pixels)).max() > 1e-2
    # equal weights, other features: the digest must tell them apart
    assert exact.digest != quick.digest


def test_head_width_from_the_config(pixels, tmp_path):
    visual = Visual(head=32)
    path = write(
        state_of(visual), tmp_path / "model.pt", {"model_cfg": {"vision_cfg": {"head_width": 32}}}
    )
    np.testing.assert_allclose(
        load_checkpoint(path).encode(pixels), expected_of(visual, pixels), atol=1e-4
    )


def test_preprocessing_from_the_config(tmp_path):
    config = {
        "preprocess_cfg": {"mean": [0.5, 0.5, 0.4], "std": [0.1, 0.2, 0.3], "size": [SIZE, SIZE]}
    }
    path = write(state_of(Visual()), tmp_path / "model.pt", config)
    assert load_checkpoint(path).preprocessing == Preprocessing(
        size=SIZE, resize=SIZE, mean=(0.5, 0.5, 0.4), std=(0.1, 0.2, 0.3)
    )


def test_wrapped_and_half_precision_checkpoints(pixels, tmp_path):
    state = {key: value.half() for key, value in state_of(Visual()).items()}
    plain = load_checkpoint(write(state, tmp_path / "plain.pt"))
    wrapped = {"epoch": 3, "state_dict": {f"module.{key}": value for key, value in state.items()}}
    other = load_checkpoint(write(wrapped, tmp_path / "wrapped.pt"), device="cpu")
    assert other.digest == plain.digest
    np.testing.assert_array_equal(other.encode(pixels), plain.encode(pixels))
    rounded = Visual()
    rounded.load_state_dict(
        {
            key.removeprefix("visual."): value.float()
            for key, value in state.items()
            if "visual." in key
        }
    )
    np.testing.assert_allclose(plain.encode(pixels), expected_of(rounded, pixels), atol=1e-4)


def test_converted_weights_are_those_of_transformers(tmp_path):
    encoder = load_checkpoint(write(state_of(Visual()), tmp_path / "model.pt"))
    encoder._module.save_pretrained(tmp_path / "saved")
    processor = {"size": SIZE, "image_mean": CLIP_MEAN, "image_std": CLIP_STD}
    (tmp_path / "saved/preprocessor_config.json").write_text(json.dumps(processor))
    saved = TransformersEncoder(tmp_path / "saved")
    assert (saved.digest, saved.preprocessing) == (encoder.digest, encoder.preprocessing)


def test_loading_draws_nothing_from_the_global_generator(tmp_path, capfd):
    path = write(
        {key: value for key, value in state_of(Visual()).items() if "ln_post" not in key},
        tmp_path / "model.pt",
    )
    seed = torch.random.get_rng_state()
    assert load_checkpoint(path).digest == load_checkpoint(path).digest
    assert torch.equal(torch.random.get_rng_state(), seed)
    assert capfd.readouterr() == ("", "")


OUTER = ["conv1.weight", "class_embedding", "positional_embedding", "ln_pre.bias"]
INNER = [
    "ln_1.weight",
    "attn.in_proj_weight",
    "attn.in_proj_bias",
    "attn.out_proj.weight",
    "ln_2.bias",
    "mlp.c_fc.weight",
]


@pytest.mark.parametrize("key", OUTER + [f"transformer.resblocks.2.{part}" for part in INNER])
def test_a_missing_weight_is_refused(key, tmp_path):
    state = state_of(Visual())
    del state[f"visual.{key}"]
    refused("weights-incomplete", WeightsError, write(state, tmp_path / "model.pt"))


def test_other_architectures_are_refused(tmp_path):
    state = state_of(Visual())
    gamma = {**state, "visual.transformer.resblocks.0.ls_1.gamma": torch.ones(WIDTH)}
    refused(
        "encoder-kind-unsupported",
        EncoderError,
        write(gamma, tmp_path / "a.pt"),
        "visual.transformer.resblocks.0.ls_1.gamma",
    )
    timm = {"visual.trunk.patch_embed.proj.weight": torch.ones(2)}
    path = write(timm, tmp_path / "b.pt")
    refused("encoder-kind-unsupported", EncoderError, path, "visual.trunk")
    path = write({"logit_scale": torch.ones(1)}, tmp_path / "c.pt")
    refused("weights-incomplete", WeightsError, path, "visual.conv1.weight")
    blockless = {key: value for key, value in state.items() if "visual.transformer" not in key}
    path = write(blockless, tmp_path / "d.pt")
    refused("weights-incomplete", WeightsError, path, "visual.transformer.resblocks")
    for name, key, value in (
        ("h.pt", "visual.conv1.weight", torch.ones(3)),
        ("i.pt", "visual.ln_pre.bias", 3),
        ("e.pt", "visual.transformer.resblocks.0.attn.in_proj_bias", torch.ones(7)),
    ):
        refused("weights-shape", WeightsError, write({**state, key: value}, tmp_path / name), key)
    # H, g and G have heads of other widths than 64: not to be guessed
    path = write(state_of(Visual(width=1280)), tmp_path / "f.pt")
    refused("head-width-unknown", EncoderError, path, "1280", "vision_cfg.head_width")
    path = write(state_of(Visual(width=96, head=32)), tmp_path / "g.pt")
    refused("head-width-unknown", EncoderError, path, "64", "96", "vision_cfg.head_width")


@pytest.mark.parametrize(
    ("config", "code", "facts"),
    [
        ([], "encoder-config-invalid", ["open_clip_config.json"]),
        ({"model_cfg": {"vision_cfg": 3}}, "encoder-config-invalid", ["vision_cfg"]),
        (
            {"model_cfg": {"vision_cfg": {"act_kwargs": {"approximate": "tanh"}}}},
            "encoder-kind-unsupported",
            ["act_kwargs"],
        ),
        ({"preprocess_cfg": {"size": 64}}, "preprocessing-invalid", ["32", "64"]),
        ({"preprocess_cfg": {"mean": 0.5}}, "preprocessing-invalid", ["mean 0.5"]),
        ({"preprocess_cfg": {"size": [32, 16]}}, "preprocessing-invalid", ["[32, 16]"]),
    ],
)
def test_configs_that_do_not_fit_are_refused(config, code, facts, tmp_path):
    refused(code, EncoderError, write(state_of(Visual()), tmp_path / "model.pt", config), *facts)


def test_files_that_are_no_checkpoint(tmp_path):
    nowhere = tmp_path / "nowhere.pt"
    refused("encoder-file-missing", WeightsError, nowhere, str(nowhere))
    for file in ("text.pt", "text.safetensors"):
        (tmp_path / file).write_text("no weights")
        refused("weights-unreadable", WeightsError, tmp_path / file, file)
    whole = write(state_of(Visual()), tmp_path / "half.pt").read_bytes()
    (tmp_path / "half.pt").write_bytes(whole[: len(whole) // 2])
    refused("weights-unreadable", WeightsError, tmp_path / "half.pt")
    # a pickled object would run code
    refused("weights-unreadable", WeightsError, write(Visual(), tmp_path / "code.pt"))
    refused("weights-unreadable", WeightsError, write([1, 2], tmp_path / "list.pt"), "list")
    path = write(state_of(Visual()), tmp_path / "model.pt")
    path.with_name("open_clip_config.json").write_text("{")
    refused("encoder-config-invalid", EncoderError, path, "open_clip_config.json")
