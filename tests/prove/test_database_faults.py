"""The database is away: a statement fails, or a commit is done and its answer is lost."""

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from oncely import Context, Oncely, Retry
from oncely.prove import Report, Table, prove
from tests.waiting import PATIENCE_SECONDS

AT_ONCE = Retry(base=0, max_attempts=5)
ONCE = "insert into notes select 'paid' where not exists (select 1 from notes)"
AGAIN = "insert into notes values ('paid')"
Write = Callable[[str, str], Any]


def by_sqlite3(url: str, sql: str) -> None:
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=PATIENCE_SECONDS)) as db:
        db.execute(sql)
        db.commit()


def by_sqlite3_in_a_block(url: str, sql: str) -> None:
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=PATIENCE_SECONDS)) as db, db:
        db.execute(sql)


def by_sqlite3_in_autocommit(url: str, sql: str) -> None:
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, timeout=PATIENCE_SECONDS, isolation_level=None)) as db:
        db.execute(sql)


async def by_aiosqlite(url: str, sql: str) -> None:
    path = url.removeprefix("sqlite:///")
    async with aiosqlite.connect(path, timeout=PATIENCE_SECONDS) as db:
        await db.execute(sql)
        await db.commit()


def by_psycopg(url: str, sql: str) -> None:
    with psycopg.connect(url) as db:
        db.execute(sql.encode())


