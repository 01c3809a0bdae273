"""Counters: exact, never going down, outliving what they counted, and in nobody's way."""

import asyncio
import logging
import sqlite3
import threading
from contextlib import closing
from itertools import count, pairwise
from typing import Any

import psycopg
import pytest

from oncely import Context, Event, KeyConflict, NewJob, Oncely, Retry
from oncely.store import counters, deliver
from oncely.store.url import sqlite_path
from tests.crash.fleet import start
from tests.engine.racers import enqueue_each, race
from tests.engine.steps import (
    claim_one,
    end,
    engine_of,
    let_days_pass,
    prune,
    retry,
    sessions,
    settle,
    sql,
)
from tests.engine.test_story import crash
from tests.waiting import PATIENCE_SECONDS, wait_until

Counts = dict[tuple[str, ...], int]
DONE = "select count(*) from oncely.outcome"


def totals(app: Oncely) -> Counts:
    """By name and labels, without the name's frame."""
    return {
        (each.name.removeprefix("oncely_").removesuffix("_total"), *each.labels.values()): (
            each.value
        )
        for each in app.counters()
    }


def fold(app: Oncely, limit: int = counters.FOLD_LIMIT) -> int:
    return app._engine.run(lambda _: counters.fold(limit), "transaction")


def test_enqueues_and_their_repeats(app: Oncely) -> None:
    app.enqueue_many([NewJob("a", n) for n in range(3)] + [NewJob("b", idempotency_key="k:1")])
    app.enqueue("b", idempotency_key="k:1")
    app.enqueue_many([NewJob("b", idempotency_key="k:1")] * 150)
    app.enqueue("c", unique_key="u")
    app.enqueue("c", unique_key="u")
    assert totals(app) == {
        ("enqueued", "a"): 3,
        ("enqueued", "b"): 1,
        ("enqueued", "c"): 1,
        ("deduplicated", "enqueue", "b"): 151,
        ("deduplicated", "enqueue", "c"): 1,
    }
    assert asyncio.run(app.acounters()) == app.counters()


def test_executions_by_their_outcome(app: Oncely) -> None:
    app.enqueue_many([NewJob("a", n) for n in range(3)])
    app.enqueue("b", queue="other")
    assert retry(app, claim_one(app))
    assert end(app, claim_one(app), "completed")
    assert end(app, claim_one(app), "failed")
    running = claim_one(app, "other")
    app.cancel(running.job_id)
    assert not end(app, running, "completed")
    app.enqueue("b", queue="other")
    untried = claim_one(app, "other")
    assert settle(app, untried.fence, [deliver.handed_back(untried, tried=False)])
    found = totals(app)
    assert {key: n for key, n in found.items() if key[0] != "enqueued"} == {
        ("executions", "retried", "a"): 1,
        ("executions", "completed", "a"): 1,
        ("executions", "failed", "a"): 1,
        ("executions", "cancelled", "b"): 1,
        ("deduplicated", "delivery", "b"): 1,
    }


def test_crashes_and_ends_that_came_late(app: Oncely) -> None:
    app.enqueue("a")
    assert end(app, crash(app), "completed")  # nobody had claimed it since
    app.enqueue("a")
    zombie = crash(app)
    assert end(app, claim_one(app), "completed")
    for _ in range(3):  # one end, however often it is sent
        assert not end(app, zombie, "completed")
    app.enqueue("a")
    for _ in range(3):
        crash(app)
    assert totals(app) == {
        ("enqueued", "a"): 3,
        ("executions", "crashed", "a"): 4,
        ("executions", "completed", "a"): 2,
        ("executions", "failed", "a"): 1,
        ("deduplicated", "delivery", "a"): 1,
    }


def test_effects_found_again_held_and_resolved(app: Oncely) -> None:
    told: list[Event] = []
    app.on_event(told.append)

    @app.job("k", retry=Retry(base=0, max_attempts=5))
    def handler(ctx: Context) -> str:
        ctx.step("charge", lambda: "paid")
        if ctx.attempt < 3:
            raise ValueError("after the effect")
        return str(ctx.fence("mail", _boom))

    job_id = app.enqueue("k").job_id
    app.drain()
    app.resolve(job_id, "mail", happened=True, result="sent")
    app.drain()
    found = totals(app)
    assert found["effects", "returned", "k"] == 1
    assert found["effects", "resolved", "k"] == 1
    assert found["held", "k"] == 1
    assert found["resolved", "happened", "k"] == 1
    assert found["executions", "in_doubt", "k"] == 1
    # charge in attempts 2, 3 and after the answer; mail after the answer
    assert found["deduplicated", "effect", "k"] == 4
    repeats = [event for event in told if event.boundary == "effect"]
    assert [event.effect for event in repeats] == ["charge", "charge", "charge", "mail"]
    assert {(event.what, event.job_id) for event in repeats} == {("deduplicated", job_id)}


