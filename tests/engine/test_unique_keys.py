"""Unique keys: one active job per (kind, key), free again once it has ended."""

from itertools import pairwise
from threading import Barrier, Thread

import pytest

from oncely import JobNotFound, KeyConflict, NewJob, Oncely, Receipt, UniqueKeyTaken, WrongState
from oncely.model.transition import ACTIVE, ENDED, State
from oncely.store import steer
from oncely.store.plan import Plan
from tests.engine.steps import (
    bring,
    claim_one,
    counts,
    end,
    found,
    let_days_pass,
    prune,
    prune_keys,
    retry,
    sql,
)


def sync(app: Oncely, payload: object = None, **keys: str) -> Receipt:
    return app.enqueue("user.sync", payload, unique_key="user:7", **keys)  # type: ignore[arg-type]


def holders(app: Oncely) -> list[tuple[str, str, str]]:
    rows = sql(app, "select kind, key, job_id from oncely.unique_key order by kind, key")
    return [(kind, key, str(job_id)) for kind, key, job_id in rows]


@pytest.mark.parametrize("state", ACTIVE)
def test_a_repeat_is_skipped_while_the_job_is_active(app: Oncely, state: State) -> None:
    first = sync(app, 1)
    bring(app, first.job_id, state)
    before = counts(app)
    # The content is not compared: the work is in the pipeline, whoever asked for it.
    assert sync(app, 2) == Receipt(first.job_id, False, state)
    many = app.enqueue_many([NewJob("user.sync", 3, unique_key="user:7", queue="other")])
    assert many.receipts == [Receipt(first.job_id, False, state)]
    assert counts(app) == before
    assert holders(app) == [("user.sync", "user:7", first.job_id)]


@pytest.mark.parametrize("state", ENDED)
def test_the_key_is_free_once_the_job_has_ended(app: Oncely, state: State) -> None:
    first = sync(app)
    bring(app, first.job_id, state)
    assert holders(app) == []
    second = sync(app)
    assert second.inserted
    assert second.job_id != first.job_id
    assert holders(app) == [("user.sync", "user:7", second.job_id)]
    assert found(app, first.job_id).state == state
    assert found(app, first.job_id).unique_key == "user:7"


@pytest.mark.parametrize("delay", [0, 3600])
def test_a_retry_does_not_free_the_key(app: Oncely, delay: float) -> None:
    first = sync(app)
    assert retry(app, claim_one(app), delay_seconds=delay)
    state: State = "scheduled" if delay else "pending"
    assert sync(app) == Receipt(first.job_id, False, state)
    app.cancel(first.job_id)
    assert sync(app).inserted


def test_the_scope_of_a_key_is_its_kind(app: Oncely) -> None:
    first = sync(app)
    other = app.enqueue("user.mail", unique_key="user:7")
    assert other.inserted
    assert app.enqueue("user.mail", unique_key="user:7", queue="elsewhere") == Receipt(
        other.job_id, False, "pending"
    )
    assert [holder for _, _, holder in holders(app)] == [other.job_id, first.job_id]


def test_a_job_that_ends_frees_only_its_own_key(app: Oncely) -> None:
    first = sync(app)
    bring(app, first.job_id, "completed")
    second = sync(app)
    app.enqueue("user.sync", unique_key="user:8", queue="other")
    prune(app)
    assert sync(app) == Receipt(second.job_id, False, "pending")
    assert len(holders(app)) == 2


