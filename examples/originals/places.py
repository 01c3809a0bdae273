"""What the recipes work on: a database of their own, a service at an address, and a Redis."""

import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Places:
    database: str
    """The path of a SQLite file."""
    service: str
    """Where the other side is: http://…"""
    redis: str
    """redis://…, or the path of a SQLite file in its stead."""


@contextmanager
def opened(path: str) -> Iterator[sqlite3.Connection]:
    """Each statement commits by itself, unless it stands between a begin and a commit."""
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as db:
        yield db


def post(address: str, what: str, key: str | None = None) -> str:
    """One request. A refusal is an exception, and so is an answer that does not come."""
    headers = {} if key is None else {"Idempotency-Key": key}
    request = urllib.request.Request(address, what.encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            told: str = answer.read().decode()
            return told
    except urllib.error.HTTPError as refusal:
        refusal.close()
        raise


def redis_at(address: str) -> Any:
    if not address.startswith("redis"):
        return Rows(address)
    from redis import Redis

    return Redis.from_url(address)


class Rows:
    """`SET … NX EX` and `DEL` as rows that expire, for machines that have no Redis."""

    def __init__(self, path: str) -> None:
        self._path = path

    def set(self, name: str, value: str, *, nx: bool, ex: int) -> bool | None:
        assert nx
        with opened(self._path) as db:
            db.execute("begin immediate")
            db.execute("create table if not exists entries (name primary key, value, ends)")
            db.execute("delete from entries where ends <= ?", (time.time(),))
            done = db.execute(
                "insert into entries values (?, ?, ?) on conflict do nothing",
                (name, value, time.time() + ex),
            ).rowcount
            db.execute("commit")
        return True if done else None

    def delete(self, name: str) -> int:
        with opened(self._path) as db:
            return db.execute("delete from entries where name = ?", (name,)).rowcount

    def close(self) -> None: ...
