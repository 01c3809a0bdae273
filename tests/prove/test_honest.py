"""What the prover cannot see it names, what it cannot do it refuses, and nothing else is proved."""

import asyncio
import math
import mmap
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from oncely import Context, Defer, Oncely, Retry
from oncely.model.errors import InvalidInput
from oncely.prove import Report, Table, copies, prove
from oncely.prove.seams.names import written_tables
from oncely.prove.world import WorldItem
from tests.prove.schedules import one_schedule
from tests.waiting import PATIENCE_SECONDS

AT_ONCE = Retry(base=0, max_attempts=5)


class Bench:
    """An app, a database of the handler's own, and one handler to prove."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = str(folder / "shop.db")
        self.url = f"sqlite:///{self.path}"
        self.app = Oncely(f"sqlite:///{folder / 'jobs.db'}")
        self.write("create table notes (text text)")
        self.write("create table accounts (id text, cents integer)")
        self.write("insert into accounts values ('ann', 100)")

    def write(self, sql: str, *values: Any) -> None:
        """In a transaction of its own: one boundary."""
        with closing(
            sqlite3.connect(self.path, timeout=PATIENCE_SECONDS, isolation_level=None)
        ) as db:
            db.execute(sql, values)

    def count(self, sql: str) -> int:
        with closing(sqlite3.connect(self.path, timeout=PATIENCE_SECONDS)) as db:
            (found,) = db.execute(sql).fetchone()
            return int(found)

    def prove(self, handler: Callable[..., Any], *more: WorldItem, **options: Any) -> Report:
        self.app.job("handler", retry=AT_ONCE)(handler)
        world = [Table(self.url, "notes"), Table(self.url, "accounts"), *more]
        options = {"max_faults": 1, "budget_seconds": math.inf, **options}
        return prove(self.app, "handler", world=world, **options)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.app.close()


def test_a_channel_that_cannot_be_seen_is_named(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def send_by_hand(ctx: Context) -> None:
            with socket.create_connection(address) as line:
                line.sendall(b"a mail")
            bench.write(
                "insert or replace into notes select 'sent' where not exists (select 1 from notes)"
            )

        report = bench.prove(send_by_hand, schedule=one_schedule("crash@2"))
    assert report.verdict == "unobserved"
    assert not report.ok
    assert f"127.0.0.1:{address[1]}" in report.unobserved[0]
    assert "Not proved" in str(report)


@pytest.mark.parametrize("how", ["POST", "GET", "socket"])
def test_another_machine_is_not_called(bench: Bench, how: str) -> None:
    def send(ctx: Context) -> None:
        if how == "socket":
            socket.create_connection(("192.0.2.1", 25), timeout=1)
        else:
            body = b"charge" if how == "POST" else None
            urllib.request.urlopen("http://192.0.2.1/charges", body, timeout=1)

    with pytest.raises(InvalidInput, match="which is not on this machine"):
        bench.prove(send)


def test_faults_in_later_deliveries_are_not_claimed(bench: Bench) -> None:
    def later(ctx: Context) -> None:
        if not bench.count("select count(*) from notes"):
            bench.write("insert into notes values ('seen')")
            raise Defer(30)
        bench.write("update accounts set cents = cents - 1")

    report = bench.prove(later, schedule=one_schedule("crash@2"))
    assert not report.ok
    assert "the clean run took 2 deliveries" in str(report)


def test_a_process_is_refused_unless_it_is_accepted(bench: Bench) -> None:
    def run(ctx: Context) -> None:
        subprocess.run([sys.executable, "-c", ""], check=True)
        bench.write("update accounts set cents = 0")

    program = os.path.basename(sys.executable)
    with pytest.raises(InvalidInput, match=f"accept=\\['{program}'\\]"):
        bench.prove(run)
    world = [Table(bench.url, "accounts")]
    report = prove(bench.app, "handler", world=world, accept=[program], schedule="crash@0")
    assert report.ok, str(report)
    assert any("run" in each.name for each in report.boundaries)


def test_a_world_in_which_nothing_happens_proves_nothing(bench: Bench) -> None:
    report = bench.prove(lambda ctx: None)
    assert report.verdict == "unobserved"
    assert "changed nothing in world=" in str(report)


def test_a_table_that_is_written_and_not_compared_is_named(bench: Bench) -> None:
    bench.write("create table aside (text text)")

    def write(ctx: Context) -> None:
        bench.write("insert into aside values ('x')")
        bench.write("update accounts set cents = 0")

    report = bench.prove(write, schedule=one_schedule("crash@2"))
    assert report.verdict == "sound"
    assert "written, and not compared: aside" in str(report)


def test_with_strict_all_that_is_written_is_compared_and_all_of_the_world_changes(
    bench: Bench,
) -> None:
    def write(ctx: Context) -> None:
        (bench.folder / "receipt").write_text("paid")
        bench.write("update accounts set cents = 0")

    bench.app.job("handler", retry=AT_ONCE)(write)
    tables = [Table(bench.url, "notes"), Table(bench.url, "accounts")]
    told = f"written, and not compared: the file {bench.folder / 'receipt'}"
    for strict in (False, True):
        report = prove(bench.app, "handler", world=tables, schedule="crash@0", strict=strict)
        assert told in str(report)
        assert "not changed by the clean run: table notes" in str(report)
        assert (report.ok, report.verdict) == ((False, "unobserved") if strict else (True, "sound"))

    def receipt() -> str:
        path = bench.folder / "receipt"
        return path.read_text() if path.exists() else ""

    world: list[WorldItem] = [tables[1], receipt]
    report = prove(bench.app, "handler", world=world, schedule="crash@0", strict=True)
    assert report.ok, str(report)


def test_a_table_that_changes_with_no_write_seen_is_unobserved(bench: Bench) -> None:
    def write(ctx: Context) -> None:
        bench.write("insert into notes select 'x' where not exists (select 1 from notes)")
        with closing(sqlite3.connect(bench.path, isolation_level=None)) as db:
            db.set_trace_callback(None)
            db.execute("update accounts set cents = 0")

    report = bench.prove(write, schedule=one_schedule("crash@2"))
    assert report.verdict == "unobserved"
    assert "table accounts changed, and no statement that was seen writes to it" in str(report)


def test_a_table_that_a_trigger_or_a_key_writes_to_is_seen(bench: Bench) -> None:
    bench.write(
        "create trigger t after update on accounts begin insert into notes select new.id "
        "where not exists (select 1 from notes); end"
    )
    bench.write("create table parents (id integer primary key)")
    bench.write("create table kids (parent integer references parents on delete cascade)")
    bench.write("insert into parents values (1)")
    bench.write("insert into kids values (1)")

    def write(ctx: Context) -> None:
        bench.write("update accounts set cents = 0")
        with closing(sqlite3.connect(bench.path, isolation_level=None)) as db:
            db.execute("pragma foreign_keys = on")
            db.execute("delete from parents")

    tables = Table(bench.url, "kids"), Table(bench.url, "parents")
    report = bench.prove(write, *tables, schedule=one_schedule("crash@2"))
    assert report.verdict == "sound", str(report)


def test_a_thread_and_a_task_that_run_on_are_named(bench: Bench) -> None:
    tasks = []

    async def later() -> None:
        await asyncio.sleep(3600)

    async def start(ctx: Context) -> None:
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        threading.Thread(target=lambda: time.sleep(3600), daemon=True).start()
        tasks.append(asyncio.create_task(later()))
        bench.write("update accounts set cents = 0")

    report = bench.prove(start, schedule="crash@0")
    assert report.verdict == "unobserved"
    assert [each for each in report.unobserved if "the task" in each and "later" in each]
    assert [each for each in report.unobserved if "the thread at" in each]


@pytest.mark.parametrize(
    ("statement", "tables"),
    [
        ("insert into a select * from b", ["a"]),
        ("with x as (insert into a values (1) returning n) update s.b set n = 1", ["a", "s.b"]),
        ("insert into a values (1) on conflict do\n  update set n = 2", ["a"]),
        ("select * from a for update skip locked", []),
        ('delete from "a" where true; truncate table b', ["a", "b"]),
        ("copy a from stdin", ["a"]),
        ("merge into a using b on true when matched then update set n = 1", ["a"]),
    ],
)
def test_the_tables_that_a_statement_writes_to(statement: str, tables: list[str]) -> None:
    assert written_tables(statement) == tables


def test_what_changes_from_run_to_run_is_told(bench: Bench) -> None:
    def write(ctx: Context) -> None:
        bench.write("insert into notes values (?)", str(time.time_ns()))

    report = bench.prove(write)
    assert report.verdict == "not deterministic"
    assert not report.ok
    assert "table notes" in str(report)


def test_a_number_that_moves_twice_is_doubled(bench: Bench) -> None:
    def write(ctx: Context) -> None:
        bench.write("update accounts set cents = cents - 5")

    report = bench.prove(write, schedule=one_schedule("crash@2"))
    assert {each.verdict for each in report.violations} == {"doubled"}


def test_a_handler_that_cannot_go_on_is_stuck(bench: Bench) -> None:
    def write(ctx: Context) -> None:
        if bench.count("select count(*) from notes"):
            raise RuntimeError("it is there already")
        bench.write("insert into notes values ('x')")

    report = bench.prove(write, schedule=one_schedule("crash@3"))
    assert report.violations[0].verdict == "stuck"
    assert "it is there already" in report.violations[0].timeline()


def test_two_faults_find_what_one_does_not(bench: Bench) -> None:
    """It gives up at the third delivery, and says that it is done."""
    bench.write("create table tries (id integer primary key)")

    def write(ctx: Context) -> str:
        with closing(sqlite3.connect(bench.path, isolation_level=None)) as db:
            (tries,) = db.execute("insert into tries values (null) returning id").fetchone()
        if tries > 2:
            return "given up"
        bench.write("update accounts set cents = 0")
        return "done"

    report = bench.prove(write, max_faults=2)
    assert {len(each.schedule.moves) for each in report.violations} == {2}
    assert {each.verdict for each in report.violations} == {"lost"}
    [again] = bench_again(bench, report.violations[0].token).violations
    assert again.verdict == "lost"


def bench_again(bench: Bench, token: str) -> Report:
    world = [Table(bench.url, "accounts")]
    return prove(bench.app, "handler", world=world, schedule=token)


class Tape:
    """Memory that processes share: no library and no hook sees what is written to it."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 100)

    def write(self, text: bytes) -> None:
        self._memory.write(text)

    def snapshot(self) -> str:
        return self._memory[:].rstrip(b"\0").decode()

    def reset(self) -> None:
        self._memory[:] = b"\0" * 100

    def close(self) -> None:
        self._memory.close()


