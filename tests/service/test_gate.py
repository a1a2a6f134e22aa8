"""Who may ask, and what every answer carries."""

import asyncio
import logging

import pytest

from tests.refusals import refused
from tests.service.conftest import photos, problem, serving
from visvm.service.gate import Tokens
from visvm.service.limits import Limits
from visvm.service.server import require_token

pytestmark = pytest.mark.slow

WRITE, READ = "w" * 16, "r" * 16
FORM = [(b"content-type", b"multipart/form-data; boundary=x"), (b"content-length", b"9")]


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def guarded(model, encoder):
    """A client of a service that asks for tokens."""
    with serving(model, encoder, tokens=Tokens(WRITE, READ)) as client:
        yield client


@pytest.mark.parametrize(
    "header",
    [{}, bearer("x" * 16), bearer(""), {"Authorization": f"Basic {WRITE}"}, bearer("ü" * 16)],
)
@pytest.mark.parametrize(
    "address",
    ["/api/model", "/api/history", "/api/model/file", "/metrics", "/openapi.json", "/api/jobs/x"],
)
def test_without_a_token_nothing_is_answered(guarded, address, header):
    encoded = {name: value.encode("latin-1") for name, value in header.items()}
    answer = guarded.get(address, headers=encoded)
    problem(answer, 401, "token-required")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_token_for_reading_asks_but_does_not_change(guarded, place):
    contents, labels = photos(place / "test")
    assert guarded.upload("/api/predict", contents[:1], headers=bearer(READ)).status_code == 200
    assert (
        guarded.upload("/api/evaluate", contents[:1], labels[:1], headers=bearer(READ)).status_code
        == 202
    )
    assert not guarded.get("/api/model", headers=bearer(READ)).json()["can_write"]
    # from whose sums features of single photos could be computed
    problem(guarded.get("/api/model/file", headers=bearer(READ)), 403, "token-read-only")
    assert guarded.get("/api/model/file", headers=bearer(WRITE)).status_code == 200
    for address in ("/api/learn", "/api/forget"):
        answer = guarded.upload(address, contents, labels, headers=bearer(READ))
        problem(answer, 403, "token-read-only")
    for address in ("/api/classes/rename", "/api/classes/forget"):
        problem(guarded.post(address, json={}, headers=bearer(READ)), 403, "token-read-only")


def test_a_reader_cancels_evaluations_and_no_changes(guarded, place):
    contents, labels = photos(place / "test")
    evaluation = guarded.upload(
        "/api/evaluate", contents[:1], labels[:1], headers=bearer(READ)
    ).json()["id"]
    change = guarded.upload("/api/learn", contents[:1], labels[:1], headers=bearer(WRITE)).json()[
        "id"
    ]
    assert guarded.post(f"/api/jobs/{evaluation}/cancel", headers=bearer(READ)).status_code == 200
    refusal = guarded.post(f"/api/jobs/{change}/cancel", headers=bearer(READ))
    problem(refusal, 403, "token-read-only")
    problem(guarded.post(f"/api/jobs/{change}/cancel"), 401, "token-required")


def test_the_document_says_where_a_token_is_needed(guarded, taught):
    found = guarded.get("/openapi.json", headers=bearer(READ)).json()
    assert found["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for path, operations in found["paths"].items():
        for operation in operations.values():
            wanted = None if path in ("/api/health", "/api/ready") else [{"token": []}]
            assert operation.get("security") == wanted, path
    assert "ecurity" not in taught.get("/openapi.json").text


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        *((f"/api/{name}", "", 401) for name in ("predict", "evaluate", "suggest", "explain")),
        *((path, "", 401) for path in ("/api/learn", "/api/forget")),
        *((path, READ, 403) for path in ("/api/learn", "/api/forget")),
    ],
)
def test_no_form_is_read_from_a_client_without_the_right(guarded, path, token, status):
    headers = [*FORM, (b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())]
    assert answered(guarded.app, path, headers, unread)[0]["status"] == status


@pytest.mark.parametrize("more", [{b"host": b"localhost", b"origin": b"http://x"}, {b"host": b"x"}])
def test_no_form_is_read_from_a_foreign_page_or_for_a_foreign_host(taught, more):
    assert answered(taught.app, "/api/learn", [*FORM, *more.items()], unread)[0]["status"] == 403


