"""What `tx=` leaves behind in the caller's transaction: the job, and nothing else."""

import asyncio
import sqlite3
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from oncely import NewJob, Oncely, StoreUnavailable
from tests.engine.tx_drivers import Asyncpg
from tests.engine.tx_party import Party
from tests.engine.tx_scene import Scene, everywhere, on_postgres
from tests.waiting import PATIENCE_SECONDS

pytest_plugins = ["tests.engine.tx_fixtures"]

AWKWARD = "%s %(doc)s %% :doc ::text $1 ? '' \"\" \\ \\u0041 {n} \n\t ü 日本 🙂"
PRAGMAS = ["busy_timeout", "foreign_keys", "synchronous", "journal_mode", "query_only"]


def settings(scene: Scene, party: Party) -> list[Any]:
    if scene.engine == "postgres":
        return party.execute("select name, setting from pg_settings order by name")
    return [party.execute(f"pragma {name}") for name in PRAGMAS]


@everywhere
def test_no_setting_and_no_savepoint(scene: Scene) -> None:
    """Several jobs with keys, so that a savepoint is needed on both engines."""
    party = scene.party()
    party.begin()
    before = settings(scene, party)
    party.enqueue_many(scene.app, [scene.job(), scene.job()])
    assert settings(scene, party) == before
    with pytest.raises(Exception, match="savepoint") as caught:
        party.execute("release savepoint oncely")
    assert "oncely" in str(caught.value) or "no such savepoint" in str(caught.value)
    party.rollback()


@everywhere
def test_awkward_characters_arrive_as_they_are(scene: Scene) -> None:
    due = datetime(2100, 1, 2, 3, 4, 5, 678901, UTC)
    job = NewJob(
        "charge",
        {"text": AWKWARD, "number": 1.5, "none": None},
        idempotency_key=scene.fresh(AWKWARD.replace("\n\t", "")),
        unique_key=scene.fresh(AWKWARD.replace("\n\t", "")),
        group_key="100%",
        run_at=due,
        timeout=2.5,
        tags=["a:b", "100%", "'"],
    )
    party = scene.party()
    party.begin()
    receipt = party.enqueue(scene.app, job)
    party.commit()
    stored = scene.app.get(receipt.job_id)
    assert stored is not None
    assert stored.payload == job.payload
    assert stored.due_at == due
    for name in ("idempotency_key", "unique_key", "group_key", "timeout", "tags"):
        assert getattr(stored, name) == getattr(job, name)


@on_postgres
def test_settings_of_the_session_do_not_matter(scene: Scene) -> None:
    party = scene.party()
    party.begin()
    for setting in (
        "search_path = ''",
        "datestyle = 'German, DMY'",
        "intervalstyle = 'sql_standard'",
        "timezone = 'Asia/Kathmandu'",
        "extra_float_digits = 0",
        "plan_cache_mode = 'force_generic_plan'",
        "xmloption = 'document'",
    ):
        party.execute(f"set local {setting}")
    due = datetime(2100, 1, 2, 3, 4, 5, 678901, UTC)
    receipt = party.enqueue(scene.app, scene.job(run_at=due, timeout=0.1))
    skipped = party.enqueue_many(scene.app, [scene.job(), scene.job()])
    party.commit()
    stored = scene.app.get(receipt.job_id)
    assert stored is not None
    assert (stored.due_at, stored.timeout) == (due, 0.1)
    assert skipped.inserted == 2


@pytest.fixture(scope="session")
def other_schema(tx_postgres: str) -> str:
    with Oncely(tx_postgres, schema="my_jobs") as app:
        app.migrate()
    return "my_jobs"


@on_postgres
def test_a_schema_of_another_name(scene: Scene, other_schema: str) -> None:
    party, job = scene.party(), scene.job()
    party.begin()
    with Oncely(scene.url, schema=other_schema) as app:
        one = party.enqueue(app, job)
        many = party.enqueue_many(app, [job, scene.job()])
        assert [one.inserted, many.inserted] == [True, 1]
        party.commit()
        assert not scene.has_job(one.job_id)
        assert app.get(one.job_id) is not None


@on_postgres
def test_a_store_that_cannot_be_reached_is_not_taken_for_that_of_the_transaction(
    scene: Scene,
) -> None:
    """Which store the app means is not known, so the job could be lost to it."""
    party = scene.party()
    party.begin()
    party.order(order := scene.fresh("order"))
    with (
        Oncely("postgresql://nobody@127.0.0.1:1/nowhere") as blind,
        pytest.raises(StoreUnavailable),
    ):
        party.enqueue(blind, scene.job())
    party.commit()
    assert scene.has_order(order)


