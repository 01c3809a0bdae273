"""Handlers with sqlite3 again: where the transaction begins and ends."""

import asyncio
import sqlite3
from contextlib import closing

import aiosqlite

from tests.prove.zoo.entries import expect
from tests.prove.zoo.sqlite import ACCOUNTS, PAYMENTS, connect

LEDGER = PAYMENTS + ACCOUNTS
INBOX = "create table inbox (id text primary key); create table charges (order_id text);"
FEED = """
create table feed (n int); insert into feed values (1), (2), (3), (4);
create table position (n int); insert into position values (0);
create table copied (n int);
"""


@expect("lost", "Autocommit: the payment is there, and the account was not debited.", schema=LEDGER)
def autocommit_then_skip(order: str) -> None:
    with closing(sqlite3.connect("shop.db", isolation_level=None)) as db:
        try:
            db.execute("insert into payments values (?, 10)", (order,))
        except sqlite3.IntegrityError:
            return
        db.execute("update accounts set cents = cents - 10 where id = 'ann'")


@expect("sound", "Payment and debit are in one transaction, and the key is unique.", schema=LEDGER)
def pay_in_one_transaction(order: str) -> None:
    with closing(connect()) as db:
        try:
            with db:
                db.execute("insert into payments values (?, 10)", (order,))
                db.execute("update accounts set cents = cents - 10 where id = 'ann'")
        except sqlite3.IntegrityError:
            pass


@expect("doubled", "A debit without its credit is debited again.", schema=LEDGER)
def transfer_in_two_commits(order: str) -> None:
    with closing(connect()) as db:
        db.execute("update accounts set cents = cents - 10 where id = 'ann'")
        db.commit()
        db.execute("update accounts set cents = cents + 10 where id = 'bob'")
        db.commit()


@expect("sound", "Both accounts and the transfer's id are in one transaction.", schema=LEDGER)
def transfer_once(order: str) -> None:
    with closing(connect()) as db, db:
        if db.execute("insert or ignore into payments values (?, 10)", (order,)).rowcount:
            db.execute("update accounts set cents = cents - 10 where id = 'ann'")
            db.execute("update accounts set cents = cents + 10 where id = 'bob'")


@expect(
    "lost", "`commit` in the middle of the `with` ends the transaction too early.", schema=INBOX
)
def commit_inside_with(order: str) -> None:
    with closing(connect()) as db, db:
        if db.execute("insert or ignore into inbox values (?)", (order,)).rowcount == 0:
            return
        db.commit()
        db.execute("insert into charges values (?)", (order,))


@expect("lost", "`executescript` commits what is open before it begins.", schema=INBOX)
def script_commits_first(order: str) -> None:
    with closing(connect()) as db, db:
        if db.execute("insert or ignore into inbox values (?)", (order,)).rowcount == 0:
            return
        db.executescript("insert into charges values ('order-1');")


@expect("doubled", "Two workers look before either of them writes.", schema=INBOX)
def look_outside_transaction(order: str) -> None:
    with closing(connect()) as db:
        if db.execute("select 1 from charges where order_id = ?", (order,)).fetchone():
            return
        with db:
            db.execute("insert into charges values (?)", (order,))


@expect("sound", "The lock is taken before it looks.", schema=INBOX)
def look_inside_transaction(order: str) -> None:
    with closing(sqlite3.connect("shop.db", timeout=30, isolation_level="IMMEDIATE")) as db, db:
        db.execute("begin immediate")
        if not db.execute("select 1 from charges where order_id = ?", (order,)).fetchone():
            db.execute("insert into charges values (?)", (order,))


@expect("lost", "The inbox has the order, committed before the charge.", schema=INBOX)
def inbox_first(order: str) -> None:
    with closing(connect()) as db:
        with db:
            if not db.execute("insert or ignore into inbox values (?)", (order,)).rowcount:
                return
        with db:
            db.execute("insert into charges values (?)", (order,))


@expect("doubled", "The charge is committed before the inbox has the order.", schema=INBOX)
def inbox_last(order: str) -> None:
    with closing(connect()) as db:
        if db.execute("select 1 from inbox where id = ?", (order,)).fetchone():
            return
        with db:
            db.execute("insert into charges values (?)", (order,))
        with db:
            db.execute("insert or ignore into inbox values (?)", (order,))


