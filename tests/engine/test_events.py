"""What happens is told: as log records, and to hooks."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from oncely import (
    Cancel,
    Context,
    Defer,
    Event,
    InvalidInput,
    KeyConflict,
    Nack,
    NewJob,
    Oncely,
    Retry,
)
from oncely.flow.events import Events
from oncely.store import claim as claims
from oncely.store import deliver
from tests.engine.steps import claim_one, end, let_days_pass, prune
from tests.engine.test_story import transaction

SECRET = "4111-1111-1111-1111"


@pytest.fixture
def heard(app: Oncely) -> list[Event]:
    events: list[Event] = []
    app.on_event(events.append)
    return events


def whats(events: list[Event]) -> list[str]:
    return [event.what for event in events]


def records(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of our records, without those of a worker's beginning and end."""
    steps = ("enqueue", "claim", "settle")
    told = [getattr(record, "oncely", {}) for record in caplog.records]
    return [fields for fields in told if fields.get("event") in steps]


def test_enqueues_and_repeats(app: Oncely, heard: list[Event]) -> None:
    first = app.enqueue("order.charge", queue="payments", idempotency_key="order:1")
    asyncio.run(app.aenqueue("order.charge", queue="payments", idempotency_key="order:1"))
    with pytest.raises(KeyConflict):
        app.enqueue("order.charge", 1, queue="payments", idempotency_key="order:1")
    held = NewJob("sync", unique_key="user:7")
    many = app.enqueue_many([held, held])
    asyncio.run(app.aenqueue_many([held]))
    assert heard == [
        event(first.job_id, "enqueued", "order.charge", idempotency_key="order:1"),
        event(first.job_id, "deduplicated", "order.charge", "idempotency", "order:1"),
        event(many.receipts[0].job_id, "enqueued", "sync", unique_key="user:7"),
        event(many.receipts[0].job_id, "deduplicated", "sync", "unique", unique_key="user:7"),
        event(many.receipts[0].job_id, "deduplicated", "sync", "unique", unique_key="user:7"),
    ]


def event(
    job_id: str,
    what: Any,
    kind: str,
    key: Any = None,
    idempotency_key: str | None = None,
    unique_key: str | None = None,
) -> Event:
    return Event(
        what=what,
        job_id=job_id,
        kind=kind,
        queue="payments" if kind == "order.charge" else "default",
        boundary="enqueue" if key else None,
        key=key,
        idempotency_key=idempotency_key,
        unique_key=unique_key,
    )


def test_a_repeat_of_a_pruned_job_is_told_all_the_same(app: Oncely, heard: list[Event]) -> None:
    first = app.enqueue("order.charge", idempotency_key="order:1")
    assert end(app, claim_one(app), "completed")
    let_days_pass(app, 8)
    assert prune(app, days=7) == 1
    app.enqueue("order.charge", idempotency_key="order:1")
    assert [(event.what, event.job_id) for event in heard] == [
        ("enqueued", first.job_id),
        ("deduplicated", first.job_id),
    ]


def test_what_is_enqueued_in_the_callers_transaction_may_never_be(
    app: Oncely, heard: list[Event]
) -> None:
    with transaction(app) as connection:
        app.enqueue("order.charge", idempotency_key="order:1", tx=connection)
        app.enqueue("order.charge", idempotency_key="order:1", tx=connection)
        connection.rollback()
    assert [(event.what, event.uncommitted) for event in heard] == [
        ("enqueued", True),
        ("deduplicated", True),
    ]


