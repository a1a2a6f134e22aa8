"""Recipes to rows, on a small encoder and coloured pictures; interrupted runs resume."""

import dataclasses
import re
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from msgspec.structs import replace

from tests.forked import CONTEXT
from tests.refusals import refused
from tests.tiny import COLOURS, write_encoder, write_photos
from visvm.bench import environment, runner
from visvm.bench.features import EncodedData, encode_data
from visvm.bench.loading import load_dataset
from visvm.bench.methods import METHODS
from visvm.bench.methods.method import Entry, Setup
from visvm.bench.methods.simplecil import SimpleCIL
from visvm.bench.methods.slda import SLDA
from visvm.bench.plan import plan, unmet
from visvm.bench.recipe import Recipe
from visvm.bench.rows import FILE_NAME, Run, open_for_appending, read_rows
from visvm.bench.runner import execute, measure, missing_runs
from visvm.bench.streams import Samples, class_order
from visvm.encoders.cache import FeatureCache
from visvm.encoders.loading import load_encoder
from visvm.encoders.transform import Transform
from visvm.errors import EncoderError, ImageError, InputError
from visvm.progress import silent

pytestmark = pytest.mark.slow

RUNNABLE = [entry.name for entry in METHODS.values() if not unmet(entry)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    write_encoder(folder)
    for part, n, seed in (("train", 8, 0), ("test", 4, 1)):
        write_photos(folder / "colours" / part, tuple(COLOURS), n, seed)
    return folder


def recipe(place, **changes):
    given = {
        "datasets": [str(place / "colours")],
        "methods": ["simplecil", "vis"],
        "protocols": ["B0 Inc2"],
        "encoders": [str(place / "tiny.onnx")],
        "options": {"n_components": 40},
    }
    return Recipe("test", "t", **{**given, **changes})


def run_all(recipe, folder, cache=None):
    with open_for_appending(folder) as results:
        return [
            row
            for group in plan(recipe, None, load_encoder, silent)
            for row in execute(group, results, cache, silent)
        ]


def plain(row):
    """A row without what differs from one measurement to the next."""
    return replace(row, seconds={}, peak_memory=None, load_average=None, measured_at="")


def test_every_method_and_session_gets_a_row(place, tmp_path):
    rows = run_all(recipe(place, methods=RUNNABLE), tmp_path)
    assert [(row.run.method, row.session) for row in rows] == [
        (name, session) for name in RUNNABLE for session in (1, 2)
    ]
    assert read_rows(tmp_path) == rows
    for row in rows:
        assert row.n_sessions == 2
        assert row.n_train == 16
        assert row.n_test == 8 * row.session
        assert 0.5 < row.accuracy <= 1.0
        assert sum(row.class_correct) / sum(row.class_counts) == row.accuracy
        assert row.seconds.keys() == {"learn", "predict", "encode"}
        assert min(row.seconds.values()) > 0
        assert row.state_bytes > 0
        assert row.peak_memory is None or row.peak_memory > 2**20
        assert {"visvm", "numpy", "cpu", "threads"} <= row.environment.keys()
    names = [name for row in rows[:2] for name in row.new_classes]
    assert sorted(names) == sorted(COLOURS)


def test_what_is_there_is_not_run_again(place, tmp_path):
    rows = run_all(recipe(place), tmp_path)
    content = (tmp_path / FILE_NAME).read_bytes()
    assert run_all(recipe(place), tmp_path) == []
    assert (tmp_path / FILE_NAME).read_bytes() == content
    more = run_all(recipe(place, feature_seeds=[0, 1]), tmp_path)
    assert {row.run.seed for row in more} == {1}
    assert len(read_rows(tmp_path)) == len(rows) + len(more)


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_run_that_lost_rows_gives_the_same_ones_again(place, tmp_path, kept):
    whole = run_all(recipe(place, methods=RUNNABLE[:2]), tmp_path)
    path = tmp_path / FILE_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:kept]) + lines[kept][:37])  # the next one torn
    again = run_all(recipe(place, methods=RUNNABLE[:2]), tmp_path)
    assert [plain(row) for row in again] == [plain(row) for row in whole[kept:]]
    assert [plain(row) for row in read_rows(tmp_path)] == [plain(row) for row in whole]


