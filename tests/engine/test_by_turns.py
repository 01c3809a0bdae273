"""Two exchanges of one worker under way at once, and where in the line they claim."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from oncely import Context, NewJob, Oncely
from oncely.model.errors import StoreError
from oncely.store.claim import Claimed, claim_statement, claimed_rows
from oncely.store.engine import Access
from oncely.store.plan import Plan
from oncely.worker import bounds
from oncely.worker.worker import Worker
from tests.engine.paces import AN_HOUR, given_pace
from tests.engine.steps import engine_of, sql
from tests.waiting import PATIENCE_SECONDS, wait_until

JOBS = 2_000

only_postgres = pytest.mark.parametrize("url", ["postgres"], indirect=True)
"""SQLite has one writer at a time, and keeps no rows that died."""


class Store:
    """The store as it is, only that one exchange in the middle of the work waits until there is
    another one beside it, if there can be. `met` is called with how many were under way when it
    began, for each after that."""

    def __init__(
        self, app: Oncely, worker: Worker, ran: Counter[int], met: Callable[[int], None]
    ) -> None:
        self.most = 0
        self.under_way = 0
        self._worker = worker
        self._ran = ran
        self._met = met
        self._run = app._engine.run
        self._limit = 1 if engine_of(app) == "sqlite" else 2
        self._changed = threading.Condition()

    def run(self, make: Any, access: Access) -> Any:
        if access != "write":
            return self._run(make, access)
        with self._changed:
            self.under_way += 1
            under_way = self.under_way
            self.most = max(self.most, under_way)
            self._changed.notify_all()
            if len(self._ran) > JOBS / 4 and self._claims_and_goes_on():
                assert self._changed.wait_for(lambda: self.most == self._limit, PATIENCE_SECONDS)
        try:
            if self.most == self._limit and len(self._ran) > JOBS / 4:
                self._met(under_way)
            return self._run(make, access)
        finally:
            with self._changed:
                self.under_way -= 1

    def _claims_and_goes_on(self) -> bool:
        """Then jobs end while the store does not answer, and are settled beside it."""
        return self._worker._under_way > 0 and len(self._worker._hand) > 0


PutBetween = Callable[[Callable[[int], None]], Store]


@pytest.fixture
def worker(app: Oncely, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """It fetches much ahead, and need not look around again while there is enough."""
    monkeypatch.setattr(bounds, "_LOOK_SECONDS", AN_HOUR)
    worker = app.worker()
    given_pace(worker)
    return worker


@pytest.fixture
def store(
    app: Oncely, worker: Worker, ran: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> PutBetween:
    def put_between(met: Callable[[int], None]) -> Store:
        store = Store(app, worker, ran, met)
        monkeypatch.setattr(app._engine, "run", store.run)
        return store

    return put_between


def left(app: Oncely) -> tuple[int, int]:
    (leases,), (ready,) = (
        sql(app, f"select count(*) from oncely.{table}")[0] for table in ("lease", "ready")
    )
    return leases, ready


@pytest.fixture
def ran(app: Oncely) -> Counter[int]:
    """How often each job ran."""
    counted: Counter[int] = Counter()

    @app.job("quick")
    async def quick(ctx: Context, n: int) -> int:
        counted[n] += 1
        return n

    app.enqueue_many(NewJob("quick", n) for n in range(JOBS))
    return counted


def test_every_job_runs_once_and_is_settled_with_its_own_result(
    app: Oncely, worker: Worker, ran: Counter[int], store: PutBetween
) -> None:
    between = store(lambda _: None)
    asyncio.run(worker.drain())
    assert between.most == (1 if engine_of(app) == "sqlite" else 2)
    assert ran == Counter(range(JOBS))
    assert left(app) == (0, 0)
    wrong = sql(
        app,
        "select count(*) from oncely.job j join oncely.outcome o on o.job_id = j.id"
        " where cast(j.payload as text) <> cast(o.result as text)",
    )
    assert wrong == [(0,)]


def test_who_is_told_to_stop_waits_for_both_and_hands_back_what_they_claimed(
    app: Oncely, worker: Worker, ran: Counter[int], store: PutBetween
) -> None:
    def met(under_way: int) -> None:
        if under_way == between.most and not worker._stopping:
            worker.stop()

    between = store(met)
    worker.run()
    wait_until(lambda: not between.under_way, "both have ended")
    assert max(ran.values()) == 1
    assert left(app) == (0, JOBS - len(ran))


@only_postgres
def test_what_the_one_beside_settles_while_the_worker_stops_is_settled_once(
    app: Oncely,
    worker: Worker,
    ran: Counter[int],
    store: PutBetween,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under limits it claims nothing. It goes on after the other one has come to its end, and what
    is left is settled after that."""
    app.set_queue("default", concurrency=100_000)
    beside = 0
    pumped, settled = threading.Event(), threading.Event()
    ask, pump, wind_down = worker._store.ask, worker._pump, worker._wind_down

    async def ask_late(make: Callable[[bool], Plan[Any]], access: Access = "transaction") -> Any:
        if access != "write" or asyncio.current_task() is not worker._beside:
            return await ask(make, access)

        def late(again: bool) -> Plan[Any]:
            nonlocal beside
            beside += 1
            worker.stop()
            assert pumped.wait(PATIENCE_SECONDS)
            answer = yield from make(again)
            settled.set()
            return answer

        return await ask(late, access)

    async def pump_and_tell(until_idle: bool) -> None:
        try:
            await pump(until_idle)
        finally:
            pumped.set()

    async def wind_down_late() -> None:
        assert await asyncio.to_thread(settled.wait, PATIENCE_SECONDS)
        await wind_down()

    monkeypatch.setattr(worker._store, "ask", ask_late)
    monkeypatch.setattr(worker, "_pump", pump_and_tell)
    monkeypatch.setattr(worker, "_wind_down", wind_down_late)
    store(lambda _: None)
    worker.run()
    assert beside
    assert max(ran.values()) == 1
    assert left(app) == (0, JOBS - len(ran))
    assert sql(app, "select count(*) from oncely.repeat") == [(0,)]