@pytest.mark.parametrize(
    "library", ["postgres-sqlalchemy-async-session-asyncpg", "sqlite-sqlalchemy-async-session"]
)
def test_inside_run_sync(scene: Scene) -> None:
    """SQLAlchemy's bridge: a sync session over an async driver."""

    async def story() -> tuple[str, str]:
        kit: Any = scene.kit(scene.url)
        engine = create_async_engine(kit.address, poolclass=NullPool)
        async with AsyncSession(engine) as session:
            kept = await session.run_sync(lambda sync: scene.app.enqueue("charge", tx=sync))
            await session.commit()
            lost = await session.run_sync(lambda sync: scene.app.enqueue("charge", tx=sync))
            await session.rollback()
        await engine.dispose()
        return kept.job_id, lost.job_id

    kept, lost = asyncio.run(story())
    assert (scene.has_job(kept), scene.has_job(lost)) == (True, False)


@pytest.mark.parametrize("library", ["postgres-psycopg", "postgres-psycopg-async"])
def test_in_a_pipeline(scene: Scene) -> None:
    """There a statement is sent without waiting for its answer, which is what we need."""
    party, jobs = scene.party(), [scene.job(), scene.job()]
    party.begin()
    first = party.enqueue(scene.app, jobs[0])

    def blocking() -> Any:
        with party.kit.tx.pipeline():
            return scene.app.enqueue_many(jobs, tx=party.kit.tx)

    async def awaiting() -> Any:
        async with party.kit.tx.pipeline():
            return await scene.app.aenqueue_many(jobs, tx=party.kit.tx)

    many = party.do(awaiting if party.kit.awaits else blocking)
    assert (many.inserted, many.receipts[0].job_id) == (1, first.job_id)
    party.commit()
    assert scene.has_job(many.receipts[1].job_id)


def refuse_ready(action: int, table: str | None, *_: Any) -> int:
    """An authorizer of SQLite that refuses the fourth of our five statements."""
    refuse = action == sqlite3.SQLITE_INSERT and table == "oncely_ready"
    return sqlite3.SQLITE_DENY if refuse else sqlite3.SQLITE_OK


@pytest.mark.parametrize("library", ["sqlite-sqlite3"])
@pytest.mark.parametrize("keys", [{}, {"unique_key": None, "idempotency_key": None}])
def test_an_error_in_the_middle_leaves_nothing(scene: Scene, keys: dict[str, Any]) -> None:
    party, order, job = scene.party(), scene.fresh("order"), scene.job(**keys)
    party.order(order)
    party.do(lambda: party.kit.tx.set_authorizer(refuse_ready))
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        party.enqueue(scene.app, job)
    party.do(lambda: party.kit.tx.set_authorizer(None))
    party.commit()
    assert scene.has_order(order)
    assert scene.app.jobs() == []
    assert scene.app.enqueue_many([job]).inserted == 1


@pytest.mark.parametrize("library", ["sqlite-aiosqlite"])
def test_cancelled_in_the_middle_it_leaves_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    party, order, job = scene.party(), scene.fresh("order"), scene.job()
    connection = party.kit.tx
    execute = connection.execute

    def cancelled(sql: str, *params: Any) -> Any:
        if sql.startswith("insert into oncely_ready"):
            raise asyncio.CancelledError
        return execute(sql, *params)

    party.order(order)
    with monkeypatch.context() as patch:
        patch.setattr(connection, "execute", cancelled)
        waiting = party.enqueue_later(scene.app, job)
        assert waiting.exception(PATIENCE_SECONDS) is not None
    party.commit()
    assert scene.has_order(order)
    assert scene.app.jobs() == []
    assert scene.app.enqueue_many([job]).inserted == 1


class CancelledLending(asyncpg.Connection):  # type: ignore[misc]
    """Cancelled just when a key is to be remembered under the job that holds the unique key."""

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        if "lent = true" in query:
            raise asyncio.CancelledError
        return await super().fetch(query, *args, **options)


class AsyncpgCancelledLending(Asyncpg):
    async def open(self) -> None:
        self.tx = await asyncpg.connect(self.url, connection_class=CancelledLending)


@pytest.mark.parametrize("library", ["postgres-asyncpg"])
def test_cancelled_between_two_keys_it_leaves_neither(scene: Scene) -> None:
    job = scene.job()
    rival = scene.job(unique_key=job.unique_key)
    first, order = scene.party(), scene.fresh("order")
    second = scene.enter(Party(AsyncpgCancelledLending(scene.url)), "open")
    first.begin()
    first.enqueue(scene.app, job)
    second.begin()
    second.order(order)
    backend = scene.backend(second)
    waiting = second.enqueue_later(scene.app, rival)
    scene.wait_until_blocked(backend, waiting)
    first.commit()
    assert waiting.exception(PATIENCE_SECONDS) is not None
    second.commit()
    assert scene.has_order(order)
    again = scene.app.enqueue("charge", rival.payload, idempotency_key=rival.idempotency_key)
    assert again.inserted