def test_threads_with_one_unique_key_make_one_job(app: Oncely) -> None:
    barrier = Barrier(8)
    receipts: list[Receipt] = []

    def go() -> None:
        barrier.wait()
        receipts.extend(sync(app, n) for n in range(5))

    threads = [Thread(target=go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(receipts) == 40
    assert len({receipt.job_id for receipt in receipts}) == 1
    assert sum(receipt.inserted for receipt in receipts) == 1


# Both keys together


def test_both_keys_new_holds_and_remembers(app: Oncely) -> None:
    first = sync(app, 1, idempotency_key="call:1")
    assert first.inserted
    assert sync(app, 1, idempotency_key="call:1") == Receipt(first.job_id, False, "pending")
    assert sync(app, 1, idempotency_key="call:2") == Receipt(first.job_id, False, "pending")
    assert len(app.jobs()) == 1


def test_a_known_call_is_answered_even_if_the_unique_key_has_another_holder(app: Oncely) -> None:
    first = sync(app, 1, idempotency_key="call:1")
    bring(app, first.job_id, "completed")
    holder = sync(app, 2)
    assert holder.inserted
    assert sync(app, 1, idempotency_key="call:1") == Receipt(first.job_id, False, "completed")


def test_a_known_call_is_answered_even_if_the_unique_key_is_free(app: Oncely) -> None:
    first = sync(app, 1, idempotency_key="call:1")
    bring(app, first.job_id, "completed")
    assert sync(app, 1, idempotency_key="call:1") == Receipt(first.job_id, False, "completed")
    assert holders(app) == []


def test_a_skipped_call_is_remembered_under_the_holders_id(app: Oncely) -> None:
    holder = sync(app, 1)
    assert sync(app, 2, idempotency_key="call:2") == Receipt(holder.job_id, False, "pending")
    bring(app, holder.job_id, "completed")
    # The unique key is free now, but this very call has been answered before.
    assert sync(app, 2, idempotency_key="call:2") == Receipt(holder.job_id, False, "completed")
    fresh = sync(app, 3, idempotency_key="call:3")
    assert fresh.inserted
    assert sync(app, 2, idempotency_key="call:2") == Receipt(holder.job_id, False, "completed")
    assert sync(app, 3, idempotency_key="call:3") == Receipt(fresh.job_id, False, "pending")


def test_a_skipped_call_is_remembered_with_its_own_content(app: Oncely) -> None:
    holder = sync(app, 1, idempotency_key="call:1")
    assert not sync(app, 2, idempotency_key="call:2").inserted
    before = counts(app)
    for payload in (1, 3):
        with pytest.raises(KeyConflict) as caught:
            sync(app, payload, idempotency_key="call:2")
        assert caught.value.job_id == holder.job_id
    assert counts(app) == before


def test_a_skipped_call_is_remembered_as_long_as_the_holders_own(app: Oncely) -> None:
    holder = sync(app, 1, idempotency_key="call:1")
    sync(app, 2, idempotency_key="call:2")
    app.enqueue("user.sync", 9, queue="other", unique_key="user:7", idempotency_key="call:9")
    bring(app, holder.job_id, "completed")
    prune(app)
    for call, payload in (("call:1", 1), ("call:2", 2)):
        assert sync(app, payload, idempotency_key=call) == Receipt(
            holder.job_id, False, "completed"
        )
    let_days_pass(app, 31)
    assert prune_keys(app) == 3
    assert sync(app, 2, idempotency_key="call:2").inserted


def test_the_skipped_call_of_a_cancelled_holder_is_not_made_up_for(app: Oncely) -> None:
    """It was answered with the holder's id: whoever wants the work anyway makes a new call."""
    holder = sync(app, 1)
    sync(app, 2, idempotency_key="call:2")
    app.cancel(holder.job_id)
    assert sync(app, 2, idempotency_key="call:2") == Receipt(holder.job_id, False, "cancelled")
    assert sync(app, 2, idempotency_key="call:2b").inserted


def test_a_conflict_takes_no_unique_key(app: Oncely) -> None:
    app.enqueue("user.sync", 1, idempotency_key="call:1")
    with pytest.raises(KeyConflict):
        sync(app, 2, idempotency_key="call:1")
    assert holders(app) == []


def test_a_known_call_takes_no_unique_key(app: Oncely) -> None:
    first = app.enqueue("user.sync", 1, idempotency_key="call:1")
    assert sync(app, 1, idempotency_key="call:1") == Receipt(first.job_id, False, "pending")
    assert holders(app) == []
    assert sync(app).inserted


# Replay


def test_replay_puts_a_failed_job_back_with_the_same_id(app: Oncely) -> None:
    first = sync(app, 1, idempotency_key="call:1")
    epochs = []
    for _ in range(3):
        for attempt in (1, 2):
            claimed = claim_one(app)
            assert (claimed.job_id, claimed.attempt) == (first.job_id, attempt)
            epochs.append(claimed.fence.epoch)
            assert retry(app, claimed) if attempt == 1 else end(app, claimed, "failed")
        assert holders(app) == []
        assert found(app, first.job_id).attempt == 2
        app.replay(first.job_id)
        job = found(app, first.job_id)
        assert (job.state, job.attempt, job.ended_at) == ("pending", 0, None)
        assert holders(app) == [("user.sync", "user:7", first.job_id)]
        assert sync(app, 2) == Receipt(first.job_id, False, "pending")
    assert all(before < after for before, after in pairwise(epochs))
    executions = found(app, first.job_id).executions
    assert [execution.epoch for execution in executions] == epochs
    assert [execution.outcome for execution in executions] == ["retried", "failed"] * 3
    assert len(app.jobs()) == 1


def test_a_replay_that_finds_its_key_taken_says_by_whom_and_changes_nothing(app: Oncely) -> None:
    first = sync(app, 1)
    bring(app, first.job_id, "failed")
    second = sync(app, 2)
    before = counts(app), app.get(first.job_id), app.get(second.job_id), holders(app)
    with pytest.raises(UniqueKeyTaken) as caught:
        app.replay(first.job_id)
    assert (caught.value.job_id, caught.value.holder_id) == (first.job_id, second.job_id)
    for part in (first.job_id, second.job_id, "'user:7'", "'user.sync'"):
        assert part in str(caught.value)
    assert before == (counts(app), app.get(first.job_id), app.get(second.job_id), holders(app))
    bring(app, second.job_id, "completed")
    app.replay(first.job_id)
    assert holders(app) == [("user.sync", "user:7", first.job_id)]


@pytest.mark.parametrize("state", ["completed", "cancelled"])
def test_only_a_failed_job_is_replayed_whoever_holds_its_key(app: Oncely, state: State) -> None:
    """The holder is beside the point: ending it would not help."""
    first = sync(app)
    bring(app, first.job_id, state)
    sync(app)
    before = counts(app)
    with pytest.raises(WrongState, match=f"is {state}; only jobs in state failed"):
        app.replay(first.job_id)
    assert counts(app) == before


def test_a_holder_that_ends_during_the_replay_leaves_the_key_to_it(postgres_url: str) -> None:
    """On SQLite nobody can come in between: a replay has the only right to write."""
    with Oncely(postgres_url) as app, Oncely(postgres_url) as other:
        app.migrate()
        first = sync(app)
        bring(app, first.job_id, "failed")
        holder = sync(app)

        def meddled() -> Plan[None]:
            plan = steer.replay(first.job_id)
            statement = next(plan)
            while True:
                rows = yield statement
                if statement.name == "replay_hold":
                    other.cancel(holder.job_id)  # a second time it changes nothing
                try:
                    statement = plan.send(rows)
                except StopIteration:
                    return

        app._engine.run(lambda _: meddled(), "transaction")
        assert found(app, first.job_id).state == "pending"
        assert holders(app) == [("user.sync", "user:7", first.job_id)]
        assert sync(app) == Receipt(first.job_id, False, "pending")


def test_a_replay_and_an_enqueue_at_once_leave_one_active_job(app: Oncely) -> None:
    first = sync(app, 0)
    bring(app, first.job_id, "failed")
    for round in range(15):
        barrier = Barrier(2)
        outcome: list[object] = []

        def replay(barrier: Barrier = barrier, outcome: list[object] = outcome) -> None:
            barrier.wait()
            try:
                app.replay(first.job_id)
            except UniqueKeyTaken as error:
                outcome.append(error)

        thread = Thread(target=replay)
        thread.start()
        barrier.wait()
        receipt = sync(app, round)
        thread.join()
        assert receipt.inserted == bool(outcome)
        [(_, _, holder)] = holders(app)
        assert holder == receipt.job_id
        if not receipt.inserted:
            assert holder == first.job_id
            bring(app, first.job_id, "failed")
        else:
            app.cancel(receipt.job_id)


def test_replay_of_a_job_that_is_not_there(app: Oncely) -> None:
    first = sync(app)
    bring(app, first.job_id, "failed")
    prune(app)
    with pytest.raises(JobNotFound, match=first.job_id):
        app.replay(first.job_id)
    assert sum(counts(app).values()) == 0
