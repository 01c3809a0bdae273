"""After `close()` every verb says at once that it is closed, and nothing waits for the store."""

import asyncio
import inspect
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import psycopg
import pytest

from oncely import Context, Ledger, NewJob, NotOverHttp, Oncely, StoreUnavailable
from tests.surface.http.server import in_thread
from tests.waiting import PATIENCE_SECONDS, wait_until

UNKNOWN = "01900000-0000-7000-8000-000000000000"
ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    **dict.fromkeys(["cancel", "explain", "get", "replay", "result"], ((UNKNOWN,), {})),
    **dict.fromkeys(
        ["audit", "counters", "drain", "drills", "examine", "groups", "jobs", "key_health"],
        ((), {}),
    ),
    **dict.fromkeys(
        ["migrate", "queues", "replay_all", "requests_in_doubt", "schedules", "start_drills"],
        ((), {}),
    ),
    **dict.fromkeys(["stop_drills", "tokens", "traffic", "users", "workers"], ((), {})),
    **dict.fromkeys(["run_worker", "worker", "pusher"], ((), {})),
    **dict.fromkeys(["fire_schedule", "pause_schedule", "resume_schedule"], (("s",), {})),
    **dict.fromkeys(["remove_schedule", "remove_user", "pause", "resume"], (("x",), {})),
    **dict.fromkeys(["revoke_token", "rotate_token"], (("0123456789ab",), {})),
    "enqueue": (("k",), {}),
    "enqueue_many": (([NewJob("k")],), {}),
    "create_token": ((["read"],), {}),
    "create_user": (("ada", "a long pass phrase"), {"role": "reader"}),
    "set_user": (("ada",), {"role": "reader"}),
    "set_group": (("g",), {"concurrency": 1}),
    "set_queue": (("q",), {"concurrency": 1}),
    "resolve": ((UNKNOWN, "e"), {"happened": True}),
    "resolve_request": (("k",), {"happened": False}),
}
LOCAL = {"job", "middleware", "schedule", "on_event"}
"""They only change what this process knows."""


def answer_of(call: Callable[[], Any]) -> Any:
    """What it raises, or returns; a call that waits for something fails the test."""
    answer: Future[Any] = Future()

    def go() -> None:
        try:
            result = call()
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
            answer.set_result(result)
        except BaseException as error:
            answer.set_result(error)

    threading.Thread(target=go, daemon=True).start()
    return answer.result(PATIENCE_SECONDS)


def says_so(answer: Any) -> bool:
    return isinstance(answer, StoreUnavailable) and "was closed: make a new one" in str(answer)


def verbs(app: Oncely) -> dict[str, Callable[[], Any]]:
    """Every public verb, with arguments that it takes."""
    calls: dict[str, Callable[[], Any]] = {}
    for name in dir(Oncely):
        twin = name.removeprefix("a") if name.removeprefix("a") in ARGUMENTS else name
        if name.startswith("_") or not callable(getattr(Oncely, name)) or name in LOCAL:
            continue
        if name in ("close", "aclose", "running"):
            continue
        args, options = ARGUMENTS[twin]
        calls[name] = lambda name=name, args=args, options=options: (  # type: ignore[misc]
            getattr(app, name)(*args, **options)
        )

    async def running() -> None:
        async with app.running():
            await asyncio.Event().wait()

    return {**calls, "running": running}


def test_every_verb_of_a_closed_app_says_so(app: Oncely) -> None:
    app.enqueue("k")
    app.close()
    app.close()
    answers = {name: answer_of(call) for name, call in verbs(app).items()}
    assert len(answers) > 80
    assert {name: answer for name, answer in answers.items() if not says_so(answer)} == {}


def test_so_does_one_that_was_never_used(url: str) -> None:
    app = Oncely(url)
    app.close()
    calls = verbs(app)
    for name in ("enqueue", "aenqueue", "get", "drain", "migrate", "running"):
        assert says_so(answer_of(calls[name]))


