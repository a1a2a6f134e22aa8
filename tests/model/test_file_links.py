"""Writing a model touches no other file, whatever lies in its folder under the names it uses."""

import os

import numpy as np
import pytest

from tests.refusals import refused
from visvm.errors import ModelFileError
from visvm.model import container

pytestmark = pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="needs links")


@pytest.fixture
def write(tmp_path):
    """Write a model file, as every command does."""
    path = tmp_path / "m.visvm"

    def written():
        with container.locked(path):
            container.replace_file(path, {}, {"x": np.ones(3)})
        return path

    return written


def test_a_link_in_the_place_of_the_part_is_not_followed(tmp_path, write):
    other = tmp_path / "precious"
    other.write_bytes(b"kept")
    (tmp_path / ".m.visvm.part").symlink_to(other)
    path = write()
    assert other.read_bytes() == b"kept"
    assert path.is_file()
    assert not path.is_symlink()


def test_a_link_to_nowhere_makes_no_file_there(tmp_path, write):
    (tmp_path / ".m.visvm.part").symlink_to(tmp_path / "elsewhere")
    write()
    assert not (tmp_path / "elsewhere").exists()


def test_a_part_that_a_kill_has_left_is_replaced(tmp_path, write):
    (tmp_path / ".m.visvm.part").write_bytes(b"half")
    write()
    assert not (tmp_path / ".m.visvm.part").exists()


def test_a_second_name_of_another_file_is_not_written_to(tmp_path, write):
    other = tmp_path / "precious"
    other.write_bytes(b"kept")
    os.link(other, tmp_path / ".m.visvm.part")
    write()
    assert other.read_bytes() == b"kept"


def test_a_folder_in_the_place_of_the_part_is_one_line(tmp_path, write):
    (tmp_path / ".m.visvm.part").mkdir()
    with refused("file-unwritable", ModelFileError):
        write()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path, write):
    other = tmp_path / "precious"
    other.write_bytes(b"kept")
    (tmp_path / ".m.visvm.lock").symlink_to(other)
    with refused("folder-read-only", ModelFileError):
        write()
    assert other.read_bytes() == b"kept"
    (tmp_path / ".m.visvm.lock").unlink()
    (tmp_path / ".m.visvm.lock").symlink_to(tmp_path / "elsewhere")
    with refused("folder-read-only", ModelFileError):
        write()
    assert not (tmp_path / "elsewhere").exists()
