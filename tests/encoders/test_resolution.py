"""Encoders at other sizes, beside transformers' own interpolation of position embeddings."""

import io
import json
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image
from sklearn.datasets import load_sample_image

from tests import tiny as tiny_onnx
from tests.encoders import towers
from tests.encoders.towers import PATCH, SIZE, save, tiny
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.encoders import weights
from visvm.encoders.catalog import CATALOG
from visvm.encoders.loading import known_digest, load_encoder
from visvm.encoders.resolution import Form, interpolated, resize_graph, split_form
from visvm.errors import EncoderError

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VIT_TINY = Path(__file__).parents[3] / "shared/weights/vit-tiny-patch16-224"
REAL = weights.cache_folder() / "weights"
DINO = CATALOG["dinov2-s14"]
ADDED = {"clip": ["/embeddings/position_embedding/Gather_output_0"], "vit": []}


def pictures(size, n=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3, size, size)).astype(np.float32)


@pytest.fixture(scope="module", params=["clip", "vit"])
def exported(request, tmp_path_factory):
    """A vision transformer of transformers in its own folder, and as an ONNX file of one's own."""
    tmp_path, model = tmp_path_factory.mktemp("exported"), tiny(request.param)
    name = towers.FAMILIES[request.param][1].position
    file = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):  # of the exporter, about itself
        torch.onnx.export(
            model,
            (torch.zeros(2, 3, SIZE, SIZE),),
            file,
            dynamo=False,
            input_names=["pixels"],
            output_names=["last"],
            dynamic_axes={"pixels": {0: "n"}},
        )
    (tmp_path / "vit.onnx").write_bytes(file.getvalue())
    graph = onnx.load_from_string(file.getvalue()).graph
    blocks = [
        node.output[0]
        for node in graph.node
        if node.op_type == "Add" and node.output[0].endswith(("/Add_1_output_0", "last"))
    ]
    assert len(blocks) == towers.DEPTH
    described = {
        "blocks": blocks,
        "size": SIZE,
        "mean": towers.PROCESSOR["image_mean"],
        "std": towers.PROCESSOR["image_std"],
        "positions": [*ADDED[request.param], name],
    }
    (tmp_path / "vit.onnx.json").write_text(json.dumps(described))
    return save(model, tmp_path / "folder"), tmp_path / "vit.onnx"


def test_the_graph_agrees_with_transformers(exported):
    folder, file = exported
    for size in (2 * PATCH, 3 * PATCH, 6 * PATCH, 8 * PATCH):
        ours, theirs = load_encoder(f"{file}@{size}"), load_encoder(f"{folder}@{size}")
        assert ours.preprocessing == theirs.preprocessing
        assert ours.preprocessing.size == size
        images = pictures(size)
        np.testing.assert_allclose(ours.encode(images), theirs.encode(images), atol=1e-4)


def test_the_own_size_is_the_plain_encoder(exported):
    for path in exported:
        plain, sized = load_encoder(str(path)), load_encoder(f"{path}@{SIZE}")
        assert (sized.name, sized.digest) == (plain.name, plain.digest)


@pytest.mark.parametrize("family", ["clip", "siglip", "dinov2", "dinov2, registers", "vit"])
def test_every_family_takes_other_sizes(family, tmp_path):
    folder = save(tiny(family), tmp_path)
    plain, sized = load_encoder(str(folder)), load_encoder(f"{folder}@{2 * SIZE}")
    assert sized.digest != plain.digest
    assert sized.name == f"{folder}@{2 * SIZE}"
    images = pictures(2 * SIZE)
    assert sized.encode(images).shape == (3, sum(plain.layer_dims))
    module = sized._module
    extra = {} if "dinov2" in family else {"interpolate_pos_encoding": True}
    with torch.inference_mode():
        out = module(torch.tensor(images), output_hidden_states=True, **extra).hidden_states[-1]
    last = out.mean(dim=1) if family == "siglip" else out[:, 0]
    np.testing.assert_allclose(sized.encode(images)[:, -towers.WIDTH :], last, atol=1e-5)


@pytest.mark.parametrize(("old", "new"), [(2, 5), (5, 2), (7, 7), (16, 24), (37, 12)])
def test_interpolation_is_that_of_torch(old, new):
    table = np.random.default_rng(old).normal(size=(1 + old * old, 5))
    grid = torch.tensor(table[1:]).reshape(1, old, old, 5).permute(0, 3, 1, 2)
    wanted = torch.nn.functional.interpolate(
        grid, size=(new, new), mode="bicubic", align_corners=False
    )
    got = interpolated(table, new)
    np.testing.assert_allclose(got[0], table[0], rtol=1e-6)
    np.testing.assert_allclose(
        got[1:], wanted.permute(0, 2, 3, 1).reshape(new * new, 5).numpy(), atol=1e-6
    )


@pytest.mark.skipif(not VIT_TINY.is_dir(), reason="the real ViT-Tiny is not here")
def test_a_real_encoder_sees_the_same_thing_at_another_size():
    photo = Image.fromarray(np.asarray(load_sample_image("china.jpg")))
    other = Image.fromarray(np.asarray(load_sample_image("flower.jpg")))

    def feature(size, image):
        encoder = load_encoder(f"{VIT_TINY}@{size}")
        square = np.asarray(image.resize((size, size))).transpose(2, 0, 1)[None] / 255
        final = encoder.encode(((square - 0.5) / 0.5).astype(np.float32))[0, -192:]
        return final / np.linalg.norm(final)

    whole = feature(224, photo)
    assert whole @ feature(256, photo) > 0.9 > whole @ feature(256, other)


