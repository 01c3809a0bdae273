"""The story of a job: each enqueue, repeat, claim and end, in order."""

import asyncio
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

from oncely import (
    Context,
    Defer,
    JobNotFound,
    KeyConflict,
    NewJob,
    Oncely,
    Retry,
    Story,
)
from oncely.flow.identity import new_job_ids
from oncely.model.draft import draft
from oncely.store import admit, deliver
from oncely.store import claim as claims
from oncely.store.claim import Claimed
from oncely.store.deliver import Settlement
from oncely.store.story import REPEATS
from oncely.store.url import sqlite_path
from tests.engine.racers import enqueue_each, race
from tests.engine.steps import (
    claim_one,
    end,
    engine_of,
    let_days_pass,
    prune,
    prune_keys,
    retry,
    settle,
    sql,
)

KEY = "order:1:charge"


def whats(story: Story) -> list[str]:
    return [event.what for event in story]


def crash(app: Oncely) -> Claimed:
    """Claim the next job, and die with it."""
    [claimed] = app._engine.run(
        lambda _: claims.claim(
            "default", worker="dead", nonce=secrets.randbits(60), lease_seconds=0, limit=1
        ),
        "transaction",
    )
    app._engine.run(lambda _: deliver.reclaim(100), "transaction")
    return claimed


def repeats(app: Oncely) -> int:
    return int(sql(app, "select count(*) from oncely.repeat")[0][0])


def test_a_job_from_its_enqueue_to_its_end(app: Oncely) -> None:
    tries: list[int] = []

    @app.job("order.charge", queue="payments", retry=Retry(base=0))
    async def charge(ctx: Context) -> None:
        tries.append(ctx.attempt)
        if len(tries) == 1:
            raise ConnectionError("the bank\nis \x1b[1masleep")
        if len(tries) == 2:
            raise Defer(0)

    receipt = app.enqueue("order.charge", idempotency_key=KEY, unique_key="charge:1")
    assert app.drain() == 3
    story = app.explain(receipt.job_id)
    assert whats(story) == [
        "enqueued", "claimed", "retried", "claimed", "deferred", "claimed", "completed",
    ]  # fmt: skip
    assert (story.kind, story.queue, story.state) == ("order.charge", "payments", "completed")
    assert (story.events[0].idempotency_key, story.events[0].unique_key) == (KEY, "charge:1")
    epochs = [event.epoch for event in story if event.epoch is not None]
    assert epochs == sorted(epochs)
    assert len(set(epochs)) == 3
    assert [event.attempt for event in story if event.what == "claimed"] == [1, 2, 2]
    assert len({event.worker for event in story.events[1:]}) == 1
    moments = [event.at for event in story if event.at is not None]
    assert moments == sorted(moments)
    assert len(moments) == len(story)
    lines = str(story).split("\n")
    assert len(lines) == len(story) + 2
    assert "ConnectionError: the bank is \\x1b[1masleep" in lines[3]
    assert lines[-1] == "now: completed"


def test_eight_processes_with_one_key(app: Oncely) -> None:
    job = NewJob("order.charge", 1, idempotency_key=KEY)
    answers = race(enqueue_each, [(app.url, [job])] * 8)
    [job_id] = {job_id for [(job_id, _)] in answers}
    story = app.explain(job_id)
    assert whats(story) == ["enqueued", *["deduplicated"] * 7]
    assert {(e.boundary, e.key) for e in story.events[1:]} == {("enqueue", "idempotency")}


def test_which_key_recognised_the_repeat(app: Oncely) -> None:
    first = app.enqueue("sync", 1, unique_key="user:7", idempotency_key="call:1")
    for call in ("call:1", "call:2", "call:2", None):
        repeat = app.enqueue("sync", 1, unique_key="user:7", idempotency_key=call)
        assert repeat.job_id == first.job_id
    assert end(app, claim_one(app), "completed")
    again = app.enqueue("sync", 1, unique_key="user:7", idempotency_key="call:2")
    assert again.job_id == first.job_id
    keys = [event.key for event in app.explain(first.job_id) if event.what == "deduplicated"]
    # While the job is active a call that was skipped is so by the unique key, each time.
    assert keys == ["idempotency", "unique", "unique", "unique", "idempotency"]


