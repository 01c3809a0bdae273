"""Requests to receivers that answer slowly, redirect, flood, reset, or lie."""

import asyncio
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pytest

from oncely.flow import push_line, push_wire
from oncely.flow.push_target import parse
from oncely.flow.push_wire import Answer, NotSent, Unanswered, Wire
from tests.engine.push_receiver import (
    OK,
    Reply,
    Request,
    drip,
    raw,
    receiver,
    reset,
    silent,
    status,
)
from tests.ports import closed
from tests.waiting import PATIENCE_SECONDS, wait_until

T = TypeVar("T")
CERTIFICATE = Path(__file__).parent / "certificates" / "hooks.example.pem"


@pytest.fixture(autouse=True, params=["asyncio", "uvloop"] if find_spec("uvloop") else ["asyncio"])
def _on_each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCELY_PUSH_ALLOW", "127.0.0.0/8")
    make = None
    if request.param == "uvloop":
        make = import_module("uvloop").new_event_loop
    monkeypatch.setattr(sys.modules[__name__], "LOOP", make)


LOOP: Callable[[], asyncio.AbstractEventLoop] | None = None


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=LOOP) as runner:
        return runner.run(work)


def post(
    url: str, times: int = 1, *, seconds: Sequence[float] = (), body: bytes = b"{}"
) -> list[Answer]:
    limits = seconds or [PATIENCE_SECONDS] * times

    async def go() -> list[Answer]:
        wire = Wire(parse(url))
        try:
            return [await wire.post([("webhook-id", "1")], body, limit) for limit in limits]
        finally:
            wire.close()

    return run(go())


def flood(first: bytes, sent: list[int]) -> Reply:
    """As much as anybody takes."""

    def reply(peer: socket.socket, _: Request) -> None:
        peer.sendall(first)
        try:
            while sum(sent) < 200_000_000:
                peer.sendall(b"x" * 65_536)
                sent.append(65_536)
        except OSError:
            sent.append(0)
            raise

    return reply


def said(rest: bytes) -> Reply:
    return raw(b"HTTP/1.1 200 OK\r\n" + rest, close=False)


def test_a_connection_is_used_again() -> None:
    chunked = raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n",
        close=False,
    )
    empty = raw(b"HTTP/1.1 204 No Content\r\n\r\n", close=False)
    interim = raw(
        b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n",
        close=False,
    )
    with receiver(OK, chunked, empty, interim, status(500), OK) as there:
        assert [answer.status for answer in post(there.url, 6)] == [200, 200, 204, 200, 500, 200]
        assert there.connections == 1


