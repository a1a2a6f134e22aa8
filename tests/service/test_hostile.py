"""Uploads that mean harm: every one is refused, and nothing is changed."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from tests.service.conftest import photos, serving
from visvm.service.limits import Limits

pytestmark = pytest.mark.slow

NAMES = [
    "../../../etc/passwd", "..\\..\\boot.ini", "/etc/shadow", "C:\\x.png", "a\x00.png", "con", ".",
    "", "%2e%2e%2fx", "🦜.png", "x" * 5000, "\u202egnp.exe", "<img src=x onerror=alert(1)>.png",
    "'; drop table photos; --.png", "a\r\nX-Evil: 1",
]  # fmt: skip
LABELS = [
    "",
    " ",
    "\x00",
    "a\nb",
    "\u2028",
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    "x" * 10_000,
    "\x1b[31m",
    "\u202exe",
]
HARMLESS_LABELS = [
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "'; drop table classes; --",
    "🦜",
    "{{7*7}}",
    "%s%n",
]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, data=b""):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(data))
        + chunk(b"IEND", b"")
    )


def saved(kind, size=(64, 48)):
    file = io.BytesIO()
    Image.effect_noise(size, 90).convert("RGB").save(file, kind)
    return file.getvalue()


def hostile(seed):
    """Contents that are no image, though some look like one; the first six differ by the seed."""
    generator = np.random.default_rng(seed)
    whole = {kind: saved(kind) for kind in ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP")}
    cut = {"PNG", "JPEG", "WEBP", "TIFF", "BMP"}
    made = [
        content[: int(generator.integers(1, len(content) // 2))]
        for kind, content in whole.items()
        if kind in cut
    ]
    made += [
        generator.bytes(int(generator.integers(1, 3000))),
        b"",
        b"\x00" * 1000,
        b"%PDF-1.4",
        b"PK\x03\x04" * 99,
    ]
    made += [
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        b"#!/bin/sh\nrm -rf /",
        b"GIF89a",
    ]
    made += [
        png(2**31 - 1, 2**31 - 1),
        png(100_000, 100_000, b"\x00" * 10**6),
        png(1, 2**24, b""),
        png(0, 0),
    ]
    made += [
        b"BM"
        + struct.pack("<IHHIIiiHHIIiiII", 99, 0, 0, 54, 40, 2**30, 2**30, 1, 24, 0, 0, 0, 0, 0, 0)
    ]
    return made


@pytest.fixture
def unchanged(model, tmp_path, encoder):
    """A client of a service with low limits; afterwards its model must be what it was."""
    with serving(
        model, encoder, limits=Limits(upload_bytes=4 << 20, files=50, pixels=10**7)
    ) as client:
        before, known = model.read_bytes(), client.get("/api/model").json()
        yield client
        assert model.read_bytes() == before
        assert client.get("/api/model").json() == known
        assert client.service.jobs.n_waiting == 0
        assert not [
            each
            for each in tmp_path.iterdir()
            if each.name not in ("m.visvm", ".m.visvm.lock", ".m.visvm.undo")
        ]


def test_hundreds_of_hostile_uploads_are_refused(unchanged, place):
    good, n = photos(place / "test")[0][0], 0
    addresses = ["/api/learn", "/api/predict", "/api/forget", "/api/evaluate"]
    for seed in range(14):
        for number, content in enumerate(hostile(seed)[: None if seed < 2 else 6]):
            for address in addresses:
                name = NAMES[(seed + number) % len(NAMES)]
                files = [("images", ("good.png", good)), ("images", (name, content))]
                data = {} if address == "/api/predict" else {"labels": ["red", "red"]}
                answer = unchanged.post(address, files=files, data=data)
                assert 400 <= answer.status_code < 500, (address, name, content[:40], answer.text)
                assert answer.headers["content-type"] == "application/problem+json"
                n += 1
    assert n >= 400


@pytest.mark.parametrize("address", ["/api/learn", "/api/forget", "/api/evaluate"])
@pytest.mark.parametrize("label", LABELS)
def test_labels_that_are_no_names_are_refused(unchanged, place, address, label):
    answer = unchanged.upload(address, photos(place / "test")[0][:2], [label, "red"])
    assert 400 <= answer.status_code < 500, answer.text


def test_ten_thousand_files_are_refused(unchanged):
    answer = unchanged.post(
        "/api/learn", files=[("images", ("a", b"x"))] * 10_000, data={"labels": ["a"]}
    )
    assert answer.status_code == 413
    answer = unchanged.post(
        "/api/learn", files=[("images", ("a", b"x"))], data={"labels": ["a"] * 10_000}
    )
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--x",
        b"--x\r\n\r\n",
        b"--x--",
        b"--x\r\nContent-Disposition: form-data\r\n\r\nv\r\n--x--",
        b"\xff" * 999,
        b"--x\r\n" * 5000,
    ],
)
def test_broken_forms_are_refused(unchanged, body):
    headers = {"content-type": "multipart/form-data; boundary=x"}
    for address in ("/api/learn", "/api/predict"):
        assert 400 <= unchanged.post(address, content=body, headers=headers).status_code < 500


def test_odd_names_are_names_and_nothing_else(taught, place):
    contents, _ = photos(place / "yellow")
    for label in HARMLESS_LABELS:
        assert taught.end(taught.upload("/api/learn", contents, [label]))["state"] == "done"
    assert set(HARMLESS_LABELS) <= set(taught.classes())
    for label in HARMLESS_LABELS:
        assert (
            taught.end(taught.post("/api/classes/forget", json={"label": label}))["state"] == "done"
        )
    assert taught.classes() == {"blue": 6, "green": 6, "red": 6}
