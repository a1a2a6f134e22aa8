"""Image files → pixels, beside a slow reference that scales everything and cuts."""

import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.encoders.pictures import (
    CLIP,
    FILES,
    PLAIN,
    SQUASH,
    TURNS,
    encoded,
    exif_with,
    grey_levels,
    picture,
    reference,
)
from tests.encoders.refusals import refusal
from tests.refusals import refused
from visvm.encoders import images
from visvm.encoders import transform as transforms
from visvm.encoders.catalog import CATALOG
from visvm.encoders.encoder import Preprocessing
from visvm.encoders.images import decode, find_images, is_image_name
from visvm.encoders.transform import TRANSFORMS, Transform
from visvm.errors import ImageError, InputError

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
        decode(encoded(array, compress_level=1), Transform(kind, CLIP))
        - reference(array, kind, CLIP)
    )
    assert difference.mean() < 0.5
    assert difference.max() < 4


def test_kinds_differ_and_an_unknown_one_is_refused():
    data = encoded(picture(60, 30))
    assert not np.array_equal(decode(data, Transform("crop", PLAIN)), decode(data, SQUASH))
    facts = "crop, squash, pad", "'stretch'"
    refusal("transform-unknown", lambda: Transform("stretch", PLAIN), *facts, kind=InputError)


@pytest.mark.parametrize(("name", "cut"), [("dinov2-s14", True), ("clip-b16-openai", False)])
def test_only_an_encoder_that_scales_to_more_than_it_takes_cuts_squares(name, cut):
    data, taken = encoded(picture(90, 90)), CATALOG[name].preprocessing
    cropped, squashed = (decode(data, Transform(kind, taken)) for kind in ("crop", "squash"))
    assert np.array_equal(cropped, squashed) != cut


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
    keys.add(Transform("pad", CLIP).key)
    assert len(keys) == 7
    assert all(len(key) < 40 for key in keys)
    assert (
        Transform("squash", others[1]).key == Transform("squash", CLIP).key
    )  # "squash" does not look at resize
    numpy_mean = Preprocessing(224, 256, tuple(np.float64(m) for m in CLIP.mean), CLIP.std)
    assert Transform("crop", numpy_mean).key == Transform("crop", CLIP).key
    # features cached on disk depend on it
    assert Transform("crop", CLIP).key == "crop-224-v1-3baacace3eb9"
    monkeypatch.setattr(transforms, "PIPELINE_VERSION", 2)
    assert Transform("crop", CLIP).key not in keys


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 5000), (5000, 1), (2, 3)])
@pytest.mark.parametrize("file", ["PNG", "JPEG"])
def test_tiny_and_elongated_pictures(kind, shape, file):
    pixels = decode(encoded(Image.new("RGB", shape, (255, 255, 255)), file), Transform(kind, CLIP))
    white = np.full((shape[1], shape[0], 3), 255, dtype=np.uint8)
    expected = reference(white, "pad" if kind == "pad" else "squash", CLIP)
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
    shown = (max if kind == "pad" else min)(width, height)
    assert shown >= 2 * (256 if kind == "crop" else 224)


def test_small_jpeg_is_decoded_in_full(drafts):
    array = picture(500, 375)
    decode(encoded(array, "JPEG"), Transform("squash", CLIP))
    assert drafts[0] == (500, 375)


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


def quarters() -> bytes:
    """A picture whose quarters have four colours, twice as wide as high."""
    picture = Image.new("RGB", (400, 200), "red")
    for colour, corner in (("lime", (200, 0)), ("blue", (0, 100)), ("white", (200, 100))):
        picture.paste(Image.new("RGB", (200, 100), colour), corner)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("kind", ["crop", "squash", "pad"])
def test_views_show_what_their_names_say(kind):
    transform = Transform(kind, Preprocessing(40, 40, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)))
    whole, mirrored = (decode(quarters(), view) for view in transform.views("mirror"))
    np.testing.assert_array_equal(mirrored, whole[:, :, ::-1])
    same, *corners = (decode(quarters(), view) for view in transform.views("crops"))
    np.testing.assert_array_equal(same, whole)
    # the colour of a corner's own quarter takes more of the view than of the picture
    colours = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]], dtype=np.float32)

    def share(pixels, colour):
        return np.mean(np.abs(pixels - colour[:, None, None]).max(axis=0) < 0.1)

    for number, corner in enumerate(corners):
        shares = [share(corner, colour) for colour in colours]
        assert np.argmax(shares) == number
        assert shares[number] > share(whole, colours[number]) + 0.05


def test_a_corner_of_a_large_jpeg_is_as_sharp_as_of_a_png():
    """A JPEG is decoded at a reduced size, which must do for a part of it, too."""
    generator = np.random.default_rng(0)
    picture = Image.fromarray(generator.integers(0, 256, (60, 60, 3), dtype=np.uint8))
    picture = picture.resize((1600, 1600), Image.Resampling.BICUBIC)
    contents = []
    for form, options in (("PNG", {}), ("JPEG", {"quality": 98, "subsampling": 0})):
        file = io.BytesIO()
        picture.save(file, form, **options)
        contents.append(file.getvalue())
    transform = Transform("squash", Preprocessing(64, 64, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)))
    for view in transform.views("crops"):
        png, jpeg = (decode(content, view) for content in contents)
        assert np.abs(png - jpeg).mean() < 0.02


def test_the_whole_view_keeps_its_key_and_others_have_keys_of_their_own():
    transform = Transform("squash", Preprocessing(40, 40, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)))
    keys = [view.key for name in ("mirror", "crops") for view in transform.views(name)]
    assert keys[0] == keys[2] == transform.key
    assert len(set(keys)) == 6
    with refused("views-unknown", InputError):
        transform.views("all")
