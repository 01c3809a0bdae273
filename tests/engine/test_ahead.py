"""What a worker fetches ahead of its handlers: only quick ones, and never for long."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from oncely import Context, NewJob, Oncely
from oncely.store import claim as claims
from oncely.store import deliver
from oncely.store.engine import Access
from oncely.worker.pace import Pace
from oncely.worker.worker import Worker
from tests.engine.paces import AN_HOUR, given_pace
from tests.engine.steps import claim, end, found, sql
from tests.waiting import PATIENCE_SECONDS, wait_until

QUICK = 200
FIRST = 20
PLACES = 2


def leased(app: Oncely) -> list[str]:
    """The ids in all leases."""
    rows = sql(app, "select ids from oncely.lease")
    found = [msgspec.json.decode(ids) if isinstance(ids, str) else ids for (ids,) in rows]
    return [str(id) for ids in found for id in ids]


def lease_sizes(app: Oncely) -> list[int]:
    """How many jobs of each lease were completed under it."""
    return [n for (n,) in sql(app, "select count(*) from oncely.outcome group by epoch")]


class Scene:
    """A worker with two places. The first jobs are quick, then each stays until it is let go."""

    def __init__(self, app: Oncely, *, more: int = 40) -> None:
        self.app = app
        self.go = asyncio.Event()
        self.begun: list[str] = []
        # No lease runs out during a test: what a worker has dropped does not come back so.
        self.worker = app.worker(concurrency=PLACES, poll_seconds=0.1, lease_seconds=AN_HOUR)
        self.pace = given_pace(self.worker)
        self._register(app)
        self._loop: asyncio.AbstractEventLoop | None = None
        made = app.enqueue_many(
            NewJob("quick" if n < FIRST else "slow") for n in range(FIRST + more)
        ).receipts
        self.slow = [receipt.job_id for receipt in made[FIRST:]]

    def _register(self, app: Oncely) -> None:
        @app.job("quick")
        async def quick(ctx: Context) -> None: ...

        @app.job("slow")
        async def slow(ctx: Context) -> None:
            self._loop = asyncio.get_running_loop()
            self.begun.append(ctx.job_id)
            await self.go.wait()

    def in_hand(self) -> list[str]:
        return [id for id in leased(self.app) if id in self.slow and id not in self.begun]

    def let_go(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.go.set)

    def in_worker(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    def wake(self) -> None:
        async def wake() -> None:
            self.worker._wake.set()

        self.in_worker(wake())

    def let_hand_time_pass(self) -> None:
        self.pace.hand_seconds = 0.0
        self.wake()

    def at_work(self) -> None:
        """Until all places are taken, and something is fetched ahead beyond that."""
        wait_until(
            lambda: len(self.begun) == PLACES and bool(self.in_hand()), "something is fetched ahead"
        )


@contextmanager
def running(worker: Worker, finally_: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        finally_()
        worker.stop()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


@contextmanager
def scene(app: Oncely, *, more: int = 40) -> Iterator[Scene]:
    it = Scene(app, more=more)
    with running(it.worker, it.let_go):
        it.at_work()
        yield it


def untouched(app: Oncely, job_id: str) -> bool:
    job = found(app, job_id)
    return (job.state, job.attempt, job.executions) == ("pending", 0, [])


@pytest.mark.parametrize(("job_seconds", "is_ahead"), [(0.001, True), (1.0, False)])
def test_quick_jobs_are_fetched_ahead_and_slow_ones_are_not(
    app: Oncely, job_seconds: float, is_ahead: bool
) -> None:
    @app.job("k")
    async def handle(ctx: Context) -> None: ...

    app.enqueue_many(NewJob("k") for _ in range(QUICK))
    worker = app.worker(concurrency=4)
    given_pace(worker, job_seconds=job_seconds)
    asyncio.run(worker.drain())
    sizes = lease_sizes(app)
    assert sum(sizes) == QUICK
    assert (max(sizes) > 4) == is_ahead, sizes


class Heard(Pace):
    """It keeps what it is told."""

    def __init__(self, concurrency: int) -> None:
        super().__init__(concurrency)
        self.jobs: list[float] = []
        self.exchanges: list[float] = []

    def ended(self, ran_seconds: float, *, by_itself: bool = False) -> None:
        self.jobs.append(ran_seconds)

    def exchanged(self, seconds: float, now: float, *, idle: bool = False) -> None:
        self.exchanges.append(seconds)


@pytest.mark.parametrize("how", ["row", "task", "thread"])
def test_a_worker_measures_how_long_jobs_and_exchanges_take(
    app: Oncely, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No less than they took themselves, and no more than all of it took."""
    places = 4
    begun: list[float] = []
    ran: list[float] = []
    asked: list[float] = []

    def work() -> None:
        begun.append(time.monotonic())
        time.sleep(0.01)
        ran.append(time.monotonic() - begun[-1])

    @app.job("row")
    async def in_row(ctx: Context) -> None:
        work()

    @app.job("task")
    async def in_task(ctx: Context) -> None:
        await asyncio.sleep(0)
        work()

    app.job("thread")(lambda ctx: work())
    run = app._engine.run

    def timed(make: Any, access: Access) -> Any:
        since = time.monotonic()
        answer = run(make, access)
        if access == "write":
            asked.append(time.monotonic() - since)
        return answer

    app.enqueue(how)
    worker = app.worker(concurrency=places)
    pace = worker._pace = Heard(places)
    monkeypatch.setattr(app._engine, "run", timed)
    since = time.monotonic()
    asyncio.run(worker.drain())
    whole = time.monotonic() - since
    factor = places if how == "row" else 1  # they take turns
    assert ran[0] * factor <= pace.jobs[0] <= (whole - asked[0]) * factor
    assert asked[0] <= max(pace.exchanges) <= whole - ran[0]
    assert len(pace.jobs) == 1


