"""Claim and settle: order, fence, one holder at a time."""

from itertools import pairwise
from threading import Barrier, Thread

import pytest

from oncely import NewJob, Oncely
from oncely.model.transition import ENDED, State
from oncely.store import claim as claims
from oncely.store.claim import Claimed, Fence
from oncely.store.deliver import Settlement
from tests.engine.steps import (
    claim,
    claim_one,
    counts,
    end,
    found,
    let_days_pass,
    retry,
    settle,
    sql,
)
from tests.seed import dice


def order(claimed: list[Claimed]) -> list[str]:
    return [item.payload for item in claimed]


def test_a_claim_says_what_is_to_be_done(app: Oncely) -> None:
    job_id = app.enqueue("order.charge", {"a": "\0"}, queue="payments").job_id
    [claimed] = claim(app, "payments", limit=10)
    assert (claimed.job_id, claimed.kind, claimed.queue) == (job_id, "order.charge", "payments")
    assert (claimed.attempt, claimed.payload) == (1, '{"a":"\\u0000"}')
    assert found(app, job_id).state == "running"
    assert claim(app, "payments") == []


def test_the_higher_priority_goes_first_then_the_longer_due_then_the_older(app: Oncely) -> None:
    app.enqueue_many(
        [
            NewJob("k", "late"),
            NewJob("k", "later"),
            NewJob("k", "low", priority=-5),
            NewJob("k", "high", priority=9),
            NewJob("k", "highest", priority=32_767),
            NewJob("k", "lowest", priority=-32_768),
            NewJob("k", "high too", priority=9),
        ]
    )
    app.enqueue("k", "delayed", delay=3600)
    app.enqueue("k", "high but delayed", priority=9, delay=7200)
    let_days_pass(app, 1)
    app.enqueue("k", "high and new", priority=9)
    assert order(claim(app, limit=100)) == [
        f'"{name}"'
        for name in (
            "highest",
            "high",
            "high too",
            "high but delayed",
            "high and new",
            "late",
            "later",
            "delayed",
            "low",
            "lowest",
        )
    ]


def test_claims_one_by_one_come_in_the_same_order(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n, priority=n % 3) for n in range(9))
    taken = [claim_one(app).payload for _ in range(9)]
    assert taken == [str(n) for p in (2, 1, 0) for n in range(9) if n % 3 == p]


def test_a_batch_of_claims_is_cut_at_the_limit_in_that_order(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n, priority=n % 3) for n in range(9))
    taken = [claim(app, limit=4) for _ in range(3)]
    expected = [str(n) for p in (2, 1, 0) for n in range(9) if n % 3 == p]
    assert [order(batch) for batch in taken] == [expected[:4], expected[4:8], expected[8:]]


def test_a_retried_job_waits_behind_those_that_are_longer_due(app: Oncely) -> None:
    app.enqueue("k", "first")
    retried = claim_one(app)
    app.enqueue("k", "second")
    let_days_pass(app, 1)
    assert retry(app, retried)
    assert order(claim(app, limit=10)) == ['"second"', '"first"']


def test_what_is_not_due_is_not_claimed(app: Oncely) -> None:
    soon = app.enqueue("k", priority=100, delay=3600)
    assert claim(app) == []
    now = app.enqueue("k", priority=-100)
    assert [item.job_id for item in claim(app, limit=10)] == [now.job_id]
    let_days_pass(app, 1)
    assert [item.job_id for item in claim(app, limit=10)] == [soon.job_id]


def test_a_claim_takes_only_from_its_queue(app: Oncely) -> None:
    app.enqueue("k", queue="a")
    mine = app.enqueue("k", queue="b")
    assert [item.job_id for item in claim(app, "b", limit=10)] == [mine.job_id]
    assert claim(app, "no-such-queue", limit=10) == []
    assert counts(app)["ready"] == 1


def test_a_claim_that_finds_nothing_leaves_no_lease(app: Oncely) -> None:
    assert claim(app) == []
    assert counts(app)["lease"] == 0
    app.enqueue("k")
    first = claim_one(app)
    assert claim(app) == []
    assert counts(app)["lease"] == 1
    assert end(app, first, "completed")


