"""PostgreSQL does what it was asked, and the answer never comes: who was it, and is it there?

A proxy of our own cuts the connection at a chosen statement. The engine asks once more with the
same ids, and what was taken in before is recognised as its own.
"""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Event
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from oncely import KeyConflict, NewJob, Oncely, Receipt, StoreUnavailable
from oncely.surface.http.service import Service, Settings
from tests.cluster import Cluster
from tests.crash.checker import Census, check
from tests.crash.fleet import thread
from tests.crash.proxy import Fault, Proxy, terminate_what_has_answered
from tests.crash.publishers import Call, work
from tests.engine import test_together as together
from tests.engine.steps import claim_one, sql
from tests.waiting import PATIENCE_SECONDS, wait_until

ADMIT = "insert into"
COMMIT = "COMMIT"
FIND = "standing"
SHAPES = {
    "none": Call(),
    "idempotency": Call(idempotency_key="k"),
    "unique": Call(unique_key="u"),
    "both": Call("k", "u"),
}
shapes = pytest.mark.parametrize("shape", SHAPES)


@pytest.fixture(scope="module")
def database(cluster: Cluster) -> Iterator[Oncely]:
    name = f"test_{uuid4().hex}"
    with Oncely(cluster.create_database(name)) as app:
        app.migrate()
        yield app
    cluster.drop_later(name)


@pytest.fixture
def direct(database: Oncely) -> Oncely:
    """Past the proxy, an empty store: for what happens meanwhile, and to look."""
    with psycopg.connect(database.url) as connection:
        connection.execute(
            "truncate oncely.job, oncely.ready, oncely.lease, oncely.outcome, oncely.execution, "
            "oncely.idempotency_key, oncely.unique_key"
        )
    return database


@pytest.fixture
def proxy(direct: Oncely) -> Iterator[Proxy]:
    with Proxy(direct.url) as proxy:
        yield proxy


@pytest.fixture
def far(proxy: Proxy) -> Iterator[Oncely]:
    """Through the proxy, with a connection that is open already."""
    with Oncely(proxy.url) as app:
        app.jobs()
        yield app


def last_statement(shape: str) -> str:
    """What commits: two keys take a transaction, without them one statement is one."""
    return COMMIT if shape == "both" else ADMIT


def assert_one(url: str, receipt: Receipt) -> Census:
    census = check(url)
    assert list(census.jobs) == [receipt.job_id]
    assert receipt.inserted
    return census


@shapes
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_answer_is_lost(
    direct: Oncely, proxy: Proxy, far: Oncely, shape: str, when: Any
) -> None:
    proxy.arm(Fault(last_statement(shape), when))
    receipt = SHAPES[shape].send(far)
    assert proxy.pending == 0
    assert_one(direct.url, receipt)
    assert SHAPES[shape].send(far).inserted == (shape == "none")


@shapes
def test_an_answer_is_lost_by_a_task(direct: Oncely, proxy: Proxy, far: Oncely, shape: str) -> None:
    proxy.arm(Fault(last_statement(shape)))
    receipt = asyncio.run(far.aenqueue("race", {"n": 1}, queue="races", **SHAPES[shape]._asdict()))
    assert proxy.pending == 0
    assert_one(direct.url, receipt)


@shapes
def test_prepared_statements_are_cut_too(
    direct: Oncely, proxy: Proxy, far: Oncely, shape: str
) -> None:
    """After a few calls the driver sends a name instead of the text."""
    for n in range(5):
        far.enqueue("warm", idempotency_key=f"warm-{n}", unique_key=f"warm-{n}")
    proxy.arm(Fault(last_statement(shape)))
    receipt = SHAPES[shape].send(far)
    assert proxy.pending == 0
    assert receipt.inserted
    assert len(check(direct.url).jobs) == 6


def mixed_batch() -> list[NewJob]:
    """100 jobs with all shapes of keys, ten of which repeat one before them."""
    made = []
    for n in range(30):
        made += [
            Call().job(),
            Call(idempotency_key=f"k{n}").job(),
            Call(unique_key=f"u{n}").job(),
        ]
    repeats = [Call(idempotency_key=f"k{n}").job() for n in range(5)]
    repeats += [Call(unique_key=f"u{n}").job() for n in range(5)]
    return made[:80] + [Call(f"both{n}", f"both{n}").job() for n in range(10)] + repeats