@only_postgres
def test_an_error_of_the_one_beside_ends_the_worker(
    app: Oncely, worker: Worker, ran: Counter[int], store: PutBetween
) -> None:

    def met(under_way: int) -> None:
        if under_way == 2:
            raise StoreError("this one is refused")

    store(met)
    with pytest.raises(StoreError, match="this one is refused"):
        worker.run()
    assert max(ran.values()) == 1


def test_what_waits_is_found_on_every_level_whatever_the_bounds_say(app: Oncely) -> None:
    """Those of the levels that the worker knows, and those of others between and beside them."""
    levels = [32_767, 7, 3, 0, -3, -32_768]
    for priority in reversed(levels):
        app.enqueue("other", queue="q", priority=priority)
    minute_us = 60_000_000
    known = {7: minute_us, 0: minute_us, 5: minute_us, -3: minute_us}
    statement = claim_statement(
        "q", worker="w", nonce=1, lease_seconds=9, limit=10, started=10, bounds=known
    )

    def plan(_: bool) -> Plan[list[Claimed]]:
        return claimed_rows((yield statement))

    assert [job.priority for job in app._engine.run(plan, "transaction")] == levels


@only_postgres
def test_an_empty_line_costs_no_more_for_what_died_in_it(app: Oncely) -> None:
    """While somebody else looks at how it was before, nothing that died can be removed."""

    @app.job("quick")
    async def quick(ctx: Context) -> None: ...

    with psycopg.connect(app.url) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("select count(*) from oncely.ready")
        app.enqueue_many(NewJob("quick") for _ in range(JOBS))
        app.drain()
        blocks_touched(app, "{}")  # the first lease of all makes room for others
        assert blocks_touched(app, '{"0": 0}') < blocks_touched(app, "{}") / 2


def blocks_touched(app: Oncely, bounds: str) -> int:
    (prepared,) = app._engine.library.get("claim", "%({name})s")
    params = {
        "queue": "default", "worker": "w", "nonce": 1, "lease_us": 1, "limit": 10, "started": 10,
        "pushes": False, "apart": False, "bounds": bounds, "payload_limit": None,
    }  # fmt: skip
    with psycopg.connect(app.url) as connection:
        explained = f"explain (analyze, buffers, format json) {prepared.text}"
        connection.execute("set enable_seqscan = off; set enable_bitmapscan = off")
        row = connection.execute(explained.encode(), params).fetchone()
        connection.rollback()
    assert row is not None
    top = row[0][0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
