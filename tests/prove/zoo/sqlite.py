"""Handlers with the sqlite3 module: statements, keys and numbers."""

import csv
import io
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from uuid import uuid4

from tests.prove.zoo.entries import expect

PAYMENTS = "create table payments (id text primary key, cents int);"
ACCOUNTS = """
create table accounts (id text primary key, cents int);
insert into accounts values ('ann', 100), ('bob', 0);
"""
STOCK = "create table stock (sku text primary key, n int); insert into stock values ('tea', 10);"
PRICES = "create table prices (sku text primary key, cents int);"


def connect() -> sqlite3.Connection:
    return sqlite3.connect("shop.db", timeout=30)


@expect("doubled", "The stock goes down again with each delivery.", schema=STOCK)
def take_from_stock(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute("update stock set n = n - 1 where sku = 'tea' and n > 0")


@expect(
    "sound",
    "The reservation has the order as its key, and only a new one takes from the stock.",
    schema=STOCK + "create table reservations (order_id text primary key, sku text)",
)
def reserve_stock(order: str) -> None:
    with closing(connect()) as db, db:
        made = db.execute(
            "insert into reservations values (?, 'tea') on conflict do nothing", (order,)
        )
        if made.rowcount:
            db.execute("update stock set n = n - 1 where sku = 'tea'")


@expect(
    "doubled",
    "The upsert adds to what is there already.",
    schema="create table points (customer text primary key, n int)",
)
def add_points(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute(
            "insert into points values ('ann', 5) "
            "on conflict (customer) do update set n = n + excluded.n"
        )


@expect(
    "sound",
    "The upsert writes the same value again.",
    schema="create table profiles (customer text primary key, city text)",
)
def save_profile(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute(
            "insert into profiles values ('ann', 'Oslo') "
            "on conflict (customer) do update set city = excluded.city"
        )


@expect(
    "doubled",
    "Each delivery takes the next number and makes one more invoice.",
    schema="create table invoices (number int, order_id text)",
)
def number_invoice(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute(
            "insert into invoices select coalesce(max(number), 0) + 1, ? from invoices", (order,)
        )


@expect(
    "sound",
    "The lock is taken before it looks, so that an order gets one number and no gap appears.",
    schema="create table invoices (number integer primary key, order_id text)",
)
def number_invoice_once(order: str) -> None:
    with closing(sqlite3.connect("shop.db", timeout=30, isolation_level=None)) as db:
        db.execute("begin immediate")
        if not db.execute("select 1 from invoices where order_id = ?", (order,)).fetchone():
            db.execute(
                "insert into invoices select coalesce(max(number), 0) + 1, ? from invoices",
                (order,),
            )
        db.execute("commit")


@expect(
    "sound",
    "The order is unique; the time and the random id are of the row that was first.",
    schema="create table receipts (id text primary key, order_id text unique, made_at text)",
)
def receipt_with_random_id(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute(
            "insert or ignore into receipts values (?, ?, ?)",
            (str(uuid4()), order, datetime.now(UTC).isoformat()),
        )


@expect(
    "doubled",
    "The key is a new random one in each delivery, so that nothing is ignored.",
    schema="create table receipts (id text primary key, order_id text)",
)
def receipt_with_random_key(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute("insert or ignore into receipts values (?, ?)", (uuid4().hex, order))


PRICE_LIST = "sku,cents\ntea,300\ncoffee,450\nmate,500\n"


@expect("sound", "Rows are replaced by key, wherever the import was cut.", schema=PRICES)
def import_prices(order: str) -> None:
    with closing(connect()) as db:
        for row in csv.DictReader(io.StringIO(PRICE_LIST)):
            db.execute("insert or replace into prices values (?, ?)", (row["sku"], row["cents"]))
            db.commit()


@expect(
    "doubled",
    "Rows have no key, and those before the crash are imported again.",
    schema="create table prices (sku text, cents int)",
)
def import_prices_without_key(order: str) -> None:
    with closing(connect()) as db, db:
        rows = csv.reader(io.StringIO(PRICE_LIST))
        next(rows)
        db.executemany("insert into prices values (?, ?)", rows)


@expect(
    "sound",
    "An order changes from paid to shipped once, and the shipment is written with that.",
    schema="create table orders (id text, state text); insert into orders values ('order-1', "
    "'paid'); create table shipments (order_id text);",
)
def ship_if_paid(order: str) -> None:
    with closing(connect()) as db, db:
        changed = db.execute(
            "update orders set state = 'shipped' where id = ? and state = 'paid'", (order,)
        )
        if changed.rowcount == 1:
            db.execute("insert into shipments values (?)", (order,))


AUDITED = """
create table orders (id text, state text); insert into orders values ('order-1', 'new');
create table audit (order_id text, state text);
create trigger changed after update on orders
begin insert into audit values (new.id, new.state); end;
"""


@expect("doubled", "The trigger writes one more row at each update.", schema=AUDITED)
def update_with_trigger(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute("update orders set state = 'paid' where id = ?", (order,))


@expect("sound", "A repeat updates no row, so that the trigger is silent.", schema=AUDITED)
def update_with_trigger_once(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute("update orders set state = 'paid' where id = ? and state <> 'paid'", (order,))


@expect(
    "lost",
    "A database that is locked is taken for a duplicate, and the payment is not written.",
    schema=PAYMENTS,
)
def swallow_all_database_errors(order: str) -> None:
    with closing(connect()) as db:
        try:
            db.execute("insert into payments values (?, 990)", (order,))
            db.commit()
        except sqlite3.Error:
            pass


@expect("sound", "Only a duplicate is swallowed.", schema=PAYMENTS)
def swallow_duplicates(order: str) -> None:
    with closing(connect()) as db:
        try:
            db.execute("insert into payments values (?, 990)", (order,))
            db.commit()
        except sqlite3.IntegrityError:
            db.rollback()


@expect("refused", "What is attached is not a copy, so that ATTACH is refused.", schema=PAYMENTS)
def attach_archive(order: str) -> None:
    with closing(connect()) as db:
        db.execute("attach 'archive.db' as archive")
        db.execute("create table if not exists archive.payments (id text primary key)")
        db.execute("insert or ignore into archive.payments values (?)", (order,))
        db.commit()


@expect("unobserved", "It never commits: one clean run leaves nothing.", schema=PAYMENTS)
def forget_to_commit(order: str) -> None:
    with closing(connect()) as db:
        db.execute("insert into payments values (?, 990)", (order,))


def unsent(db: sqlite3.Connection) -> Iterator[int]:
    """A generator that changes what it yields only after its consumer is done with it."""
    for (number,) in db.execute("select n from tickets where state = 'new' order by n").fetchall():
        yield number
        db.execute("update tickets set state = 'done' where n = ?", (number,))
        db.commit()


@expect(
    "doubled",
    "The total is committed before the generator marks the ticket.",
    schema="create table tickets (n int, state text); insert into tickets values (1, 'new'), "
    "(2, 'new'); create table totals (n int); insert into totals values (0);",
)
def sum_by_generator(order: str) -> None:
    with closing(connect()) as db:
        for number in unsent(db):
            db.execute("update totals set n = n + ?", (number,))
            db.commit()


@expect(
    "sound",
    "The total is computed from the rows, and not added to.",
    schema="create table tickets (n int); insert into tickets values (1), (2); "
    "create table totals (n int); insert into totals values (0);",
)
def recompute_total(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute("update totals set n = (select sum(n) from tickets)")


@expect(
    "sound",
    "The table is made if it is missing, and the row replaced by key.",
    schema="create table other (n int)",
)
def create_table_and_replace(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute("create table if not exists visits (day text primary key, n int)")
        db.execute("insert or replace into visits values ('2026-01-01', 7)")
