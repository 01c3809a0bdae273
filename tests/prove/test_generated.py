"""What a database generates is not compared, and what a handler does twice is still found."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncely import Context, Oncely, Retry
from oncely.prove import Report, Table, prove
from oncely.prove.seams.inserts import given_columns
from tests.waiting import PATIENCE_SECONDS

AT_ONCE = Retry(base=0, max_attempts=5)
SQLITE_TABLES = """
create table orders (
    id integer primary key, name text unique, created_at text default current_timestamp
);
create table items (id integer primary key, order_id integer references orders, text text);
insert into orders values (1, 'old', 'long ago');
"""
POSTGRES_TABLES = """
create table orders (
    id bigserial primary key, name text unique, token uuid default gen_random_uuid(),
    created_at timestamptz default now()
);
create table items (
    id bigint generated always as identity, order_id bigint references orders, text text
);
insert into orders (name) values ('old');
"""


@pytest.fixture
def sqlite_app(tmp_path: Path) -> Iterator[Oncely]:
    path = tmp_path / "jobs.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(SQLITE_TABLES)
    with Oncely(f"sqlite:///{path}") as app:
        app.migrate()
        yield app


@pytest.fixture
def postgres_app(postgres_url: str) -> Iterator[Oncely]:
    with psycopg.connect(postgres_url) as server:
        server.execute(POSTGRES_TABLES)
    with Oncely(postgres_url) as app:
        app.migrate()
        yield app


def sqlite(app: Oncely) -> Any:
    path = app.url.removeprefix("sqlite:///")
    return closing(sqlite3.connect(path, timeout=PATIENCE_SECONDS, isolation_level=None))


def run(app: Oncely, handler: Callable[[Context], Any], schedule: str, **how: Any) -> Report:
    app.job("handler", retry=AT_ONCE)(handler)
    tables = [Table(app.url, "orders", **how), Table(app.url, "items", **how)]
    return prove(app, "handler", world=tables, schedule=schedule)


@pytest.mark.parametrize("compares", [False, True])
def test_a_sequence_that_a_crash_has_moved(postgres_app: Oncely, compares: bool) -> None:
    """The number of a row that was rolled back is not given again."""

    def order(ctx: Context) -> None:
        with psycopg.connect(postgres_app.url) as db:
            if db.execute("select 1 from orders where name = 'new'").fetchone():
                return
            made = db.execute("insert into orders (name) values ('new') returning id").fetchone()
            db.execute("insert into items (order_id, text) values (%s, 'book')", made)

    report = run(postgres_app, order, "crash@4", compare_generated=compares)
    insert = [each.number for each in report.boundaries if "into items" in each.name]
    assert insert == [4], report.boundaries
    if compares:
        assert report.verdict == "not deterministic"
        assert report.generated == []
        return
    assert report.ok, str(report)
    assert report.generated == [
        "items.id",
        "items.order_id",
        "orders.created_at",
        "orders.id",
        "orders.token",
    ]
    assert "not compared, for the database generates them: items.id" in str(report)
    assert any('"id":1' in line for line in report.wanted["table orders"])  # it was there before


def test_rows_of_generated_ids_are_counted(sqlite_app: Oncely) -> None:
    def order(ctx: Context) -> None:
        with sqlite(sqlite_app) as db:
            db.execute("insert into items (text) values ('book')")

    report = run(sqlite_app, order, "crash@2")
    assert [each.verdict for each in report.violations] == ["doubled"]
    assert report.violations[0].differences[0].label == "table items"
    assert report.generated == ["items.id"]


@pytest.mark.parametrize("holds", [True, False])
def test_a_row_that_refers_to_another_one_is_found(sqlite_app: Oncely, holds: bool) -> None:
    def order(ctx: Context) -> None:
        with sqlite(sqlite_app) as db:
            for name in ("a", "b"):
                db.execute("insert or ignore into orders (name) values (?)", (name,))
            made = db.execute("select changes()").fetchone()[0]
            name = "b" if holds or made else "a"
            db.execute(
                "insert into items (order_id, text) select id, 'book' from orders where name = ? "
                "and not exists (select 1 from items)",
                (name,),
            )

    report = run(sqlite_app, order, "crash@4")
    assert [each.verdict for each in report.violations] == ([] if holds else ["diverged"])
    if not holds:
        assert report.violations[0].differences[0].label == "references"


def test_an_id_that_the_handler_gives_is_compared(sqlite_app: Oncely) -> None:
    def order(ctx: Context) -> None:
        with sqlite(sqlite_app) as db:
            seen = db.execute("select count(*) from orders where name = 'seen'").fetchone()[0]
            db.execute("insert or ignore into orders (name) values ('seen')")
            db.execute("insert or ignore into items values (?, null, 'book')", (7 + seen,))

    report = run(sqlite_app, order, "crash@3")
    assert [each.verdict for each in report.violations] == ["diverged"]
    assert report.violations[0].differences[0].extra == ['{"id":8,"order_id":null,"text":"book"}']


@pytest.mark.parametrize(
    ("statement", "given"),
    [
        ('INSERT INTO "ticks" ("text") VALUES (\'a, b\') RETURNING id', ["ticks:text"]),
        ("insert into shop.ticks values (null, 'x (y)', 3)", ["ticks:#2,#3"]),
        ("insert into t (id, a) values (default, $1)", ["t:a"]),
        ("insert or ignore into t(id) values (coalesce(1, 2)), (2)", ["t:id"]),
        ("insert into t default values", []),
        ("with x as (insert into t (a) select 1) insert into u (b) values (1)", ["t:a", "u:b"]),
        ("update t set a = 1", []),
    ],
)
def test_the_columns_that_an_insert_gives(statement: str, given: list[str]) -> None:
    assert list(given_columns(statement)) == given