def test_an_effect_that_was_found_done_is_logged(
    app: Oncely, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("k", retry=Retry(base=0))
    def handler(ctx: Context) -> None:
        ctx.step("charge", lambda: 1)
        if ctx.attempt == 1:
            raise ValueError

    app.enqueue("k")
    with caplog.at_level(logging.INFO, "oncely.worker"):
        app.drain()
    fields = [record.oncely for record in caplog.records if hasattr(record, "oncely")]
    [found] = [each for each in fields if each.get("boundary") == "effect"]
    assert (found["event"], found["outcome"], found["effect"]) == (
        "effect", "deduplicated", "charge",
    )  # fmt: skip


def _boom() -> None:
    raise TimeoutError("no answer")


def test_in_a_transaction_of_the_handler_repeats_are_counted_once(app: Oncely) -> None:
    @app.job("k", retry=Retry(base=0))
    def handler(ctx: Context) -> None:
        ctx.step("charge", lambda: 1)
        if ctx.attempt == 1:
            raise ValueError
        with ctx.transaction():
            pass

    app.enqueue("k")
    app.drain()
    found = totals(app)
    assert found["deduplicated", "effect", "k"] == 1
    assert found["executions", "completed", "k"] == 1


def test_a_settle_that_is_sent_again_is_counted_once(app: Oncely) -> None:
    job_id = app.enqueue("k").job_id
    claimed = claim_one(app)
    done = [
        deliver.Settlement(job_id, 1, state="completed", repeats=["charge"]).under(claimed.fence)
    ]
    for again in (False, True, True):
        app._engine.run(
            lambda _, again=again: deliver.settle(done, again=again),  # type: ignore[misc]
            "transaction",
        )
    assert totals(app) == {
        ("enqueued", "k"): 1,
        ("executions", "completed", "k"): 1,
        ("deduplicated", "effect", "k"): 1,
    }


def test_folding_changes_nothing_that_can_be_seen(app: Oncely) -> None:
    for n in range(7):
        app.enqueue("a" if n % 2 else "b", idempotency_key=f"k:{n % 3}:{n % 2}")
    before = app.counters()
    assert fold(app, limit=4) == 4
    assert app.counters() == before
    while fold(app, limit=4):
        assert app.counters() == before
    assert sql(app, "select count(*) from oncely.tally") == [(0,)]
    app.enqueue("a")
    fold(app)
    assert totals(app)["enqueued", "a"] == dict_of(before)["enqueued", "a"] + 1


def dict_of(found: list[Any]) -> Counts:
    return {("enqueued", each.labels["kind"]): each.value for each in found if "enq" in each.name}


def test_counters_outlive_the_jobs(app: Oncely) -> None:
    app.enqueue("a", idempotency_key="k")
    assert end(app, claim_one(app), "completed")
    before = app.counters()
    let_days_pass(app, 8)
    assert prune(app, days=7) == 1
    assert app.counters() == before


def test_nobody_counts_what_was_rolled_back(app: Oncely) -> None:
    app.enqueue("a", idempotency_key="k")
    with closing(connect(app)) as connection:
        app.enqueue("b", tx=connection)
        app.enqueue("a", idempotency_key="k", tx=connection)
        connection.rollback()
    assert totals(app) == {("enqueued", "a"): 1}


def connect(app: Oncely) -> Any:
    if engine_of(app) == "postgres":
        return psycopg.connect(app.url)
    path = sqlite_path(app.url.partition("://")[2], app.url)
    assert path is not None
    return sqlite3.connect(path)


@pytest.mark.parametrize("level", list(psycopg.IsolationLevel), ids=lambda level: level.name)
def test_open_transactions_that_count_do_not_wait_for_a_fold_or_each_other(
    postgres_url: str, level: psycopg.IsolationLevel
) -> None:
    with Oncely(postgres_url) as app:
        app.migrate()
        app.enqueue("a", idempotency_key="k")
        with psycopg.connect(postgres_url) as one, psycopg.connect(postgres_url) as two:
            for connection in (one, two):
                connection.isolation_level = level
                connection.execute("set lock_timeout = '1ms'")
            for connection in (one, two, one):
                app.enqueue("a", idempotency_key="k", tx=connection)
                fold(app)
            one.commit()
            fold(app)
            two.commit()
        assert totals(app) == {("enqueued", "a"): 1, ("deduplicated", "enqueue", "a"): 3}


def test_eight_processes_and_a_folder_at_once(app: Oncely) -> None:
    """Read all the while: no counter goes down, and in the end nothing is missing or doubled."""
    stop = threading.Event()
    seen: list[Counts] = []

    def watch() -> None:
        while not stop.is_set():
            fold(app, limit=3)
            seen.append(totals(app))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        jobs = [NewJob("a", n, idempotency_key=f"k:{n}") for n in range(20)]
        race(enqueue_each, [(app.url, jobs)] * 8)
    finally:
        stop.set()
        watcher.join()
    assert totals(app) == {("enqueued", "a"): 20, ("deduplicated", "enqueue", "a"): 140}
    for earlier, later in pairwise(seen):
        assert all(later.get(key, 0) >= n for key, n in earlier.items())


def keep_busy(url: str, turn: int) -> None:
    app = Oncely(url)
    app.job("k")(lambda ctx: ctx.step("charge", str))
    for n in count(1):
        for _ in range(2):
            app.enqueue("k", n, idempotency_key=f"k:{turn}:{n}")
        if n % 5 == 0:
            app.drain()
            fold(app, limit=3)


def test_what_a_killed_process_has_written_is_counted_and_nothing_else(app: Oncely) -> None:
    """Ended with SIGKILL at any moment: enqueue, claim, effect, settle or fold."""
    ours = sessions(app)
    for turn in range(4):
        [(before,)] = sql(app, DONE)
        busy = start(keep_busy, app.url, turn)
        try:
            wait_until(
                lambda wanted=before + 7 + turn, busy=busy: (  # type: ignore[misc]
                    sql(app, DONE)[0][0] >= wanted or not busy.is_alive()
                ),
                "it has completed some",
            )
            assert busy.is_alive()
        finally:
            busy.kill()
            busy.join()
        wait_until(lambda: sessions(app) <= ours, "what it has sent is carried out")
    found = totals(app)
    [row] = sql(
        app,
        "select (select count(*) from oncely.job), (select count(*) from oncely.outcome), "
        "(select count(*) from oncely.effect where state = 'done')",
    )
    assert row == (
        found["enqueued", "k"],
        found["executions", "completed", "k"],
        found["effects", "returned", "k"],
    )


def test_workers_fold(app: Oncely) -> None:
    app.enqueue("k")

    @app.job("k")
    async def handler(ctx: Context) -> None: ...

    async def until_folded() -> None:
        running = asyncio.create_task(app.run_worker())
        try:
            while not sql(app, "select 1 from oncely.counter"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(until_folded(), PATIENCE_SECONDS))
    assert totals(app)["enqueued", "k"] == 1


def test_key_conflicts_are_counted_beside_the_call(app: Oncely) -> None:
    app.enqueue("a", 1, idempotency_key="k")
    with pytest.raises(KeyConflict):
        app.enqueue("a", 2, idempotency_key="k")
    with pytest.raises(KeyConflict):
        app.enqueue_many([NewJob("b"), NewJob("a", 2, idempotency_key="k")])
    with pytest.raises(KeyConflict):
        asyncio.run(app.aenqueue("a", 3, idempotency_key="k"))
    app.close()
    with Oncely(app.url) as other:
        assert totals(other) == {("enqueued", "a"): 1, ("key_conflicts", "a"): 3}


def test_a_key_conflict_in_a_transaction_that_stays_open_is_in_nobodys_way(app: Oncely) -> None:
    app.enqueue("a", 1, idempotency_key="k")
    with closing(connect(app)) as connection:
        with pytest.raises(KeyConflict):
            app.enqueue("a", 2, idempotency_key="k", tx=connection)
        app.enqueue("a", 3, tx=connection)
        connection.rollback()
    app.enqueue("a", 4)
    app.close()
    with Oncely(app.url) as other:
        assert totals(other) == {("enqueued", "a"): 2, ("key_conflicts", "a"): 1}
