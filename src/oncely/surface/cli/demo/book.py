"""The book of the payment service: every charge that was made, every mail that was sent.

It is a file of the service's own, which Oncely does not know of. The service writes it, and who
wants to know what really happened reads it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

_TABLES: Final = """
    create table if not exists charge (
        id integer primary key, order_id integer, key text unique, asked integer default 1
    );
    create table if not exists mail (id integer primary key, order_id integer);
    create table if not exists question (id integer primary key, order_id integer);
"""
_CHARGE: Final = """
    insert into charge (order_id, key) values (?, ?)
    on conflict (key) do update set asked = asked + 1
    returning id
"""
_MAIL: Final = "insert into mail (order_id) values (?) returning id"
_QUESTION: Final = "insert into question (order_id) values (?) returning id"


class Charge(msgspec.Struct, frozen=True):
    """One payment. `asked` is how often it was asked for under its key."""

    id: int
    order: int
    key: str | None
    asked: int


class Mail(msgspec.Struct, frozen=True):
    id: int
    order: int


class Pages(msgspec.Struct, frozen=True):
    charges: list[Charge]
    mails: list[Mail]
    questions: int
    """How often somebody asked whether a mail was sent."""

    def mail_of(self, order: int) -> int | None:
        return next((mail.id for mail in self.mails if mail.order == order), None)


class Book:
    """In the hands of the service, whose threads take turns."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._lock = Lock()
        # It has to outlive no power failure, only the run.
        self._db.execute("pragma synchronous = off")
        self._db.executescript(_TABLES)

    def charge(self, order: int, key: str | None) -> int:
        """A repeat under the same key is the first charge; without a key each is a new one."""
        return self._write(_CHARGE, order, key)

    def send(self, order: int) -> int:
        return self._write(_MAIL, order)

    def find(self, order: int) -> int | None:
        self._write(_QUESTION, order)
        with self._lock:
            found = self._db.execute("select min(id) from mail where order_id = ?", (order,))
            return found.fetchone()[0]  # type: ignore[no-any-return]

    def _write(self, statement: str, *values: int | str | None) -> int:
        with self._lock:
            [(made,)] = self._db.execute(statement, values).fetchall()
            return made  # type: ignore[no-any-return]


def read(path: Path) -> Pages:
    with closing(sqlite3.connect(path)) as db:
        charges = db.execute("select id, order_id, key, asked from charge").fetchall()
        mails = db.execute("select id, order_id from mail").fetchall()
        [(questions,)] = db.execute("select count(*) from question").fetchall()
    return Pages([Charge(*row) for row in charges], [Mail(*row) for row in mails], questions)
