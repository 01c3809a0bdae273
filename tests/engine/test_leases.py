"""Leases: who may renew one, who may take one back, and what its holder may still say."""

import secrets
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec
import psycopg
import pytest

from oncely import Context, NewJob, Oncely, Retry, WorkerStuck
from oncely.store import claim as claims
from oncely.store import deliver
from oncely.store.caller import borrow
from oncely.store.claim import Claimed, Fence
from oncely.store.deliver import Settlement
from oncely.store.effects import Effect, begin
from oncely.store.plan import run
from oncely.store.swap import Completed, swap
from tests.engine.long_jobs import LongJobs
from tests.engine.steps import (
    claim,
    claim_one,
    end,
    found,
    give_out_again,
    let_days_pass,
    retry,
    run_out,
    sql,
)
from tests.time_outs import HeldTimers
from tests.waiting import PATIENCE_SECONDS, wait_until

A_MINUTE = 60 / 86_400
HAS_RUN_OUT_AND_IS_RENEWED = """
select bool_or(l.expires_at < clock_timestamp()
    and k.expires_at > clock_timestamp() + interval '3 s')
from oncely.lease l join oncely.locked_lease k using (epoch, nonce)
"""
"""A lease of 4 seconds, renewed a moment ago though it is locked."""


def renew(app: Oncely, worker: str, known: Iterable[Fence]) -> set[tuple[Fence, str]]:
    plan = deliver.renew(worker, known, 60)
    return app._engine.run(lambda _: plan, "transaction")


def jobs_of(claimed: Iterable[Claimed]) -> set[tuple[Fence, str]]:
    return {(job.fence, job.job_id) for job in claimed}


def reclaim(app: Oncely, limit: int = 10) -> list[tuple[str, str]]:
    taken = app._engine.run(lambda _: deliver.reclaim(limit), "transaction")
    return [(job.job_id, job.fate) for job in taken]


def next_expiry(app: Oncely) -> float | None:
    return app._engine.run(lambda _: deliver.next_expiry(), "read")


def completed(claimed: Claimed) -> Settlement:
    return Settlement(claimed.job_id, claimed.attempt, state="completed").under(claimed.fence)


def refused(app: Oncely, settlement: Settlement, *, again: bool = False) -> bool:
    left = app._engine.run(lambda _: deliver.settle([settlement], again=again), "transaction")
    return left == [settlement]


def test_a_worker_renews_its_own_leases_and_no_others(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(3))
    mine = [claim(app, worker="w1")[0], claim(app, worker="w1")[0]]
    [other] = claim(app, worker="w2")
    let_days_pass(app, A_MINUTE / 2)
    all_three = [job.fence for job in (*mine, other)]
    assert renew(app, "w1", all_three) == jobs_of(mine)
    let_days_pass(app, A_MINUTE * 3 / 4)
    assert reclaim(app) == [(other.job_id, "crashed")]
    assert renew(app, "w2", all_three) == set()


def test_a_worker_renews_only_the_leases_that_it_knows_of(app: Oncely) -> None:
    """A claim that was carried out after its worker had given it up is nobody's: it runs out."""
    app.enqueue_many(NewJob("k", n) for n in range(2))
    [known], [unknown] = claim(app), claim(app)
    let_days_pass(app, A_MINUTE / 2)
    assert renew(app, "worker-1", [known.fence]) == jobs_of([known])
    let_days_pass(app, A_MINUTE * 3 / 4)
    assert reclaim(app) == [(unknown.job_id, "crashed")]
    assert renew(app, "worker-1", []) == set()


def test_a_lease_that_has_run_out_is_not_renewed_and_may_still_be_ended(
    app: Oncely,
) -> None:
    app.enqueue("k")
    claimed = claim_one(app)
    let_days_pass(app, A_MINUTE * 2)
    assert renew(app, "worker-1", [claimed.fence]) == set()
    assert not refused(app, completed(claimed))


def test_a_lease_with_another_nonce_is_not_renewed(app: Oncely) -> None:
    app.enqueue("k")
    claimed = claim_one(app)
    other = Fence(claimed.fence.epoch, claimed.fence.nonce ^ 1)
    assert renew(app, "worker-1", [other]) == set()
    assert renew(app, "worker-1", [other, claimed.fence]) == jobs_of([claimed])