def test_repeats_inside_one_call(app: Oncely) -> None:
    jobs = [
        NewJob("a", 1, idempotency_key="k:1"),
        NewJob("b", 1, unique_key="u:1"),
        NewJob("a", 1, idempotency_key="k:1"),
        NewJob("b", 2, unique_key="u:1"),
        NewJob("b", 3, unique_key="u:1", idempotency_key="k:2"),
    ]
    a, b, *_ = app.enqueue_many(jobs).receipts
    assert whats(app.explain(a.job_id)) == ["enqueued", "deduplicated"]
    assert [event.key for event in app.explain(b.job_id)] == [None, "unique", "unique"]


def test_only_the_first_repeats_are_kept(app: Oncely) -> None:
    job = NewJob("a", 1, idempotency_key="k:1")
    first = app.enqueue_many([job] * 31).receipts[0]
    app.enqueue_many([job] * (REPEATS - 31))
    assert len(app.explain(first.job_id)) == REPEATS
    app.enqueue_many([job] * 200)
    app.enqueue("a", 1, idempotency_key="k:1")
    assert len(app.explain(first.job_id)) == 1 + REPEATS
    assert repeats(app) == REPEATS


def test_an_enqueue_that_repeats_nothing_costs_no_statement() -> None:
    [job_id] = new_job_ids(1)
    new = NewJob("a", idempotency_key="k:1", unique_key="u:1")
    plan = admit.admit([draft(new, job_id, queue_of=lambda _: "default", max_payload_bytes=99)])
    assert next(plan).name == "admit"
    with pytest.raises(StopIteration):
        plan.send([(job_id, False)])


def test_an_enqueue_that_is_sent_again_repeats_nothing(app: Oncely) -> None:
    """Neither is our own job a repeat, nor is a repeat told twice, when an answer was lost."""
    for _ in range(2):
        [job_id] = new_job_ids(1)
        new = NewJob("a", idempotency_key="k:1")
        drafts = [draft(new, job_id, queue_of=lambda _: "default", max_payload_bytes=99)]
        for again in (False, True):
            app._engine.run(
                lambda _, again=again, drafts=drafts: admit.admit(drafts, again=again),  # type: ignore[misc]
                "transaction",
            )
    [job] = app.jobs()
    assert whats(app.explain(job.job_id)) == ["enqueued", "deduplicated"]


def test_a_key_that_conflicts_is_no_repeat(app: Oncely) -> None:
    first = app.enqueue("a", 1, idempotency_key="k:1")
    with pytest.raises(KeyConflict):
        app.enqueue("a", 2, idempotency_key="k:1")
    same, other = NewJob("a", 1, idempotency_key="k:1"), NewJob("a", 2, idempotency_key="k:1")
    with pytest.raises(KeyConflict):
        app.enqueue_many([same, other])
    assert whats(app.explain(first.job_id)) == ["enqueued"]


def test_the_end_of_an_execution_that_came_too_late(app: Oncely) -> None:
    job_id = app.enqueue("order.charge").job_id
    zombie = crash(app)
    successor = claim_one(app)
    assert not end(app, zombie, "completed")
    assert not end(app, zombie, "completed")
    let_days_pass(app, 1e-4)  # two ends in one millisecond would have no order
    assert end(app, successor, "completed")
    assert not retry(app, successor)
    story = app.explain(job_id)
    assert whats(story) == [
        "enqueued", "claimed", "crashed", "claimed", "deduplicated", "completed", "deduplicated",
    ]  # fmt: skip
    late, later = story.events[4], story.events[6]
    assert (late.boundary, late.refused) == ("delivery", "completed")
    assert (late.worker, late.epoch, late.attempt) == ("dead", zombie.fence.epoch, 1)
    assert (later.refused, later.worker) == ("retried", "worker-1")
    assert "too late to be settled as completed" in str(story)


