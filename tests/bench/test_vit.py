"""The network that is trained through: the encoder's own features, and what may be put in it."""

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from scipy.special import ndtr

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.bench import small_vit  # noqa: E402
from tests.bench.exported import exported  # noqa: E402
from tests.bench.small_vit import DEPTH, DIMS, HALF, HEADS, SIDE, WIDTH, SmallEncoder  # noqa: E402
from tests.encoders import test_open_clip as checkpoints  # noqa: E402
from tests.encoders.test_huggingface import VIT_TINY, needs_vit_tiny, real_pixels  # noqa: E402
from tests.encoders.towers import PROCESSOR, SIZE, save, tiny  # noqa: E402
from tests.refusals import refused  # noqa: E402
from visvm.bench.vit import modules  # noqa: E402
from visvm.bench.vit.adapted import AdaptedEncoder  # noqa: E402
from visvm.bench.vit.graphs import from_graph  # noqa: E402
from visvm.bench.vit.network import Added, Network, attend  # noqa: E402
from visvm.bench.vit.trainable import trainable  # noqa: E402
from visvm.encoders import weights  # noqa: E402
from visvm.encoders.huggingface import TransformersEncoder  # noqa: E402
from visvm.encoders.loading import load_encoder  # noqa: E402
from visvm.encoders.onnx import OnnxEncoder  # noqa: E402
from visvm.encoders.open_clip import load_checkpoint  # noqa: E402
from visvm.errors import EncoderError, WeightsError  # noqa: E402


def pixels(n=3, side=SIDE):
    return np.random.default_rng(1).normal(size=(n, 3, side, side)).astype(np.float32)


def agree(network, encoder, n=3):
    """Block outputs to 1e-4, and the encoder's own output likewise."""
    given = pixels(n, encoder.preprocessing.size)
    wanted = encoder.encode(given)
    with torch.no_grad():
        found = network.layers(torch.tensor(given)).numpy()
        put_out = network.tail(torch.tensor(found[:, -network.width :])).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    np.testing.assert_allclose(put_out, encoder.project(wanted[:, -network.width :]), atol=1e-4)
    assert network.output_width == put_out.shape[1]


# the weights


@pytest.mark.parametrize(
    "family", ["clip, both towers", "dinov2", "dinov2, registers", "vit", "vit, with classifier"]
)
def test_the_network_is_the_encoder_of_transformers(family, tmp_path):
    encoder = TransformersEncoder(save(tiny(family), tmp_path))
    network = trainable(encoder).network()
    assert network.activation == ("quick_gelu" if family.startswith("clip") else "gelu")
    agree(network, encoder)


def test_the_network_takes_the_size_of_its_encoder(tmp_path):
    folder = save(tiny("dinov2"), tmp_path, {**PROCESSOR, "size": {"height": 24, "width": 24}})
    assert SIZE != 24
    encoder = TransformersEncoder(folder)
    agree(trainable(encoder).network(), encoder)


@pytest.mark.parametrize("quick", [False, True])
def test_the_network_is_that_of_an_open_clip_checkpoint(quick, tmp_path):
    state = checkpoints.state_of(checkpoints.Visual(quick=quick))
    config = {"model_cfg": {"quick_gelu": quick}}
    encoder = load_checkpoint(checkpoints.write(state, tmp_path / "model.pt", config))
    network = trainable(encoder).network()
    assert network.activation == ("quick_gelu" if quick else "gelu")
    agree(network, encoder)


@pytest.mark.parametrize("clip", [False, True])
def test_the_network_is_read_from_the_constants_of_a_graph(clip):
    content = exported(clip)
    network = from_graph(onnx.load_from_string(content), "added")
    assert network.activation == ("quick_gelu" if clip else "gelu")
    assert ("0.scale1" in network.weights) is not clip
    agree(network, OnnxEncoder("small", "0" * 64, content))