def test_on_postgres_a_claim_is_one_lease_whatever_the_planner_thinks(postgres_url: str) -> None:
    """Where it expects one job to be due, as with a queue that is always nearly empty, it may read
    the clock once per job: the lease must not fall apart by that."""
    with Oncely(postgres_url) as app:
        app.migrate()
        app.enqueue("k")
        sql(app, "analyze")
        app.enqueue_many(NewJob("k", n) for n in range(80))
        claimed = claim(app, limit=100)
        assert len({item.fence for item in claimed}) == 1
        assert len(claimed) == len({item.job_id for item in claimed}) == 81
        assert counts(app)["lease"] == 1


def test_a_nonce_that_is_used_again_does_not_claim_again(app: Oncely) -> None:
    def with_nonce(limit: int) -> list[Claimed]:
        return app._engine.run(
            lambda _: claims.claim("default", worker="w", nonce=7, lease_seconds=60, limit=limit),
            "transaction",
        )

    app.enqueue_many(NewJob("k", n) for n in range(2))
    assert order(with_nonce(1)) == ["0"]
    assert order(with_nonce(1)) == ["1"]
    assert with_nonce(1) == []


@pytest.mark.parametrize("state", [*ENDED, "in_doubt"])
def test_a_settle_ends_the_job_and_its_lease(app: Oncely, state: State) -> None:
    job_id = app.enqueue("k", unique_key="u").job_id
    claimed = claim_one(app)
    assert end(app, claimed, state)
    job = found(app, job_id)
    assert (job.state, job.attempt) == (state, 1)
    after = counts(app)
    assert (after["ready"], after["lease"], after["outcome"]) == (0, 0, 1)
    assert after["unique_key"] == (1 if state == "in_doubt" else 0)


def stale(app: Oncely, claimed: Claimed, fence: Fence) -> None:
    """Nothing that shows this fence is accepted, and nothing of it is written."""
    leases = "select epoch, nonce, worker, ids, claimed_at from oncely.lease order by epoch"
    before = counts(app), app.get(claimed.job_id), sql(app, leases)
    settlements = [
        Settlement(claimed.job_id, 1, state="completed", result="1"),
        Settlement(claimed.job_id, 1, state="failed"),
        Settlement(claimed.job_id, 1, state="cancelled"),
        Settlement(claimed.job_id, 1, state="in_doubt"),
        Settlement(claimed.job_id, 1, outcome="retried", attempts=1),
    ]
    for settlement in settlements:
        assert settle(app, fence, [settlement]) == set()
    assert (counts(app), app.get(claimed.job_id), sql(app, leases)) == before


def test_an_older_epoch_settles_nothing(app: Oncely) -> None:
    app.enqueue("k", unique_key="u")
    first = claim_one(app)
    assert retry(app, first)
    second = claim_one(app)
    assert second.job_id == first.job_id
    stale(app, second, first.fence)
    assert end(app, second, "completed")
    stale(app, second, first.fence)


def test_the_right_epoch_with_another_nonce_settles_nothing(app: Oncely) -> None:
    """As after a restored backup, which hands out the same epoch again."""
    app.enqueue("k", unique_key="u")
    claimed = claim_one(app)
    stale(app, claimed, Fence(claimed.fence.epoch, claimed.fence.nonce ^ 1))
    stale(app, claimed, Fence(claimed.fence.epoch + 1, claimed.fence.nonce))
    stale(app, claimed, Fence(claimed.fence.epoch - 1, claimed.fence.nonce))
    assert end(app, claimed, "completed")


def test_a_lease_settles_no_job_of_another(app: Oncely) -> None:
    app.enqueue_many([NewJob("k", 1, unique_key="u1"), NewJob("k", 2, unique_key="u2")])
    one, two = claim_one(app), claim_one(app)
    stale(app, two, one.fence)
    both = [Settlement(item.job_id, 1, state="completed") for item in (one, two)]
    assert settle(app, one.fence, both) == {one.job_id}
    assert found(app, two.job_id).state == "running"
    assert counts(app)["unique_key"] == 1