def test_a_late_end_that_was_accepted_is_no_repeat(app: Oncely) -> None:
    job_id = app.enqueue("order.charge").job_id
    assert end(app, crash(app), "completed")
    assert whats(app.explain(job_id)) == ["enqueued", "claimed", "completed"]


def test_a_settle_that_is_sent_again_repeats_nothing(app: Oncely) -> None:
    job_id = app.enqueue("order.charge").job_id
    claimed = claim_one(app)
    done = [Settlement(job_id, 1, state="completed").under(claimed.fence)]
    for again in (False, True):
        assert not app._engine.run(
            lambda _, again=again: deliver.settle(done, again=again),  # type: ignore[misc]
            "transaction",
        )
    assert whats(app.explain(job_id)) == ["enqueued", "claimed", "completed"]


def test_crashes_until_it_is_a_poison_pill_and_a_replay(app: Oncely) -> None:
    job_id = app.enqueue("order.charge").job_id
    for _ in range(3):
        crash(app)
    app.replay(job_id)
    claimed = claim_one(app)
    story = app.explain(job_id)
    assert whats(story) == [
        "enqueued",
        *["claimed", "crashed"] * 2,
        *["claimed", "failed", "replayed"],
        "claimed",
    ]
    assert story.events[6].error["type"] == "PoisonPill"
    assert story.state == "running"
    assert story.now.startswith("running since ")
    assert "on worker worker-1, whose lease lasts until " in story.now
    app.cancel(job_id)
    assert not end(app, claimed, "completed")
    story = app.explain(job_id)
    assert whats(story)[-3:] == ["claimed", "cancelled", "deduplicated"]
    assert story.now == "cancelled"


def test_a_job_that_was_cancelled_while_it_waited(app: Oncely) -> None:
    job_id = app.enqueue("order.charge", delay=60).job_id
    story = app.explain(job_id)
    assert story.now in ("waits, due in 60 s", "waits, due in 59 s")
    assert str(story).split("\n")[1].endswith("  enqueued      due in 60 s")
    app.cancel(job_id)
    assert whats(app.explain(job_id)) == ["enqueued", "cancelled"]


def test_what_a_job_waits_for(app: Oncely) -> None:
    job_id = app.enqueue("order.charge").job_id
    assert app.explain(job_id).now.startswith("waits for a worker, due since ")
    claimed = claim_one(app)
    handed_back = deliver.handed_back(claimed, tried=True)
    assert settle(app, claimed.fence, [handed_back]) == {job_id}
    assert retry(app, claim_one(app), delay_seconds=3600)
    story = app.explain(job_id)
    assert whats(story) == ["enqueued", "claimed", "released", "claimed", "retried"]
    assert story.now in ("waits, due in 3600 s", "waits, due in 3599 s")
    assert "due in 3600 s, boom" in str(story)


def test_a_job_that_is_held_in_doubt(app: Oncely) -> None:
    job_id = app.enqueue("order.charge").job_id
    assert end(app, claim_one(app), "in_doubt")
    story = app.explain(job_id)
    assert (whats(story)[-1], story.now) == ("in_doubt", "in_doubt")


def test_a_job_that_is_not_there(app: Oncely) -> None:
    for unknown in ("nonsense", "01a1e167-7239-75cf-8141-9bcd7a8dc380"):
        with pytest.raises(JobNotFound, match=unknown):
            app.explain(unknown)
        with pytest.raises(JobNotFound, match=unknown):
            asyncio.run(app.aexplain(unknown))


