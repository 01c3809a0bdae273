"""Answers of an HTTP server, raised by the real clients: refusals in a fence, and `Retry-After`."""

import asyncio
import http.server
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import aiohttp
import httpx
import httpx2
import pytest
import requests
import requests.adapters
import urllib3

from oncely import (
    Cancel,
    Context,
    Defer,
    Fence,
    InvalidInput,
    Ledger,
    Nack,
    NotDone,
    Oncely,
    Retry,
    http_refused,
)
from tests.engine.stage import Stage
from tests.engine.steps import found, sql

REFUSED: Final = (400, 401, 403, 404, 405, 410, 413, 415, 422, 429)
Send = Callable[[str], Any]


class Receiver(http.server.BaseHTTPRequestHandler):
    """Answers as the path says: `/429?retry-after=5`, `/303?location=/404`, `/then/500/429`."""

    protocol_version = "HTTP/1.0"
    asked: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        url = urlsplit(self.path)
        _, *codes = url.path.removeprefix("/then").split("/")
        code = codes[min(self.asked.count(self.path), len(codes) - 1)]
        self.asked.append(self.path)
        self.send_response(int(code))
        for name, values in parse_qs(url.query).items():
            self.send_header(name, values[0])
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def receiver() -> Iterator[str]:
    handler = type("Handler", (Receiver,), {"asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Certificates take a while to read, and there is nothing to verify here."""


def with_httpx2(url: str) -> None:
    httpx2.post(url, content=b"x", verify=NO_TLS).raise_for_status()


def with_httpx(url: str) -> None:
    httpx.post(url, content=b"x", verify=NO_TLS).raise_for_status()


def with_requests(url: str) -> None:
    requests.post(url, b"x", timeout=30).raise_for_status()


async def with_aiohttp(url: str) -> None:
    async with (
        aiohttp.ClientSession(raise_for_status=True) as session,
        session.post(url, data=b"x"),
    ):
        pass


CLIENTS: Final[list[Send]] = [with_httpx2, with_httpx, with_requests, with_aiohttp]
every_client = pytest.mark.parametrize("send", CLIENTS, ids=lambda send: send.__name__[5:])


def error_of(send: Send, url: str) -> Exception:
    async def call() -> None:
        if asyncio.iscoroutinefunction(send):
            await send(url)
        else:
            send(url)

    try:
        asyncio.run(call())
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


@every_client
def test_refusals_are_known(send: Send, receiver: str) -> None:
    refused = {code for code in range(400, 600, 1) if code in (*REFUSED, 408, 409, 500, 503, 529)}
    assert {code for code in refused if http_refused(error_of(send, f"{receiver}/{code}"))} == {
        *REFUSED
    }


def test_only_answers_to_these_clients_are_refusals() -> None:
    class OtherError(Exception):
        status = 404

    assert not http_refused(OtherError())
    assert not http_refused(ValueError(404))
    assert not http_refused(httpx.ConnectTimeout("404"))
    assert not http_refused(requests.ConnectionError("404"))


@pytest.mark.parametrize("send", [with_requests, with_aiohttp], ids=["requests", "aiohttp"])
def test_a_refusal_after_a_redirect_proves_nothing(send: Send, receiver: str) -> None:
    error = error_of(send, f"{receiver}/303?location=/404")
    assert not http_refused(error)


@pytest.mark.parametrize(("first", "proves"), [(500, False), (429, True)])
def test_a_refusal_after_a_try_that_may_have_arrived_proves_nothing(
    receiver: str, first: int, *, proves: bool
) -> None:
    def send(url: str) -> None:
        retry = urllib3.Retry(1, status_forcelist=[500, 429], allowed_methods=None)
        with requests.Session() as session:
            session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
            session.post(url, b"x", timeout=30).raise_for_status()

    assert http_refused(error_of(send, f"{receiver}/then/{first}/401")) is proves


@every_client
def test_a_refused_fence_is_not_in_doubt(app: Oncely, receiver: str, send: Send) -> None:
    mail = Fence("mail", not_done=http_refused)

    @app.job("k", retry=Retry(base=0, max_attempts=2))
    async def handle(ctx: Context, path: str) -> None:
        await ctx.fence(mail, send, f"{receiver}{path}")

    paths = ("/422", "/500", "/429?retry-after=3600")
    jobs = [app.enqueue("k", path).job_id for path in paths]
    app.drain()
    ended = [found(app, job_id) for job_id in jobs]
    assert [job.state for job in ended] == ["failed", "in_doubt", "scheduled"]
    assert [job.attempt for job in ended] == [2, 1, 0]
    assert sql(app, "select count(*) from oncely.effect") == [(1,)]
    [deferred] = ended[2].executions
    assert deferred.outcome == "deferred"


def test_what_a_fence_raises_to_say_that_nothing_happened(app: Oncely, stage: Stage) -> None:
    ends: dict[str, tuple[Exception, str, int]] = {
        "not done": (NotDone("no room"), "completed", 2),
        "defer": (Defer(0), "completed", 1),
        "nack": (Nack("later"), "completed", 2),
        "never": (Nack("never", retryable=False), "failed", 1),
        "cancel": (Cancel("not wanted"), "cancelled", 1),
    }
    errors = {name: error for name, (error, _, _) in ends.items()}

    def send(name: str) -> str:
        if error := errors.pop(name, None):
            raise error
        return "sent"

    def body(ctx: Context) -> Any:
        return (yield ctx.fence("mail", send, ctx.payload))

    stage.handler(body)
    for name, (_, state, attempts) in ends.items():
        job = stage.run(name)
        assert (job.state, job.attempt) == (state, attempts), name
        assert [effect.state for effect in job.effects] == ["done"] * (state == "completed")


def test_what_was_begun_before_stays_begun(app: Oncely, stage: Stage) -> None:
    """The second time nothing was sent; of the first nobody knows."""
    errors: list[Exception] = [TimeoutError("no answer"), NotDone("closed"), NotDone("closed")]

    def send() -> None:
        raise errors.pop(0)

    def body(ctx: Context) -> Any:
        yield ctx.fence("mail", send, verify=lambda: None)

    stage.handler(body, retry=Retry(base=0, max_attempts=3))
    job = stage.run()
    assert (job.state, errors) == ("failed", [])
    assert sql(app, "select state from oncely.effect") == [("begun",)]


def test_a_step_that_defers_stays_begun_and_not_done_clears_it(app: Oncely, stage: Stage) -> None:
    """The time of its key runs on: a step may have asked the other side before it deferred."""
    errors: dict[str, Exception] = {"poll": Defer(0), "post": NotDone("closed")}
    seen = []

    def act(name: str) -> None:
        if error := errors.pop(name, None):
            raise error

    def body(ctx: Context) -> Any:
        seen.append(sql(app, "select name, state from oncely.effect order by name"))
        yield ctx.step("poll", act, "poll", key_ttl=3600)
        yield ctx.step("post", act, "post", key_ttl=3600)

    stage.handler(body)
    assert stage.run().state == "completed"
    assert seen == [[], [("poll", "begun")], [("poll", "done")]]


def test_not_done_takes_types_and_functions(app: Oncely, stage: Stage) -> None:
    class Refusal(Exception):
        code = 7

    def broken(error: BaseException) -> bool:
        raise RuntimeError("cannot say")

    def send() -> None:
        raise Refusal

    rules: dict[str, Any] = {
        "type": Refusal,
        "tuple": (KeyError, Refusal),
        "function": lambda error: error.code == 7,
        "other": lambda error: error.code == 8,
        "broken": broken,
    }

    def body(ctx: Context) -> Any:
        yield ctx.fence("send", send, not_done=rules[ctx.payload])

    stage.handler(body, retry=Retry(max_attempts=1))
    states = {name: stage.run(name) for name in rules}
    assert {name: job.state for name, job in states.items()} == {
        "type": "failed",
        "tuple": "failed",
        "function": "failed",
        "other": "in_doubt",
        "broken": "in_doubt",
    }
    assert "cannot say" in states["broken"].error["traceback"]


def test_a_fence_of_a_ledger_takes_them_too(tmp_path: Any, receiver: str) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    try:
        for _ in range(2):
            with pytest.raises(httpx2.HTTPStatusError):
                ledger.fence("mail", with_httpx2, f"{receiver}/401", not_done=http_refused)
            with pytest.raises(NotDone):
                ledger.fence("note", _not_done)
        assert ledger.in_doubt() == []
    finally:
        ledger.close()


def _not_done() -> None:
    raise NotDone("closed")


@every_client
def test_retry_after_defers_the_job(app: Oncely, receiver: str, send: Send) -> None:
    """From a handler and from a step, in both forms; no attempt is used."""

    @app.job("handler", retry=Retry(max_attempts=1))
    async def handle(ctx: Context, path: str) -> None:
        if asyncio.iscoroutinefunction(send):
            await send(f"{receiver}{path}")
        else:
            await asyncio.to_thread(send, f"{receiver}{path}")

    @app.job("step", retry=Retry(max_attempts=1))
    async def step(ctx: Context, path: str) -> None:
        await ctx.step("send", send, f"{receiver}{path}")

    date = format_datetime(datetime.now(UTC) + timedelta(hours=2), usegmt=True).replace(" ", "%20")
    paths = {
        "/429?retry-after=3600": "scheduled",
        f"/503?retry-after={date}": "scheduled",
        "/529?retry-after=99999999": "scheduled",
        "/429": "failed",
        "/503?retry-after=soon": "failed",
        "/500?retry-after=3600": "failed",
    }
    jobs = [(app.enqueue("handler", path).job_id, state) for path, state in paths.items()]
    jobs += [(app.enqueue("step", path).job_id, state) for path, state in paths.items()]
    app.drain()
    for job_id, state in jobs:
        job = found(app, job_id)
        assert job.state == state, job.payload
        if state == "scheduled":
            assert job.attempt == 0
            wait = job.due_at - job.executions[0].ended_at
            assert timedelta(seconds=3590) <= wait <= timedelta(days=1)


def test_nack_with_a_delay_uses_an_attempt_and_comes_back_after_it(
    app: Oncely, stage: Stage
) -> None:
    def body(ctx: Context) -> Any:
        yield None
        raise Nack("busy", delay=3600)

    stage.handler(body, retry=Retry(base=0, max_attempts=2))
    job = stage.run()
    assert (job.state, job.attempt) == ("scheduled", 1)
    assert (job.due_at - job.executions[0].ended_at) == timedelta(hours=1)


def test_a_policy_names_the_exceptions_that_are_retried(app: Oncely, receiver: str) -> None:
    policies = {
        "on": Retry(base=0, max_attempts=2, on=(KeyError, ConnectionError)),
        "never_on": Retry(base=0, max_attempts=2, never_on=KeyError),
        "busy": Retry(base=0, max_attempts=2, never_on=httpx2.HTTPStatusError),
    }
    for kind, retry in policies.items():

        @app.job(kind, retry=retry)
        def handle(ctx: Context, error: str) -> None:
            match error:
                case "key":
                    raise KeyError("k")
                case "value":
                    raise ValueError("v")
                case "nack":
                    raise Nack("again")
                case _:
                    with_httpx2(f"{receiver}{error}")

    tried = {
        ("on", "key"): 2,
        ("on", "value"): 1,
        ("on", "nack"): 2,
        ("on", "/429?retry-after=3600"): 0,
        ("never_on", "key"): 1,
        ("never_on", "value"): 2,
        ("busy", "/429?retry-after=3600"): 1,
    }
    jobs = {case: app.enqueue(*case).job_id for case in tried}
    app.drain()
    assert {case: found(app, job_id).attempt for case, job_id in jobs.items()} == tried


@pytest.mark.parametrize("types", ["KeyError", (KeyError, "x"), 7, int], ids=repr)
def test_a_policy_is_checked_when_it_is_made(types: Any) -> None:
    with pytest.raises(InvalidInput, match="on is"):
        Retry(on=types)
    with pytest.raises(InvalidInput, match="never_on is"):
        Retry(never_on=types)


def test_a_queue_keeps_no_exception_types(app: Oncely) -> None:
    with pytest.raises(InvalidInput, match="give them to the handler"):
        app.set_queue("q", retry=Retry(on=KeyError))
    app.set_queue("q", retry=Retry(max_attempts=3))
    [queue] = [queue for queue in app.queues() if queue.name == "q"]
    assert queue.retry == Retry(max_attempts=3)


def test_bad_delays_of_a_nack_are_refused() -> None:
    for delay in (-1, "5", True, 1e12):
        with pytest.raises(InvalidInput, match="Nack takes a delay"):
            Nack("no", delay=delay)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="no next attempt"):
        Nack("no", delay=5, retryable=False)
