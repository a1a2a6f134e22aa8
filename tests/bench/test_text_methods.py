"""The methods that lean on text: one contract for all, and the known answers of each."""

import numpy as np
import pytest

from tests.bench.joint_space import (
    DIMS,
    QUICK,
    RUNNING,
    TAIL,
    WIDTH,
    Learner,
    draw,
    sessions_of,
    text_features,
)
from tests.refusals import refused
from visvm.bench.methods import METHODS, vis_text
from visvm.bench.methods.method import Costs, Entry, Setup
from visvm.bench.methods.text import joint
from visvm.bench.plan import unmet
from visvm.encoders.joint import Tail
from visvm.encoders.texts import TextFeatures, unit
from visvm.errors import EncoderError, InputError

X, Y = draw()
TEST, TEST_Y = draw(120, seed=1, spread=0.5)
SESSIONS = sessions_of(Y)
SLOW = ("rapf", "proof", "proof (20 exemplars)")  # as published, they need thousands of steps
HERE = [name for name in RUNNING if not unmet(METHODS[name], "text", "concepts")]


def learned(name, sessions=SESSIONS, **given):
    learner = Learner(name, **given)
    for rows in sessions:
        learner.learn(X[rows], Y[rows])
    return learner


# The contract


@pytest.mark.parametrize("name", HERE)
def test_learns_with_the_encoder_and_the_features_untouched(name):
    kept, matrix = X.copy(), TAIL.matrix.copy()
    learner = Learner(name)
    for number, rows in enumerate(SESSIONS):
        learner.learn(X[rows], Y[rows])
        n_classes = (3, 4, 6)[number]
        predicted, known = learner.predict(TEST), n_classes > TEST_Y
        assert predicted.dtype == np.intp
        assert set(predicted.tolist()) <= set(range(n_classes))
        if name not in SLOW:
            assert (predicted[known] == TEST_Y[known]).mean() > 0.6
    assert np.array_equal(X, kept)
    assert np.array_equal(TAIL.matrix, matrix)
    costs = learner.method.costs()
    assert isinstance(costs, Costs)
    assert costs.state_bytes > 0


@pytest.mark.parametrize("name", HERE)
def test_answers_depend_neither_on_the_order_nor_on_the_batches_of_test_images(name):
    learner = learned(name, **QUICK.get(name, {}))
    wanted, order = learner.predict(TEST), np.random.default_rng(0).permutation(len(TEST))
    assert learner.predict(TEST[order]).tolist() == wanted[order].tolist()
    alone = [int(learner.predict(TEST[row : row + 1])[0]) for row in range(12)]
    assert alone == wanted[:12].tolist()


@pytest.mark.parametrize("name", HERE)
def test_one_seed_gives_one_answer_and_what_is_to_come_changes_none(name):
    options = QUICK.get(name, {})
    whole, short = Learner(name, **options), Learner(name, **options)
    for rows in SESSIONS[:2]:
        whole.learn(X[rows], Y[rows])
        short.learn(X[rows], Y[rows])
    before = whole.predict(TEST).tolist()
    assert short.predict(TEST).tolist() == before
    texts = text_features()
    cut = TextFeatures(
        texts.names[:4], texts.features[:4], phrases=texts.of(texts.names[:4]).phrases
    )
    assert learned(name, SESSIONS[:2], texts=cut, **options).predict(TEST).tolist() == before


@pytest.mark.parametrize("name", HERE)
def test_a_session_of_one_class_and_one_of_one_image(name):
    first, second = np.flatnonzero(Y == 0), np.flatnonzero(Y == 1)[:1]
    learner = learned(name, [first], **QUICK.get(name, {}))
    assert set(learner.predict(TEST).tolist()) == {0}
    learner.learn(X[second], Y[second])
    assert set(learner.predict(TEST).tolist()) <= {0, 1}


def test_texts_of_classes_that_have_not_arrived_are_refused():
    learner = learned("zs-clip", SESSIONS[:1])
    said = learner.method._setup.texts
    assert said.names(range(3)) == ["class 0", "class 1", "class 2"]
    for ask in (said.names, said.features, said.each, said.phrases):
        with refused("text-of-the-future"):
            ask([3])
        with refused("text-of-the-future"):
            ask([-1])
    assert said.phrases([0, 1]).classes.max() == 1
    assert {tuple(pair) for pair in said.phrases([0, 1]).classes.tolist()} == {
        *((0, -1), (1, -1)),
        *((0, 1), (1, 0)),
    }


# Zero-shot CLIP


def test_zero_shot_is_the_greatest_cosine_among_classes_seen():
    texts = text_features(n_prompts=1)
    cosines = unit(TAIL.project(TEST[:, -WIDTH:])) @ texts.features[:, 0].T
    learner = Learner("zs-clip", texts=texts)
    for rows, n_classes in zip(SESSIONS, (3, 4, 6), strict=True):
        learner.learn(X[rows], Y[rows])
        assert learner.predict(TEST).tolist() == cosines[:, :n_classes].argmax(axis=1).tolist()


def test_an_image_that_is_a_text_has_cosine_one_with_it():
    texts = text_features(n_prompts=1)
    rows = np.zeros((6, sum(DIMS)), np.float32)
    rows[:, -WIDTH:] = TAIL.preimage(texts.prototypes.astype(float))
    setup = Setup(DIMS, TAIL.project)
    cosines = joint(rows, setup) @ texts.prototypes.T
    assert np.diag(cosines) == pytest.approx(np.ones(6), abs=1e-5)
    assert learned("zs-clip", texts=texts).predict(rows).tolist() == list(range(6))


