"""What is refused of a folder or a name of the hub, in one line."""

import sys

import pytest

from tests.encoders.refusals import refused_naming as refused
from tests.encoders.towers import DEPTH, PROCESSOR, save, tiny
from visvm.encoders.huggingface import TransformersEncoder, _preprocessing
from visvm.errors import EncoderError, WeightsError

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {
                "size": {"shortest_edge": 256},
                "crop_size": {"height": 224, "width": 224},
                "do_center_crop": True,
            },
            (224, 256),
        ),
        ({"size": 224, "crop_size": 224}, (224, 224)),
        ({"size": {"height": 384, "width": 384}}, (384, 384)),
        ({"size": 256, "crop_size": 224, "do_center_crop": False}, (256, 256)),
        ({"size": 256, "crop_size": None, "do_center_crop": None}, (256, 256)),
    ],
)
def test_shapes_of_size_and_crop_size(given, expected):
    found = _preprocessing({**PROCESSOR, **given}, "x:")
    assert (found.size, found.resize) == expected
    assert (found.mean, found.std) == ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"size": {"height": 16, "width": 32}}, (": size", "[16, 32]")),
        ({"size": None}, (": size", "None")),
        ({"do_center_crop": True}, ("crop_size", "None")),
        ({"crop_size": 32}, ("size 16", "crop_size 32")),
        ({"image_mean": None}, ("mean None",)),
        ({"image_mean": [0.5, "0.5", 0.5]}, ("mean [0.5, '0.5', 0.5]",)),
        ({"image_std": [1, 1]}, ("std [1, 1]",)),
        ({"image_std": [1, 1, 0]}, ("std [1, 1, 0]",)),
        ({"size": 32}, ("16", "32")),
    ],
)
def test_preprocessing_is_never_guessed(given, facts, tmp_path):
    folder = save(tiny("vit"), tmp_path, {**PROCESSOR, **given})
    with refused("preprocessing-invalid", EncoderError, "preprocessor_config.json", *facts):
        TransformersEncoder(folder)


@pytest.mark.parametrize("given", [{"rescale_factor": 1.0}, {"do_normalize": False}])
def test_other_preprocessing_is_refused(given, tmp_path):
    folder = save(tiny("vit"), tmp_path, {**PROCESSOR, **given})
    with refused("preprocessing-unsupported", EncoderError, "1/255"):
        TransformersEncoder(folder)


def test_missing_preprocessing_is_refused(tmp_path):
    with refused("preprocessing-missing", EncoderError, "preprocessor_config.json"):
        TransformersEncoder(save(tiny("vit"), tmp_path, processor=None))


def test_sources_that_are_no_encoder(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert/config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.json").write_text("{")
    # as without a network, but without its retries
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for source, code, kind, fact in [
        (tmp_path / "nowhere", "encoder-unknown", EncoderError, "owner/model"),
        (tmp_path / "empty", "encoder-config-missing", EncoderError, "config.json"),
        (tmp_path / "bert", "encoder-kind-unsupported", EncoderError, "'bert'"),
        (tmp_path / "broken", "weights-unreadable", WeightsError, "config.json"),
        ("nobody/no-such-model", "weights-unreadable", WeightsError, "config.json"),
    ]:
        with refused(code, kind, str(source), fact):
            TransformersEncoder(source)


@pytest.mark.parametrize("family", ["clip", "siglip", "dinov2", "dinov2, registers", "vit"])
def test_every_weight_up_to_the_last_block_must_be_there(family, tmp_path):
    from safetensors.torch import load_file, save_file

    save(tiny(family), tmp_path)
    complete = load_file(tmp_path / "model.safetensors")

    def load(weights):
        save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
        return TransformersEncoder(tmp_path)

    digest = load(complete).digest
    unused = ("pooler", "head.", "post_layernorm", "mask_token")
    rest = {
        key: value
        for key, value in complete.items()
        if not any(part in key for part in unused)
        and not key.removeprefix("vision_model.").startswith("layernorm.")
    }
    assert len(rest) < len(complete)
    assert load(rest).digest == digest
    # the first of every kind of weight: embeddings, norms, and all of the last block
    for key in [
        key for key in rest if "embedding" in key or "layrnorm" in key or f".{DEPTH - 1}." in key
    ]:
        with refused("weights-incomplete", WeightsError, "parameters: 1)"):
            load({other: value for other, value in rest.items() if other != key})
    key = next(key for key in rest if "mlp.fc1.weight" in key or "intermediate" in key)
    with refused("weights-incomplete", WeightsError):
        load({**rest, key: torch.zeros(3, 3)})
    with refused("weights-not-finite", WeightsError):
        load({**rest, key: rest[key] * float("nan")})


def test_damaged_or_absent_weights(tmp_path):
    folder = save(tiny("vit"), tmp_path)
    whole = (folder / "model.safetensors").read_bytes()
    for damage in (whole[: len(whole) // 2], b"", b"not weights at all"):
        (folder / "model.safetensors").write_bytes(damage)
        with refused("weights-unreadable", WeightsError):
            TransformersEncoder(folder)
    (folder / "model.safetensors").unlink()
    with refused("weights-unreadable", WeightsError):
        TransformersEncoder(folder)


def test_without_torch_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with refused("package-missing", EncoderError, "pip install 'visvm[torch]'"):
        TransformersEncoder(tmp_path)