@expect("sound", "The inbox and the charge are one transaction.", schema=INBOX)
def inbox_with_charge(order: str) -> None:
    with closing(connect()) as db, db:
        if db.execute("insert or ignore into inbox values (?)", (order,)).rowcount:
            db.execute("insert into charges values (?)", (order,))


@expect(
    "doubled",
    "The position is read once; a worker that was paused copies what its successor copied.",
    schema=FEED,
)
def copy_from_position(order: str) -> None:
    with closing(connect()) as db:
        (position,) = db.execute("select n from position").fetchone()
        for start in range(position, 4, 2):
            with db:
                db.execute(
                    "insert into copied select n from feed where n > ? and n <= ?",
                    (start, start + 2),
                )
                db.execute("update position set n = ?", (start + 2,))


@expect(
    "sound", "A batch is copied only if the position is still the one that was read.", schema=FEED
)
def copy_from_checked_position(order: str) -> None:
    with closing(connect()) as db:
        (position,) = db.execute("select n from position").fetchone()
        for start in range(position, 4, 2):
            with db:
                moved = db.execute("update position set n = ? where n = ?", (start + 2, start))
                if moved.rowcount == 0:
                    return
                db.execute(
                    "insert into copied select n from feed where n > ? and n <= ?",
                    (start, start + 2),
                )


@expect("doubled", "Deleted and inserted in two commits: two workers insert.", schema=INBOX)
def rebuild_in_two_commits(order: str) -> None:
    with closing(sqlite3.connect("shop.db", isolation_level=None)) as db:
        db.execute("delete from charges where order_id = ?", (order,))
        db.execute("insert into charges values (?)", (order,))


@expect("sound", "Deleted and inserted in one transaction.", schema=INBOX)
def rebuild_in_one(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute("delete from charges where order_id = ?", (order,))
        db.execute("insert into charges values (?)", (order,))


@expect(
    "doubled", "`finally` writes in every delivery, also in one that does nothing.", schema=INBOX
)
def write_in_finally(order: str) -> None:
    with closing(connect()) as db:
        try:
            with db:
                db.execute("insert into inbox values (?)", (order,))
        except sqlite3.IntegrityError:
            pass
        finally:
            db.execute("insert into charges values (?)", (order,))
            db.commit()


@expect("sound", "A savepoint undoes the duplicate, and the rest is one transaction.", schema=INBOX)
def savepoint_for_duplicate(order: str) -> None:
    with closing(sqlite3.connect("shop.db", timeout=30, isolation_level=None)) as db:
        db.execute("begin immediate")
        db.execute("savepoint mark")
        try:
            db.execute("insert into inbox values (?)", (order,))
            db.execute("insert into charges values (?)", (order,))
        except sqlite3.IntegrityError:
            db.execute("rollback to mark")
        db.execute("release mark")
        db.execute("commit")


@expect("sound", "A unique key and one transaction, through aiosqlite.", schema=INBOX)
async def inbox_by_aiosqlite(order: str) -> None:
    async with aiosqlite.connect("shop.db", timeout=30) as db:
        made = await db.execute("insert or ignore into inbox values (?)", (order,))
        if made.rowcount:
            await db.execute("insert into charges values (?)", (order,))
        await db.commit()


async def change(cents: int, account: str) -> None:
    async with aiosqlite.connect("shop.db", timeout=30) as db:
        await db.execute("update accounts set cents = cents + ? where id = ?", (cents, account))
        await db.commit()


@expect("doubled", "Two connections at once are two transactions, without a mark.", schema=ACCOUNTS)
async def transfer_by_gather(order: str) -> None:
    await asyncio.gather(change(-10, "ann"), change(10, "bob"))


@expect(
    "sound",
    "The version is compared when the row is written, and the payment is in the same transaction.",
    schema=PAYMENTS + "create table carts (id text, total int, version int); "
    "insert into carts values ('c', 0, 1);",
)
def optimistic_version(order: str) -> None:
    with closing(connect()) as db, db:
        total, version = db.execute("select total, version from carts").fetchone()
        if not db.execute("insert or ignore into payments values (?, 5)", (order,)).rowcount:
            return
        saved = db.execute(
            "update carts set total = ?, version = ? where id = 'c' and version = ?",
            (total + 5, version + 1, version),
        )
        if saved.rowcount == 0:
            raise RuntimeError("someone else changed the cart")
