"""PyMySQL on MariaDB: a handler works on a copy, and the server keeps it off everything else."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest
import sqlalchemy
from django.db import connections, transaction
from sqlalchemy import text

from oncely import InvalidInput, Ledger
from oncely.prove import Report, Table, prove
from tests.engine.tx_django import NOWHERE

pytest_plugins = ["tests.engine.ledger_fixtures"]
Write = Callable[[str], Any]
SCHEMA = [
    "create table notes (text varchar(50) primary key)",
    "create table ticks (id int auto_increment primary key, text varchar(50), "
    "at timestamp default current_timestamp on update current_timestamp, "
    "size int as (char_length(text)) stored)",
]


def opened(url: str, **options: Any) -> Any:
    parts = urlsplit(url)
    place = {"host": parts.hostname, "port": parts.port, "user": parts.username}
    return closing(pymysql.connect(**{**place, "database": parts.path[1:], **options}))


def execute(url: str, *statements: str, **options: Any) -> list[Any]:
    with opened(url, **options) as db, db.cursor() as cursor:
        for each in statements:
            cursor.execute(each)
        db.commit()
        return list(cursor.fetchall())


@pytest.fixture
def url(mysql_database: str) -> Iterator[str]:
    execute(mysql_database, *SCHEMA)
    yield mysql_database
    name = urlsplit(mysql_database).path[1:]
    execute(mysql_database, f"drop database {name}")


def played(write: Write, url: str, schedule: str | None = None, **options: Any) -> Report:
    if schedule is not None:
        options |= {"schedule": schedule}
    else:
        options |= {"max_faults": 1, "budget_seconds": math.inf}
    options.setdefault("world", [Table(url, "ticks")])
    return prove(write, payload=url, **options)


def names(report: Report) -> list[str]:
    return [each.name for each in report.boundaries if each.channel == "mysql"]


def twice(url: str) -> None:
    execute(url, "insert into ticks (text) values ('paid')")


def in_two_transactions(url: str) -> None:
    with opened(url) as db, db.cursor() as cursor:
        is_new = cursor.execute("insert ignore into notes values ('paid')")
        db.commit()
        if is_new:
            cursor.execute("insert into ticks (text) values (%s)", ("paid",))
            db.commit()


def in_one_transaction(url: str) -> None:
    with opened(url) as db, db.cursor() as cursor:
        if cursor.execute("insert ignore into notes values ('paid')"):
            cursor.execute("insert into ticks (text) values (%s)", ("paid",))
        db.commit()


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
        assert names(report) == ["insert into ticks (text) values ('paid')", "COMMIT"]
        assert report.generated == ["ticks.at", "ticks.id"]


RICH = [
    "create table parents (id int auto_increment primary key, name varchar(20)) auto_increment=7",
    "create table children (id int auto_increment primary key, parent int, "
    "foreign key (parent) references parents (id) on delete cascade)",
    "create table log (text varchar(50)) engine=MyISAM",
    "insert into parents (name) values ('ann')",
    "insert into children (parent) values (7)",
    "create function shout(t varchar(20)) returns varchar(20) deterministic return upper(t)",
    "create view loud as select shout(name) as name from parents",
    "create view louder as select name from loud",
    "create trigger follow after insert on parents for each row "
    "insert into log select concat('new ', new.name) where (select count(*) from log) < 9",
    "create procedure pay(t varchar(20)) insert into ticks (text) values (t)",
]


def with_a_rich_schema(url: str) -> None:
    with opened(url, autocommit=True, cursorclass=pymysql.cursors.DictCursor) as db:
        with db.cursor() as cursor:
            cursor.execute("select name from louder")
            assert cursor.fetchall()[0]["name"] in ("ANN", "BOB")
            cursor.execute("insert into parents (name) values ('bob')")
            assert cursor.lastrowid in (8, 9)
            cursor.execute("delete from parents where id = 7")
            cursor.callproc("pay", ("carl",))
            cursor.executemany("insert into ticks set text = %s", [("dora",), ("eve",)])
        db.begin()
        with db.cursor() as cursor:
            cursor.execute("use " + urlsplit(url).path[1:])
            cursor.execute("insert into log values ('kept')")
            cursor.execute("insert into notes values ('x') on duplicate key update text = 'y'")
        db.rollback()
        db.select_db(urlsplit(url).path[1:])
        db.ping()


def test_a_copy_has_all_that_the_original_has(url: str) -> None:
    execute(url, *RICH)
    world = [Table(url, name) for name in ("ticks", "parents", "children", "log", "notes")]
    report = played(with_a_rich_schema, url, "crash@0", world=world)
    assert report.ok, str(report)
    assert report.unobserved == []
    found = [(each.name, each.inside) for each in report.boundaries if each.channel == "mysql"]
    assert found[-4:] == [
        ("BEGIN", True),
        ("insert into log values ('kept')", False),
        ("insert into notes values ('x') on duplicate key update text…", True),
        ("ROLLBACK", False),
    ]
    assert [name for name, inside in found[:-4] if inside] == []
    assert any(name.startswith("CALL `pay`") for name, _ in found)
    assert "not compared" not in str(report).replace("not compared, for", "")
    again = played(with_a_rich_schema, url, f"crash@{len(report.boundaries) - 1}", world=world)
    assert [each.verdict for each in again.violations] == ["doubled"], str(again)
    lines = {each.label: each.lines for each in again.violations[0].differences}
    assert lines["table log"] == ['too many {"text":"kept"}', 'too many {"text":"new bob"}']


def test_a_schema_that_the_handler_changes_is_put_back(url: str) -> None:
    def change(url: str) -> None:
        execute(url, "create table more (n int)", "insert into ticks (text) values ('once')")

    report = played(change, url, "crash@0")
    assert report.ok, str(report)
    assert [each.inside for each in report.boundaries if each.name.startswith("create")] == [False]
    report = played(change, url, "crash@2")
    assert [each.verdict for each in report.violations] == ["stuck"], str(report)


OTHER = "oncely_other_database"


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        ([f"insert into {OTHER}.t values (1)"], "INSERT command denied"),
        ([f"use {OTHER}", "insert into t values (1)"], "Access denied for user"),
        (["insert into watched values (1)"], "INSERT command denied"),
        (["insert into {0}.notes values ('x')"], "INSERT command denied"),
        (["set global max_connections = 99"], "you need"),
        (["create database oncely_made"], "Access denied for user"),
    ],
)
def test_nothing_but_the_copy_is_written(url: str, statements: list[str], told: str) -> None:
    execute(
        url,
        "create table watched (n int)",
        f"create or replace database {OTHER}",
        f"create table {OTHER}.t (n int)",
        f"create trigger w after insert on watched for each row insert into {OTHER}.t values (1)",
    )

    def write(url: str) -> None:
        execute(url, *(each.format(urlsplit(url).path[1:]) for each in statements))

    with pytest.raises(InvalidInput, match=told):
        played(write, url, "crash@0")
    assert execute(url, f"select count(*) from {OTHER}.t, notes") == [(0,)]
    execute(url, f"drop database {OTHER}")


def test_a_database_that_is_not_under_proof_is_refused(url: str, mysql_url: str) -> None:
    with pytest.raises(InvalidInput, match=r"a MySQL database that is not under proof \(mysql\)"):
        played(lambda url: execute(url, "select 1", database="mysql"), url, "crash@0")
    with opened(url) as db:

        def write(_: str) -> None:
            db.cursor().execute("insert into notes values ('x')")

        with pytest.raises(InvalidInput, match="MySQL that was opened before the handler ran"):
            played(write, url, "crash@0")
    with pytest.raises(InvalidInput, match="there is no MySQL database 'nowhere'"):
        played(twice, url, world=[Table(url.rpartition("/")[0] + "/nowhere", "ticks")])
    execute(url, "create or replace user poor@localhost", "create or replace user poor@'%'")
    execute(url, f"grant all on {urlsplit(url).path[1:]}.* to poor@localhost, poor@'%'")
    with pytest.raises(InvalidInput, match="must be allowed to create databases and users"):
        played(twice, url, world=[Table(url.replace("root@", "poor@"), "ticks")])


def test_sqlalchemy_and_the_ledger(url: str) -> None:
    engine = sqlalchemy.create_engine(url)
    with Ledger(url) as ledger, ExitStack() as stack:
        stack.callback(engine.dispose)
        ledger.migrate()

        def pay(url: str) -> None:
            with engine.begin() as db, ledger.transaction("paid", tx=db) as entry:
                if entry.fresh:
                    db.execute(text("insert into ticks (text) values ('paid')"))

        with engine.begin() as db:
            db.execute(text("select 1"))
        report = played(pay, url)
    assert report.verdict == "sound", str(report)
    assert report.not_reached == 0


def test_django(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By PyMySQL in the place of mysqlclient, and with a connection from before."""
    monkeypatch.setitem(sys.modules, "MySQLdb", pymysql)
    parts = urlsplit(url)
    connections.settings["shop"] = {
        **NOWHERE,
        **connections.settings["default"],
        "ENGINE": "django.db.backends.mysql",
        "NAME": parts.path[1:],
        "OPTIONS": {},
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }

    def in_two(_: str) -> None:
        for statement in (
            "insert ignore into notes values (%s)",
            "insert into ticks (text) values (%s)",
        ):
            with transaction.atomic("shop"), connections["shop"].cursor() as cursor:
                cursor.execute(statement, ["paid"])

    try:
        with connections["shop"].cursor() as cursor:
            cursor.execute("select 1")
        report = played(in_two, url, "crash@0")
        assert [name.split()[0].upper() for name in names(report)][-4:] == ["INSERT", "COMMIT"] * 2
        again = played(in_two, url, f"crash@{len(report.boundaries) - 1}")
        assert [each.verdict for each in again.violations] == ["doubled"], str(again)
        assert again.unobserved == []
    finally:
        connections["shop"].close()
        del connections["shop"]
        del connections.settings["shop"]