@pytest.mark.parametrize("state", [*ENDED, "in_doubt"])
def test_a_second_settle_is_refused(app: Oncely, state: State) -> None:
    app.enqueue("k", unique_key="u")
    claimed = claim_one(app)
    assert end(app, claimed, state)
    stale(app, claimed, claimed.fence)


def test_a_settle_after_a_retry_is_refused(app: Oncely) -> None:
    app.enqueue("k", unique_key="u")
    claimed = claim_one(app)
    assert retry(app, claimed)
    stale(app, claimed, claimed.fence)


def test_a_settle_after_a_replay_is_refused(app: Oncely) -> None:
    app.enqueue("k", unique_key="u")
    claimed = claim_one(app)
    assert end(app, claimed, "failed")
    app.replay(claimed.job_id)
    stale(app, claimed, claimed.fence)


def test_a_partial_settle_shrinks_the_lease(app: Oncely) -> None:
    made = app.enqueue_many(NewJob("k", n, unique_key=f"u{n}") for n in range(5)).receipts
    claimed = claim(app, limit=10)
    fence = claimed[0].fence
    assert {item.fence for item in claimed} == {fence}
    a, b, c, d, e = [receipt.job_id for receipt in made]

    def states() -> list[State]:
        return [found(app, job_id).state for job_id in (a, b, c, d, e)]

    settled = settle(
        app,
        fence,
        [
            Settlement(b, 1, state="completed"),
            Settlement(d, 1, outcome="retried", attempts=1, delay_us=10**9),
        ],
    )
    assert settled == {b, d}
    assert states() == ["running", "completed", "running", "scheduled", "running"]
    assert counts(app)["lease"] == 1
    again = [Settlement(job_id, 1, state="failed") for job_id in (b, c, d)]
    assert settle(app, fence, again) == {c}
    assert states() == ["running", "completed", "failed", "scheduled", "running"]
    rest = [Settlement(job_id, 1, state="cancelled") for job_id in (a, b, c, d, e)]
    assert settle(app, fence, rest) == {a, e}
    assert states() == ["cancelled", "completed", "failed", "scheduled", "cancelled"]
    assert counts(app)["lease"] == 0
    assert settle(app, fence, rest) == set()
    assert [row[0] for row in sql(app, "select key from oncely.unique_key")] == ["u3"]


def test_settling_an_unknown_job_or_nothing_is_refused(app: Oncely) -> None:
    app.enqueue("k")
    claimed = claim_one(app)
    unknown = Settlement("01900000-0000-7000-8000-000000000000", 1, state="completed")
    assert settle(app, claimed.fence, [unknown]) == set()
    assert settle(app, claimed.fence, []) == set()
    assert counts(app)["outcome"] == 0
    assert end(app, claimed, "completed")


def test_epochs_of_a_job_strictly_rise_through_everything(app: Oncely) -> None:
    job_id = app.enqueue("k").job_id
    app.enqueue("noise", queue="noise")
    epochs = []
    for turn in range(6):
        claimed = claim_one(app)
        epochs.append(claimed.fence.epoch)
        if turn % 3 == 0:
            assert retry(app, claimed)
        elif turn % 3 == 1:
            assert retry(app, claimed, delay_seconds=3600)
            let_days_pass(app, 1)
        else:
            assert end(app, claimed, "failed")
            app.replay(job_id)
    assert all(before < after for before, after in pairwise(epochs))
    assert [execution.epoch for execution in found(app, job_id).executions] == epochs


def test_an_epoch_is_not_given_out_again_after_its_lease_is_gone(url: str) -> None:
    epochs = []
    for _ in range(3):
        with Oncely(url) as app:
            app.migrate()
            app.enqueue("k")
            claimed = claim_one(app)
            epochs.append(claimed.fence.epoch)
            assert end(app, claimed, "completed")
            assert counts(app)["lease"] == 0
    assert all(before < after for before, after in pairwise(epochs))


def test_the_attempt_counts_up_with_retries(app: Oncely) -> None:
    app.enqueue("k")
    for attempt in range(1, 4):
        claimed = claim_one(app)
        assert claimed.attempt == attempt
        assert retry(app, claimed)