def test_by_line_finds_what_no_library_shows(bench: Bench) -> None:
    with closing(Tape()) as tape:

        def write(ctx: Context) -> None:
            if not tape.snapshot():
                tape.write(b"one")
                tape.write(b"two")

        app = bench.app
        app.job("tape", retry=AT_ONCE)(write)
        seen = prove(app, "tape", world=[tape], schedule="crash@1")
        assert [each.name for each in seen.boundaries] == ["claim", "settle"]
        assert seen.verdict == "unobserved"
        assert "nothing that was seen can have changed it" in str(seen)
        clean = prove(app, "tape", world=[tape], by_line=True, schedule="crash@0")
        [second] = [each.number for each in clean.boundaries if "two" in each.name]
        again = f"crash@{second}"
        report = prove(app, "tape", world=[tape], by_line=True, schedule=again)
    assert [each.verdict for each in report.violations] == ["diverged"]
    assert 'before: line: tape.write(b"two")' in report.violations[0].timeline()


def test_files_are_seen_and_put_back(bench: Bench) -> None:
    path = bench.folder / "log"
    path.write_text("first\n")

    def write(ctx: Context) -> None:
        with path.open("a") as file:
            file.write("one\n")

    def lines() -> list[str]:
        return path.read_text().split()

    report = bench.prove(write, lines, schedule=one_schedule("crash@3"))
    assert report.violations[0].verdict == "doubled"
    assert report.unobserved == []
    assert path.read_text() == "first\n"


