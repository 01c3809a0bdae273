"""Claims under limits in one message: what they take, and above all what they leave."""

import asyncio
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from oncely import Context, NewJob, Oncely
from oncely.store import deliver
from oncely.store.claim import Claimed
from oncely.store.engine import Access
from oncely.store.lanes import AtOnce, Claim, Outlook, at_once, claim_shared, survey
from oncely.store.limits import limits_hold
from oncely.store.plan import Statement
from oncely.store.swap import swap
from tests.cluster import Cluster
from tests.engine.steps import found, sql


@pytest.fixture
def store(cluster: Cluster) -> Iterator[Oncely]:
    """PostgreSQL's only: on SQLite no message has to be saved."""
    name = f"at_once_{secrets.token_hex(4)}"
    with Oncely(cluster.create_database(name)) as app:
        app.migrate()
        yield app
    cluster.drop_database(name)


def put(app: Oncely, count: int, group: str | None = None) -> None:
    app.enqueue_many(NewJob("k", n, group_key=group) for n in range(count))


def known(app: Oncely, *lanes: str, is_limited: bool = True) -> Outlook:
    """As after a claim to which every lane gave its part."""
    outlook = Outlook()
    app._engine.run(lambda _: survey(outlook, None), "read")
    key = ("default", outlook.levels["default"][0])
    outlook.even[key] = sorted(lanes)
    if is_limited:
        outlook.limited = {"default"}
    return outlook


def prepared(outlook: Outlook, limit: int) -> AtOnce:
    claim = Claim("default", "w", secrets.randbits(60), 60_000_000, limit)
    found = at_once(outlook, claim)
    assert found is not None
    return found


def sent(app: Oncely, *statements: Statement) -> list[Claimed]:
    answer = app._engine.run(lambda _: swap([], statements), "write")
    assert answer is not None
    return answer.claimed


def claimed(app: Oncely, limit: int, *lanes: str) -> Counter[str | None]:
    one = prepared(known(app, *lanes), limit)
    return Counter(job.group_key for job in sent(app, *one.statements))


def let_an_hour_pass(app: Oncely) -> None:
    """Since the limits were set: then all that runs under them is counted by group."""
    sql(app, "update oncely.flow_limit set since = since - interval '1 hour'")


def running(app: Oncely) -> list[tuple[str | None, int]]:
    return sorted(
        sql(
            app, "select group_key, cast(sum(cardinality(ids)) as int) from oncely.lease group by 1"
        ),
        key=str,
    )


def test_every_lane_gives_the_same_part_and_a_limited_one_no_more_than_its_room(
    store: Oncely,
) -> None:
    store.set_group("a", concurrency=3)
    let_an_hour_pass(store)
    for group in ("a", "b", None):
        put(store, 20, group)
    lanes = ("g:a", "g:b", "")
    assert claimed(store, 15, *lanes) == {"a": 3, "b": 5, None: 5}
    assert running(store) == [("", 10), ("a", 3)]
    assert claimed(store, 15, *lanes) == {"b": 5, None: 5}


def test_the_queues_own_limit_holds_for_all_lanes_together(store: Oncely) -> None:
    store.set_queue("default", concurrency=7)
    for group in ("a", "b", None):
        put(store, 20, group)
    assert claimed(store, 15, "g:a", "g:b", "").total() == 7
    assert claimed(store, 15, "g:a", "g:b", "").total() == 0


@pytest.mark.parametrize("scope", ["queue", "group"])
@pytest.mark.parametrize("how", ["paused", "rate"])
def test_nothing_is_taken_where_that_needs_more_than_one_statement(
    store: Oncely, scope: str, how: str
) -> None:
    put(store, 10, "a")
    if how == "paused":
        store.pause(**{scope: "default" if scope == "queue" else "a"})
    elif scope == "queue":
        store.set_queue("default", rate=(100, 1))
    else:
        store.set_group("a", rate=(100, 1))
    assert claimed(store, 5, "g:a").total() == 0


def test_a_limit_that_is_not_held_is_taken_for_full(store: Oncely) -> None:
    """One that somebody else holds, and one that the worker does not know of yet."""
    for group in ("a", "b"):
        put(store, 10, group)
    store.set_group("a", concurrency=5)
    with psycopg.connect(store.url) as other:
        other.execute("select * from oncely.flow_limit for update")
        assert claimed(store, 8, "g:a", "g:b") == {"b": 4}
    let_an_hour_pass(store)
    unknown = prepared(known(store, "g:a", "g:b", is_limited=False), 8)
    assert [s.name for s in unknown.statements] == ["claim_lanes"]
    assert Counter(job.group_key for job in sent(store, *unknown.statements)) == {"b": 4}
    assert claimed(store, 8, "g:a", "g:b") == {"a": 4, "b": 2}
    store.set_queue("default", concurrency=100)
    put(store, 10, "b")
    with psycopg.connect(store.url) as other:
        other.execute("select * from oncely.flow_limit where scope = 'queue' for update")
        assert claimed(store, 8, "g:a", "g:b") == {}


def test_while_older_jobs_may_run_that_are_not_counted_by_group_nothing_is_taken(
    store: Oncely,
) -> None:
    put(store, 10, "a")
    put(store, 10, "b")
    [first, *_] = sent(store, *prepared(known(store, "g:a", "g:b"), 4).statements)
    store.set_group("a", concurrency=2)
    assert claimed(store, 4, "g:a", "g:b") == {"b": 2}
    # Once those have ended, it is counted as every other.
    for epoch in {
        first.fence.epoch,
        *(row[0] for row in sql(store, "select epoch from oncely.lease")),
    }:
        sql(store, f"delete from oncely.lease where epoch = {epoch}")
    assert claimed(store, 4, "g:a", "g:b") == {"a": 2, "b": 2}


