"""An app, and pools, that were in use before a proof on PostgreSQL are not in its way."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import sqlalchemy
from django.db import connections
from psycopg.conninfo import conninfo_to_dict
from psycopg2.pool import ThreadedConnectionPool
from psycopg_pool import ConnectionPool
from sqlalchemy import text

from oncely import Context, Oncely, Retry
from oncely.model.errors import InvalidInput
from oncely.prove import Report, prove
from tests.cluster import Cluster
from tests.engine.tx_django import NOWHERE
from tests.waiting import PATIENCE_SECONDS, wait_until

AT_ONCE = Retry(base=0, max_attempts=5)
INSERT = "insert into notes values ('x')"
ONCE = "insert into notes select 'x' where not exists (select 1 from notes)"


@pytest.fixture
def served(postgres_url: str) -> Iterator[Oncely]:
    with psycopg.connect(postgres_url) as server:
        server.execute("create table notes (text text)")
    with Oncely(postgres_url) as app:
        app.migrate()
        yield app


def run(app: Oncely, execute: Any, sql: str) -> Report:
    kind = "once" if sql == ONCE else "twice"
    app.job(kind, retry=AT_ONCE)(lambda ctx: execute(sql))
    settle = prove(app, kind, schedule="crash@0").boundaries[-1]
    return prove(app, kind, schedule=f"crash@{settle.number}")


def check_both(app: Oncely, execute: Any) -> None:
    """Used before, and proved twice in a row; nothing of it reaches the database itself."""
    execute("select 1")
    assert [each.verdict for each in run(app, execute, INSERT).violations] == ["doubled"]
    report = run(app, execute, ONCE)
    assert report.ok, str(report)
    execute("select 1")
    with psycopg.connect(app.url) as server:
        assert server.execute("select * from notes").fetchall() == []


def test_an_app_that_was_used_before(served: Oncely, cluster: Cluster) -> None:
    @served.job("note", retry=AT_ONCE)
    def note(ctx: Context) -> None:
        with ctx.transaction() as tx:
            tx.execute(INSERT)

    def is_listening() -> bool:
        with psycopg.connect(cluster.url()) as server:
            found = server.execute(
                "select 1 from pg_stat_activity where datname = %s and query ilike 'listen%%'",
                [conninfo_to_dict(served.url)["dbname"]],
            )
            return found.fetchone() is not None

    for _ in range(2):
        before = served.enqueue("note")
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(served.result, before.job_id, timeout=PATIENCE_SECONDS)
            wait_until(is_listening, "nobody listens for the result")
            served.drain()
            assert result.result() is None
        report = prove(served, "note", schedule="crash@1")
        assert report.ok, str(report)


def test_a_pool_of_sqlalchemy(served: Oncely) -> None:
    engine = sqlalchemy.create_engine(served.url.replace("postgresql://", "postgresql+psycopg://"))

    def execute(sql: str) -> None:
        with engine.begin() as connection:
            connection.execute(text(sql))

    try:
        check_both(served, execute)
    finally:
        engine.dispose()


def test_a_pool_of_psycopg(served: Oncely) -> None:
    with ConnectionPool(served.url, min_size=2) as pool:
        pool.wait()

        def execute(sql: str) -> None:
            with pool.connection() as connection:
                connection.execute(sql.encode())

        check_both(served, execute)


def test_a_pool_of_psycopg2(served: Oncely) -> None:
    pool = ThreadedConnectionPool(2, 4, served.url)

    def execute(sql: str) -> None:
        connection = pool.getconn()
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(sql)
        finally:
            pool.putconn(connection)

    try:
        check_both(served, execute)
    finally:
        pool.closeall()


def test_a_connection_of_django(served: Oncely) -> None:
    parts = conninfo_to_dict(served.url)
    connections.settings["shop"] = {
        **NOWHERE,
        **connections.settings["default"],
        **{name: parts.get(name.lower(), "") for name in ("USER", "PASSWORD", "HOST", "PORT")},
        "NAME": parts["dbname"],
        "ENGINE": "django.db.backends.postgresql",
        "OPTIONS": {},
    }

    def execute(sql: str) -> None:
        with connections["shop"].cursor() as cursor:
            cursor.execute(sql)

    try:
        check_both(served, execute)
    finally:
        connections["shop"].close()
        del connections["shop"]
        del connections.settings["shop"]


CONNECT = """
import sys, psycopg
with psycopg.connect(sys.argv[1], application_name="shop console") as connection:
    print(connection.info.backend_pid, flush=True)
    sys.stdin.read()
"""


def test_those_who_are_in_the_way_are_named(served: Oncely) -> None:
    served.job("handler", retry=AT_ONCE)(lambda ctx: None)
    command = [sys.executable, "-c", CONNECT, served.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        pid = int(other.stdout.readline())
        with psycopg.connect(served.url, application_name="this one") as own:
            with pytest.raises(InvalidInput) as raised:
                prove(served, "handler")
            own_pid = own.info.backend_pid
        other.communicate()
    told = str(raised.value)
    assert f"pid {pid} (application_name 'shop console', idle)" in told
    assert f"pid {own_pid} (application_name 'this one', idle, opened by this process)" in told
    assert "pg_terminate_backend" in told
    assert other.returncode == os.EX_OK


def test_an_app_that_is_closed(served: Oncely) -> None:
    served.job("handler")(lambda ctx: None)
    served.close()
    with pytest.raises(InvalidInput, match="is closed; expected an open one"):
        prove(served, "handler")
