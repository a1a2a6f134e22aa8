"""Runs with text features: whole, resumed, and refused where the text belongs to another tower."""

import json

import numpy as np
import pytest
from msgspec.structs import replace

from tests.refusals import refused
from tests.tiny import COLOURS, write_encoder, write_photos
from visvm.bench.diagnoses import read_diagnoses
from visvm.bench.features import encode_data
from visvm.bench.methods import METHODS
from visvm.bench.methods.method import Entry
from visvm.bench.methods.zs_clip import ZeroShot
from visvm.bench.plan import plan
from visvm.bench.recipe import Recipe
from visvm.bench.rows import open_for_appending
from visvm.bench.runner import execute
from visvm.encoders.loading import load_encoder
from visvm.encoders.texts import Phrases, TextFeatures, unit, write_texts
from visvm.errors import InputError
from visvm.progress import silent


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    write_encoder(folder)
    for part, n, seed in (("train", 8, 0), ("test", 4, 1)):
        write_photos(folder / "colours" / part, tuple(COLOURS), n, seed)
    (group,) = plan(recipe(folder, methods=["simplecil"]), None, load_encoder, silent)
    data = encode_data(group.data, group.encoder, group.transform, None, silent)
    rows = data.train.features[:, -12:]
    means = np.stack([rows[data.train.targets == label].mean(axis=0) for label in range(4)])
    good = unit(means - means.mean(axis=0)).astype(np.float32)[:, None]
    texts = TextFeatures(tuple(data.classes), good, ("a {}",), image_digest=group.encoder.digest)
    for name, changed in {
        "good": {},
        "other": {"features": np.roll(good, 1, axis=0)},
        "narrow": {"features": unit(good[..., :7])},
        "foreign": {"image_digest": "ab" * 32},
        "short": {"names": texts.names[:3], "features": good[:3]},
    }.items():
        write_texts(folder / f"{name}.npz", TextFeatures(**{**vars(texts), **changed}))
    return folder


def recipe(place, **changes):
    given = {
        "datasets": [str(place / "colours")],
        "methods": ["zs-clip", "vis"],
        "protocols": ["B0 Inc2"],
        "encoders": [str(place / "tiny.onnx")],
        "options": {"n_components": 40},
    }
    return Recipe("test", "t", **{**given, **changes})


def run_all(recipe, folder):
    with open_for_appending(folder) as results:
        groups = list(plan(recipe, None, load_encoder, silent))
        return groups, [row for group in groups for row in execute(group, results, None, silent)]


def test_rows_say_what_text_they_had_and_are_not_run_again(place, tmp_path):
    given = {"text": str(place / "good.npz")}
    (group,), rows = run_all(recipe(place, **given), tmp_path)
    said = [(row.run.method, row.run.text, row.run.text_of) for row in rows]
    assert said == [("zs-clip", group.texts.digest, "a {}")] * 2 + [("vis", "", "")] * 2
    assert rows[1].accuracy > 0.8
    assert run_all(recipe(place, **given), tmp_path)[1] == []
    assert replace(rows[0].run, text="").key != rows[0].run.key
    assert replace(rows[0].run, text_of="").key == rows[0].run.key


@pytest.mark.parametrize(
    ("text", "reason"),
    [("narrow", "are 7 wide"), ("foreign", "belong to the image tower abababab")],
)
def test_text_of_another_tower_is_refused_with_the_reason(place, text, reason):
    given = recipe(place, text=str(place / f"{text}.npz"))
    (group,) = plan(given, None, load_encoder, silent)
    assert reason in group.refused["zs-clip"]
    assert [run.method for run in group.runs] == ["vis"]


def test_text_that_names_images_by_chance_fails_its_runs_alone(place, tmp_path):
    _, outcomes = run_all(recipe(place, text=str(place / "other.npz")), tmp_path)
    assert "which is chance" in outcomes[0].reason
    assert [row.run.method for row in outcomes[1:]] == ["vis", "vis"]


