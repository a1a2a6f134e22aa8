"""One file holds a model: what goes in comes out, and nothing else is taken for a model."""

import json
import os
import pickle
import stat
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from tests import tiny
from tests.data.make_format_1 import write_shades
from tests.model.raw import contents, metadata, rewrite, same_contents
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.encoders.loading import load_encoder
from visvm.errors import ModelFileError
from visvm.head.checks import is_finite
from visvm.head.scatter import DenseScatter, ThinScatter
from visvm.model import container
from visvm.model import file as model_file
from visvm.model.header import Header

pytestmark = pytest.mark.slow

FORMS = {"thin": (40, ThinScatter), "dense": (12, DenseScatter)}
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model file")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "base", n=4)
    tiny.write_photos(folder / "yellow", classes=("yellow",), n=4)
    return folder


@pytest.fixture(scope="module")
def encoder(place):
    return load_encoder(str(place / "tiny.onnx"))


@pytest.fixture(scope="module")
def models(place, encoder):
    """A model of each form; none of the tests changes it."""
    made = {}
    for form, (width, kind) in FORMS.items():
        model = ImageClassifier(encoder, n_components=width, cache=False, layers=(1, 3))
        model.learn(place / "base", test=place / "base")
        model.learn(place / "yellow")
        assert isinstance(model.head_.statistics_.scatter, kind)
        made[form] = model
    return made


@pytest.fixture(params=FORMS)
def model(request, models):
    return models[request.param]


@pytest.fixture
def path(model, tmp_path):
    """A model file."""
    model.save(tmp_path / "birds.visvm")
    return tmp_path / "birds.visvm"


@pytest.fixture
def load(encoder):
    return lambda path: ImageClassifier.load(path, encoder=encoder, cache=False)


@pytest.fixture
def refusal(load):
    """The one line with which a file is refused."""

    def told(path, code="file-altered") -> str:
        with refused(code, ModelFileError) as caught:
            load(path)
        assert path.name in str(caught.value)
        return str(caught.value)

    return told


# What goes in comes out


def test_header_and_tensors_come_back(model, path):
    header, tensors = contents(path)
    assert header["format"] == container.FORMAT == 1
    assert header["kind"] == model.model_.kind == "whole"
    assert set(header["tensors"]) == set(tensors)
    assert {tensor.dtype for tensor in tensors.values()} == {np.dtype(np.float64)}
    assert header["classes"] == ["blue", "green", "red", "yellow"]
    assert header["counts"] == [4, 4, 4, 4]
    assert header["sessions"] == json.loads(json.dumps(model.history_))
    assert header["encoder"]["name"] == model.encoder_name
    again, wanted = model_file.read(path), model.model_
    for name in ("encoder", "sessions", "site", "sites", "counts", "kind", "sums_on_disk"):
        assert getattr(again, name) == getattr(wanted, name), name
    assert again.calibration.n_classes == wanted.calibration.n_classes == 4
    np.testing.assert_array_equal(again.calibration.likelihoods, wanted.calibration.likelihoods)
    np.testing.assert_array_equal(tensors["calibration"], wanted.calibration.likelihoods)
    np.testing.assert_array_equal(tensors["coefficients"], wanted.head.coefficients)
    np.testing.assert_array_equal(tensors["class_sums"], wanted.head.sums.class_sums)


def test_the_head_comes_back(model, path, load):
    head, again = model.head_, load(path).head_
    for name in OPTION_KEYS:
        assert getattr(again, name) == getattr(head, name)
    for name in ("ridge_", "layers_", "ridge_path_", "layer_path_", "n_features_in_"):
        assert getattr(again, name) == getattr(head, name), name
    assert again.random_state == again.kernel_map_.seed == head.kernel_map_.seed
    assert again.layers_ == (1, 3)
    assert again.classes_.tolist() == head.classes_.tolist() == ["blue", "green", "red", "yellow"]
    np.testing.assert_array_equal(again.coefficients_, head.coefficients_)
    assert again.kernel_map_.digest == head.kernel_map_.digest
    assert again.mixer_.digest == head.mixer_.digest
    mine, theirs = again.statistics_, head.statistics_
    assert type(mine.scatter) is type(theirs.scatter)
    np.testing.assert_array_equal(mine.class_sums, theirs.class_sums)
    np.testing.assert_array_equal(mine.scatter.to_matrix(), theirs.scatter.to_matrix())
    if isinstance(mine.scatter, ThinScatter):
        np.testing.assert_array_equal(mine.scatter.targets, theirs.scatter.targets)
        assert len(mine.scatter.blocks) == len(theirs.scatter.blocks)
    else:
        np.testing.assert_array_equal(mine.scatter.cross, theirs.scatter.cross)


