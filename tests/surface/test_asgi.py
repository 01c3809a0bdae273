"""`IdempotencyMiddleware`, driven directly: what is answered, what is run, what is on record."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import closing
from http import HTTPStatus
from itertools import count
from typing import Any

import pytest

from oncely import InvalidInput, Oncely
from oncely.asgi import IdempotencyMiddleware
from oncely.surface.asgi import record
from oncely.surface.asgi.types import Message, Receive, Scope, Send
from tests.engine.steps import Backdoor, engine_of, let_days_pass, sql
from tests.surface.asgi_driver import Client, Till, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def till() -> Till:
    return Till()


def client(till: Till, store: Oncely, **options: Any) -> Client:
    return Client(IdempotencyMiddleware(till, store, **options))


async def test_the_first_response_is_the_answer_to_every_repeat(app: Oncely, till: Till) -> None:
    till.headers += [(b"location", b"/charges/1"), (b"set-cookie", b"session=secret")]
    till.chunks = [b"one ", b"", b"\x00\xff two"]
    till.status = HTTPStatus.CREATED
    ask = client(till, app)
    first = await ask.send(b'{"amount": 5}')
    assert (first.status, first.body, first.replayed) == (201, b"one \x00\xff two", False)
    assert first.header(b"set-cookie") == [b"session=secret"]
    till.chunks, till.status = [b"other"], 200
    for key in ("k", '"k"'):
        repeat = await ask.send(b'{"amount": 5}', key=key)
        assert (repeat.status, repeat.body, repeat.replayed) == (201, first.body, True)
        assert repeat.header(b"location") == [b"/charges/1"]
        assert repeat.header(b"content-type") == [b"text/plain"]
        assert repeat.header(b"set-cookie") == []
    assert till.bodies == [b'{"amount": 5}']
    assert (await ask.send(b'{"amount": 5}', key="other")).status == 200
    assert till.runs == 2


async def test_a_body_in_pieces_is_the_same_as_the_body_at_once(app: Oncely, till: Till) -> None:
    ask = client(till, app)
    assert (await ask.send(chunks=[b"ab", b"", b"c"])).status == 201
    assert till.bodies == [b"abc"]
    assert (await ask.send(b"abc")).replayed


@pytest.mark.parametrize(
    "other",
    [
        {"body": b"{ }"},
        {"path": "/refund"},
        {"query": b"dry=1"},
        {"method": "PATCH"},
        {"raw_path": b"/char%67e"},
    ],
)
async def test_another_request_with_the_same_key_is_refused(
    app: Oncely, till: Till, other: dict[str, Any]
) -> None:
    ask = client(till, app)
    first = await ask.send()
    assert (await ask.send(**other)).code == (422, "idempotency_key_mismatch")
    assert till.runs == 1
    again = await ask.send()
    assert (again.replayed, again.body) == (True, first.body)


async def test_a_key_that_is_missing_where_it_is_required(app: Oncely, till: Till) -> None:
    assert (await client(till, app, required=True).send(key=None)).code == (
        400,
        "idempotency_key_missing",
    )
    payments = client(till, app, required=lambda scope: scope["path"].startswith("/charge"))
    assert (await payments.send(key=None)).status == 400
    assert till.runs == 0
    assert (await payments.send(key=None, path="/search")).status == 201
    assert (await client(till, app).send(key=None)).status == 201
    assert (await client(till, app).send(key=None)).body == b"run 3"
    assert sql(app, "select count(*) from oncely.request") == [(0,)]


@pytest.mark.parametrize("key", ["", "x" * 256, "a, b", '"a', "caf\xe9"])
async def test_a_key_that_is_not_one(app: Oncely, till: Till, key: str) -> None:
    assert (await client(till, app).send(key=key)).code == (400, "idempotency_key_invalid")
    assert till.runs == 0


async def test_a_key_that_comes_twice_in_one_request(app: Oncely, till: Till) -> None:
    answer = await client(till, app).send(headers=[(b"Idempotency-Key", b"k")])
    assert answer.code == (400, "idempotency_key_invalid")
    assert till.runs == 0


async def test_other_methods_and_kinds_of_connection_pass_through(app: Oncely) -> None:
    seen: list[Scope] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    middleware = IdempotencyMiddleware(inner, app, required=True)
    headers = [(b"idempotency-key", b"k")]
    scopes: list[Scope] = [
        {"type": "http", "method": "GET", "headers": headers},
        {"type": "http", "method": "HEAD", "headers": headers},
        {"type": "websocket", "headers": headers},
    ]

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(message: Message) -> None:
        raise AssertionError("nothing is said")

    for scope in scopes:
        await middleware(scope, receive, send)
    assert seen == scopes


async def test_methods_are_what_is_declared(app: Oncely, till: Till) -> None:
    ask = client(till, app, methods=["put"])
    await ask.send()
    await ask.send()
    assert till.runs == 2
    await ask.send(method="PUT")
    assert (await ask.send(method="PUT")).replayed
    assert till.runs == 3


CALLERS = {
    "ann": [(b"authorization", b"Bearer ann")],
    "bob": [(b"authorization", b"Bearer bob")],
    "ann by cookie": [(b"cookie", b"session=ann")],
    "bob by cookie": [(b"cookie", b"session=bob")],
    "ann with the cookie of bob": [(b"authorization", b"Bearer ann"), (b"cookie", b"session=bob")],
    "a cookie that reads like a token": [(b"cookie", b"Bearer ann")],
    "nobody": [],
}


@pytest.mark.parametrize("first", CALLERS)
async def test_another_caller_gets_409_and_never_the_answer(
    app: Oncely, till: Till, first: str
) -> None:
    ask = client(till, app)
    assert (await ask.send(headers=CALLERS[first])).body == b"run 1"
    for name, headers in CALLERS.items():
        again = await ask.send(headers=headers)
        if name == first:
            assert (again.replayed, again.body) == (True, b"run 1")
        else:
            assert again.code == (409, "idempotency_key_of_another_caller")
            assert not again.problem["retryable"]
            assert again.body == (await ask.send(b"other", headers=headers)).body
    assert (await ask.send(b"other", headers=CALLERS[first])).status == 422
    assert till.runs == 1
    kept = repr(sql(app, "select scope, key, fingerprint, headers from oncely.request"))
    assert "ann" not in kept, "the credential itself is not kept"
    assert "bob" not in kept


async def test_another_caller_does_not_run_what_has_an_unknown_outcome(
    app: Oncely, till: Till
) -> None:
    till.before = fail_before
    ask = client(till, app)
    with pytest.raises(ZeroDivisionError):
        await ask.send(headers=CALLERS["ann by cookie"])
    till.before = None
    runs_again = client(till, app, on_unknown="run")
    refused = await runs_again.send(headers=CALLERS["bob by cookie"])
    assert refused.code == (409, "idempotency_key_of_another_caller")
    assert (await runs_again.send(headers=CALLERS["ann by cookie"])).body == b"run 2"


async def test_the_function_scope_names_the_caller(app: Oncely, till: Till) -> None:
    tenants = client(till, app, scope=lambda scope: scope["tenant"])
    assert (await tenants.send(headers=CALLERS["ann"], tenant="acme")).body == b"run 1"
    assert (await tenants.send(headers=CALLERS["bob"], tenant="acme")).body == b"run 1"
    assert (await tenants.send(headers=CALLERS["bob"], tenant="other")).body == b"run 2"
    assert (await tenants.send(headers=CALLERS["bob"], tenant=None)).body == b"run 3"
    assert (await tenants.send(headers=CALLERS["ann"], tenant=None)).body == b"run 3"


async def test_no_credential_of_a_response_is_kept(app: Oncely, till: Till) -> None:
    names = [b"Authorization", b"Set-Cookie", b"X-CSRF-Token", b"X-Auth-Token", b"token"]
    till.headers += [(name, b"secret") for name in names]
    till.headers += [(b"x-tokens-left", b"7")]
    ask = client(till, app)
    first = await ask.send()
    assert [first.header(name) for name in names] == [[b"secret"]] * len(names)
    again = await ask.send()
    assert again.replayed
    assert again.header(b"x-tokens-left") == [b"7"]
    assert not [name for name, value in again.headers if value == b"secret"]
    assert "secret" not in repr(sql(app, "select headers from oncely.request"))


@pytest.mark.parametrize("name", ["", 7, "x" * 256])
async def test_a_caller_that_cannot_be_kept_is_an_error(app: Oncely, till: Till, name: Any) -> None:
    with pytest.raises(InvalidInput, match="scope="):
        await client(till, app, scope=lambda _: name).send()
    assert till.runs == 0


async def test_of_many_at_once_one_runs_and_the_others_are_told_to_wait(
    app: Oncely, till: Till
) -> None:
    let_end = asyncio.Event()

    async def wait(receive: Receive, send: Send) -> None:
        await let_end.wait()

    till.before = wait
    ask = client(till, app)
    running = [asyncio.create_task(ask.send()) for _ in range(8)]
    # Seven come back; the eighth is the one that runs.
    told = [await done for _, done in zip(range(7), asyncio.as_completed(running), strict=False)]
    assert {answer.code for answer in told} == {(409, "request_in_flight")}
    assert all(answer.header(b"retry-after") == [b"1"] for answer in told)
    assert all(answer.problem["retryable"] for answer in told)
    assert (await ask.send(b"other")).code == (422, "idempotency_key_mismatch")
    let_end.set()
    [first] = [answer for task in running if (answer := await task).status != 409]
    assert (first.status, first.replayed) == (201, False)
    assert (await ask.send()).body == first.body
    assert till.runs == 1


async def test_what_the_client_hears_the_end_of_is_on_record(app: Oncely, till: Till) -> None:
    """A client that has its response and asks again at once must not find it in flight."""
    middleware = IdempotencyMiddleware(till, app)
    recorded: list[Any] = []

    async def spying(scope: Scope, receive: Receive, send: Send) -> None:
        async def look(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                recorded.extend(sql(app, "select state, status from oncely.request"))
            await send(message)

        await middleware(scope, receive, look)

    await Client(spying).send()
    assert recorded == [("done", 201)]


@pytest.mark.parametrize("status", [500, 503])
async def test_a_5xx_is_repeated_unless_running_again_is_declared(
    app: Oncely, till: Till, status: int
) -> None:
    till.status = status
    ask = client(till, app)
    first = await ask.send()
    till.status = 201
    repeat = await ask.send()
    assert (repeat.status, repeat.body, repeat.replayed) == (status, first.body, True)
    assert till.runs == 1

    till.status = status
    ask = client(till, app, on_unknown="run")
    assert (await ask.send(key="r")).status == status
    till.status = 201
    assert (await ask.send(key="r")).body == b"run 3"
    assert (await ask.send(key="r")).replayed


@pytest.mark.parametrize("status", [401, 425, 429])
async def test_a_status_that_says_not_acted_upon_is_not_kept(
    app: Oncely, till: Till, status: int
) -> None:
    till.status = status
    ask = client(till, app)
    assert (await ask.send()).status == status
    till.status = 201
    assert (await ask.send()).status == 201
    assert till.runs == 2


@pytest.mark.parametrize("status", [400, 404, 409, 422, 303])
async def test_other_refusals_of_the_app_are_its_response(
    app: Oncely, till: Till, status: int
) -> None:
    till.status = status
    ask = client(till, app)
    await ask.send()
    till.status = 201
    repeat = await ask.send()
    assert (repeat.status, repeat.replayed) == (status, True)


async def fail_before(receive: Receive, send: Send) -> None:
    raise ZeroDivisionError


async def fail_after_start(receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise ZeroDivisionError


@pytest.mark.parametrize("fail", [fail_before, fail_after_start])
async def test_an_exception_leaves_the_outcome_unknown(app: Oncely, till: Till, fail: Any) -> None:
    till.before = fail
    ask = client(till, app)
    with pytest.raises(ZeroDivisionError):
        await ask.send()
    till.before = None
    refused = await ask.send()
    assert refused.code == (409, "outcome_unknown")
    assert not refused.problem["retryable"]
    assert refused.header(b"retry-after") == []
    assert till.runs == 1

    till.before = fail
    ask = client(till, app, on_unknown="run")
    with pytest.raises(ZeroDivisionError):
        await ask.send(key="r")
    till.before = None
    assert (await ask.send(key="r")).body == b"run 3"


async def test_an_app_that_ends_without_a_response_leaves_the_outcome_unknown(app: Oncely) -> None:
    async def silent(scope: Scope, receive: Receive, send: Send) -> None: ...

    ask = Client(IdempotencyMiddleware(silent, app))
    await ask.send()
    assert (await ask.send()).code == (409, "outcome_unknown")


async def test_a_request_that_is_cancelled_leaves_the_outcome_unknown(
    app: Oncely, till: Till
) -> None:
    begun = asyncio.Event()

    async def hang(receive: Receive, send: Send) -> None:
        begun.set()
        await asyncio.Event().wait()

    till.before = hang
    ask = client(till, app)
    task = asyncio.create_task(ask.send())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await ask.send()).code == (409, "outcome_unknown")


async def test_a_request_that_is_cancelled_before_it_ran_leaves_nothing(
    app: Oncely, till: Till
) -> None:
    """The write is under way in a thread: it comes to its end, and is taken back."""
    ask = client(till, app)
    with closing(Backdoor(app)) as door:
        hold_the_store(door)
        task = asyncio.create_task(ask.send())
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        door.sql("commit")
    answer = await ask.send()
    for _ in count():
        if answer.status != 409:
            break
        await asyncio.sleep(0.01)
        answer = await ask.send()
    assert (answer.status, till.runs) == (201, 1)


def hold_the_store(door: Backdoor) -> None:
    if door._sqlite is not None:
        door.sql("begin immediate")
    else:
        door.sql("begin")
        door.sql("lock table oncely.request")


async def test_the_event_loop_goes_on_while_the_store_makes_us_wait(
    app: Oncely, till: Till
) -> None:
    ask = client(till, app)
    with closing(Backdoor(app)) as door:
        hold_the_store(door)
        waiting = asyncio.create_task(ask.send())
        for _ in range(3):
            assert (await ask.send(key=None)).status == 201
        assert not waiting.done()
        door.sql("commit")
        assert (await waiting).status == 201


async def test_a_client_that_hangs_up_finds_the_response_when_it_comes_again(
    app: Oncely, till: Till
) -> None:
    heard: list[str] = []

    async def listen(receive: Receive, send: Send) -> None:
        ask.gone.set()
        # What Starlette does for a response in pieces: whoever hears of it stops.
        listening.append(asyncio.create_task(hear(receive)))

    async def hear(receive: Receive) -> None:
        heard.append((await receive())["type"])
        heard.append((await receive())["type"])

    listening: list[asyncio.Task[None]] = []
    till.before = listen
    till.chunks = [b"a", b"b", b"c"]

    async def let_others_run() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        assert heard == []

    till.between = let_others_run
    ask = client(till, app)
    with pytest.raises(ConnectionResetError):
        await ask.send()
    await listening[0]
    assert heard == ["http.disconnect", "http.disconnect"], "once it is on record"
    till.before = till.between = None
    repeat = await client(till, app).send()
    assert (repeat.status, repeat.body, repeat.replayed) == (201, b"abc", True)
    assert till.runs == 1


async def test_a_client_that_goes_before_its_request_is_whole_begins_nothing(
    app: Oncely, till: Till
) -> None:
    middleware = IdempotencyMiddleware(till, app)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise AssertionError("nobody is there")

    scope = {
        "type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", b"k")],
    }  # fmt: skip
    await middleware(scope, receive, send)
    assert till.runs == 0
    assert sql(app, "select count(*) from oncely.request") == [(0,)]


async def test_a_body_that_is_too_large_is_refused_before_anything_runs(
    app: Oncely, till: Till
) -> None:
    ask = client(till, app, max_body_bytes=4)
    assert (await ask.send(b"1234")).status == 201
    assert (await ask.send(b"12345", key="l")).code == (413, "body_too_large")
    assert (await ask.send(chunks=[b"12", b"34", b"5"], key="l")).code == (413, "body_too_large")
    for length in (b"5", b"9" * 5000):
        announced = await ask.send(key="l", headers=[(b"content-length", length)], chunks=[b""])
        assert announced.code == (413, "body_too_large")
    assert till.runs == 1
    assert (await ask.send(b"12345", key=None)).status == 201, "without a key it is not ours"


@pytest.mark.parametrize("on_unknown", ["refuse", "run"])
async def test_a_response_too_large_to_keep_is_sent_and_never_run_again(
    app: Oncely, till: Till, on_unknown: str
) -> None:
    ask = client(till, app, max_response_bytes=30, on_unknown=on_unknown)
    till.headers = [(b"a", b"123")]
    till.chunks = [b"x" * 13, b"y" * 13]
    assert (await ask.send()).body == b"x" * 13 + b"y" * 13
    assert (await ask.send()).replayed, "30 bytes with its headers"
    till.chunks = [b"x" * 14, b"y" * 13, b"z"]
    assert (await ask.send(key="l")).body == b"x" * 14 + b"y" * 13 + b"z"
    repeat = await ask.send(key="l")
    assert repeat.code == (409, "response_not_kept")
    assert repeat.problem["firstStatus"] == 201
    assert not repeat.problem["retryable"]
    assert till.runs == 2


async def test_a_large_response_that_breaks_off_is_not_run_again_either(
    app: Oncely, till: Till
) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    ask = client(till, app, max_response_bytes=30, on_unknown="run")
    till.chunks, till.between = [b"x" * 31, b"y"], fail
    with pytest.raises(ZeroDivisionError):
        await ask.send()
    assert (await ask.send()).code == (409, "response_not_kept")
    assert till.runs == 1


async def test_the_app_gets_no_way_around_the_record(app: Oncely) -> None:
    offered: list[Any] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        offered.append(scope["extensions"])

    extensions: Scope = {"http.response.pathsend": {}, "http.response.trailers": {}, "tls": {}}
    await Client(IdempotencyMiddleware(inner, app)).send(extensions=extensions)
    assert offered == [{"tls": {}}]


async def test_a_request_that_runs_for_long_stays_in_flight(app: Oncely, till: Till) -> None:
    """Its moments are moved back after each renewal, so it would be unknown without the next."""
    let_end = asyncio.Event()

    async def wait(receive: Receive, send: Send) -> None:
        await let_end.wait()

    till.before = wait
    ask = client(till, app, in_flight_seconds=0.3)
    running = asyncio.create_task(ask.send())
    held = "select held_until from oncely.request"
    await until(lambda: sql(app, held) != [])
    for _ in range(3):
        let_days_pass(app, 10 / 86_400)
        before = sql(app, held)
        await until(lambda before=before: sql(app, held) != before)  # type: ignore[misc]
    let_end.set()
    assert (await running).status == 201
    assert (await ask.send()).replayed


async def test_without_its_store_nothing_runs(url: str, till: Till) -> None:
    with Oncely(url) as store:
        store.migrate()
        ask = client(till, store)
    refused = await ask.send()
    assert refused.code == (503, "store_unavailable")
    assert refused.problem["retryable"]
    assert url not in refused.body.decode()
    assert till.runs == 0


class Mend(logging.Handler):
    """When it hears that the store is in trouble, it mends it."""

    def __init__(self, app: Oncely) -> None:
        super().__init__(logging.ERROR)
        self._app = app
        self._prefix = "" if engine_of(app) == "postgres" else "oncely_"
        self.heard: list[str] = []

    def break_it(self) -> None:
        sql(self._app, f"alter table oncely.request rename to {self._prefix}gone")

    def emit(self, record: logging.LogRecord) -> None:
        if not self.heard:
            sql(self._app, f"alter table oncely.gone rename to {self._prefix}request")
        self.heard.append(record.getMessage())


@pytest.fixture
async def mend(app: Oncely) -> AsyncIterator[Mend]:
    handler = Mend(app)
    logging.getLogger("oncely.asgi").addHandler(handler)
    yield handler
    logging.getLogger("oncely.asgi").removeHandler(handler)


async def test_a_response_is_recorded_though_the_store_was_away(
    app: Oncely, till: Till, mend: Mend
) -> None:
    async def lose_the_store(receive: Receive, send: Send) -> None:
        mend.break_it()

    till.before = lose_the_store
    ask = client(till, app)
    first = await ask.send()
    assert first.status == 201
    assert "not on record yet" in mend.heard[0]
    repeat = await ask.send()
    assert (repeat.body, repeat.replayed) == (first.body, True)


async def test_a_client_does_not_wait_for_ever_for_the_record(
    app: Oncely, till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hold(receive: Receive, send: Send) -> None:
        hold_the_store(door)

    monkeypatch.setattr(record, "_WAIT_SECONDS", 0.1)
    till.before = hold
    ask = client(till, app)
    with closing(Backdoor(app)) as door:
        first = await ask.send()
        assert first.status == 201
        assert door.sql("select state from oncely.request") == [("in_flight",)]
        door.sql("commit")
    await until(lambda: sql(app, "select state from oncely.request") == [("done",)])
    till.before = None
    assert (await ask.send()).body == first.body


async def test_what_is_forgotten_is_pruned_without_a_worker(app: Oncely, till: Till) -> None:
    ask = client(till, app)
    await ask.send(key="old:1")
    await ask.send(key="old:2")
    let_days_pass(app, 1.1)
    await client(till, app).send(key="new")
    await until(lambda: sql(app, "select key from oncely.request") == [("new",)])


async def test_a_key_is_free_again_when_its_time_is_over(app: Oncely, till: Till) -> None:
    ask = client(till, app, retention_seconds=3600)
    await ask.send()
    let_days_pass(app, 0.5 / 24)
    assert (await ask.send()).replayed
    let_days_pass(app, 0.6 / 24)
    assert (await ask.send(b"another")).status == 201
    assert till.runs == 2


async def test_a_store_of_its_own_is_closed_with_the_app(url: str, app: Oncely) -> None:
    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})

    said: list[str] = []

    async def send(message: Message) -> None:
        said.append(message["type"])

    async def receive() -> Message:
        raise AssertionError

    for store, closed in ((url, True), (app, False)):
        middleware = IdempotencyMiddleware(inner, store)
        await middleware({"type": "lifespan"}, receive, send)
        answer = await Client(middleware).send(key="after")
        assert (answer.status == 503) == closed
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"] * 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"methods": "POST"}, "methods is 'POST'"),
        ({"methods": []}, "methods"),
        ({"methods": [7]}, "methods"),
        ({"on_unknown": "retry"}, "on_unknown is 'retry'"),
        ({"retention_seconds": 0}, "retention_seconds is 0"),
        ({"retention_seconds": "1"}, "retention_seconds"),
        ({"in_flight_seconds": float("nan")}, "in_flight_seconds is nan"),
        ({"in_flight_seconds": 61, "retention_seconds": 60}, "in_flight_seconds is 61"),
        ({"max_body_bytes": -1}, "max_body_bytes is -1"),
        ({"max_response_bytes": 1.5}, "max_response_bytes is 1.5"),
        ({"max_response_bytes": True}, "max_response_bytes is True"),
        ({"store": "mysql://x"}, "URL"),
    ],
)
async def test_options_that_cannot_be(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        IdempotencyMiddleware(Till(), **{"store": "sqlite:///:memory:", **options})
