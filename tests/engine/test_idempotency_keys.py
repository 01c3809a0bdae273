"""Idempotency keys: one job per (queue, key), remembered past the job's end."""

import warnings
from datetime import UTC, datetime
from threading import Barrier, Thread

import pytest

from oncely import KeyConflict, KeyWarning, NewJob, Oncely, Receipt, UsageError
from oncely.model.job import Options
from oncely.model.transition import STATES, State
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

KEY = "order:9482:charge"


def charge(app: Oncely, payload: object = "p", **options: object) -> Receipt:
    given: Options = {"idempotency_key": KEY, **options}  # type: ignore[typeddict-item]
    return app.enqueue("order.charge", payload, **given)


@pytest.mark.parametrize("state", STATES)
def test_a_repeat_finds_the_first_job_in_whatever_state(app: Oncely, state: State) -> None:
    first = charge(app)
    bring(app, first.job_id, state)
    before = counts(app)
    assert charge(app) == Receipt(first.job_id, False, state)
    assert app.enqueue_many([NewJob("order.charge", "p", idempotency_key=KEY)]).receipts == [
        Receipt(first.job_id, False, state)
    ]
    assert counts(app) == before


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_a_repeat_finds_the_first_job_after_it_was_pruned(app: Oncely, state: State) -> None:
    first = charge(app)
    bring(app, first.job_id, state)
    assert prune(app) == 1
    assert app.get(first.job_id) is None
    assert charge(app) == Receipt(first.job_id, False, state)
    with pytest.raises(KeyConflict) as caught:
        charge(app, "other")
    assert caught.value.job_id == first.job_id
    assert app.jobs() == []


@pytest.mark.anyio
async def test_the_async_twins_recognise_repeats_too(app: Oncely) -> None:
    first = await app.aenqueue("order.charge", "p", idempotency_key=KEY)
    assert await app.aenqueue("order.charge", "p", idempotency_key=KEY) == Receipt(
        first.job_id, False, "pending"
    )
    many = await app.aenqueue_many([NewJob("order.charge", "p", idempotency_key=KEY)])
    assert many.receipts == [Receipt(first.job_id, False, "pending")]
    with pytest.raises(KeyConflict):
        await app.aenqueue("order.charge", "other", idempotency_key=KEY)
    with pytest.raises(KeyConflict):
        await app.aenqueue_many([NewJob("order.charge", "other", idempotency_key=KEY)])
    assert len(app.jobs()) == 1


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("different", ["kind", "payload"])
def test_other_content_under_the_key_is_a_conflict_that_names_the_first_job(
    app: Oncely, state: State, different: str
) -> None:
    first = charge(app)
    bring(app, first.job_id, state)
    before = counts(app)
    kind, payload = ("order.refund", "p") if different == "kind" else ("order.charge", "q")
    with pytest.raises(KeyConflict) as caught:
        app.enqueue(kind, payload, idempotency_key=KEY, unique_key="u")
    assert counts(app) == before
    error = caught.value
    assert (error.key, error.queue, error.job_id) == (KEY, "default", first.job_id)
    assert isinstance(error, UsageError)
    for part in (KEY, "'default'", first.job_id, "nothing was stored"):
        assert part in str(error)
    assert charge(app).job_id == first.job_id, "the first is still the first"


def test_the_form_of_the_payload_does_not_matter(app: Oncely) -> None:
    first = charge(app, {"a": 1, "b": "é", "c": [1.0, {"x": 1, "y": 2}]})
    again = charge(app, {"c": [1, {"y": 2.0, "x": 1}], "b": "e\N{COMBINING ACUTE ACCENT}", "a": 1})
    assert again == Receipt(first.job_id, False, "pending")


def test_options_other_than_the_content_are_not_compared(app: Oncely) -> None:
    first = charge(app, delay=60, priority=1, tags=["a"], group_key="g", timeout=1, max_attempts=2)
    others: list[Options] = [
        {},
        {"delay": 5},
        {"run_at": datetime(2040, 1, 1, tzinfo=UTC)},
        {"priority": 9},
        {"tags": ["b"]},
        {"group_key": "h"},
        {"timeout": 9},
        {"max_attempts": 9},
        {"unique_key": "u"},
    ]
    for options in others:
        again = charge(app, **options)
        assert again == Receipt(first.job_id, False, "scheduled")
    job = found(app, first.job_id)
    assert (job.priority, job.tags, job.group_key) == (1, ["a"], "g")
    assert (job.timeout, job.max_attempts, job.unique_key) == (1.0, 2, None)
    assert counts(app)["unique_key"] == 0


def test_the_scope_of_a_key_is_its_queue(app: Oncely) -> None:
    first = charge(app)
    other = charge(app, "other payload", queue="payments")
    assert other.inserted
    assert other.job_id != first.job_id
    assert charge(app, "other payload", queue="payments").job_id == other.job_id
    assert charge(app).job_id == first.job_id


