"""Encoders that leave patches out, beside numpy that does it one image after the other."""

import numpy as np
import pytest

from tests import tiny
from tests.encoders import attentive, patched
from tests.encoders.attentive import BLOCKS, PATCHES, SIZE, WIDTH
from tests.encoders.graphs import ROUNDING
from tests.model.test_portable import compare
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.encoders.catalog import CATALOG
from visvm.encoders.loading import known_digest, load_encoder
from visvm.encoders.patches import chosen_in
from visvm.errors import EncoderError, IncompatibleModelError


@pytest.fixture(params=[True, False], ids=["heads apart", "heads together"])
def file(request, tmp_path):
    return attentive.write_encoder(tmp_path, heads_apart=request.param)


def images(n=5, seed=1):
    return np.random.default_rng(seed).normal(size=(n, 3, SIZE, SIZE)).astype(np.float32)


def test_what_goes_on_is_what_numpy_takes(file):
    pixels, found = images(), {}
    for kept in (None, 1, 5, PATCHES - 1):
        encoder = load_encoder(str(file) if kept is None else f"{file}@{SIZE}:{kept}")
        found[kept] = encoder.encode(pixels)
        np.testing.assert_allclose(
            found[kept], attentive.reference(pixels, kept), **(ROUNDING | {"atol": 1e-5})
        )
        assert encoder.layer_dims == (WIDTH,) * len(BLOCKS)
    assert not np.allclose(found[5], found[None])
    before = attentive.CHOSEN_IN * WIDTH  # CLS tokens that no patch left out has touched
    np.testing.assert_allclose(found[5][:, :before], found[None][:, :before], **ROUNDING)
    assert chosen_in(len(BLOCKS)) == attentive.CHOSEN_IN


def test_an_image_is_encoded_alike_in_any_batch(file):
    encoder, pixels = load_encoder(f"{file}@{SIZE}:6"), images()
    alone = np.concatenate([encoder.encode(pixels[[row]]) for row in range(len(pixels))])
    np.testing.assert_allclose(encoder.encode(pixels), alone, **ROUNDING)


def test_every_number_of_patches_is_an_encoder_of_its_own(file):
    names = [str(file), f"{file}@{SIZE}:4", f"{file}@{SIZE}:5"]
    encoders = [load_encoder(name) for name in names]
    assert [each.name for each in encoders] == names
    assert len({each.digest for each in encoders}) == 3
    digests = {known_digest(f"dinov2-s14{form}") for form in ("", "@336", "@224:96", "@336:96")}
    assert len(digests) == 4
    assert None not in digests


def test_a_model_remembers_them(file, tmp_path):
    photos = tiny.write_photos(tmp_path / "photos")
    taught = ImageClassifier(f"{file}@{SIZE}:5", n_components=50, cache=False)
    taught.learn(photos)
    taught.save(tmp_path / "m.visvm")
    again = ImageClassifier.load(tmp_path / "m.visvm", cache=False)
    assert again.encoder_name == f"{file}@{SIZE}:5"
    photo = next(photos.rglob("*.png"))
    assert again.predict(photo, raw=True)[0].score == taught.predict(photo, raw=True)[0].score
    again.export_for_site(tmp_path / "site.visvm")
    site = ImageClassifier.load(tmp_path / "site.visvm", cache=False, encoder=f"{file}@{SIZE}:5")
    assert site.load_encoder().digest == taught.load_encoder().digest
    taught.export_onnx(tmp_path / "m.onnx")
    compare(taught, tmp_path / "m.onnx", [photo], tolerance=1e-5)
    with refused("encoder-mismatch", IncompatibleModelError):
        ImageClassifier.load(tmp_path / "m.visvm", cache=False, encoder=str(file)).learn(photos)


def test_what_cannot_be_is_refused(file, tmp_path):
    for kept in (0, PATCHES, 1000):
        with refused("patches-unsupported", EncoderError):
            load_encoder(f"{file}@{SIZE}:{kept}")
    (tmp_path / "none").mkdir()
    for path in (patched.write_encoder(tmp_path), tiny.write_encoder(tmp_path / "none")):
        size = load_encoder(str(path)).preprocessing.size
        with refused("patches-unsupported", EncoderError):  # no attention; no patches
            load_encoder(f"{path}@{size}:1")
    for kept in (0, 100):
        with refused("patches-unsupported", EncoderError):
            load_encoder(f"owner/model@224:{kept}")
    with refused("size-unsupported", EncoderError):
        load_encoder("dinov2-s14@:100")


def test_presets_of_the_catalogue_keep_most_patches_and_kept_fewer():
    for entry in CATALOG.values():
        n_patches = (entry.preprocessing.size // entry.patch) ** 2
        now, former = entry.fast
        assert now.int8
        assert n_patches * 3 / 4 < (now.patches or n_patches)
        assert n_patches / 4 < former.patches < n_patches / 2
