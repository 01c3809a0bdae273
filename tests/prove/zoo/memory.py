"""Handlers that remember in the memory of their process what they have done."""

import threading
from contextlib import closing
from functools import cache, lru_cache

from tests.prove.zoo.entries import expect
from tests.prove.zoo.sqlite import connect

CHARGES = "create table charges (order_id text)"
SEEN: set[str] = set()
LOCK = threading.Lock()


def insert(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute("insert into charges values (?)", (order,))


@expect("doubled", "The set is empty again in the next process.", schema=CHARGES)
def seen_in_a_set(order: str) -> None:
    if order in SEEN:
        return
    insert(order)
    SEEN.add(order)


@lru_cache(maxsize=100)
def insert_cached(order: str) -> None:
    insert(order)


@expect("doubled", "The cache is empty again in the next process.", schema=CHARGES)
def cached_effect(order: str) -> None:
    insert_cached(order)


@expect("doubled", "A lock of threads locks nobody in another process.", schema=CHARGES)
def guarded_by_thread_lock(order: str) -> None:
    with LOCK, closing(connect()) as db:
        if not db.execute("select 1 from charges where order_id = ?", (order,)).fetchone():
            with db:
                db.execute("insert into charges values (?)", (order,))


@cache
def price_of(sku: str) -> int:
    with closing(connect()) as db:
        (cents,) = db.execute("select cents from prices where sku = ?", (sku,)).fetchone()
        return int(cents)


@expect(
    "sound",
    "Only what is read is cached, and the row has a key.",
    schema="create table prices (sku text, cents int); insert into prices values ('tea', 300); "
    "create table lines (order_id text primary key, cents int);",
)
def cached_read(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute("insert or replace into lines values (?, ?)", (order, price_of("tea")))


class Counter:
    """An object of the module whose methods are the handlers."""

    def __init__(self) -> None:
        self.calls = 0

    def charge(self, order: str) -> None:
        self.calls += 1
        if self.calls == 1:
            insert(order)


counter = Counter()
expect("doubled", "Each process counts from nought.", name="counting_object", schema=CHARGES)(
    counter.charge
)