def test_it_is_for_those_lanes_that_gave_their_part_the_last_time(store: Oncely) -> None:
    for group, count in (("a", 20), ("b", 20), ("blocked", 20), ("few", 1)):
        put(store, count, group)
    store.pause(group="blocked")
    outlook = Outlook()

    def claim(limit: int) -> Counter[str | None]:
        store._engine.run(lambda _: survey(outlook, None), "read")
        one = Claim("default", "w", secrets.randbits(60), 60_000_000, limit)
        jobs = store._engine.run(lambda _: claim_shared(outlook, one), "transaction")
        return Counter(job.group_key for job in jobs)

    assert claim(9) == {"a": 4, "b": 4, "few": 1}
    assert outlook.even == {}
    assert claim(6) == {"a": 3, "b": 3}
    assert outlook.even == {("default", 0): ["g:a", "g:b"]}
    jobs = sent(store, *prepared(outlook, 4).statements)
    assert Counter(job.group_key for job in jobs) == {"a": 2, "b": 2}
    # What is set meanwhile is seen to.
    store.pause(group="a")
    one = prepared(outlook, 4)
    jobs = sent(store, *one.statements)
    assert Counter(job.group_key for job in jobs) == {"b": 2}
    one.tell(outlook, jobs)
    assert (outlook.even, outlook.unfinished) == ({}, True)


def test_many_at_the_same_time_never_exceed_a_limit(store: Oncely) -> None:
    """Each counts after it has the lock, so it sees what was claimed before."""
    store.set_group("a", concurrency=9)
    store.set_queue("default", concurrency=12)
    let_an_hour_pass(store)
    put(store, 400, "a")
    put(store, 400)
    most: list[tuple[int, int]] = []
    lock = threading.Lock()

    def work() -> None:
        outlook = known(store, "g:a", "")
        for _ in range(40):
            outlook.even["default", 0] = ["", "g:a"]
            jobs = sent(store, *prepared(outlook, 8).statements)
            of_group = sum(job.group_key == "a" for job in jobs)
            with lock:
                held.update({"group": of_group, "queue": len(jobs)})
                most.append((held["group"], held["queue"]))
            with lock:  # before the store knows of it
                held.subtract({"group": of_group, "queue": len(jobs)})
            done = [deliver.handed_back(job, tried=False) for job in jobs]
            assert store._engine.run(lambda _, d=done: deliver.settle(d), "transaction") == []  # type: ignore[misc]

    held: Counter[str] = Counter()
    with ThreadPoolExecutor(6) as threads:
        for future in [threads.submit(work) for _ in range(6)]:
            future.result()
    assert max(group for group, _ in most) in range(1, 10)
    assert max(queue for _, queue in most) in range(1, 13)


def test_a_limit_that_was_only_looked_at_is_not_a_limit_that_is_held(store: Oncely) -> None:
    put(store, 10, "a")
    store.set_group("a", concurrency=5)
    look = Statement("groups_list")
    assert sent(store, look, prepared(known(store, "g:a"), 4).statements[-1]) == []
    held = limits_hold([("group", "a")])
    assert len(sent(store, held, prepared(known(store, "g:a"), 4).statements[-1])) == 4


def test_who_drains_comes_back_to_a_limit_that_somebody_else_holds(
    store: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, looks = store._engine.run, 0

    def until_it_comes_back(make: Any, access: Access) -> Any:
        nonlocal looks
        looks += access == "read"
        if looks == 2:
            other.rollback()
        return run(make, access)

    store.set_queue("default", concurrency=5)
    put(store, 10)
    store.job("k")(lambda ctx, n: None)
    with psycopg.connect(store.url) as other:
        other.execute("select * from oncely.flow_limit for update")
        monkeypatch.setattr(store._engine, "run", until_it_comes_back)
        assert store.drain() == 10
    assert looks >= 2


@pytest.mark.parametrize("limited", [True, False])
def test_a_worker_runs_every_job_once_and_settles_it_once(app: Oncely, limited: bool) -> None:
    """Groups of all sizes, some of which end early, and a worker that is stopped with the last."""
    ran: Counter[int] = Counter()
    sizes = {f"g{n}": 40 * n for n in range(1, 13)}
    if limited:
        for group in sizes:
            app.set_group(group, concurrency=500)
    worker = app.worker(concurrency=50)

    @app.job("quick")
    async def quick(ctx: Context, n: int) -> int:
        ran[n] += 1
        if len(ran) == sum(sizes.values()):
            worker.stop()
        return n

    groups = [group for group, size in sizes.items() for _ in range(size)]
    receipts = app.enqueue_many(
        NewJob("quick", n, group_key=group) for n, group in enumerate(groups)
    ).receipts
    asyncio.run(worker.arun())
    assert ran == Counter(range(len(groups)))
    assert sql(app, "select count(*) from oncely.lease") == [(0,)]
    assert sql(app, "select count(*) from oncely.repeat") == [(0,)]
    assert [found(app, receipt.job_id).result for receipt in receipts[::97]] == list(
        range(len(groups))
    )[::97]