def test_each_end_of_an_execution(app: Oncely, heard: list[Event]) -> None:
    endings = [ValueError(SECRET), Defer(0), None, Cancel("no"), Nack("bad", retryable=False)]

    @app.job("k", retry=Retry(base=0))
    async def handle(ctx: Context) -> None:
        ending = endings.pop(0)
        if ending is not None:
            raise ending

    ids = []
    for count in (3, 1, 1):
        ids.append(app.enqueue("k", SECRET).job_id)
        assert app.drain() == count
    assert [event.what for event in heard if event.what not in ("enqueued", "claimed")] == [
        "retried", "deferred", "completed", "cancelled", "failed",
    ]  # fmt: skip
    for job_id in ids:
        live = [event for event in heard if event.job_id == job_id]
        story = app.explain(job_id)
        assert [(e.what, e.epoch, e.attempt, e.worker, e.error) for e in live] == [
            (e.what, e.epoch, e.attempt, e.worker, e.error) for e in story
        ]
    for event in heard:
        assert (event.waited_seconds is not None) == (event.what == "claimed")
        assert (event.ran_seconds is None) == (event.what in ("enqueued", "claimed"))
        assert event.ran_seconds is None or event.ran_seconds > 0


def test_the_wait_of_a_job_begins_when_it_is_due(app: Oncely, heard: list[Event]) -> None:
    @app.job("k")
    async def handle(ctx: Context) -> None: ...

    app.enqueue("k", delay=86_400)
    app.enqueue("k", delay=2 * 86_400, group_key="g", queue="groups")
    let_days_pass(app, 5)
    app.drain()
    waits = {e.queue: e.waited_seconds or 0 for e in heard if e.what == "claimed"}
    assert {queue: round(wait / 86_400) for queue, wait in waits.items()} == {
        "default": 4,
        "groups": 3,
    }


def test_an_end_that_comes_too_late(app: Oncely, heard: list[Event]) -> None:
    """The job is taken away while its handler runs, and cancelled: its own end is refused."""

    @app.job("k")
    async def handle(ctx: Context) -> None:
        app.cancel(ctx.job_id)

    job_id = app.enqueue("k").job_id
    assert app.drain() == 1
    assert whats(heard) == ["enqueued", "claimed", "deduplicated"]
    late = heard[-1]
    assert (late.boundary, late.refused, late.job_id) == ("delivery", "completed", job_id)
    assert late.worker == heard[1].worker


@pytest.mark.parametrize(("crashes", "what"), [(1, "crashed"), (3, "failed")])
def test_the_job_of_a_dead_worker(app: Oncely, heard: list[Event], crashes: int, what: str) -> None:
    job_id = app.enqueue("k", queue="other").job_id
    for _ in range(crashes - 1):
        die(app)
        app._engine.run(lambda _: deliver.reclaim(9), "transaction")
    die(app)
    worker = app.worker(queues=["elsewhere"])
    app.on_event(lambda _: worker.stop())
    worker.run()
    assert [(e.what, e.job_id, e.queue, e.worker) for e in heard[1:]] == [
        (what, job_id, "other", "dead")
    ]


def die(app: Oncely) -> None:
    taken = app._engine.run(
        lambda _: claims.claim("other", worker="dead", nonce=7, lease_seconds=0, limit=1),
        "transaction",
    )
    assert len(taken) == 1


def test_a_job_that_is_handed_back_too_late_says_nothing(app: Oncely, heard: list[Event]) -> None:
    """It was cancelled from outside: the worker notices, and ends the handler."""

    @app.job("k")
    async def handle(ctx: Context) -> None:
        app.cancel(ctx.job_id)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(worker._renew_now())
            await asyncio.Event().wait()

    job_id = app.enqueue("k").job_id
    worker = app.worker()
    asyncio.run(worker.drain())
    assert whats(heard) == ["enqueued", "claimed"]
    assert whats(app.explain(job_id).events) == ["enqueued", "claimed", "cancelled"]


def test_a_worker_forgets_what_it_has_told(app: Oncely) -> None:
    @app.job("k")
    async def handle(ctx: Context, n: int) -> None:
        if n == 7:
            raise Defer(3600)

    app.enqueue_many(NewJob("k", n) for n in range(30))
    worker = app.worker()
    asyncio.run(worker.drain())
    assert worker.executions == 30
    assert worker._told._open == {}


