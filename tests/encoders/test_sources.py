"""Images at URIs."""

import json
import zipfile

import pytest

from tests import tiny
from tests.encoders.refusals import refusal
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.encoders.sources import RemoteFile, is_uri
from visvm.errors import InputError
from visvm.learning.labelled import read_labelled

pytest.importorskip("pyarrow")
fsspec = pytest.importorskip("fsspec")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("remote")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "photos", n=6)
    (folder / "photos" / "red" / ".hidden.png").write_bytes(b"")
    (folder / "photos" / "red" / "notes.txt").write_text("no picture")
    with zipfile.ZipFile(folder / "photos.zip", "w") as archive:
        for path in sorted((folder / "photos").rglob("*.*")):
            archive.write(path, path.relative_to(folder))
    return folder


@pytest.fixture(params=["file", "file with a slash", "zip"])
def uri(request, photos):
    places = {
        "file": (photos / "photos").as_uri(),
        "file with a slash": (photos / "photos").as_uri() + "/",
        "zip": f"zip://photos::{(photos / 'photos.zip').as_uri()}",
    }
    return places[request.param]


def test_the_same_images_and_labels_as_of_a_folder(photos, uri):
    here, there = read_labelled(photos / "photos"), read_labelled(uri)
    assert there.labels == here.labels
    assert [source.read_bytes() for source in there.sources] == [
        source.read_bytes() for source in here.sources
    ]


def test_the_same_model_as_of_a_folder(photos, uri):
    here, there = (
        ImageClassifier(str(photos / "tiny.onnx"), 40, ridge=1.0, cache=False) for _ in range(2)
    )
    here.learn(photos / "photos")
    there.learn(uri)
    files = sorted((photos / "photos").rglob("*.png"))
    features = here.layer_features([path for path in files if not path.name.startswith(".")])
    assert (there.scores(features) == here.scores(features)).all()


def test_single_files_and_predictions(photos):
    model = ImageClassifier(str(photos / "tiny.onnx"), 40, ridge=1.0, cache=False)
    model.learn(photos / "photos")
    path = photos / "photos" / "green" / "0-0.png"
    here, there = model.predict([path, path.as_uri()])
    assert (here.label, here.score) == (there.label, there.score)
    assert (here.path, there.path) == (str(path), path.as_uri())


def test_a_test_folder_may_be_a_uri(photos, tmp_path, visvm):
    options = (
        "--encoder",
        photos / "tiny.onnx",
        "--components",
        40,
        "--no-cache",
        "--json",
        "--quiet",
    )
    code, printed, _ = visvm(
        "learn", tmp_path / "m", photos / "photos", "--test", (photos / "photos").as_uri(), *options
    )
    assert (code, json.loads(printed)["test"]["n"]) == (0, 18)


def test_damaged_archives_are_told_and_damaged_members_left_out(photos, tmp_path):
    content = bytearray((photos / "photos.zip").read_bytes())
    start = content.index(b"\x89PNG")
    content[start + 40] ^= 0xFF
    (tmp_path / "spoiled.zip").write_bytes(content)
    given = read_labelled(f"zip://photos::{(tmp_path / 'spoiled.zip').as_uri()}")
    model = ImageClassifier(str(photos / "tiny.onnx"), 40, ridge=1.0, cache=False)
    assert len(model.learn(given.sources, given.labels, skip_unreadable=True).skipped) == 1
    (tmp_path / "none.zip").write_bytes(b"no archive")
    place = f"zip://photos::{(tmp_path / 'none.zip').as_uri()}"
    refusal("uri-unreadable", lambda: read_labelled(place), place, kind=InputError)


@pytest.mark.parametrize(
    "place", ["foo://bucket/x", "file:///no/such/folder", "zip://photos::file:///no/such.zip"]
)
def test_places_that_cannot_be_read_are_refused_in_one_line(place):
    refusal("uri-unreadable", lambda: read_labelled(place), place, kind=InputError)


class Offline(fsspec.AbstractFileSystem):
    """Raises a kind of error that nobody knows, as the Hugging Face hub does without a network."""

    class UnheardError(Exception):
        pass

    def info(self, path, **kwargs):
        raise self.UnheardError

    def isfile(self, path):
        return True

    def _open(self, path, **kwargs):
        raise self.UnheardError("no\nnetwork")


def test_whatever_a_filesystem_raises_is_told_in_one_line():
    fsspec.register_implementation("offline", Offline, clobber=True)
    place = "offline://photos"
    facts = place, "UnheardError"
    refusal("uri-unreadable", lambda: read_labelled(place), *facts, kind=InputError)
    with pytest.raises(OSError, match=r"^no network$"):
        RemoteFile("offline://photos/one.png").read_bytes()


def test_loose_images_and_empty_places_are_refused(photos, tmp_path):
    red, nothing = (photos / "photos" / "red").as_uri(), tmp_path.as_uri()
    loose = f"{red}/0-0.png"
    refusal("image-outside-class", lambda: read_labelled(red), loose, kind=InputError)
    refusal("classes-missing", lambda: read_labelled(nothing), nothing, kind=InputError)
    folder = tiny.write_photos(tmp_path / "photos", n=1)
    (folder / "empty").mkdir()
    (folder / ".hidden").mkdir()
    empty = f"{folder.as_uri()}/empty"
    refusal("class-empty", lambda: read_labelled(folder.as_uri()), empty, kind=InputError)
    with refused("labels-without-list"):
        read_labelled((photos / "photos").as_uri(), ["red"])


def test_a_file_that_is_gone_is_unreadable(photos, tmp_path):
    folder = tiny.write_photos(tmp_path / "photos", n=5)
    given = read_labelled(folder.as_uri())
    (folder / "red" / "0-3.png").unlink()
    model = ImageClassifier(str(photos / "tiny.onnx"), 40, ridge=1.0, cache=False)
    report = model.learn(given.sources, given.labels, skip_unreadable=True)
    assert report.n_images == 14
    assert "0-3.png" in report.skipped[0]


def test_what_is_no_uri():
    assert [
        is_uri(text) for text in ("photos", "C:\\photos", "C://photos", "./a://b", "s3://b/c")
    ] == [False] * 4 + [True]


def test_without_pyarrow_one_line_tells_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    install = "pip install 'visvm[ray]'"
    refusal("package-missing", RemoteFile("s3://another/place").read_bytes, install)
