"""The diagnosis: known answers, autograd, and its files and figures on a small joint space."""

from dataclasses import replace

import numpy as np
import pytest

from tests.bench.joint_space import DIMS, TAIL, WIDTH, draw, text_features
from tests.bench.make_rows import make_run
from tests.refusals import refused
from visvm.bench import diagnosis
from visvm.bench.diagnoses import diagnosis_of, is_there, path_of, read_diagnoses, write_diagnosis
from visvm.bench.diagnosis import Joint, correlate, gradient, gradient_cosines, train
from visvm.bench.features import EncodedData
from visvm.bench.methods.method import Setup
from visvm.bench.report.pages import Picture, Table, write_html, write_markdown
from visvm.bench.report.sections.diagnosis import diagnosis as section_of
from visvm.bench.streams import Samples
from visvm.encoders.texts import unit
from visvm.errors import InputError
from visvm.progress import silent

X, Y = draw(60, spread=1.0)
TEST, TEST_Y = draw(60, seed=1, spread=1.0)
F, TEST_F = (unit(TAIL.project(rows[:, -WIDTH:])) for rows in (X, TEST))
TEXTS = text_features()
JOINT = Joint(F, Y, TEST_F, TEST_Y, TEXTS.prototypes.astype(float))
SAME = replace(JOINT, texts=JOINT.means)
STREAM = ([3, 1, 0, 2, 4, 5], [2, 2, 2])


def test_gap_of_the_known_answer():
    rows = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    joint = Joint(
        rows, np.array([0, 0, 1]), rows, np.array([0, 0, 1]), np.array([[0, 1.0], [1, 0]])
    )
    found = next(diagnosis.diagnose(joint, "B0 Inc1", 0, 10.0))[1]
    assert found["gaps"] == pytest.approx([0.683772, 1.0])
    assert found["image_accuracy"] == [1.0, 1.0]
    assert found["text_accuracy"] == [0.0, 0.0]


def test_correlation_is_pearsons_with_its_interval():
    from scipy.stats import pearsonr

    gaps, values = np.random.default_rng(0).normal(size=(2, 30))
    wanted, found = pearsonr(gaps, values), correlate(gaps, values)
    assert found.r == pytest.approx(wanted.statistic)
    interval = wanted.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(interval), abs=1e-4)
    assert (found.slope, found.intercept) == pytest.approx(tuple(np.polyfit(gaps, values, 1)))
    assert correlate(gaps, np.zeros(30)).r == 0.0


def test_the_gradient_is_that_of_autograd():
    torch = pytest.importorskip("torch")
    heads = torch.tensor(2.0 * JOINT.texts, requires_grad=True)
    cosines = torch.tensor(F) @ torch.nn.functional.normalize(heads, dim=1).T
    loss = torch.nn.functional.cross_entropy(16.0 * cosines, torch.tensor(Y))
    loss.backward()
    found = gradient(2.0 * JOINT.texts, F, Y, 16.0)
    assert found[0] == pytest.approx(loss.item())
    assert found[1] == pytest.approx(heads.grad.numpy())


def test_means_for_texts_change_nothing():
    texts, images = (train(SAME, start, *STREAM, 16.0, 0.01) for start in ("text", "image"))
    assert texts.loss == images.loss
    assert texts.accuracy == images.accuracy
    heads = (SAME.texts, SAME.means)
    assert len({str(gradient_cosines(SAME, each, 16.0)) for each in heads}) == 1
    found = next(diagnosis.diagnose(SAME, "B0 Inc2", 0, 16.0))[1]
    assert found["gaps"] == pytest.approx(np.zeros(6))
    assert found["text_accuracy"] == found["image_accuracy"]


def test_a_rotation_changes_nothing():
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    turned = Joint(F @ turn, Y, TEST_F @ turn, TEST_Y, JOINT.texts @ turn)
    for start in ("text", "image"):
        one, other = (train(each, start, *STREAM, 16.0, 0.1) for each in (JOINT, turned))
        assert one.loss == pytest.approx(other.loss)
        assert one.accuracy == pytest.approx(other.accuracy)
    one, other = (gradient_cosines(each, each.texts, 16.0) for each in (JOINT, turned))
    assert (one.mean, one.deviation) == pytest.approx((other.mean, other.deviation))


def test_training_lowers_the_loss_from_that_of_the_start():
    curve = train(JOINT, "image", *STREAM, 16.0, 0.1)
    assert len(curve.loss) == len(curve.accuracy) == 30
    assert all(curve.loss[end] < curve.loss[end - 9] for end in (9, 19, 29))
    still = train(JOINT, "image", *STREAM, 16.0, 1e-9)
    seen = np.isin(TEST_Y, STREAM[0][:2])
    nearest = (TEST_F[seen] @ JOINT.means[STREAM[0][:2]].T).argmax(axis=1)
    assert still.accuracy[0] == (np.array(STREAM[0])[nearest] == TEST_Y[seen]).mean()


@pytest.fixture(scope="module")
def made():
    data = EncodedData(list(TEXTS.names), Samples(X, Y), Samples(TEST, TEST_Y), TEXTS)
    run = make_run("zs-clip", dataset="a/b", text=TEXTS.digest, text_of="a {}")
    return diagnosis_of(data, Setup(DIMS, TAIL.project), run, silent), run


def test_a_diagnosis_is_a_file_of_its_run(made, tmp_path):
    found, run = made
    assert not is_there(tmp_path, run)
    write_diagnosis(path_of(tmp_path, run), found)
    assert path_of(tmp_path, run).name == "diagnosis-a-b-dinov2-s14.json"
    assert read_diagnoses(tmp_path) == [found]
    assert is_there(tmp_path, run)
    assert not is_there(tmp_path, make_run("zs-clip", dataset="a/b", text="another"))
    path_of(tmp_path, run).write_text('{"run": 1}')
    with refused("diagnosis-invalid", InputError):
        read_diagnoses(tmp_path)


def test_the_report_shows_it(made, unrendered):
    found, _ = made
    assert found.n_train == found.n_test == 60
    assert {name: len(points) for name, points in found.map.items()} == {
        **dict.fromkeys(("means", "texts"), 6),
        "images": 60,
    }
    section = section_of([found])
    pictures = [block.name for block in section.blocks if isinstance(block, Picture)]
    assert pictures == [
        f"{kind}-a-b-dinov2-s14" for kind in ("gap", "training", "gradients", "joint-space")
    ]
    assert sum(isinstance(block, Table) for block in section.blocks) == 3
    text = write_markdown("t", [section])
    assert f"| {found.correlations['gain'].r:.2f} |" in text
    assert "Diagnosis" in write_html("t", [section])
    assert section_of([]) is None