@pytest.mark.parametrize("path", ["/api/classes/rename", "/api/classes/forget"])
def test_little_is_read_of_a_body_that_only_claims_to_be_a_form(guarded, path):
    read = []

    async def receive():
        read.append(60_000)
        return {"type": "http.request", "body": b"x" * read[-1], "more_body": True}

    headers = [FORM[0], (b"authorization", f"Bearer {WRITE}".encode())]
    assert answered(guarded.app, path, headers, receive)[0]["status"] == 413
    assert sum(read) == 120_000


def test_a_token_for_writing_does_both(guarded, place):
    contents, labels = photos(place / "yellow")
    assert guarded.get("/api/model", headers=bearer(WRITE)).json()["can_write"]
    assert guarded.upload("/api/learn", contents, labels, headers=bearer(WRITE)).status_code == 202


def test_the_page_and_the_health_need_no_token(guarded):
    for address in ("/", "/api/health", "/api/ready"):
        assert guarded.get(address).status_code == 200


@pytest.mark.parametrize(
    ("write", "read"),
    [("short", None), (None, "short"), (WRITE, WRITE), ("has a space in it", None)],
)
def test_poor_tokens_are_refused(write, read):
    with refused("tokens-equal" if write == read else "token-weak"):
        Tokens(write, read)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_machines_are_not_served_without_a_token(host):
    for tokens in (Tokens(), Tokens(read=READ)):
        with refused("token-unset") as caught:
            require_token(host, tokens)
        assert "VISVM_TOKEN" in str(caught.value)
    require_token(host, Tokens(WRITE))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.5", "localhost", "::1"])
def test_this_machine_is(host):
    require_token(host, Tokens())


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://localhost:81"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_another_page_changes_nothing(taught, headers):
    answer = taught.post("/api/classes/forget", json={"label": "red"}, headers=headers)
    problem(answer, 403, "origin-foreign")
    assert "red" in taught.classes()


def test_our_own_page_does(taught):
    headers = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert (
        taught.post("/api/classes/forget", json={"label": "red"}, headers=headers).status_code
        == 202
    )


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "[", "localhost.evil"]
)
def test_another_name_for_this_machine_is_not_answered(taught, host):
    for address in ("/api/model", "/", "/api/health", "/app.js", "/api/nothing"):
        problem(taught.get(address, headers={"Host": host}), 403, "host-unknown", "localhost")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "127.0.0.1:1", "[::1]:9", "LOCALHOST"]
)
def test_its_own_names_are(taught, host):
    assert taught.get("/api/model", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "address",
    ["/", "/app.js", "/fonts/text-latin.woff2", "/api/model", "/api/nothing", "/openapi.json"],
)
def test_every_answer_carries_the_headers_that_protect_a_browser(client, address):
    headers = client.get(address).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert "microphone=()" in headers["permissions-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/../app.py",
        "/%2e%2e/app.py",
        "/..%2fapp.py",
        "//etc/passwd",
        "/.../x",
        "/\x00",
        "/page/../app.py",
    ],
)
def test_no_file_but_the_page_is_served(client, path):
    assert client.get(path.replace("\x00", "%00")).status_code == 404


def test_the_log_has_only_routes_sizes_and_times(taught, place, caplog):
    with caplog.at_level(logging.INFO, "visvm.service"):
        taught.end(taught.upload("/api/learn", photos(place / "yellow")[0], ["topsecret"]))
        taught.get("/api/jobs/secretjob?secret=1", headers={"User-Agent": "secretagent"})
        taught.get("/secretpath")
    assert "POST /api/learn 202" in caplog.text
    assert "secret" not in caplog.text


async def unread():
    pytest.fail("the body was read")


def answered(app, path, headers, receive):
    """Send the head of a request without its body; returns the messages of the answer."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
    scope |= {"query_string": b"", "headers": headers, "scheme": "http", "http_version": "1.1"}
    asyncio.run(app({**scope, "server": ("localhost", 80), "client": None}, receive, send))
    return sent


def test_a_body_that_pauses_is_given_up(taught, encoder, tmp_path):
    async def receive():
        await asyncio.sleep(10)

    headers = [*FORM, (b"host", b"localhost")]
    with serving(tmp_path / "m.visvm", encoder, limits=Limits(body_seconds=0.05)) as client:
        sent = answered(client.app, "/api/predict", headers, receive)
    assert sent[0]["status"] == 408


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_no_form_must_be_small(taught, announced):
    body = b'{"label": "' + b"x" * 100_000 + b'"}'
    content = body if announced else (part for part in [body])
    answer = taught.post(
        "/api/classes/forget", content=content, headers={"content-type": "application/json"}
    )
    problem(answer, 413, "body-too-large", "65,536 bytes")
