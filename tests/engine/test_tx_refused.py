"""What `tx=` refuses: no transaction, or one that does not reach the store. Nothing is stored."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import sessionmaker

from oncely import InvalidInput, NewJob, Oncely, SchemaError
from oncely.store import admit
from tests.engine.tx_drivers import Sqlite3
from tests.engine.tx_party import Party
from tests.engine.tx_scene import (
    Scene,
    everywhere,
    on_postgres,
    on_sqlite,
    where_it_awaits,
    where_it_begins_by_itself,
    where_it_blocks,
)
from tests.engine.tx_sqlalchemy import AlchemyConnection, AlchemySession, on

pytest_plugins = ["tests.engine.tx_fixtures"]

on_one_each = pytest.mark.parametrize("library", ["postgres-psycopg", "sqlite-sqlite3"])


@contextmanager
def refused(scene: Scene, saying: str, error: type[Exception] = InvalidInput) -> Iterator[NewJob]:
    """Gives a job to enqueue in vain: nobody sees it afterwards, and its keys are free."""
    job = scene.job()
    with pytest.raises(error, match=saying):
        yield job
    receipt = scene.app.enqueue_many([job]).receipts[0]
    assert receipt.inserted, "something of it was stored"


@everywhere
def test_without_a_transaction(scene: Scene) -> None:
    party = scene.party_in_autocommit()
    with refused(scene, "no open transaction.*: begin one first, or leave tx out") as job:
        party.enqueue(scene.app, job)
    with refused(scene, "no open transaction") as job:
        party.enqueue_many(scene.app, [job, scene.job()])
    party.order(order := scene.fresh("order"))
    assert scene.has_order(order), "the connection is as it was"


class Autocommit312(Sqlite3):
    """`autocommit=True` of Python 3.12, which leaves isolation_level at its default."""

    def open_autocommit(self) -> None:
        options: Any = {}
        if sys.version_info >= (3, 12):
            options["autocommit"] = True
        else:
            options["factory"] = type("Connection", (sqlite3.Connection,), {"autocommit": True})
        self.tx = sqlite3.connect(self.path, **options)


class AutocommitOption(AlchemyConnection):
    def open_autocommit(self) -> None:
        self.open()
        self.tx = self.tx.execution_options(isolation_level="AUTOCOMMIT")


class AutocommitDriver(AlchemyConnection):
    def open_autocommit(self) -> None:
        self.open(connect_args={"autocommit": True})


class AutocommitOfSession(AlchemySession):
    def open_autocommit(self) -> None:
        self.open()
        self.tx.connection(execution_options={"isolation_level": "AUTOCOMMIT"})


@pytest.mark.parametrize(
    ("library", "kit"),
    [
        ("sqlite-sqlite3", Autocommit312),
        ("postgres-sqlalchemy-connection", AutocommitOption),
        ("sqlite-sqlalchemy-connection", on("sqlite", AutocommitOption)),
        ("postgres-sqlalchemy-connection", AutocommitDriver),
        ("postgres-sqlalchemy-session", AutocommitOfSession),
        ("sqlite-sqlalchemy-session", on("sqlite", AutocommitOfSession)),
    ],
)
def test_other_ways_to_have_no_transaction(scene: Scene, kit: Any) -> None:
    party = scene.enter(Party(kit(scene.url)), "open_autocommit")
    with refused(scene, "no open transaction") as job:
        party.enqueue(scene.app, job)
    if isinstance(party.kit.tx, Connection):
        assert not party.kit.tx.in_transaction()


@pytest.mark.parametrize(
    "library", ["postgres-psycopg", "postgres-psycopg-async", "sqlite-sqlite3", "sqlite-aiosqlite"]
)
def test_a_transaction_begun_by_hand_in_autocommit_mode(scene: Scene) -> None:
    party = scene.party_in_autocommit()
    for end, kept in (("commit", True), ("rollback", False)):
        party.execute("begin")
        receipt = party.enqueue(scene.app, scene.job())
        party.execute(end)
        assert scene.has_job(receipt.job_id) is kept


@where_it_begins_by_itself
def test_where_the_library_begins_by_itself_so_do_we(scene: Scene) -> None:
    party = scene.party()
    for verb in ("enqueue", "enqueue_many"):
        if verb == "enqueue":
            receipt = party.enqueue(scene.app, job := scene.job())
        else:
            receipt = party.enqueue_many(scene.app, [job := scene.job(), scene.job()]).receipts[0]
        party.rollback()
        assert not scene.has_job(receipt.job_id)
        assert scene.app.enqueue_many([job]).receipts[0].inserted
    receipt = party.enqueue(scene.app, scene.job())
    party.commit()
    assert scene.has_job(receipt.job_id)


@where_it_awaits
def test_an_async_connection_needs_the_async_verb(scene: Scene) -> None:
    party = scene.party()
    party.begin()
    with refused(scene, r"async .*: use `await app\.aenqueue\(\.\.\., tx=tx\)`") as job:
        scene.app.enqueue(job.kind, job.payload, tx=party.kit.tx)
    with refused(scene, "aenqueue") as job:
        scene.app.enqueue_many([job], tx=party.kit.tx)
    party.order(order := scene.fresh("order"))
    party.commit()
    assert scene.has_order(order)


@where_it_blocks
def test_a_sync_connection_works_with_the_async_verbs(scene: Scene) -> None:
    party = scene.party()
    party.begin()
    party.order(order := scene.fresh("order"))
    if "django" in type(party.kit).__module__:
        from django.core.exceptions import SynchronousOnlyOperation

        # Django wants its own connections out of event loops, and says so.
        with pytest.raises(SynchronousOnlyOperation):
            party.do(lambda: scene.app.aenqueue("charge", tx=party.kit.tx))
        party.rollback()
        return
    one = party.do(lambda: scene.app.aenqueue("charge", tx=party.kit.tx))
    many = party.do(lambda: scene.app.aenqueue_many([scene.job()], tx=party.kit.tx))
    assert not scene.has_job(one.job_id)
    party.commit()
    assert scene.has_order(order)
    assert scene.has_job(one.job_id)
    assert scene.has_job(many.receipts[0].job_id)


@on_one_each
def test_things_that_are_no_connection(scene: Scene) -> None:
    party = scene.party()
    engine = create_engine("sqlite://")
    things = {
        "begin": "builtins.str",
        7: "builtins.int",
        engine: r"sqlalchemy\.engine\.base\.Engine",
        create_async_engine("sqlite+aiosqlite://"): "AsyncEngine",
        sessionmaker(engine): "sessionmaker",
        party.do(lambda: party.kit.tx.cursor()): "ursor",
        type(party.kit.tx): "builtins.type",
        scene.app: "Oncely",
    }
    for thing, name in things.items():
        with refused(scene, f"tx is .*{name}; expected a psycopg Connection or ") as job:
            scene.app.enqueue(job.kind, job.payload, tx=thing)


@everywhere
def test_a_transaction_on_the_other_engine(scene: Scene, tx_postgres: str, tx_sqlite: str) -> None:
    other = Oncely(tx_sqlite if scene.engine == "postgres" else tx_postgres)
    party = scene.party()
    party.begin()
    party.order(order := scene.fresh("order"))
    with other, pytest.raises(InvalidInput, match=r"tx is a transaction on .*, the store is on "):
        party.enqueue(other, scene.job())
    party.commit()
    assert scene.has_order(order)


@on_sqlite
def test_a_transaction_on_another_file(scene: Scene, tmp_path: Path) -> None:
    party = scene.party()
    party.begin()
    party.order(order := scene.fresh("order"))
    with Oncely(f"sqlite:///{tmp_path / 'other.db'}") as other:
        with pytest.raises(InvalidInput, match=r"jobs\.db, the store is .*other\.db"):
            party.enqueue(other, scene.job())
        with Oncely("sqlite://") as memory, pytest.raises(InvalidInput, match="is in memory"):
            party.enqueue(memory, scene.job())
        party.commit()
        assert scene.has_order(order)
        assert other.jobs() == []


def test_a_transaction_in_memory(sqlite_url: str) -> None:
    memory = sqlite3.connect(":memory:")
    with Oncely(sqlite_url) as app, pytest.raises(InvalidInput, match="a database in memory"):
        app.enqueue("charge", tx=memory)
    assert not memory.in_transaction
    memory.close()


def test_another_name_of_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    with Oncely(f"sqlite:///{tmp_path / 'folder' / 'jobs.db'}") as app:
        connection = sqlite3.connect(tmp_path / "link" / "jobs.db")
        receipt = app.enqueue("charge", tx=connection)
        connection.commit()
        connection.close()
        assert app.get(receipt.job_id) is not None


@on_postgres
def test_a_database_without_our_tables(scene: Scene) -> None:
    """The first call looks before it writes, so that the transaction goes on."""
    party, job = scene.party(), scene.job(unique_key=None)
    party.begin()
    party.order(order := scene.fresh("order"))
    absent = Oncely(scene.url, schema="absent")
    with absent, pytest.raises(SchemaError, match="oncely migrate"):
        party.enqueue(absent, job)
    assert party.enqueue(scene.app, job).inserted
    party.commit()
    assert scene.has_order(order)


@on_postgres
def test_a_database_without_our_tables_later(scene: Scene, tx_empty: str) -> None:
    party = scene.party()
    party.begin()
    party.enqueue(scene.app, scene.job())
    party.rollback()
    lost = scene.enter(Party(scene.kit(tx_empty)), "open")
    lost.begin()
    with pytest.raises(SchemaError, match="the database of tx= has no oncely tables") as caught:
        lost.enqueue(scene.app, scene.job())
    assert caught.value.__cause__ is not None
    lost.rollback()


def jobs_in(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "select (select count(*) from oncely.job) + (select count(*) from oncely.ready)"
            " + (select count(*) from oncely.idempotency_key)"
            " + (select count(*) from oncely.unique_key)"
        ).fetchone()
        assert row is not None
        return int(row[0])


@on_postgres
def test_a_database_with_another_store(scene: Scene, tx_other_store: str) -> None:
    """Every call is compared, also after one that was right, and the transaction goes on."""
    right = scene.party()
    right.begin()
    right.enqueue(scene.app, scene.job())
    right.rollback()
    lost = scene.enter(Party(scene.kit(tx_other_store)), "open")
    lost.begin()
    lost.order(order := scene.fresh("order"))
    names = rf"on another store \(database {tx_other_store.rpartition('/')[2]}, .* this app's store"
    for options in ({}, {"unique_key": None}, {"idempotency_key": None, "unique_key": None}):
        with pytest.raises(InvalidInput, match=names):
            lost.enqueue(scene.app, scene.job(**options))
        with pytest.raises(InvalidInput, match=names):
            lost.enqueue_many(scene.app, [scene.job(**options), scene.job(**options)])
    lost.commit()
    with psycopg.connect(tx_other_store) as connection:
        assert connection.execute("select 1 from orders where name = %s", (order,)).fetchone()
    assert jobs_in(tx_other_store) == 0
    right.begin()
    receipt = right.enqueue(scene.app, scene.job())
    right.commit()
    assert scene.has_job(receipt.job_id)


def test_a_long_call_on_another_store(
    tx_postgres: str, tx_other_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admit, "CHUNK", 2)
    jobs = [NewJob("k", n, idempotency_key=f"far:{n}", unique_key=f"far:{n}") for n in range(5)]
    with Oncely(tx_postgres) as app, psycopg.connect(tx_other_store) as lost:
        with pytest.raises(InvalidInput, match="on another store"):
            app.enqueue_many(jobs, tx=lost)
        lost.commit()
        assert jobs_in(tx_other_store) == 0


def test_another_schema_of_the_same_database_is_another_store(postgres_url: str) -> None:
    """The statements name the schema: the transaction reaches each app's own store."""
    with Oncely(postgres_url) as one, Oncely(postgres_url, schema="second") as two:
        one.migrate()
        two.migrate()
        with psycopg.connect(postgres_url) as connection:
            first = one.enqueue("k", tx=connection)
            second = two.enqueue("k", tx=connection)
        assert [job.job_id for job in one.jobs()] == [first.job_id]
        assert [job.job_id for job in two.jobs()] == [second.job_id]


