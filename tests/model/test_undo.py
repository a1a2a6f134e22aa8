"""The last change of a model file is taken back, once; what is kept for it is no secret."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests import tiny
from tests.refusals import refused
from visvm import ImageClassifier, SiteStatistics
from visvm.errors import InputError, ModelFileError
from visvm.model import container, undo
from visvm.model import file as model_file


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undo")
    model = tiny.write_model(folder)
    tiny.write_photos(folder / "more", ("yellow", "red"), n=2, seed=1)
    model.export_for_site(folder / "site.visvm")
    site = ImageClassifier.load(folder / "site.visvm", cache=False)
    site.learn_statistics(folder / "more").save(folder / "site.sums", reveal_features=True)
    return folder


@pytest.fixture
def path(place, tmp_path):
    (tmp_path / "m.visvm").write_bytes((place / "m.visvm").read_bytes())
    return tmp_path / "m.visvm"


def load(path):
    return ImageClassifier.load(path, cache=False)


def change(path, work, **how):
    model = load(path)
    work(model)
    model.save(path, **how)
    return model


def rename(model):
    model.rename_class("red", "crimson")


def told(model):
    """All that a model remembers, except the command that made it."""
    header, tensors = model_file.packed(model.model_)
    return {**header, "change": None}, {name: value.tobytes() for name, value in tensors.items()}


CHANGES = {
    "learn": lambda model, place: model.learn(place / "more"),
    "forget": lambda model, place: model.forget(place / "photos"),
    "rename": lambda model, place: rename(model),
    "merge-classes": lambda model, place: model.rename_class("red", "blue", merge=True),
    "forget-class": lambda model, place: model.forget_class("red"),
    "merge": lambda model, place: model.merge(SiteStatistics.load(place / "site.sums")),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_every_change_is_taken_back_to_the_last_bit(place, path, kind):
    before = told(load(path))
    changed = change(path, lambda model: CHANGES[kind](model, place))
    assert told(changed) != before
    assert told(load(path)) == told(changed)
    assert told(ImageClassifier.undo(path, cache=False)) == before
    assert told(load(path)) == before
    assert [each.name for each in path.parent.iterdir()] == ["m.visvm"]
    with refused("undo-none", ModelFileError):
        ImageClassifier.undo(path)


def test_unmerging_is_taken_back(place, path):
    sums = SiteStatistics.load(place / "site.sums")
    change(path, lambda model: model.merge(sums))
    merged = told(load(path))
    change(path, lambda model: model.unmerge(sums))
    assert told(ImageClassifier.undo(path, cache=False)) == merged


def test_what_is_kept_is_a_link_that_takes_no_time_and_the_disk_of_the_old_file(path):
    old = path.stat()
    change(path, rename)
    kept = undo.place_of(path).stat()
    assert (kept.st_ino, kept.st_size) == (old.st_ino, old.st_size)
    assert kept.st_nlink == 1


def test_only_the_last_change_is_kept(path):
    change(path, rename)
    change(path, lambda model: model.rename_class("blue", "navy"))
    assert load(path).classes_ == ("crimson", "green", "navy")
    assert ImageClassifier.undo(path, cache=False).classes_ == ("blue", "crimson", "green")
    with refused("undo-none"):
        ImageClassifier.undo(path)
    change(path, lambda model: model.forget_class("green"))  # after an undo, the next one
    assert ImageClassifier.undo(path, cache=False).classes_ == ("blue", "crimson", "green")


def test_saving_what_is_saved_already_loses_no_undo(path):
    changed = change(path, rename)
    changed.save(path)
    assert "red" in ImageClassifier.undo(path, cache=False).classes_


def test_a_failed_change_leaves_the_undo_of_the_one_before(path, monkeypatch):
    change(path, rename)

    def failing(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("visvm.model.container._write_tensors", failing)
        with refused("file-unwritable"):
            change(path, lambda model: model.forget_class("green"))
    assert sorted(each.name for each in path.parent.iterdir()) == [".m.visvm.undo", "m.visvm"]
    assert "red" in ImageClassifier.undo(path, cache=False).classes_


def test_where_the_disk_is_full_the_older_file_goes_first(path, monkeypatch):
    change(path, rename)
    plain, tries = container._write_tensors, []

    def full(*arguments):
        tries.append(undo.place_of(path).exists())
        if tries[-1]:
            raise OSError(28, "No space left on device")
        plain(*arguments)

    monkeypatch.setattr(container, "_write_tensors", full)
    change(path, lambda model: model.forget_class("green"))
    assert tries == [True, False]
    assert ImageClassifier.undo(path, cache=False).classes_ == ("blue", "crimson", "green")


def test_discarding_removes_what_is_kept_also_of_a_model_that_is_gone(path, visvm):
    change(path, rename)
    path.unlink()
    assert visvm("undo", path, "--discard")[0] == 0
    assert list(path.parent.iterdir()) == []
    assert visvm("undo", path)[0] == 2


def test_a_wrong_setting_is_refused_before_anything_is_learned(place, path, monkeypatch):
    monkeypatch.setenv("VISVM_UNDO", "yes")
    with refused("undo-setting", InputError):
        load(path).learn(place / "more")


def test_without_hard_links_it_is_a_copy_and_without_room_there_is_none(path, monkeypatch):
    def impossible(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", impossible)
    content = path.read_bytes()
    change(path, rename)
    assert undo.place_of(path).read_bytes() == content
    monkeypatch.setattr(undo, "written", impossible)
    with pytest.warns(UserWarning, match="cannot be undone"):
        change(path, lambda model: model.rename_class("blue", "navy"))
    assert load(path).classes_ == ("crimson", "green", "navy")
    assert [each.name for each in path.parent.iterdir()] == ["m.visvm"]


def test_nothing_is_kept_where_nobody_wants_it(path, monkeypatch):
    change(path, rename)
    change(path, lambda model: model.forget_class("green"), undo=False)
    assert [each.name for each in path.parent.iterdir()] == ["m.visvm"]  # nor that of before
    monkeypatch.setenv("VISVM_UNDO", "off")
    change(path, lambda model: model.rename_class("blue", "navy"))
    assert [each.name for each in path.parent.iterdir()] == ["m.visvm"]
    monkeypatch.setenv("VISVM_UNDO", "maybe")
    with refused("undo-setting", InputError):
        change(path, lambda model: model.rename_class("navy", "sea"))


def test_a_file_that_was_put_there_by_others_is_never_taken(place, path):
    change(path, rename)
    other = load(path)
    other.learn(place / "more")
    other.save(path.with_name("other.visvm"))
    path.with_name("other.visvm").replace(undo.place_of(path))
    with refused("undo-none"):
        ImageClassifier.undo(path)
    change(path, lambda model: model.rename_class("blue", "navy"))
    undo.place_of(path).unlink()
    undo.place_of(path).symlink_to(place / "m.visvm")
    with refused("undo-none"):
        ImageClassifier.undo(path)


def test_a_kept_file_that_is_torn_is_refused_and_changes_nothing(path):
    change(path, rename)
    content = path.read_bytes()
    kept = undo.place_of(path)
    kept.write_bytes(kept.read_bytes()[:-8])
    with refused("undo-none"):
        ImageClassifier.undo(path)
    assert path.read_bytes() == content


def test_a_link_to_a_model_keeps_beside_the_model(path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.visvm"
    link.symlink_to(path)
    change(link, rename)
    assert undo.place_of(link) == undo.place_of(path)
    assert "red" in ImageClassifier.undo(link, cache=False).classes_
    assert [each.name for each in link.parent.iterdir()] == ["link.visvm"]


def test_the_encoder_stays_where_it_is_by_now(place, path, tmp_path):
    for name in ("tiny.onnx", "tiny.onnx.json"):
        (tmp_path / name).write_bytes((place / name).read_bytes())
    moved = ImageClassifier.load(path, encoder=str(tmp_path / "tiny.onnx"), cache=False)
    moved.rename_class("red", "crimson")
    moved.save(path)
    again = ImageClassifier.undo(path, cache=False)
    assert Path(again.encoder_name) == tmp_path / "tiny.onnx"
    np.testing.assert_array_equal(again.model_.classes, ["blue", "green", "red"])


def test_exports_and_sums_keep_nothing(place, path):
    model = load(path)
    for _ in range(2):
        model.export(path.with_name("out.visvm"))
        model.export_for_site(path.with_name("site.visvm"))
    names = {each.name for each in path.parent.iterdir()}
    assert names == {"m.visvm", "out.visvm", "site.visvm"}
    change(path.with_name("out.visvm"), rename)  # a model that only predicts
    assert "red" in ImageClassifier.undo(path.with_name("out.visvm"), cache=False).classes_
