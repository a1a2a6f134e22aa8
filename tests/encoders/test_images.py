import io
import os
import struct
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin, features

from tests.encoders.refusals import refusal
from tests.refusals import refused
from visvm.encoders import images
from visvm.encoders.encoder import Preprocessing
from visvm.encoders.images import TRANSFORMS, Transform, decode, find_images, is_image_name
from visvm.errors import ImageError, InputError

CLIP = Preprocessing(
    224, 256, (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
)
PLAIN = Preprocessing(32, 32, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))  # pixels / 255
SQUASH = Transform("squash", PLAIN)


def picture(width=32, height=32, seed=0):
    """Smooth and without symmetry: noise at several scales, the coarse ones strongest, as in photographs."""
    generator = np.random.default_rng(seed)
    total = np.zeros((3, height, width))
    for cells in (2, 4, 8, 16, 64, 256):
        for channel in total:
            noise = Image.fromarray(generator.normal(size=(cells, cells)).astype(np.float32))
            channel += np.asarray(noise.resize((width, height), Image.Resampling.BICUBIC)) / cells
    total = 255 * (total - total.min()) / np.ptp(total)
    return total.round().astype(np.uint8).transpose(1, 2, 0)


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(file, kind, **options)
    return file.getvalue()


def seen(data, transform=SQUASH):
    """The decoded picture in grey levels, (h, w, 3), when nothing is normalised."""
    return decode(data, transform).transpose(1, 2, 0).astype(np.float64) * 255


def reference(array, kind, p):
    """The transform in the obvious order: scale all of the picture, cut, normalise."""
    image = Image.fromarray(array)
    width, height = image.size
    if kind == "squash":
        scaled = image.resize((p.size, p.size), Image.Resampling.BICUBIC)
    elif width <= height:
        scaled = image.resize((p.resize, int(p.resize * height / width)), Image.Resampling.BICUBIC)
    else:
        scaled = image.resize((int(p.resize * width / height), p.resize), Image.Resampling.BICUBIC)
    left, top = (scaled.width - p.size) // 2, (scaled.height - p.size) // 2
    square = np.asarray(scaled)[top : top + p.size, left : left + p.size] / 255
    return ((square - p.mean) / p.std).transpose(2, 0, 1)


def grey_levels(difference, p=CLIP):
    return np.abs(difference) * 255 * np.array(p.std)[:, None, None]


# The transform


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize(
    "shape", [(500, 375), (375, 500), (224, 224), (32, 32), (257, 301), (600, 90), (224, 256)]
)
def test_transform_equals_scaling_everything_and_cutting(kind, shape):
    array = picture(*shape)
    pixels = Transform(kind, CLIP).pixels(Image.fromarray(array))
    assert pixels.shape == (3, 224, 224)
    assert pixels.dtype == np.float32
    assert pixels.flags.c_contiguous
    difference = grey_levels(pixels - reference(array, kind, CLIP))
    assert difference.max() < 2.01  # Pillow rounds to whole levels after each of its two passes
    assert difference.mean() < 0.05


def test_normalisation_is_exact_to_float32():
    array = picture(224, 224)
    pixels = Transform("squash", CLIP).pixels(Image.fromarray(array))
    np.testing.assert_allclose(
        pixels, ((array / 255 - CLIP.mean) / CLIP.std).transpose(2, 0, 1), atol=1e-6
    )


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_large_pictures_are_reduced_in_two_steps_without_visible_loss(kind):
    array = picture(1900, 1500)
    difference = grey_levels(
        decode(encoded(array), Transform(kind, CLIP)) - reference(array, kind, CLIP)
    )
    assert difference.mean() < 0.5
    assert difference.max() < 4


def test_kinds_differ_and_an_unknown_one_is_refused():
    data = encoded(picture(60, 30))
    assert not np.array_equal(decode(data, Transform("crop", PLAIN)), decode(data, SQUASH))
    facts = "crop, squash", "'stretch'"
    refusal("transform-unknown", lambda: Transform("stretch", PLAIN), *facts, kind=InputError)


@pytest.mark.parametrize(("size", "resize"), [(0, 10), (224, 223)])
def test_impossible_sides_are_refused(size, resize):
    with refused("preprocessing-invalid", InputError):
        Transform("crop", Preprocessing(size, resize, PLAIN.mean, PLAIN.std))


