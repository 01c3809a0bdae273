"""Clocks move with the schedules, however they are read; what a day changes is judged by it."""

import datetime
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime as by_name
from functools import partial
from time import strftime as strftime_by_name
from time import time as time_by_name

import psycopg
import pytest
from django.conf import settings
from django.utils import timezone

from oncely import Context
from oncely.prove import Table
from tests.prove.schedules import one_schedule
from tests.prove.test_honest import Bench, bench

__all__ = ["bench"]


def django_now() -> datetime.datetime:
    """In the forked process only: the settings are not this one's."""
    if not settings.configured:
        settings.configure(USE_TZ=True)
    moment: datetime.datetime = timezone.now()
    return moment


bound_before = by_name.now
"""As a default of a column has it."""
CLOCKS: dict[str, Callable[[], object]] = {
    "datetime.now": lambda: datetime.datetime.now(datetime.UTC).date(),
    "datetime.now by name": lambda: by_name.now(tz=datetime.UTC).date(),
    "datetime.now, bound before": lambda: bound_before(datetime.UTC).date(),
    "datetime.today": lambda: datetime.datetime.today().date(),  # noqa: DTZ002
    "date.today": datetime.date.today,
    "time.time": lambda: int(time_by_name() // 86_400),
    "time.time_ns": lambda: time.time_ns() // 86_400_000_000_000,
    "time.time, bound before": partial(lambda clock: int(clock() // 86_400), time.time),
    "time.localtime": lambda: time.localtime().tm_yday,
    "time.gmtime": lambda: time.gmtime().tm_yday,
    "time.strftime": lambda: strftime_by_name("%Y-%m-%d"),
    "time.clock_gettime": lambda: int(time.clock_gettime(time.CLOCK_REALTIME) // 86_400),
    "django": lambda: django_now().date(),
}
IN_SQL = ["date('now')", "date(current_timestamp)", "date(datetime())", "unixepoch() / 86400"]


@pytest.mark.parametrize("read", CLOCKS.values(), ids=CLOCKS)
def test_a_mark_of_the_day_does_not_hold_two_days_later(
    bench: Bench, read: Callable[[], object]
) -> None:
    def once_a_day(ctx: Context) -> None:
        bench.write(
            "insert into notes select ? where not exists (select 1 from notes where text = ?)",
            *[str(read())] * 2,
        )

    report = bench.prove(once_a_day, schedule="late@2")
    assert [each.verdict for each in report.violations] == ["doubled"]
    assert report.clocks == []


@pytest.mark.parametrize("today", IN_SQL)
def test_the_clock_of_sqlite_moves(bench: Bench, today: str) -> None:
    def once_a_day(ctx: Context) -> None:
        bench.write(
            f"insert into notes select {today} "
            f"where not exists (select 1 from notes where text = {today})"
        )

    report = bench.prove(once_a_day, schedule="late@2")
    assert [each.verdict for each in report.violations] == ["doubled"]
    assert report.clocks == []


def test_functions_of_sqlite_answer_as_they_did(bench: Bench) -> None:
    """Also where the schema has them: in an index, a default and a trigger."""
    expressions = [
        "date('2026-01-31', '+1 month')",
        "datetime(0, 'unixepoch')",
        "time('12:00', 'utc')",
        "julianday('2026-01-01')",
        "datetime('nonsense')",
        "unixepoch('2026-01-01', 'subsec')",
        "length(datetime('now', 'subsec'))",
        "typeof(current_time)",
    ]
    query = f"select {', '.join(expressions)}"
    with closing(sqlite3.connect(bench.path)) as db:
        wanted = db.execute(query).fetchone()
    bench.write("create table days (at text default current_timestamp)")
    bench.write("create index by_day on days (date(at))")
    bench.write(
        "create trigger t after insert on days begin insert into notes values (date()); end"
    )

    def write(ctx: Context) -> None:
        with closing(sqlite3.connect(bench.path, isolation_level=None)) as db:
            assert db.execute(query).fetchone() == wanted
            with ctx.transaction() as tx:
                del tx
            db.execute("begin immediate")
            if not db.execute("select 1 from days").fetchone():
                db.execute("insert into days default values")
            db.execute("commit")

    assert bench.prove(write, schedule="crash@2").ok


def test_what_a_run_leaves_that_day_is_sound(bench: Bench) -> None:
    """The first row has the day at which it was written, and a repeat finds it."""

    def once(ctx: Context) -> None:
        today = datetime.date.today().isoformat()  # noqa: DTZ011
        bench.write("insert into notes select ? where not exists (select 1 from notes)", today)

    report = bench.prove(once, schedule=one_schedule("late@2"))
    assert report.verdict == "sound", str(report)


def test_a_deadline_is_over_after_a_pause(bench: Bench) -> None:
    """A worker that looks at its watch before it writes does not write late."""

    def guarded(ctx: Context) -> None:
        began = time.monotonic()
        bench.write("insert into notes select 'begun' where not exists (select 1 from notes)")
        if time.monotonic() - began < 300:
            bench.write("update accounts set cents = cents - 1")

    report = bench.prove(guarded, schedule="zombie@1")
    assert report.ok, str(report)


def test_an_adapter_of_a_database_takes_what_a_moved_clock_tells(
    bench: Bench, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute("create table moments (at timestamptz, text text)")

    def write(ctx: Context) -> None:
        with psycopg.connect(postgres_url) as connection:
            connection.execute(
                "insert into moments select %s, 'x' where now() < %s and "
                "not exists (select from moments)",
                (by_name.now(datetime.UTC), by_name.now(datetime.UTC) + datetime.timedelta(1)),
            )

    world = Table(postgres_url, "moments", ignore=["at"])
    report = bench.prove(write, world, schedule="late@3")
    assert report.ok, str(report)
    assert report.clocks == ["now()"], "the clock of PostgreSQL does not move"
