"""Small files that would take minutes or gigabytes to decode are refused at once."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from tests.encoders.pictures import FILES, SQUASH, encoded, picture
from tests.refusals import refused
from visvm.encoders.bounds import check_work
from visvm.encoders.images import decode
from visvm.errors import ImageError

PROGRESSIVE = encoded(Image.new("RGB", (640, 480), "red"), "JPEG", progressive=True)
GIF = encoded(Image.new("P", (8, 8)), "GIF")
GIF_BLOCKS = GIF.index(b",")


def with_scans(data, n):
    """A progressive JPEG that says the last of what it shows n times more."""
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + last * n + data[-2:]


def with_size(jpeg, width, height):
    place = jpeg.index(b"\xff\xc2") + 5
    return jpeg[:place] + struct.pack(">HH", height, width) + jpeg[place + 4 :]


def chunk(kind, data=b""):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(*chunks):
    """A picture of one pixel with more chunks in it."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(4)))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + pixels + chunk(b"IEND")


def tiff(*entries, order="<"):
    """A TIFF of 16 × 16 pixels with these entries: tag, type, count, value."""
    plain = [(256, 4, 1, 16), (257, 4, 1, 16), (258, 4, 1, 8), (259, 4, 1, 8), (262, 4, 1, 1)]
    packed = [struct.pack(order + "HHII", *each) for each in sorted([*plain, *entries])]
    start = b"II*\0" if order == "<" else b"MM\0*"
    return b"".join(
        [start, struct.pack(order + "IH", 8, len(packed)), *packed, bytes(4), zlib.compress(b"0")]
    )


def bmp(width, height, runs):
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(runs), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 0, 0, 0, 54 + 1024) + header + bytes(1024) + runs


PROFILE = chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(1 << 20)))
EXIF = b"\xff\xe1\x00\x10Exif\0\0" + bytes(8)
EXCESSIVE = {
    "jpeg with 101 segments of EXIF": PROGRESSIVE[:2] + EXIF * 101 + PROGRESSIVE[2:],
    "jpeg of 3 000 scans": with_scans(PROGRESSIVE, 3000),
    "jpeg of many scans of many pixels": with_size(with_scans(PROGRESSIVE, 40), 9000, 9000),
    "jpeg of a million segments": b"\xff\xd8" + b"\xff\xe5\0\2" * 10**6 + PROGRESSIVE[2:],
    "jpeg with filling": b"\xff\xd8" + b"\xff" * 10**6 + PROGRESSIVE[2:],
    "png of a million chunks": png(chunk(b"abCd") * 10**6),
    "png of many profiles": png(PROFILE * 900),
    "gif with many comments": GIF[:GIF_BLOCKS] + b"!\xfe\1a\0" * 10**5 + GIF[GIF_BLOCKS:],
    "gif with a long comment": (
        GIF[:GIF_BLOCKS] + b"!\xfe" + b"\1a" * 10**6 + b"\0" + GIF[GIF_BLOCKS:]
    ),
    "gif with junk": GIF[:GIF_BLOCKS] + bytes(10**6) + GIF[GIF_BLOCKS:],
    "tiff of a million strips": tiff((273, 4, 10**6, 8), (279, 4, 10**6, 8)),
    "tiff of huge tiles": tiff((322, 4, 1, 46336), (323, 4, 1, 46336), (324, 4, 1, 200)),
    "tiff of huge tiles, big-endian": tiff((322, 4, 1, 46336), (323, 4, 1, 46336), order=">"),
    "tiff of many entries": tiff(*[(40000 + each, 4, 1, 0) for each in range(20_000)]),
    "bmp of many runs": bmp(3000, 3000, b"\1\1" * 10**6),
    "bmp of a long line": bmp(80_000_000, 1, b"\1\1\0\0"),
}


@pytest.mark.parametrize("name", EXCESSIVE)
def test_what_would_take_too_much_work_is_refused(name):
    with refused("image-excessive", ImageError):
        decode(EXCESSIVE[name], SQUASH)


@pytest.mark.parametrize("kind", ["WEBP", "AVIF"])
def test_formats_that_take_much_memory_have_fewer_pixels(kind, monkeypatch):
    data = encoded(Image.new("RGB", (64, 48)), kind)
    decode(data, SQUASH)
    monkeypatch.setattr("visvm.encoders.images._MODERN_PIXELS", 64 * 48 - 1)
    with refused("image-too-large", ImageError):
        decode(data, SQUASH)
    decode(encoded(Image.new("RGB", (64, 48)), "PNG"), SQUASH)


@pytest.mark.parametrize("name", FILES)
def test_real_files_are_within_all_bounds(name):
    for end in range(len(FILES[name]) + 1, 0, -97):
        check_work(FILES[name][:end])  # also where they are cut short


def test_what_programs_write_is_within_all_bounds():
    photo = picture(900, 700)
    for data in (
        encoded(photo, "JPEG", progressive=True, icc_profile=bytes(3_000_000)),
        with_scans(encoded(photo, "JPEG", progressive=True), 20),
        encoded(photo, "PNG"),
        encoded(photo, "TIFF", compression="tiff_lzw"),
        encoded(photo, "GIF", comment=b"x" * 60_000),
        encoded(Image.fromarray(photo).convert("L"), "TIFF", big_tiff=True),
    ):
        check_work(data)
        decode(data, SQUASH)


def test_grey_values_of_large_pictures_are_those_of_small_ones():
    grey = np.linspace(0, 1e6, 1100 * 1000).reshape(1100, 1000).astype(np.float32)
    whole = decode(encoded(grey, "TIFF"), SQUASH)
    assert whole[0, 0, 0] < 0.02
    assert whole[0, -1, -1] > 0.98