def test_ends_of_two_leases_with_one_epoch_are_told_apart(app: Oncely) -> None:
    """Both come from one worker, in one message."""
    job_id = app.enqueue("k").job_id
    old = claim_one(app)
    give_out_again(app, old.fence.epoch)
    new = claim_one(app)
    assert (new.job_id, new.fence.epoch) == (job_id, old.fence.epoch)
    ends = [completed(old), completed(new)]
    left = app._engine.run(lambda _: deliver.settle(ends), "transaction")
    assert left == [completed(old)]
    assert found(app, job_id).state == "completed"


def test_whole_leases_with_one_epoch_are_told_apart(app: Oncely) -> None:
    job_id = app.enqueue("k").job_id
    old = claim_one(app)
    give_out_again(app, old.fence.epoch)
    new = claim_one(app)
    over = [[Completed(old, '"old"')], [Completed(new, '"new"')]]
    swapped = app._engine.run(lambda _: swap(over), "transaction")
    assert swapped is not None
    assert swapped.settled == {new.fence}
    assert found(app, job_id).result == "new"


def test_an_end_from_before_a_failover_settles_nothing_of_a_lease_that_is_held(
    app: Oncely,
) -> None:
    """The worker lost its lease with the store's last seconds, and was given the same epoch again.
    What it ran under the first ends in the same turn as one of two jobs under the second."""
    first, second = (app.enqueue("k", n).job_id for n in range(2))
    with LongJobs(app, one_lease=True) as jobs:
        jobs.run_until_begun({first: 1, second: 1})
        [(epoch,)] = sql(app, "select epoch from oncely.lease")
        give_out_again(app, epoch)
        jobs.run_until_begun({first: 2, second: 2})
        jobs.end_together((first, 1), (first, 0))
        wait_until(lambda: found(app, first).state == "completed")
        assert found(app, second).state == "running", "completed while it still runs"
        jobs.end_together((second, 1))
        wait_until(lambda: found(app, second).state == "completed")


def test_a_lease_that_lasts_is_not_taken_back(app: Oncely) -> None:
    app.enqueue("k")
    claimed = claim_one(app)
    let_days_pass(app, A_MINUTE / 2)
    assert reclaim(app) == []
    assert end(app, claimed, "completed")


def test_only_so_many_leases_are_taken_back_at_once_and_the_oldest_first(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(3))
    ids = [claim_one(app).job_id for _ in range(3)]
    let_days_pass(app, 1)
    assert [reclaim(app, 2), reclaim(app, 2), reclaim(app, 2)] == [
        [(ids[0], "crashed"), (ids[1], "crashed")],
        [(ids[2], "crashed")],
        [],
    ]


def test_what_another_execution_settled_is_not_taken_for_ones_own(app: Oncely) -> None:
    """The answer to the first try was lost; meanwhile the job was taken back and settled by its
    successor. That there is an end does not mean that it is this one's."""
    app.enqueue("k")
    first = claim_one(app)
    let_days_pass(app, 1)
    assert reclaim(app) == [(first.job_id, "crashed")]
    second = claim_one(app)
    assert not refused(app, completed(second))
    assert refused(app, completed(first), again=True)
    assert not refused(app, completed(second), again=True)


def test_a_retry_that_was_sent_again_is_not_written_again(app: Oncely) -> None:
    job_id = app.enqueue("k").job_id
    claimed = claim_one(app)
    assert retry(app, claimed)
    how = Settlement(job_id, 1, outcome="retried", attempts=1).under(claimed.fence)
    assert not refused(app, how, again=True)
    assert found(app, job_id).attempt == 1
    assert len(found(app, job_id).executions) == 1


def test_a_late_end_with_another_nonce_is_refused(app: Oncely) -> None:
    app.enqueue("k")
    late = completed(claim_one(app))
    let_days_pass(app, 1)
    reclaim(app)
    assert refused(app, msgspec.structs.replace(late, nonce=late.nonce ^ 1))
    assert refused(app, msgspec.structs.replace(late, epoch=late.epoch + 1))
    assert not refused(app, late)


