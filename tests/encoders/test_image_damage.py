"""Files that are no images, or not whole, or too large."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from tests.encoders.pictures import FILES, PLAIN, SQUASH, damaged_or_truncated, encoded
from tests.encoders.refusals import refusal
from tests.refusals import refused
from visvm.encoders import images
from visvm.encoders.images import decode
from visvm.encoders.transform import TRANSFORMS, Transform
from visvm.errors import ImageError

pytestmark = pytest.mark.slow

# What is refused


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "image-empty"),
        (b"hello, I am text", "image-format-unknown"),
        (b"RIFF\0\0\0\0WAVEfmt ", "image-format-unknown"),
        (b"\0\0\0\x18ftypmp42" + bytes(50), "image-format-unknown"),
    ],
)
def test_what_is_not_an_image(data, code):
    with refused(code, ImageError):
        decode(data, SQUASH)


@pytest.mark.parametrize("data", [b"\xff\xd8\xff", b"BM"])
def test_beginnings_of_images_are_refused(data):
    with damaged_or_truncated():
        decode(data, SQUASH)


@pytest.mark.parametrize("name", FILES)
def test_half_a_file_is_an_error(name):
    with damaged_or_truncated():
        decode(FILES[name][: len(FILES[name]) // 2], SQUASH)


def test_jpeg_cut_short_says_so():
    with refused("image-truncated", ImageError):
        decode(FILES["JPEG"][:-100], SQUASH)


def bomb(width, height):
    """A header that promises many pixels, and none of them."""
    header = bytearray(encoded(Image.new("1", (8, 8))))
    header[16:24] = struct.pack(">II", width, height)
    header[29:33] = struct.pack(">I", zlib.crc32(header[12:29]))
    return bytes(header)


def jpeg_of(width, height):
    """A header with other sides than the pixels that follow."""
    data = bytearray(FILES["JPEG"])
    start = data.index(b"\xff\xc0")
    data[start + 5 : start + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def too_large(data, *facts):
    refusal("image-too-large", lambda: decode(data, SQUASH), *facts, kind=ImageError)


def test_too_many_pixels_are_refused_before_decoding(monkeypatch):
    gif = bytearray(FILES["GIF"])
    gif[6:10] = struct.pack("<HH", 12_000, 10_000)
    tiff = encoded(Image.new("1", (12_000, 10_000), 1), "TIFF", compression="group4")
    for data in (bomb(12_000, 10_000), bytes(gif), tiff):
        too_large(data, "more than 89 megapixels")
    too_large(jpeg_of(20_000, 10_001), "more than 200 megapixels")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # a program that is stricter is obeyed
    too_large(FILES["PNG"], "more than 0 megapixels")


def test_a_jpeg_that_pillow_would_warn_about_is_decoded_quietly(recwarn):
    before = Image.MAX_IMAGE_PIXELS
    data = encoded(Image.new("L", (12_000, 10_000), 255), "JPEG", quality=10)
    assert (decode(data, SQUASH) == 1).all()
    assert not recwarn
    assert before == Image.MAX_IMAGE_PIXELS


def test_pillow_errors_that_are_not_damage(monkeypatch):
    def raising(error):
        def load(image):
            raise error

        return load

    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", raising(MemoryError()))
    with refused("image-memory", ImageError):
        decode(FILES["PNG"], SQUASH)
    monkeypatch.setattr(
        PngImagePlugin.PngImageFile, "load", raising(Image.DecompressionBombError("many pixels"))
    )
    too_large(FILES["PNG"], "more than 178 megapixels")
    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", raising(ValueError()))
    facts = ("ValueError",)
    refusal("image-damaged", lambda: decode(FILES["PNG"], SQUASH), *facts, kind=ImageError)


def check_pixels_or_image_error(data):
    for kind in TRANSFORMS:
        message = "fine"
        try:
            pixels = decode(data, Transform(kind, PLAIN))
        except ImageError as error:
            pixels = np.zeros((3, 32, 32), np.float32)
            message = str(error)
        assert len(message.splitlines()) == 1
        assert pixels.shape == (3, 32, 32)
        assert np.isfinite(pixels).all()


SIGNATURES = [
    b"",
    *{signature for signatures, _ in images._READERS for signature in signatures},
    b"RIFF\0\0\0\0WEBPVP8 ",
]


@given(st.sampled_from(SIGNATURES), st.binary(max_size=300))
def test_random_bytes_never_escape(signature, data):
    check_pixels_or_image_error(signature + data)


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
def test_damaged_files_never_escape(name, data):
    content = bytearray(FILES[name])
    # headers lie at the front …
    places = st.integers(0, len(content) * 8 - 1) | st.integers(0, 8 * 120)
    # … and in TIFF at the end
    places |= st.integers(8 * (len(content) - 200), 8 * len(content) - 1)
    for bit in data.draw(st.lists(places, max_size=6)):
        content[bit // 8] ^= 1 << bit % 8
    end = data.draw(st.just(len(content)) | st.integers(0, len(content)))
    check_pixels_or_image_error(bytes(content[:end]))
