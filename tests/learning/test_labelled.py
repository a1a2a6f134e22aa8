"""Which files are meant, and what they show."""

import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from tests.refusals import refused
from visvm.errors import ImageError, InputError
from visvm.learning.labelled import Labelled, read_labelled

NFC, NFD = (unicodedata.normalize(form, "Bücher") for form in ("NFC", "NFD"))


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def refusal(code, *arguments, kind=InputError) -> str:
    """The one line with which these arguments are refused."""
    with refused(code, kind) as caught:
        read_labelled(*arguments)
    return str(caught.value)


def write_csv(folder: Path, content: str | bytes, name: str = "labels.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# Folders


def test_a_folder_gives_every_image_the_name_of_its_sub_folder(tmp_path):
    files = [touch(tmp_path / name) for name in ("cat/1.jpg", "cat/2.PNG", "dog/1.webp")]
    touch(tmp_path / "dog/notes.txt")
    touch(tmp_path / "readme.md")
    assert read_labelled(tmp_path) == Labelled(files, ["cat", "cat", "dog"])
    assert read_labelled(str(tmp_path)) == read_labelled(tmp_path)


def test_folders_of_folders_are_refused_until_somebody_says_which_names_the_class(tmp_path):
    files = [touch(tmp_path / f"{name}/1.jpg") for name in ("cats", "dogs/beagle", "dogs/pug")]
    line = refusal("folder-nested", tmp_path)
    assert "--top-level (nested=False) if the classes are cats, dogs" in line
    assert "--nested (nested=True) if they are cats, dogs/beagle, dogs/pug" in line
    assert read_labelled(tmp_path, nested=False) == Labelled(files, ["cats", "dogs", "dogs"])
    whole = ["cats", "dogs/beagle", "dogs/pug"]
    assert read_labelled(tmp_path, nested=True) == Labelled(files, whole)


def test_a_data_set_given_whole_is_refused_with_the_half_to_learn(tmp_path):
    for name in ("test/cat", "test/dog", "Train/cat", "Train/dog"):
        touch(tmp_path / name / "1.jpg")
    line = refusal("folder-is-split", tmp_path)
    assert f"{tmp_path}/Train --test {tmp_path}/test" in line
    with refused("folder-is-split"):
        read_labelled(tmp_path, nested=True)
    assert set(read_labelled(tmp_path, nested=False).labels) == {"test", "Train"}
    assert read_labelled(tmp_path / "Train").labels == ["cat", "dog"]


def test_train_may_be_a_class_among_others(tmp_path):
    for name in ("train", "bus"):
        touch(tmp_path / name / "1.jpg")
    assert read_labelled(tmp_path).labels == ["bus", "train"]


def test_hidden_files_and_folders_do_not_count(tmp_path):
    wanted = touch(tmp_path / "cat/1.jpg")
    for name in (
        ".git/1.jpg",
        "__MACOSX/1.jpg",
        "cat/.thumbnails/1.jpg",
        "cat/._1.jpg",
        ".DS_Store",
        "._loose.jpg",
    ):
        touch(tmp_path / name)
    assert read_labelled(tmp_path) == Labelled([wanted], ["cat"])


def test_names_in_both_unicode_forms_are_one_class(tmp_path):
    assert NFC != NFD
    touch(tmp_path / NFC / "1.jpg")
    touch(tmp_path / NFD / "2.jpg")
    assert read_labelled(tmp_path).labels == [NFC, NFC]


def test_an_empty_class_folder_is_named(tmp_path):
    touch(tmp_path / "cat/1.jpg")
    touch(tmp_path / "dog/notes.txt")
    assert str(tmp_path / "dog") in refusal("class-empty", tmp_path)


def test_loose_images_beside_the_classes_are_refused(tmp_path):
    touch(tmp_path / "cat/1.jpg")
    loose = touch(tmp_path / "2.jpg")
    assert str(loose) in refusal("image-outside-class", tmp_path)


def test_a_folder_without_classes_is_refused(tmp_path):
    assert "nothing" in refusal("classes-missing", tmp_path)
    for number in range(3):
        touch(tmp_path / f"{number}.jpg")
    assert "3 images" in refusal("classes-missing", tmp_path)


def test_what_does_not_exist_or_is_neither_folder_nor_table_is_refused(tmp_path):
    assert "nowhere" in refusal("path-missing", tmp_path / "nowhere")
    assert "xxx" in refusal("path-missing", tmp_path / ("x" * 300))
    assert "photo.jpg" in refusal("path-missing", touch(tmp_path / "photo.jpg"))


def test_a_name_that_cannot_be_printed_is_refused_on_one_line(tmp_path):
    touch(tmp_path / "cat\nfood" / "1.jpg")
    assert r"cat\nfood" in refusal("label-unprintable", tmp_path)


def test_an_empty_folder_whose_name_breaks_the_line_is_refused_on_one_line(tmp_path):
    (tmp_path / "cat\nfood").mkdir()
    assert r"cat\nfood" in refusal("class-empty", tmp_path)
    assert r"no\nsuch" in refusal("path-missing", tmp_path / "no\nsuch")


def test_a_name_that_is_no_text_is_refused(tmp_path):
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    Path(os.fsdecode(folder), "1.jpg").write_bytes(b"")
    refusal("label-unprintable", tmp_path).encode()


def test_a_folder_that_cannot_be_listed_is_refused(tmp_path, monkeypatch):
    touch(tmp_path / "cat/1.jpg")

    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", denied)
    assert "Permission denied" in refusal("folder-unreadable", tmp_path)


def test_a_class_folder_that_cannot_be_listed_is_refused(tmp_path, monkeypatch):
    touch(tmp_path / "cat/1.jpg")
    listing = os.scandir

    def denied(path):
        if str(path).endswith("cat"):
            raise PermissionError(13, "Permission denied", str(path))
        return listing(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(ImageError, match="Permission denied") as caught:
        read_labelled(tmp_path)
    assert len(str(caught.value).splitlines()) == 1


# Tables


@pytest.mark.parametrize(
    "header", ["", "path,label\n", " Path , LABEL \n"], ids=["none", "plain", "loose"]
)
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["no mark", "byte order mark"])
def test_a_table_with_and_without_header_and_byte_order_mark(tmp_path, header, mark):
    table = write_csv(tmp_path, f"{mark}{header}a.jpg,cat\nsub/b.jpg, dog \n\n")
    assert read_labelled(table) == Labelled(
        [tmp_path / "a.jpg", tmp_path / "sub/b.jpg"], ["cat", "dog"]
    )


def test_paths_of_a_table_are_relative_to_it_or_absolute(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    table = write_csv(tmp_path, "/far/a.jpg,cat\n../b.jpg,cat\n~/c.jpg,cat\n~d.jpg,cat\n")
    wanted = [
        Path("/far/a.jpg"),
        tmp_path / "../b.jpg",
        Path("/home/somebody/c.jpg"),
        tmp_path / "~d.jpg",
    ]
    assert read_labelled(table).sources == wanted


def test_a_table_with_quotes_windows_line_ends_and_accents(tmp_path):
    table = write_csv(
        tmp_path, f'"a, b.jpg","big, black cat"\r\nc.jpg,{NFD}\r\n', name="LABELS.CSV"
    )
    assert read_labelled(table) == Labelled(
        [tmp_path / "a, b.jpg", tmp_path / "c.jpg"], ["big, black cat", NFC]
    )


def test_numbers_in_a_table_are_text(tmp_path):
    assert read_labelled(write_csv(tmp_path, "a.jpg,007\n")).labels == ["007"]


@pytest.mark.parametrize("row", ["a.jpg", "a.jpg,cat,3", "a.jpg,", ",cat", " , cat", '"a\nb"'])
def test_a_bad_row_is_named(tmp_path, row):
    table = write_csv(tmp_path, f"path,label\nb.jpg,dog\n{row}\n")
    assert "Row 3" in refusal("table-row", table)


@pytest.mark.parametrize("content", ["", "\n\n", "path,label\n", "\ufeff"])
def test_a_table_without_rows_is_refused(tmp_path, content):
    assert "labels.csv" in refusal("table-empty", write_csv(tmp_path, content))


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("a.jpg,cat\n".encode("utf-16"), "table-unreadable"),
        (b"a.jpg,caf\xe9\n", "table-unreadable"),
        (b"a.jpg," + b"x" * 200_000, "table-unreadable"),
        (b'a.jpg,"x\ny"\n', "label-unprintable"),
        (b"a\0b.jpg,cat\n", "table-row"),
    ],
    ids=["utf-16", "latin-1", "a huge field", "a label of two lines", "a path with a null"],
)
def test_a_table_that_is_none_is_refused(tmp_path, content, code):
    assert "labels.csv" in refusal(code, write_csv(tmp_path, content))