def test_layers_that_were_chosen_come_back_with_their_trials(place, encoder, load, tmp_path):
    model = ImageClassifier(encoder, n_components=30, cache=False)
    model.learn(place / "base")
    model.save(tmp_path / "m.visvm")
    again = load(tmp_path / "m.visvm").head_
    assert again.layer_path_ == model.head_.layer_path_ != []
    assert again.ridge_path_ == model.head_.ridge_path_ != []
    assert again.layers_ == model.head_.layers_


def test_a_thin_factor_of_many_blocks_comes_back(place, encoder, load, tmp_path):
    tiny.write_photos(tmp_path / "many", n=35, classes=("red", "green"))
    tiny.write_photos(tmp_path / "others", n=35, seed=1, classes=("red", "green"))
    model = ImageClassifier(encoder, n_components=250, cache=False, layers=(3,), ridge=1.0)
    model.learn(tmp_path / "many")
    model.learn(tmp_path / "others")
    assert len(model.head_.statistics_.scatter.blocks) == 2
    model.save(tmp_path / "m.visvm")
    scatter = load(tmp_path / "m.visvm").head_.statistics_.scatter
    assert len(scatter.blocks) == 2
    for mine, theirs in zip(scatter.blocks, model.head_.statistics_.scatter.blocks, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_only_the_lower_triangle_is_in_the_file(models, tmp_path):
    matrix = models["dense"].head_.statistics_.scatter.matrix
    models["dense"].save(tmp_path / "m.visvm")
    assert contents(tmp_path / "m.visvm")[1]["scatter"].tolist() == [
        matrix[row, column] for column in range(12) for row in range(column, 12)
    ]


def test_for_prediction_the_sums_are_not_read(model, path, monkeypatch):
    read, plain = [], container.OpenFile._tensor
    monkeypatch.setattr(
        container.OpenFile,
        "_tensor",
        lambda file, *which: read.append(which[0]) or plain(file, *which),
    )
    light = model_file.read(path, sums=False)
    assert set(read) == {
        "mixer.v",
        "mixer.v_bias",
        "mixer.u",
        "mixer.u_bias",
        "coefficients",
        "calibration",
        "known.centres",
        "known.tally",
        "known.root",
    }
    assert (light.head.sums, light.sums_on_disk, light.kind) == (None, True, "predictor")
    model.export(path.with_name("small.visvm"))
    header, tensors = contents(path.with_name("small.visvm"))
    assert set(tensors) == set(read)
    assert (header["head"]["form"], header["kind"]) == (None, "predictor")


def test_the_header_alone_can_be_read(model, path):
    header = model_file.read_header(path)
    assert header == msgspec.convert(contents(path)[0], Header)
    assert tuple(header.sessions) == model.model_.sessions


def test_names_in_every_script_come_back(model, path, load, tmp_path):
    again = load(path)
    for old, new in (("red", "Straße 'quoted' \"twice\" \\"), ("green", "日本語"), ("blue", "🐦")):
        again.rename_class(old, new)
    again.save(path)
    assert load(path).classes_ == again.classes_
    assert "日本語" in again.classes_


def test_a_home_folder_is_found(model, load, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    model.save("~/m.visvm")
    assert (tmp_path / "m.visvm").exists()
    assert load("~/m.visvm").classes_ == model.classes_
    monkeypatch.chdir(tmp_path)
    model.save("~copy.visvm")  # nobody's home
    assert (tmp_path / "~copy.visvm").exists()
    assert load("~copy.visvm").classes_ == model.classes_


# Writing


def test_equal_models_give_equal_files(model, path, load, tmp_path):
    load(path).save(tmp_path / "again.visvm")
    model.save(tmp_path / "once more.visvm")
    assert (
        (tmp_path / "again.visvm").read_bytes()
        == path.read_bytes()
        == (tmp_path / "once more.visvm").read_bytes()
    )


def test_a_new_file_may_be_read_by_those_whom_the_system_lets(model, tmp_path):
    before = os.umask(0o027)
    try:
        model.save(tmp_path / "m.visvm")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "m.visvm").stat().st_mode) == 0o640


