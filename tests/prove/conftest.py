"""After every proof: nothing outside of it has changed, and nothing of it is left."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import sqlalchemy

from oncely.prove.abandoned import FOLDER
from oncely.prove.copies import Copies
from oncely.prove.processes import MARK

SIDES = ("-wal", "-shm", "-journal")
TABLES = """
select format('%I.%I', schemaname, tablename) from pg_tables
where schemaname not in ('pg_catalog', 'information_schema')
"""
Found = dict[str, Any]


@pytest.fixture(autouse=True)
def nothing_is_touched(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Taken when a proof begins, after it has put back what killed ones have left, and again when
    it has ended."""
    urls = [
        request.getfixturevalue(name)
        for name in ("postgres_url", "redis_url", "mysql_database")
        if name in request.fixturenames
    ]
    make, close = Copies.__init__, Copies.close
    before: dict[Path, Found] = {}
    wrong: list[str] = []

    def begin(copies: Copies) -> None:
        make(copies)
        before[copies._folder] = fingerprint(tmp_path, urls)

    def end(copies: Copies) -> None:
        close(copies)
        wrong.extend(difference(before[copies._folder], fingerprint(tmp_path, urls)))
        wrong.extend(left_of(copies._folder))

    monkeypatch.setattr(Copies, "__init__", begin)
    monkeypatch.setattr(Copies, "close", end)
    yield
    assert wrong == []


def difference(before: Found, after: Found) -> list[str]:
    return [
        f"{each}: {before.get(each)} before, {after.get(each)} after"
        for each in sorted({*before, *after})
        if before.get(each) != after.get(each)
    ]


def fingerprint(folder: Path, urls: list[str]) -> Found:
    found: Found = {f"child {pid}": "runs" for pid in children()}
    found |= {f"{os.getcwd()}/{name}": "is there" for name in os.listdir() if name[0] != "."}
    for place, folders, files in os.walk(folder):
        # What Python compiles when a module is imported is no work of the handler's.
        folders[:] = [
            name for name in folders if not name.startswith(FOLDER) and name != "__pycache__"
        ]
        for path in (Path(place, name) for name in (*folders, *files)):
            if not path.name.endswith(SIDES):
                found[str(path)] = (path.lstat().st_mode, content(path))
    for url in urls:
        read = {"redis": keys, "mysql+pymysql": mysql_databases}.get(
            url.partition(":")[0], databases
        )
        found |= read(url)
    return found


def content(path: Path) -> str:
    if path.is_symlink():
        return os.readlink(path)
    if not path.is_file():
        return ""
    data = path.read_bytes()
    if data.startswith(b"SQLite format 3\0"):
        # What is in it: where it is, in the file or in its log, may change.
        with closing(sqlite3.connect(path, timeout=60)) as db:
            data = "\n".join(db.iterdump()).encode()
    return sha256(data).hexdigest()


def keys(url: str) -> Found:
    with redis.Redis.from_url(url) as cache:
        return {f"key {key!r}": cache.dump(key) for key in cache.scan_iter()}


def databases(url: str) -> Found:
    with psycopg.connect(url, autocommit=True) as server:
        names = server.execute("select datname from pg_database").fetchall()
        copies = [name for (name,) in names if name.startswith("oncely_prove_")]
        found: Found = {f"database {name}": "is there" for name in copies}
        for (table,) in server.execute(TABLES).fetchall():
            rows = server.execute(f"select t::text from {table} t order by 1".encode()).fetchall()
            found[f"table {table}"] = len(rows), sha256(repr(rows).encode()).hexdigest()
    return found


def mysql_databases(url: str) -> Found:
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as server:
        found: Found = {
            f"database {name}": "is there"
            for (name,) in server.execute(sqlalchemy.text("show databases"))
        }
        found |= {
            f"user {name}": "is there"
            for (name,) in server.execute(sqlalchemy.text("select user from mysql.user"))
        }
        for table, kind in server.execute(sqlalchemy.text("show full tables")).fetchall():
            if kind == "BASE TABLE":
                rows = server.execute(sqlalchemy.text(f"select * from `{table}` order by 1"))
                found[f"table {table}"] = sha256(repr(rows.fetchall()).encode()).hexdigest()
    engine.dispose()
    return found


def children() -> list[int]:
    """Of this process, also those that have ended and were not waited for."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            status = (process / "stat").read_bytes().rpartition(b")")[2].split()
            if int(status[1]) == os.getpid():
                found.append(int(process.name))
    return found


def left_of(folder: Path) -> list[str]:
    """The folder of a proof, and the processes that hold a file of it or were started in it."""
    left = [f"the folder {folder}"] if folder.exists() else []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            files = [os.readlink(file) for file in (process / "fd").iterdir()]
            environment = (process / "environ").read_bytes().split(b"\0")
            if (
                any(file.startswith(f"{folder}/") for file in files)
                or f"{MARK}={folder}".encode() in environment
            ):
                left.append(f"the process {process.name}")
    return left