def run_slowly(place, folder):
    """Measure so slowly that a kill strikes in the middle."""

    def slow(*given):
        for row in measure(*given):
            time.sleep(0.05)
            yield row

    runner.measure = slow
    run_all(many(place), folder)


def many(place):
    """Methods that draw random numbers in every session, and one that does not."""
    methods = ["ranpac-head", "vis", "simplecil"]
    return recipe(
        place, methods=methods, protocols=["sessions 2,1,1"], class_order_seeds=list(range(10))
    )


@pytest.mark.kill
def test_kill_9_loses_no_row_and_changes_none(place, tmp_path):
    whole = [plain(row) for row in run_all(many(place), tmp_path / "whole")]
    folder = tmp_path / "killed"
    before = 0
    for _ in range(3):
        process = CONTEXT.Process(target=run_slowly, args=(place, folder), daemon=True)
        process.start()
        deadline = time.monotonic() + 60
        # until it has written some more
        while time.monotonic() < deadline and process.is_alive():
            path = folder / FILE_NAME
            if path.exists() and path.read_bytes().count(b"\n") >= before + 5:
                break
            time.sleep(0.01)
        process.kill()
        process.join()
        before = len(read_rows(folder))
    assert 5 <= before < len(whole)
    run_all(many(place), folder)
    found = [plain(row) for row in read_rows(folder)]
    assert found == whole


def test_runs_share_what_they_have_in_common(place):
    varied = recipe(
        place, options={}, vary={"identity_weight": [0.01, 0.5], "n_components": [15000, 30]}
    )
    (group,) = plan(varied, None, load_encoder, silent)
    # The defaults come up twice and are one run; SimpleCIL has neither option.
    assert [run.options for run in group.runs if run.method == "vis"] == [
        {},
        {"identity_weight": 0.5},
        {"n_components": 30},
    ]
    assert [run.options for run in group.runs if run.method == "simplecil"] == [{}]


def test_options_that_are_the_default_are_no_change():
    options = {"n_components": 15000, "identity_weight": 0.5, "strange": 1, "svm_cost": 2.0}
    changed = METHODS["vis"].changed(options)
    assert changed == {"identity_weight": 0.5, "svm_cost": 2}
    assert isinstance(changed["svm_cost"], int)  # 2 and 2.0 are one run


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"methods": ["viss"]}, "method-unknown", "viss"),
        ({"options": {"n_component": 5}}, "option-unknown", "n_component"),
        ({"vary": {"depth": [1]}}, "option-unknown", "depth"),
        ({"vary": {"n_components": [50]}}, "option-repeated", "n_components"),
        ({"methods": ["slda"], "options": {}, "vary": {"gamma": [1]}}, "option-unused", "gamma"),
        ({"protocols": ["B0"]}, "protocol-undefined", "B0"),
        ({"protocols": ["B0 Inc9"]}, "protocol-misfit", "4 classes"),
    ],
)
def test_mistakes_are_refused_before_any_work(place, changes, code, named):
    with refused(code, InputError) as refusal:
        next(plan(recipe(place, **changes), None, load_encoder, silent))
    assert named in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"datasets": ["cup200"]}, "cup200"),
        ({"encoders": ["dinov3"]}, "dinov3"),
        ({"transform": "cut"}, "cut"),
    ],
)
def test_unknown_data_encoders_and_transforms_are_refused_before_any_work(place, changes, named):
    with pytest.raises((InputError, EncoderError)) as refusal:
        next(plan(recipe(place, **changes), None, load_encoder, silent))
    assert named in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_method_that_cannot_run_is_said_to_be_left_out(place):
    (group,) = plan(recipe(place, methods=["zs-clip", "simplecil"]), None, load_encoder, silent)
    assert "give --text FILE" in group.refused["zs-clip"]
    assert [run.method for run in group.runs] == ["simplecil"]
    with refused("method-unmet", EncoderError):
        Entry("mine", None, needs=("images",)).make(Setup((6,), lambda final: final))


