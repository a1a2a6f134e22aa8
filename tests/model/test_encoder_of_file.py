"""A model file does not decide what is fetched from the hub."""

import pytest

from tests import tiny
from tests.model.raw import rewrite
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.encoders import loading
from visvm.encoders.loading import load_encoder
from visvm.errors import EncoderError, WeightsError

NAME = "somebody/their-model"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    tiny.write_model(folder)
    rewrite(folder / "m.visvm", lambda header, _: header["encoder"].update(name=NAME))
    return folder


@pytest.fixture
def asked(monkeypatch):
    """What is asked for, and whether from the hub; nothing is on this machine."""
    seen = []

    def load(name, progress=None, *, from_hub=True):
        seen.append((name, from_hub))
        raise WeightsError("It is not on this machine.", code="weights-missing")

    monkeypatch.setattr("visvm.model.predictor.load_encoder", load)
    return seen


def test_the_name_in_a_file_is_not_fetched_and_the_line_says_how(place, asked):
    model = ImageClassifier.load(place / "m.visvm", cache=False)
    with refused("encoder-elsewhere", EncoderError) as caught:
        model.predict(place / "photos/red/0-0.png")
    assert asked == [(NAME, False)]
    assert f"--encoder {NAME}" in str(caught.value)


def test_a_name_that_was_given_may_be_fetched(place, asked):
    model = ImageClassifier.load(place / "m.visvm", encoder=NAME, cache=False)
    with refused("weights-missing", WeightsError):
        model.predict(place / "photos/red/0-0.png")
    assert asked == [(NAME, True)]


def test_what_is_on_this_machine_is_loaded_without_the_hub(monkeypatch):
    pytest.importorskip("transformers")
    seen = {}

    class Encoder:
        def __init__(self, source, **given):
            seen.update(given, source=source)

    monkeypatch.setattr("visvm.encoders.huggingface.TransformersEncoder", Encoder)
    with refused("weights-missing", WeightsError):
        load_encoder(NAME, from_hub=False)
    monkeypatch.setattr(loading, "require_local", lambda name: seen.update(required=name))
    load_encoder(NAME, from_hub=False)
    assert seen == {"source": NAME, "size": None, "from_hub": False, "required": NAME}


def test_without_the_hub_nothing_asks_the_network(monkeypatch):
    transformers = pytest.importorskip("transformers")
    from visvm.encoders.huggingface import TransformersEncoder

    asked = []

    def note(name, **given):
        asked.append(given.get("local_files_only"))
        raise OSError("not here")

    monkeypatch.setattr(transformers.PretrainedConfig, "get_config_dict", note)
    with refused("weights-unreadable", WeightsError):
        TransformersEncoder(NAME, from_hub=False)
    assert asked == [True]