KILLED = """
import sys, time
from oncely.prove import Table, prove
from tests.prove.test_mysql import twice
def handler(url):
    twice(url)
    print("running", flush=True)
    time.sleep(3600)
    import threading; threading.Event().wait()
prove(handler, payload=sys.argv[1], world=[Table(sys.argv[1], "ticks")], schedule="crash@9")
"""


def test_what_a_killed_proof_has_left_goes(url: str) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, url], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"running\n"
        assert left(url) != []
        os.kill(process.pid, signal.SIGKILL)
    played(twice, url, "crash@0")
    assert left(url) == []


def left(url: str) -> list[Any]:
    return execute(
        url,
        "select schema_name from information_schema.schemata where schema_name like 'oncely_p%' "
        "union all select user from mysql.user where user like 'oncely_p%'",
    )


def test_a_database_that_is_away(url: str) -> None:
    def swallow(url: str) -> None:
        try:
            twice(url)
        except pymysql.OperationalError as error:
            if error.args[0] not in (2006, 2013):  # the server has gone away, or is lost
                raise

    for schedule, verdicts in (("fail@1", ["lost"]), ("fail@2", ["lost"]), ("lose@2", [])):
        report = played(swallow, url, schedule)
        assert [each.verdict for each in report.violations] == verdicts, str(report)
        assert report.not_reached == 0
