"""Runs of methods that train through the encoder: whole, resumed, refused and estimated."""

import importlib.util

import numpy as np
import pytest
from msgspec.structs import replace

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.encoders.towers import MLP, fill, save  # noqa: E402
from tests.refusals import refused  # noqa: E402
from tests.tiny import COLOURS, write_encoder, write_photos  # noqa: E402
from visvm.bench import plan as planning  # noqa: E402
from visvm.bench.estimate import estimate  # noqa: E402
from visvm.bench.features import encode_data  # noqa: E402
from visvm.bench.methods import METHODS, through  # noqa: E402
from visvm.bench.methods.method import Costs, Entry, Setup  # noqa: E402
from visvm.bench.methods.prompting import Prompted  # noqa: E402
from visvm.bench.plan import plan  # noqa: E402
from visvm.bench.recipe import Recipe  # noqa: E402
from visvm.bench.rows import open_for_appending, read_rows  # noqa: E402
from visvm.bench.runner import execute  # noqa: E402
from visvm.bench.vit import trainable  # noqa: E402
from visvm.encoders.cache import FeatureCache  # noqa: E402
from visvm.encoders.loading import load_encoder  # noqa: E402
from visvm.errors import EncoderError  # noqa: E402
from visvm.progress import silent  # noqa: E402

SEEING = [name for name, entry in METHODS.items() if "images" in entry.needs]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("through")
    for part, n, seed in (("train", 8, 0), ("test", 4, 1)):
        write_photos(folder / "colours" / part, tuple(COLOURS), n, seed)
    config = transformers.ViTConfig(**{**MLP, "num_hidden_layers": 5})
    save(fill(transformers.ViTModel(config)), folder / "vit")
    return folder


def recipe(place, *methods, **changes):
    given = {
        "datasets": [str(place / "colours")],
        "protocols": ["B0 Inc2"],
        "encoders": [str(place / "vit")],
        "options": {"n_components": 40, "epochs": 2},
    }
    return Recipe("test", "t", methods=list(methods), **{**given, **changes})


def groups_of(*given, **changes):
    return list(plan(recipe(*given, **changes), None, load_encoder, silent))


def run_all(group, folder, cache=None):
    with open_for_appending(folder) as results:
        return list(execute(group, results, cache, silent))


def plain(row):
    return replace(row, seconds={}, peak_memory=None, load_average=None, measured_at="")


def test_every_method_runs_and_leaves_only_its_rows(place, tmp_path):
    (group,) = groups_of(place, *SEEING)
    with FeatureCache(tmp_path / "cache.sqlite") as cache:
        rows = run_all(group, tmp_path / "r", cache)
        assert cache.info().n_images > 48  # those of the adapted encoders, too
    assert [row.run.method for row in rows] == [name for name in SEEING for _ in range(2)]
    assert all(row.trainable_parameters > 0 and row.state_bytes > 0 for row in rows)
    assert not (tmp_path / "r" / ".trained").exists()
    assert rows[1].accuracy > 0.6


@pytest.mark.parametrize("name", ["ranpac", "dualprompt"])
def test_a_run_that_ends_between_sessions_goes_on(name, place, tmp_path, monkeypatch):
    (group,) = groups_of(place, name)
    whole = run_all(group, tmp_path / "whole")
    kind, calls = METHODS[name].factory, []
    predict = kind.predict

    def dying(self, features, pictures):
        if len(features) > 8:
            raise MemoryError("killed")
        return predict(self, features, pictures)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "predict", dying)
        first, failure = run_all(group, tmp_path / "r")
    assert "killed" in failure.reason
    assert len(list((tmp_path / "r" / ".trained").rglob("*.safetensors"))) > 0
    descend = through.descend
    monkeypatch.setattr(through, "descend", lambda *a, **k: calls.append(descend(*a, **k)))
    (second,) = run_all(group, tmp_path / "r")
    assert calls == []
    assert second.seconds["learn"] > 0
    assert [plain(row) for row in (first, second)] == [plain(row) for row in whole]
    assert read_rows(tmp_path / "r") == [first, second]
    assert not (tmp_path / "r" / ".trained").exists()


