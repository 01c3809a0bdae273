"""All tables of a database are compared, unless some of them are named."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncely import Context, Oncely, Retry
from oncely.prove import Report, Table, prove
from tests.waiting import PATIENCE_SECONDS

AT_ONCE = Retry(base=0, max_attempts=5)


class Shop:
    """A database of the handler's own beside that of its queue."""

    def __init__(self, folder: Path) -> None:
        self._numbers = count()
        self.path = folder / "shop.db"
        self.url = f"sqlite:///{self.path}"
        self.app = Oncely(f"sqlite:///{folder / 'jobs.db'}")
        self.write("create table notes (text text)")
        self.write("create table marks (text text primary key, at text)")

    def write(self, sql: str, *values: Any) -> None:
        with closing(
            sqlite3.connect(self.path, timeout=PATIENCE_SECONDS, isolation_level=None)
        ) as db:
            db.execute(sql, values)

    def prove(self, handler: Callable[[], None], **options: Any) -> Report:
        kind = f"handler.{next(self._numbers)}"
        self.app.job(kind, retry=AT_ONCE)(lambda ctx: handler())
        return prove(self.app, kind, **options)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.app.close()


def test_a_table_that_nobody_names_is_compared(shop: Shop) -> None:
    def write() -> None:
        shop.write("insert into notes values ('x')")
        shop.write("insert or ignore into marks values ('x', '')")

    report = shop.prove(write, schedule="crash@3")
    assert [each.verdict for each in report.violations] == ["doubled"]
    assert [each.label for each in report.violations[0].differences] == ["table notes"]
    assert report.compared == ["table marks", "table notes"]
    assert "compared: table marks, table notes" in str(report)
    assert (report.not_compared, report.not_touched) == ([], [])
    assert not any("oncely" in label for label in report.wanted)


def test_where_a_table_is_named_no_other_is_compared(shop: Shop) -> None:
    def write() -> None:
        shop.write("insert into notes values ('x')")
        shop.write("insert or ignore into marks values ('x', '')")

    report = shop.prove(write, schedule="crash@3", world=[Table(shop.url, "marks")])
    assert report.ok, str(report)
    assert (report.compared, report.not_compared) == (["table marks"], ["notes"])


def test_a_table_that_the_handler_makes_is_compared(shop: Shop, tmp_path: Path) -> None:
    def write() -> None:
        with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as db:
            db.execute("create table if not exists made (text text)")
            db.execute("insert into made values ('x')")

    report = shop.prove(write, schedule="crash@3")
    assert [each.verdict for each in report.violations] == ["doubled"], str(report)
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("holds", [True, False])
def test_a_column_that_varies_is_left_out(shop: Shop, holds: bool) -> None:
    """The rows are counted all the same."""
    shop.write("create table logs (text text, at text)")

    def write() -> None:
        if holds:
            shop.write("insert or ignore into marks values ('x', ?)", str(time.time_ns()))
        else:
            shop.write("insert into logs values ('x', ?)", str(time.time_ns()))

    report = shop.prove(write, schedule="crash@2")
    assert [each.verdict for each in report.violations] == ([] if holds else ["doubled"])
    assert report.varying == (["marks.at"] if holds else ["logs.at"])
    assert "for two clean runs differ there" in str(report)
    named = shop.prove(
        write, schedule="crash@2", world=[Table(shop.url, "marks" if holds else "logs")]
    )
    assert named.verdict == "not deterministic"


def test_on_postgres(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as server:
        server.execute("create table notes (id bigserial, text text)")
        server.execute("create schema shop")
        server.execute("create table shop.marks (text text primary key)")
    with Oncely(postgres_url) as app:
        app.migrate()

        @app.job("handler", retry=AT_ONCE)
        def write(ctx: Context) -> None:
            with psycopg.connect(postgres_url, autocommit=True) as db:
                db.execute("insert into shop.marks values ('x') on conflict do nothing")
                db.execute("insert into notes (text) values ('x')")

        report = prove(app, "handler", schedule="crash@3")
    assert [each.verdict for each in report.violations] == ["doubled"], str(report)
    assert report.compared == ["table notes", "table shop.marks"]
