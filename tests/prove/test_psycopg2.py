"""psycopg2, whose classes are written in C: every way to a statement is seen, on a copy."""

import io
import math
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import psycopg2
import psycopg2.errors
import psycopg2.extensions
import psycopg2.extras
import psycopg2.sql
import pytest

from oncely import InvalidInput
from oncely.prove import Report, Table, prove
from tests.cluster import Cluster

Write = Callable[[str], None]


class LoudConnection(psycopg2.extensions.connection):  # type: ignore[misc]
    def commit(self) -> None:
        with self.cursor() as cursor:
            cursor.execute("insert into ticks (text) values ('loud')")
        super().commit()


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    with psycopg.connect(postgres_url) as server:
        server.execute("create table notes (text text primary key)")
        server.execute("create table ticks (id bigserial primary key, text text)")
        server.execute(
            "create function tick(word text) returns void language sql as "
            "'insert into ticks (text) values (word)'"
        )
    yield postgres_url
    with psycopg.connect(postgres_url) as server:
        assert server.execute("select count(*) from notes, ticks").fetchone() == (0,)


def played(write: Write, url: str, schedule: str | None = None) -> Report:
    if schedule is not None:
        return prove(write, payload=url, world=[Table(url, "ticks")], schedule=schedule)
    return prove(
        write, payload=url, world=[Table(url, "ticks")], max_faults=1, budget_seconds=math.inf
    )


def names(report: Report) -> list[str]:
    return [each.name for each in report.boundaries if each.channel == "postgres"]


def twice(url: str) -> None:
    with closing(psycopg2.connect(url)) as db, db, db.cursor() as cursor:
        cursor.execute("insert into ticks (text) values ('paid')")


def in_two_transactions(url: str) -> None:
    with closing(psycopg2.connect(url)) as db, db.cursor() as cursor:
        cursor.execute("insert into notes values ('paid') on conflict do nothing")
        is_new = cursor.rowcount
        db.commit()
        if is_new:
            cursor.execute("insert into ticks (text) values ('paid')")
            db.commit()


def in_one_transaction(url: str) -> None:
    with closing(psycopg2.connect(url)) as db, db, db.cursor() as cursor:
        cursor.execute("insert into notes values (%s) on conflict do nothing", ("paid",))
        if cursor.rowcount:
            cursor.execute("insert into ticks (text) values (%s)", ("paid",))


@pytest.mark.parametrize(
    ("write", "verdicts"),
    [(twice, {"doubled"}), (in_two_transactions, {"lost"}), (in_one_transaction, set())],
)
def test_a_proof(url: str, write: Write, verdicts: set[str]) -> None:
    report = played(write, url)
    assert {each.verdict for each in report.violations} == verdicts, str(report)
    assert report.unobserved == []
    assert report.not_reached == 0
    assert {"crash", "fail", "lose"} <= {str(each).partition("@")[0] for each in report.played}
    if write is twice:
        assert names(report) == ["BEGIN", "insert into ticks (text) values ('paid')", "COMMIT"]


def by_all_ways(url: str) -> None:
    with closing(psycopg2.connect(url, connection_factory=LoudConnection)) as db:
        db.autocommit = True
        with db.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor:
            cursor.executemany("insert into ticks (text) values (%s)", [("a",), ("b",)])
            assert cursor.rowcount == 2
            rows = [("c",), ("d",)]
            psycopg2.extras.execute_values(cursor, "insert into ticks (text) values %s", rows)
            psycopg2.extras.execute_batch(cursor, "insert into ticks (text) values (%s)", rows)
            cursor.copy_from(io.StringIO("e\n"), "ticks", columns=["text"])
            cursor.copy_expert("copy ticks (text) from stdin", io.StringIO("f\n"))
            cursor.copy_to(io.StringIO(), "ticks")
            cursor.callproc("tick", ["g"])
            delete = psycopg2.sql.SQL("delete from {}").format(psycopg2.sql.Identifier("notes"))
            cursor.execute(delete)
            cursor.execute("select count(*) as counted from ticks")
            assert cursor.fetchone() == {"counted": 9}
        with db, db.cursor() as cursor:
            cursor.execute("update ticks set text = 'h' where text = 'g'")
        db.autocommit = False
        with db, db.cursor("named") as cursor:
            cursor.execute("select text from ticks order by id")
            assert len(list(cursor)) == 10
        with db.cursor() as cursor:
            cursor.execute("delete from ticks")
        db.rollback()
        db.set_session(isolation_level="SERIALIZABLE")


