"""A paused worker sleeps until its successor is done, unless it is in its successor's way."""

import fcntl
import math
import select
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncely import Context, Oncely, Retry
from oncely.prove import Report, Table, prove
from oncely.prove.blocking import is_in_the_way
from tests.waiting import PATIENCE_SECONDS, wait_until

AT_ONCE = Retry(base=0, max_attempts=5)
SLOW_SECONDS = 2.5
"""More than a successor was given once."""


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.db")
    execute(path, "create table notes (text text)")
    return path


def execute(path: str, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path, timeout=PATIENCE_SECONDS, isolation_level=None)) as db:
        return db.execute(sql).fetchall()


def shown(function: Callable[..., Any], path: str, schedule: str) -> Report:
    world = [Table(f"sqlite:///{path}", "notes")]
    return prove(function, payload="x", world=world, schedule=schedule)


def be_slow() -> None:
    select.select([], [], [], SLOW_SECONDS)


def test_a_slow_successor_is_waited_for(path: str) -> None:
    """Both have looked before either has written."""

    def slow_then_look(_: str) -> None:
        be_slow()
        if not execute(path, "select 1 from notes"):
            execute(path, "insert into notes values ('x')")

    report = shown(slow_then_look, path, "zombie@2")
    assert [each.verdict for each in report.violations] == ["doubled"], str(report)
    assert [lane.title for lane in report.violations[0].lanes] == [
        "delivery 1",
        "delivery 2",
        "delivery 1 goes on",
    ]


def test_a_slow_handler_that_writes_once_is_sound(path: str) -> None:
    def slow_then_once(_: str) -> None:
        be_slow()
        execute(path, "insert into notes select 'x' where not exists (select 1 from notes)")

    report = shown(slow_then_once, path, "zombie@1")
    assert report.verdict == "sound", str(report)


def test_one_that_holds_a_file_is_woken(path: str, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()

    def under_lock(_: str) -> None:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not execute(path, "select 1 from notes"):
                execute(path, "insert into notes values ('x')")

    report = shown(under_lock, path, "zombie@2")
    assert report.verdict == "sound", str(report)
    assert report.not_reached == 0


def test_one_that_holds_a_lock_of_the_server_is_woken(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as server:
        server.execute("create table notes (text text)")
    with Oncely(postgres_url) as app:
        app.migrate()

        @app.job("handler", retry=AT_ONCE)
        def under_lock(ctx: Context) -> None:
            with psycopg.connect(postgres_url, autocommit=True) as db:
                db.execute("select pg_advisory_lock(1)")
                if db.execute("select 1 from notes").fetchone() is None:
                    db.execute("insert into notes values ('x')")

        world = [Table(postgres_url, "notes")]
        report = prove(app, "handler", world=world, schedule="zombie@3", budget_seconds=math.inf)
    assert report.verdict == "sound", str(report)
    assert report.not_reached == 0


def test_who_is_in_the_way(postgres_url: str, tmp_path: Path) -> None:
    nobody = 2**22 + 1  # more than the system gives
    assert not is_in_the_way(nobody, [postgres_url])
    with (
        psycopg.connect(postgres_url) as one,
        psycopg.connect(postgres_url, autocommit=True) as other,
    ):
        one.execute("create table rows ()")
        assert not is_in_the_way(nobody, [postgres_url])
        other.pgconn.send_query(b"create table rows ()")
        wait_until(lambda: is_in_the_way(nobody, [postgres_url]))
        one.rollback()
        wait_until(lambda: not is_in_the_way(nobody, [postgres_url]))
        while other.pgconn.get_result() is not None:
            pass
