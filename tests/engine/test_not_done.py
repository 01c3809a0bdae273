"""Which errors of the real HTTP clients prove that nothing was sent: a refused connection does, a
time-out and a reset do not."""

import asyncio
import http.client
import http.server
import socket
import ssl
import struct
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3

from oncely import Context, Oncely, Retry
from oncely.model.proof import _is_refusal, proves_not_done
from tests.engine.steps import found, sql
from tests.ports import closed
from tests.waiting import PATIENCE_SECONDS

Send = Callable[[str], Any]
TIMEOUT_SECONDS = 0.3
"""For the answer. An event loop that is kept from running that long would give up a connection
that is there, so asynchronous clients have more time for that."""


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Certificates take a while to read, and there is nothing to verify here."""


def with_http_client(url: str) -> None:
    with closing(http.client.HTTPConnection(*address(url), timeout=TIMEOUT_SECONDS)) as connection:
        connection.request("POST", "/", b"x")
        connection.getresponse()


def with_urllib(url: str) -> None:
    urllib.request.urlopen(url, b"x", timeout=TIMEOUT_SECONDS).close()


def with_socket(url: str) -> None:
    with socket.create_connection(address(url), TIMEOUT_SECONDS) as connection:
        connection.sendall(b"x")
        assert connection.recv(1)


def with_urllib3(url: str) -> None:
    with urllib3.PoolManager() as pool:
        pool.request("POST", url, body=b"x", timeout=TIMEOUT_SECONDS, retries=False)


def with_urllib3_that_retries(url: str) -> None:
    with urllib3.PoolManager() as pool:
        pool.request("POST", url, body=b"x", timeout=TIMEOUT_SECONDS, retries=1)


def with_requests(url: str) -> None:
    requests.post(url, b"x", timeout=TIMEOUT_SECONDS)


def with_httpx(url: str) -> None:
    httpx.post(url, content=b"x", timeout=TIMEOUT_SECONDS, verify=NO_TLS)


async def with_httpx_async(url: str) -> None:
    limit = httpx.Timeout(PATIENCE_SECONDS, read=TIMEOUT_SECONDS)
    async with httpx.AsyncClient(timeout=limit, verify=NO_TLS) as client:
        await client.post(url, content=b"x")


def with_httpx2(url: str) -> None:
    httpx2.post(url, content=b"x", timeout=TIMEOUT_SECONDS, verify=NO_TLS)


async def with_httpx2_async(url: str) -> None:
    limit = httpx2.Timeout(PATIENCE_SECONDS, read=TIMEOUT_SECONDS)
    async with httpx2.AsyncClient(timeout=limit, verify=NO_TLS) as client:
        await client.post(url, content=b"x")


async def with_aiohttp(url: str) -> None:
    limit = aiohttp.ClientTimeout(sock_read=TIMEOUT_SECONDS)
    async with aiohttp.ClientSession(timeout=limit) as session, session.post(url, data=b"x"):
        pass


async def with_asyncio(url: str) -> None:
    reader, writer = await asyncio.open_connection(*address(url))
    try:
        writer.write(b"x")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await reader.readexactly(1)
    finally:
        writer.close()


SYNC = [
    with_http_client,
    with_urllib,
    with_socket,
    with_urllib3,
    with_urllib3_that_retries,
    with_requests,
    with_httpx,
    with_httpx2,
]
ASYNC = [with_httpx_async, with_httpx2_async, with_aiohttp, with_asyncio]
everyone = pytest.mark.parametrize("send", [*SYNC, *ASYNC], ids=lambda send: send.__name__)


def error_of(send: Send, url: str) -> BaseException:
    try:
        value = send(url)
        if asyncio.iscoroutine(value):
            asyncio.run(value)
    except Exception as error:
        return error
    raise AssertionError("it went well")


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Taken, so that nobody else can open it, and not listened to."""
    with closed() as port:
        yield port