def test_a_late_retry_is_refused_for_the_job_is_in_line_already(app: Oncely) -> None:
    job_id = app.enqueue("k").job_id
    claimed = claim_one(app)
    let_days_pass(app, 1)
    reclaim(app)
    how = Settlement(job_id, 1, outcome="retried", attempts=1).under(claimed.fence)
    assert refused(app, how)
    assert sql(app, "select count(*) from oncely.ready") == [(1,)]


def test_a_crash_keeps_the_unique_key_and_a_poison_pill_frees_it(app: Oncely) -> None:
    app.enqueue("k", unique_key="u")
    for _ in range(3):
        assert not app.enqueue("k", unique_key="u").inserted
        claim_one(app)
        let_days_pass(app, 1)
        reclaim(app)
    assert app.enqueue("k", unique_key="u").inserted


def test_the_next_expiry_is_that_of_the_lease_that_runs_out_first(app: Oncely) -> None:
    assert next_expiry(app) is None
    app.enqueue_many(NewJob("k", n) for n in range(2))
    first = claim_one(app)
    let_days_pass(app, A_MINUTE / 2)
    claim_one(app)
    left = next_expiry(app)
    assert left is not None
    assert 0 < left <= 30
    assert end(app, first, "completed")
    later = next_expiry(app)
    assert later is not None
    assert left < later <= 60
    let_days_pass(app, A_MINUTE * 2)
    over = next_expiry(app)
    assert over is not None
    assert over <= 0
    assert len(reclaim(app)) == 1
    assert next_expiry(app) is None


def crashes_of_dead_worker(app: Oncely, *, limit: int, started: int) -> list[int]:
    """A worker claims jobs in one lease and dies. What it claimed had so many crashes before."""
    nonce = secrets.randbits(60)
    plan = claims.claim(
        "default", worker="w", nonce=nonce, lease_seconds=60, limit=limit, started=started
    )
    jobs = app._engine.run(lambda _: plan, "transaction")
    run_out(app)
    return [job.crashes for job in jobs]


def test_of_jobs_that_died_together_none_is_a_poison_pill_until_it_dies_alone(app: Oncely) -> None:
    """One of them may have killed the workers, and the store cannot say which."""
    app.enqueue_many(NewJob("k", n) for n in range(3))
    rounds = [crashes_of_dead_worker(app, limit=3, started=3) for _ in range(5)]
    assert rounds == [[0] * 3, [1] * 3, [2] * 3, [2] * 3, [2] * 3]
    assert {job.state for job in app.jobs()} == {"pending"}
    assert crashes_of_dead_worker(app, limit=1, started=1) == [2]
    failed, *others = sorted(app.jobs(), key=lambda job: job.payload)
    assert (failed.state, failed.error["type"]) == ("failed", "PoisonPill")
    assert [job.state for job in others] == ["pending", "pending"]
    assert [len(found(app, job.job_id).executions) for job in (failed, *others)] == [6, 5, 5]


def test_what_a_dead_worker_had_fetched_ahead_counts_one_crash_and_no_more(app: Oncely) -> None:
    """It may be what killed the worker: whoever claims it next is careful. It takes more than
    that to make it a poison pill."""
    app.enqueue_many(NewJob("k", n) for n in range(3))
    rounds = [crashes_of_dead_worker(app, limit=3, started=1) for _ in range(4)]
    assert rounds == [[0, 0, 0], [1, 1, 1], [2, 1, 1], [1, 1]]
    failed, *others = sorted(app.jobs(), key=lambda job: job.payload)
    assert (failed.state, failed.error["type"]) == ("failed", "PoisonPill")
    assert [found(app, job.job_id).executions[0].outcome for job in others] == ["crashed"] * 2