def test_a_store_that_was_made_anew_under_a_running_app(postgres_url: str) -> None:
    with Oncely(postgres_url) as app:
        app.migrate()
        with psycopg.connect(postgres_url) as connection:
            app.enqueue("k", tx=connection)
            connection.rollback()
            connection.execute("drop schema oncely cascade")
        app.migrate()
        with psycopg.connect(postgres_url) as connection:
            receipt = app.enqueue("k", tx=connection)
        assert [job.job_id for job in app.jobs()] == [receipt.job_id]


@pytest.mark.parametrize("library", ["sqlite-sqlite3", "sqlite-aiosqlite"])
def test_a_file_that_was_replaced_by_another_store(scene: Scene) -> None:
    """The connection holds the old file, and the path leads to the new one."""
    party = scene.party()
    party.execute("select 1 from orders")  # SQLite opens the file now
    path = Path(scene.url.removeprefix("sqlite:///"))
    with Oncely(f"sqlite:///{path}.new") as other:
        other.migrate()
    for suffix in ("-wal", "-shm"):
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
    path.with_name(f"{path.name}.new").rename(path)
    with Oncely(scene.url) as app:
        party.begin()
        with pytest.raises(InvalidInput, match="on another store"):
            party.enqueue(app, scene.job())
        party.commit()
        assert app.jobs() == []


@on_sqlite
def test_a_file_that_lost_our_tables(scene: Scene) -> None:
    party = scene.party()
    scene.rows("drop table oncely_migration")
    party.begin()
    party.order(order := scene.fresh("order"))
    with pytest.raises(SchemaError, match="the database of tx= has no oncely tables"):
        party.enqueue(scene.app, scene.job())
    party.commit()
    assert scene.has_order(order)