@pytest.mark.parametrize("text", [ADMIT, COMMIT])
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_answer_to_a_batch_is_lost(
    direct: Oncely, proxy: Proxy, far: Oncely, text: str, when: Any
) -> None:
    batch = mixed_batch()
    proxy.arm(Fault(text, when))
    done = far.enqueue_many(batch)
    assert proxy.pending == 0
    assert (done.inserted, done.skipped) == (90, 10)
    assert [receipt.inserted for receipt in done.receipts] == [True] * 90 + [False] * 10
    census = check(direct.url)
    assert {receipt.job_id for receipt in done.receipts} == census.jobs.keys()
    assert [r.job_id for r in done.receipts[90:]] == [
        *(done.receipts[3 * n + 1].job_id for n in range(5)),
        *(done.receipts[3 * n + 2].job_id for n in range(5)),
    ]


@shapes
def test_both_answers_are_lost(direct: Oncely, proxy: Proxy, far: Oncely, shape: str) -> None:
    proxy.arm(Fault(last_statement(shape)), Fault(COMMIT if shape == "both" else ""))
    with pytest.raises(StoreUnavailable):
        SHAPES[shape].send(far)
    assert proxy.pending == 0
    (id,) = check(direct.url).jobs
    if shape != "none":
        again = SHAPES[shape].send(far)
        assert (again.job_id, again.inserted) == (id, False)
        check(direct.url)


@shapes
def test_neither_try_arrives(direct: Oncely, proxy: Proxy, far: Oncely, shape: str) -> None:
    proxy.arm(Fault(ADMIT, "before"), Fault(ADMIT, "before"))
    with pytest.raises(StoreUnavailable):
        SHAPES[shape].send(far)
    assert check(direct.url).jobs == {}
    assert_one(direct.url, SHAPES[shape].send(far))


@shapes
def test_completed_before_the_second_try(
    direct: Oncely, proxy: Proxy, far: Oncely, shape: str
) -> None:
    done: list[str] = []
    proxy.arm(
        Fault(
            last_statement(shape),
            hook=lambda: done.extend(job.job_id for job in work(direct, limit=10)),
        )
    )
    receipt = SHAPES[shape].send(far)
    assert done == [receipt.job_id]
    census = assert_one(direct.url, receipt)
    assert receipt.state == "completed"
    assert census.unique_keys == []


@pytest.mark.parametrize("text", [ADMIT, COMMIT])
def test_a_batch_completed_before_the_second_try(
    direct: Oncely, proxy: Proxy, far: Oncely, text: str
) -> None:
    """Its repeats stay repeats, although the unique keys are free again."""
    batch = mixed_batch()
    proxy.arm(Fault(text, hook=lambda: drained(direct)))
    done = far.enqueue_many(batch)
    census = check(direct.url)
    assert [receipt.inserted for receipt in done.receipts] == [True] * 90 + [False] * 10
    assert {receipt.job_id for receipt in done.receipts} == census.jobs.keys()
    if text == COMMIT:
        assert census.count("completed") == 90
        assert census.unique_keys == []


def drained(app: Oncely) -> None:
    while work(app, limit=100):
        pass


@shapes
@pytest.mark.parametrize("ended", [False, True])
def test_the_first_try_arrives_after_the_second(
    direct: Oncely, proxy: Proxy, far: Oncely, shape: str, ended: bool
) -> None:
    """A packet that was on its way: nobody listens for the answer, and it must not count."""
    answered = Event()

    def wait() -> None:
        assert answered.wait(PATIENCE_SECONDS)

    late = Fault(ADMIT, "late", hook=wait)
    proxy.arm(late)
    receipt = SHAPES[shape].send(far)
    if ended:
        drained(direct)
    answered.set()
    assert late.happened.wait(PATIENCE_SECONDS)
    census = assert_one(direct.url, receipt)
    assert census.count("completed") == ended