def test_the_file_is_one_that_safetensors_would_write(path, tmp_path):
    header, tensors = contents(path)
    with safe_open(path, framework="numpy") as file:
        save_file(tensors, tmp_path / "theirs.visvm", metadata=file.metadata())
    assert same_contents(contents(tmp_path / "theirs.visvm"), (header, tensors))
    assert model_file.read(tmp_path / "theirs.visvm").counts == model_file.read(path).counts
    start = int.from_bytes(path.read_bytes()[:8], "little") + 8
    assert start % 8 == 0


def test_the_smallest_model_comes_back(place, encoder, load, tmp_path):
    model = ImageClassifier(encoder, n_components=5, cache=False, ridge=1.0)
    model.learn([place / "base/red/0-0.png"], ["red"])
    model.save(tmp_path / "m.visvm")
    again = load(tmp_path / "m.visvm")
    for each in (model, again):
        each.learn(place / "yellow")
    np.testing.assert_allclose(again.head_.coefficients_, model.head_.coefficients_, atol=1e-12)


def test_nothing_but_the_model_is_left(path):
    assert {each.name for each in path.parent.iterdir()} == {path.name}


def test_a_link_stays_a_link_and_a_mode_is_kept(model, path, load):
    link = path.parent / "elsewhere"
    link.mkdir()
    link /= "link.visvm"
    link.symlink_to(Path("..") / path.name)
    path.chmod(0o640)
    again = load(link)
    again.rename_class("red", "zinc")
    again.save(link)
    assert link.is_symlink()
    assert not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert "zinc" in load(path).classes_
    assert [each.name for each in link.parent.iterdir()] == ["link.visvm"]


@pytest.mark.parametrize(
    "step",
    ["os.fsync", "pathlib.Path.replace", "visvm.model.container._write_tensors", "shutil.copymode"],
)
def test_a_write_that_fails_leaves_the_old_file(model, path, load, monkeypatch, step):
    def failing(*arguments, **options):
        raise OSError(28, "No space left on device")

    content, other = path.read_bytes(), load(path).rename_class("red", "zinc")
    with monkeypatch.context() as patched:
        patched.setattr(step, failing)
        with refused("file-unwritable", ModelFileError) as caught:
            other.save(path)
    assert "No space left" in str(caught.value)
    assert path.read_bytes() == content
    assert {each.name for each in path.parent.iterdir()} == {path.name}
    other.save(path)  # the lock is free again
    assert "zinc" in load(path).classes_


FULL_DISK = """
import resource, signal, sys
from visvm import ImageClassifier
from visvm.errors import ModelFileError
model = ImageClassifier.load(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    model.save(sys.argv[1])
except ModelFileError as error:
    sys.exit(f"{error.code}: {error}")
"""


def test_a_disk_that_is_full_leaves_the_old_file(models, tmp_path):
    path = tmp_path / "m.visvm"
    models["thin"].save(path)
    content = path.read_bytes()
    assert len(content) > 20_000
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("file-unwritable: ")
    assert path.read_bytes() == content
    assert not path.with_name(f".{path.name}.part").exists()


@pytest.mark.kill
def test_what_a_killed_process_left_is_in_nobodys_way(model, path, load):
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(b"half a file")
    model.save(path)
    assert not part.exists()
    assert load(path).classes_ == model.classes_


