"""Traffic: the counters step by step, exact; and how long jobs waited and ran."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from oncely import Context, InvalidInput, KeyConflict, NewJob, Oncely, Retry, Traffic
from oncely.model.traffic import STEPS, Last, buckets
from oncely.store import counters, limits, traffic
from oncely.store.postgres.engine import PostgresEngine
from oncely.store.traffic import Sample
from tests.engine.steps import claim_one, end, engine_of, sql
from tests.engine.test_counters import totals
from tests.waiting import wait_until

LASTS: tuple[Last, ...] = ("hour", "day", "month")


def fold(app: Oncely) -> None:
    app._engine.run(lambda _: counters.fold(), "transaction")


def add(app: Oncely, *samples: Sample) -> None:
    app._engine.run(lambda _: traffic.add(samples), "transaction")


def summed(found: Traffic) -> dict[tuple[str, ...], int]:
    return {
        tuple(part for part in (one.name, one.label, one.kind) if part): sum(one.values)
        for one in found.counted
    }


def move(app: Oncely, table: str, column: str, seconds: int) -> None:
    by = f"interval '{seconds} seconds'" if engine_of(app) == "postgres" else f"{seconds}000000"
    sql(app, f"update oncely.{table} set {column} = {column} - {by}")


def test_the_steps_add_up_to_the_counters(app: Oncely) -> None:
    app.enqueue_many([NewJob("a", n) for n in range(3)] + [NewJob("b", idempotency_key="k:1")])
    app.enqueue("b", idempotency_key="k:1")
    with pytest.raises(KeyConflict):
        app.enqueue("b", 2, idempotency_key="k:1")
    assert end(app, claim_one(app), "completed")
    assert end(app, claim_one(app), "failed")
    late = claim_one(app)
    app.cancel(late.job_id)
    assert not end(app, late, "completed")
    assert app.traffic().values("key_conflicts", kind="b")[-2:] in ([0, 1], [1, 0])
    for _ in range(2):  # as deltas, then folded
        for last in LASTS:
            found = app.traffic(last)
            assert summed(found) == totals(app)
            assert (found.seconds, found.steps) == STEPS[last]
            assert all(len(one.values) == found.steps for one in found.counted)
        fold(app)
    assert sum(app.traffic().values("deduplicated", label="delivery")) == 1
    assert sum(app.traffic().values("deduplicated", kind="b", label="enqueue")) == 1
    assert sum(app.traffic().values("executions")) == 3
    assert sum(app.traffic().values("executions", kind="nobody")) == 0
    before, found, after = app.traffic("day"), asyncio.run(app.atraffic("day")), app.traffic("day")
    assert found in (before, after)  # a step may begin between two of them, and not three


def test_what_was_counted_earlier_stands_where_it_belongs(app: Oncely) -> None:
    """Also if nobody folds it for long: it is filed by when it was counted."""
    app.enqueue("a")
    move(app, "tally", "at", 3 * 60)
    app.enqueue_many([NewJob("a", n) for n in range(2)])
    before = app.traffic().values("enqueued")
    # A minute may begin between the two.
    assert [n for n in before if n] == [1, 2]
    assert 3 <= (len(before) - 1 - before.index(1)) <= 4
    fold(app)
    assert app.traffic().values("enqueued")[-6:].count(1) == 1
    move(app, "tally", "at", 0)
    app.enqueue("a")
    move(app, "tally", "at", 2 * 3600)
    assert sum(app.traffic("hour").values("enqueued")) == 3
    assert sum(app.traffic("day").values("enqueued")) == 4
    fold(app)
    assert sum(app.traffic("hour").values("enqueued")) == 3
    assert sum(app.traffic("day").values("enqueued")) == 4


def test_times_of_many_workers_are_added_up(app: Oncely) -> None:
    mail = Sample("ran", "q", "mail", dict(buckets([0.01] * 9 + [2.0])))
    pdf = Sample("ran", "q", "pdf", dict(buckets([0.5])))
    other = Sample("waited", "p", "mail", dict(buckets([60.0])))
    turns = [(mail, pdf, other), (other, pdf, mail)] * 10
    with ThreadPoolExecutor(4) as threads:  # in any order, and nobody waits for ever
        list(threads.map(lambda samples: add(app, *samples), turns))
    for last in LASTS:
        found = app.traffic(last)
        ran = found.latency("ran", kind="mail")
        assert ran is not None
        assert (ran.count, found.queues, found.kinds) == (200, ["p", "q"], ["mail", "pdf"])
        assert 0.009 < ran.p50 < 0.012
        assert 1.6 < ran.p95 < 2.4
        everything = found.latency("ran", queue="q")
        assert everything is not None
        assert everything.count == 220
        waited = [each for each in found.latencies("waited") if each is not None]
        assert sum(each.count for each in waited) == 20


def test_two_who_add_the_same_times_do_not_wait_for_each_other(postgres_url: str) -> None:
    """Whoever comes second would have the first place while the other has the last."""
    first, last = (Sample("ran", "q", kind, {3: 1}) for kind in ("a", "z"))
    with Oncely(postgres_url) as app, psycopg.connect(postgres_url) as holder:
        app.migrate()
        add(app, first, last)
        holder.execute("select from oncely.latency where kind = 'z' for update")

        def add_once(*samples: Sample) -> None:
            assert isinstance(app._engine, PostgresEngine)
            with app._engine._connect() as connection:
                app._engine._run_on(connection, traffic.add(samples), "transaction")

        with ThreadPoolExecutor(2) as threads:
            adding = []
            for n, samples in enumerate([(last, first), (first, last)], 1):
                adding.append(threads.submit(add_once, *samples))
                wait_until(lambda n=n: waiting(app) == n, "a lock is waited for")  # type: ignore[misc]
            holder.rollback()
            for each in adding:
                each.result()  # a deadlock is not tried again here
        for kind in ("a", "z"):
            ran = app.traffic().latency("ran", kind=kind)
            assert ran is not None
            assert ran.count == 3


def waiting(app: Oncely) -> int:
    [(found,)] = sql(
        app,
        "select count(*) from pg_stat_activity "
        "where datname = current_database() and wait_event_type = 'Lock'",
    )
    return int(found)


def test_times_of_a_step_that_begins_during_the_look_are_with_the_last(app: Oncely) -> None:
    for found, steps in (({3: 1}, 9), ({3: 1, 4: 1}, 1)):
        add(app, Sample("ran", "q", "a", found))
        sql(app, f"update oncely.latency set step = step + {steps} * seconds")
    for last in LASTS:
        [taken] = app.traffic(last).taken
        assert taken.steps == {STEPS[last][1] - 1: {3: 2, 4: 1}}


def test_every_execution_of_a_worker_is_told_of(app: Oncely) -> None:
    """Quick ones that are settled by the lease, and those that fail and come back."""

    @app.job("ok")
    async def ok(ctx: Context) -> None: ...

    @app.job("bad", queue="other", retry=Retry(max_attempts=2, base=0))
    def bad(ctx: Context) -> None:
        raise RuntimeError

    app.enqueue_many([NewJob("ok", n) for n in range(150)])
    app.enqueue_many([NewJob("bad", n) for n in range(5)])
    assert app.drain() == 160
    found = app.traffic()
    for kind, queue, n in (("ok", "default", 150), ("bad", "other", 10)):
        for measure in ("waited", "ran"):
            took = found.latency(measure, kind=kind, queue=queue)
            assert took is not None
            assert took.count == n
    assert sum(found.values("executions")) == 160


def test_old_steps_are_forgotten_and_longer_ones_stay(app: Oncely) -> None:
    app.enqueue("a")
    fold(app)
    add(app, Sample("ran", "q", "a", {3: 1}))
    app._engine.run(lambda _: traffic.prune(), "transaction")
    assert [sum(app.traffic(last).values("enqueued")) for last in LASTS] == [1, 1, 1]
    for table in ("traffic", "latency"):
        sql(app, f"update oncely.{table} set step = step - 26 * 3600")
    app._engine.run(lambda _: traffic.prune(), "transaction")
    for table in ("traffic", "latency"):
        found = sql(app, f"select seconds from oncely.{table} order by seconds")
        assert found == [(900,), (21_600,)]
        sql(app, f"update oncely.{table} set step = step - 31 * 86400")
    app._engine.run(lambda _: traffic.prune(), "transaction")
    for table in ("traffic", "latency"):
        assert sql(app, f"select seconds from oncely.{table}") == []


@pytest.mark.parametrize("last", ["week", "", None, 1])
def test_another_span_is_refused(app: Oncely, last: object) -> None:
    with pytest.raises(InvalidInput, match="expected one of hour, day, month"):
        app.traffic(last)  # type: ignore[arg-type]


def test_the_age_of_a_queue_is_that_of_its_oldest_job_in_any_lane(app: Oncely) -> None:
    app.enqueue("a", queue="q", priority=5)
    app.enqueue("a", queue="q", delay=3_600)
    app.enqueue("a", queue="later", delay=3_600)
    for n in range(3):
        app.enqueue("a", queue="q", priority=-5, group_key=f"tenant:{n}")
    old = app.enqueue("a", queue="q", priority=-5, group_key="tenant:9").job_id
    by = "interval '1 day'" if engine_of(app) == "postgres" else "86400000000"
    sql(app, f"update oncely.ready set due_at = due_at - {by} where id = :id", id=old)
    ages = app._engine.run(lambda _: limits.ages(), "read")
    assert sorted(ages) == ["later", "q"]
    assert ages["later"] == 0
    assert 86_400 <= ages["q"] < 2 * 86_400
