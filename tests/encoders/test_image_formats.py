"""Colours, depths, frames and formats of image files."""

import io
import struct
import sys
import zlib

import numpy as np
import pytest
from PIL import Image, features

from tests.encoders.pictures import (
    CLIP,
    PLAIN,
    SQUASH,
    TURNS,
    damaged_or_truncated,
    encoded,
    exif_with,
    grey_levels,
    picture,
    reference,
)
from tests.encoders.refusals import refusal
from tests.refusals import refused
from visvm.encoders.images import decode
from visvm.encoders.transform import Transform
from visvm.errors import ImageError


def seen(data, transform=SQUASH):
    """The decoded picture in grey levels, (h, w, 3), when nothing is normalised."""
    return decode(data, transform).transpose(1, 2, 0).astype(np.float64) * 255


# Colour modes and formats


@pytest.mark.parametrize("file", ["PNG", "BMP", "TIFF", "WEBP", "GIF"])
def test_lossless_formats_give_the_stored_colours(file):
    array = picture()
    if file == "GIF":
        array = np.asarray(Image.fromarray(array).quantize(200).convert("RGB"))
    np.testing.assert_allclose(
        seen(encoded(array, file, **({"lossless": True} if file == "WEBP" else {}))),
        array,
        atol=1e-3,
    )


def test_grey_and_black_and_white():
    grey = picture()[:, :, 0]
    np.testing.assert_allclose(seen(encoded(grey)), np.stack([grey] * 3, axis=-1), atol=1e-3)
    for file in ("PNG", "TIFF", "BMP"):
        bits = encoded(Image.fromarray(grey > 127), file)
        np.testing.assert_allclose(
            seen(bits), np.stack([255 * (grey > 127)] * 3, axis=-1), atol=1e-3
        )


@pytest.mark.parametrize(
    ("file", "mode"),
    [("PNG", "RGBA"), ("PNG", "LA"), ("TIFF", "RGBA"), ("TIFF", "LA"), ("WEBP", "RGBA")],
)
def test_alpha_is_blended_on_white(file, mode):
    colour, alpha = picture(), picture(seed=1)[:, :, :1]
    if mode == "LA":
        colour = colour[:, :, :1]
    options = {"lossless": True, "exact": True} if file == "WEBP" else {}
    data = encoded(Image.fromarray(np.concatenate([colour, alpha], axis=2), mode), file, **options)
    expected = colour * (alpha / 255) + 255 * (1 - alpha / 255)
    np.testing.assert_allclose(seen(data), np.broadcast_to(expected, (32, 32, 3)), atol=1.01)


@pytest.mark.parametrize("file", ["PNG", "GIF"])
def test_palette_with_and_without_transparency(file):
    palette = Image.fromarray(picture()).quantize(50)
    colours, index = np.asarray(palette.convert("RGB")).astype(float), np.asarray(palette)
    np.testing.assert_allclose(seen(encoded(palette, file, optimize=False)), colours, atol=1e-3)
    colours[index == 7] = 255
    np.testing.assert_allclose(
        seen(encoded(palette, file, transparency=7, optimize=False)), colours, atol=1e-3
    )


def test_palette_with_a_table_of_alphas():
    palette = Image.fromarray(picture()).quantize(50)
    alphas = np.arange(50, dtype=np.uint8) * 5
    alpha = alphas[np.asarray(palette)][:, :, None] / 255
    expected = np.asarray(palette.convert("RGB")) * alpha + 255 * (1 - alpha)
    np.testing.assert_allclose(
        seen(encoded(palette, transparency=alphas.tobytes())), expected, atol=1.01
    )


def test_transparent_colour_of_rgb_and_grey():
    array = np.full((32, 32, 3), 40, np.uint8)
    array[:16] = (10, 20, 30)
    data = encoded(array, transparency=(10, 20, 30))
    np.testing.assert_allclose(
        seen(data)[[0, 31]], np.array([[[255.0] * 3] * 32, [[40.0] * 3] * 32]), atol=1e-3
    )
    data = encoded(array[:, :, 0], transparency=10)
    np.testing.assert_allclose(
        seen(data)[[0, 31]], np.array([[[255.0] * 3] * 32, [[40.0] * 3] * 32]), atol=1e-3
    )


def test_cmyk_jpeg():
    cmyk = Image.fromarray(picture()).convert("CMYK")
    data = encoded(cmyk, "JPEG", quality=100, subsampling=0)  # inks inverted, as Adobe does
    expected = np.asarray(cmyk.convert("RGB")).astype(float)
    assert np.abs(seen(data) - expected).mean() < 3
    # Without Adobe's marker the inks are taken as inverted all the same, as other viewers do.
    marker = data.index(b"\xff\xee")
    bare = data[:marker] + data[marker + 2 + int.from_bytes(data[marker + 2 : marker + 4], "big") :]
    assert b"Adobe" not in bare
    assert np.abs(seen(bare) - expected).mean() < 3


def test_ycck_jpeg():
    cmyk = Image.fromarray(picture()).convert("CMYK")
    inks = np.asarray(cmyk)
    ycc = np.asarray(Image.fromarray(np.ascontiguousarray(inks[:, :, :3])).convert("YCbCr"))
    # Pillow writes 255 − value; the file is to hold YCbCr of the inks and the inverted black.
    stored = Image.fromarray(np.concatenate([255 - ycc, inks[:, :, 3:]], axis=2), "CMYK")
    data = bytearray(encoded(stored, "JPEG", quality=100, subsampling=0))
    data[data.index(b"Adobe") + 11] = 2  # says that the first three components are YCbCr
    assert np.abs(seen(bytes(data)) - np.asarray(cmyk.convert("RGB")).astype(float)).mean() < 3


