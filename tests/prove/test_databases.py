"""Each way to a database, or to Redis: its boundaries are found, and a crash between them shows."""

import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
import redis
import redis.asyncio
from django.db import connection, connections, models, transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from oncely import Context, Oncely, Retry
from oncely.prove import Report, Table, prove
from tests.engine.tx_django import NOWHERE

pytest_plugins = ["tests.engine.ledger_fixtures"]
Handler = Callable[[Context], Any] | Callable[[Context], Coroutine[Any, Any, Any]]
AT_ONCE = Retry(base=0, max_attempts=5)
KEY = "oncely-prove-count"


class Note(models.Model):  # type: ignore[misc]
    text = models.TextField(primary_key=True)

    class Meta:
        app_label = "shop"
        db_table = "notes"


class Tick(models.Model):  # type: ignore[misc]
    text = models.TextField()

    class Meta:
        app_label = "shop"
        db_table = "ticks"


@pytest.fixture
def sqlite_app(sqlite_url: str) -> Iterator[Oncely]:
    with Oncely(sqlite_url) as app:
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as db:
            db.executescript(
                "create table notes (text text primary key);"
                "create table ticks (id integer primary key, text text);"
            )
        yield app


@pytest.fixture
def postgres_app(postgres_url: str) -> Iterator[Oncely]:
    with psycopg.connect(postgres_url) as server:
        server.execute("create table notes (text text primary key)")
        server.execute("create table ticks (id bigserial primary key, text text)")
    with Oncely(postgres_url) as app:
        app.migrate()
        yield app


def crashed(app: Oncely, handler: Handler, schedule: str, *world: Any) -> Report:
    """The report of one crash, before the job is settled."""
    app.job("handler", retry=AT_ONCE)(handler)
    tables = [Table(app.url, "notes"), Table(app.url, "ticks", ignore=["id"])]
    return prove(app, "handler", world=[*tables, *world], schedule=schedule)


def names(report: Report, channel: str) -> list[str]:
    return [each.name.split()[0].upper() for each in report.boundaries if each.channel == channel]


def test_aiosqlite(sqlite_app: Oncely) -> None:
    path = sqlite_app.url.removeprefix("sqlite:///")

    async def in_two(ctx: Context) -> None:
        async with aiosqlite.connect(path) as db:
            await db.execute("insert or ignore into notes values ('sent')")
            await db.commit()
            await db.execute("insert into ticks (text) values ('sent')")
            await db.commit()

    report = crashed(sqlite_app, in_two, "crash@7")
    assert names(report, "sqlite") == ["BEGIN", "INSERT", "COMMIT"] * 2
    assert [each.verdict for each in report.violations] == ["doubled"]
    assert report.unobserved == []


def by_django(app: Oncely) -> Handler:
    engine = "sqlite3" if app.url.startswith("sqlite") else "postgresql"
    where = {**NOWHERE, **connections.settings["default"]}
    if engine == "sqlite3":
        where |= {"NAME": app.url.removeprefix("sqlite:///")}
    else:
        parts = conninfo_to_dict(app.url)
        where |= {
            name: parts.get(name.lower(), "") for name in ("USER", "PASSWORD", "HOST", "PORT")
        }
        where |= {"NAME": parts["dbname"]}
    where |= {"ENGINE": f"django.db.backends.{engine}", "OPTIONS": {}}

    def in_two(ctx: Context) -> None:
        connections.settings["default"] = where
        try:
            with transaction.atomic():
                Note.objects.get_or_create(text="sent")
            with transaction.atomic():
                Tick.objects.create(text="sent")
        finally:
            connection.close()

    return in_two


async def by_asyncpg(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        sent = await connection.prepare("insert into notes values ('sent') on conflict do nothing")
        await sent.fetch()
        ticks = await connection.prepare("insert into ticks (text) values ($1)")
        await ticks.executemany([("sent",)])
        seen = await connection.prepare("select count(*) from ticks")
        await seen.fetchval()
    finally:
        await connection.close()


async def by_alchemy_on_asyncpg(url: str) -> None:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    for statement in (
        "insert into notes values ('sent') on conflict do nothing",
        "insert into ticks (text) values ('sent')",
    ):
        async with engine.begin() as connection:
            await connection.execute(text(statement))
    await engine.dispose()


@pytest.mark.parametrize("write", [by_asyncpg, by_alchemy_on_asyncpg])
def test_prepared_statements_of_asyncpg(
    postgres_app: Oncely, write: Callable[[str], Coroutine[Any, Any, None]]
) -> None:
    async def handler(ctx: Context) -> None:
        await write(postgres_app.url)

    report = crashed(postgres_app, handler, "zombie@0")
    found = names(report, "postgres")
    assert found.count("INSERT") == 2, report.boundaries
    last = max(each.number for each in report.boundaries if each.channel == "postgres")
    tables = [Table(postgres_app.url, "notes"), Table(postgres_app.url, "ticks", ignore=["id"])]
    again = prove(postgres_app, "handler", world=tables, schedule=f"crash@{last + 1}")
    assert [each.verdict for each in again.violations] == ["doubled"]
    assert again.unobserved == []


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_the_orm_of_django(request: pytest.FixtureRequest, engine: str) -> None:
    app: Oncely = request.getfixturevalue(f"{engine}_app")
    report = crashed(app, by_django(app), "crash@11")
    found = names(report, engine)
    assert found.count("COMMIT") >= 2
    assert found.count("INSERT") == 2
    assert [each.verdict for each in report.violations] == ["doubled"]
    assert report.unobserved == []


@pytest.mark.parametrize("form", ["sync", "async", "pipeline"])
def test_redis(sqlite_app: Oncely, redis_url: str, form: str) -> None:
    def count(ctx: Context) -> None:
        with redis.Redis.from_url(redis_url) as client:
            client.set(f"{KEY}-mark", "1", nx=True)
            client.incr(KEY)

    async def acount(ctx: Context) -> None:
        async with redis.asyncio.Redis.from_url(redis_url) as client:
            await client.set(f"{KEY}-mark", "1", nx=True)
            await client.incr(KEY)

    async def pipelined(ctx: Context) -> None:
        async with redis.asyncio.Redis.from_url(redis_url) as client:
            pipeline: Any = client.pipeline()
            await pipeline.set(f"{KEY}-mark", "1", nx=True).incr(KEY).execute()

    def counted() -> Any:
        with redis.Redis.from_url(redis_url, decode_responses=True) as client:
            return client.get(KEY)

    handler = {"sync": count, "async": acount, "pipeline": pipelined}[form]
    report = crashed(sqlite_app, handler, "crash@2" if form == "pipeline" else "crash@3", counted)
    wanted = ["PIPELINE"] if form == "pipeline" else ["SET", "INCRBY"]
    assert names(report, "redis") == wanted
    assert [each.verdict for each in report.violations] == ["doubled"]
    assert report.unobserved == []
    assert counted() is None
