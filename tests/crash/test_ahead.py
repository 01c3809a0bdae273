"""A worker that dies, or loses an answer, with jobs in hand that it has not begun."""

import asyncio
import logging
import os
import threading
from collections import Counter
from multiprocessing.context import ForkServerProcess

import pytest

from oncely import Context, NewJob, Oncely
from oncely.store import deliver
from oncely.store.claim import Fence
from tests.crash.checker import check
from tests.crash.ends import end
from tests.crash.fleet import start
from tests.crash.proxy import Fault, Proxy, When
from tests.engine.paces import given_pace
from tests.engine.steps import engine_of, found, let_days_pass, run_out, sessions, sql
from tests.waiting import PATIENCE_SECONDS, wait_until

PLACES = 4
FIRST = 20
REST = 400
FLEET_JOBS = 4_000
PILL_LIMIT = 3
"""So many workers die of a job that kills them at once, whatever is queued around it."""


def make_app(url: str) -> Oncely:
    app = Oncely(url)

    @app.job("quick")
    async def quick(ctx: Context) -> int:
        return ctx.epoch

    @app.job("stays")
    async def stays(ctx: Context) -> None:
        await asyncio.Event().wait()

    @app.job("pill")
    async def pill(ctx: Context) -> None:
        os._exit(1)

    return app


def run_worker(url: str, concurrency: int) -> None:
    logging.disable(logging.CRITICAL)
    with make_app(url) as app:
        worker = app.worker(concurrency=concurrency, poll_seconds=0.05)
        given_pace(worker)
        worker.run()


@pytest.fixture
def migrated_url(migrated: None, postgres_url: str) -> str:
    with Oncely(postgres_url) as app:
        app.migrate()
    return postgres_url


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("skip", [0, 2])
def test_the_answer_to_a_swap_is_lost(migrated_url: str, when: When, skip: int) -> None:
    ran: Counter[str] = Counter()
    with Oncely(migrated_url) as app, Proxy(app.url) as proxy, Oncely(proxy.url) as far:

        @far.job("quick")
        async def quick(ctx: Context, n: int) -> int:
            ran[ctx.job_id] += 1
            return n

        receipts = app.enqueue_many(NewJob("quick", n, unique_key=f"u{n}") for n in range(400))
        fault = Fault("kinds json", when, skip=skip)
        proxy.arm(fault)
        worker = far.worker(concurrency=PLACES)
        given_pace(worker)
        assert asyncio.run(worker.drain()) == 400
        assert fault.happened.is_set()
        counted = sql(app, "select sum(n) from oncely.tally where label = 'completed'")
    assert ran == Counter(dict.fromkeys((r.job_id for r in receipts.receipts), 1))
    census = check(migrated_url)
    assert census.count("completed") == 400
    assert (census.leases, census.unique_keys, census.executions) == ([], [], [])
    by_job = {outcome.job_id: outcome.result for outcome in census.outcomes}
    assert [by_job[r.job_id] for r in receipts.receipts] == list(range(400))
    assert counted == [(400,)]


def test_a_swap_arrives_after_its_worker_has_given_it_up(migrated_url: str) -> None:
    """What it claims is in the worker's name, though nobody was told: it is not renewed, and goes
    to whoever is there when it has run out."""
    ran: Counter[str] = Counter()
    full, go = threading.Event(), threading.Event()
    with Oncely(migrated_url) as app, Proxy(app.url) as proxy, Oncely(proxy.url) as far:

        @far.job("quick")
        async def quick(ctx: Context) -> None:
            ran[ctx.job_id] += 1

        @far.job("stays")
        def stays(ctx: Context) -> None:
            ran[ctx.job_id] += 1
            if len([name for name in names if ran[name]]) == PLACES:
                full.set()
            go.wait(PATIENCE_SECONDS)

        def more() -> None:
            assert full.wait(PATIENCE_SECONDS)
            pace.fetch_no_more()  # or the worker would claim them before the late swap does
            app.enqueue_many(NewJob("quick") for _ in range(50))

        app.enqueue_many(NewJob("quick") for _ in range(200))
        names = [r.job_id for r in app.enqueue_many([NewJob("stays")] * PLACES).receipts]
        late = Fault("kinds json", "late", hook=more)
        proxy.arm(late)
        worker = far.worker(concurrency=PLACES)
        pace = given_pace(worker)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            assert late.happened.wait(PATIENCE_SECONDS)
            assert len(running(app)) > PLACES, "it came for nothing: the test shows nothing"
            unknown = leases(app) - worker._known_leases()
            go.set()
            assert worker._loop is not None
            renewed = asyncio.run_coroutine_threadsafe(worker._renew_now(), worker._loop)
            renewed.result(PATIENCE_SECONDS)
            wait_until(lambda: leases(app) == unknown and not waiting(app), "all others end")
            run_out(app)
            wait_for_ends(app, 250 + PLACES)
        finally:
            go.set()
            worker.stop()
            thread.join(PATIENCE_SECONDS)
        census = check(app.url)
    assert census.count("completed") == 250 + PLACES
    assert census.leases == []
    # Some count as begun when they are claimed: so they are in a moment.
    assert {execution.outcome for execution in census.executions} == {"crashed"}
    assert ran == Counter(dict.fromkeys(census.jobs, 1))


def leases(app: Oncely) -> set[Fence]:
    return {Fence(*fence) for fence in sql(app, "select epoch, nonce from oncely.lease")}


def waiting(app: Oncely) -> int:
    [(count,)] = sql(app, "select count(*) from oncely.ready")
    return int(count)


