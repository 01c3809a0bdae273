"""A lease whose jobs have all returned is settled whole: as if one by one, and never in part."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from oncely import Context, NewJob, Oncely, Retry
from oncely.store import deliver
from oncely.store.claim import Claimed, Fence, claim_statement
from oncely.store.plan import Plan, Row, Statement, Together
from oncely.store.swap import Completed, Swapped, settle_whole, swap
from oncely.worker.ends import Ends
from tests.engine.steps import TABLES, claim, counts, found, let_days_pass, retry, sql
from tests.engine.test_counters import totals
from tests.seed import dice
from tests.waiting import PATIENCE_SECONDS

Lease = list[Completed]


@pytest.fixture
def app(shared_app: Oncely) -> Oncely:
    """An empty store. What most of these tests do takes far less than to make one."""
    for table in (*TABLES, "tally", "counter", "repeat"):
        sql(shared_app, f"delete from oncely.{table}")
    return shared_app


def ended(claimed: Sequence[Claimed], results: Sequence[object] | None = None) -> Lease:
    """As the worker gathers them: they end in any order, and are one lease in the end."""
    ends = Ends()
    ends.expect(claimed)
    pairs = list(zip(claimed, results or [None] * len(claimed), strict=True))
    dice("ended").shuffle(pairs)
    for job, result in pairs:
        ends.add(job, Completed(job, msgspec.json.encode(result).decode()), 0.0)
    [lease], singles = ends.take(0.0, linger=True)
    assert singles == []
    return lease


def swapped(app: Oncely, *leases: Lease, queue: str | None = None, limit: int = 0) -> Swapped:
    wanted: list[Statement] = []
    if queue is not None:
        wanted.append(
            claim_statement(
                queue, worker="w2", nonce=99, lease_seconds=60, limit=limit, started=limit
            )
        )
    answer = app._engine.run(lambda _: swap(leases, wanted), "write")
    assert answer is not None
    return answer


def fences(*leases: Lease) -> set[Fence]:
    return {lease[0].claimed.fence for lease in leases}


def under(lease: Lease, fence: Fence) -> Lease:
    return [
        Completed(msgspec.structs.replace(end.claimed, fence=fence), end.result) for end in lease
    ]


def everything(app: Oncely) -> dict[str, list[str]]:
    """All that is in the tables that a settle writes to."""
    tables = (*TABLES, "tally", "repeat")
    rows = {name: sql(app, f"select * from oncely.{name}") for name in tables}
    return {name: sorted(repr(row) for row in found) for name, found in rows.items()}


RESULTS: list[Any] = [
    None, 0, False, "", "null", [], {"a": None}, None, 'q"uo\\te', "line\nbreak", "ü{},[]", 1e300,
]  # fmt: skip


def test_every_result_and_attempt_is_kept_with_its_job(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(len(RESULTS)))
    for job in claim(app, limit=4)[1::2]:
        assert retry(app, job)
    let_days_pass(app, 1)
    app._engine.run(lambda _: deliver.reclaim(10), "transaction")
    claimed = claim(app, limit=len(RESULTS))
    assert sorted({job.attempt for job in claimed}) == [1, 2]
    lease = ended(claimed, RESULTS)
    assert swapped(app, lease).settled == fences(lease)
    for job, result in zip(claimed, RESULTS, strict=True):
        kept = found(app, job.job_id)
        assert (kept.state, kept.result, kept.attempt) == ("completed", result, job.attempt)
        assert kept.executions[-1].epoch == job.fence.epoch
        assert kept.executions[-1].worker == "worker-1"
    assert counts(app)["lease"] == 0


def test_what_is_left_out_of_the_message_is_filled_in(app: Oncely) -> None:
    """Attempts that are all 1, and results that are all null."""
    for retried in (None, 0, 2):
        for results in ([None] * 3, [None, None, 1], [1, None, None]):
            app.enqueue_many(NewJob("k", n) for n in range(3))
            first = claim(app, limit=3)
            back = [deliver.handed_back(job, tried=False) for job in first]
            if retried is not None:
                assert retry(app, first[retried])
                del back[retried]
            assert app._engine.run(lambda _, b=back: deliver.settle(b), "transaction") == []  # type: ignore[misc]
            claimed = claim(app, limit=3)
            lease = ended(claimed, results)
            assert swapped(app, lease).settled == fences(lease)
            kept = [found(app, job.job_id) for job in first]
            assert [job.attempt for job in kept] == [1 + (n == retried) for n in range(3)]
            assert [found(app, job.job_id).result for job in claimed] == results


def test_unique_keys_are_free_again_and_those_of_others_are_not(app: Oncely) -> None:
    for n in range(4):
        app.enqueue("k", n, unique_key=None if n == 1 else f"u{n}")
    lease = ended(claim(app, limit=3))
    swapped(app, lease)
    assert [app.enqueue("k", unique_key=f"u{n}").inserted for n in (0, 2, 3)] == [True, True, False]


def test_it_is_counted_as_if_settled_one_by_one(app: Oncely) -> None:
    kinds = ["a", "b", "a", "a", "c"]
    for suffix in ("", "-slow"):
        app.enqueue_many(NewJob(f"{kind}{suffix}", queue=f"q{suffix}") for kind in kinds)
    swapped(app, ended(claim(app, "q", limit=5)))
    slow = [deliver.completed(Completed(job, "null")) for job in claim(app, "q-slow", limit=5)]
    assert app._engine.run(lambda _: deliver.settle(slow), "transaction") == []
    counted = totals(app)
    for kind, n in (("a", 3), ("b", 1), ("c", 1)):
        assert counted["executions", "completed", kind] == n
        assert counted["executions", "completed", f"{kind}-slow"] == n
    assert sum(n for (name, *_), n in counted.items() if name == "executions") == 10


def test_who_waits_for_a_result_is_told(app: Oncely) -> None:
    receipts = [app.enqueue("k", n) for n in range(3)]
    claimed = claim(app, limit=3)
    with Oncely(app.url) as other:
        got: list[Any] = []
        waiting = threading.Thread(
            target=lambda: got.append(other.result(receipts[1].job_id, timeout=PATIENCE_SECONDS))
        )
        waiting.start()
        swapped(app, ended(claimed, [7, 8, 9]))
        waiting.join(PATIENCE_SECONDS)
    assert got == [8]


def test_with_another_fence_nothing_is_written(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n, unique_key=f"u{n}") for n in range(4))
    lease, other = ended(claim(app, limit=2)), ended(claim(app, limit=2))
    mine, theirs = lease[0].claimed.fence, other[0].claimed.fence
    before = everything(app)
    for wrong in (
        Fence(mine.epoch, mine.nonce ^ 1),
        Fence(mine.epoch + 1_000, mine.nonce),
        Fence(theirs.epoch, mine.nonce),
    ):
        assert swapped(app, under(lease, wrong)).settled == set()
        assert everything(app) == before
    assert swapped(app, lease).settled == fences(lease)


def test_a_lease_that_does_not_hold_exactly_so_many_jobs_is_left_alone(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n, unique_key=f"u{n}") for n in range(5))
    lease, other = ended(claim(app, limit=3)), ended(claim(app, limit=2))
    before = everything(app)
    stranger = under(other, lease[0].claimed.fence)
    for wrong in (lease[:2], lease[1:], [*lease, *stranger]):
        assert swapped(app, wrong).settled == set()
    assert everything(app) == before


def test_a_lease_that_others_took_back_and_claimed_is_theirs(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n, unique_key=f"u{n}") for n in range(3))
    zombie = ended(claim(app, limit=3), [1, 1, 1])
    let_days_pass(app, 1)
    app._engine.run(lambda _: deliver.reclaim(10), "transaction")
    before = everything(app)
    assert swapped(app, zombie).settled == set()
    assert everything(app) == before
    successor = ended(claim(app, limit=3, worker="w3"), [2, 2, 2])
    before = everything(app)
    assert swapped(app, zombie).settled == set()
    assert everything(app) == before
    assert swapped(app, successor, zombie).settled == fences(successor)
    assert {found(app, end.claimed.job_id).result for end in successor} == {2}
    assert swapped(app, successor).settled == set()
    assert counts(app)["outcome"] == 3


def test_of_several_leases_each_is_settled_or_not(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(8))
    leases = [ended(claim(app, limit=2), [n, n]) for n in range(3)]
    app.cancel(leases[1][0].claimed.job_id)
    answer = swapped(app, *leases, queue="default", limit=5)
    assert answer.settled == fences(leases[0], leases[2])
    assert len(answer.claimed) == 2
    states = [[found(app, end.claimed.job_id).state for end in lease] for lease in leases]
    assert states == [["completed"] * 2, ["cancelled", "running"], ["completed"] * 2]


def test_a_job_is_cancelled_out_of_a_lease_and_the_others_end(app: Oncely) -> None:
    """By a worker, from the claim to the last settle."""
    gone = threading.Event()
    victim: list[str] = []

    @app.job("cancel")
    def cancel(ctx: Context) -> str:
        app.cancel(victim[0])
        gone.set()
        return "done"

    @app.job("wait")
    def wait(ctx: Context) -> str:
        assert gone.wait(PATIENCE_SECONDS)
        return "done"

    receipts = app.enqueue_many([NewJob("cancel"), *[NewJob("wait")] * 4]).receipts
    victim.append(receipts[2].job_id)
    asyncio.run(app.worker(concurrency=5).drain())
    jobs = [found(app, receipt.job_id) for receipt in receipts]
    assert [job.state for job in jobs] == ["completed"] * 2 + ["cancelled"] + ["completed"] * 2
    assert [job.result for job in jobs] == ["done"] * 2 + [None] + ["done"] * 2
    assert totals(app)["executions", "completed", "wait"] == 3
    assert counts(app)["lease"] == 0


def test_ends_of_all_kinds_in_one_lease(app: Oncely) -> None:
    @app.job("mixed", retry=Retry(max_attempts=2, base=0))
    async def handle(ctx: Context, n: int) -> object:
        await asyncio.sleep(0.001 * (n % 3))
        if n % 5 == 0 and ctx.attempt == 1:
            raise ValueError
        return n if n % 2 else None

    receipts = app.enqueue_many(NewJob("mixed", n, unique_key=f"u{n}") for n in range(100)).receipts
    assert app.drain() == 120
    for n, receipt in enumerate(receipts):
        job = found(app, receipt.job_id)
        assert (job.state, job.result) == ("completed", n if n % 2 else None)
        assert job.attempt == (2 if n % 5 == 0 else 1)
    assert counts(app)["unique_key"] == counts(app)["lease"] == 0
    assert totals(app)["executions", "completed", "mixed"] == 100
    assert totals(app)["executions", "retried", "mixed"] == 20


def _claim_wrong() -> Statement:
    """A number that no column can hold."""
    return claim_statement("default", worker="w", nonce=2**70, lease_seconds=60, limit=1, started=1)


def _together(*parts: Statement) -> Plan[list[Row]]:
    return (yield Together(parts=parts))


@pytest.mark.parametrize("first", ["right", "wrong"])
def test_what_goes_together_is_done_whole_or_not_at_all(app: Oncely, first: str) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(4))
    lease = ended(claim(app, limit=2))
    before = everything(app)
    parts = [settle_whole([lease]), _claim_wrong()]
    with pytest.raises(Exception, match=r"range|large"):
        app._engine.run(lambda _: _together(*parts[:: 1 if first == "right" else -1]), "write")
    assert everything(app) == before
    assert swapped(app, lease, queue="default", limit=1).settled == fences(lease)


def test_the_rows_of_each_come_in_order(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(4))
    leases = [ended(claim(app, limit=1)) for _ in range(3)]
    rows = app._engine.run(
        lambda _: _together(*(settle_whole([lease]) for lease in leases)), "write"
    )
    told = [lease[0].claimed.fence for lease in leases]
    assert rows == [([(fence.epoch, fence.nonce)],) for fence in told]
