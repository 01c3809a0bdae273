"""Two transactions with one key: the second waits for the first, and one of them inserts."""

import asyncio
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from oncely import NewJob, Receipt
from tests.engine.tx_party import Party
from tests.engine.tx_scene import Scene, everywhere, on_postgres, on_sqlite, where_it_awaits
from tests.waiting import PATIENCE_SECONDS

pytest_plugins = ["tests.engine.tx_fixtures"]

KEYS = {
    "idempotency": ["idempotency_key"],
    "unique": ["unique_key"],
    "both": ["idempotency_key", "unique_key"],
}
by_key = pytest.mark.parametrize(
    ("shared", "many"),
    [("idempotency", False), ("unique", False), ("both", False), ("both", True)],
    ids=["idempotency", "unique", "both", "both-many"],
)


def rivals(scene: Scene, shared: str) -> tuple[NewJob, NewJob]:
    """Two jobs with these keys in common, and their other key their own."""
    first = scene.job()
    return first, scene.job(**{name: getattr(first, name) for name in KEYS[shared]})


def enqueue_and_wait(scene: Scene, second: Party, job: NewJob, *, many: bool) -> Future[Any]:
    """Let `second` enqueue until it waits for the transaction of somebody else."""

    def enqueue() -> Future[Any]:
        if many:
            return second.enqueue_many_later(scene.app, [scene.job(), job])
        return second.enqueue_later(scene.app, job)

    if scene.engine == "postgres":
        backend = scene.backend(second)
        waiting = enqueue()
        scene.wait_until_blocked(backend, waiting)
    else:
        # It cannot be seen to wait, only to have come to where it cannot go on.
        heard = second.hear_store()
        waiting = enqueue()
        assert heard.wait(PATIENCE_SECONDS)
    return waiting


def second_receipt(waiting: Future[Any], *, many: bool) -> Receipt:
    answer = waiting.result(PATIENCE_SECONDS)
    receipt: Receipt = answer.receipts[1] if many else answer
    return receipt


@everywhere
@by_key
def test_if_the_first_commits_the_second_is_skipped(scene: Scene, shared: str, many: bool) -> None:
    job, rival = rivals(scene, shared)
    first, second, order = scene.party(), scene.party(), scene.fresh("order")
    first.begin()
    winner = first.enqueue(scene.app, job)
    second.begin()
    waiting = enqueue_and_wait(scene, second, rival, many=many)
    first.commit()
    receipt = second_receipt(waiting, many=many)
    assert (receipt.job_id, receipt.inserted) == (winner.job_id, False)
    second.order(order)
    second.commit()
    assert scene.has_order(order)
    repeat = scene.app.enqueue_many([rival]).receipts[0]
    assert (repeat.job_id, repeat.inserted) == (winner.job_id, False)


@everywhere
@by_key
def test_if_the_first_rolls_back_the_second_inserts(scene: Scene, shared: str, many: bool) -> None:
    job, rival = rivals(scene, shared)
    first, second = scene.party(), scene.party()
    first.begin()
    loser = first.enqueue(scene.app, job)
    second.begin()
    waiting = enqueue_and_wait(scene, second, rival, many=many)
    first.rollback()
    receipt = second_receipt(waiting, many=many)
    assert receipt.inserted
    second.commit()
    assert not scene.has_job(loser.job_id)
    assert scene.has_job(receipt.job_id)


@on_postgres
@pytest.mark.parametrize(
    ("level", "shared", "waits"),
    [
        ("repeatable read", "idempotency", False),
        ("repeatable read", "unique", True),
        ("serializable", "idempotency", True),
        ("serializable", "unique", False),
    ],
)
def test_a_serialization_failure_is_the_drivers_own(
    scene: Scene, level: str, shared: str, waits: bool
) -> None:
    job, rival = rivals(scene, shared)
    first, second = scene.party(), scene.party()
    second.begin()
    second.execute(f"set transaction isolation level {level}")
    second.execute("select count(*) from orders")
    first.begin()
    winner = first.enqueue(scene.app, job)
    if waits:
        waiting = enqueue_and_wait(scene, second, rival, many=False)
        first.commit()
    else:
        first.commit()
        waiting = second.enqueue_later(scene.app, rival)
    with pytest.raises(scene.kit.serialization_error) as caught:
        waiting.result(PATIENCE_SECONDS)
    assert sqlstate(caught.value) == "40001"
    # What the caller does about it, as with every other statement.
    second.rollback()
    second.begin()
    second.execute(f"set transaction isolation level {level}")
    receipt = second.enqueue(scene.app, rival)
    second.commit()
    assert (receipt.job_id, receipt.inserted) == (winner.job_id, False)


@pytest.mark.parametrize("library", ["postgres-psycopg", "postgres-asyncpg"])
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_repeat_in_one_call_is_no_serialization_failure(scene: Scene, level: str) -> None:
    job, party = scene.job(), scene.party()
    party.begin()
    party.execute(f"set transaction isolation level {level}")
    many = party.enqueue_many(scene.app, [job, scene.job(), job])
    again = party.enqueue(scene.app, job)
    party.commit()
    assert (many.inserted, many.skipped) == (2, 1)
    assert again.job_id == many.receipts[0].job_id == many.receipts[2].job_id


def sqlstate(error: BaseException) -> str | None:
    """As the caller finds it: on the error, its `orig` (SQLAlchemy) or its cause (Django)."""
    cause = getattr(error, "orig", None) or error.__cause__
    return getattr(error, "sqlstate", None) or getattr(cause, "sqlstate", None)


@on_sqlite
def test_an_old_snapshot_is_the_drivers_own_error(scene: Scene) -> None:
    party, job = scene.party(), scene.job()
    party.begin()
    if "django" not in type(party.kit).__module__:
        party.execute("begin")
    party.execute("select count(*) from orders")
    winner = scene.app.enqueue_many([job]).receipts[0]
    with pytest.raises(scene.kit.serialization_error) as caught:
        party.enqueue(scene.app, job)
    cause = getattr(caught.value, "orig", None) or caught.value.__cause__ or caught.value
    assert getattr(cause, "sqlite_errorname", None) == "SQLITE_BUSY_SNAPSHOT"
    assert party.execute("select count(*) from orders") == [(0,)]
    party.rollback()
    party.begin()
    assert party.enqueue(scene.app, job).job_id == winner.job_id
    party.rollback()


@where_it_awaits
def test_cancelled_while_it_waits_it_leaves_nothing(scene: Scene) -> None:
    """A time-out around `aenqueue_many` must not cost the caller his transaction, where the
    library does not end it by itself."""
    job, rival = rivals(scene, "both")
    first, second, order = scene.party(), scene.party(), scene.fresh("order")
    first.begin()
    first.enqueue(scene.app, job)
    second.begin()
    waiting = enqueue_and_wait(scene, second, rival, many=True)
    second.cancel()
    if scene.engine == "sqlite":
        # A thread that waits for the lock cannot be cancelled, only what waits for the thread.
        first.rollback()
    with pytest.raises((asyncio.CancelledError, CancelledError)):
        waiting.result(PATIENCE_SECONDS)
    if scene.engine == "postgres":
        first.rollback()
    if "sqlalchemy" in type(second.kit).__module__:
        second.rollback()
        second.begin()
    second.order(order)
    second.commit()
    assert scene.has_order(order)
    assert scene.app.enqueue_many([rival]).inserted == 1
