"""What `tx=` refuses: no transaction, or one that does not reach the store. Nothing is stored."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import sessionmaker

from oncely import InvalidInput, NewJob, Oncely, SchemaError
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