def test_a_lease_that_a_transaction_has_locked_is_held_and_not_waited_for(
    migrated: None, postgres_url: str
) -> None:
    """On SQLite there are no locks on rows: who writes keeps all others waiting."""
    with Oncely(postgres_url) as app, psycopg.connect(postgres_url) as caller:
        app.migrate()
        app.enqueue_many(NewJob("k", n) for n in range(3))
        shared, [alone] = claim(app, limit=2), claim(app)
        known = {job.fence for job in (*shared, alone)}
        caller.execute("select from oncely.lease where epoch = %s for update", [alone.fence.epoch])
        assert renew(app, "worker-1", known) == jobs_of([*shared, alone])
        caller.rollback()
        # As if the lease had run out while it was locked.
        sql(
            app,
            f"update oncely.lease set expires_at = claimed_at where epoch = {alone.fence.epoch}",
        )
        assert reclaim(app) == []
        left = next_expiry(app)
        assert left is not None
        assert 0 < left <= 60
        assert renew(app, "worker-1", known) == jobs_of([*shared, alone])
        let_days_pass(app, A_MINUTE * 2)
        sql(app, "update oncely.locked_lease set expires_at = clock_timestamp()")
        assert renew(app, "worker-1", known) == set()
        assert {job_id for job_id, _ in reclaim(app)} == {job.job_id for job in (*shared, alone)}
        assert sql(app, "select count(*) from oncely.locked_lease") == [(0,)]


def test_a_lease_that_has_run_out_is_held_only_while_it_is_locked(
    migrated: None, postgres_url: str
) -> None:
    with Oncely(postgres_url) as app, psycopg.connect(postgres_url) as caller:
        app.migrate()
        app.enqueue("k")
        claimed = claim_one(app)
        sql(app, "update oncely.lease set expires_at = claimed_at")
        assert renew(app, "worker-1", [claimed.fence]) == set()
        caller.execute("select from oncely.lease for update")
        assert renew(app, "worker-1", [claimed.fence]) == jobs_of([claimed])
        caller.rollback()
        assert reclaim(app) == []


def test_a_transaction_that_fails_after_its_lease_has_run_out_counts_no_crash(
    migrated: None, postgres_url: str
) -> None:
    """It locks the lease for longer than that lasts, and is then refused as not serializable. Its
    worker lives, and has renewed the lease meanwhile: nobody else takes the job."""
    completed, fail, failed, go_on = (threading.Event() for _ in range(4))
    with Oncely(postgres_url) as app:
        app.migrate()
        sql(app, "create table account (cents integer)")
        sql(app, "insert into account values (0)")

        @app.job("pay", retry=Retry(base=0.01))
        def pay(ctx: Context) -> None:
            if ctx.attempt > 1:
                return
            try:
                with psycopg.connect(app.url) as tx:
                    tx.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
                    ctx.complete("paid", tx=tx)
                    completed.set()
                    assert fail.wait(PATIENCE_SECONDS)
                    tx.execute("update account set cents = cents + 1")
            finally:
                failed.set()
                assert go_on.wait(PATIENCE_SECONDS)

        job_id = app.enqueue("pay").job_id
        with LongJobs(app, lease_seconds=4):
            assert completed.wait(PATIENCE_SECONDS)
            sql(app, "update account set cents = cents + 1")
            wait_until(lambda: sql(app, HAS_RUN_OUT_AND_IS_RENEWED) == [(True,)])
            fail.set()
            assert failed.wait(PATIENCE_SECONDS)
            assert reclaim(app) == []
            go_on.set()
            wait_until(lambda: found(app, job_id).state == "completed")
        job = found(app, job_id)
        assert [each.outcome for each in job.executions] == ["retried", "completed"]
        assert "SerializationFailure" in str(job.executions[0].error)


def test_the_effects_of_a_job_do_not_keep_its_lease_from_being_renewed(
    migrated: None, postgres_url: str
) -> None:
    """Their intents lock the lease against whoever would take the job, one after another."""
    with Oncely(postgres_url) as app, psycopg.connect(postgres_url) as caller:
        app.migrate()
        app.enqueue("k")
        claimed = claim_one(app)
        effect = Effect(claimed.job_id, claimed.fence, "mail", "step", "1:0", "[]")
        plan = begin(effect)
        caller_tx = borrow(caller)
        run(plan, lambda statement: caller_tx.ask(app._engine.library, statement))
        assert renew(app, "worker-1", [claimed.fence]) == jobs_of([claimed])
        let_days_pass(app, A_MINUTE * 2)
        assert reclaim(app) == []