@pytest.mark.parametrize(
    ("needs", "installed", "reason"),
    [
        (("features",), False, None),
        (("features", "text"), True, "mine needs the text features"),
        (("images",), True, "mine needs an encoder that it can train"),
        (("features", "torch"), False, "pip install 'visvm[torch]'"),
        (("features", "torch"), True, None),
        (("torch", "images"), True, "mine needs an encoder that it can train"),
    ],
)
def test_what_a_method_needs_is_there_or_the_method_is_refused(
    place, monkeypatch, needs, installed, reason
):
    monkeypatch.setattr("visvm.bench.plan.find_spec", lambda name: name if installed else None)
    monkeypatch.setitem(METHODS, "mine", Entry("mine", SimpleCIL, needs=needs))
    (group,) = plan(recipe(place, methods=["mine"]), None, load_encoder, silent)
    if reason is None:
        assert (group.refused, len(group.runs)) == ({}, 1)
    else:
        assert reason in group.refused["mine"]
        assert "\n" not in group.refused["mine"]
        assert group.runs == []


def test_an_unreadable_image_stops_a_benchmark(place, tmp_path):
    for part, seed in (("train", 0), ("test", 1)):
        write_photos(tmp_path / part, ("red", "blue"), 3, seed)
    (tmp_path / "train" / "red" / "broken.png").write_bytes(b"\x89PNG no")
    with refused("image-unreadable", ImageError) as refusal:
        run_all(recipe(place, datasets=[str(tmp_path)], protocols=["B0 Inc1"]), tmp_path / "out")
    assert "broken.png" in str(refusal.value)
    assert not (tmp_path / "out").exists()


def test_features_come_from_the_cache(place, tmp_path):
    data = load_dataset(str(place / "colours"), None)
    encoder = load_encoder(str(place / "tiny.onnx"))
    transform = Transform("squash", encoder.preprocessing)
    with FeatureCache(tmp_path / "features.sqlite") as cache:
        first = encode_data(data, encoder, transform, cache, silent)
        encoder.encode = None  # would fail
        second = encode_data(data, encoder, transform, cache, silent)
    assert np.array_equal(first.train.features, second.train.features)
    assert np.array_equal(first.test.features, second.test.features)


def test_validation_rows_never_look_at_test_images(place):
    (group,) = plan(recipe(place, split="validation", methods=["vis"]), None, load_encoder, silent)
    encoded = encode_data(group.data, group.encoder, group.transform, None, silent)
    hidden = dataclasses.replace(encoded, test=Locked("test images"))
    rows = list(measure(group.runs[0], hidden, group.setup(group.runs[0]), set(), 0.1, silent))
    assert [row.n_test for row in rows] == [2, 4]  # one of eight images of every class


class Locked:
    """Stands for data that must not be looked at."""

    def __init__(self, what):
        self.what = what

    def __getattr__(self, name):
        raise AssertionError(f"{self.what} were reached for")


class GuardedFeatures:
    """Features of classes that have arrived; none may be read while a method learns."""

    def __init__(self, features, targets, guard):
        self.features, self.targets, self.guard = features, targets, guard

    def __getitem__(self, rows):
        assert not self.guard.learning, "data were reached for while a method learned"
        assert set(self.targets[rows]) <= self.guard.allowed, (
            "classes of the future were reached for"
        )
        return self.features[rows]


class Guard:
    def __init__(self, allowed):
        self.learning, self.allowed = False, allowed


