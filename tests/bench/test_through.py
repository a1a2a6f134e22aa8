"""The methods that train through the encoder: what all of them hold to, and the answers of each."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.bench import small_vit  # noqa: E402
from tests.bench.small_vit import DEPTH, DIMS, SIDE, WIDTH, SmallEncoder, Stream  # noqa: E402
from tests.refusals import refused  # noqa: E402
from visvm.bench.kept import Kept  # noqa: E402
from visvm.bench.methods import METHODS, through  # noqa: E402
from visvm.bench.methods.coda_prompt import orthonormal, weights_of  # noqa: E402
from visvm.bench.methods.gradient import SGD, cross_entropy, numbers, tensor  # noqa: E402
from visvm.bench.methods.method import Setup  # noqa: E402
from visvm.bench.methods.prompting import cosines  # noqa: E402
from visvm.bench.pictures import random_view  # noqa: E402
from visvm.errors import EncoderError, InputError, MemoryLimitError  # noqa: E402

QUICK = {"epochs": 2, "learning_rate": 0.03, "batch_size": 12}
GIVEN = {
    "ranpac": {"epochs": 2, "n_components": 60},
    "vis+adapter": {"epochs": 2, "n_components": 60},
    "dualprompt": QUICK,
    "coda-prompt": {**QUICK, "n_new": 3},
    "l2p": QUICK,
}
PROMPTS = ("dualprompt", "coda-prompt", "l2p")
SEEING = [name for name, entry in METHODS.items() if "images" in entry.needs]


def learned(name, *sessions, **given):
    stream = Stream(name, **{**GIVEN[name], **given})
    for classes in sessions or ((0, 1, 2), (3, 4), (5,)):
        stream.learn(*classes)
    return stream


def test_all_are_tried_here():
    assert sorted(GIVEN) == sorted(SEEING)


@pytest.mark.parametrize("name", SEEING)
def test_each_image_is_answered_for_itself_and_the_encoder_stays(name):
    stream = learned(name, (0, 1, 2), (3, 4, 5))
    assert stream.encoder.built.digest == SmallEncoder().built.digest
    whole = np.array(stream.answers())
    assert set(whole) <= set(range(6))
    order = np.random.default_rng(0).permutation(len(whole))[:21]  # no whole number of batches
    assert stream.answers(order) == whole[order].tolist()
    assert stream.answers(order[:1]) == whole[order[:1]].tolist()


@pytest.mark.parametrize("name", SEEING)
def test_a_session_of_one_class_and_a_class_that_returns(name):
    one = learned(name, (0,), (1,))
    assert set(one.answers()) <= {0, 1}
    again = learned(name, (0, 1), (2, 0))
    assert set(again.answers()) <= {0, 1, 2}


@pytest.mark.parametrize("name", SEEING)
def test_a_run_that_was_killed_goes_on_with_what_was_trained(name, tmp_path, monkeypatch):
    whole = learned(name, (0, 1), (2, 3), folder=tmp_path)
    wanted = whole.answers()
    assert wanted == learned(name, (0, 1), (2, 3)).answers()  # a truncated stream, and the seed
    monkeypatch.setattr(through, "descend", None)  # nothing is trained again
    again = learned(name, (0, 1), (2, 3), folder=tmp_path)
    assert again.answers() == wanted
    assert again.setup.kept.seconds > 0
    assert again.method.costs() == whole.method.costs()
    monkeypatch.undo()
    files = sorted((tmp_path / "kept").iterdir())
    files[-1].write_bytes(files[-1].read_bytes()[:-4])  # damaged: trained again
    assert learned(name, (0, 1), (2, 3), folder=tmp_path).answers() == wanted
    again.setup.kept.clear()
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("name", SEEING)
def test_another_seed_and_more_epochs_train_something_else(name):
    def found(**given):
        method = learned(name, (0, 1), **given).method
        state = method._state if name in PROMPTS else method._module
        return np.concatenate([each.ravel() for each in state.values()])

    plain = found()
    for given in ({"seed": 1}, {"epochs": 3}):
        assert not np.array_equal(plain, found(**given))


OPTIONS = [
    ("ranpac", {"module": "vpt"}),
    ("ranpac", {"module": "ssf"}),
    ("ranpac", {"augmentation": "views"}),
    ("vis+adapter", {"augmentation": "views"}),
    ("vis+adapter", {"n_blocks": 2}),
    ("vis+adapter", {"rank": 3}),
    ("vis+adapter", {"learning_rate": 0.01}),
    ("vis+adapter", {"identity_weight": 1.0}),
    ("vis+adapter", {"mixer": True}),
    ("dualprompt", {"pull": 1.0}),
    ("dualprompt", {"batch_size": 5}),
    ("coda-prompt", {"n_new": 2}),
    ("coda-prompt", {"learning_rate": 0.01}),
    ("l2p", {"pull": 1.0}),
    ("l2p", {"top": 2}),
    ("l2p", {"n_prompts": 6}),
]


@pytest.mark.parametrize(("name", "changed"), OPTIONS)
def test_every_option_changes_the_result(name, changed):
    def numbers_of(**given):
        stream = learned(name, (0, 1, 2), **given)
        if name in PROMPTS:
            return np.concatenate([each.ravel() for each in stream.method._state.values()])
        module = np.concatenate([each.ravel() for each in stream.method._module.values()])
        return np.append(module, stream.method.costs().trainable_parameters)

    assert not np.array_equal(numbers_of(), numbers_of(**changed))


WRONG = [
    ("ranpac", "module", "lora"),
    ("ranpac", "augmentation", "crop"),
    ("vis+adapter", "n_blocks", DEPTH + 1),
    ("vis+adapter", "rank", 0),
    ("vis+adapter", "identity_weight", -1),
    ("vis+adapter", "learning_rate", 0),
    ("vis+adapter", "mixer", 1),
    ("l2p", "top", 11),
    ("l2p", "n_prompts", 0),
    ("l2p", "pull", -1),
    ("dualprompt", "pull", -1),
    ("dualprompt", "batch_size", 0),
    ("dualprompt", "learning_rate", 0),
    ("coda-prompt", "n_new", 0),
    *((name, "epochs", -1) for name in GIVEN),
]


@pytest.mark.parametrize(("name", "option", "value"), WRONG)
def test_options_that_are_none_are_refused(name, option, value):
    setup = Setup(DIMS, np.asarray, trainable=SmallEncoder())
    with refused(f"parameter-{option.replace('_', '-')}", InputError):
        METHODS[name].make(setup, **{option: value})


@pytest.mark.parametrize("name", SEEING)
def test_what_is_missing_is_said_in_one_line(name, monkeypatch):
    with refused("encoder-not-trainable", EncoderError):
        METHODS[name].make(Setup(DIMS, np.asarray))
    if not torch.cuda.is_available():
        with refused("device-unusable", EncoderError):
            METHODS[name].make(Setup(DIMS, np.asarray, trainable=SmallEncoder()), device="cuda")
    stream = Stream(name, **GIVEN[name])
    with refused("pictures-missing", InputError):
        stream.method.learn(stream.features, stream.labels)
    monkeypatch.setattr(through, "available_bytes", lambda: 10**5)
    with refused("memory-training", MemoryLimitError):
        stream.learn(0, 1)


# training


def test_gradients_of_few_images_at_once_are_those_of_the_batch(monkeypatch):
    network, stream = small_vit.network(), Stream("l2p")
    rows = np.arange(20)

    def trained(size, held):
        monkeypatch.setattr(through, "MICRO_BATCH", size)
        monkeypatch.setattr(through, "HELD_BYTES", held)
        inputs = through.Inputs(network, stream.train.at(rows), 0)
        assert (inputs._held is not None) == bool(held)
        weights = tensor(np.ones((6, WIDTH))).requires_grad_()
        wanted = numbers(stream.labels[rows])

        def loss(tokens, places):
            return cross_entropy(network.onward(tokens, 0)[:, -1] @ weights.T, wanted[places])

        generator = np.random.default_rng(0)
        given = {"epochs": 2, "batch_size": 20, "generator": generator}
        through.lower(SGD([weights], 0.1, 0.0), loss, inputs, 20, **given)
        return weights.detach().numpy()

    whole = trained(20, 2**30)
    assert trained(3, 2**30) == pytest.approx(whole, abs=1e-5)
    assert trained(3, 0) == pytest.approx(whole, abs=1e-5)


def test_random_views_are_parts_of_the_picture():
    ramp = np.broadcast_to(np.arange(SIDE, dtype=np.float32), (3, SIDE, SIDE))
    generator = np.random.default_rng(0)
    views = [random_view(ramp, generator) for _ in range(40)]
    assert all(view.shape == (3, SIDE, SIDE) and view.dtype == np.float32 for view in views)
    slopes = np.array([view[0, 0, -2] - view[0, 0, 1] for view in views])
    assert 10 < (slopes < 0).sum() < 30  # mirrored
    shares = np.abs(slopes) / (SIDE - 3)
    assert (shares.min() < 0.5, shares.max() > 0.85) == (True, True)


def test_what_is_kept_has_the_time_that_it_took(tmp_path):
    kept = Kept(tmp_path / "a" / "b")
    made = {"x": np.arange(3, dtype=np.float32)}
    assert kept.once("one", lambda: made) is made
    assert kept.seconds == 0.0
    found = kept.once("one", lambda: pytest.fail("made again"))
    assert found["x"].tolist() == [0, 1, 2]
    assert kept.seconds > 0
    (file,) = (tmp_path / "a" / "b").iterdir()
    kept.once("bad", lambda: {"x": np.array([np.nan], dtype=np.float32)})
    assert kept.once("bad", lambda: made) is made
    file.unlink()
    kept.clear()
    assert not (tmp_path / "a").exists()


# RanPAC, and ours


def test_ranpac_without_training_is_its_head():
    stream, head = learned("ranpac", epochs=0), Stream("ranpac-head", n_components=60)
    for classes in ((0, 1, 2), (3, 4), (5,)):
        rows = np.isin(head.labels, classes)
        head.method.learn(head.features[rows], head.labels[rows])
    assert stream.answers() == head.method.predict(head.test_features).tolist()


def test_our_adapter_without_training_is_the_last_block_with_the_kernel():
    stream = learned("vis+adapter", epochs=0)
    plain = Stream("visual-lssvm+kernel", n_components=60)
    for classes in ((0, 1, 2), (3, 4), (5,)):
        rows = np.isin(plain.labels, classes)
        plain.method.learn(plain.features[rows], plain.labels[rows])
    assert stream.answers() == plain.method.predict(plain.test_features).tolist()


@pytest.mark.parametrize("name", ["ranpac", "vis+adapter"])
def test_after_the_first_session_the_module_stays(name):
    stream = learned(name, (0, 1, 2))
    before = {key: each.copy() for key, each in stream.method._module.items()}
    digest = stream.method._encoder.digest
    stream.learn(3, 4)
    assert all((before[key] == each).all() for key, each in stream.method._module.items())
    assert stream.method._encoder.digest == digest
    n = sum(each.size for each in before.values())
    assert stream.method.costs().trainable_parameters == n
    assert n == {"ranpac": 5 * (2 * 64 * WIDTH + 64 + WIDTH)}.get(name, 4 * (129 * WIDTH + 64))


def test_training_tells_the_classes_of_the_first_session_apart():
    """Features of the adapted encoder are farther apart between classes, beside within them."""

    def spread(features, labels):
        means = np.stack([features[labels == label].mean(axis=0) for label in range(4)])
        return means.std(axis=0).sum() / (features - means[labels]).std(axis=0).sum()

    stream = learned("vis+adapter", (0, 1, 2, 3), epochs=15, learning_rate=0.01)
    rows = np.flatnonzero(stream.test_labels < 4)
    adapted = stream.test.at(rows).encode(stream.method._encoder)[:, -WIDTH:]
    frozen, labels = stream.test_features[rows, -WIDTH:], stream.test_labels[rows]
    assert spread(adapted, labels) > 1.1 * spread(frozen, labels)


@pytest.mark.parametrize(
    ("setting", "kind"),
    [("cub200", "adapter"), ("imagenet-r-half", "ssf"), ("cars", "vpt")],
)
def test_ranpac_takes_the_module_that_was_published(setting, kind):
    setup = Setup(DIMS, np.asarray, setting=setting, trainable=SmallEncoder())
    assert METHODS["ranpac"].make(setup).kind == kind


# prompts


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts_learn_their_first_session(name):
    stream = learned(name, (0, 1, 2), epochs=12)
    rows = np.flatnonzero(stream.test_labels < 3)
    assert np.mean(np.array(stream.answers(rows)) == stream.test_labels[rows]) > 0.6


@pytest.mark.parametrize("name", ["dualprompt", "coda-prompt"])
def test_what_earlier_sessions_trained_stays(name):
    stream = learned(name, (0, 1, 2))
    before = {key: each.copy() for key, each in stream.method._state.items()}
    after = stream.learn(3, 4).method._state
    own = [key for key in before if key.endswith(".1")]
    assert own
    assert all((before[key] == after[key]).all() for key in own)
    assert (after["head"][:3] == before["head"]).all()
    assert (after["bias"][:3] == before["bias"]).all()
    assert all(np.abs(after["head"][row]).max() > 0 for row in (3, 4))


def test_dualprompt_has_the_parameters_of_its_paper_and_begins_with_the_last_prompt():
    stream = learned("dualprompt", (0, 1), (2, 3), epochs=0)
    state = stream.method._state
    assert state["general"].shape == (2, 2, 5, WIDTH)
    assert state["expert.1"].shape == (3, 2, 5, WIDTH)
    assert (state["expert.1"] == state["expert.2"]).all()
    assert not (state["key.1"] == state["key.2"]).all()
    n = 20 * WIDTH + 2 * 30 * WIDTH + 2 * WIDTH + 4 * (WIDTH + 1)
    assert stream.method.costs().trainable_parameters == n
    trained = learned("dualprompt", (0, 1)).method._state
    assert not (trained["general"] == state["general"]).all()


def test_dualprompt_takes_the_prompt_whose_key_is_nearest(monkeypatch):
    assert cosines(tensor([[3.0, 4.0]]), tensor([[1.0, 0.0]])).item() == pytest.approx(0.6)
    stream = learned("dualprompt", (0, 1), (2, 3))
    state, seen = stream.method._state, []
    onward = stream.encoder.built.onward
    monkeypatch.setattr(
        stream.encoder.built,
        "onward",
        lambda tokens, level, added: seen.append(added) or onward(tokens, level, added),
    )
    stream.answers(np.arange(5))
    queries = stream.encoder.project(stream.test_features[:5, -WIDTH:])
    keys = np.stack([state["key.1"], state["key.2"]])
    units = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (queries, keys)]
    chosen = (units[0] @ units[1].T).argmax(axis=1)
    for row, choice in enumerate(chosen):
        for place, block in enumerate((2, 3, 4)):
            for part in (0, 1):
                wanted = state[f"expert.{choice + 1}"][place, part]
                assert (seen[0].prefixes[block][part][row].numpy() == wanted).all()


@pytest.mark.parametrize(
    ("name", "keys", "pull"),
    [
        ("dualprompt", {"key.1": [2.0, 0.0]}, -0.06),
        ("l2p", {"keys": [[2, 0], [0, 3], [-1, 0]]}, -0.14),
    ],
)
def test_the_loss_is_lower_by_a_tenth_of_the_cosines_with_the_keys_taken(name, keys, pull):
    """(3, 4) has the cosine 0.6 with (2, 0) and 0.8 with (0, 3)."""
    more = {"n_prompts": 3, "top": 2} if name == "l2p" else {}
    method = learned(name, (0, 1), epochs=0, **more).method
    parts = {key: tensor(each) for key, each in method._state.items()}
    parts |= {
        key: torch.nn.functional.pad(tensor(each), (0, WIDTH - 2)) for key, each in keys.items()
    }
    tokens, query = torch.zeros(1, 5, WIDTH), np.pad([[3.0, 4.0]], ((0, 0), (0, WIDTH - 2)))
    _, found = method._prompted(tokens, query.astype(np.float32), parts, 1)
    assert found.item() == pytest.approx(pull)


def test_coda_sums_the_components_of_all_sessions(monkeypatch):
    stream = learned("coda-prompt", (0, 1), (2, 3))
    state, seen, network = stream.method._state, [], stream.encoder.built
    onward = network.onward
    monkeypatch.setattr(
        network,
        "onward",
        lambda tokens, level, added: seen.append(added) or onward(tokens, level, added),
    )
    stream.answers(np.arange(3))
    queries = stream.encoder.project(stream.test_features[:3, -WIDTH:])
    for block in range(5):
        components, keys, attention = (
            np.concatenate([state[f"{block}.{part}.{each}"] for each in (1, 2)])
            for part in ("components", "keys", "attention")
        )
        for row, query in enumerate(queries):
            asked = query * attention
            lengths = np.linalg.norm(asked, axis=1) * np.linalg.norm(keys, axis=1)
            prompt = np.einsum("m,mld->ld", (asked * keys).sum(axis=1) / lengths, components)
            for place, part in enumerate((prompt[:4], prompt[4:])):
                found = seen[0].prefixes[block][place][row].numpy()
                assert found == pytest.approx(part, abs=1e-5)


def test_components_of_coda_are_weighted_by_the_query():
    found = weights_of(
        tensor([[1.0, 2.0]]), tensor([[1.0, 0.0], [1.0, 1.0]]), tensor([[1.0, 0.0], [3.0, 4.0]])
    )
    assert found[0].tolist() == pytest.approx([1.0, 0.98387], abs=1e-5)


def test_new_components_are_orthonormal_to_earlier_ones_as_far_as_there_is_room():
    generator = np.random.default_rng(0)
    first = orthonormal(np.empty((0, 7), np.float32), 3, generator)
    both = np.vstack([3.0 * first, orthonormal(3.0 * first, 3, generator)])
    assert both @ both.T == pytest.approx(np.diag([9.0] * 3 + [1.0] * 3), abs=1e-5)
    more = orthonormal(both, 3, generator)
    assert np.linalg.norm(more, axis=1) == pytest.approx(1.0)
    assert both @ more[0] == pytest.approx(0.0, abs=1e-5)


def test_l2p_takes_the_prompts_nearest_to_each_image(monkeypatch):
    stream = learned("l2p", (0, 1))
    state, seen, network = stream.method._state, [], stream.encoder.built
    onward = network.onward
    monkeypatch.setattr(
        network, "onward", lambda tokens, level: seen.append(tokens) or onward(tokens, level)
    )
    stream.answers(np.arange(3))
    queries = network.tail(torch.tensor(stream.test_features[:3, -WIDTH:])).numpy()
    keys = state["keys"] / np.linalg.norm(state["keys"], axis=1, keepdims=True)
    for row, query in enumerate(queries):
        chosen = (keys @ query).argsort()[::-1][:5]
        wanted = state["prompts"][chosen].reshape(-1, WIDTH)
        assert seen[0][row, 1:26].numpy() == pytest.approx(wanted)
    assert seen[0].shape == (3, 5 + 25, WIDTH)
    assert state["prompts"].size + state["keys"].size == 10 * 5 * WIDTH + 10 * WIDTH
