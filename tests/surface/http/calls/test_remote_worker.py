"""A worker that reaches its store through a server: the same handlers, the same promises."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from oncely import (
    AccessRefused,
    Cancel,
    Context,
    Defer,
    Nack,
    NewJob,
    NotOverHttp,
    Oncely,
    Retry,
    Step,
    StoreUnavailable,
)
from oncely.model.outcome import HAND_BACK_LIMIT
from oncely.store.remote import listen
from oncely.store.remote.listen import RemoteSource
from oncely.store.remote.server import Server
from tests.engine.steps import found, let_days_pass, sql
from tests.surface.http.calls.test_work import is_listened_for
from tests.surface.http.server import Client, in_thread
from tests.waiting import PATIENCE_SECONDS, wait_until


@pytest.fixture
def remote(client: Client) -> Iterator[Oncely]:
    with Oncely(str(client.base_url)) as remote:
        yield remote


def test_handlers_run_and_their_ends_are_kept(remote: Oncely, app: Oncely) -> None:
    seen: list[Any] = []

    @remote.job("good", queue="q")
    async def good(ctx: Context, n: int) -> Any:
        seen.append((ctx.attempt, ctx.queue, n))
        return {"snake_case": n}

    @remote.job("bad", retry=Retry(max_attempts=2, base=0, jitter=False))
    def bad(ctx: Context) -> None:
        raise ValueError("no luck")

    @remote.job("ends")
    def ends(ctx: Context, how: str) -> None:
        match how:
            case "nack":
                raise Nack("never", retryable=False)
            case "defer":
                raise Defer(60)
            case "cancel":
                raise Cancel("not wanted")

    good_id = remote.enqueue("good", 7).job_id
    bad_id = remote.enqueue("bad").job_id
    others = [remote.enqueue("ends", how).job_id for how in ("nack", "defer", "cancel")]
    assert remote.drain() == 6
    assert seen == [(1, "q", 7)]
    assert found(app, good_id).result == {"snake_case": 7}
    failed = found(app, bad_id)
    assert (failed.state, failed.attempt) == ("failed", 2)
    assert failed.error["type"] == "ValueError"
    assert "no luck" in failed.error["traceback"]
    assert [found(app, job_id).state for job_id in others] == ["failed", "scheduled", "cancelled"]
    assert sql(app, "select count(*) from oncely.lease")[0][0] == 0


def test_a_job_is_handed_back_when_the_store_fails(remote: Oncely, app: Oncely) -> None:
    """How often that was is known to the store: in the end it counts as a failure."""

    @remote.job("k", retry=Retry(max_attempts=1))
    async def handle(ctx: Context) -> None:
        raise StoreUnavailable("away")

    job_id = remote.enqueue("k").job_id
    assert remote.drain() == 2
    for _ in range(HAND_BACK_LIMIT - 2):
        let_days_pass(app, 1)
        assert remote.drain() == 1
        assert found(app, job_id).state == "scheduled"
    let_days_pass(app, 1)
    remote.drain()
    assert found(app, job_id).state == "failed"


def test_a_worker_reports_itself_through_the_server(remote: Oncely, app: Oncely) -> None:
    async def works() -> None:
        worker = remote.worker(queues=["q"], concurrency=3)
        running = asyncio.create_task(worker.arun())
        while not (found := await remote.aworkers()):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)
        assert found == app.workers()
        assert (found[0].queues, found[0].concurrency, found[0].alive) == (["q"], 3, True)
        worker.stop()
        await running

    remote.job("k", queue="q")(lambda ctx: None)
    remote.enqueue("k")
    asyncio.run(works())
    assert app.workers() == []
    remote.enqueue("k")
    remote.drain()
    told = remote.traffic("day")
    assert told == app.traffic("day")
    ran = told.latency("ran", queue="q", kind="k")
    assert ran is not None
    assert ran.count == sum(told.values("executions")) >= 1


def test_more_jobs_than_one_exchange_takes(remote: Oncely, app: Oncely) -> None:
    remote.job("k")(lambda ctx: ctx.payload)
    app.enqueue_many(NewJob("k", n) for n in range(300))
    assert remote.drain() == 300
    assert {job.result for job in app.jobs(state="completed", limit=1000)} == set(range(300))


def test_a_renamed_effect_is_seen_and_found_through_the_server(remote: Oncely, app: Oncely) -> None:
    done: list[Any] = []

    def act(*args: Any, **kwargs: Any) -> int:
        done.append((args, kwargs))
        return len(done)

    names: dict[str, Any] = {"unseen": "charge", "found": Step("charge", was="payment")}

    @remote.job("k", retry=Retry(base=0, jitter=False))
    def handle(ctx: Context, how: str) -> Any:
        value = ctx.step("payment" if ctx.attempt == 1 else names[how], act, 49, currency="eur")
        if ctx.attempt == 1:
            raise RuntimeError("again")
        return value

    jobs = [remote.enqueue("k", how).job_id for how in names]
    assert remote.drain() == 4
    assert all(found(app, job_id).state == "completed" for job_id in jobs)
    told = [[event.effect for event in app.explain(job_id) if event.begun] for job_id in jobs]
    assert told == [["payment"], []]
    [counted] = [each for each in app.counters() if each.name == "oncely_effect_renamed_total"]
    assert counted.value == 1
    assert remote.explain(jobs[0]) == app.explain(jobs[0])
    assert done == [((49,), {"currency": "eur"})] * 3


@pytest.mark.parametrize("is_async", [False, True])
def test_effects_go_to_the_ledger_of_the_store(
    remote: Oncely, app: Oncely, *, is_async: bool
) -> None:
    done: list[str] = []

    def act(name: str) -> Any:
        done.append(name)
        return {"name_name": name}

    if is_async:

        @remote.job("k", retry=Retry(base=0, jitter=False))
        async def handler(ctx: Context) -> Any:
            one = await ctx.step("one/ü?", act, "one")
            two = await ctx.fence("two", act, "two", in_doubt="retry")
            await ctx.enqueue("child", delay=60)
            if ctx.attempt == 1:
                raise RuntimeError("again")
            return [one, two, ctx.key("one")]
    else:

        @remote.job("k", retry=Retry(base=0, jitter=False))
        def handler_(ctx: Context) -> Any:
            one = ctx.step("one/ü?", act, "one")
            two = ctx.fence("two", act, "two", in_doubt="retry")
            ctx.enqueue("child", delay=60)
            if ctx.attempt == 1:
                raise RuntimeError("again")
            return [one, two, ctx.key("one")]

    job_id = remote.enqueue("k").job_id
    assert remote.drain() == 2
    assert done == ["one", "two"]
    job = found(app, job_id)
    assert job.result == [{"name_name": "one"}, {"name_name": "two"}, f"{job_id}:one"]
    assert [(e.name, e.verb, e.state, e.source) for e in job.effects] == [
        ("one/ü?", "step", "done", "returned"),
        ("two", "fence", "done", "returned"),
    ]
    assert len(app.jobs(kind="child")) == 1
    repeats = [event.effect for event in app.explain(job_id) if event.boundary == "effect"]
    assert repeats == ["one/ü?", "two"]


def test_doubt_verify_and_what_is_no_json(remote: Oncely, app: Oncely) -> None:
    def hang() -> None:
        raise TimeoutError

    @remote.job("held")
    def held(ctx: Context) -> Any:
        return ctx.fence("send", hang)

    @remote.job("asked", retry=Retry(base=0, jitter=False))
    def asked(ctx: Context) -> Any:
        return ctx.fence("send", hang, verify=lambda: {"found": True})

    @remote.job("refused", retry=Retry(max_attempts=2, base=0, jitter=False))
    def refused(ctx: Context) -> Any:
        def refuse() -> None:
            raise ConnectionRefusedError(111, "refused")

        return ctx.fence("send", refuse if ctx.attempt == 1 else lambda: "sent")

    @remote.job("odd", retry=Retry(max_attempts=1))
    def odd(ctx: Context) -> Any:
        return ctx.step("odd", lambda: object())

    ids = {kind: remote.enqueue(kind).job_id for kind in ("held", "asked", "refused", "odd")}
    remote.drain()
    jobs = {kind: found(app, job_id) for kind, job_id in ids.items()}
    assert (jobs["held"].state, jobs["held"].effects[0].state) == ("in_doubt", "in_doubt")
    assert (jobs["asked"].state, jobs["asked"].result) == ("completed", {"found": True})
    assert jobs["asked"].effects[0].source == "verified"
    assert (jobs["refused"].state, jobs["refused"].result) == ("completed", "sent")
    assert jobs["odd"].effects[0].source == "unkept"
    remote.resolve(ids["held"], "send", happened=False)
    assert found(app, ids["held"]).state == "pending"


def test_transactions_are_one_clear_error(remote: Oncely, app: Oncely) -> None:
    errors: list[Exception] = []

    @remote.job("k", retry=Retry(max_attempts=1))
    def handler(ctx: Context) -> None:
        try:
            with ctx.transaction():
                raise AssertionError
        except NotOverHttp as error:
            errors.append(error)
        with sqlite3.connect(":memory:") as connection:
            try:
                ctx.complete(1, tx=connection)
            except NotOverHttp as error:
                errors.append(error)
        connection.close()

    job_id = remote.enqueue("k").job_id
    remote.drain()
    assert len(errors) == 2
    assert "the store's own database" in str(errors[0])
    assert found(app, job_id).state == "completed"


def test_an_idle_worker_is_told_of_a_job(app: Oncely) -> None:
    """Its own look would come after an hour."""
    done = threading.Event()
    with in_thread(app) as url, Oncely(url) as remote:
        remote.job("k")(lambda _: done.set())
        worker = remote.worker(poll_seconds=3600, queues=["default"])
        thread = threading.Thread(target=lambda: asyncio.run(worker.arun()))
        thread.start()
        try:
            wait_until(lambda: is_listened_for(app, "default") or not thread.is_alive())
            app.enqueue("k")
            assert done.wait(PATIENCE_SECONDS)
        finally:
            worker.stop()
            thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def test_a_paused_queue_with_jobs_is_not_asked_for_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server says each time that something is due."""
    now, pauses = 0.0, list[float]()

    def ready(_: Any, seconds: float) -> list[int]:
        nonlocal now
        pauses.append(seconds)
        now += seconds
        return []

    async def due(*_: Any) -> bool:
        return True

    source = RemoteSource(Server("http://localhost", None))
    monkeypatch.setattr(listen, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(listen, "ready", ready)
    monkeypatch.setattr(source, "_ask", due)
    source.hold(frozenset({"queue:default"}))
    try:
        for _ in range(8):
            assert source.wait(None, 0) == [("queue:default", "")]
        assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
        now += 10
        source.wait(None, 0)
        assert len(pauses) == 7, "what comes later is asked for at once"
    finally:
        source.drop()


def test_a_job_of_a_paused_queue_runs_when_it_is_resumed(remote: Oncely, app: Oncely) -> None:
    app.pause("default")
    app.enqueue("k")
    asked: list[str] = []
    server = remote._engine._server  # type: ignore[attr-defined]
    send = server._send

    def counted(method: str, path: str, *rest: Any, **more: Any) -> bytes:
        asked.append(path)
        answer: bytes = send(method, path, *rest, **more)
        return answer

    server._send = counted
    done = threading.Event()
    remote.job("k")(lambda _: done.set())
    worker = remote.worker(lease_seconds=60)
    thread = threading.Thread(target=lambda: asyncio.run(worker.arun()))
    thread.start()
    try:
        wait_until(lambda: asked.count("/v1/worker/exchange") >= 3)
        assert not done.is_set()
        app.resume("default")
        assert done.wait(PATIENCE_SECONDS)
    finally:
        worker.stop()
        thread.join(PATIENCE_SECONDS)


def test_a_worker_whose_key_may_not_work_ends_with_that_error(app: Oncely) -> None:
    key = app.create_token(["publish"]).key
    with (
        in_thread(app) as url,
        Oncely(url, api_key=key) as remote,
        pytest.raises(AccessRefused, match="scope"),
    ):
        asyncio.run(remote.run_worker())