def test_a_thread_and_a_coroutine_are_followed(bench: Bench) -> None:
    async def write(ctx: Context) -> None:
        await asyncio.to_thread(bench.write, "insert into notes values ('from a thread')")
        thread = threading.Thread(target=bench.write, args=("update accounts set cents = 0",))
        thread.start()
        thread.join()

    report = bench.prove(write, schedule=one_schedule("crash@2"))
    assert report.violations[0].verdict == "doubled"
    assert any("update accounts" in each.name for each in report.boundaries)


def test_a_pool_that_was_opened_before_begins_anew(bench: Bench) -> None:
    engine = sqlalchemy.create_engine(bench.url)
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("select 1"))

    def write(ctx: Context) -> None:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("insert into notes values ('x')"))

    report = bench.prove(write, schedule=one_schedule("crash@4"))
    engine.dispose()
    assert report.violations[0].verdict == "doubled"
    assert bench.count("select count(*) from notes") == 0


def test_a_connection_that_was_opened_before_is_refused(bench: Bench) -> None:
    with closing(sqlite3.connect(bench.path, check_same_thread=False)) as old:

        def write(ctx: Context) -> None:
            old.execute("insert into notes values ('x')")
            old.commit()

        with pytest.raises(InvalidInput, match="opened before the handler ran"):
            bench.prove(write)
    assert bench.count("select count(*) from notes") == 0


