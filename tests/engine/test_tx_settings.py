"""Connections that are set up in ways of their own still work, and stay as they were."""

import json
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
from psycopg import pq, rows
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from oncely import KeyConflict, NewJob
from tests.engine.tx_party import Party
from tests.engine.tx_scene import Scene

pytest_plugins = ["tests.engine.tx_fixtures"]


def exercise(scene: Scene, party: Party) -> None:
    """Every kind of answer in one transaction, which our statement is the first of."""
    order, job, held = scene.fresh("order"), scene.job(), scene.job()
    holder = scene.app.enqueue_many([held]).receipts[0]
    party.begin()
    first = party.enqueue(scene.app, job)
    assert first.inserted
    assert not scene.has_job(first.job_id)
    party.order(order)
    assert party.enqueue(scene.app, job) == first.__replace__(inserted=False)
    skipped = party.enqueue(scene.app, scene.job(unique_key=held.unique_key))
    assert (skipped.job_id, skipped.inserted) == (holder.job_id, False)
    conflict = NewJob("refund", idempotency_key=job.idempotency_key)
    with pytest.raises(KeyConflict):
        party.enqueue_many(scene.app, [scene.job(), conflict])
    many = party.enqueue_many(scene.app, [scene.job(), job, scene.job(delay=60)])
    assert [receipt.inserted for receipt in many.receipts] == [True, False, True]
    assert many.receipts[2].state == "scheduled"
    party.commit()
    assert scene.has_order(order)
    assert all(scene.has_job(receipt.job_id) for receipt in [first, *many.receipts])


def connect_sqlite3(**options: Any) -> Callable[[Any], None]:
    factories = {
        name: options.pop(name) for name in ("row_factory", "text_factory") & options.keys()
    }

    def open(kit: Any) -> None:
        kit.tx = sqlite3.connect(kit.path, **options)
        for name, factory in factories.items():
            setattr(kit.tx, name, factory)

    return open


def connect_aiosqlite(**factories: Any) -> Callable[[Any], Any]:
    async def open(kit: Any) -> None:
        kit.tx = await aiosqlite.connect(kit.path)
        for name, factory in factories.items():
            setattr(kit.tx, name, factory)

    return open


def connect_psycopg(**options: Any) -> Callable[[Any], None]:
    def open(kit: Any) -> None:
        kit.tx = psycopg.connect(kit.url, **options)

    return open


def connect_psycopg_async(**options: Any) -> Callable[[Any], Any]:
    async def open(kit: Any) -> None:
        kit.tx = await psycopg.AsyncConnection.connect(kit.url, **options)

    return open


def connect_asyncpg(**options: Any) -> Callable[[Any], Any]:
    async def open(kit: Any) -> None:
        kit.tx = await asyncpg.connect(kit.url, **options)

    return open


async def asyncpg_with_json(kit: Any) -> None:
    """What half of the world does after connecting."""
    kit.tx = await asyncpg.connect(kit.url)
    for name in ("json", "jsonb"):
        await kit.tx.set_type_codec(
            name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
        )


def open_with(**options: Any) -> Callable[[Any], Any]:
    def open(kit: Any) -> Any:
        return kit.open(**options)

    return open


def connection_with(**options: Any) -> Callable[[Any], None]:
    def open(kit: Any) -> None:
        kit.open()
        kit.tx = kit.tx.execution_options(**options)

    return open


def streamed(kit: Any) -> None:
    """Server-side cursors for the whole engine: the caller's own inserts go around them."""
    kit.open(execution_options={"stream_results": True})
    kit.execute = lambda sql: kit.tx.execute(text(sql), execution_options={"stream_results": False})


async def streamed_async(kit: Any) -> None:
    await kit.open(execution_options={"yield_per": 1})
    kit.execute = lambda sql: kit.tx.execute(text(sql), execution_options={"yield_per": None})


