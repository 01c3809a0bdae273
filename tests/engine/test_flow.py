"""Flow: limits and rates that hold exactly, pauses, and groups that get their share."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from oncely import Context, InvalidInput, NewJob, Oncely, Retry
from oncely.store import deliver
from oncely.store.claim import Claimed
from oncely.store.lanes import Claim, Outlook, claim_shared, survey
from oncely.store.sql import Library
from tests.cluster import Cluster
from tests.engine.steps import claim as claim_plain
from tests.engine.steps import end, found, let_days_pass, retry, sql
from tests.waiting import wait_until


def exchange(
    app: Oncely, limit: int, *, outlook: Outlook | None = None, queues: list[str] | None = None
) -> list[Claimed]:
    """What a worker would claim now, with room for `limit` jobs."""
    seen = outlook or Outlook()
    app._engine.run(lambda _: survey(seen, queues), "read")
    nonce = secrets.randbits(60)
    return app._engine.run(
        lambda again: deliver.exchange(
            [], outlook=seen, worker="w", nonce=nonce, lease_seconds=60, limit=limit, again=again
        ),
        "transaction",
    ).claimed


def groups_of(jobs: list[Claimed]) -> Counter[str | None]:
    return Counter(job.group_key for job in jobs)


def put(app: Oncely, count: int, **options: Any) -> None:
    app.enqueue_many(NewJob("k", n, **options) for n in range(count))


def test_a_queue_runs_no_more_than_its_concurrency(app: Oncely) -> None:
    app.set_queue("default", concurrency=3)
    put(app, 10)
    first = exchange(app, 8)
    assert len(first) == 3
    assert exchange(app, 8) == []
    assert end(app, first[0], "completed")
    assert len(exchange(app, 8)) == 1
    assert retry(app, first[1])
    assert len(exchange(app, 8)) == 1
    app.set_queue("default", concurrency=5)
    assert len(exchange(app, 8)) == 2
    app.set_queue("default", concurrency=None)
    assert len(exchange(app, 8)) == 4


def test_the_fast_way_takes_nothing_from_a_limited_queue(app: Oncely) -> None:
    app.set_queue("default", concurrency=3)
    put(app, 10)
    assert claim_plain(app, limit=10) == []


def test_a_group_runs_no_more_than_its_concurrency_in_all_queues(app: Oncely) -> None:
    app.set_group("acme", concurrency=2)
    put(app, 5, group_key="acme", queue="a")
    put(app, 5, group_key="acme", queue="b", priority=7)
    put(app, 5, group_key="other", queue="a")
    put(app, 5, queue="b")
    assert groups_of(exchange(app, 100)) == {"acme": 2, "other": 5, None: 5}
    assert exchange(app, 100) == []


def test_both_limits_hold_together(app: Oncely) -> None:
    app.set_queue("default", concurrency=4)
    app.set_group("acme", concurrency=3)
    app.set_group("other", concurrency=3)
    put(app, 5, group_key="acme")
    put(app, 5, group_key="other")
    assert len(exchange(app, 100)) == 4
    assert exchange(app, 100) == []


def test_what_ran_before_the_limit_was_set_counts(app: Oncely) -> None:
    put(app, 5, group_key="acme")
    put(app, 3, group_key="other")
    before = exchange(app, 6)
    assert len(before) == 6
    app.set_group("acme", concurrency=1)
    app.set_queue("default", concurrency=6)
    assert exchange(app, 6) == []
    for job in before:
        assert end(app, job, "completed")
    assert groups_of(exchange(app, 6))["acme"] <= 1


def test_a_crashed_workers_jobs_free_their_room_when_they_are_taken_back(app: Oncely) -> None:
    app.set_group("acme", concurrency=2)
    put(app, 3, group_key="acme")
    assert len(exchange(app, 9)) == 2
    let_days_pass(app, 1)
    assert exchange(app, 9) == []
    assert len(app._engine.run(lambda _: deliver.reclaim(10), "transaction")) == 2
    assert len(exchange(app, 9)) == 2


def test_a_cancelled_running_job_frees_its_room(app: Oncely) -> None:
    app.set_group("acme", concurrency=1)
    put(app, 2, group_key="acme")
    [running] = exchange(app, 9)
    app.cancel(running.job_id)
    [after] = exchange(app, 9)
    assert after.job_id != running.job_id


@pytest.mark.parametrize("scope", ["queue", "group"])
def test_a_rate_lets_so_many_begin_and_refills_with_time(app: Oncely, scope: str) -> None:
    put(app, 30, group_key="acme")
    if scope == "queue":
        app.set_queue("default", rate=(5, 86_400))
    else:
        app.set_group("acme", rate=(5, 86_400))
    outlook = Outlook()
    assert len(exchange(app, 100, outlook=outlook)) == 5
    assert exchange(app, 100, outlook=outlook) == []
    assert outlook.wait_seconds is not None
    assert 0 < outlook.wait_seconds <= 86_400 / 5
    past(app, 0.41)
    assert len(exchange(app, 100)) == 2
    past(app, 30)
    assert len(exchange(app, 100)) == 5  # no more than the bucket holds


def past(app: Oncely, days: float) -> None:
    """Let the rates refill as if that much time had gone by."""
    moved = "refilled_at - cast(:us as integer)"
    if app.url.startswith("postgres"):
        moved = "refilled_at - cast(:us as bigint) * interval '1 microsecond'"
    sql(app, f"update oncely.flow_limit set refilled_at = {moved}", us=round(days * 86_400e6))


def test_setting_the_same_rate_again_gives_no_new_allowance(app: Oncely) -> None:
    app.set_queue("default", rate=(5, 86_400))
    put(app, 30)
    assert len(exchange(app, 100)) == 5
    app.set_queue("default", rate=(5, 86_400))
    assert exchange(app, 100) == []
    app.set_queue("default", rate=(10, 86_400))
    assert exchange(app, 100) == []
    app.set_queue("default", rate=None)
    assert len(exchange(app, 100)) == 25


def test_a_rate_and_a_concurrency_hold_together(app: Oncely) -> None:
    app.set_queue("default", rate=(5, 86_400), concurrency=2)
    put(app, 30)
    for expected in (2, 2, 1, 0):
        jobs = exchange(app, 100)
        assert len(jobs) == expected
        for job in jobs:
            assert end(app, job, "completed")


def test_a_paused_queue_begins_nothing_and_loses_nothing(app: Oncely) -> None:
    put(app, 2)
    put(app, 1, queue="other")
    app.pause("default")
    app.pause("default")
    assert [queue.name for queue in app.queues() if queue.paused] == ["default"]
    assert [job.queue for job in exchange(app, 9)] == ["other"]
    put(app, 1)
    assert exchange(app, 9) == []
    app.resume("default")
    app.resume("default")
    assert len(exchange(app, 9)) == 3


def test_a_paused_group_begins_nothing(app: Oncely) -> None:
    put(app, 2, group_key="acme")
    put(app, 2, group_key="other")
    app.pause(group="acme")
    assert groups_of(exchange(app, 9)) == {"other": 2}
    assert [(group.key, group.paused) for group in app.groups()] == [("acme", True)]
    app.resume(group="acme")
    assert app.groups() == []
    assert groups_of(exchange(app, 9)) == {"acme": 2}


def test_a_pause_keeps_the_limits(app: Oncely) -> None:
    app.set_queue("default", concurrency=2, rate=(9, 1))
    app.pause("default")
    app.resume("default")
    [queue] = app.queues()
    assert (queue.paused, queue.concurrency, queue.rate) == (False, 2, (9, 1.0))


def test_every_group_gets_its_share(app: Oncely) -> None:
    """A million jobs of one tenant do not starve another's ten; here, a thousand."""
    put(app, 1000, group_key="big")
    put(app, 10, group_key="small")
    put(app, 10)
    outlook = Outlook()
    served: Counter[str | None] = Counter()
    for _ in range(10):
        for job in exchange(app, 4, outlook=outlook):
            served[job.group_key] += 1
            end(app, job, "completed")
    assert served["small"] == 10
    assert served[None] == 10
    assert served["big"] == 20