def test_a_plain_function_is_proved_without_a_queue(bench: Bench) -> None:
    def write(text: str) -> None:
        bench.write("insert into notes values (?)", text)

    world = [Table(bench.url, "notes")]
    report = prove(write, payload="x", world=world, schedule="crash@2")
    assert report.kind == "write"
    assert report.violations[0].verdict == "doubled"


def test_a_budget_that_ends_is_no_proof(bench: Bench) -> None:
    report = bench.prove(
        lambda ctx: bench.write("update accounts set cents = 0"), budget_seconds=1e-6
    )
    assert report.verdict == "unobserved"
    assert "the budget ended after 0 of the" in str(report)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "other"}, "the app has handlers of: handler"),
        ({"world": [3]}, r"world\[0\] is 3; expected a Table"),
        ({"world": [Table("sqlite:///:memory:", "notes")]}, "in memory"),
        ({"world": [Table("sqlite:///shop.db", "nowhere")]}, "cannot be read"),
        ({"budget_seconds": 0}, "budget_seconds is 0"),
        ({"max_faults": 3}, "max_faults is 3"),
        ({"schedule": "crash"}, "the schedule is 'crash'"),
    ],
    ids=["kind", "item", "memory", "table", "budget", "faults", "schedule"],
)
def test_bad_input(bench: Bench, change: dict[str, Any], told: str) -> None:
    bench.app.job("handler")(lambda ctx: None)
    options = {"kind": "handler", "world": [], **change}
    with pytest.raises(InvalidInput, match=told):
        prove(bench.app, options.pop("kind"), **options)


def test_a_handler_that_fails_without_faults_is_refused(bench: Bench) -> None:
    def fail(ctx: Context) -> None:
        raise LookupError("no such order")

    with pytest.raises(InvalidInput, match="no such order"):
        bench.prove(fail)


def test_a_store_in_memory_is_refused() -> None:
    with Oncely("sqlite:///:memory:") as app:
        app.job("handler")(lambda ctx: None)
        with pytest.raises(InvalidInput, match="a store that other processes can open"):
            prove(app, "handler")


def test_a_clock_that_no_schedule_moves_is_told(bench: Bench) -> None:
    """Marks that it makes by that clock would not be old after two days."""

    def by_the_clock(ctx: Context) -> None:
        bench.write("insert into notes select 'sent' where not exists (select 1 from notes)")
        bench.write("update accounts set cents = 90 where strftime('%Y', 'now') > ''")

    report = bench.prove(by_the_clock, schedule=one_schedule("crash@2"))
    assert report.ok
    assert report.clocks == ["'now'"]
    assert "Not covered: what the handler makes of 'now'" in report.sentence
    assert report.as_dict()["clocks_not_moved"] == report.clocks


def test_memory_without_room_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container has little of it, and a file system of the kernel's has none at all."""
    monkeypatch.setattr(copies, "_MEMORY", Path("/proc"))
    made = copies.Copies()
    made.close()
    assert made._folder.parent == Path(tempfile.gettempdir())
