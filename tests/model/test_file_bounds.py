"""No model file, however it was made, takes memory out of proportion to its own size."""

import json
import resource
from pathlib import Path

import numpy as np
import pytest

from tests import tiny
from tests.model.raw import rewrite
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.cli.main import describe_error
from visvm.encoders.loading import load_encoder
from visvm.errors import MemoryLimitError, ModelFileError
from visvm.model import file as model_file
from visvm.model.sites import SiteStatistics

WIDTH = 20


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bounds")
    model = tiny.write_model(folder)
    model.export_for_site(folder / "site.visvm")
    return folder


@pytest.fixture
def copied(place, tmp_path):
    """Copy a file of this name, to be changed."""

    def copy(name):
        (tmp_path / name).write_bytes((place / name).read_bytes())
        return tmp_path / name

    return copy


@pytest.fixture(autouse=True)
def little_memory():
    """Let a mistake here fail with a MemoryError instead of ending the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("width", [10**8, 10**12, 2**62, 10**30])
def test_a_file_without_classes_cannot_ask_for_a_map_of_any_width(copied, width):
    path = copied("site.visvm")

    def widen(header, tensors):
        header["head"]["n_components"] = width
        for name in ("coefficients", "class_sums"):
            tensors[name] = np.empty((min(width, 10**15) + 1, 0))

    rewrite(path, widen)
    for read in (model_file.read, model_file.read_header):
        with refused("file-altered", ModelFileError):
            read(path)


def test_a_file_cannot_have_inputs_and_components_whose_product_is_any_size(copied):
    path = copied("m.visvm")
    inputs, width = 60_000, 60_000

    def widen(header, tensors):
        head = header["head"]
        head.update(n_components=width, layer_dims=[12, 12, inputs], layers=[1], hidden=1)
        tensors["mixer.v"], tensors["mixer.v_bias"] = np.zeros((1, 12)), np.zeros(1)
        tensors["mixer.u"], tensors["mixer.u_bias"] = np.zeros((inputs, 1)), np.zeros(inputs)
        for name in ("coefficients", "class_sums"):
            tensors[name] = np.ones((width + 1, 3))

    rewrite(path, widen)
    with refused("file-altered", ModelFileError):
        model_file.read(path, sums=False)


def test_one_long_label_does_not_widen_all_others(copied):
    path = copied("m.visvm")
    names = [f"{number:06}" for number in range(5000)] + ["z" * 100_000]

    def name(header, tensors):
        header.update(classes=names, counts=[1] * len(names))
        for tensor in ("coefficients", "class_sums", "targets"):
            rows = len(tensors[tensor])
            tensors[tensor] = np.ones((rows, len(names)))

    rewrite(path, name)
    with refused("file-altered", ModelFileError):
        model_file.read(path)


def test_nor_does_it_when_models_are_merged(copied, place):
    path = copied("m.visvm")
    names = ["a", "b", "z" * 20_000_000]
    rewrite(path, lambda header, _: header.update(classes=names))
    other = SiteStatistics.load(path)
    many = copied("site.visvm")
    labels = [f"{number:06}" for number in range(100_000)]

    def fill(header, tensors):
        header.update(classes=labels, counts=[1] * len(labels), kind="whole")
        for tensor in ("coefficients", "class_sums"):
            tensors[tensor] = np.ones((WIDTH + 1, len(labels)))
        tensors["targets"] = np.zeros((0, len(labels)))

    rewrite(many, fill)
    model = ImageClassifier.load(many, encoder=load_encoder(str(place / "tiny.onnx")))
    with refused("memory-session", MemoryLimitError):
        model.merge(other)


def test_a_map_as_wide_as_any_in_use_is_drawn(place, tmp_path):
    encoder = load_encoder(str(place / "tiny.onnx"))
    model = ImageClassifier(encoder, n_components=100_000, cache=False, layers=(3,), ridge=1.0)
    model.learn(sorted((place / "photos").rglob("*.png"))[:2], ["a", "b"])
    model.export_for_site(tmp_path / "site.visvm")
    assert model_file.read(tmp_path / "site.visvm").head.settled.lift.width == 100_000


def test_a_lack_of_memory_is_one_line():
    code, line = describe_error(MemoryError())
    assert code == "memory-limit"
    assert len(line.splitlines()) == 1
    assert json.dumps(line)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("counts", 0), 9 * 10**4298),  # whose sum has more digits than Python writes
        (("counts", 0), -1),
        (("sessions", 0, "n_images"), 10**4000),
        (("sessions", 0, "session"), -1),
        (("sessions", 0, "peak_memory"), 2**70),
        (("sessions", 0, "ridge"), float("nan")),
        (("sessions", 0, "test"), {"n": 1, "accuracy": float("nan")}),
        (("sessions", 0, "test"), {"n": 1, "accuracy": 1e308}),
        (("head", "chosen_ridge"), float("nan")),
        (("head", "chosen_ridge"), -1.0),
        (("head", "layers", 0), 10**4000),
        (("calibrated_classes",), -1),
    ],
)
def test_numbers_that_cannot_be_are_refused_by_the_header_alone(copied, where, value):
    path = copied("m.visvm")

    def change(header, _):
        if isinstance(value, dict):
            header["sessions"][0]["test"] = {
                **value,
                **{f"{name}_accuracy": None for name in ("old", "new")},
            }
            return
        *above, last = where
        for key in above:
            header = header[key]
        header[last] = value

    rewrite(path, change)
    with refused("file-altered", ModelFileError):
        model_file.read_header(path)
