"""A card says what a model is, and a folder as hubs have it is read again."""

import functools
import http.server
import json
import os
import re
import threading

import pytest

from tests import tiny
from tests.model.raw import rewrite
from tests.refusals import refused
from visvm import ImageClassifier
from visvm.errors import UNPRINTABLE, ModelFileError
from visvm.model.card import model_card


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("card")
    return folder, tiny.write_model(folder)


def test_the_card_says_what_the_model_is(place):
    folder, model = place
    text = model_card(model.model_, "a|b", model.evaluate(folder / "photos"))
    front = text.split("---\n")[1]
    assert "license: other\n" in front
    assert json.loads(re.search("tags: (.*)", front)[1])[0] == "visvm"
    assert "# a\\|b\n" in text
    assert "| red | 2 |" in text
    accuracy = model.evaluate(folder / "photos").accuracy
    assert f"{100 * accuracy:.1f} % of 6 test images" in text
    assert str(folder) not in text
    assert model.load_encoder().digest in text


def test_nothing_in_a_file_steers_who_reads_the_card(visvm, place, tmp_path):
    path, strange = tmp_path / "m.visvm", "z`<img src=x>\n# me\x1b[2J\u202e"
    path.write_bytes((place[0] / "m.visvm").read_bytes())

    def spoil(header, _):
        header["encoder"].update(digest=strange + "\ud800")
        header["classes"][2] = strange

    rewrite(path, spoil)
    card = tmp_path / "card.md"
    assert visvm("card", path, "--out", card)[0] == 0
    text = card.read_text()
    assert not UNPRINTABLE.search(text.replace("\n", ""))
    assert "`<" not in text
    assert " <img" not in text
    assert "\n# me" not in text


def test_without_a_test_it_says_so_and_with_a_tested_session_that(place):
    folder, _ = place
    model = ImageClassifier(str(folder / "tiny.onnx"), 20, cache=False, layers=(3,), ridge=1.0)
    model.learn(folder / "photos")
    assert "Not measured" in model_card(model.model_, "m")
    model.learn(folder / "photos", test=folder / "photos")
    assert "measured after session 2" in model_card(model.model_, "m")


def test_a_folder_of_a_hub_is_read_again_without_sums(place, tmp_path):
    folder, model = place
    model.save_pretrained(tmp_path / "birds")
    assert sorted(each.name for each in (tmp_path / "birds").iterdir()) == [
        "README.md",
        "model.visvm",
    ]
    again = ImageClassifier.from_pretrained(tmp_path / "birds", cache=False)
    photos = sorted((folder / "photos").rglob("*.png"))
    assert again.predict(photos) == model.predict(photos)
    assert not again.can_learn
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/README.md").write_text("# A project\n")
    with refused("folder-foreign", ModelFileError):
        model.save_pretrained(tmp_path / "mine")
    assert os.listdir(tmp_path / "mine") == ["README.md"]
    model.save_pretrained(tmp_path / "birds", sums=True)
    assert ImageClassifier.from_pretrained(tmp_path / "birds", cache=False).can_learn


class _Hub(http.server.BaseHTTPRequestHandler):
    """A hub with one file, as huggingface_hub asks for it."""

    content = b""

    def do_HEAD(self):
        found = self.path == "/owner/birds/resolve/main/model.visvm"
        self.send_response(200 if found else 404)
        for name, value in {
            "X-Repo-Commit": "0" * 40,
            "ETag": '"1"',
            "Content-Length": len(self.content),
        }.items():
            self.send_header(name, str(value))
        self.end_headers()

    def do_GET(self):
        self.do_HEAD()
        self.wfile.write(self.content)

    def log_message(self, *_):
        pass


def test_a_name_on_a_hub(place, tmp_path, monkeypatch):
    folder, model = place
    hub = pytest.importorskip("huggingface_hub")
    model.save_pretrained(tmp_path / "birds")
    monkeypatch.setattr(_Hub, "content", (tmp_path / "birds/model.visvm").read_bytes())
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        fetch = functools.partial(
            hub.hf_hub_download, endpoint=address, cache_dir=tmp_path / "cache", token=False
        )
        monkeypatch.setattr(hub, "hf_hub_download", fetch)
        again = ImageClassifier.from_pretrained("owner/birds", cache=False)
        photos = sorted((folder / "photos").rglob("*.png"))
        assert again.predict(photos) == model.predict(photos)
        with refused("hub-unreachable", ModelFileError):
            ImageClassifier.from_pretrained("owner/none")
        server.shutdown()


def test_what_is_not_there_is_refused(tmp_path, monkeypatch):
    with refused("file-missing", ModelFileError):
        ImageClassifier.from_pretrained(tmp_path / "none")
    monkeypatch.setattr("huggingface_hub.hf_hub_download", offline)
    with refused("hub-unreachable", ModelFileError):
        ImageClassifier.from_pretrained("owner/model")


def offline(*_):
    raise ConnectionError("no network")


def test_the_command(visvm, place, tmp_path, monkeypatch):
    folder, _ = place
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path))
    code, out, err = visvm("card", folder / "m.visvm", "--test", folder / "photos", "--quiet")
    assert (code, err) == (0, "")
    assert out.startswith("---\nlicense: other\n")
    path = tmp_path / "card.md"
    assert visvm("card", folder / "m.visvm", "--out", path)[0] == 0
    assert "Not measured" in path.read_text()
    assert visvm("card", folder / "m.visvm", "--out", path).error_code == "file-exists"
    assert visvm("card", folder / "m.visvm", "--out", path, "--force")[0] == 0