def test_a_hook_that_raises_breaks_nothing(app: Oncely, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Event] = []

    @app.on_event
    def broken(event: Event) -> None:
        raise RuntimeError(event.what)

    app.on_event(heard.append)

    @app.job("k")
    async def handle(ctx: Context) -> int:
        return 7

    receipt = app.enqueue("k")
    assert app.drain() == 1
    job = app.get(receipt.job_id)
    assert job is not None
    assert (job.state, job.result) == ("completed", 7)
    assert whats(heard) == ["enqueued", "claimed", "completed"]
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == 3
    assert all("broken" in record.getMessage() and record.exc_info for record in told)


def test_what_cannot_be_a_hook_is_refused(app: Oncely) -> None:
    async def later(event: Event) -> None: ...

    for hook in (None, "text", later):
        with pytest.raises(InvalidInput, match="the hook is"):
            app.on_event(hook)  # type: ignore[arg-type]


def test_one_record_for_each_step(app: Oncely, caplog: pytest.LogCaptureFixture) -> None:
    @app.job("order.charge", queue="payments", retry=Retry(max_attempts=1))
    async def charge(ctx: Context, card: str) -> str:
        if card != SECRET:
            raise ConnectionError("the bank\nis asleep")
        return card

    with caplog.at_level(logging.DEBUG, "oncely"):
        receipt = app.enqueue("order.charge", SECRET, idempotency_key="order:1")
        app.enqueue("order.charge", SECRET, idempotency_key="order:1")
        app.enqueue("order.charge", "other")
        app.drain()
    told = [(fields["event"], fields["outcome"]) for fields in records(caplog)]
    assert told[:3] == [
        ("enqueue", "enqueued"),
        ("enqueue", "deduplicated"),
        ("enqueue", "enqueued"),
    ]
    assert sorted(told[3:]) == [
        ("claim", "claimed"),
        ("claim", "claimed"),
        ("settle", "completed"),
        ("settle", "failed"),
    ]
    assert records(caplog)[1] == {
        "event": "enqueue",
        "outcome": "deduplicated",
        "job_id": receipt.job_id,
        "kind": "order.charge",
        "queue": "payments",
        "boundary": "enqueue",
        "key": "idempotency",
        "idempotency_key": "order:1",
    }
    [failed] = [fields for fields in records(caplog) if fields["outcome"] == "failed"]
    assert failed["error"] == "ConnectionError: the bank is asleep"
    assert SECRET not in caplog.text
    for record in caplog.records:
        assert "\n" not in record.getMessage()
        msgspec.json.encode(getattr(record, "oncely", None))


def test_at_info_a_job_that_goes_well_is_not_heard_of(
    app: Oncely, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("k")
    async def handle(ctx: Context) -> None:
        if ctx.payload == "cancel":
            raise Cancel

    with caplog.at_level(logging.INFO, "oncely"):
        app.enqueue_many([NewJob("k", 1, idempotency_key="k:1")] * 2)
        app.enqueue("k", "cancel")
        app.drain()
    assert [fields["outcome"] for fields in records(caplog)] == ["deduplicated", "cancelled"]


def test_while_nobody_listens_nothing_is_made(app: Oncely, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def no_events() -> Iterator[None]:
        with monkeypatch.context() as patch:
            for module in ("flow.enqueue", "worker.told"):
                patch.setattr(f"oncely.{module}.Event", None)
            yield

    @app.job("k")
    async def handle(ctx: Context) -> None: ...

    assert Events().wanted("enqueue") is None
    with no_events():
        app.enqueue_many([NewJob("k", 1, idempotency_key="k:1")] * 2)
        assert app.drain() == 1
        app.on_event(print)
        with pytest.raises(TypeError):
            app.enqueue("k")


def test_secrets_in_an_error_are_not_logged(
    app: Oncely, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCELY_REDACT", "customer badge")
    caplog.set_level(logging.DEBUG)

    @app.job("k", retry=Retry(max_attempts=1))
    def fail(ctx: Context) -> None:
        raise ValueError(f"https://ann:{SECRET}@example.com/?pwd={SECRET} badge={SECRET}")

    app.enqueue("k")
    app.drain()
    assert "example.com" in caplog.text
    assert SECRET not in caplog.text
    assert SECRET not in repr(records(caplog))