def test_a_retry_that_burned_no_attempt_has_the_same_number_again(app: Oncely) -> None:
    job_id = app.enqueue("k").job_id
    for _ in range(3):
        claimed = claim_one(app)
        assert claimed.attempt == 1
        deferred = Settlement(job_id, 1, outcome="retried", attempts=0)
        assert settle(app, claimed.fence, [deferred]) == {job_id}


def test_the_unique_key_is_freed_in_the_transaction_that_ends_the_job(app: Oncely) -> None:
    """Whoever sees the job ended sees the key free, and the other way round."""
    app.enqueue("k", 0, unique_key="u")
    done = 0
    wrong: list[tuple[object, ...]] = []
    stop = False

    def watch() -> None:
        while not stop:
            wrong.extend(
                sql(
                    app,
                    "select j.id from oncely.job j"
                    " left join oncely.outcome o on o.job_id = j.id"
                    " left join oncely.unique_key u on u.job_id = j.id"
                    " where (o.job_id is null) = (u.job_id is null)",
                )
            )

    thread = Thread(target=watch)
    thread.start()
    try:
        for number in range(40):
            claimed = claim_one(app)
            assert end(app, claimed, "completed")
            done += app.enqueue("k", number + 1, unique_key="u").inserted
    finally:
        stop = True
        thread.join()
    assert wrong == []
    assert done == 40


@pytest.mark.parametrize("limit", [1, 7])
def test_claimers_at_once_never_get_the_same_job(app: Oncely, limit: int) -> None:
    jobs = 120
    app.enqueue_many(NewJob("k", n, priority=n % 2) for n in range(jobs))
    barrier = Barrier(4)
    taken: list[list[Claimed]] = [[] for _ in range(4)]

    def go(number: int) -> None:
        barrier.wait()
        empty = 0
        while empty < 3:
            batch = claim(app, limit=limit, worker=f"w{number}")
            taken[number] += batch
            empty = 0 if batch else empty + 1

    threads = [Thread(target=go, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [item.job_id for batch in taken for item in batch]
    assert len(ids) == len(set(ids)) == jobs
    leases = {item.fence for batch in taken for item in batch}
    assert len(leases) == len({fence.epoch for fence in leases}) == counts(app)["lease"]


def test_settlers_at_once_one_is_accepted(app: Oncely) -> None:
    for number in range(15):
        job_id = app.enqueue("k", number, unique_key="u").job_id
        claimed = claim_one(app)
        barrier = Barrier(3)
        accepted: list[State] = []

        def go(
            state: State,
            barrier: Barrier = barrier,
            claimed: Claimed = claimed,
            accepted: list[State] = accepted,
        ) -> None:
            barrier.wait()
            if end(app, claimed, state):
                accepted.append(state)

        threads = [Thread(target=go, args=(state,)) for state in ENDED]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(accepted) == 1
        assert found(app, job_id).state == accepted[0]


def test_a_cancel_wins_over_a_claim_that_comes_at_once(app: Oncely) -> None:
    for number in range(15):
        job_id = app.enqueue("k", number).job_id
        barrier = Barrier(2)
        taken: list[Claimed] = []

        def go(barrier: Barrier = barrier, taken: list[Claimed] = taken) -> None:
            barrier.wait()
            taken.extend(claim(app))

        thread = Thread(target=go)
        thread.start()
        barrier.wait()
        app.cancel(job_id)
        thread.join()
        assert found(app, job_id).state == "cancelled"
        assert [end(app, claimed, "completed") for claimed in taken] in ([], [False])
        assert counts(app)["lease"] == 0


def test_nonces_of_the_whole_range_are_taken(app: Oncely) -> None:
    for nonce in (0, 1, 2**63 - 1, -(2**63), dice("nonce").getrandbits(62)):
        app.enqueue("k")
        [claimed] = app._engine.run(
            lambda _, nonce=nonce: claims.claim(  # type: ignore[misc]
                "default", worker="w", nonce=nonce, lease_seconds=60, limit=1
            ),
            "transaction",
        )
        assert claimed.fence.nonce == nonce
        assert end(app, claimed, "completed")