def test_the_turn_goes_round_one_by_one(app: Oncely) -> None:
    for group in ("a", "b", "c"):
        put(app, 4, group_key=group)
    outlook = Outlook()
    order = [exchange(app, 1, outlook=outlook)[0].group_key for _ in range(12)]
    for start in range(0, 12, 3):
        assert sorted(map(str, order[start : start + 3])) == ["a", "b", "c"]


def test_more_groups_than_one_claim_goes_through(app: Oncely) -> None:
    """Blocked ones first: the claims go on where the last one stopped, and get there."""
    app.enqueue_many(NewJob("k", n, group_key=f"g{n:05}") for n in range(2_500))
    app.enqueue("k", group_key="z")
    sql(
        app,
        "insert into oncely.flow_limit (scope, name, paused, refilled_at, since) "
        "select 'group', group_key, true, created_at, created_at from oncely.job "
        "where group_key <> 'z'",
    )
    outlook = Outlook()
    claims = 1
    while not (jobs := exchange(app, 4, outlook=outlook)):
        assert outlook.unfinished
        claims += 1
        assert claims < 10
    assert [job.group_key for job in jobs] == ["z"]
    executed = []
    app.resume(group="g00042")
    app.job("k")(lambda ctx: executed.append(ctx.payload))
    assert app.drain() == 1
    assert executed == [42]