def test_key_tells_apart_everything_that_decides_the_pixels(monkeypatch):
    others = [
        Preprocessing(224, 256, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        Preprocessing(224, 224, CLIP.mean, CLIP.std),
        Preprocessing(256, 256, CLIP.mean, CLIP.std),
        Preprocessing(224, 256, CLIP.mean, CLIP.std[::-1]),
    ]
    keys = {Transform("crop", p).key for p in (CLIP, *others)} | {Transform("squash", CLIP).key}
    assert len(keys) == 6
    assert all(len(key) < 40 for key in keys)
    assert (
        Transform("squash", others[1]).key == Transform("squash", CLIP).key
    )  # "squash" does not look at resize
    numpy_mean = Preprocessing(224, 256, tuple(np.float64(m) for m in CLIP.mean), CLIP.std)
    assert Transform("crop", numpy_mean).key == Transform("crop", CLIP).key
    # features cached on disk depend on it
    assert Transform("crop", CLIP).key == "crop-224-v1-3baacace3eb9"
    monkeypatch.setattr(images, "PIPELINE_VERSION", 2)
    assert Transform("crop", CLIP).key not in keys


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 5000), (5000, 1), (2, 3)])
@pytest.mark.parametrize("file", ["PNG", "JPEG"])
def test_tiny_and_elongated_pictures(kind, shape, file):
    pixels = decode(encoded(Image.new("RGB", shape, (255, 255, 255)), file), Transform(kind, CLIP))
    expected = np.broadcast_to(((1 - np.array(CLIP.mean)) / CLIP.std)[:, None, None], (3, 224, 224))
    np.testing.assert_allclose(pixels, expected, atol=1e-5)


# Reduced decoding of JPEG


@pytest.fixture
def drafts(monkeypatch):
    """Every size a JPEG was decoded at."""
    sizes = []
    load = images._JpegFile.load

    def recording_load(image):
        sizes.append(image.size)
        return load(image)

    monkeypatch.setattr(images._JpegFile, "load", recording_load)
    return sizes


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize(
    ("shape", "subsampling"),
    [((1203, 1101), 0), ((1101, 1203), 2), ((2501, 1033), 2), ((2101, 2101), 2)],
)
def test_reduced_jpeg_differs_little_from_full_decoding(kind, shape, subsampling, drafts):
    data = encoded(picture(*shape), "JPEG", quality=90, subsampling=subsampling)
    with Image.open(io.BytesIO(data)) as full:
        expected = reference(np.asarray(full), kind, CLIP)
    difference = grey_levels(decode(data, Transform(kind, CLIP)) - expected)
    assert difference.mean() < 0.5
    assert difference.max() < 8
    width, height = drafts[0]
    assert width < shape[0]  # the reduction took place
    assert height < shape[1]
    assert min(width, height) >= 2 * (256 if kind == "crop" else 224)


def test_small_jpeg_is_decoded_in_full(drafts):
    array = picture(500, 375)
    decode(encoded(array, "JPEG"), Transform("squash", CLIP))
    assert drafts[0] == (500, 375)


# Orientation

TURNS = {  # what a viewer must do with the stored array to see it upright
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: np.rot90(a),
}


def exif_with(orientation, order="<"):
    mark = b"II*\0" if order == "<" else b"MM\0*"
    entries = struct.pack(order + "HHIHxx", 0x0100, 3, 1, 7) + struct.pack(
        order + "HHIHxx", 0x0112, 3, 1, orientation
    )
    return b"Exif\0\0" + mark + struct.pack(order + "IH", 8, 2) + entries + bytes(4)


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize("order", ["<", ">"])
def test_orientation(orientation, kind, order):
    array = picture(47, 90)
    for file, options in (("PNG", {}), ("WEBP", {"lossless": True})):
        data = encoded(array, file, exif=exif_with(orientation, order), **options)
        expected = reference(np.ascontiguousarray(TURNS[orientation](array)), kind, PLAIN)
        np.testing.assert_allclose(decode(data, Transform(kind, PLAIN)), expected, atol=1.5 / 255)


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("kind", TRANSFORMS)
def test_orientation_of_a_reduced_jpeg(orientation, kind, drafts):
    # 8 k + 1 pixels: the reduced picture ends within its last row and column, which turning moves
    # to another edge.
    data = encoded(picture(521, 777), "JPEG", quality=95, exif=exif_with(orientation))
    with Image.open(io.BytesIO(data)) as full:
        expected = reference(
            np.ascontiguousarray(TURNS[orientation](np.asarray(full))), kind, PLAIN
        )
    difference = grey_levels(decode(data, Transform(kind, PLAIN)) - expected, PLAIN)
    assert drafts[0] == (66, 98)
    assert difference.mean() < 1


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
def test_orientation_of_tiff(orientation, compression):
    array = picture(40, 64)
    data = encoded(array, "TIFF", tiffinfo={0x0112: orientation}, compression=compression)
    expected = reference(np.ascontiguousarray(TURNS[orientation](array)), "crop", PLAIN)
    np.testing.assert_allclose(decode(data, Transform("crop", PLAIN)), expected, atol=1.5 / 255)