# Vis + Text


def options_of_vis(**changes):
    return {"n_components": 60, **changes}


def vis():
    method = METHODS["vis"].make(Setup(DIMS, TAIL.project), **options_of_vis())
    for rows in SESSIONS:
        method.learn(X[rows], Y[rows])
    return method


def test_text_of_no_weight_is_vis_bit_for_bit():
    plain, given = vis()._model, learned("vis+text", text_weight=0.0).method._model
    assert plain.statistics_.digest() == given.statistics_.digest()
    assert np.array_equal(plain.coefficients_, given.coefficients_)


def test_readings_share_what_the_base_session_settled(monkeypatch):
    monkeypatch.setattr(vis_text, "_SETTLED", {})
    first, second = (learned("vis+text", reading=each).method for each in ("preimage", "ridge"))
    assert first._setup.kept.seconds == 0 < second._setup.kept.seconds
    assert second._model.head_.settled is not first._model.head_.settled
    assert second._model.head_.settled.lift is first._model.head_.settled.lift
    other = learned("vis+text", n_components=50).method
    assert other._setup.kept.seconds == 0
    monkeypatch.setattr(vis_text, "_SETTLED", {})
    alone = learned("vis+text", reading="ridge").method._model
    assert np.array_equal(alone.coefficients_, second._model.coefficients_)


@pytest.mark.parametrize("reading", ["preimage", "ridge", "padded", "shifted"])
def test_text_is_a_sample_that_can_be_forgotten(reading):
    learner = learned("vis+text", reading=reading, text_weight=2.0)
    plain, sums = vis()._model, learner.method._model.statistics_
    rows = plain.kernel_map_.lift(learner.method.text_rows(range(6)))
    twice = plain.statistics_.copy()
    for _ in range(2):
        twice.add(rows.copy(), np.arange(6))
    assert sums.class_counts.tolist() == twice.class_counts.tolist()
    assert np.allclose(sums.gram, twice.gram, rtol=1e-9, atol=1e-9)
    left = sums.copy()
    left.subtract(rows.copy(), np.arange(6), np.full(6, 2.0))
    assert np.allclose(left.gram, plain.statistics_.gram, rtol=1e-9, atol=1e-9)
    assert np.allclose(left.class_sums, plain.statistics_.class_sums, rtol=1e-9, atol=1e-9)
    assert not np.allclose(sums.class_sums, plain.statistics_.class_sums)


def test_text_weighs_as_many_images_as_its_class_has_or_one_for_each_prompt():
    counts = np.bincount(Y).astype(float)
    by_images = learned("vis+text", text_weight="images").method._model.statistics_
    assert by_images.class_counts == pytest.approx(2 * counts)
    texts = text_features(n_prompts=3)
    by_prompts = learned("vis+text", text_weight="prompts", texts=texts).method
    assert by_prompts._model.statistics_.class_counts == pytest.approx(counts + 3)
    assert by_prompts.text_rows(range(6)).shape == (18, WIDTH)


def test_readings_are_what_they_are_said_to_be():
    texts = text_features()
    wanted, base = texts.prototypes.astype(float), X[SESSIONS[0]].astype(float)
    rows = {
        reading: learned("vis+text", reading=reading, texts=texts).method.text_rows(range(6))
        for reading in ("preimage", "ridge", "padded", "shifted")
    }
    assert unit(TAIL.project(rows["preimage"])) == pytest.approx(wanted, abs=1e-4)
    assert np.array_equal(rows["padded"][:, 4:], np.zeros((6, WIDTH - 4)))
    assert unit(rows["padded"][:, :4]) == pytest.approx(wanted, abs=1e-6)
    images = vis()._model.mixer_.fuse(base)
    for reading in ("preimage", "padded"):
        lengths = np.linalg.norm(rows[reading][:3], axis=1).mean()
        assert lengths == pytest.approx(np.linalg.norm(images, axis=1).mean())
    moved = rows["shifted"] - rows["preimage"]
    assert moved == pytest.approx(np.tile(moved[:1], (6, 1)))
    assert rows["shifted"][:3].mean(axis=0) == pytest.approx(images.mean(axis=0))
    f = unit(TAIL.project(base[:, -WIDTH:]))
    shift = 0.01 * np.trace(f.T @ f) / 4
    stacked = np.vstack([f, np.sqrt(shift) * np.eye(4)])
    back = np.linalg.lstsq(stacked, np.vstack([images, np.zeros((4, WIDTH))]), rcond=None)[0]
    assert rows["ridge"] == pytest.approx(wanted @ back, abs=1e-6)


def test_with_a_square_orthogonal_projection_a_text_is_turned_back():
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(9, 9)))[0]
    texts = np.random.default_rng(1).normal(size=(3, 9))
    assert Tail(turn).preimage(texts) == pytest.approx(texts @ turn.T)


def test_an_encoder_without_a_projection_has_no_preimages():
    with refused("tail-missing", EncoderError):
        METHODS["vis+text"].make(Setup(DIMS, TAIL.project))
    METHODS["vis+text"].make(Setup(DIMS, TAIL.project), reading="padded")


@pytest.mark.parametrize(("option", "value"), [("reading", "none"), ("text_weight", -1.0)])
def test_bad_options_are_refused(option, value):
    with refused(f"parameter-{option.replace('_', '-')}", InputError):
        Learner("vis+text", **{option: value})


def test_needs_are_said():
    assert "--text" in unmet(METHODS["zs-clip"])
    assert "--phrases" in unmet(METHODS["clg-cbm"], "text")
    assert "can train" in unmet(Entry("mine", None, needs=("images",)), "text")
