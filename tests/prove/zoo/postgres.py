"""Handlers on PostgreSQL: psycopg, asyncpg, a pool, SQLAlchemy."""

import os
from typing import Any

import asyncpg
import psycopg
from psycopg.errors import UniqueViolation
from psycopg_pool import ConnectionPool
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.prove.zoo.entries import expect

CHARGES = "create table charges (order_id text)"
ORDERS = "create table orders (id text, state text); insert into orders values ('order-1', 'new');"
INBOX = "create table inbox (id text primary key);"
PAID: dict[str, Any] = {
    "postgres": f"{ORDERS} {INBOX} {CHARGES}",
    "tables": ("orders", "inbox", "charges"),
}


def url() -> str:
    return os.environ["SHOP_DATABASE"]


@expect("sound", "RETURNING says whether the mark is new.", **PAID)
def insert_returning(order: str) -> None:
    with psycopg.connect(url()) as db:
        new = db.execute(
            "insert into inbox values (%s) on conflict do nothing returning id", (order,)
        ).fetchone()
        if new:
            db.execute("insert into charges values (%s)", (order,))


@expect("sound", "The row of the order is locked while it looks and writes.", **PAID)
def select_for_update(order: str) -> None:
    with psycopg.connect(url()) as db:
        row = db.execute("select state from orders where id = %s for update", (order,)).fetchone()
        if row == ("paid",):
            return
        db.execute("insert into charges values (%s)", (order,))
        db.execute("update orders set state = 'paid' where id = %s", (order,))


@expect("doubled", "Two workers read the state before either of them writes.", **PAID)
def select_without_lock(order: str) -> None:
    with psycopg.connect(url()) as db:
        row = db.execute("select state from orders where id = %s", (order,)).fetchone()
        if row == ("paid",):
            return
        db.execute("insert into charges values (%s)", (order,))
        db.execute("update orders set state = 'paid' where id = %s", (order,))


@expect(
    "sound", "SERIALIZABLE refuses the commit of who looked too early, and it is retried.", **PAID
)
def serializable(order: str) -> None:
    with psycopg.connect(url()) as db:
        db.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        row = db.execute("select 1 from charges where order_id = %s", (order,)).fetchone()
        if row is None:
            db.execute("insert into charges values (%s)", (order,))


@expect("sound", "An advisory lock of the transaction is held while it looks and writes.", **PAID)
def advisory_lock(order: str) -> None:
    with psycopg.connect(url()) as db:
        db.execute("select pg_advisory_xact_lock(hashtext(%s))", (order,))
        if not db.execute("select 1 from charges where order_id = %s", (order,)).fetchone():
            db.execute("insert into charges values (%s)", (order,))


@expect("lost", "Autocommit: the mark is there before the charge.", **PAID)
def autocommit_mark_first(order: str) -> None:
    with psycopg.connect(url(), autocommit=True) as db:
        try:
            db.execute("insert into inbox values (%s)", (order,))
        except UniqueViolation:
            return
        db.execute("insert into charges values (%s)", (order,))


@expect("sound", "Autocommit, with a transaction around what belongs together.", **PAID)
def autocommit_with_transaction(order: str) -> None:
    with psycopg.connect(url(), autocommit=True) as db:
        try:
            with db.transaction():
                db.execute("insert into inbox values (%s)", (order,))
                db.execute("insert into charges values (%s)", (order,))
        except UniqueViolation:
            pass


@expect("doubled", "COPY adds the rows once more.", **PAID)
def copy_rows(order: str) -> None:
    with (
        psycopg.connect(url()) as db,
        db.cursor() as cursor,
        cursor.copy("copy charges from stdin") as copy,
    ):
        copy.write_row((order,))


@expect("doubled", "A pool of connections changes nothing: there is no mark.", **PAID)
def through_a_pool(order: str) -> None:
    with ConnectionPool(url(), min_size=1, max_size=2) as pool, pool.connection() as db:
        db.execute("insert into charges values (%s)", (order,))


@expect("sound", "asyncpg: the mark and the charge are one transaction.", **PAID)
async def asyncpg_mark(order: str) -> None:
    db = await asyncpg.connect(url())
    try:
        async with db.transaction():
            done = await db.execute("insert into inbox values ($1) on conflict do nothing", order)
            if done == "INSERT 0 1":
                await db.execute("insert into charges values ($1)", order)
    finally:
        await db.close()


@expect("lost", "asyncpg commits each statement that is in no transaction.", **PAID)
async def asyncpg_without_transaction(order: str) -> None:
    db = await asyncpg.connect(url())
    try:
        done = await db.execute("insert into inbox values ($1) on conflict do nothing", order)
        if done == "INSERT 0 1":
            await db.execute("insert into charges values ($1)", order)
    finally:
        await db.close()


@expect("doubled", "The state is committed after the charge.", **PAID)
async def async_engine(order: str) -> None:
    engine = create_async_engine(url().replace("postgresql:", "postgresql+asyncpg:"))
    async with engine.connect() as db:
        state = await db.scalar(text("select state from orders where id = :id"), {"id": order})
        if state != "paid":
            await db.execute(text("insert into charges values (:id)"), {"id": order})
            await db.commit()
            await db.execute(text("update orders set state = 'paid'"))
            await db.commit()
    await engine.dispose()


@expect(
    "sound",
    "The id is the next of a sequence, which may leave a gap, and the order is unique.",
    postgres="create table invoices (number bigserial primary key, order_id text unique)",
    tables=("invoices",),
)
def number_from_sequence(order: str) -> None:
    with psycopg.connect(url()) as db:
        db.execute("insert into invoices (order_id) values (%s) on conflict do nothing", (order,))


QUEUE = """
create table tasks (id int, state text, tries int default 0);
insert into tasks (id, state) values (1, 'new'), (2, 'new'); create table charges (order_id text);
"""


@expect(
    "sound",
    "Each row is locked, worked on and marked in one transaction.",
    postgres=QUEUE,
    tables=("tasks", "charges"),
)
def skip_locked(order: str) -> None:
    with psycopg.connect(url()) as db:
        while True:
            with db.transaction():
                row: Any = db.execute(
                    "select id from tasks where state = 'new' order by id limit 1 "
                    "for update skip locked"
                ).fetchone()
                if row is None:
                    return
                db.execute("insert into charges values (%s)", (str(row[0]),))
                db.execute("update tasks set state = 'done' where id = %s", row)


@expect(
    "lost",
    "A row that was taken and not done stays taken, and no repeat finds it.",
    postgres=QUEUE,
    tables=("tasks", "charges"),
)
def take_then_work(order: str) -> None:
    with psycopg.connect(url(), autocommit=True) as db:
        while row := db.execute(
            "update tasks set state = 'taken' where id = (select id from tasks where state = 'new' "
            "order by id limit 1 for update skip locked) returning id"
        ).fetchone():
            db.execute("insert into charges values (%s)", (str(row[0]),))
            db.execute("update tasks set state = 'done' where id = %s", row)


@expect("refused", "No database of MySQL is in the world: the proof would write to the original.")
def by_pymysql(order: str) -> None:
    import pymysql

    pymysql.connect(host="127.0.0.1", user="shop", database="shop").close()