def test_every_way_to_a_statement(url: str) -> None:
    report = played(by_all_ways, url, "crash@0")
    assert report.ok, str(report)
    assert report.unobserved == []
    assert names(report) == [
        "insert into ticks (text) values (%s)",
        "insert into ticks (text) values (%s)",
        "insert into ticks (text) values ('c'),('d')",
        "insert into ticks (text) values ('c');insert into ticks (te…",
        "copy ticks from stdin",
        "copy ticks (text) from stdin",
        "copy ticks to stdout",
        "call tick",
        'delete from "notes"',
        "select count(*) as counted from ticks",
        *["BEGIN", "update ticks set text = 'h' where text = 'g'"],
        *["insert into ticks (text) values ('loud')", "COMMIT"],
        *["BEGIN", "select text from ticks order by id"],
        *["insert into ticks (text) values ('loud')", "COMMIT"],
        *["BEGIN", "delete from ticks", "ROLLBACK"],
    ]
    inside = [each.inside for each in report.boundaries if each.channel == "postgres"]
    assert inside[:10] == [False] * 10
    assert inside[10:14] == [True, True, True, False]


def test_the_answer_to_one_of_many_rows_is_lost(url: str) -> None:
    def write(url: str) -> None:
        with closing(psycopg2.connect(url)) as db:
            db.autocommit = True
            rows = [("a",), ("b",)]
            with db.cursor() as cursor:
                try:
                    cursor.executemany("insert into notes values (%s)", rows)
                except psycopg2.errors.UniqueViolation:
                    return
                except psycopg2.OperationalError:
                    assert db.closed
                    raise
                cursor.execute("insert into ticks (text) values ('all')")

    report = played(write, url, "lose@2")
    assert [each.verdict for each in report.violations] == ["lost"], str(report)
    assert "done, and the answer is lost" in str(report)


class Derived(psycopg2.extensions.connection):  # type: ignore[misc]
    pass


@pytest.mark.parametrize(
    ("connect", "told"),
    [
        (Derived, "past `psycopg2.connect`"),
        (partial(psycopg2.connect, connection_factory=lambda dsn: Derived(dsn)), "past `psycopg2"),
        (partial(psycopg2.connect, async_=True), "asynchronous connection of psycopg2"),
        (
            partial(
                psycopg2.connect, connection_factory=psycopg2.extras.LogicalReplicationConnection
            ),
            "LogicalReplicationConnection",
        ),
        (lambda url: psycopg2.connect(url).lobject(), "large objects"),
        (lambda url: psycopg2.connect(url).tpc_begin("id"), "two phases"),
        (
            lambda url: psycopg2.connect(url).cursor(cursor_factory=lambda *_: None),
            "no class of cursors",
        ),
        (lambda url: psycopg2.connect(url, dbname="postgres"), "that is not under proof"),
    ],
)
def test_what_goes_past_the_copy_is_refused(
    url: str, connect: Callable[[str], Any], told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        played(connect, url, "crash@0")


def test_a_class_of_psycopg2_that_is_called_is_redirected(url: str) -> None:
    def write(url: str) -> None:
        with closing(psycopg2.extensions.connection(url)) as db, db, db.cursor() as cursor:
            cursor.execute("insert into ticks (text) values ('paid')")

    report = played(write, url, "crash@4")
    assert [each.verdict for each in report.violations] == ["doubled"], str(report)


def test_a_connection_from_before_is_refused(url: str, cluster: Cluster) -> None:
    with closing(psycopg2.connect(url)) as own:

        def write(_: str) -> None:
            own.cursor().execute("insert into notes values ('x')")

        with pytest.raises(InvalidInput, match="that was opened before the handler ran is used"):
            prove(write, payload="", schedule="crash@0")
        with pytest.raises(InvalidInput, match="cannot be copied while others are") as raised:
            played(twice, url)
        told = f"pid {own.info.backend_pid} (application_name '', idle, opened by this process)"
        assert told in str(raised.value)