def test_a_claim_is_begun_though_an_end_waits_for_a_locked_lease(
    migrated: None, postgres_url: str
) -> None:
    """The claim is committed before the end is sent. Until its worker knows of it nobody would
    renew it, and it would be taken for crashed."""
    begun, go_on = threading.Event(), threading.Event()
    with Oncely(postgres_url) as app, psycopg.connect(postgres_url) as caller:
        app.migrate()

        @app.job("fail", retry=Retry(base=3600))
        def fail(ctx: Context) -> None:
            begun.set()
            assert go_on.wait(PATIENCE_SECONDS)
            raise ValueError

        failed = app.enqueue("fail").job_id
        with LongJobs(app, concurrency=1) as jobs:
            assert begun.wait(PATIENCE_SECONDS)
            caller.execute("select from oncely.lease for update")
            claimed = app.enqueue("k").job_id
            go_on.set()
            jobs.run_until_begun({claimed: 1})
            assert found(app, failed).state == "running"
            caller.rollback()
            wait_until(lambda: found(app, failed).state == "scheduled")
            jobs.end_together((claimed, 0))
            wait_until(lambda: found(app, claimed).state == "completed")


class Payment:
    """Handlers of the kind `pay`, which complete their job in a transaction that stays open until
    the test lets it end."""

    def __init__(self, app: Oncely, timeout: float | None = None) -> None:
        self._app = app
        self.completed = threading.Event()
        self.go_on = threading.Event()
        self._timers = HeldTimers(app, "pay")
        app.job("pay", timeout=timeout)(self._run)

    def _run(self, ctx: Context) -> None:
        with psycopg.connect(self._app.url) as tx:
            ctx.complete("paid", tx=tx)
            self.completed.set()
            self._timers.let_go(ctx)
            assert self.go_on.wait(2 * PATIENCE_SECONDS)


def test_a_transaction_of_one_handler_holds_up_no_other_job(
    migrated: None, postgres_url: str
) -> None:
    """Only the ends that share its lease wait for it, and nobody waits in the store."""
    with Oncely(postgres_url) as app:
        app.migrate()
        payment = Payment(app)
        pay, *same = (app.enqueue(kind).job_id for kind in ("pay", "k", "k"))
        with LongJobs(app, one_lease=True) as jobs:
            jobs.run_until_begun(dict.fromkeys(same, 1))
            assert payment.completed.wait(PATIENCE_SECONDS)
            for job_id in same:
                jobs.end_together((job_id, 0))
                jobs.run_one()
            assert {found(app, job_id).state for job_id in same} == {"running"}
            payment.go_on.set()
            wait_until(lambda: {job.state for job in app.jobs()} == {"completed"})
        assert found(app, pay).result == "paid"


def test_a_handler_that_outlives_its_timeout_in_a_transaction_holds_up_no_other_job(
    migrated: None, postgres_url: str
) -> None:
    """Its lease is locked, and its end cannot be written. The job stays with this worker until the
    transaction is over."""
    with Oncely(postgres_url) as app:
        app.migrate()
        payment = Payment(app, timeout=0.05)
        pay = app.enqueue("pay").job_id
        with LongJobs(app, lease_seconds=4) as jobs:
            assert payment.completed.wait(PATIENCE_SECONDS)
            wait_until(lambda: jobs.worker._stuck)
            jobs.run_one()
            wait_until(lambda: sql(app, HAS_RUN_OUT_AND_IS_RENEWED) == [(True,)])
            assert found(app, pay).state == "running"
            payment.go_on.set()
            wait_until(lambda: found(app, pay).state == "completed")
        assert [each.outcome for each in found(app, pay).executions] == ["completed"]


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_worker_ends_though_a_handler_keeps_its_lease_locked(
    migrated: None, postgres_url: str, concurrency: int
) -> None:
    """It is stopped, or ends by itself because the handler has its only place."""
    with Oncely(postgres_url) as app:
        app.migrate()
        payment = Payment(app, timeout=0.05)
        app.enqueue("pay")
        worker = app.worker(concurrency=concurrency, grace_seconds=1)
        with ThreadPoolExecutor() as threads:
            ended = threads.submit(worker.run)
            assert payment.completed.wait(PATIENCE_SECONDS)
            try:
                wait_until(lambda: worker._stuck)
                if concurrency > 1:
                    worker.stop()
                error = ended.exception(PATIENCE_SECONDS)
            finally:
                payment.go_on.set()
        assert isinstance(error, WorkerStuck) == (concurrency == 1)