def test_a_worker_is_killed_with_many_jobs_in_hand(app: Oncely) -> None:
    app.enqueue_many(NewJob("quick") for _ in range(FIRST))
    stay = app.enqueue_many(NewJob("stays") for _ in range(PLACES)).receipts
    app.enqueue_many(NewJob("quick") for _ in range(REST))
    ours = sessions(app)
    worker = start(run_worker, app.url, PLACES)
    try:
        wait_until(lambda: {r.job_id for r in stay} <= running(app), "all that stay are claimed")
    finally:
        end([worker])
    wait_until(lambda: sessions(app) <= ours, "what it has sent is carried out")
    held, counting = len(running(app)), sql(app, "select sum(started) from oncely.lease")[0][0]
    assert held > 2 * PLACES, "nothing was fetched ahead: the test shows nothing"
    let_days_pass(app, 1)
    for receipt in stay:
        sql(app, "update oncely.job set kind = 'quick' where id = :id", id=receipt.job_id)
    worker = start(run_worker, app.url, PLACES)
    try:
        wait_for_ends(app, FIRST + PLACES + REST)
    finally:
        end([worker])
    census = check(app.url)
    assert census.count("completed") == FIRST + PLACES + REST
    outcomes = [execution.outcome for execution in census.executions]
    print(f"held {held}, known to be begun {counting}, taken back {len(outcomes)}")
    assert set(outcomes) == {"crashed"}
    assert counting < held == len(outcomes)


def wait_for_ends(app: Oncely, count: int) -> None:
    wait_until(lambda: sql(app, "select count(*) from oncely.outcome") == [(count,)], "all end")


def running(app: Oncely) -> set[str]:
    return {job.job_id for job in app.jobs(state="running", limit=1_000)}


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_poison_pill_among_quick_jobs_is_found_soon(app: Oncely, concurrency: int) -> None:
    app.enqueue_many(NewJob("quick") for _ in range(250))
    pill = app.enqueue("pill").job_id
    app.enqueue_many(NewJob("quick") for _ in range(250))
    deaths = 0
    worker = start(run_worker, app.url, concurrency)

    def all_have_ended() -> bool:
        nonlocal deaths, worker
        if not worker.is_alive():
            deaths += 1
            let_days_pass(app, 1)
            worker = start(run_worker, app.url, concurrency)
        return sql(app, "select count(*) from oncely.outcome") == [(501,)]

    try:
        wait_until(all_have_ended, "all end, however many workers die")
    finally:
        end([worker])
    failed = [job.job_id for job in app.jobs(state="failed", limit=1_000)]
    print(f"{deaths} workers died, {len(failed)} jobs failed")
    assert pill in failed
    assert deaths <= PILL_LIMIT
    check(app.url)
    assert failed == [pill]


def test_a_poison_pill_is_found_by_a_fleet_in_which_not_all_know_it(app: Oncely) -> None:
    """Three workers, one of them without the handler. Whoever dies is replaced."""
    app.enqueue_many(NewJob("quick") for _ in range(FLEET_JOBS // 2))
    pill = app.enqueue("pill").job_id
    app.enqueue_many(NewJob("quick") for _ in range(FLEET_JOBS // 2))
    kinds = [("quick", "pill"), ("quick", "pill"), ("quick",)]
    workers = [start(run_fleet_worker, app.url, each) for each in kinds]
    deaths = 0

    def all_have_ended() -> bool:
        nonlocal deaths
        for n, worker in enumerate(workers):
            if not worker.is_alive():
                deaths += 1
                let_leases_of_run_out(app, worker)
                workers[n] = start(run_fleet_worker, app.url, kinds[n])
        make_due(app, pill)
        return sql(app, "select count(*) from oncely.outcome") == [(FLEET_JOBS + 1,)]

    try:
        wait_until(all_have_ended, "all end, however many workers die")
    finally:
        end(workers)
    failed = [job.job_id for job in app.jobs(state="failed", limit=1_000)]
    outcomes = [execution.outcome for execution in found(app, pill).executions]
    print(f"{deaths} workers died, {len(failed)} jobs failed; the pill: {outcomes}")
    assert failed == [pill]
    assert deaths == PILL_LIMIT


def run_fleet_worker(url: str, kinds: tuple[str, ...]) -> None:
    """At the pace that it finds by itself."""
    logging.disable(logging.CRITICAL)
    with make_app(url) as app:
        registry = app._registry._handlers
        for kind in [kind for kind in registry if kind not in kinds]:
            del registry[kind]
        app.worker(concurrency=8, poll_seconds=0.05, lease_seconds=600).run()


def let_leases_of_run_out(app: Oncely, worker: ForkServerProcess) -> None:
    """And its jobs are taken back, once all that it has sent is carried out."""
    name = f"%:{worker.pid}:%"
    past = "0" if engine_of(app) == "sqlite" else "clock_timestamp()"
    held = "select count(*) from oncely.lease where worker like :name"

    def are_taken_back() -> bool:
        sql(app, f"update oncely.lease set expires_at = {past} where worker like :name", name=name)
        app._engine.run(lambda _: deliver.reclaim(100), "transaction")
        return sql(app, held, name=name) == [(0,)]

    wait_until(are_taken_back, "they are taken back")


def make_due(app: Oncely, job_id: str) -> None:
    """A worker without its handler has deferred it."""
    if found(app, job_id).state == "scheduled":
        past = "1" if engine_of(app) == "sqlite" else "'2000-01-01'"
        for table, column in (("execution", "job_id"), ("ready", "id")):
            sql(app, f"update oncely.{table} set due_at = {past} where {column} = :id", id=job_id)
