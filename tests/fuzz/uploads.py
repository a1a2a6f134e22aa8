"""Requests to one service that lives on, without a socket: forms, JSON, and a model file changed.

The service must survive all of them. Its decoders are real processes.
"""

import json
import time
from contextlib import suppress

import httpx
import numpy as np
from starlette.testclient import TestClient

from tests.fuzz.inputs import _signed
from tests.fuzz.material import KINDS, MODELS
from tests.fuzz.mutations import VALUES, damage, mutate_document

FORMS = ("/api/predict", "/api/learn", "/api/forget", "/api/evaluate")
DOCUMENTS = {
    "/api/classes/rename": {"old": "red", "new": "crimson", "merge": False},
    "/api/classes/forget": {"label": "green"},
}
LIVING = "http://localhost"
SECONDS = 60.0  # for a job


class Uploads:
    """A service of a model file in the folder that the process works in, and its client."""

    def __init__(self, files, folder):
        from visvm import ImageClassifier
        from visvm.service.app import create_app
        from visvm.service.core import Service
        from visvm.service.gate import Tokens
        from visvm.service.limits import Limits
        from visvm.service.store import signature_of

        self.files, self.path = files, folder / "served.visvm"
        self.path.write_bytes(files["whole.visvm"])
        served = ImageClassifier.load(self.path, encoder="tiny.onnx", cache=False)
        limits = Limits(decode_bytes=1 << 30, decode_seconds=10)
        self.service = Service(self.path, served, signature_of(self.path), limits)
        self.service.jobs._idle = lambda: None  # looks at the file only when it is asked to
        self.client = TestClient(
            create_app(self.service, Tokens()), base_url=LIVING, raise_server_exceptions=False
        )

    def judged(self, number) -> tuple[list[str], str]:
        """Send the requests of an input; returns what was done to them, and what is wrong."""
        generator = np.random.default_rng([number, *b"upload"])
        done = []
        made = (self._form, self._body, self._document, self._model)[generator.integers(4)]
        wrong = next((each for each in made(generator, done) if each), "")
        self._restore()
        if not wrong and (answer := self._ask()) and answer.status_code != 200:
            wrong = f"afterwards, a good question got {answer.status_code}: {answer.text}"
        return done, wrong

    def _restore(self):
        if self.path.read_bytes() != self.files["whole.visvm"]:
            new = self.path.with_name("new")
            new.write_bytes(self.files["whole.visvm"])
            new.replace(self.path)
        self.service.store.refresh()

    def _ask(self):
        return self.client.post("/api/predict", files={"images": self.files["photos/red/0-0.png"]})

    def _photos(self, generator, done, n):
        """Photos of any format, of which some are damaged."""
        kinds = generator.choice(KINDS, n)
        photos = [self.files[f"pictures/{kind.lower()}"] for kind in kinds]
        return [damage(each, generator, done) if generator.integers(3) else each for each in photos]

    def _form(self, generator, done):
        """Damaged photos, and labels of any kind."""
        labels = [str(each).encode("utf-8", "replace").decode() for each in VALUES]
        photos = self._photos(generator, done, int(generator.integers(1, 4)))
        address = FORMS[generator.integers(len(FORMS))]
        data = {} if address == "/api/predict" else {"labels": str(generator.choice(labels))}
        files = [("images", ("p", photo)) for photo in photos]
        yield self._sent(httpx.Request("POST", f"{LIVING}{address}", data=data, files=files))

    def _body(self, generator, done):
        """A whole form, damaged where it is structure: at its beginning, or at its end."""
        address = FORMS[generator.integers(len(FORMS))]
        files = [("images", ("p.png", self.files["photos/red/0-0.png"]))]
        whole = httpx.Request("POST", f"{LIVING}{address}", data={"labels": "red"}, files=files)
        body, edge = whole.read(), 300
        if generator.integers(2):
            body = damage(body[:edge], generator, done) + body[edge:]
        else:
            body = body[:-edge] + damage(body[-edge:], generator, done)
        headers = {"content-type": whole.headers["content-type"]}
        yield self._sent(httpx.Request("POST", whole.url, content=body, headers=headers))

    def _document(self, generator, done):
        """JSON with other values, or damaged."""
        address = list(DOCUMENTS)[generator.integers(len(DOCUMENTS))]
        document = dict(DOCUMENTS[address])
        if generator.integers(4):
            done.extend(mutate_document(document, generator))
            body = json.dumps(document).encode()
        else:
            body = damage(json.dumps(document).encode(), generator, done)
        headers = {"content-type": "application/json"}
        with suppress(UnicodeEncodeError):  # what no client could send
            headers["idempotency-key"] = str(generator.choice(["key", "", "x y", "z" * 300]))
        yield self._sent(httpx.Request("POST", f"{LIVING}{address}", content=body, headers=headers))

    def _model(self, generator, done):
        """Another program has put a changed model into the place of the one that is served."""
        from visvm.errors import VisvmError

        name = MODELS[generator.integers(len(MODELS))]
        self.path.write_bytes(_signed(self.files, name, generator, done))
        with suppress(VisvmError):
            self.service.store.refresh()
        files = {"images": self.files["photos/red/0-0.png"]}
        yield self._sent(httpx.Request("POST", f"{LIVING}/api/predict", files=files))
        data = {"labels": "red"}
        yield self._sent(httpx.Request("POST", f"{LIVING}/api/learn", data=data, files=files))
        for address in ("/api/model", "/api/history"):
            yield self._sent(httpx.Request("GET", f"{LIVING}{address}"))

    def _sent(self, request) -> str:
        """Send a request, wait for its job, and return what is wrong with how it ended."""
        before = self.path.read_bytes()
        request.read()
        answer = self.client.request(
            request.method, str(request.url), content=request.content, headers=request.headers
        )
        where = f"{request.method} {request.url.path} got {answer.status_code}"
        if answer.status_code == 500 or "Traceback" in answer.text:
            return f"{where}: {answer.text[:300]}"
        problem = answer.headers["content-type"] == "application/problem+json"
        if problem != (answer.status_code >= 400):
            return f"{where} as {answer.headers['content-type']}"
        ended = "failed" if problem else "done"
        if answer.status_code == 202:
            job = self._end(answer.json()["id"])
            ended = job["state"]
            if ended not in ("done", "failed") or (job["problem"] or {}).get("code") == "internal":
                return f"{where}, and its job {job}"
        if ended == "failed" and self.path.read_bytes() != before:
            return f"{where}, was refused, and has changed the model"
        return ""

    def _end(self, identifier):
        until = time.monotonic() + SECONDS
        while True:
            job = self.client.get(f"/api/jobs/{identifier}").json()
            if job["state"] not in ("waiting", "running") or time.monotonic() > until:
                return job
            time.sleep(0.002)
