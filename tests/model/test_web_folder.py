"""What ``visvm export --web`` takes for a folder of its own, which may be replaced."""

import json
import os

import pytest

from visvm.model.portable import web


@pytest.mark.parametrize(
    "said",
    [
        {"made_by": "visvm export --web"},
        {"made_by": "visvm export --web", "names": 5},
        {"made_by": "visvm export --web", "names": [["model.json"]]},
        {"made_by": ["visvm export --web"], "names": ["model.json"]},
        {"made_by": "another", "names": ["model.json"]},
        [],
    ],
)
def test_a_folder_that_says_something_else_is_not_ours(tmp_path, said):
    (tmp_path / "model.json").write_text(json.dumps(said))
    assert not web._is_ours(tmp_path)


def test_a_folder_is_ours_until_something_else_is_in_it(tmp_path):
    said = {"made_by": "visvm export --web", "names": ["model.json"], "labels": ["red"]}
    (tmp_path / "model.json").write_text(json.dumps(said))
    assert web._is_ours(tmp_path)
    (tmp_path / "mine.txt").touch()
    assert not web._is_ours(tmp_path)


@pytest.mark.parametrize("kind", ["nested", "pipe", "device"])
def test_what_would_never_end_is_not_read(tmp_path, kind):
    about = tmp_path / "model.json"
    if kind == "nested":
        about.write_text("[" * 100_000 + "]" * 100_000)
    elif kind == "pipe":
        os.mkfifo(about)
    else:
        about.symlink_to("/dev/zero")
    assert not web._is_ours(tmp_path)