@pytest.fixture(params=["silent", "resets"])
def bad_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Takes the request and never answers; or cuts the connection instead of answering."""
    server = socket.create_server(("127.0.0.1", 0))
    kept = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            kept.append(connection)
            if request.param == "resets":
                connection.recv(1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    for connection in kept:
        connection.close()


@everyone
def test_a_refused_connection_proves_that_nothing_was_sent(send: Send, closed_port: int) -> None:
    error = error_of(send, f"http://127.0.0.1:{closed_port}")
    assert proves_not_done(error, ()), repr(error)


@everyone
def test_a_time_out_or_a_reset_proves_nothing(send: Send, bad_server: str) -> None:
    error = error_of(send, bad_server)
    assert not proves_not_done(error, ()), repr(error)


def test_a_name_with_two_addresses_that_both_refuse(closed_port: int) -> None:
    """localhost is ::1 and 127.0.0.1 on many machines. What is not recognised is doubt, no harm."""
    for send in (with_requests, with_httpx, with_http_client, with_socket):
        error = error_of(send, f"http://localhost:{closed_port}")
        assert proves_not_done(error, ()), repr(error)


def follow_with_urllib3(url: str) -> None:
    with urllib3.PoolManager() as pool:
        pool.request("POST", url, body=b"x", timeout=TIMEOUT_SECONDS)


def follow_with_httpx(url: str) -> None:
    httpx.post(url, content=b"x", follow_redirects=True, verify=NO_TLS)


async def follow_with_httpx_async(url: str) -> None:
    async with httpx.AsyncClient(follow_redirects=True, verify=NO_TLS) as client:
        await client.post(url, content=b"x")


def follow_with_httpx2(url: str) -> None:
    httpx2.post(url, content=b"x", follow_redirects=True, verify=NO_TLS)


@pytest.mark.parametrize(
    "send",
    [
        with_urllib,
        with_requests,
        with_aiohttp,
        follow_with_urllib3,
        follow_with_httpx,
        follow_with_httpx_async,
        follow_with_httpx2,
    ],
    ids=lambda send: send.__name__,
)
def test_a_redirect_to_a_closed_port_proves_nothing(
    send: Send, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request was taken, and may have done it."""
    monkeypatch.setattr(sys.modules[__name__], "TIMEOUT_SECONDS", 30.0)

    class See(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(303)
            self.send_header("Location", f"http://127.0.0.1:{closed_port}/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), See) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        error = error_of(send, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert _is_refusal(error, 10), repr(error)
    assert not proves_not_done(error, ()), repr(error)


@pytest.mark.parametrize("library", ["urllib3", "requests"])
def test_a_refusal_after_a_try_that_may_have_arrived_proves_nothing(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client tries again by itself, and tells of the last time only."""
    monkeypatch.setattr(sys.modules[__name__], "TIMEOUT_SECONDS", 30.0)
    server = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{server.getsockname()[1]}"

    def take_one_and_go() -> None:
        connection, _ = server.accept()
        server.close()
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    def send(url: str) -> None:
        if library == "urllib3":
            with urllib3.PoolManager() as pool:
                pool.request("PUT", url, body=b"x", timeout=TIMEOUT_SECONDS)
        else:
            with requests.Session() as session:
                session.mount("http://", requests.adapters.HTTPAdapter(max_retries=2))
                session.put(url, b"x", timeout=TIMEOUT_SECONDS)

    threading.Thread(target=take_one_and_go, daemon=True).start()
    error = error_of(send, url)
    assert _is_refusal(error, 10), repr(error)
    assert not proves_not_done(error, ()), repr(error)


@everyone
def test_in_a_fence_a_closed_port_clears_the_intent_and_silence_holds_the_job(
    app: Oncely, send: Send, closed_port: int, bad_server: str
) -> None:
    refused = f"http://127.0.0.1:{closed_port}"

    @app.job("k", retry=Retry(base=0, max_attempts=1))
    async def handle(ctx: Context, url: str) -> None:
        await ctx.fence("send", send, url)

    jobs = [app.enqueue("k", url).job_id for url in (refused, bad_server)]
    app.drain()
    assert [found(app, job).state for job in jobs] == ["failed", "in_doubt"]
    assert [str(job) for (job,) in sql(app, "select job_id from oncely.effect")] == jobs[1:]


def test_only_the_first_time_proves_that_nothing_happened(app: Oncely) -> None:
    """A time-out, then a refused connection: the first time may have done it. The step is still
    the one that was begun then, so that its key does not seem newer than it is."""
    errors = [TimeoutError("no answer"), ConnectionRefusedError(111, "refused")]

    def send() -> None:
        if errors:
            raise errors.pop(0)

    @app.job("k", retry=Retry(base=0, max_attempts=2))
    def handle(ctx: Context) -> None:
        ctx.step("send", send, key_ttl=3600)

    job = app.enqueue("k")
    app.drain()
    assert found(app, job.job_id).state == "failed"
    assert sql(app, "select state from oncely.effect") == [("begun",)]