# More than 8 bits


@pytest.mark.parametrize("file", ["PNG", "TIFF"])
def test_sixteen_bits_use_the_whole_range(file):
    grey = np.linspace(0, 65535, 1024).round().astype(np.uint16).reshape(32, 32)
    np.testing.assert_allclose(seen(encoded(grey, file))[:, :, 1], np.rint(grey / 257), atol=1e-3)


def test_sixteen_bits_of_the_other_byte_order():
    grey = np.linspace(0, 65535, 1024).round().astype(">u2").reshape(32, 32)
    data = encoded(Image.frombytes("I;16B", (32, 32), grey.tobytes()), "TIFF")
    np.testing.assert_allclose(seen(data)[:, :, 1], np.rint(grey / 257), atol=1e-3)


@pytest.mark.parametrize(
    ("low", "high", "dtype", "black", "white"),
    [
        (0, 60000, np.int32, 0, 65535),  # read as 16 bits
        (-1000, 3000, np.int32, -1000, 3000),  # stretched
        (10, 1_000_000, np.int32, 10, 1_000_000),
        (0.1, 0.9, np.float32, 0, 1),
        (3, 200, np.float32, 0, 255),
        (3, 50000, np.float32, 0, 65535),
        (-2, 2, np.float32, -2, 2),
        (0, 1e6, np.float32, 0, 1e6),
        (-3e38, 3e38, np.float32, -3e38, 3e38),
    ],
)
def test_ranges_of_wide_grey_values(low, high, dtype, black, white):
    grey = np.linspace(low, high, 1024).astype(dtype).reshape(32, 32)
    expected = 255 * (grey.astype(np.float64) - black) / (white - black)
    np.testing.assert_allclose(seen(encoded(grey, "TIFF"))[:, :, 2], expected, atol=0.51)


def test_constant_and_infinite_floats():
    assert (seen(encoded(np.full((8, 8), -5, np.float32), "TIFF")) == 0).all()
    for value in (np.nan, np.inf):
        grey = np.zeros((8, 8), np.float32)
        grey[3, 3] = value
        with refused("image-not-finite", ImageError):
            decode(encoded(grey, "TIFF"), SQUASH)


def test_sixteen_bit_colour_with_a_transparent_colour():
    # Pillow cannot write 16 bits per channel, so the chunks are laid by hand.
    def chunk(name, content):
        return (
            struct.pack(">I", len(content))
            + name
            + content
            + struct.pack(">I", zlib.crc32(name + content))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 16, 2, 0, 0, 0))
    rows = (b"\0" + struct.pack(">6H", *[0x8000] * 6)) * 2
    data = (
        b"\x89PNG\r\n\x1a\n"
        + header
        + chunk(b"tRNS", struct.pack(">3H", 1, 2, 3))
        + chunk(b"IDAT", zlib.compress(rows))
    )
    np.testing.assert_allclose(seen(data + chunk(b"IEND", b"")), 128, atol=1e-3)


# Frames


@pytest.mark.parametrize("file", ["GIF", "WEBP", "TIFF", "PNG"])
def test_first_frame_counts(file):
    first, second = (Image.new("RGB", (32, 32), colour) for colour in ("red", "blue"))
    options = {"lossless": True} if file == "WEBP" else {}
    data = encoded(first, file, save_all=True, append_images=[second], **options)
    with Image.open(io.BytesIO(data)) as image:
        assert image.n_frames == 2
    np.testing.assert_allclose(seen(data), np.broadcast_to([255, 0, 0], (32, 32, 3)), atol=1e-3)


def test_first_picture_of_a_stereo_camera_file():
    data = encoded(
        Image.new("RGB", (32, 32), "red"),
        "MPO",
        save_all=True,
        append_images=[Image.new("RGB", (32, 32), "blue")],
    )
    assert np.abs(seen(data) - [255, 0, 0]).max() < 3


def test_heic():
    heif = pytest.importorskip("pillow_heif")
    array = picture(64, 96)
    file = io.BytesIO()
    heif.from_pillow(Image.fromarray(array)).save(file, quality=95)
    pixels = decode(file.getvalue(), Transform("squash", CLIP))
    assert grey_levels(pixels - reference(array, "squash", CLIP)).mean() < 4
    assert "HEIF" not in Image.OPEN  # Pillow itself was left as it was
    for end in (12, 40, 200, len(file.getvalue()) - 50):
        with damaged_or_truncated():
            decode(file.getvalue()[:end], SQUASH)


@pytest.mark.parametrize("orientation", TURNS)
def test_heic_is_turned_once(orientation, monkeypatch):
    heif = pytest.importorskip("pillow_heif")
    # to write HEIC, and undo it afterwards
    for registry in ("OPEN", "SAVE", "SAVE_ALL", "MIME", "EXTENSION", "ID"):
        monkeypatch.setattr(Image, registry, getattr(Image, registry).copy())
    heif.register_heif_opener()
    array = picture(64, 96)
    data = encoded(array, "HEIF", exif=exif_with(orientation), quality=95)
    expected = reference(np.ascontiguousarray(TURNS[orientation](array)), "crop", PLAIN)
    assert grey_levels(decode(data, Transform("crop", PLAIN)) - expected, PLAIN).mean() < 4


def test_heic_without_the_plug_in_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    heic = b"\0\0\0\x18ftypheic" + bytes(100)
    facts = "HEIC", "pip install pillow-heif"
    refusal("package-missing", lambda: decode(heic, SQUASH), *facts, kind=ImageError)


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")
def test_avif_is_read():
    array = np.full((32, 32, 3), (200, 100, 50), dtype=np.uint8)
    np.testing.assert_allclose(seen(encoded(array, "AVIF", quality=100)), array, atol=4)