@needs_vit_tiny
def test_the_network_is_the_real_vit_tiny():
    encoder = TransformersEncoder(VIT_TINY)
    network, given = trainable(encoder).network(), real_pixels()
    with torch.no_grad():
        found = network.layers(torch.tensor(given)).numpy()
    np.testing.assert_allclose(found, encoder.encode(given), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dinov2-s14", "clip-b16-openai"])
def test_the_network_is_the_real_encoder_of_the_catalogue(name):
    if weights.find(name) is None:
        pytest.skip(f"the weights of {name} are not here")
    encoder = load_encoder(name)
    agree(trainable(encoder).network(), encoder, n=1)


def test_encoders_that_cannot_be_trained_through_are_known(tmp_path):
    from tests.tiny import write_encoder

    assert trainable(load_encoder(str(write_encoder(tmp_path)))) is None
    (tmp_path / "siglip").mkdir()
    assert trainable(TransformersEncoder(save(tiny("siglip"), tmp_path / "siglip"))) is None


@pytest.mark.parametrize("form", ["@224:72", "@224:int8", "@224:72:int8"])
def test_encoders_of_fewer_patches_or_in_int8_cannot_be_trained_through(form):
    assert trainable(SimpleNamespace(name=f"clip-b16-openai{form}")) is None


def test_weights_that_are_missing_are_refused(tmp_path):
    model = tiny("vit")
    encoder = TransformersEncoder(save(model, tmp_path))
    encoder._module.layernorm.weight.fill_(float("nan"))
    with refused("weights-not-finite", WeightsError):
        trainable(encoder).network()
    with refused("encoder-kind-unsupported", EncoderError):
        Network(small_vit.weights(), heads=2, activation="relu", epsilon=1e-6)


# what is put in it


def layers(network, added):
    with torch.no_grad():
        return network.layers(torch.tensor(pixels()), added).numpy()


def module(kind, network, **given):
    return modules.as_tensors(
        modules.drawn_module(kind, network, np.random.default_rng(0), **given)
    )


def test_an_untrained_adapter_changes_no_bit():
    network = small_vit.network(clip=True)
    parts = module("adapter", network, rank=6)
    assert (layers(network, modules.added("adapter", parts)) == layers(network, Added())).all()
    assert sum(part.numel() for part in parts.values()) == DEPTH * (2 * 6 * WIDTH + 6 + WIDTH)
    last = module("adapter", network, first=DEPTH - 2)
    assert modules.added("adapter", last).level == DEPTH - 2
    parts["4.up"] += 1.0
    changed = layers(network, modules.added("adapter", parts)) != layers(network, Added())
    assert changed.any(axis=0).reshape(DEPTH, WIDTH).any(axis=1).tolist() == [False] * 4 + [True]


def test_an_adapter_is_what_its_formula_says():
    down, up = torch.tensor([[1.0, -1.0]]), torch.tensor([[2.0], [3.0]])
    adapter = modules.added(
        "adapter",
        {"0.down": down, "0.down_bias": torch.zeros(1), "0.up": up, "0.up_bias": torch.ones(2)},
    ).adapters[0]
    assert adapter(torch.tensor([3.0, 1.0]), None).tolist() == pytest.approx([0.5, 0.7])
    assert adapter(torch.tensor([1.0, 3.0]), None).tolist() == pytest.approx([0.1, 0.1])
    kept = adapter(torch.tensor([3.0, 1.0]).expand(4000, 2), torch.Generator().manual_seed(0))
    assert (kept[:, 0] == 0.1).float().mean() == pytest.approx(0.1, abs=0.02)
    assert kept[:, 0].mean() == pytest.approx(0.5, abs=0.01)


def test_scales_of_one_and_shifts_of_zero_change_nothing_and_fold_into_the_weights():
    network = small_vit.network(clip=True, scaled=True)
    parts = module("ssf", network)
    plain = {name: torch.full_like(each, name.endswith("factor")) for name, each in parts.items()}
    wanted = layers(network, Added())
    np.testing.assert_allclose(layers(network, modules.added("ssf", plain)), wanted, atol=1e-6)
    added = modules.added("ssf", parts)
    found = layers(network, added)
    assert np.abs(found - wanted).max() > 0.01
    folded = network.folded(added)
    np.testing.assert_allclose(layers(folded, Added()), found, atol=1e-5)
    cls = torch.tensor(pixels()[:, 0, 0, :1].repeat(WIDTH, axis=1) + np.arange(WIDTH))
    assert folded.tail(cls.float()).numpy() == pytest.approx(
        network.tail(cls.float(), added).numpy(), abs=1e-4
    )
    sizes = 2 * DEPTH * (2 * WIDTH + 3 * WIDTH + WIDTH + 4 * WIDTH + WIDTH) + 2 * 3 * WIDTH
    assert sum(part.numel() for part in parts.values()) == sizes


def test_tokens_of_zeros_take_part_in_the_attention():
    network = small_vit.network()
    parts = module("vpt", network)
    assert sum(part.numel() for part in parts.values()) == DEPTH * 5 * WIDTH
    assert np.abs(layers(network, modules.added("vpt", parts)) - layers(network, Added())).max() > 0


def test_prefixes_join_keys_and_values():
    x = torch.tensor([[[1.0, 0.0]]])
    prefix = torch.tensor([[[1.0, 0.0]]])
    keys, values = (torch.cat([prefix, each], dim=1) for each in (x, torch.tensor([[[0.0, 1.0]]])))
    assert attend(x, keys, values, 1).flatten().tolist() == pytest.approx([0.5, 0.5])
    network = small_vit.network()
    none = {block: (torch.empty(1, 0, WIDTH),) * 2 for block in range(DEPTH)}
    assert (layers(network, Added(none)) == layers(network, Added())).all()
    # with one key beside it for all, every image's own answer stays its own
    some = {1: (torch.ones(1, 2, WIDTH), torch.ones(1, 2, WIDTH))}
    each = {1: tuple(part.expand(3, -1, -1) for part in some[1])}
    assert (layers(network, Added(some)) == layers(network, Added(each))).all()
    assert np.abs(layers(network, Added(some)) - layers(network, Added()))[:, WIDTH:].min() > 0


def test_a_block_with_prefixes_is_what_its_formula_says():
    network, block = small_vit.network(), DEPTH - 1
    generator = np.random.default_rng(2)
    tokens, prefix_keys, prefix_values = (
        generator.normal(size=(n, WIDTH)).astype(np.float32) for n in (5, 3, 3)
    )

    def linear(x, place):
        weight, bias = (network.weights[f"{block}.{place}.{part}"] for part in ("weight", "bias"))
        return x @ weight.numpy().T + bias.numpy()

    def norm(x, place):
        gain, bias = (network.weights[f"{block}.{place}.{part}"] for part in ("weight", "bias"))
        centred = x - x.mean(axis=-1, keepdims=True)
        root = np.sqrt(centred.var(axis=-1, keepdims=True) + network.epsilon)
        return centred / root * gain.numpy() + bias.numpy()

    queries, keys, values = np.split(linear(norm(tokens, "norm1"), "qkv"), 3, axis=1)
    keys, values = np.vstack([prefix_keys, keys]), np.vstack([prefix_values, values])
    heads = []
    for part in np.split(np.arange(WIDTH), HEADS):
        shares = np.exp(queries[0, part] @ keys[:, part].T / np.sqrt(len(part)))
        heads.append(shares @ values[:, part] / shares.sum())
    cls = tokens[0] + linear(np.concatenate(heads), "proj")
    inside = linear(norm(cls, "norm2"), "fc1")
    cls = cls + linear(inside * ndtr(inside), "fc2")
    added = Added({block: (torch.tensor(prefix_keys)[None], torch.tensor(prefix_values)[None])})
    found = network.onward(torch.tensor(tokens)[None], block, added)
    assert found.flatten().numpy() == pytest.approx(cls, abs=1e-4)


@pytest.mark.parametrize("level", [-1, 0, 3])
def test_what_enters_a_block_is_enough_to_go_on(level):
    network, given = small_vit.network(clip=True), torch.tensor(pixels())
    with torch.no_grad():
        found = network.onward(network.until(given, level), level).flatten(1).numpy()
        wanted = network.layers(given).numpy()
    assert (found == wanted[:, max(level, 0) * WIDTH :]).all()


@pytest.mark.parametrize("kind", modules.KINDS)
def test_an_adapted_encoder_is_an_encoder(kind):
    encoder = SmallEncoder()
    parts = modules.drawn_module(kind, encoder.built, np.random.default_rng(0))
    adapted = AdaptedEncoder(encoder, encoder.built, kind, parts)
    assert (adapted.layer_dims, adapted.preprocessing) == (DIMS, HALF)
    added = modules.added(kind, modules.as_tensors(parts))
    np.testing.assert_allclose(adapted.encode(pixels()), layers(encoder.built, added), atol=1e-5)
    assert adapted.project(pixels()[:, 0, :, 0][:, :1].repeat(WIDTH, 1)).shape == (3, WIDTH)
    name = next(iter(parts))
    others = {**parts, name: parts[name] + 1.0}
    digests = {
        AdaptedEncoder(encoder, encoder.built, kind, each).digest for each in (parts, others)
    }
    assert len({*digests, encoder.digest}) == 3