def test_a_higher_priority_goes_first_in_every_group(app: Oncely) -> None:
    put(app, 3, group_key="a")
    put(app, 3, group_key="b", priority=5)
    put(app, 3, priority=3)
    assert [job.group_key for job in exchange(app, 7)] == ["b"] * 3 + [None] * 3 + ["a"]


def test_jobs_of_a_group_run_in_the_order_in_which_they_are_due(app: Oncely) -> None:
    app.set_group("acme", concurrency=1)
    app.enqueue("k", "late", group_key="acme", delay=3600)
    put(app, 3, group_key="acme")
    app.enqueue("k", "far", group_key="acme", delay=7 * 86_400)
    seen: list[Any] = []

    @app.job("k")
    async def handle(ctx: Context) -> None:
        seen.append(ctx.payload)

    let_days_pass(app, 1)
    app.drain()
    assert seen == [0, 1, 2, "late"]


def test_what_waits_in_a_lane_can_be_cancelled_and_replayed(app: Oncely) -> None:
    due = app.enqueue("k", group_key="acme")
    later = app.enqueue("k", group_key="acme", delay=3600)
    for receipt in (due, later):
        app.cancel(receipt.job_id)
        assert found(app, receipt.job_id).state == "cancelled"
    assert exchange(app, 9) == []
    app.enqueue("k", group_key="acme")
    [claimed] = exchange(app, 9)
    assert end(app, claimed, "failed")
    app.replay(claimed.job_id)
    [again] = exchange(app, 9)
    assert again.job_id == claimed.job_id
    assert again.fence.epoch > claimed.fence.epoch
    assert retry(app, again, delay_seconds=3600)
    assert found(app, again.job_id).state == "scheduled"
    app.cancel(again.job_id)


def test_a_late_end_is_accepted_from_a_lane(app: Oncely) -> None:
    app.enqueue("k", group_key="acme")
    [claimed] = exchange(app, 9)
    let_days_pass(app, 1)
    app._engine.run(lambda _: deliver.reclaim(10), "transaction")
    assert end(app, claimed, "completed")
    assert exchange(app, 9) == []


def test_a_late_end_is_accepted_while_its_job_is_filed(postgres_url: str) -> None:
    """Somebody moves the job into the lane of its group and then claims something else. (On SQLite
    nobody writes at the same time.)"""
    waits = (
        "select 1 from pg_stat_activity "
        "where wait_event_type = 'Lock' and datname = current_database()"
    )
    with (
        Oncely(postgres_url) as app,
        ThreadPoolExecutor() as threads,
        psycopg.connect(postgres_url) as other,
    ):
        app.migrate()
        app.enqueue("k", group_key="acme")
        [claimed] = exchange(app, 9)
        let_days_pass(app, 1)
        app._engine.run(lambda _: deliver.reclaim(10), "transaction")
        (file,) = Library("postgres").get("file", "%({name})s")
        params = {"queue": "default", "priority": 0, "limit": 9}
        assert other.execute(file.text.encode(), params).rowcount == 1
        ended = threads.submit(end, app, claimed, "completed")
        wait_until(lambda: ended.done() or sql(app, waits), "it waits for the lock")
        assert not ended.done()
        other.commit()
        assert ended.result()
        assert sql(app, "select id from oncely.ready") == []