def test_what_is_not_begun_in_time_goes_to_others_untouched(app: Oncely, url: str) -> None:
    with scene(app) as first, Oncely(url) as elsewhere:
        hand = first.in_hand()
        # Something wakes it for nothing: that must not make it forget what it has in hand.
        app.enqueue("other", queue="dead", delay=0)
        app._engine.run(
            lambda _: claims.claim("dead", worker="d", nonce=1, lease_seconds=0, limit=1), "write"
        )
        first.wake()
        wait_until(lambda: not first.worker._wake.is_set(), "it looks around")
        first.pace.fetch_no_more()
        first.let_hand_time_pass()
        wait_until(lambda: not first.in_hand(), "it hands back what it does not begin")
        assert all(untouched(app, job_id) for job_id in hand)

        @elsewhere.job("slow")
        async def at_once(ctx: Context) -> str:
            return "elsewhere"

        @elsewhere.job("other")
        async def other(ctx: Context) -> None: ...

        other_worker = elsewhere.worker(poll_seconds=0.1)
        with running(other_worker, lambda: None):
            rest = [job_id for job_id in first.slow if job_id not in first.begun]
            wait_until(
                lambda: all(found(app, job_id).state == "completed" for job_id in rest),
                "somebody else runs them",
            )
        for job_id in rest:
            job = found(app, job_id)
            assert (job.result, job.attempt, len(job.executions)) == ("elsewhere", 1, 1)
        assert len(first.begun) == PLACES


def test_who_is_told_to_stop_hands_back_at_once_what_it_has_not_begun(app: Oncely) -> None:
    with scene(app) as it:
        hand = it.in_hand()
        it.worker.stop()
        wait_until(lambda: not it.in_hand(), "it hands back what it has not begun")
        wait_until(lambda: sorted(leased(app)) == sorted(it.begun), "what has ended is settled")
        assert all(untouched(app, job_id) for job_id in hand)
        # Before it is told to stop again, which gives no grace.
        it.let_go()
        wait_until(lambda: leased(app) == [], "what was begun ends")
    assert [found(app, job_id).state for job_id in it.begun] == ["completed"] * PLACES
    assert len(it.begun) == PLACES


def test_a_worker_whose_task_is_cancelled_hands_back_what_it_has_not_begun(app: Oncely) -> None:
    it = Scene(app)

    async def run() -> None:
        task = asyncio.create_task(it.worker.arun())
        await asyncio.to_thread(it.at_work)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    it.worker._grace_seconds = 0.0
    asyncio.run(run())
    assert leased(app) == []
    rest = [job_id for job_id in it.slow if job_id not in it.begun]
    assert all(untouched(app, job_id) for job_id in rest)
    outcomes = [[e.outcome for e in found(app, job_id).executions] for job_id in it.begun]
    assert outcomes == [["released"]] * PLACES


def test_a_job_that_is_cancelled_in_hand_is_not_begun_once_its_worker_notices(app: Oncely) -> None:
    with scene(app) as it:
        [victim, *_] = it.in_hand()
        app.cancel(victim)
        assert found(app, victim).state == "cancelled"
        it.in_worker(it.worker._renew_now())
        it.let_go()
        rest = [job_id for job_id in it.slow if job_id != victim]
        wait_until(
            lambda: all(found(app, job_id).state == "completed" for job_id in rest), "all end"
        )
    assert victim not in it.begun
    assert sorted(it.begun) == sorted(rest)
    assert [e.outcome for e in found(app, victim).executions] == ["cancelled"]


