"""``visvm doctor data``: which data sets are there, and what is expected."""

import json

import pytest

from tests.bench.test_cifar import write_cifar
from tests.bench.test_datasets import labels, write_set
from visvm.bench.datasets import DATASETS


@pytest.fixture(autouse=True)
def no_data_root(monkeypatch):
    monkeypatch.delenv("VISVM_DATA", raising=False)


def test_doctor_data_without_a_folder_says_what_is_expected(visvm):
    code, out, err = visvm("doctor", "data")
    assert (code, err) == (0, "")
    assert "set VISVM_DATA to one, or give --data FOLDER" in out
    assert out.count(": absent\n") == 9
    for known in DATASETS.values():
        lists = [split.lists for split in known.splits]
        for text in (
            known.title,
            known.layout,
            known.source,
            known.url,
            known.terms,
            known.classes,
            *lists,
        ):
            assert text in out
        assert all(
            f"{split.train} training and {split.test} test images" in out for split in known.splits
        )
    assert max(map(len, out.splitlines())) <= 80


def test_doctor_data_tells_what_is_there(visvm, tmp_path, monkeypatch):
    write_set(tmp_path, "ucf101", labels(101))
    (tmp_path / "cub200").mkdir()
    code, out, err = visvm("doctor", "data", "--data", tmp_path)
    assert (code, err) == (0, "")
    assert f"data folder: {tmp_path}\n" in out
    found = "200 training and 100 test images of the first 100; 101 classes"
    assert f"UCF101 (ucf101): other counts\n  found      {found}\n" in out
    assert (
        f"CUB-200-2011 (cub200): unreadable\n  why        {tmp_path}/cub200 has no folder train."
        in out
    )
    assert out.count(": absent\n") == 7
    monkeypatch.setenv("VISVM_DATA", str(tmp_path))
    assert visvm("doctor", "data") == (0, out, "")


def test_doctor_data_in_json(visvm, tmp_path):
    write_cifar(tmp_path / "cifar-100-python")
    code, out, err = visvm("doctor", "data", "--data", tmp_path, "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert said["root"] == str(tmp_path)
    assert [each["verdict"] for each in said["datasets"]] == ["other counts", *["absent"] * 8]
    first = said["datasets"][0]
    assert (first["n_classes"], first["n_train"], first["n_test"], first["reason"]) == (
        100,
        200,
        100,
        None,
    )
    assert first["dataset"]["splits"][0]["train"] == {"n": 50000, "approximate": False}
    assert json.loads(visvm("doctor", "data", "--json")[1])["root"] is None


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["dta"], "dta"),
        (["--data", "."], "visvm doctor data"),
        (["data", "--data", "missing"], "missing"),
    ],
)
def test_doctor_refuses_in_one_line(visvm, tmp_path, monkeypatch, arguments, fact):
    monkeypatch.chdir(tmp_path)
    code, out, err = visvm("doctor", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert fact in err


def test_doctor_alone_is_about_the_machine(visvm, tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    code, out, _ = visvm("doctor", "--json")
    assert code == 0
    assert {"python", "packages", "weights", "cache"} <= set(json.loads(out))
