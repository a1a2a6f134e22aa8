import time
from contextlib import contextmanager

import pytest
from starlette.testclient import TestClient

from tests import tiny
from visvm import ImageClassifier
from visvm.encoders.loading import load_encoder
from visvm.service.app import create_app
from visvm.service.core import Service
from visvm.service.gate import Tokens
from visvm.service.limits import Limits
from visvm.service.store import signature_of


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """The encoder in miniature, and pictures: three classes, a fourth, and a test set of all."""
    folder = tmp_path_factory.mktemp("service")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "base")
    tiny.write_photos(folder / "yellow", classes=("yellow",), n=5, seed=1)
    tiny.write_photos(folder / "test", classes=tuple(tiny.COLOURS), n=4, seed=3)
    return folder


@pytest.fixture(scope="session")
def encoder(place):
    return load_encoder(str(place / "tiny.onnx"))


def photos(folder):
    """Contents and labels of the pictures of a folder."""
    paths = sorted(folder.rglob("*.png"))
    return [path.read_bytes() for path in paths], [path.parent.name for path in paths]


def ask(client, contents, top=5):
    answer = client.upload(f"/api/predict?top={top}", contents)
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"]


def problem(answer, status, code, *facts):
    """Check that an answer is a problem of one line, with this code and these facts in it.

    A code that another package chooses is given as ``ANY``.
    """
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    shown = answer.json()
    assert (shown["status"], shown["code"]) == (status, code)
    assert shown["type"] == f"urn:visvm:problem:{shown['code']}"
    assert "\n" not in shown["detail"]
    for fact in facts:
        assert fact in shown["detail"]


class Client(TestClient):
    """What a program does with the service."""

    def upload(self, address, contents, labels=(), tests=(), test_labels=(), **options):
        files = [("images", ("p.png", content)) for content in contents] + [
            ("test_images", ("p.png", each)) for each in tests
        ]
        return self.post(
            address,
            files=files,
            data={"labels": list(labels), "test_labels": list(test_labels)},
            **options,
        )

    def end(self, answer):
        """How the job ended that an answer tells of."""
        assert answer.status_code == 202, answer.text
        job = answer.json()
        assert answer.headers["location"] == f"/api/jobs/{job['id']}"
        until = time.monotonic() + 60
        while job["state"] in ("waiting", "running"):
            assert time.monotonic() < until
            time.sleep(0.01)
            job = self.get(f"/api/jobs/{job['id']}").json()
        return job

    def teach(self, folder, **options):
        job = self.end(self.upload("/api/learn", *photos(folder), **options))
        assert job["state"] == "done", job
        return job["result"]

    def classes(self):
        return {
            each["label"]: each["n_images"] for each in self.get("/api/model").json()["classes"]
        }


@contextmanager
def serving(path, encoder, *, limits=None, tokens=None, classifier=None):
    """A client of a service of its own."""
    options = {"n_components": 60, "ridge": 1.0, "layers": (1, 3), "cache": False}
    if classifier is None:
        given = ImageClassifier.load(path, encoder=encoder, cache=False) if path.exists() else None
        classifier = given or ImageClassifier(encoder, **options)
    service = Service(path, classifier, signature_of(path), limits or Limits())
    try:
        client = Client(
            create_app(service, tokens or Tokens()),
            base_url="http://localhost",
            raise_server_exceptions=True,
        )
        client.service = service
        with client:  # one event loop for all requests, as in the server
            yield client
    finally:
        service.close()


@pytest.fixture
def client(tmp_path, encoder):
    """A client of a service with a new model."""
    with serving(tmp_path / "m.visvm", encoder) as made:
        yield made


@pytest.fixture(scope="session")
def lesson(place, encoder, tmp_path_factory):
    """The content of a model file that a service has taught three classes."""
    path = tmp_path_factory.mktemp("lesson") / "m.visvm"
    with serving(path, encoder) as client:
        client.teach(place / "base")
    return path.read_bytes()


@pytest.fixture
def model(lesson, tmp_path):
    """Such a file, of the test's own."""
    path = tmp_path / "m.visvm"
    path.write_bytes(lesson)
    return path


@pytest.fixture
def taught(model, encoder):
    """A client of a service whose model knows three classes."""
    with serving(model, encoder) as made:
        yield made