def test_what_is_in_hand_is_not_lost_if_the_store_did_not_answer(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal that came to nothing says only that the jobs may be lost. The leases still stand,
    and keep jobs that nobody runs from others."""

    async def no_answer(make: Any) -> None:
        raise TimeoutError

    async def renew_in_vain() -> None:
        with monkeypatch.context() as store:
            store.setattr(it.worker._store, "ask", no_answer)
            await it.worker._renew_now()

    with scene(app) as it:
        it.in_worker(renew_in_vain())
        it.let_go()
        wait_until(
            lambda: all(found(app, job_id).state == "completed" for job_id in it.slow), "all end"
        )


def test_a_paused_queue_gets_back_what_was_fetched_ahead(app: Oncely) -> None:
    with scene(app) as it:
        hand = it.in_hand()
        app.pause("default")
        it.let_hand_time_pass()
        wait_until(lambda: not it.in_hand(), "it hands back what it has not begun")
        it.pace.hand_seconds = AN_HOUR
        it.let_go()
        wait_until(lambda: leased(app) == [], "what was begun ends")
        assert all(untouched(app, job_id) for job_id in hand)
        assert len(it.begun) == PLACES
        app.resume("default")
        wait_until(
            lambda: all(found(app, job_id).state == "completed" for job_id in it.slow), "it goes on"
        )


def test_what_has_ended_makes_room_for_the_next_of_the_lease(app: Oncely) -> None:
    """The worker died with five in its lease, two of which it ran at a time. Of another one the
    ledger knows that it was begun."""
    ids = [receipt.job_id for receipt in app.enqueue_many([NewJob("k")] * 6).receipts]
    lease = app._engine.run(
        lambda _: claims.claim(
            "default", worker="w", nonce=1, lease_seconds=0, limit=6, started=PLACES
        ),
        "write",
    )
    assert end(app, lease[0], "completed")
    sql(
        app,
        """insert into oncely.effect (job_id, name, verb, state, fingerprint, epoch, begun_at)
        select id, 'charge', 'fence', 'begun', '1', :epoch, created_at from oncely.job
        where cast(id as text) = :id""",
        epoch=lease[4].fence.epoch,
        id=ids[4],
    )
    fates = app._engine.run(lambda _: deliver.reclaim(1), "transaction")
    assert [
        (job.job_id, job.fate) for job in sorted(fates, key=lambda job: ids.index(job.job_id))
    ] == [
        (ids[1], "crashed"),
        (ids[2], "crashed"),
        (ids[3], "untried"),
        (ids[4], "crashed"),
        (ids[5], "untried"),
    ]
    # They keep their place. The others may have been begun as well, and so have one crash too.
    assert [(job.job_id, job.crashes) for job in claim(app, limit=9)] == [(id, 1) for id in ids[1:]]


def test_from_several_queues_no_more_is_claimed_than_can_count_as_begun(app: Oncely) -> None:
    started: list[int] = []

    @app.job("quick")
    async def quick(ctx: Context) -> None:
        if len(seen) % 20 == 0:
            rows = await asyncio.to_thread(sql, app, "select started from oncely.lease")
            started.extend(n for (n,) in rows)
        seen.append(ctx.job_id)

    seen: list[str] = []
    app.enqueue_many(NewJob("quick", queue=f"q{n % 5}") for n in range(QUICK))
    worker = app.worker(concurrency=PLACES)
    given_pace(worker)
    asyncio.run(worker.drain())
    assert len(seen) == QUICK
    assert max(started) <= PLACES
    assert max(lease_sizes(app)) > PLACES


def most_leased(app: Oncely, group: str | None) -> tuple[int, Worker]:
    """Of quick jobs, with four places: how many at most were claimed and not settled."""
    most = 0
    seen: list[str] = []

    @app.job("quick")
    async def quick(ctx: Context) -> None:
        nonlocal most
        if len(seen) % 20 == 0:
            most = max(most, len(await asyncio.to_thread(leased, app)))
        seen.append(ctx.job_id)

    app.enqueue_many(NewJob("quick", group_key=group) for _ in range(QUICK))
    worker = app.worker(concurrency=4, queues=["default"])
    given_pace(worker)
    asyncio.run(worker.drain())
    assert len(seen) == QUICK
    return most, worker


@pytest.mark.parametrize("limit", [{"concurrency": 6}, {"rate": (10_000, 1)}])
@pytest.mark.parametrize("group", [None, "g"])
def test_jobs_under_a_limit_with_little_room_are_not_fetched_ahead(
    app: Oncely, group: str | None, limit: dict[str, Any]
) -> None:
    if group is None:
        app.set_queue("default", **limit)
    else:
        app.set_group(group, **limit)
    most, _ = most_leased(app, group)
    assert 0 < most <= 4


@pytest.mark.parametrize("group", [None, "g"])
def test_jobs_under_a_limit_with_much_room_are_fetched_ahead_and_count(
    app: Oncely, group: str | None
) -> None:
    if group is None:
        app.set_queue("default", concurrency=60)
    else:
        app.set_group(group, concurrency=60)
    most, worker = most_leased(app, group)
    assert most <= 60
    sizes = lease_sizes(app)
    assert max(sizes) > 4, (sizes, worker._outlook, vars(worker._pace), vars(worker))


def test_higher_priorities_come_first_also_out_of_the_hand(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of two exchanges under way at once, the answer to the second may come first.
    monkeypatch.setattr(Worker, "_by_turns", False)
    order: list[int] = []

    @app.job("quick")
    async def quick(ctx: Context, priority: int) -> None:
        order.append(priority)

    app.enqueue_many(NewJob("quick", n % 3, priority=n % 3) for n in range(QUICK))
    worker = app.worker(concurrency=PLACES)
    given_pace(worker)
    asyncio.run(worker.drain())
    assert order == sorted(order, reverse=True)
    assert max(lease_sizes(app)) > PLACES