def test_a_class_without_text_is_refused(place):
    with refused("text-names-missing", InputError):
        next(plan(recipe(place, text=str(place / "short.npz")), None, load_encoder, silent))


def test_a_method_without_what_a_recipe_varies_runs_once(visvm, place):
    given = ("--datasets", place / "colours", "--encoder", place / "tiny.onnx", "--dry-run")
    given += ("--protocol", "B0 Inc2", "--text", place / "good.npz", "--methods", "zs-clip")
    code, out, _ = visvm("bench", "text", *given)
    assert (code, "1 of 1" in out) == (0, True)


def test_text_that_nobody_needs_is_refused(place):
    given = recipe(place, methods=["vis"], text=str(place / "good.npz"))
    with refused("text-unused", InputError):
        next(plan(given, None, load_encoder, silent))


def test_a_method_that_asks_for_names_to_come_fails(place, tmp_path, monkeypatch):
    class Greedy(ZeroShot):
        def learn(self, features, labels):
            self._setup.texts.names(range(4))
            super().learn(features, labels)

    monkeypatch.setitem(METHODS, "greedy", Entry("greedy", Greedy, needs=("text",)))
    given = recipe(place, methods=["greedy"], text=str(place / "good.npz"))
    _, (failure,) = run_all(given, tmp_path)
    assert "when 2 classes had arrived" in failure.reason


def test_the_diagnosis_is_a_recipe_and_its_figures_are_in_the_report(
    visvm, place, tmp_path, monkeypatch, unrendered
):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    given = ("--datasets", place / "colours", "--encoder", place / "tiny.onnx", "--quiet")
    given += ("--protocol", "B0 Inc2", "--text", place / "good.npz", "--out", tmp_path / "r")
    assert visvm("bench", "diagnosis", *given) == (0, "", "")
    (path,) = (tmp_path / "r").glob("diagnosis-*.json")
    written = path.stat().st_mtime_ns
    assert visvm("bench", "diagnosis", *given) == (0, "", "")
    assert path.stat().st_mtime_ns == written
    (found,) = read_diagnoses(tmp_path / "r")
    assert (found.n_train, found.n_test, len(found.curves)) == (32, 16, 8)
    assert visvm("report", tmp_path / "r")[0] == 0
    report = (tmp_path / "r" / "report.md").read_text()
    assert "## Diagnosis" in report
    assert report.count("(figures/gap-") == 1


def test_every_method_runs_on_the_tower_of_a_small_clip(place, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
    config = transformers.CLIPVisionConfig(
        **sizes, num_attention_heads=2, image_size=8, patch_size=4, projection_dim=8
    )
    transformers.CLIPVisionModelWithProjection(config).save_pretrained(tmp_path / "clip")
    picture = {"size": 8, "crop_size": 8, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (tmp_path / "clip" / "preprocessor_config.json").write_text(json.dumps(picture))
    clip = {"encoders": [str(tmp_path / "clip")]}
    (group,) = plan(recipe(place, methods=["simplecil"], **clip), None, load_encoder, silent)
    data = encode_data(group.data, group.encoder, group.transform, None, silent)
    rows = unit(group.encoder.project(data.train.features[:, -16:]))
    means = np.stack([rows[data.train.targets == label].mean(axis=0) for label in range(4)])
    good = unit(means - means.mean(axis=0)).astype(np.float32)[:, None]
    said = Phrases(tuple("abcd"), good[:, 0], np.array([[label, -1] for label in range(4)]))
    path = tmp_path / "texts.npz"
    write_texts(path, TextFeatures(tuple(data.classes), good, phrases=said))
    methods = [name for name, entry in METHODS.items() if "text" in entry.needs]
    _, outcomes = run_all(recipe(place, methods=methods, text=str(path), **clip), tmp_path / "r")
    assert [row.run.method for row in outcomes] == [name for name in methods for _ in range(2)]
    assert {row.run.method: row.trainable_parameters > 0 for row in outcomes} == {
        name: name != "zs-clip" for name in methods
    }