def test_a_method_sees_the_pictures_of_its_session_and_no_others(place, tmp_path, monkeypatch):
    (group,) = groups_of(place, "l2p", options={})
    seen = []

    class Spy:
        def __init__(self, setup):
            self.encoder = setup.trainable.encoder

        def learn(self, features, labels, pictures):
            seen.append(set(np.unique(labels)))
            assert len(pictures) == len(labels) == 16
            assert pictures.encode(self.encoder) == pytest.approx(features, abs=1e-5)
            assert pictures.pixels(np.array([3])) == pytest.approx(
                pictures.at(np.array([3])).pixels(np.array([0]))
            )

        def predict(self, features, pictures):
            assert len(pictures) == len(features)
            return np.zeros(len(features), np.intp)

        def costs(self):
            return Costs(0, 0)

    monkeypatch.setitem(METHODS, "l2p", Entry("l2p", Spy, needs=("torch", "images")))
    rows = run_all(group, tmp_path)
    assert [row.n_test for row in rows] == [8, 16]
    assert seen == [{0, 1}, {2, 3}]
    data = encode_data(group.data, group.encoder, group.transform, None, silent)
    assert len(data.train.pictures) == 32


def test_what_cannot_be_trained_through_is_refused_with_the_reason(place, tmp_path, monkeypatch):
    (group,) = groups_of(place, *SEEING, encoders=[str(write_encoder(tmp_path))])
    assert list(group.refused) == SEEING
    assert all("needs an encoder that it can train" in each for each in group.refused.values())
    find = importlib.util.find_spec
    for module in (planning, trainable):
        monkeypatch.setattr(module, "find_spec", lambda name: name != "torch" and find(name))
    (group,) = groups_of(place, *SEEING)
    assert all("pip install 'visvm[torch]'" in each for each in group.refused.values())


def test_a_device_that_is_not_there_is_refused_before_any_work(place):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    (group,) = groups_of(place, "ranpac", options={"device": "cuda"})
    assert "torch cannot use the device 'cuda'" in group.refused["ranpac"]


def test_an_encoder_with_too_few_blocks_is_refused(place):
    (group,) = groups_of(place, "coda-prompt")
    with refused("encoder-too-shallow", EncoderError):
        kind = METHODS["coda-prompt"].factory
        assert issubclass(kind, Prompted)
        kind(Setup(group.encoder.layer_dims[:4], group.encoder.project))


@pytest.mark.parametrize(("name", "visits"), [("ranpac", 16 * 2), ("dualprompt", 32 * 2)])
def test_estimates_count_what_training_and_encoding_take(name, visits, place):
    (group,) = groups_of(place, name)
    run = group.runs[0]
    plain, timed = (estimate(group, run, 1e9, seconds) for seconds in (0.0, 2.0))
    encoded = {"ranpac": 32 + 16, "dualprompt": 8 + 16}[name]
    assert timed.seconds - plain.seconds == pytest.approx(2.0 * (2.2 * visits + encoded))
    (ours,) = groups_of(place, "vis+adapter")  # trains four blocks of five
    plain, timed = (estimate(ours, ours.runs[0], 1e9, seconds) for seconds in (0.0, 2.0))
    wanted = 2.0 * (16 * (0.2 + 2.2 * 0.8 * 2) + 32 + 16)
    assert timed.seconds - plain.seconds == pytest.approx(wanted)
    (none,) = groups_of(place, name, options={"epochs": 0})
    plain, timed = (estimate(none, none.runs[0], 1e9, seconds) for seconds in (0.0, 2.0))
    assert timed.seconds - plain.seconds == pytest.approx(2.0 * encoded)
    (others,) = groups_of(place, "ranpac-head")
    assert plain.n_bytes > estimate(others, others.runs[0], 1e9).n_bytes