def test_keys_are_compared_character_by_character(app: Oncely) -> None:
    keys = ["a", "A", "a.", "ab", "a\N{ZERO WIDTH SPACE}b", "é", "e\N{COMBINING ACUTE ACCENT}"]
    keys += ["\N{LATIN SMALL LIGATURE FI}", "fi", "ß", "ss", "1", "1.0", "x%y", "xAy", "x_y", "%"]
    keys += ["k" * 254, "k" * 254 + "a", "k" * 254 + "b", "null", "NULL", "true", "🎉", "🎊"]
    receipts = [app.enqueue("k", n, idempotency_key=key) for n, key in enumerate(keys)]
    assert [receipt.inserted for receipt in receipts] == [True] * len(keys)
    again = app.enqueue_many(NewJob("k", n, idempotency_key=key) for n, key in enumerate(keys))
    assert (again.inserted, again.skipped) == (0, len(keys))
    assert [r.job_id for r in again.receipts] == [r.job_id for r in receipts]


def test_a_key_is_remembered_through_retries_and_replays(app: Oncely) -> None:
    first = charge(app)
    for _ in range(3):
        assert retry(app, claim_one(app))
        assert charge(app) == Receipt(first.job_id, False, "pending")
    assert end(app, claim_one(app), "failed")
    app.replay(first.job_id)
    assert charge(app) == Receipt(first.job_id, False, "pending")
    assert end(app, claim_one(app), "completed")
    assert charge(app) == Receipt(first.job_id, False, "completed")


@pytest.mark.parametrize("state", ["completed", "cancelled"])
def test_a_key_is_kept_for_30_days_after_the_job_ended(app: Oncely, state: State) -> None:
    first = charge(app)
    bring(app, first.job_id, state)
    let_days_pass(app, 10)
    prune(app)
    let_days_pass(app, 19.9)
    assert prune_keys(app) == 0
    assert charge(app) == Receipt(first.job_id, False, state)
    let_days_pass(app, 0.2)
    second = charge(app, "now with another payload")
    assert second.inserted
    assert second.job_id != first.job_id
    assert charge(app, "now with another payload") == Receipt(second.job_id, False, "pending")


def test_a_key_outlives_a_job_that_is_pruned_late(app: Oncely) -> None:
    """Pruning after more than the key's retention: the key goes at once, not later."""
    first = charge(app)
    bring(app, first.job_id, "completed")
    let_days_pass(app, 45)
    assert charge(app).job_id == first.job_id, "the job is still there, and so is its key"
    prune(app)
    assert prune_keys(app) == 1
    assert charge(app).inserted


def test_the_key_of_an_active_job_never_expires(app: Oncely) -> None:
    first = charge(app)
    let_days_pass(app, 4000)
    prune(app)
    prune_keys(app)
    assert charge(app) == Receipt(first.job_id, False, "pending")
    claimed = claim_one(app)
    let_days_pass(app, 4000)
    prune(app)
    prune_keys(app)
    assert charge(app) == Receipt(first.job_id, False, "running")
    assert end(app, claimed, "in_doubt")
    let_days_pass(app, 4000)
    prune(app)
    prune_keys(app)
    assert charge(app) == Receipt(first.job_id, False, "in_doubt")


def test_the_key_of_a_failed_job_does_not_expire_in_the_dead_letter_queue(app: Oncely) -> None:
    first = charge(app)
    bring(app, first.job_id, "failed")
    let_days_pass(app, 400)
    prune(app, ["completed", "cancelled"])
    prune_keys(app)
    assert charge(app) == Receipt(first.job_id, False, "failed")
    # Its 30 days begin when it leaves the queue.
    prune(app)
    let_days_pass(app, 29)
    assert prune_keys(app) == 0
    assert charge(app) == Receipt(first.job_id, False, "failed")
    let_days_pass(app, 2)
    assert charge(app).inserted


def test_the_retention_of_keys_can_be_set(app: Oncely) -> None:
    first = charge(app)
    bring(app, first.job_id, "completed")
    prune(app, key_days=2)
    let_days_pass(app, 1.9)
    assert charge(app).job_id == first.job_id
    let_days_pass(app, 0.2)
    assert charge(app).inserted


def test_prune_keys_drops_only_what_has_expired_and_not_more_than_asked(app: Oncely) -> None:
    for number in range(5):
        app.enqueue("k", idempotency_key=f"old:{number}")
        assert end(app, claim_one(app), "completed")
    prune(app)
    let_days_pass(app, 31)
    app.enqueue("k", idempotency_key="new")
    assert end(app, claim_one(app), "completed")
    prune(app)
    assert prune_keys(app, limit=2) == 2
    assert prune_keys(app, limit=2) == 2
    assert prune_keys(app, limit=2) == 1
    assert prune_keys(app, limit=2) == 0
    assert sql(app, "select key from oncely.idempotency_key") == [("new",)]


