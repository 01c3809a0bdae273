"""Requests as bytes: none is run that was not sent whole, and nobody keeps the server waiting."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from oncely import Oncely
from oncely.surface.dashboard import site
from oncely.surface.http import connection, gate, run
from tests.surface.http.server import Client, as_served, in_thread, raw
from tests.waiting import PATIENCE_SECONDS, wait_until

HOST = b"host: 127.0.0.1\r\n"
JSON = b"content-type: application/json\r\n"
UPGRADE = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
JOBS = b"/v1/queues/q/jobs"


def post(body: bytes, more: bytes = b"", path: bytes = JOBS) -> bytes:
    head = b"POST %s HTTP/1.1\r\n%s%s%s" % (path, HOST, JSON, more)
    return b"%scontent-length: %d\r\n\r\n%s" % (head, len(body), body)


def statuses(wire: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", wire)]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Oncely]:
    with Oncely(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        app.migrate()
        yield app


@pytest.fixture
def url(app: Oncely) -> Iterator[str]:
    with as_served(app) as url:
        yield url


def payloads(app: Oncely) -> list[str]:
    return sorted(str(job.payload) for job in app.jobs())


@pytest.mark.parametrize("size", [1, 7, 100_000], ids=["bytes", "pieces", "whole"])
def test_a_request_that_asks_for_an_upgrade_is_read_to_its_end(
    app: Oncely, url: str, size: int
) -> None:
    """As `curl --http2` sends it, however the network cuts it into pieces. The body is that of this
    request, and never the next request."""
    inner = post(b'{"payload": "smuggled"}')
    body = b'{"payload": "first"}' + b" " * (100 - len(inner) % 100) + b"\r\n\r\n"
    sent = post(body, UPGRADE) + post(b'{"payload": "second"}', b"connection: close\r\n")
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(sent), size):
            wire.sendall(sent[start : start + size])
        answer = b""
        while data := wire.recv(65_536):
            answer += data
    assert statuses(answer) == [201, 201]
    assert payloads(app) == ["first", "second"]


def test_empty_lines_before_a_request_are_passed_over(app: Oncely, url: str) -> None:
    sent = b"\r\n\r\n" + post(b'{"payload": "first"}', UPGRADE)
    sent += b"\r\n" + post(b'{"payload": "second"}', b"connection: close\r\n")
    assert statuses(raw(url, sent, hold=True)) == [201, 201]
    assert payloads(app) == ["first", "second"]


def test_a_body_that_looks_like_a_request_is_not_run(app: Oncely, url: str) -> None:
    inner = post(b'{"payload": "smuggled"}')
    more = UPGRADE.replace(b"Upgrade,", b"Upgrade, close,") + b"transfer-encoding: chunked\r\n"
    head = b"POST %s HTTP/1.1\r\n%s%s%s\r\n" % (JOBS, HOST, JSON, more)
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner)
    [status] = statuses(raw(url, head + chunked, hold=True))
    assert status == 400  # it is no JSON
    assert payloads(app) == []


def test_an_upgrade_behind_another_request_is_refused(app: Oncely, url: str) -> None:
    """Sent in one piece: its end could not be found."""
    raw(url, post(b'{"payload": "first"}') + post(b'{"payload": "second"}', UPGRADE))
    assert "second" not in payloads(app)


def test_a_server_that_loses_the_body_of_an_upgrade_runs_nothing(app: Oncely) -> None:
    """The app mounted in a plain uvicorn, which skips that body."""
    with in_thread(app) as url:
        for more in (UPGRADE, UPGRADE + b"transfer-encoding: chunked\r\n"):
            head = b"POST %s HTTP/1.1\r\n%s%s%s" % (JOBS, HOST, JSON, more)
            if b"chunked" in more:
                sent = head + b"\r\n14\r\n" + b'{"payload": "first"}' + b"\r\n0\r\n\r\n"
            else:
                sent = head + b"content-length: 20\r\n\r\n" + b'{"payload": "first"}'
            answer = raw(url, sent, hold=True)
            assert statuses(answer) == [400]
            assert b"connection: close" in answer
    assert payloads(app) == []


def with_trailer(trailer: bytes) -> bytes:
    more = b"transfer-encoding: chunked\r\nconnection: close\r\n"
    head = b"POST %s HTTP/1.1\r\n%s%s%s\r\n" % (JOBS, HOST, JSON, more)
    return head + b"e\r\n" + b'{"payload": 1}' + b"\r\n0\r\n%s\r\n\r\n" % trailer


def test_a_trailer_is_no_header(app: Oncely, url: str) -> None:
    assert statuses(raw(url, with_trailer(b"idempotency-key: trailed"), hold=True)) == [201]
    [job] = app.jobs()
    assert job.idempotency_key is None


def test_a_key_in_a_trailer_is_none(app: Oncely) -> None:
    key = app.create_token(["publish"]).key.encode()
    with as_served(app) as url:
        answer = raw(url, with_trailer(b"authorization: Bearer %s" % key), hold=True)
    assert statuses(answer) == [401]
    assert payloads(app) == []


@pytest.mark.parametrize(
    "trailers",
    [b"a: %s" % (b"x" * 600_000), b"a: x\r\n" * 100_000, b""],
    ids=["one that is long", "many", "an extension of a chunk"],
)
def test_trailers_come_to_an_end(app: Oncely, url: str, trailers: bytes) -> None:
    more = b"transfer-encoding: chunked\r\n"
    head = b"POST %s HTTP/1.1\r\n%s%s%s\r\n" % (JOBS, HOST, JSON, more)
    last = b"0\r\n" + trailers if trailers else b"1;" + b"x" * 600_000
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as wire:
        wire.sendall(head + b"e\r\n" + b'{"payload": 1}' + b"\r\n")
        for start in range(0, len(last), 8_192):
            try:
                wire.sendall(last[start : start + 8_192])
            except OSError:  # it was closed
                break
        answer = b""
        try:
            while data := wire.recv(65_536):
                answer += data
        except ConnectionResetError:
            pass
    assert payloads(app) == []


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz\r\n", 400),
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET /healthz HTTP/2.0\r\n%s\r\n" % HOST, 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"CONNECT 127.0.0.1:80 HTTP/1.1\r\n%s\r\n" % HOST, 400),
        (b"GET /healthz HTTP/1.1\r\n%sa: %s\r\n\r\n" % (HOST, b"x" * 70_000), 431),
        (b"GET /healthz HTTP/1.1\r\n%s" % HOST + b"a: b\r\n" * 20_000 + b"\r\n", 431),
        (b"GET /" + b"x" * 70_000, 431),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_closed(
    url: str, sent: bytes, status: int
) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as wire:
        wire.sendall(sent)
        answer = b""
        try:
            while data := wire.recv(65_536):
                answer += data
        except ConnectionResetError:  # it was closed with something unread
            assert status == 431
            return
    assert statuses(answer) == [status]


def test_a_refused_request_does_not_go_on_for_ever(app: Oncely, url: str) -> None:
    """Its body is still being sent when it is refused."""
    head = b"POST /v1/nowhere HTTP/1.1\r\n%s%stransfer-encoding: chunked\r\n\r\n" % (HOST, JSON)
    answer = raw(url, head + b"4\r\nnull\r\n", hold=True)
    assert statuses(answer) == [404]
    assert b"connection: close" in answer


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /healthz HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\n%s\r\nGET /" % HOST],
    ids=["nothing", "a part of a head", "a part of the second head"],
)
def test_a_head_has_a_deadline(app: Oncely, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(run, "WATCH_SECONDS", 0.05)
    with as_served(app) as url:
        assert statuses(raw(url, sent, hold=True))[-1] == 408


@pytest.mark.parametrize("whole", [[], ["1"]], ids=["the first", "the second"])
def test_a_body_has_a_deadline(
    app: Oncely, whole: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also behind a request on the same connection that arrived whole."""
    monkeypatch.setattr(gate, "_BODY_SECONDS", 0.2)
    before = b"".join(post(b'{"payload": %s}' % each.encode()) for each in whole)
    with as_served(app) as url:
        answer = raw(url, before + post(b'{"payload": 2}')[:-5], hold=True)
    assert statuses(answer) == [*(201 for _ in whole), 408]
    assert b'"body_too_slow"' in answer
    assert payloads(app) == whole


