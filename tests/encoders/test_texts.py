"""Files of text features: what is read is what was written, and what is wrong is refused."""

import io
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.refusals import refused
from visvm.encoders.texts import Phrases, TextFeatures, read_texts, unit, write_texts
from visvm.errors import InputError

ROWS = unit(np.random.default_rng(0).normal(size=(3, 2, 4))).astype(np.float32)
TEXTS = TextFeatures(
    ("red", "dark green", "blue"),
    ROWS,
    ("a {}", "the {}"),
    "tower",
    "ab12",
    50.0,
    Phrases(("bright", "darker"), ROWS[:2, 0], np.array([[0, -1], [1, 2]])),
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "texts.npz"
    write_texts(path, TEXTS)
    return path


def arrays_of(path):
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


def test_what_is_written_is_read(file):
    found = read_texts(file)
    assert found.digest == TEXTS.digest
    assert (found.names, found.prompts, found.tower, found.image_digest, found.scale) == (
        *(TEXTS.names, TEXTS.prompts, "tower", "ab12"),
        50.0,
    )
    assert np.array_equal(found.features, ROWS)
    assert found.phrases.texts == ("bright", "darker")
    assert np.array_equal(found.phrases.classes, TEXTS.phrases.classes)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_names_and_half_precision_are_enough(tmp_path, n, k, p, seed):
    rows = np.random.default_rng(seed).normal(size=(n, k, p)).astype(np.float16)
    rows[..., 0] = 1.0
    given_rows = rows[:, 0] if k == 1 else rows
    path = tmp_path / "texts.npz"
    np.savez(path, names=np.array([f"c{i}" for i in range(n)]), features=given_rows)
    found = read_texts(path)
    assert found.features.shape == (n, k, p)
    assert np.linalg.norm(found.features, axis=2) == pytest.approx(np.ones((n, k)), abs=1e-6)
    mean = unit(found.features.astype(float).mean(axis=1))
    assert found.prototypes == pytest.approx(mean, abs=1e-5)


def test_classes_are_found_by_name_whatever_folders_add():
    found = TEXTS.of(["002.Dark_Green", "BLUE"])
    assert found.names == ("dark green", "blue")
    assert np.array_equal(found.features, ROWS[[1, 2]])
    assert found.phrases.texts == ("darker",)
    assert found.phrases.classes.tolist() == [[0, 1]]
    assert TEXTS.of(["red"]).phrases.classes.tolist() == [[0, -1]]
    assert TEXTS.of(["red"]).digest != TEXTS.digest
    with refused("text-names-missing", InputError) as caught:
        TEXTS.of(["red", "black"])
    assert "'black'" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("names", np.array(["red", "RED", "blue"]), "the same"),
        ("names", np.array(["red", "blue"]), "2 names"),
        ("names", np.array([1, 2, 3]), "type"),
        ("features", np.zeros((3, 2, 4), np.float32), "zero"),
        ("features", np.full((3, 2, 4), np.nan, np.float32), "finite"),
        ("features", np.ones(3, np.float32), "shape"),
        ("prompts", np.array(["a {}"]), "1 prompts"),
        ("scale", np.array(-1.0), "scale"),
        ("digest", np.array("00"), "digest"),
        ("phrase_features", np.ones((2, 3), np.float32), "2 phrases"),
        ("phrase_classes", np.array([[0, 3], [0, 1]]), "places"),
        ("phrase_classes", np.array([[-1, 1], [0, 1]]), "places"),
    ],
)
def test_what_does_not_fit_is_refused(file, name, value, said):
    arrays = arrays_of(file)
    del arrays["digest"]
    np.savez(file, **{**arrays, name: value})
    with refused("text-file-invalid", InputError) as caught:
        read_texts(file)
    assert said in str(caught.value)


def test_code_in_a_file_does_not_run(tmp_path):
    path = tmp_path / "evil.npz"
    np.savez(path, names=np.array([print], dtype=object), features=ROWS)
    with refused("text-file-invalid", InputError):
        read_texts(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", b"\x93NUMPY"])
def test_what_is_no_archive_is_refused(tmp_path, content):
    path = tmp_path / "texts.npz"
    path.write_bytes(content)
    with refused("text-file-invalid", InputError):
        read_texts(path)
    with refused("text-file-missing", InputError):
        read_texts(tmp_path / "other.npz")


def test_a_file_that_swells_is_refused(file, monkeypatch):
    monkeypatch.setattr("visvm.encoders.texts._LEAST_BYTES", 1000)
    arrays = {**arrays_of(file), "more": np.zeros(10**6)}
    np.savez_compressed(file, **arrays)
    with refused("text-file-invalid", InputError) as caught:
        read_texts(file)
    assert "far more" in str(caught.value)
    monkeypatch.setattr("visvm.encoders.texts._MAX_BYTES", 10)
    with refused("text-file-invalid", InputError):
        read_texts(file)


def changed(file, name, descr, shape, data=b"", packed=zipfile.ZIP_STORED):
    """Exchange one array of a file for bytes that say they are such a one."""
    header = io.BytesIO()
    said = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, said)
    with zipfile.ZipFile(file) as archive:
        parts = {part: archive.read(part) for part in archive.namelist() if part != "digest.npy"}
    parts[f"{name}.npy"] = header.getvalue() + data
    with zipfile.ZipFile(file, "w", packed) as archive:
        for part, content in parts.items():
            archive.writestr(part, content)


@pytest.mark.parametrize(
    ("name", "descr", "shape", "data"),
    [
        ("names", "<U0", (10**12,), b""),  # a number of texts that take no bytes
        ("prompts", "<U0", (10**12,), b""),
        ("names", "<U1", (2,), b"\xff" * 8),  # no letters
        ("scale", "<c16", (), bytes(16)),
    ],
)
def test_what_numpy_reads_and_nobody_wrote_is_refused(file, name, descr, shape, data):
    changed(file, name, descr, shape, data)
    with refused("text-file-invalid", InputError):
        read_texts(file)


def test_an_archive_that_is_packed_otherwise_is_refused(file):
    changed(file, "scale", "<f8", (), bytes(8), zipfile.ZIP_LZMA)
    with refused("text-file-invalid", InputError) as caught:
        read_texts(file)
    assert "numpy never does" in str(caught.value)


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    with refused("text-file-unwritable", InputError):
        write_texts(tmp_path / "none" / "texts.npz", TEXTS)


def test_an_array_that_says_it_is_larger_than_its_file_is_refused(file):
    header = io.BytesIO()
    said = {"descr": "<f4", "fortran_order": False, "shape": (2, 10**15)}
    np.lib.format.write_array_header_1_0(header, said)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("features.npy", header.getvalue())
    with refused("text-file-invalid", InputError) as caught:
        read_texts(file)
    assert "larger than it is" in str(caught.value)