def test_an_expired_key_that_was_not_pruned_yet_admits_one_new_job(app: Oncely) -> None:
    first = charge(app)
    bring(app, first.job_id, "completed")
    prune(app)
    let_days_pass(app, 31)
    batch = [NewJob("order.charge", "new", idempotency_key=KEY) for _ in range(3)]
    receipts = app.enqueue_many(batch)
    assert (receipts.inserted, receipts.skipped) == (1, 2)
    assert len({receipt.job_id for receipt in receipts.receipts} | {first.job_id}) == 2
    assert counts(app)["idempotency_key"] == 1


def test_a_refused_call_does_not_forget_an_expired_key(app: Oncely) -> None:
    first = charge(app)
    bring(app, first.job_id, "completed")
    prune(app)
    let_days_pass(app, 31)
    held = app.enqueue("k", 1, idempotency_key="held")
    before = counts(app)
    with pytest.raises(KeyConflict) as caught:
        app.enqueue_many(
            [
                NewJob("order.charge", "new", idempotency_key=KEY),
                NewJob("k", 2, idempotency_key="held"),
            ]
        )
    assert caught.value.job_id == held.job_id
    assert counts(app) == before


def test_pruning_keeps_what_is_too_young(app: Oncely) -> None:
    old = app.enqueue("k", idempotency_key="old")
    assert end(app, claim_one(app), "completed")
    let_days_pass(app, 3)
    young = app.enqueue("k", idempotency_key="young")
    assert end(app, claim_one(app), "completed")
    assert prune(app, days=2) == 1
    assert app.get(old.job_id) is None
    assert found(app, young.job_id).state == "completed"


def test_threads_with_one_key_make_one_job(app: Oncely) -> None:
    barrier = Barrier(8)
    receipts: list[Receipt] = []

    def go() -> None:
        barrier.wait()
        receipts.extend(charge(app) for _ in range(5))

    threads = [Thread(target=go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(receipts) == 40
    assert len({receipt.job_id for receipt in receipts}) == 1
    assert sum(receipt.inserted for receipt in receipts) == 1


def test_a_key_that_looks_random_is_warned_of_once_per_kind(app: Oncely) -> None:
    random_key = "0b0b1d3a-96a6-4d5c-8f49-5a3f4b1c2d3e"
    with pytest.warns(KeyWarning, match="looks random") as caught:
        app.enqueue("order.charge", idempotency_key=random_key)
    assert len(caught) == 1
    assert caught[0].filename == __file__, "the warning points at the caller"
    text = str(caught[0].message)
    assert "idempotency_key" in text
    assert random_key in text
    assert "'order.charge'" in text
    app.enqueue("order.charge", idempotency_key="1b0b1d3a-96a6-4d5c-8f49-5a3f4b1c2d3e")
    with pytest.warns(KeyWarning, match="unique_key"):
        app.enqueue("order.refund", unique_key=random_key)
    assert len(app.jobs()) == 3


def test_of_many_jobs_in_a_call_the_first_hundred_keys_are_looked_at(app: Oncely) -> None:
    random_key = "0b0b1d3a-96a6-4d5c-8f49-5a3f4b1c2d3e"

    def enqueue(kind: str, *keys: str) -> None:
        app.enqueue_many(NewJob(kind, idempotency_key=key) for key in keys)

    with pytest.warns(KeyWarning):
        enqueue("k", *(f"order:{n}" for n in range(99)), random_key)
    bills = [f"bill:{n}" for n in range(100)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", KeyWarning)
        enqueue("l", *bills, f"1{random_key[1:]}")
    # However many came before it.
    with pytest.warns(KeyWarning):
        enqueue("l", f"2{random_key[1:]}", *(f"{bill}.2" for bill in bills))
    assert counts(app)["job"] == 302


def test_a_batch_warns_at_the_callers_line_too(app: Oncely) -> None:
    random_key = "0b0b1d3a-96a6-4d5c-8f49-5a3f4b1c2d3e"
    with pytest.warns(KeyWarning) as caught:
        app.enqueue_many([NewJob("k", idempotency_key=random_key)])
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.anyio
async def test_the_async_twin_warns_at_the_callers_line_too(app: Oncely) -> None:
    random_key = "0b0b1d3a-96a6-4d5c-8f49-5a3f4b1c2d3e"
    with pytest.warns(KeyWarning) as caught:
        await app.aenqueue("k", idempotency_key=random_key)
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(KeyWarning) as caught:
        await app.aenqueue_many([NewJob("l", idempotency_key=random_key, queue="q")])
    assert [warning.filename for warning in caught] == [__file__]