def test_repeats_go_with_their_job(app: Oncely) -> None:
    first = app.enqueue("order.charge", idempotency_key=KEY)
    app.enqueue("order.charge", idempotency_key=KEY)
    zombie = crash(app)
    assert end(app, claim_one(app), "completed")
    assert not end(app, zombie, "completed")
    assert repeats(app) == 2
    let_days_pass(app, 8)
    assert prune(app, days=7) == 1
    assert repeats(app) == 0
    # Its key outlived it: a repeat is still recognised, but has no story to be told in.
    assert app.enqueue("order.charge", idempotency_key=KEY).job_id == first.job_id
    assert not end(app, zombie, "completed")
    assert repeats(app) == 0
    with pytest.raises(JobNotFound):
        app.explain(first.job_id)


def test_a_repeat_that_was_kept_while_its_job_was_pruned(postgres_url: str) -> None:
    """Only where two can write at once: the caller's insert saw the job, and commits after it."""
    with Oncely(postgres_url) as app:
        app.migrate()
        app.enqueue("order.charge", idempotency_key=KEY)
        assert end(app, claim_one(app), "completed")
        let_days_pass(app, 8)
        with psycopg.connect(postgres_url) as connection:
            app.enqueue("order.charge", idempotency_key=KEY, tx=connection)
            assert prune(app, days=7) == 1
        assert repeats(app) == 1
        let_days_pass(app, 31)
        assert prune_keys(app) == 1
        assert repeats(app) == 0


@contextmanager
def transaction(app: Oncely) -> Iterator[Any]:
    """The caller's own, rolled back unless it was committed."""
    connection: Any
    if engine_of(app) == "postgres":
        connection = psycopg.connect(app.url)
    else:
        path = sqlite_path(app.url.partition("://")[2], app.url)
        assert path is not None
        connection = sqlite3.connect(path)
    with closing(connection):
        yield connection


@pytest.mark.parametrize("key", ["idempotency_key", "unique_key"])
def test_a_repeat_in_a_transaction_that_rolls_back_is_not_told(app: Oncely, key: str) -> None:
    job = NewJob("order.charge", **{key: KEY})  # type: ignore[arg-type]
    [first] = app.enqueue_many([job]).receipts
    with transaction(app) as connection:
        [repeat] = app.enqueue_many([job], tx=connection).receipts
        assert (repeat.job_id, repeat.inserted) == (first.job_id, False)
        connection.rollback()
    assert whats(app.explain(first.job_id)) == ["enqueued"]
    with transaction(app) as connection:
        app.enqueue_many([job], tx=connection)
        assert whats(app.explain(first.job_id)) == ["enqueued"]
        connection.commit()
    assert whats(app.explain(first.job_id)) == ["enqueued", "deduplicated"]


@pytest.mark.parametrize("level", list(psycopg.IsolationLevel), ids=lambda level: level.name)
def test_open_transactions_that_repeat_one_key_do_not_wait_for_each_other(
    postgres_url: str, level: psycopg.IsolationLevel
) -> None:
    """Both repeat both jobs, in opposite orders, and stay open; then both commit."""
    with Oncely(postgres_url) as app:
        app.migrate()
        jobs = [NewJob("a", idempotency_key="k:1"), NewJob("b", unique_key="u:1")]
        first = app.enqueue_many(jobs).receipts
        with psycopg.connect(postgres_url) as one, psycopg.connect(postgres_url) as two:
            for connection in (one, two):
                connection.isolation_level = level
                connection.execute("set lock_timeout = '1ms'")
            for connection, order in ((one, jobs), (two, jobs[::-1]), (one, jobs), (two, jobs)):
                for job in order:
                    [receipt] = app.enqueue_many([job], tx=connection).receipts
                    assert not receipt.inserted
            one.commit()
            two.commit()
        for receipt in first:
            assert whats(app.explain(receipt.job_id)) == ["enqueued", *["deduplicated"] * 4]