@pytest.mark.parametrize("name", RUNNABLE)
def test_no_method_can_reach_test_images_or_future_classes(name, monkeypatch):
    """The runner itself, on data that raise when they are read too early, or during learning."""
    generator = np.random.default_rng(0)
    targets = np.repeat(np.arange(6), 8)
    features = (
        generator.normal(size=(48, 12)) + 3 * generator.normal(size=(6, 12))[targets]
    ).astype(np.float32)
    order, seen = class_order(6, 1993), [2, 5, 6, 6, 6]
    train, test = Guard(set(order[:2])), Guard(set())
    data = EncodedData(
        list("abcdef"),
        *(Samples(GuardedFeatures(features, targets, guard), targets) for guard in (train, test)),
    )
    entry = METHODS[name]

    class Watched:
        def __init__(self, setup, **options):
            self.method = entry.make(setup, **options)

        def learn(self, given, labels):
            assert given.base is None  # a view would lead to all images
            assert labels.base is None  # and this one to the number of classes
            train.learning = test.learning = True
            self.method.learn(given, labels)
            train.learning = test.learning = False

        def predict(self, given):
            return self.method.predict(given)

        def costs(self):
            return self.method.costs()

    def arrive(stage, done, total):  # told when a session has been handed out and is to be learned
        test.allowed, train.allowed = set(order[: seen[done]]), set(order[: seen[done + 1]])

    monkeypatch.setitem(METHODS, name, dataclasses.replace(entry, factory=Watched))
    options = {"n_components": 30} if "n_components" in entry.options else {}
    run = Run("d", "", "e", "", "squash", "", "sessions 2,3,1", 1993, name, 1, 0, options)
    rows = list(measure(run, data, Setup((6, 6), lambda final: final), set(), 0.1, arrive))
    assert [row.n_test for row in rows] == [16, 40, 48]
    assert min(row.accuracy for row in rows) > 0.6
    test.allowed = {order[0]}
    with pytest.raises(AssertionError, match="future"):  # the guard does what it is for
        list(measure(run, data, Setup((6, 6), lambda final: final), set(), 0.1, silent))


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (lambda n: np.full(n, -1), "-1"),
        (lambda n: np.full(n, 2), "0 to 1"),
        (lambda n: np.zeros((n, 1), dtype=int), "shape"),
        (lambda n: np.zeros(n), "float64"),
        (lambda n: 0, "predicted 0"),
        (lambda n: [0] * n, "predicted [0, 0"),
    ],
)
def test_answers_that_are_none_are_refused_and_the_other_runs_go_on(
    place, tmp_path, monkeypatch, answer, named
):
    class Wrong(SimpleCIL):
        def predict(self, features):
            return answer(len(features))

    monkeypatch.setitem(METHODS, "wrong", Entry("wrong", Wrong))
    failure, *rows = run_all(recipe(place, methods=["wrong", "slda"]), tmp_path)
    assert named in failure.reason
    assert "\n" not in failure.reason
    assert [row.run.method for row in rows] == ["slda", "slda"]
    assert read_rows(tmp_path) == rows


def test_rows_say_which_code_measured_them(tmp_path, monkeypatch):
    source = tmp_path / "mine.py"
    module = ModuleType("mine")
    module.__file__ = str(source)
    monkeypatch.setitem(sys.modules, "mine", module)
    digests = []
    for value in "112":
        source.write_text(f"class Mine:\n    value = {value}\n")
        exec(compile(source.read_text(), str(source), "exec"), module.__dict__)
        digests.append(environment.code_digest(module.Mine))
    assert digests[0] == digests[1] != digests[2]
    assert environment.code_digest(SimpleCIL) == environment.code_digest(SLDA)  # one state of visvm
    assert environment.code_digest(type("Mine", (module.Mine, SLDA), {})) not in digests


@pytest.mark.parametrize("told", [np.int64(3), float("nan")])
def test_costs_that_cannot_be_written_fail_that_run_alone(place, tmp_path, monkeypatch, told):
    class Wrong(SimpleCIL):
        def costs(self):
            return dataclasses.replace(super().costs(), choices={"width": told})

    monkeypatch.setitem(METHODS, "wrong", Entry("wrong", Wrong))
    failure, *rows = run_all(recipe(place, methods=["wrong", "slda"]), tmp_path)
    assert "The costs of wrong are not plain numbers" in failure.reason
    assert "\n" not in failure.reason
    assert read_rows(tmp_path) == rows
    assert [row.run.method for row in rows] == ["slda", "slda"]


