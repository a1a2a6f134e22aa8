"""The methods that train on text: the known answers of each."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.bench.joint_space import (  # noqa: E402
    DIMS,
    TAIL,
    WIDTH,
    Learner,
    draw,
    sessions_of,
    text_features,
)
from tests.refusals import refused  # noqa: E402
from visvm.bench.methods import METHODS, bofa, clg_cbm, gda, proof, rapf  # noqa: E402
from visvm.bench.methods.gradient import tensor  # noqa: E402
from visvm.bench.methods.method import Setup  # noqa: E402
from visvm.bench.methods.sums import ClassScatter  # noqa: E402
from visvm.encoders.joint import Tail  # noqa: E402
from visvm.encoders.texts import unit  # noqa: E402
from visvm.errors import EncoderError, InputError  # noqa: E402

X, Y = draw()
TEST, TEST_Y = draw(120, seed=1, spread=0.5)
SESSIONS = sessions_of(Y)
H, TEST_H = (TAIL.normed(rows[:, -WIDTH:]) for rows in (X, TEST))
ZERO_SHOT = unit(TAIL.project(TEST[:, -WIDTH:])) @ text_features().prototypes.T


def learned(name, n=3, **given):
    learner = Learner(name, **given)
    for rows in SESSIONS[:n]:
        learner.learn(X[rows], Y[rows])
    return learner


def agree(learner, scores):
    assert learner.predict(TEST).tolist() == scores.argmax(axis=1).tolist()


# GDA, and BOFA


def test_gda_of_sessions_is_that_of_all_images():
    rows = unit(H)
    sums = ClassScatter(WIDTH)
    for session in SESSIONS:
        sums.learn(rows[session], Y[session])
    means = np.stack([rows[label == Y].mean(axis=0) for label in range(6)])
    centred = rows - means[Y]
    cov = centred.T @ centred / (len(Y) - 1)
    precision = WIDTH * np.linalg.inv((len(Y) - 1) * cov + np.trace(cov) * np.eye(WIDTH))
    bias = -np.log(6) - 0.5 * np.einsum("ij,jk,ik->i", means, precision, means)
    wanted = rows @ precision @ means.T + bias
    assert gda.scores(rows, gda.discriminant(sums)) == pytest.approx(wanted)
    assert gda.scores(
        np.array([[0.6, 0.8]]), np.array([[5.4, -1.8], [1.8, 5.4], [-3.393147] * 2])
    ) == pytest.approx(np.array([[1.286853, -0.153147]]))


def test_bofa_without_training_and_statistics_is_zero_shot(monkeypatch):
    monkeypatch.setattr(bofa, "_SHARES", np.array([1.0]))
    learner = learned("bofa", statistical_weight=0.0, projection_epochs=0)
    method = learner.method
    assert method._total / 3 == pytest.approx(TAIL.matrix.T, abs=1e-6)
    agree(learner, ZERO_SHOT)


def test_bofa_with_statistics_alone_is_gda():
    learner = learned("bofa", statistical_weight=1.0, projection_epochs=1)
    agree(learner, gda.scores(unit(TEST_H), learner.method._coefficients))


def test_bofa_leaves_what_earlier_sessions_have_energy_in():
    tail = Tail(TAIL.matrix)
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(WIDTH, 5)))[0]
    inside = (X[:, -WIDTH:] @ basis @ basis.T).astype(np.float32)
    features = np.hstack([X[:, :-WIDTH], np.where(Y[:, None] < 3, inside, X[:, -WIDTH:])])
    learner = Learner("bofa", tail=tail, rank=4)
    first, second = (np.flatnonzero(chosen) for chosen in (Y < 3, Y >= 3))
    learner.learn(features[first], Y[first])
    settled = learner.method._total.copy()
    learner.learn(features[second], Y[second])
    moved = learner.method._total - settled - tail.matrix.T
    assert np.abs(moved).max() > 1e-3
    assert np.abs(moved @ basis).max() < 1e-6


@pytest.mark.parametrize("name", ["bofa", "engine"])
def test_training_without_statistics_beats_texts_that_say_little(name):
    texts = text_features(noise=1.5)
    epochs = "projection_epochs" if name == "bofa" else "adapter_epochs"
    options = {"statistical_weight": 0.0, "texts": texts}
    options |= {"rerank_weight": 0.0} if name == "engine" else {}
    right = [
        (
            learned(name, n=1, **{**options, epochs: n}).predict(TEST)[TEST_Y < 3]
            == TEST_Y[TEST_Y < 3]
        ).mean()
        for n in (0, 100)
    ]
    assert right[1] > right[0]
    assert right[1] > 0.8


def test_bofa_chooses_the_share_of_the_text_by_the_images_of_the_first_session():
    learner = learned("bofa", n=1)
    images = unit(H[SESSIONS[0]] @ TAIL.matrix)
    labels = Y[SESSIONS[0]]
    means = np.stack([H[SESSIONS[0]][labels == label].mean(axis=0) for label in range(3)])
    of_images, texts = unit(means @ TAIL.matrix), text_features().features[:3, 0]
    right = [
        ((images @ ((1 - share) * of_images + share * texts).T).argmax(axis=1) == labels).mean()
        for share in np.linspace(0, 1, 21)
    ]
    assert learner.method.costs().choices["text_share"] == np.linspace(0, 1, 21)[np.argmax(right)]


# RAPF


def test_fusion_keeps_what_has_changed_little():
    generator = np.random.default_rng(0)
    before, after = generator.normal(size=(2, 4, 4))
    assert rapf.fuse(before, after, 1.0) == pytest.approx(after)
    assert rapf.fuse(before, before, 0.3) == pytest.approx(before)
    left = np.linalg.svd(before)[0] * [1, -1, 1, -1]
    old, new = left.T @ before, left.T @ after
    share = np.minimum(1, np.abs(new - old) / np.abs(new - old).max() + 0.3)
    assert rapf.fuse(before, after, 0.3) == pytest.approx(left @ (new * share + old * (1 - share)))


def test_hard_pairs_are_those_of_near_texts():
    texts, old, new = (
        unit(np.random.default_rng(0).normal(size=(6, 3))),
        np.arange(4),
        np.arange(4, 6),
    )
    assert len(rapf.hard_pairs(texts, old, new, 0.0)) == 0
    assert len(rapf.hard_pairs(texts, old, new, 2.1)) == 8


def test_hinge_is_what_is_missing_to_the_margin():
    texts = tensor(np.array([[0.5, np.sqrt(0.75)], [0.45, np.sqrt(1 - 0.45**2)]]))
    rows = tensor(np.array([[[3.0, 0.0]]]))
    found = rapf.hinge(rows, tensor(np.eye(2)), texts, np.array([[0, 1]]))
    assert found.item() == pytest.approx(0.05, abs=1e-6)


def test_rapf_with_the_identity_is_zero_shot():
    learner = learned("rapf")
    learner.method._map = np.eye(4)
    agree(learner, ZERO_SHOT)


def test_rapf_learns_given_steps_enough(monkeypatch):
    monkeypatch.setitem(rapf.SETTINGS, "c3box", rapf._Setting(epochs=150, batch_size=40))
    monkeypatch.setattr(rapf, "steps", lambda *_: lambda _: 10.0)
    assert (learned("rapf").predict(TEST) == TEST_Y).mean() > 0.6


def test_rapf_rehearses_old_classes_in_turn():
    turn = rapf._Turn(np.arange(5), np.random.default_rng(0))
    first = np.concatenate([turn.next(2, 0) for _ in range(5)])
    assert np.bincount(first).tolist() == [2] * 5
    assert len(rapf._Turn(np.arange(0), np.random.default_rng(0)).next(2, 0)) == 0


# ENGINE


def test_engine_with_statistics_alone_is_gda():
    learner = learned("engine", statistical_weight=1.0, adapter_epochs=1)
    agree(learner, gda.scores(unit(TEST_H), learner.method._coefficients))


def test_engine_with_identities_is_zero_shot():
    learner = learned("engine", statistical_weight=0.0, rerank_weight=0.0, adapter_epochs=0)
    learner.method._maps = [np.eye(4, 5)] * 2
    agree(learner, ZERO_SHOT)


def test_engine_adds_maps_and_says_whether_pairs_were_described():
    one, two = (learned("engine", n=n, adapter_epochs=0) for n in (1, 2))
    assert two.method.costs().trainable_parameters == 2 * one.method.costs().trainable_parameters
    assert one.method.costs().trainable_parameters == 2 * 4 * 5
    assert not np.allclose(one.method._maps[0], two.method._maps[0])
    assert one.method.costs().choices == {"descriptions": True, "setting": "others"}
    bare = learned("engine", texts=text_features(phrases=False), adapter_epochs=1)
    assert bare.method.costs().choices["descriptions"] is False


def test_the_rerank_is_the_cosine_with_what_tells_the_best_apart():
    learner = learned("engine", adapter_epochs=0)
    texts, f = text_features(), TAIL.project(TEST[:8, -WIDTH:])
    scores = np.random.default_rng(0).normal(size=(8, 6))
    found = learner.method._reranked(f, scores)
    said = texts.phrases
    for row in range(8):
        top = np.argsort(-scores[row])[:5]
        for label in range(6):
            if label not in top:
                assert found[row, label] == 0
                continue
            beside = [
                said.features[(said.classes == [label, other]).all(axis=1)].mean(axis=0)
                for other in top
                if other != label
            ]
            assert found[row, label] == pytest.approx(
                unit(np.sum(beside, axis=0)) @ unit(f[row]), abs=1e-6
            )


# CLG-CBM


def test_alignment_and_elastic_net():
    explained, similar = tensor(np.array([[1, 2], [2, 1]])), tensor(np.array([[1, 1], [2, -1]]))
    assert clg_cbm.alignment(similar, explained).item() == pytest.approx(-0.806970, abs=1e-6)
    assert clg_cbm.alignment(similar, similar).item() == pytest.approx(-1.0)
    found = clg_cbm.elastic(tensor(np.array([[1, -2], [0, 3]])))
    assert found.item() == pytest.approx(0.00601, abs=1e-6)


def test_all_concepts_are_kept_where_no_more_are_offered(monkeypatch):
    monkeypatch.setattr(clg_cbm, "_PER_CLASS", 12)
    learner = learned("clg-cbm", n=1, bottleneck_epochs=1)
    said = text_features().phrases
    wanted = said.features[(said.classes[:, 1] < 0) & (said.classes[:, 0] < 3)]
    assert learner.method._concepts == pytest.approx(wanted)
    fewer = learned("clg-cbm", n=1, choice_epochs=1, bottleneck_epochs=1)
    monkeypatch.setattr(clg_cbm, "_PER_CLASS", 10)
    assert learned("clg-cbm", n=2, choice_epochs=2, bottleneck_epochs=1).method.costs().choices == {
        "concepts": 40
    }
    assert len(fewer.method._concepts) == 36


def test_growing_leaves_old_scores_as_they_were(monkeypatch):
    learner = learned("clg-cbm", n=1, choice_epochs=1, bottleneck_epochs=1)
    method = learner.method
    before = TEST[:, -WIDTH:] @ TAIL.matrix @ method._explainer.T @ method._head.T
    monkeypatch.setattr(clg_cbm.CLGCBM, "_train", lambda *_: None)
    learner.learn(X[SESSIONS[1]], Y[SESSIONS[1]])
    grown = method._head[:3, :30]
    after = TEST[:, -WIDTH:] @ TAIL.matrix @ method._explainer[:30].T @ grown.T
    assert after == pytest.approx(before)
    assert method._explainer.shape == (40, 4)


def test_without_concepts_it_is_refused():
    with refused("concepts-missing", EncoderError):
        learned("clg-cbm", texts=text_features(phrases=False))


# PROOF


def test_products_are_those_of_attention_over_all_tokens_of_each_image():
    generator = np.random.default_rng(0)
    attention = proof.Attention.start(5, generator)
    for place in (4, 5, 6):  # biases and gain are no longer those of the start
        attention.weights[place] += 0.5 * tensor(generator.normal(size=5))
    images, shared = (tensor(generator.normal(size=(n, 5))) for n in (3, 7))
    own, products = attention(images, shared)
    q, k, v, output, bias, gain, shift = attention.weights
    for place, image in enumerate(images):
        tokens = torch.cat([image[None], shared])
        weights = torch.softmax((tokens @ q.T) @ (tokens @ k.T).T / np.sqrt(5), dim=1)
        plain = weights @ (tokens @ v.T) @ output.T + bias + tokens
        normed = torch.nn.functional.layer_norm(plain, (5,), gain, shift)
        assert own[place].tolist() == pytest.approx(normed[0].tolist(), abs=1e-5)
        wanted = (normed[1:] @ normed[0]).numpy()
        assert products[place].numpy() == pytest.approx(wanted, abs=1e-5)


def test_attention_that_puts_out_nothing_is_the_norm_of_its_input():
    attention = proof.Attention.start(4, np.random.default_rng(0))
    attention.weights[3] = torch.zeros(4, 4)
    images, shared = (tensor(np.random.default_rng(1).normal(size=(n, 4))) for n in (2, 3))
    own, products = attention(images, shared)
    plain, beside = (torch.nn.functional.layer_norm(rows, (4,)) for rows in (images, shared))
    assert own.numpy() == pytest.approx(plain.numpy())
    assert products.numpy() == pytest.approx((plain @ beside.T).numpy(), abs=1e-5)


def test_proof_learns_given_steps_enough():
    learner = learned("proof (20 exemplars)", fusion_epochs=150)
    assert (learner.predict(TEST) == TEST_Y).mean() > 0.6


def test_proof_counts_what_it_trains():
    learner = learned("proof", n=2, fusion_epochs=1)
    p, attention = 4, 4 * 16 + 3 * 4
    each = 2 * p * (p + 1) + 3 * p
    assert learner.method.costs().trainable_parameters == attention + 2 * each
    # of CLIP ViT-B/16, as published: two maps, attention, prompts; and its scale, frozen here
    assert 2 * (512 * 512 + 512) + 4 * 512**2 + 3 * 512 + 3 * 512 == 1_576_961 - 1


def test_published_settings_are_those_of_the_data_set_and_protocol():
    wanted = {"cifar100-half": ("cifar100", 5, 64), "food101-half": ("food101-half", 5, 32)}
    wanted |= {"food101": ("others", 10, 64), "imagenet-r": ("imagenet-r", 10, 48)}
    for setting, (name, epochs, size) in wanted.items():
        method = METHODS["proof"].make(Setup(DIMS, TAIL.project, setting=setting))
        found = (method.proof_setting, method.fusion_epochs, method._how.batch_size)
        assert found == (name, epochs, size)


def test_the_maps_of_sessions_add_up():
    learner = learned("proof", fusion_epochs=1)
    method = learner.method
    f = tensor(TAIL.project(TEST[:5, -WIDTH:]))
    method._maps = [np.eye(4, 5)] * 2
    once = [each.numpy() for each in method._parts(f)]
    cosines = unit(f.numpy()) @ text_features().prototypes.T
    assert once[0] == pytest.approx(100 * cosines, abs=1e-3)
    assert sorted(method._prompts.shape) == [4, 9]


def test_exemplars_are_kept_only_where_the_name_says_so():
    plain, replay = (
        learned(name, fusion_epochs=1).method for name in ("proof", "proof (20 exemplars)")
    )
    assert not plain._memory
    assert {label: len(rows) for label, rows in replay._memory.items()} == dict.fromkeys(
        range(6), 15
    )
    assert replay.costs().choices == {"setting": "others", "exemplars": 20}
    assert replay.costs().state_bytes > plain.costs().state_bytes


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("bofa", "statistical_weight", 1.5),
        ("bofa", "rank", 0),
        ("bofa", "projection_epochs", -1),
        ("rapf", "rapf_setting", "none"),
        ("engine", "engine_setting", "none"),
        ("engine", "rerank_weight", -0.1),
        ("engine", "adapter_epochs", -1),
        ("clg-cbm", "bottleneck_epochs", 0),
        ("proof", "fusion_epochs", 0),
        ("proof", "proof_setting", "none"),
    ],
)
def test_bad_options_are_refused(name, option, value):
    with refused(f"parameter-{option.replace('_', '-')}", InputError):
        Learner(name, **{option: value})


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("bofa", "statistical_weight", 0.9),
        ("bofa", "rank", 2),
        ("bofa", "projection_epochs", 1),
        ("rapf", "rapf_setting", "cub200"),
        ("engine", "engine_setting", "cub200"),
        ("engine", "statistical_weight", 0.1),
        ("engine", "rerank_weight", 0.0),
        ("engine", "adapter_epochs", 1),
        ("clg-cbm", "choice_epochs", 1),
        ("clg-cbm", "bottleneck_epochs", 3),
        ("proof", "fusion_epochs", 1),
        ("proof", "proof_setting", "aircraft-half"),
    ],
)
def test_every_option_changes_the_answers(name, option, value):
    features, _ = draw(90, seed=0, spread=2.5)
    hard, _ = draw(400, seed=6, spread=2.5)
    answers = []
    for options in ({}, {option: value}):
        learner = Learner(name, **options)
        for rows in SESSIONS:
            learner.learn(features[rows], Y[rows])
        answers.append(learner.predict(hard).tolist())
    assert answers[0] != answers[1]


def test_encoders_without_a_tail_are_refused():
    for name in ("bofa", "engine"):
        with refused("tail-missing", EncoderError):
            METHODS[name].make(Setup(DIMS, TAIL.project))