def test_and_one_that_reaches_its_store_through_a_server(sqlite_url: str) -> None:
    with Oncely(sqlite_url) as app, in_thread(app) as url:
        remote = Oncely(url)
        remote.enqueue("k")
        remote.close()
        answers = {name: answer_of(call) for name, call in verbs(remote).items()}
    silent = {
        name: answer
        for name, answer in answers.items()
        if not (says_so(answer) or isinstance(answer, NotOverHttp))
    }
    assert silent == {}


def connection_to(url: str) -> Any:
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False)
    return psycopg.connect(url)


def test_a_closed_app_takes_no_transaction_of_the_callers(app: Oncely) -> None:
    app.close()
    connection = connection_to(app.url)
    try:
        connection.execute("begin")
        for call in (
            lambda: app.enqueue("k", tx=connection),
            lambda: app.enqueue_many([NewJob("k")], tx=connection),
        ):
            with pytest.raises(StoreUnavailable, match="was closed"):
                call()
    finally:
        connection.close()


def test_a_worker_whose_app_is_closed_under_it_ends_with_that_error(app: Oncely) -> None:
    worker = app.worker()
    begun: Future[None] = Future()

    def run() -> Any:
        begun.set_result(None)
        return asyncio.run(worker.arun())

    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(answer_of(run)), daemon=True)
    thread.start()
    begun.result(PATIENCE_SECONDS)
    wait_until(app.workers)
    app.close()
    thread.join(PATIENCE_SECONDS)
    assert [says_so(answer) for answer in answers] == [True]


def test_verbs_of_a_context_say_so_too(app: Oncely) -> None:
    answers: dict[str, Any] = {}

    def transaction(ctx: Context) -> None:
        with ctx.transaction():
            pass

    @app.job("k")
    def handle(ctx: Context) -> None:
        app.close()
        verbs: dict[str, Callable[[], Any]] = {
            "step": lambda: ctx.step("a", lambda: 1),
            "fence": lambda: ctx.fence("b", lambda: 1),
            "enqueue": lambda: ctx.enqueue("child"),
            "transaction": lambda: transaction(ctx),
        }
        for name, call in verbs.items():
            try:
                answers[name] = call()
            except Exception as error:
                answers[name] = error

    app.enqueue("k")
    assert says_so(answer_of(lambda: app.run_worker(grace_seconds=0.1)))
    wait_until(lambda: len(answers) == 4)
    assert {name: answer for name, answer in answers.items() if not says_so(answer)} == {}


def test_a_closed_ledger_says_so(url: str) -> None:
    ledger = Ledger(url)
    ledger.migrate()
    ledger.step("k", lambda: 1)
    ledger.close()
    connection = connection_to(url)
    connection.execute("begin")
    calls: dict[str, Callable[[], Any]] = {
        "step": lambda: ledger.step("k", lambda: 1),
        "astep": lambda: ledger.astep("k", lambda: 1),
        "fence": lambda: ledger.fence("f", lambda: 1),
        "afence": lambda: ledger.afence("f", lambda: 1),
        "in_doubt": lambda: ledger.in_doubt(),
        "ain_doubt": lambda: ledger.ain_doubt(),
        "resolve": lambda: ledger.resolve("k", happened=True),
        "aresolve": lambda: ledger.aresolve("k", happened=True),
        "prune": lambda: ledger.prune(older_than_days=1),
        "aprune": lambda: ledger.aprune(older_than_days=1),
        "migrate": ledger.migrate,
        "amigrate": ledger.amigrate,
        "transaction": lambda: ledger.transaction("t", tx=connection).__enter__(),
        "idempotent": lambda: ledger.idempotent(key=lambda: "i")(lambda: 1)(),
    }
    public = {name for name in dir(Ledger) if not name.startswith("_")}
    assert calls.keys() | {"close", "aclose"} == public
    answers = {name: answer_of(call) for name, call in calls.items()}
    connection.close()
    assert {name: answer for name, answer in answers.items() if not says_so(answer)} == {}