@pytest.mark.skipif(
    not list(REAL.glob(f"{DINO.name}.{weights._recipe(DINO)}.*.onnx")),
    reason="DINOv2's weights are not here",
)
def test_real_dinov2_agrees_with_transformers(monkeypatch):
    monkeypatch.delenv("VISVM_CACHE", raising=False)
    graph = onnx.load(weights.locate(DINO.name)).graph
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    products = iter(
        values[node.input[1]]
        for node in graph.node
        if node.op_type == "MatMul" and node.input[1] in values
    )
    config = transformers.Dinov2Config(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, image_size=518, patch_size=14
    )
    module = transformers.Dinov2Model(config).eval()
    state = {}
    table = np.concatenate([values["model.cls_token"], values["onnx::Reshape_1360"]], axis=1)
    state["embeddings.position_embeddings"] = table
    state["embeddings.cls_token"] = values["model.cls_token"]
    for part in ("weight", "bias"):
        state[f"embeddings.patch_embeddings.projection.{part}"] = values[
            f"model.patch_embed.proj.{part}"
        ]
    for block in range(12):
        theirs, ours = f"encoder.layer.{block}", f"model.blocks.{block}"
        for norm in ("norm1", "norm2"):
            for part in ("weight", "bias"):
                state[f"{theirs}.{norm}.{part}"] = values[f"{ours}.{norm}.{part}"]
        attention = np.split(next(products), 3, axis=1)
        biases = np.split(values[f"{ours}.attn.qkv.bias"], 3)
        for letter, matrix, bias in zip("qkv", attention, biases, strict=True):
            state[f"{theirs}.attention.{letter}_proj.weight"] = matrix.T
            state[f"{theirs}.attention.{letter}_proj.bias"] = bias
        for at, there in (
            ("attention.o_proj", "attn.proj"),
            ("mlp.fc1", "mlp.fc1"),
            ("mlp.fc2", "mlp.fc2"),
        ):
            state[f"{theirs}.{at}.weight"] = next(products).T
            state[f"{theirs}.{at}.bias"] = values[f"{ours}.{there}.bias"]
        for scale in (1, 2):
            state[f"{theirs}.layer_scale{scale}.lambda1"] = values[f"{ours}.ls{scale}.gamma"]
    left = module.load_state_dict(
        {name: torch.tensor(value.copy()) for name, value in state.items()}, strict=False
    )
    assert set(left.missing_keys) <= {
        "embeddings.mask_token",
        "layernorm.weight",
        "layernorm.bias",
    }
    encoder = load_encoder("dinov2-s14@336")
    images = pictures(336, n=1)
    with torch.inference_mode():
        states = module(torch.tensor(images), output_hidden_states=True).hidden_states[1:]
    wanted = torch.cat([state[:, 0] for state in states], dim=1).numpy()
    np.testing.assert_allclose(encoder.encode(images), wanted, rtol=1e-3, atol=1e-3)


def test_names_with_a_size(tmp_path, monkeypatch):
    assert split_form("owner/model@448") == ("owner/model", Form(448))
    assert split_form("user@host") == ("user@host", Form())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vit@336").mkdir()
    assert split_form("vit@336") == ("vit@336", Form())
    assert known_digest("dinov2-s14") == known_digest("dinov2-s14@224") == DINO.sha256
    assert known_digest("dinov2-s14@336") != DINO.sha256
    assert known_digest("owner/model@336") is None


def test_sizes_that_cannot_be_are_refused(exported):
    for path in exported:
        for size in (SIZE + 1, PATCH, 100 * SIZE, 0):
            with refused("size-unsupported", EncoderError):
                load_encoder(f"{path}@{size}")


@pytest.mark.parametrize("size", ["", "abc", "-14", "336@336"])
def test_what_is_no_size_is_refused(size):
    with refused("size-unsupported", EncoderError):
        load_encoder(f"dinov2-s14@{size}")


def test_a_file_whose_positions_are_not_known_is_refused(tmp_path):
    path = tiny_onnx.write_encoder(tmp_path)
    with refused("size-unsupported", EncoderError):
        load_encoder(f"{path}@16")
    with refused("size-unsupported", EncoderError):
        resize_graph("tiny", tiny_onnx.model(), ["nothing"], 16)


def test_a_model_remembers_the_size(exported, tmp_path):
    _, file = exported
    photos = tiny_onnx.write_photos(tmp_path / "photos")
    taught = ImageClassifier(f"{file}@{2 * SIZE}", n_components=50, cache=False)
    taught.learn(photos)
    taught.save(tmp_path / "m.visvm")
    again = ImageClassifier.load(tmp_path / "m.visvm", cache=False)
    assert again.encoder_name == f"{file}@{2 * SIZE}"
    picture = next(photos.rglob("*.png"))
    assert again.predict([picture])[0].score == taught.predict([picture])[0].score
    with refused("encoder-mismatch"):
        ImageClassifier.load(tmp_path / "m.visvm", encoder=str(file), cache=False).predict(
            [picture]
        )