def test_blanks_in_a_list_of_sessions_are_no_other_protocol(place, tmp_path):
    rows = run_all(recipe(place, methods=["slda"], protocols=["sessions 2, 1"]), tmp_path)
    assert {row.run.protocol for row in rows} == {"sessions 2,1"}


def test_another_image_or_revision_is_measured_again_and_other_code_is_not(
    place, tmp_path, monkeypatch
):
    for part, seed in (("train", 0), ("test", 1)):
        write_photos(tmp_path / part, ("red", "blue"), 3, seed)
    wanted = recipe(place, datasets=[str(tmp_path)], protocols=["B0 Inc1"], methods=["simplecil"])
    (first, _), again = run_all(wanted, tmp_path / "out"), run_all(wanted, tmp_path / "out")
    assert again == []
    write_photos(tmp_path / "train", ("red",), 1, 7)
    other, _ = run_all(wanted, tmp_path / "out")
    assert first.run.data_digest != other.run.data_digest
    assert (
        first.run.weights_digest
        == other.run.weights_digest
        == load_encoder(wanted.encoders[0]).digest
    )
    monkeypatch.setattr("visvm.bench.runner.code_digest", lambda method: "of other code")
    assert run_all(wanted, tmp_path / "out") == []
    raised = dataclasses.replace(METHODS["simplecil"], revision=2)
    monkeypatch.setitem(METHODS, "simplecil", raised)
    rows = run_all(wanted, tmp_path / "out")
    assert [(row.run.revision, row.code_digest) for row in rows] == [(2, "of other code")] * 2
    assert [row.accuracy for row in rows] == [row.accuracy for row in (other, _)]


def test_rows_do_not_depend_on_what_ran_before(place, tmp_path):
    alone = run_all(recipe(place, methods=["vis"]), tmp_path / "alone")
    after = run_all(recipe(place, methods=["acil", "ridge", "vis"]), tmp_path / "after")
    assert [plain(row) for row in after if row.run.method == "vis"] == [plain(row) for row in alone]


def test_missing_runs_are_those_without_all_rows(place, tmp_path):
    (group,) = plan(recipe(place), None, load_encoder, silent)
    with open_for_appending(tmp_path) as results:
        assert missing_runs(group, results) == group.runs
        next(execute(group, results, None, silent))
        assert missing_runs(group, results) == group.runs
    run_all(recipe(place, methods=["simplecil"]), tmp_path)
    with open_for_appending(tmp_path) as results:
        assert [run.method for run in missing_runs(group, results)] == ["vis"]


def test_the_documentations_method_is_one_file_and_one_line(place, tmp_path, monkeypatch):
    """The example of docs/research/methods.md, registered as it says, learns and gets its rows."""
    text = (Path(__file__).parents[2] / "docs/research/methods.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    namespace = {}
    exec(compile(code, "class_medians.py", "exec"), namespace)
    (entry,) = namespace["ENTRIES"]
    monkeypatch.setitem(METHODS, entry.name, entry)
    rows = run_all(
        recipe(
            place, methods=[entry.name], options={}, vary={"metric": ["cityblock", "euclidean"]}
        ),
        tmp_path,
    )
    assert [(row.run.options, row.session) for row in rows] == [
        ({"metric": "cityblock"}, 1),
        ({"metric": "cityblock"}, 2),
        ({}, 1),
        ({}, 2),
    ]
    assert min(row.accuracy for row in rows) > 0.7
    assert rows[-1].state_bytes == 4 * 12 * 4
    body = code[code.index("class ") :]
    assert len([line for line in body.splitlines() if line.strip()]) <= 16