@pytest.mark.parametrize(("length", "status"), [(100, 408), (9_000, 413)])
def test_a_form_has_a_deadline_and_a_limit(
    app: Oncely, monkeypatch: pytest.MonkeyPatch, length: int, status: int
) -> None:
    """The rest of its body is not waited for."""
    monkeypatch.setattr(site, "_FORM_SECONDS", 0.2)
    app.create_user("ann", "a long password", role="reader")
    kind = b"content-type: application/x-www-form-urlencoded\r\norigin: http://127.0.0.1\r\n"
    head = b"POST /dashboard/sign-in HTTP/1.1\r\n%s%s" % (HOST, kind)
    with as_served(app) as url:
        answer = raw(url, head + b"content-length: %d\r\n\r\nname=ann" % length, hold=True)
        assert statuses(answer) == [status]
        assert b"connection: close" in answer


def test_an_idle_connection_is_closed(app: Oncely, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "KEEP_ALIVE_SECONDS", 0.2)
    with as_served(app) as url:
        answer = raw(url, b"GET /healthz HTTP/1.1\r\n%s\r\n" % HOST, hold=True)
        assert statuses(answer) == [200]


def test_who_does_not_read_an_answer_is_let_go(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(run, "WATCH_SECONDS", 0.05)
    for n in range(8):
        app.enqueue("k", "x" * 900_000 + str(n))
    with as_served(app) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.socket() as wire:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            wire.settimeout(PATIENCE_SECONDS)
            wire.connect((host, int(port)))
            wire.sendall(b"GET /v1/jobs?limit=8 HTTP/1.1\r\n%s\r\n" % HOST)

            def is_cut() -> bool:
                try:  # an empty line, which a server that still listens passes over
                    wire.sendall(b"\r\n")
                except OSError:
                    return True
                return False

            wait_until(is_cut, "the server lets go of it")


def test_there_is_room_for_so_many_connections_and_no_more(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECTION_LIMIT", 3)
    with as_served(app) as url, ExitStack() as open_ones:
        clients = [open_ones.enter_context(Client(url)) for _ in range(3)]
        for client in clients:
            assert client.get("/healthz").status_code == 200
        answer = raw(url, b"GET /healthz HTTP/1.1\r\n%s\r\n" % HOST, hold=True)
        assert statuses(answer) == [503]
        assert b'"too_many_connections"' in answer
        assert b"retry-after: 1" in answer
        clients[0].close()
        asked = b"GET /healthz HTTP/1.1\r\n%sconnection: close\r\n\r\n" % HOST
        wait_until(lambda: statuses(raw(url, asked, hold=True)) == [200])
