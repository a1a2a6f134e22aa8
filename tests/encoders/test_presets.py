"""Presets: names of encoders by the time an image may take."""

import pytest

from tests import tiny
from tests.encoders import patched
from tests.encoders.patched import BEST, FAST, PATCH, SIZE
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.encoders.loading import load_encoder
from visvm.encoders.presets import QUALITIES, at_every_quality, at_quality, has_quality
from visvm.errors import EncoderError, InputError


@pytest.fixture
def file(tmp_path):
    return str(patched.write_encoder(tmp_path))


def test_presets_of_the_catalogue_need_no_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path))
    assert at_every_quality("dinov2-s14") == {
        "fast": "dinov2-s14@224:208:int8",
        "standard": "dinov2-s14",
        "best": "dinov2-s14@336",
    }
    assert list(at_every_quality("clip-b16-openai").values()) == [
        "clip-b16-openai@224:int8",
        "clip-b16-openai",
        "clip-b16-openai@336",
    ]


def test_former_names_of_a_preset_are_that_preset(tmp_path, monkeypatch):
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path))
    for former in ("dinov2-s14@140", "clip-b16-openai@128", "dinov2-s14@224:112"):
        assert [has_quality(former, quality) for quality in QUALITIES] == [True, False, False]
    for name in ("dinov2-s14", "clip-b16-openai"):
        for quality, each in at_every_quality(name).items():
            assert [wanted for wanted in QUALITIES if has_quality(each, wanted)] == [quality]
    with refused("quality-unknown", InputError):
        has_quality("dinov2-s14", "better")


def test_presets_of_a_file_are_multiples_of_its_patch(file):
    names = at_every_quality(file)
    assert names == {"fast": f"{file}@{FAST}", "standard": file, "best": f"{file}@{BEST}"}
    assert [load_encoder(name).preprocessing.size for name in names.values()] == [FAST, SIZE, BEST]
    assert FAST % PATCH == BEST % PATCH == 0


@pytest.mark.slow
def test_presets_of_a_transformers_folder(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tests.encoders import towers

    folder = str(towers.save(towers.tiny("vit"), tmp_path))
    name = at_quality(folder, "best")
    assert name == f"{folder}@{towers.SIZE * 3 // 2 // towers.PATCH * towers.PATCH}"
    assert load_encoder(name).name == name


def test_encoders_of_one_size_have_one_preset(tmp_path):
    for path in (tiny.write_encoder(tmp_path), patched.write_encoder(tmp_path, sizes=False)):
        assert at_every_quality(str(path)) == {"standard": str(path)}
        assert at_quality(str(path), "standard") == str(path)
        with refused("size-unsupported", EncoderError):
            at_quality(str(path), "best")


def test_what_cannot_be_is_refused(file):
    with refused("quality-unknown", InputError):
        at_quality(file, "better")
    for quality in QUALITIES:
        with refused("quality-and-size", InputError):
            at_quality("dinov2-s14@336", quality)
    with refused("quality-unknown", InputError):
        ImageClassifier(quality="better")
    with refused("size-unsupported", InputError):
        ImageClassifier(load_encoder(file), quality="best")
    with refused("quality-and-size", InputError):
        ImageClassifier(f"{file}@{BEST}", quality="standard").load_encoder()


@pytest.mark.parametrize(
    ("name", "code", "fact"),
    [
        ("dino", "encoder-unknown", "Did you mean dinov2-s14?"),
        ("CLIP-B16", "encoder-unknown", "Did you mean clip-b16-openai?"),
        ("dinov2-s14:int8", "size-unsupported", "dinov2-s14@224:int8"),
        ("dinov2-s14@int8", "size-unsupported", "dinov2-s14@224:int8"),
    ],
)
def test_what_was_meant_by_a_wrong_name_is_said(name, code, fact):
    with refused(code, EncoderError) as said:
        load_encoder(name)
    assert fact in str(said.value)


def test_a_model_has_the_size_of_its_quality(file, tmp_path):
    photos, scores = tiny.write_photos(tmp_path / "photos"), {}
    for quality, size in (("fast", FAST), ("standard", SIZE), ("best", BEST), (None, SIZE)):
        taught = ImageClassifier(file, 50, quality=quality, cache=False)
        taught.learn(photos)
        taught.save(tmp_path / "m.visvm")
        again = ImageClassifier.load(tmp_path / "m.visvm", cache=False)
        assert again.encoder_name == (file if size == SIZE else f"{file}@{size}")
        assert again.load_encoder().preprocessing.size == size
        scores[quality] = again.predict(next(photos.rglob("*.png")), raw=True)[0].score
    assert len({*scores.values()}) == 3
    assert scores["standard"] == scores[None]