def test_a_place_that_is_none_is_refused(model, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    for target, code in (
        ("nowhere/m.visvm", "folder-missing"),
        ("folder", "file-is-folder"),
        ("file/m.visvm", "folder-missing"),
        ("x" * 300, "folder-read-only"),
    ):
        with refused(code, ModelFileError):
            model.save(tmp_path / target)
    assert {each.name for each in tmp_path.iterdir()} == {"folder", "file"}


def test_a_link_that_leads_to_itself_is_refused(model, tmp_path, refusal):
    loop = tmp_path / "loop.visvm"
    loop.symlink_to(loop)
    refusal(loop, "file-missing")


# What is no model


def test_a_file_cut_short_anywhere_is_refused(path, refusal):
    content = path.read_bytes()
    start = int.from_bytes(content[:8], "little") + 8
    lengths = {
        0,
        1,
        7,
        8,
        9,
        start // 2,
        start - 1,
        start,
        start + 1,
        len(content) - 8,
        len(content) - 1,
    }
    for length in sorted(lengths | set(range(0, len(content), len(content) // 20))):
        path.write_bytes(content[:length])
        refusal(path, "file-foreign")


def test_a_file_with_something_after_it_is_refused(path, refusal):
    path.write_bytes(path.read_bytes() + b"\0" * 8)
    refusal(path, "file-foreign")


@pytest.fixture(scope="module")
def victims(models, tmp_path_factory):
    """Of every form: a file to alter, its content, and what is in it."""
    folder = tmp_path_factory.mktemp("victims")
    found = {}
    for form, model in models.items():
        path = folder / f"{form}.visvm"
        model.save(path)
        found[form] = path, path.read_bytes(), contents(path)
    return found


@pytest.mark.parametrize("form", FORMS)
@given(
    place=st.one_of(st.floats(0, 1, exclude_max=True), st.floats(0, 0.12)), mask=st.integers(1, 255)
)
@example(place=0.0, mask=1)
@example(place=0.999999, mask=0x80)
def test_one_altered_byte_is_noticed(victims, encoder, form, place, mask):
    path, content, before = victims[form]
    altered = bytearray(content)
    altered[int(place * len(content))] ^= mask
    path.write_bytes(altered)
    message = None
    try:
        ImageClassifier.load(path, encoder=encoder, cache=False)
    except ModelFileError as error:
        message = str(error)
    if message is None:  # a space that does not count became another
        assert same_contents(contents(path), before)
        assert content[int(place * len(content))] == ord(" ")
    else:
        assert len(message.splitlines()) == 1


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=50)
@given(data=st.data())
def test_many_altered_bytes_are_noticed(victims, encoder, form, data):
    path, content, _ = victims[form]
    first = data.draw(st.integers(0, len(content) - 2))
    length = data.draw(st.integers(1, 2000))
    noise = data.draw(st.binary(min_size=1, max_size=2000))
    path.write_bytes(content[:first] + noise + content[first + length :])
    if path.read_bytes() == content:
        return
    with pytest.raises(ModelFileError) as caught:
        ImageClassifier.load(path, encoder=encoder, cache=False)
    assert len(str(caught.value).splitlines()) == 1


def test_every_tensor_is_checked(path, refusal):
    content = path.read_bytes()
    start = int.from_bytes(content[:8], "little") + 8
    described = json.loads(content[8:start])
    for name in model_file.read_header(path).tensors:
        first, last = described[name]["data_offsets"]
        for at in (first, (first + last) // 2, last - 1):
            altered = bytearray(content)
            altered[start + at] ^= 0x10
            path.write_bytes(altered)
            assert name in refusal(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused_in_every_tensor(path, refusal, value):
    content = path.read_bytes()
    for name in model_file.read_header(path).tensors:

        def change(header, tensors, name=name):
            tensors[name].flat[-1] = value

        path.write_bytes(content)
        rewrite(path, change)
        message = refusal(path)
        assert name in message
        assert "NaN or infinity" in message


@pytest.mark.parametrize("value", [1e101, -1e300])
def test_numbers_whose_products_are_none_are_refused_in_every_tensor(path, refusal, value):
    content = path.read_bytes()
    for name in model_file.read_header(path).tensors:

        def change(header, tensors, name=name):
            tensors[name].flat[0] = value

        path.write_bytes(content)
        rewrite(path, change)
        assert f"{name} holds numbers" in refusal(path)


def test_infinities_that_cancel_are_noticed(path, refusal):
    def change(header, tensors):
        tensors["mixer.v"][0, :2] = np.inf, -np.inf

    rewrite(path, change)
    assert "mixer.v" in refusal(path)


def test_large_numbers_are_no_infinities(path, load):
    def change(header, tensors):
        tensors["mixer.v"][0, :2] = 1e100, -1e100

    rewrite(path, change)
    load(path)
    assert is_finite(np.array([1.5e308, 1.5e308]))  # though their sum is none


def test_a_rewritten_file_is_read(path, load, model):
    """What the tests around this one do to a file is no reason by itself to refuse it."""
    rewrite(path)
    assert load(path).classes_ == model.classes_


@pytest.mark.parametrize("version", [0, 2, "1", None, [1]])
def test_another_format_is_refused(path, refusal, version):
    rewrite(path, lambda header, tensors: {**header, "format": version})
    assert f"format {version!r}" in refusal(path, "file-format")


def test_a_newer_format_may_lack_what_this_one_has(path, refusal):
    rewrite(path, lambda header, tensors: {"format": 2})
    assert "format 2" in refusal(path, "file-format")


HEADER_KEYS = ["format", "encoder", "head", "classes", "counts", "sessions", "tensors"]
OPTION_KEYS = [
    "n_components",
    "ridge",
    "svm_cost",
    "hidden",
    "epochs",
    "optimizer",
    "learning_rate",
]
OPTION_KEYS += ["batch_size", "identity_weight"]
HEAD_KEYS = [
    *OPTION_KEYS,
    "layer_dims",
    "layers",
    "chosen_ridge",
    "ridge_path",
    "layer_path",
    "kernel_map",
    "form",
    "ridge_basis",
]


def test_the_keys_are_those_that_are_tried(path):
    header, _ = contents(path)
    assert sorted(header) == sorted([*HEADER_KEYS, "calibrated_classes", "kind", "learned"])
    assert sorted(header["head"]) == sorted(HEAD_KEYS)


@pytest.mark.parametrize("key", HEADER_KEYS)
def test_a_header_without_a_part_is_refused(path, refusal, key):
    def change(header, tensors):
        del header[key]

    rewrite(path, change)
    refusal(path)


@pytest.mark.parametrize("part", ["head", "encoder", "kernel_map"])
def test_a_part_without_a_part_is_refused(path, refusal, part):
    content = path.read_bytes()
    header, _ = contents(path)
    keys = set(header["head"]["kernel_map"] if part == "kernel_map" else header[part])
    for key in keys - {"optimizer", "views", "ridge_basis"}:  # which early files do not have

        def change(header, tensors, key=key):
            del (header["head"]["kernel_map"] if part == "kernel_map" else header[part])[key]

        path.write_bytes(content)
        rewrite(path, change)
        refusal(path)


@pytest.mark.parametrize("header", [[], "text", 3, None, {}])
def test_a_header_that_is_none_is_refused(path, refusal, header):
    def change(old, tensors):
        return header

    if header is None:
        save_file({}, path, metadata=metadata("null"))
    else:
        rewrite(path, change)
    refusal(path)


NO_JSON = {
    "nothing": "",
    "half": "{",
    "deep": "[" * 100_000,
    "a format of NaN": '{"format": NaN}',
    "infinity": '{"format": 1, "more": -Infinity}',
}


@pytest.mark.parametrize("text", NO_JSON.values(), ids=NO_JSON)
def test_a_header_that_is_no_json_is_refused(path, refusal, text):
    save_file({"a": np.zeros(1)}, path, metadata=metadata(text))
    refusal(path)


NUMBERS = {
    "n_components",
    "ridge",
    "svm_cost",
    "hidden",
    "epochs",
    "learning_rate",
    "batch_size",
    "identity_weight",
    "chosen_ridge",
}
LISTS = {"ridge_path", "layer_path", "sessions"}  # which may be empty


@pytest.mark.parametrize("wrong", [None, 3, "text", [], {}, [[]], -1, True, 1e400], ids=repr)
def test_a_part_of_another_kind_is_refused(path, refusal, wrong):
    content, (before, _) = path.read_bytes(), contents(path)
    for part, key in [(None, key) for key in HEADER_KEYS if key != "format"] + [
        ("head", key) for key in HEAD_KEYS
    ]:
        was = (before[part] if part else before)[key]
        if was == wrong or (wrong == 3 and key in NUMBERS) or (wrong in ([], {}) and key in LISTS):
            continue
        if wrong is None and key == "ridge_basis":  # as of a λ that was given
            continue

        def change(header, tensors, part=part, key=key):
            (header[part] if part else header)[key] = wrong

        path.write_bytes(content)
        rewrite(path, change, digests=key != "tensors")
        refusal(path)


@pytest.mark.parametrize(
    "classes",
    [
        ["yellow", "red", "green", "blue"],
        ["a", "a", "b", "c"],
        ["a", "b", "c"],
        ["a", "b", "c", 4],
        [1.5, 2.5, 3.5, 4.5],
        [1, 2, 3, 2**70],
        ["a", "a\0", "b", "c"],  # in an array, both are "a"
        ["a", "b", "c", "\ud800"],
    ],
)
def test_classes_that_cannot_be_are_refused(path, refusal, classes):
    def change(header, tensors):
        header["classes"] = classes

    rewrite(path, change)
    refusal(path)


def test_other_sums_than_the_form_says_are_refused(path, refusal):
    content = path.read_bytes()
    for form in ("thin", "dense", "other", None):
        if form == model_file.read_header(path).head.form:
            continue

        def change(header, tensors, form=form):
            header["head"]["form"] = form

        path.write_bytes(content)
        rewrite(path, change)
        refusal(path)
        path.write_bytes(content)


@pytest.mark.parametrize("how", ["longer", "flat", "turned", "empty"])
def test_tensors_of_another_shape_are_refused(path, refusal, how):
    content = path.read_bytes()
    changes = {
        "longer": lambda tensor: np.concatenate([tensor, tensor]),
        "flat": lambda tensor: tensor.reshape(1, -1) if tensor.ndim == 1 else tensor.ravel(),
        "turned": lambda tensor: np.ascontiguousarray(tensor.T),
        "empty": lambda tensor: tensor[:0],
    }
    for name in model_file.read_header(path).tensors:

        def change(header, tensors, name=name):
            tensors[name] = changes[how](tensors[name])

        path.write_bytes(content)
        before = contents(path)[1][name].shape
        rewrite(path, change)
        if contents(path)[1][name].shape != before:
            refusal(path)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.complex64])
def test_tensors_of_another_type_are_refused(path, refusal, dtype):
    content = path.read_bytes()
    for name in model_file.read_header(path).tensors:

        def change(header, tensors, name=name):
            tensors[name] = tensors[name].astype(dtype)

        path.write_bytes(content)
        rewrite(path, change)
        message = refusal(path)
        assert name in message
        assert "type" in message


def test_missing_and_additional_tensors_are_refused(path, refusal):
    content = path.read_bytes()
    for name in model_file.read_header(path).tensors:

        def change(header, tensors, name=name):
            del tensors[name]

        for digests in (False, True):
            path.write_bytes(content)
            rewrite(path, change, digests=digests)
            refusal(path)
    path.write_bytes(content)
    rewrite(path, lambda header, tensors: tensors.update(more=np.zeros(3)), digests=False)
    refusal(path)


def test_a_random_map_of_any_size_is_not_drawn_before_the_sums_are_compared(path, refusal):
    def change(header, tensors):
        header["head"]["n_components"] = 2_000_000

    rewrite(path, change)
    assert "2000001" in refusal(path)


@pytest.mark.parametrize(
    ("name", "value"), [("id", "../../x"), ("id", "0123456789abcdef\n"), ("labels", [])]
)
def test_sites_that_cannot_be_are_refused(path, refusal, name, value):
    site = {
        "id": "0123456789abcdef",
        "merged_at": "2026-11-18T08:00:00+00:00",
        "n_images": 3,
        "digest": "d",
        "labels": ["red"],
        "calibration_weight": 1.0,
    }

    def change(header, tensors):
        header["merged"] = [{**site, name: value}]

    rewrite(path, change)
    refusal(path)


def test_another_random_map_is_refused(path, refusal):
    def change(header, tensors):
        header["head"]["kernel_map"]["seed"] = 1

    rewrite(path, change)
    assert "random map" in refusal(path)


def test_other_files_are_refused(tmp_path, refusal):
    path = tmp_path / "birds.visvm"
    refusal(path, "file-missing")
    refusal(tmp_path / ("x" * 300), "file-missing")
    for content in (
        b"",
        b"a text\nof two lines\n",
        b"\0" * 1000,
        b"\xff" * 1000,
        b"{}",
        (ROOT / "pyproject.toml").read_bytes(),
    ):
        path.write_bytes(content)
        refusal(path, "file-foreign")
    save_file({"a": np.zeros(3)}, path)
    refusal(path, "file-foreign")
    save_file({"a": np.zeros(3)}, path, metadata={"format": "pt", "visvm": "{}"})
    refusal(path, "file-foreign")
    tiny.write_encoder(tmp_path).replace(path)
    refusal(path, "file-foreign")
    path.unlink()
    path.mkdir()
    refusal(path, "file-is-folder")


class Bomb:
    """Unpickling it writes a file."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


def test_loading_runs_no_code(path, refusal, load, tmp_path):
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    pickle.loads(bomb)
    (tmp_path / "exploded").unlink()  # it works
    whole = path.read_bytes()
    for content in (
        bomb,
        bomb + whole,
        whole[:8] + bomb + whole[8 + len(bomb) :],
        len(bomb).to_bytes(8, "little") + bomb,
    ):
        path.write_bytes(content)
        refusal(path, "file-foreign")
    path.write_bytes(whole)
    text = "__import__('pathlib').Path('exploded').touch()"
    rewrite(
        path, lambda header, tensors: {**header, "encoder": {**header["encoder"], "name": text}}
    )
    load(path)
    assert not (tmp_path / "exploded").exists()
    assert not Path("exploded").exists()


# Several at once

LEARN = """
import sys
from pathlib import Path
from visvm import ImageClassifier
from visvm.model import container
path, folder = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for _ in range(3):
    with container.locked(path):
        model = ImageClassifier.load(path, cache=False)
        model.learn(folder)
        model.save(path)
"""


def test_two_processes_that_learn_at_once_both_end_up_in_the_file(place, tmp_path):
    model = ImageClassifier(str(place / "tiny.onnx"), n_components=40, cache=False, ridge=1.0)
    model.learn(place / "base")
    model.save(tmp_path / "m.visvm")
    folders = [
        tiny.write_photos(tmp_path / name, classes=(name,), n=3) for name in ("yellow", "red")
    ]
    (folders[1] / "red").rename(folders[1] / "rouge")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", LEARN, tmp_path / "m.visvm", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for folder in folders
    ]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            process.communicate(timeout=60)
            assert process.returncode == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()
    again = ImageClassifier.load(tmp_path / "m.visvm", cache=False)
    assert dict(zip(again.classes_, again.class_counts_, strict=True)) == {
        "blue": 4,
        "green": 4,
        "red": 4,
        "rouge": 9,
        "yellow": 9,
    }
    assert [entry["session"] for entry in again.history_] == list(range(1, 8))


def test_who_waits_is_told_once_and_gets_the_file_in_the_end(tmp_path):
    path, told, order = tmp_path / "m.visvm", [], []
    waits = threading.Event()

    def second():
        with container.locked(path, lambda: (told.append("waiting"), waits.set())):
            order.append("second")

    with container.locked(path, lambda: told.append("first waited")):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(10)
        order.append("first")
    thread.join(10)
    assert (told, order) == (["waiting"], ["first", "second"])


def test_a_lock_may_be_held_while_writing_and_is_freed_by_an_error(model, tmp_path):
    path = tmp_path / "m.visvm"
    with container.locked(path), container.locked(path):
        model.save(path)
    with pytest.raises(RuntimeError), container.locked(path):
        raise RuntimeError
    told = []
    with container.locked(path, lambda: told.append("waiting")):
        pass
    assert not told


CONTEND = """
import os, sys, time
from pathlib import Path
from visvm.model import container
path, counter = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(60):
    with container.locked(path):
        seen = int(counter.read_text())
        time.sleep(0.0005)
        counter.write_text(str(seen + 1))
"""


def test_a_lock_whose_file_is_removed_still_keeps_everybody_else_out(tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")
    command = [sys.executable, "-c", CONTEND, tmp_path / "m.visvm", counter]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert counter.read_text() == "180"
    assert [each.name for each in tmp_path.iterdir()] == ["counter"]


def test_who_waited_for_a_lock_file_that_is_gone_takes_the_new_one(tmp_path, monkeypatch):
    path, place = tmp_path / "m.visvm", tmp_path / ".m.visvm.lock"
    plain = container.FileLock.acquire

    def overtaken(lock, **options):
        monkeypatch.undo()
        plain(lock, **options)
        place.unlink()  # as who held it before does, between our opening it and our having it

    monkeypatch.setattr(container.FileLock, "acquire", overtaken)
    with container.locked(path):
        assert os.stat(place).st_nlink == 1
    assert not place.exists()


def test_a_folder_that_cannot_be_written_is_refused(model, tmp_path, monkeypatch):
    def denied(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("visvm.model.container._make", denied)
    with refused("folder-read-only", ModelFileError) as caught:
        model.save(tmp_path / "m.visvm")
    assert "Permission denied" in str(caught.value)
    assert os.listdir(tmp_path) == []


# Files that earlier versions wrote

DATA = Path(__file__).parents[1] / "data"
# Raw scores, and probabilities, for blue, green and red; raw scores after yellow has been learned
# as well.
SCORES = [
    [-0.5764591, -1.0369563, 0.5075579],
    [-0.7820847, 0.6229893, -0.979091],
    [0.8804474, -0.9592059, -1.0138832],
]
CHANCES = [
    [0.1414375, 0.0680923, 0.7904702],
    [0.0906192, 0.8430974, 0.0662833],
    [0.9063258, 0.0488684, 0.0448057],
]
SCORES_AFTER = [
    [-0.5613299, -1.0671513, 0.5243804, -1.1142366],
    [-0.7427339, 0.5078671, -1.0351373, -1.0671867],
    [0.8885846, -0.9645077, -0.9772618, -1.1229171],
]


def in_order_of_classes(predictions):
    return [[score for _, score in sorted(each.top)] for each in predictions]


def test_a_file_of_format_1_is_read_and_learns_on(tmp_path):
    content = (DATA / "format-1.visvm").read_bytes()
    header = model_file.read_header(DATA / "format-1.visvm")
    assert (header.encoder.name, header.kind, header.kind_by_parts) == ("tiny.onnx", None, "whole")
    model = ImageClassifier.load(
        DATA / "format-1.visvm", encoder=str(DATA / "tiny.onnx"), cache=False
    )
    assert (model.classes_, model.class_counts_) == (("blue", "green", "red"), (2, 4, 6))
    assert (model.head_.ridge_, model.head_.layers_, len(model.history_)) == (3.0, (1, 3), 2)
    assert isinstance(model.head_.statistics_.scatter, ThinScatter)
    shades = write_shades(tmp_path / "test", ("red", "green", "blue"), [7])
    pictures = [shades / label / "7.png" for label in ("red", "green", "blue")]
    assert [each.label for each in model.predict(pictures)] == ["red", "green", "blue"]
    np.testing.assert_allclose(
        in_order_of_classes(model.predict(pictures, raw=True)), SCORES, atol=1e-5
    )
    np.testing.assert_allclose(in_order_of_classes(model.predict(pictures)), CHANCES, atol=1e-5)
    model.learn(write_shades(tmp_path / "yellow", ("yellow",), range(3)))
    np.testing.assert_allclose(
        in_order_of_classes(model.predict(pictures, raw=True)), SCORES_AFTER, atol=1e-5
    )
    model.save(tmp_path / "m.visvm")
    assert (DATA / "format-1.visvm").read_bytes() == content