@pytest.mark.parametrize(
    "exif",
    [b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", exif_with(6)[:-20], exif_with(9), exif_with(0)],
)
def test_damaged_exif_is_ignored(exif):
    array = picture()
    np.testing.assert_array_equal(
        decode(encoded(array, "JPEG", exif=exif), SQUASH), decode(encoded(array, "JPEG"), SQUASH)
    )


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


# HEIC


def damaged_or_truncated():
    def fits(error):
        words = str(error).partition(": ")[0], error.code
        return words in (("damaged", "image-damaged"), ("truncated", "image-truncated"))

    return pytest.raises(ImageError, check=lambda error: fits(error) and "\n" not in str(error))


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


def sample_files():
    array = picture(40, 30)
    yield "JPEG", encoded(array, "JPEG", exif=exif_with(6))
    yield "progressive JPEG", encoded(array, "JPEG", progressive=True)
    yield "PNG", encoded(array)
    yield "palette PNG", encoded(Image.fromarray(array).quantize(20), transparency=3)
    yield "WebP", encoded(array, "WEBP")
    yield (
        "animated WebP",
        encoded(array, "WEBP", save_all=True, append_images=[Image.new("RGB", (40, 30))]),
    )
    yield "GIF", encoded(array, "GIF")
    yield "APNG", encoded(array, save_all=True, append_images=[Image.new("RGB", (40, 30))])
    yield "BMP", encoded(array, "BMP")
    yield "TIFF", encoded(array, "TIFF")
    yield "grey TIFF", encoded(array[:, :, 0].astype(np.float32), "TIFF")
    for compression in ("tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits"):
        yield compression, encoded(array, "TIFF", compression=compression)


FILES = dict(sample_files())


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


# Threads


def test_threads_give_equal_pixels():
    transform = Transform("crop", CLIP)
    files = [*FILES.values(), encoded(picture(1200, 900), "JPEG")]
    expected = [decode(data, transform) for data in files]
    with ThreadPoolExecutor(8) as pool:
        for round_ in range(3):
            results = pool.map(lambda data: decode(data, transform), files * 8)
            for pixels, wanted in zip(results, expected * 8, strict=True):
                np.testing.assert_array_equal(pixels, wanted, err_msg=f"round {round_}")


# Finding files


def test_find_images(tmp_path):
    kept = [
        "a.jpg",
        "b/c.PNG",
        "b/d/e.webp",
        "b/f.Tiff",
        "g.heic",
        "h.HEIF",
        "i.gif",
        "j.bmp",
        "k.jpeg",
        "ä ö.jpg",
    ]
    left_out = [
        ".DS_Store",
        "._a.jpg",
        ".hidden/x.jpg",
        "__MACOSX/y.jpg",
        "notes.txt",
        "b/none",
        "b/.z.png",
        "m.jpg.txt",
    ]
    for name in kept + left_out:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "folder.jpg").mkdir()
    assert find_images(tmp_path) == sorted(tmp_path / name for name in kept)


def test_links_are_followed_to_files_and_never_in_circles(tmp_path):
    (tmp_path / "real.bin").touch()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link.jpg").symlink_to(tmp_path / "real.bin")
    (tmp_path / "in" / "gone.jpg").symlink_to(tmp_path / "nowhere")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in", target_is_directory=True)
    os.mkfifo(tmp_path / "in" / "pipe.jpg")  # reading it would wait for ever
    assert find_images(tmp_path / "in") == [
        tmp_path / "in" / "gone.jpg",
        tmp_path / "in" / "link.jpg",
    ]


def test_a_hidden_folder_may_be_asked_for(tmp_path):
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "a.jpg").touch()
    assert find_images(tmp_path / ".hidden") == [tmp_path / ".hidden" / "a.jpg"]


def test_folders_that_cannot_be_listed(tmp_path, monkeypatch):
    nowhere = tmp_path / "nowhere"
    refusal("folder-missing", lambda: find_images(nowhere), str(nowhere), kind=InputError)

    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", denied)
    facts = str(tmp_path), "Permission denied"
    refusal("folder-unreadable", lambda: find_images(tmp_path), *facts, kind=ImageError)


def test_image_names():
    assert all(is_image_name(Path(name)) for name in ("a.jpg", "A.JPEG", "x/y.tif", "z.Heic"))
    assert not any(
        is_image_name(Path(name)) for name in ("jpg", ".jpg", "._a.jpg", "a.jpg.part", "a")
    )