def waiting_sessions(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "select count(*) from pg_stat_activity "
            "where datname = current_database() and wait_event_type = 'Lock'"
        ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("shape", ["idempotency", "unique", "both"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_both_tries_run_at_once(
    direct: Oncely, proxy: Proxy, far: Oncely, shape: str, end: str
) -> None:
    """The first try waits in the server for a lock when its client goes; so does the second."""
    call = SHAPES[shape]
    with psycopg.connect(direct.url) as other:
        first = direct.enqueue("race", {"n": 1}, queue="races", tx=other, **call._asdict())
        sent = thread(call.send, far)
        wait_until(lambda: waiting_sessions(direct.url) == 1)
        proxy.cut()
        wait_until(lambda: waiting_sessions(direct.url) == 2)
        getattr(other, end)()
        receipt = sent.result(PATIENCE_SECONDS)
    wait_until(lambda: waiting_sessions(direct.url) == 0)
    census = check(direct.url)
    assert list(census.jobs) == [receipt.job_id]
    assert receipt.inserted == (end == "rollback")
    assert (receipt.job_id == first.job_id) == (end == "commit")


@contextmanager
def sharing_a_write(proxy: Proxy, far: Oncely) -> Iterator[list[Future[Receipt]]]:
    """One caller whose write is held back, and sixteen more who wait and will share the next.

    They go on when the block ends."""
    busy, go = Event(), Event()

    def hold() -> None:
        busy.set()
        assert go.wait(PATIENCE_SECONDS)

    proxy.arm(Fault(ADMIT, "hold", hook=hold))
    leader = thread(far.enqueue, "race")
    assert busy.wait(PATIENCE_SECONDS)
    others = [thread(far.enqueue, "race") for _ in range(16)]
    wait_until(lambda: len(far._enqueuer._gather._waiting) == 16)
    yield [leader, *others]
    go.set()


def test_callers_that_share_a_write(direct: Oncely, proxy: Proxy, far: Oncely) -> None:
    """Sixteen threads without keys; the write they share loses both answers.

    They are then written for one by one, and each is told of the job that is there already.
    """
    with sharing_a_write(proxy, far) as calls:
        proxy.arm(Fault(ADMIT), Fault(FIND))
    receipts = [call.result(PATIENCE_SECONDS) for call in calls]
    assert proxy.pending == 0
    census = check(direct.url)
    assert all(receipt.inserted for receipt in receipts)
    assert sorted(receipt.job_id for receipt in receipts) == sorted(census.jobs)


def test_callers_that_share_a_write_when_the_store_is_gone(
    direct: Oncely, proxy: Proxy, far: Oncely
) -> None:
    """They do not knock one after another: each knock may take seconds, and all must wait."""
    with sharing_a_write(proxy, far) as calls:
        before = proxy.connections
        proxy.refuse()
    for call in calls:
        assert isinstance(call.exception(PATIENCE_SECONDS), StoreUnavailable)
    assert proxy.connections - before <= 4
    assert len(check(direct.url).jobs) == 1


@pytest.mark.parametrize("late", [False, True])
def test_closing_under_callers_that_share_a_write(
    direct: Oncely, proxy: Proxy, far: Oncely, late: bool
) -> None:
    """Nobody is left waiting, and who was taken in has a receipt for it."""
    with sharing_a_write(proxy, far) as calls:
        closing = thread(far.close)
        wait_until(lambda: far._executor._shutdown)
        if late:
            calls.append(thread(asyncio.run, far.aenqueue("race")))
    closing.result(PATIENCE_SECONDS)
    for call in calls:
        assert isinstance(call.exception(PATIENCE_SECONDS), StoreUnavailable | None)
    receipts = [call.result() for call in calls if call.exception() is None]
    assert calls[0].exception(PATIENCE_SECONDS) is None
    assert sorted(receipt.job_id for receipt in receipts) == sorted(check(direct.url).jobs)


@shapes
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cut_at_every_statement(direct: Oncely, proxy: Proxy, shape: str, when: Any) -> None:
    """From the first connection to the receipt: cut at the n-th statement, for each n."""
    call = SHAPES[shape]
    cuts = 0
    unavailable = 0
    while True:
        fault = Fault("", when, skip=cuts)
        proxy.arm(fault)
        numbered = Call(*(key and f"{key}-{cuts}" for key in call))
        with Oncely(proxy.url) as far:
            before = len(check(direct.url).jobs)
            try:
                receipt = numbered.send(far)
            except StoreUnavailable:
                unavailable += 1
                if shape != "none":
                    numbered.send(far)
            else:
                assert receipt.inserted, f"cut {cuts}"
        more = len(check(direct.url).jobs) - before
        assert more == 1 or (shape == "none" and more == 0), f"cut {cuts}"
        if proxy.pending:
            break
        cuts += 1
    assert cuts >= 5
    assert unavailable < cuts


def test_what_may_have_been_counted_is_not_counted_again(direct: Oncely, proxy: Proxy) -> None:
    """A few are missing rather than twice there."""
    counted = Fault("i.label, i.n")
    with Oncely(proxy.url) as far:
        far.enqueue("count", 1, idempotency_key="c:1")
        proxy.arm(counted)
        with pytest.raises(KeyConflict):
            far.enqueue("count", 2, idempotency_key="c:1")
        assert counted.happened.wait(PATIENCE_SECONDS)
    assert sum(direct.traffic().values("key_conflicts", kind="count")) == 1


def test_times_that_may_have_arrived_are_not_added_again(direct: Oncely, proxy: Proxy) -> None:
    direct.enqueue("timed")
    claimed = claim_one(direct)

    async def serve(app: Oncely) -> None:
        witness = Service(app, Settings()).witness
        witness.claimed([claimed])
        await witness.tell()

    with Oncely(proxy.url) as far:
        far.jobs()
        proxy.arm(Fault(COMMIT))
        asyncio.run(serve(far))
    assert proxy.pending == 0
    took = direct.traffic().latency("waited", kind="timed")
    assert took is not None
    assert took.count == 1


@pytest.mark.parametrize("how", ["refused", "closed"])
def test_no_connection(direct: Oncely, how: str) -> None:
    with Proxy(direct.url) as proxy, Oncely(proxy.url) as far:
        far.enqueue("race")
        if how == "refused":
            proxy.__exit__()
        proxy.refuse()
        for call in SHAPES.values():
            with pytest.raises(StoreUnavailable):
                call.send(far)
        with pytest.raises(StoreUnavailable):
            far.enqueue_many(mixed_batch())
        with pytest.raises(StoreUnavailable):
            asyncio.run(far.aenqueue("race"))
        with pytest.raises(StoreUnavailable):
            far.jobs()
        with pytest.raises(StoreUnavailable):
            far.migrate()
        with pytest.raises(StoreUnavailable):
            far.examine()
        assert len(check(direct.url).jobs) == 1
        if how == "closed":
            proxy.relent()
            assert SHAPES["both"].send(far).inserted


@shapes
def test_a_slow_answer_is_waited_for(direct: Oncely, proxy: Proxy, far: Oncely, shape: str) -> None:
    proxy.arm(Fault(last_statement(shape), "hold", hook=lambda: time.sleep(0.2)))
    assert_one(direct.url, SHAPES[shape].send(far))


def unsynced(text: str, direct: Oncely) -> Fault:
    return Fault(text, "unsynced", hook=lambda: terminate_what_has_answered(direct.url))


@shapes
def test_a_session_that_ends_between_its_answer_and_its_commit_has_done_nothing(
    direct: Oncely, proxy: Proxy, far: Oncely, shape: str
) -> None:
    fault = unsynced(ADMIT, direct)
    proxy.arm(fault)
    receipts = far.enqueue_many([NewJob("k", **SHAPES[shape]._asdict())]).receipts
    assert fault.happened.wait(PATIENCE_SECONDS)
    assert list(check(direct.url).jobs) == [receipt.job_id for receipt in receipts]


@shapes
def test_a_session_that_ends_while_it_prepares_a_statement_has_done_nothing(
    direct: Oncely, proxy: Proxy, far: Oncely, shape: str
) -> None:
    fault = unsynced(ADMIT, direct)
    fault.prepares = True
    proxy.arm(fault)
    calls = 0
    while proxy.pending:  # the driver prepares what is asked a second time
        assert SHAPES[shape].send(far).inserted == (calls == 0 or shape == "none")
        calls += 1
    assert fault.happened.wait(PATIENCE_SECONDS)
    assert len(check(direct.url).jobs) == (calls if shape == "none" else 1)


def test_a_pipeline_that_ends_before_its_commit_has_done_nothing(
    direct: Oncely, proxy: Proxy, far: Oncely
) -> None:
    direct.enqueue_many(NewJob("k", n) for n in range(3))
    fault = unsynced("lease", direct)
    fault.stays_open = True
    proxy.arm(fault)
    runs: list[bool] = []
    together.claims(far, [together.COUNT, together.claim_one(7)], runs)
    assert fault.happened.wait(PATIENCE_SECONDS)
    assert runs == [False, True]
    assert sql(direct, "select count(*) from oncely.lease") == [(1,)]