def begin_emitted(kit: Any) -> None:
    """SQLAlchemy's recipe for savepoints on SQLite: its own BEGIN instead of the driver's."""
    kit.engine = create_engine(kit.address)

    @event.listens_for(kit.engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(kit.engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    is_session = "Session" in type(kit).__name__
    kit.tx = Session(kit.engine, autoflush=False) if is_session else kit.engine.connect()


async def begin_emitted_async(kit: Any) -> None:
    kit.engine = create_async_engine(kit.address)

    @event.listens_for(kit.engine.sync_engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(kit.engine.sync_engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    kit.tx = await kit.engine.connect()


def without_autocommit(kit: Any) -> None:
    kit.open()
    kit.tx.set_autocommit(False)
    kit.begin = lambda: None
    kit.commit = kit.tx.commit


def with_debug(kit: Any) -> None:
    kit.open()
    kit.tx.force_debug_cursor = True


def as_dict(cursor: Any, row: Any) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


class BinaryCursor(psycopg.Cursor[Any]):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.format = pq.Format.BINARY


class MyRecord(asyncpg.Record):  # type: ignore[misc]
    def __iter__(self) -> Any:
        return iter(self.values())


AUTOCOMMIT_OFF: dict[str, Any] = {"autocommit": False} if sys.version_info >= (3, 12) else {}

SETTINGS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "Row": ("sqlite-sqlite3", connect_sqlite3(row_factory=sqlite3.Row)),
    "dict": ("sqlite-sqlite3", connect_sqlite3(row_factory=as_dict)),
    "bytes": ("sqlite-sqlite3", connect_sqlite3(text_factory=bytes)),
    "lenient": ("sqlite-sqlite3", connect_sqlite3(text_factory=lambda b: b.decode("latin-1"))),
    "types": ("sqlite-sqlite3", connect_sqlite3(detect_types=sqlite3.PARSE_DECLTYPES)),
    "immediate": ("sqlite-sqlite3", connect_sqlite3(isolation_level="IMMEDIATE")),
    "exclusive": ("sqlite-sqlite3", connect_sqlite3(isolation_level="EXCLUSIVE")),
    "no-cache": ("sqlite-sqlite3", connect_sqlite3(cached_statements=0)),
    "autocommit-off": ("sqlite-sqlite3", connect_sqlite3(**AUTOCOMMIT_OFF)),
    "aio-Row": ("sqlite-aiosqlite", connect_aiosqlite(row_factory=aiosqlite.Row)),
    "aio-dict": ("sqlite-aiosqlite", connect_aiosqlite(row_factory=as_dict)),
    "aio-bytes": ("sqlite-aiosqlite", connect_aiosqlite(text_factory=bytes)),
    "dict_row": ("postgres-psycopg", connect_psycopg(row_factory=rows.dict_row)),
    "scalar_row": ("postgres-psycopg", connect_psycopg(row_factory=rows.scalar_row)),
    "client": ("postgres-psycopg", connect_psycopg(cursor_factory=psycopg.ClientCursor)),
    "raw": ("postgres-psycopg", connect_psycopg(cursor_factory=psycopg.RawCursor)),
    "binary": ("postgres-psycopg", connect_psycopg(cursor_factory=BinaryCursor)),
    "prepare-never": ("postgres-psycopg", connect_psycopg(prepare_threshold=None)),
    "prepare-always": ("postgres-psycopg", connect_psycopg(prepare_threshold=0)),
    "sql-ascii": ("postgres-psycopg", connect_psycopg(client_encoding="sql_ascii")),
    "latin1": ("postgres-psycopg", connect_psycopg(client_encoding="latin1")),
    "async-dict_row": ("postgres-psycopg-async", connect_psycopg_async(row_factory=rows.dict_row)),
    "async-client": (
        "postgres-psycopg-async",
        connect_psycopg_async(cursor_factory=psycopg.AsyncClientCursor),
    ),
    "async-prepare-always": ("postgres-psycopg-async", connect_psycopg_async(prepare_threshold=0)),
    "json": ("postgres-asyncpg", asyncpg_with_json),
    "asyncpg-no-cache": ("postgres-asyncpg", connect_asyncpg(statement_cache_size=0)),
    "record": ("postgres-asyncpg", connect_asyncpg(record_class=MyRecord)),
    "emitted": ("sqlite-sqlalchemy-connection", begin_emitted),
    "emitted-session": ("sqlite-sqlalchemy-session", begin_emitted),
    "emitted-async": ("sqlite-sqlalchemy-async-connection", begin_emitted_async),
    "serializable": (
        "postgres-sqlalchemy-connection",
        open_with(isolation_level="SERIALIZABLE"),
    ),
    "streamed": ("postgres-sqlalchemy-connection", streamed),
    "streamed-session": ("postgres-sqlalchemy-session", streamed),
    "streamed-async": ("postgres-sqlalchemy-async-connection-psycopg", streamed_async),
    "streamed-asyncpg": ("postgres-sqlalchemy-async-session-asyncpg", streamed_async),
    "uncompiled": ("postgres-sqlalchemy-connection", connection_with(compiled_cache=None)),
    "asyncpg-unprepared": (
        "postgres-sqlalchemy-async-connection-asyncpg",
        open_with(connect_args={"prepared_statement_cache_size": 0}),
    ),
    "django-bound": ("postgres-django", open_with(server_side_binding=True)),
    "django-debug": ("postgres-django", with_debug),
    "django-debug-sqlite": ("sqlite-django", with_debug),
    "django-immediate": ("sqlite-django", open_with(transaction_mode="IMMEDIATE")),
    "django-manual": ("postgres-django", without_autocommit),
    "django-manual-sqlite": ("sqlite-django", without_autocommit),
}


@pytest.mark.parametrize(
    ("library", "opening"), SETTINGS.values(), ids=[f"{n}-{v[0]}" for n, v in SETTINGS.items()]
)
def test_unusual_settings(scene: Scene, opening: Callable[[Any], Any]) -> None:
    party = Party(scene.kit(scene.url))
    party.do(opening, party.kit)
    try:
        exercise(scene, party)
    finally:
        party.close()