def test_a_missing_table_is_refused(tmp_path):
    assert "labels.csv" in refusal("table-unreadable", tmp_path / "labels.csv")


# Lists


def test_a_list_of_files_with_labels(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    got = read_labelled(["a.jpg", Path("b.jpg"), "~/c.jpg", "~d.jpg"], ["cat", NFD, " dog ", "cat"])
    assert got == Labelled(
        [Path("a.jpg"), Path("b.jpg"), Path("/home/somebody/c.jpg"), Path("~d.jpg")],
        ["cat", NFC, "dog", "cat"],
    )


@pytest.mark.parametrize(
    "labels",
    [[3, -1], np.array([3, -1], dtype=np.int8), (np.int64(3), -1)],
    ids=["int", "array", "numpy"],
)
def test_whole_numbers_stay_numbers(labels):
    got = read_labelled(["a.jpg", "b.jpg"], labels).labels
    assert got == [3, -1]
    assert {type(label) for label in got} == {int}


def test_an_array_of_text_becomes_text():
    assert [type(label) for label in read_labelled(["a.jpg"], np.array(["cat"])).labels] == [str]


@pytest.mark.parametrize("label", ["", "  ", "a\nb", "a\tb", "\x1b[31m", "\udcff", "a\0"])
def test_text_that_cannot_be_printed_is_refused(label):
    code = "label-unprintable" if label.strip() else "label-empty"
    message = refusal(code, ["a.jpg"], [label])
    assert "a.jpg" in message
    message.encode()


@pytest.mark.parametrize("label", [1.0, float("nan"), None, b"cat", ("cat",)], ids=str)
def test_what_is_neither_text_nor_a_whole_number_is_refused(label):
    assert "a.jpg" in refusal("label-kind", ["a.jpg"], [label])


def test_text_and_numbers_together_are_refused():
    refusal("labels-mixed", ["a.jpg", "b.jpg"], ["1", 1])


def test_labels_must_be_as_many_as_files():
    assert "2 files and 1 labels" in refusal("labels-count", ["a.jpg", "b.jpg"], ["cat"])
    refusal("labels-missing", ["a.jpg"])


def test_one_text_is_not_a_list_of_labels():
    assert "'cat'" in refusal("labels-not-a-list", ["a.jpg", "b.jpg", "c.jpg"], "cat")


def test_labels_do_not_go_with_a_folder(tmp_path):
    touch(tmp_path / "cat/1.jpg")
    assert str(tmp_path) in refusal("labels-without-list", tmp_path, ["cat"])


def test_only_keeps_the_classes_asked_for():
    given = Labelled([Path("a"), Path("b"), Path("c")], ["cat", "dog", "cat"])
    assert given.only({"cat", "cow"}) == Labelled([Path("a"), Path("c")], ["cat", "cat"])
    assert given.only(set()) == Labelled([], [])
