"""What is kept of an upload: the square that its encoder sees, decoded once."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.service.conftest import photos
from visvm.encoders.encoder import Preprocessing
from visvm.encoders.images import decode
from visvm.encoders.transform import TRANSFORMS, Transform
from visvm.service import uploads
from visvm.service.decoding import Decoders
from visvm.service.uploads import as_file

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LABELLED = ("learn", "forget", "evaluate")


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize(("size", "resize"), [(224, 256), (8, 10), (15, 20), (16, 16), (1, 1)])
@pytest.mark.parametrize("shape", [(300, 200), (31, 64), (5, 5), (1, 90)])
def test_a_kept_square_decodes_to_the_very_pixels_of_the_photo(kind, size, resize, shape):
    transform, file = Transform(kind, Preprocessing(size, resize, MEAN, STD)), io.BytesIO()
    Image.effect_noise(shape, 90).convert("RGB").save(file, "PNG")
    pixels = decode(file.getvalue(), transform)
    np.testing.assert_array_equal(decode(as_file(pixels, transform), transform), pixels)


@pytest.mark.parametrize("name", [*LABELLED, "predict", "suggest"])
def test_an_upload_is_decoded_once(taught, place, monkeypatch, name):
    contents, decoded = photos(place / "base")[0], []

    def counted(content, *others):
        decoded.append(content)
        return decode(content, *others)

    def sent(decoders, content):
        decoded.append(content)
        return plain(decoders, content)

    plain = Decoders.decode
    monkeypatch.setattr(Decoders, "decode", sent)
    monkeypatch.setattr("visvm.encoders.pipeline.decode", counted)
    labels = photos(place / "base")[1] if name in LABELLED else []
    answer = taught.upload(f"/api/{name}", contents, labels)
    assert answer.status_code == 200 or taught.end(answer)["state"] == "done"
    assert sorted(each for each in decoded if not each.startswith(b"BM")) == sorted(contents)


def test_the_photos_are_gone_once_their_squares_are_kept(taught, place, monkeypatch):
    sizes, submit = [], taught.service.jobs.submit

    def looked_at(*job):
        sizes.append(upload_bytes())
        return submit(*job)

    def upload_bytes():
        return [spool.end for spool in made if not spool._file.closed]

    made = []

    class Noted(uploads.Spool):
        def __init__(self):
            super().__init__()
            made.append(self)

    monkeypatch.setattr(uploads, "Spool", Noted)
    monkeypatch.setattr("visvm.service.forms.Spool", Noted)
    monkeypatch.setattr(taught.service.jobs, "submit", looked_at)
    large = [content + b"\0" * 100_000 for content in photos(place / "yellow")[0]]
    taught.end(taught.upload("/api/learn", large, ["yellow"]))
    assert len(sizes[0]) == 1
    assert sizes[0][0] < 5 * 1000
    assert upload_bytes() == []