BODIES = {
    "closes": status(200, "Connection: close"),
    "1.0": raw(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", close=False),
    "two lengths": said(b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok!"),
    "length and chunks": said(b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok"),
    "length below 0": said(b"Content-Length: -2\r\n\r\n"),
    "more than it said": said(b"Content-Length: 2\r\n\r\nok, and more"),
    "a second answer": said(b"Content-Length: 0\r\n\r\nHTTP/1.1 500 No\r\n\r\n"),
    "a huge length": said(b"Content-Length: 99999999999\r\n\r\nok"),
    "a body that is too long to read": said(b"Content-Length: 100000\r\n\r\n"),
    "less than it said": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok"),
    "no chunk": said(b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
    "a chunk below 0": said(b"Transfer-Encoding: chunked\r\n\r\n-5\r\n"),
    "a huge chunk": said(b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFF\r\n"),
    "another coding": said(b"Transfer-Encoding: gzip\r\n\r\nx"),
    "no length": raw(b"HTTP/1.1 200 OK\r\n\r\nuntil the end"),
}


@pytest.mark.parametrize("reply", BODIES.values(), ids=BODIES)
def test_the_status_counts_whatever_the_body_does_and_the_connection_is_given_up(
    reply: Reply,
) -> None:
    """What is left on a connection would be taken for the answer to another job."""
    with receiver(reply, status(418)) as there:
        assert [answer.status for answer in post(there.url, 2)] == [200, 418]
        assert there.connections == 2


NO_ANSWERS = {
    "nothing": raw(b""),
    "half a head": raw(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "not HTTP": raw(b"hello\r\n\r\n"),
    "HTTP/2": raw(b"HTTP/2 200\r\n\r\n"),
    "a short status": raw(b"HTTP/1.1 20 OK\r\n\r\n"),
    "a long status": raw(b"HTTP/1.1 2000 OK\r\n\r\n"),
    "another protocol": raw(b"HTTP/1.1 101 Switching\r\n\r\n", close=False),
    "interim for ever": raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 20, close=False),
    "a long head": said(b"X: " + b"x" * 20_000 + b"\r\n\r\n"),
    "reset": reset,
}


@pytest.mark.parametrize("reply", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_what_is_no_answer_leaves_it_unknown(reply: Reply) -> None:
    with receiver(reply) as there, pytest.raises(Unanswered):
        post(there.url)


@pytest.mark.parametrize(
    "reply", [silent, drip(b"HTTP/1.1 200 OK\r\nX: ")], ids=["silent", "drips"]
)
def test_the_answer_has_a_time_limit_in_all(reply: Reply) -> None:
    """On a connection that is there: to make one takes as long as the machine is busy."""
    with receiver(OK, reply) as there, pytest.raises(Unanswered, match=r"within 0\.3 seconds"):
        post(there.url, seconds=[PATIENCE_SECONDS, 0.3])


def test_a_body_that_drips_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_wire, "_BODY_SECONDS", 0.1)
    with receiver(drip(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"), OK) as there:
        assert [answer.status for answer in post(there.url, 2)] == [200, 200]
        assert there.connections == 2


@pytest.mark.parametrize(
    ("first", "answers"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nX: ", False),
        (b"", False),
    ],
    ids=["no length", "a huge one", "a lie", "chunks", "a head", "nothing"],
)
def test_a_flood_is_cut_off(first: bytes, answers: bool) -> None:
    """What the receiver could send before it was cut off is little: the buffers of the system, and
    ours."""
    sent: list[int] = []
    with receiver(flood(first, sent)) as there:
        if answers:
            assert [answer.status for answer in post(there.url)] == [200]
        else:
            with pytest.raises(Unanswered):
                post(there.url)
        wait_until(lambda: 0 in sent, "the flood was cut off")
    assert sum(sent) < 20_000_000


def test_never_more_than_a_bound_is_kept_also_of_a_flood_that_nobody_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = 0
    keep = push_line.Line.data_received

    def measured(line: push_line.Line, data: bytes) -> None:
        nonlocal most
        keep(line, data)
        most = max(most, len(line._buffer))

    monkeypatch.setattr(push_line.Line, "data_received", measured)
    sent: list[int] = []
    answered = threading.Event()

    def later(peer: socket.socket, request: Request) -> None:
        OK(peer, request)
        assert answered.wait(PATIENCE_SECONDS)
        flood(b"", sent)(peer, request)

    async def go(url: str) -> None:
        wire = Wire(parse(url))
        assert (await wire.post([], b"{}", PATIENCE_SECONDS)).status == 200
        answered.set()
        while not most > push_line.LIMIT:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # as long as the flood may go on
        wire.close()

    with receiver(later) as there:
        run(go(there.url))
    assert push_line.LIMIT < most <= 1_000_000


def test_nothing_is_sent_where_nobody_listens() -> None:
    with closed() as port, pytest.raises(NotSent, match="no connection to 127"):
        post(f"http://127.0.0.1:{port}/")


def test_every_address_is_tried() -> None:
    with receiver(host="127.0.0.3") as there:

        async def go() -> Answer:
            place = parse(f"http://hooks.example:{there.port}/")
            wire = Wire(place, lambda *_: ["127.0.0.2", "127.0.0.3"])
            try:
                return await wire.post([], b"{}", PATIENCE_SECONDS)
            finally:
                wire.close()

        assert run(go()).status == 200


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as there, receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        post(there.url)
        assert proxy.connections == 0


def test_a_large_body_arrives_whole() -> None:
    body = b'{"x":"' + b"y" * 900_000 + b'"}'
    with receiver() as there:
        assert post(there.url, body=body)[0].status == 200
        assert there.requests[0].body == body


def tls_server(names: list[str | None]) -> tuple[socket.socket, int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    context.sni_callback = lambda _, name, __: names.append(name)
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                plain, _ = server.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(plain, server_side=True) as peer:
                    peer.recv(65_536)
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    peer.recv(1)
            except OSError:
                pass

    threading.Thread(target=serve, daemon=True).start()
    return server, server.getsockname()[1]


def test_the_certificate_is_that_of_the_name_and_the_connection_goes_to_the_checked_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    monkeypatch.setattr(push_wire, "_TRUSTED", [])
    names: list[str | None] = []
    server, port = tls_server(names)

    async def go(host: str) -> Answer:
        def resolve(*_: object) -> Sequence[str]:
            return ["127.0.0.1"]

        wire = Wire(parse(f"https://{host}:{port}/"), resolve)
        try:
            return await wire.post([], b"{}", PATIENCE_SECONDS)
        finally:
            wire.close()

    try:
        assert run(go("hooks.example")).status == 200
        with pytest.raises(NotSent, match=r"[Cc]ertificate"):
            run(go("other.example"))
        with pytest.raises(NotSent, match=r"[Cc]ertificate"):
            run(go("127.0.0.1"))
        monkeypatch.delenv("SSL_CERT_FILE")
        monkeypatch.setattr(push_wire, "_TRUSTED", [])
        with pytest.raises(NotSent, match=r"[Cc]ertificate"):
            run(go("hooks.example"))
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
    assert names[0] == "hooks.example"
