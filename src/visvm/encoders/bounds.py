"""Refuse image files that would take far more work to decode than any photo does.

Pillow and its codecs bound the pixels of a picture, and little else: a small JPEG may say three
thousand times what it shows, and a list of a million empty parts is read one by one. So the parts
of a file are counted before it is decoded, by walking over them without looking inside. Real files
stay far below every bound here.
"""

import re
import struct
from collections.abc import Callable
from typing import Final

from visvm.errors import ImageError

_SEGMENTS: Final = 5_000  # of a JPEG
_SCANS: Final = 100  # of a JPEG; programs write about 10
_SCANNED_PIXELS: Final = 2_000_000_000  # pixels times scans
_EXIF: Final = 100  # segments of a JPEG that Pillow joins, in a time that grows with their square
_FILLING: Final = 65_536  # bytes between segments
_CHUNKS: Final = 100_000  # of a PNG
_COMPRESSED_CHUNKS: Final = 100  # texts and colour profiles, each of which may unpack to 1 MB
_BLOCKS: Final = 1_000  # of a GIF before its first frame
_SUB_BLOCKS: Final = 50_000
_ENTRIES: Final = 1_000  # of a TIFF
_STRIPS: Final = 100_000
_TILE_PIXELS: Final = 1 << 22  # a tile may be larger than the picture, up to this
_RLE_BYTES: Final = 2_000_000  # of a BMP whose runs Pillow unpacks one by one, in Python
_RLE_PIXELS: Final = 8_000_000

# not those that stand within compressed pixels: stuffing and restarts
_MARKER: Final = re.compile(rb"\xff([\x01-\xcf\xd8-\xfe])", re.DOTALL)
_START_OF_SCAN, _END, _ALONE = 0xDA, 0xD9, (0x01, 0xD8)
_FRAMES: Final = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_TIFF_SIZES: Final = {3: "H", 4: "I", 16: "Q"}


def check_work(data: bytes) -> None:
    r"""Refuse the content of an image file that would take too long to decode.

    Raises
    ------
    ImageError
        Its code is ``image-excessive``.

    Examples
    --------
    >>> check_work(b"BM" + bytes(12) + b"\x28" + bytes(15) + b"\1" + bytes(3_000_000))
    Traceback (most recent call last):
    visvm.errors.ImageError: has 3 MB of runs, far more than a picture needs
    """
    for signatures, check in _CHECKS:
        if data.startswith(signatures):
            try:
                check(data)
            except (struct.error, IndexError):  # cut short: decoding it will say so
                return


def _most(n: int, limit: int, what: str) -> None:
    if n > limit:
        raise ImageError(f"has {n:,} {what}, far more than a picture needs", code="image-excessive")


def _check_jpeg(data: bytes) -> None:
    place, n_segments, n_scans, n_exif, pixels, filling = 2, 0, 0, 0, 0, 0
    while (found := _MARKER.search(data, place)) and (kind := found[1][0]) != _END:
        n_segments += 1
        _most(n_segments, _SEGMENTS, "segments")
        if not n_scans:
            filling += found.start() - place
            _most(filling, _FILLING, "bytes of filling")
        place = found.end()
        if kind in _ALONE:
            continue
        if kind in _FRAMES:
            height, width = struct.unpack_from(">HH", data, place + 3)
            pixels = max(pixels, height * width)
        n_exif += data.startswith(b"Exif\0\0", place + 2)
        _most(n_exif, _EXIF, "segments of EXIF")
        n_scans += kind == _START_OF_SCAN
        _most(n_scans, _SCANS, "scans")
        _most(n_scans * pixels, _SCANNED_PIXELS, "pixels times scans")
        place += struct.unpack_from(">H", data, place)[0]


def _check_png(data: bytes) -> None:
    place, n_chunks, n_compressed, kind = 8, 0, 0, b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, place)
        n_chunks += 1
        n_compressed += kind in (b"iCCP", b"zTXt", b"iTXt")
        _most(n_chunks, _CHUNKS, "chunks")
        _most(n_compressed, _COMPRESSED_CHUNKS, "compressed texts and profiles")
        place += 12 + length


def _check_gif(data: bytes) -> None:
    has_palette, depth = data[10] & 0x80, data[10] & 7
    place = 13 + (6 << depth if has_palette else 0)
    n_blocks, n_sub_blocks = 0, 0
    while data[place] not in b",;":
        n_blocks += 1
        _most(n_blocks, _BLOCKS, "blocks before its first frame")
        place += 1
        if data[place - 1] != ord("!"):
            continue
        place += 1
        while length := data[place]:
            n_sub_blocks += 1
            _most(n_sub_blocks, _SUB_BLOCKS, "blocks before its first frame")
            place += 1 + length
        place += 1


def _check_tiff(data: bytes) -> None:
    order = "<" if data.startswith(b"I") else ">"
    big = data[2:4].strip(b"\0") == b"+"
    header, counted, entry = ("8xQ", "Q", "HHQ") if big else ("4xI", "H", "HHI")
    (place,) = struct.unpack_from(order + header, data)
    (n_entries,) = struct.unpack_from(order + counted, data, place)
    _most(n_entries, _ENTRIES, "entries")
    first, size = place + struct.calcsize(counted), 20 if big else 12
    values: dict[int, int] = {}
    for at in range(first, first + n_entries * size, size):
        tag, kind, count = struct.unpack_from(order + entry, data, at)
        if tag in (273, 324):
            _most(count, _STRIPS, "strips or tiles")
        if kind in _TIFF_SIZES:
            at_value = at + struct.calcsize(order + entry)
            (values[tag],) = struct.unpack_from(order + _TIFF_SIZES[kind], data, at_value)
    tile, picture = (values.get(a, 0) * values.get(b, 0) for a, b in ((322, 323), (256, 257)))
    _most(tile, max(picture, _TILE_PIXELS), "pixels in one tile")


def _check_bmp(data: bytes) -> None:
    (header,) = struct.unpack_from("<I", data, 14)
    if header >= 40 and data[30] in (1, 2):
        if len(data) > _RLE_BYTES:
            raise ImageError(
                f"has {len(data) // 1_000_000} MB of runs, far more than a picture needs",
                code="image-excessive",
            )
        width, height = struct.unpack_from("<ii", data, 18)
        _most(abs(width * height), _RLE_PIXELS, "pixels made of runs")


_CHECKS: Final[tuple[tuple[tuple[bytes, ...], Callable[[bytes], None]], ...]] = (
    ((b"\xff\xd8\xff",), _check_jpeg),
    ((b"\x89PNG\r\n\x1a\n",), _check_png),
    ((b"GIF87a", b"GIF89a"), _check_gif),
    ((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), _check_tiff),
    ((b"BM",), _check_bmp),
)