def test_the_policy_of_a_queue_goes_behind_that_of_the_kind_and_the_job(app: Oncely) -> None:
    app.set_queue("default", retry=Retry(max_attempts=2, base=0), timeout=7)
    attempts: Counter[str] = Counter()
    limits: dict[str, int] = {}

    def failing(ctx: Context) -> None:
        attempts[ctx.kind] += 1
        limits[ctx.kind] = ctx.max_attempts
        raise ValueError("no")

    app.job("plain")(failing)
    app.job("own", retry=Retry(max_attempts=3, base=0))(failing)
    app.enqueue("plain")
    app.enqueue("own")
    app.drain()
    assert attempts == {"plain": 2, "own": 3}
    app.enqueue("plain", max_attempts=4)
    app.drain()
    assert attempts["plain"] == 6
    [queue] = app.queues()
    assert queue.retry == Retry(max_attempts=2, base=0)
    assert queue.timeout == 7
    app.set_queue("default", retry=None, timeout=None)
    [queue] = app.queues()
    assert (queue.retry, queue.timeout) == (None, None)


def test_the_timeout_of_a_queue_ends_a_handler(app: Oncely) -> None:
    app.set_queue("default", timeout=0.05)

    @app.job("k", retry=Retry(max_attempts=1))
    async def handle(ctx: Context) -> None:
        await asyncio.sleep(60)

    job = app.enqueue("k")
    app.drain()
    assert found(app, job.job_id).error["type"] == "TimeoutError"


def test_what_queues_and_groups_tell(app: Oncely) -> None:
    put(app, 3, queue="a", group_key="acme")
    put(app, 2, queue="b")
    app.set_queue("c", concurrency=1)
    app.set_group("acme", rate=(2, 10))
    exchange(app, 9, queues=["a"])
    told = [(queue.name, queue.waiting, queue.running) for queue in app.queues()]
    assert told == [("a", 1, 2), ("b", 2, 0), ("c", 0, 0)]
    [group] = app.groups()
    assert (group.key, group.concurrency, group.rate, group.running) == ("acme", None, (2, 10.0), 2)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"concurrency": True}, "concurrency is True"),
        ({"concurrency": 1.5}, "concurrency is 1.5"),
        ({"rate": 5}, "rate is 5"),
        ({"rate": (0, 1)}, "rate is (0, 1)"),
        ({"rate": (1, 0)}, "rate is (1, 0)"),
        ({"rate": (1, float("nan"))}, "rate is (1, nan)"),
        ({"rate": (1, float("inf"))}, "rate is (1, inf)"),
        ({"rate": ("1", 1)}, "rate is"),
        ({"retry": 3}, "retry is 3"),
        ({"timeout": 0}, "timeout is 0"),
        ({}, "nothing is set"),
    ],
)
def test_bad_policies_are_refused(app: Oncely, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        app.set_queue("default", **options)
    assert told in str(caught.value)
    assert app.queues() == []


def test_bad_names_are_refused(app: Oncely) -> None:
    calls: list[Callable[[], None]] = [
        lambda: app.set_queue("a b", concurrency=1),
        lambda: app.set_group("", concurrency=1),
        lambda: app.set_group("a"),
        lambda: app.pause(),
        lambda: app.pause("a", group="b"),
        lambda: app.resume(group=7),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(InvalidInput):
            call()
    assert (app.queues(), app.groups()) == ([], [])


def test_a_stricter_default_of_the_database_changes_nothing(cluster: Cluster) -> None:
    """A count after the lock must see what was claimed before it."""
    url = cluster.create_database("strict")
    with psycopg.connect(url, autocommit=True) as side:
        side.execute("alter database strict set default_transaction_isolation = 'serializable'")
    try:
        with Oncely(url) as app, Oncely(url) as other:
            app.migrate()
            app.set_queue("default", concurrency=1)
            put(app, 5)
            seen: list[int] = []

            def claim_after_the_other() -> Any:
                # The snapshot would be taken here, before the other one claims.
                yield from survey(Outlook(), None)
                seen.append(len(exchange(other, 3)))
                outlook = Outlook()
                yield from survey(outlook, None)
                jobs = yield from claim_shared(outlook, Claim("default", "w", 1, 10**9, 3))
                seen.append(len(jobs))

            app._engine.run(lambda _: claim_after_the_other(), "transaction")
            assert seen == [1, 0]
    finally:
        cluster.drop_database("strict")