async def by_async_psycopg(url: str, sql: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as db:
        await db.execute(sql.encode())


def by_psycopg_in_autocommit(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(sql.encode())


def by_psycopg2(url: str, sql: str) -> None:
    with closing(psycopg2.connect(url)) as db, db, db.cursor() as cursor:
        cursor.execute(sql)


async def by_asyncpg(url: str, sql: str) -> None:
    db = await asyncpg.connect(url)
    try:
        async with db.transaction():
            await db.execute(sql)
    finally:
        await db.close()


def by_alchemy_on_psycopg2(url: str, sql: str) -> None:
    by_alchemy(url.replace("postgresql://", "postgresql+psycopg2://"), sql)


def by_alchemy(url: str, sql: str) -> None:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with engine.begin() as db:
            db.execute(sqlalchemy.text(sql))
    finally:
        engine.dispose()


async def by_async_alchemy(url: str, sql: str) -> None:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with engine.begin() as db:
            await db.execute(sqlalchemy.text(sql))
    finally:
        await engine.dispose()


Expected = type[Exception] | tuple[type[Exception], ...]
# They raise the second one where they cannot roll back what failed with the first.
LOST = (asyncpg.ConnectionDoesNotExistError, asyncpg.InterfaceError)
LOST_BY_PSYCOPG2 = (psycopg2.OperationalError, psycopg2.InterfaceError)
WAYS: dict[str, tuple[str, Write, Expected]] = {
    "sqlite3": ("sqlite", by_sqlite3, sqlite3.OperationalError),
    "sqlite3 block": ("sqlite", by_sqlite3_in_a_block, sqlite3.OperationalError),
    "sqlite3 autocommit": ("sqlite", by_sqlite3_in_autocommit, sqlite3.OperationalError),
    "aiosqlite": ("sqlite", by_aiosqlite, sqlite3.OperationalError),
    "alchemy on sqlite3": ("sqlite", by_alchemy, sqlalchemy.exc.OperationalError),
    "psycopg": ("postgres", by_psycopg, psycopg.OperationalError),
    "async psycopg": ("postgres", by_async_psycopg, psycopg.OperationalError),
    "psycopg autocommit": ("postgres", by_psycopg_in_autocommit, psycopg.OperationalError),
    "psycopg2": ("postgres", by_psycopg2, LOST_BY_PSYCOPG2),
    "asyncpg": ("postgres", by_asyncpg, LOST),
    "alchemy on psycopg": ("postgres", by_alchemy, sqlalchemy.exc.OperationalError),
    "alchemy on psycopg2": ("postgres", by_alchemy_on_psycopg2, sqlalchemy.exc.OperationalError),
    "alchemy on asyncpg": ("postgres", by_async_alchemy, sqlalchemy.exc.DBAPIError),
}

INSERTS = {
    "sqlite3 autocommit": 1,
    "psycopg autocommit": 1,
    "alchemy on psycopg": 11,
    "alchemy on psycopg2": 11,
    "alchemy on asyncpg": 8,
}
"""The boundary at which it inserts, if it is not the one after BEGIN."""


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[Oncely]:
    engine = WAYS[request.param][0] if request.param in WAYS else request.param
    url: str = request.getfixturevalue(f"{engine}_url")
    with Oncely(url) as app:
        write = by_sqlite3 if engine == "sqlite" else by_psycopg
        write(url, "create table notes (text text)")
        app.migrate()
        yield app


def shown(app: Oncely, handler: Callable[..., Any], **options: Any) -> Report:
    app._registry._handlers.clear()
    app.job("handler", retry=AT_ONCE)(handler)
    options = {"max_faults": 1, "budget_seconds": math.inf, **options}
    return prove(app, "handler", world=[Table(app.url, "notes")], **options)


def handler_of(
    app: Oncely, way: str, *, expect: Expected, instead: str | None
) -> Callable[..., Any]:
    """Writes once; where that raises what is expected, writes something else or nothing."""
    _, write, _ = WAYS[way]

    async def handle(ctx: Context) -> None:
        try:
            if (waiting := write(app.url, ONCE)) is not None:
                await waiting
        except expect as error:
            if "interrupted" in str(error):
                raise
            if instead is not None and (waiting := write(app.url, instead)) is not None:
                await waiting

    return handle


@pytest.mark.parametrize(
    ("store", "way"), [(way, way) for way in WAYS], indirect=["store"], ids=WAYS
)
def test_a_failed_statement_and_a_lost_commit(store: Oncely, way: str) -> None:
    error = WAYS[way][2]
    swallowing = handler_of(store, way, expect=error, instead=None)
    insert = INSERTS.get(way, 2)
    commit = insert if "autocommit" in way else insert + 1
    report = shown(store, swallowing, schedule=f"fail@{insert}")
    found = [each.number for each in report.boundaries if each.name.startswith("insert")]
    assert found == [insert], report.boundaries
    assert [each.verdict for each in report.violations] == ["lost"], str(report)
    assert "the statement fails, nothing done" in str(report)
    assert "Let the exception out" in report.violations[0].advice
    assert report.not_reached == 0
    if commit != insert:
        report = shown(store, swallowing, schedule=f"fail@{commit}")
        assert [each.verdict for each in report.violations] == ["lost"], str(report)
    again = handler_of(store, way, expect=error, instead=AGAIN)
    report = shown(store, again, schedule=f"lose@{commit}")
    assert [each.verdict for each in report.violations] == ["doubled"], str(report)
    assert "done, and the answer is lost" in str(report)
    assert "an exception does not say that nothing was done" in report.violations[0].advice


@pytest.mark.parametrize(
    ("store", "way"), [("sqlite3", "sqlite3"), ("asyncpg", "asyncpg")], indirect=["store"]
)
def test_a_handler_that_lets_the_exception_out_is_sound(store: Oncely, way: str) -> None:
    handler = handler_of(store, way, expect=ZeroDivisionError, instead=None)
    report = shown(store, handler)
    assert report.verdict == "sound", str(report)
    played = {str(each).partition("@")[0] for each in report.played}
    assert played >= {"crash", "zombie", "late", "fail", "lose"}
    assert report.not_reached == 0


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("form", ["sync", "async"])
def test_the_transaction_of_a_job_is_sound(store: Oncely, form: str) -> None:
    def pay(ctx: Context) -> None:
        with ctx.transaction() as tx:
            tx.execute(AGAIN)

    async def apay(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(AGAIN)

    report = shown(store, pay if form == "sync" else apay)
    assert report.verdict == "sound", str(report)
    assert {"fail", "lose"} <= {str(each).partition("@")[0] for each in report.played}
    assert report.not_reached == 0


def test_a_transaction_that_fails_in_the_middle_is_undone(tmp_path: Any) -> None:
    """After an error of the disk SQLite has undone what came before."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table notes (text text primary key)")

    def in_two(_: str) -> None:
        with closing(sqlite3.connect(path, timeout=PATIENCE_SECONDS)) as db:
            db.execute("insert or ignore into notes values ('one')")
            try:
                db.execute("insert or ignore into notes values ('two')")
            except sqlite3.OperationalError as error:
                if "disk I/O" not in str(error):
                    raise
                db.execute("insert or ignore into notes values ('two')")
            db.commit()

    world = [Table(f"sqlite:///{path}", "notes")]
    report = prove(in_two, payload="x", world=world, max_faults=1, budget_seconds=math.inf)
    assert {each.token for each in report.violations} == {"fail@3"}
    assert report.violations[0].verdict == "lost"


def test_a_repeat_that_cannot_look_does_it_again(tmp_path: Any) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table notes (text text)")

    def look_then_write(text: str) -> None:
        with closing(sqlite3.connect(path, timeout=PATIENCE_SECONDS, isolation_level=None)) as db:
            db.execute("begin immediate")
            try:
                found = db.execute("select 1 from notes").fetchone()
            except sqlite3.OperationalError:
                db.execute("begin immediate")
                found = None
            if not found:
                db.execute("insert into notes values (?)", (text,))
            db.execute("commit")

    world = [Table(f"sqlite:///{path}", "notes")]
    report = prove(look_then_write, payload="x", world=world, budget_seconds=math.inf)
    assert report.violations
    assert {each.verdict for each in report.violations} == {"doubled"}
    assert {len(each.schedule.moves) for each in report.violations} == {2}
    assert "+fail@" in report.violations[0].token
