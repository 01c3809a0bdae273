"""A process that comes to no end is given up, and the proof says which one, and where it stood."""

import bdb
import os
import select
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

from oncely import Context, Oncely, Retry
from oncely.model.errors import InvalidInput
from oncely.prove import Table, processes, prove
from oncely.prove.template import Template
from oncely.prove.watch import Hosts, Watch

AT_ONCE = Retry(base=0, max_attempts=5)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Oncely]:
    with Oncely(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        yield app


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.db")
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table notes (text text)")
    return path


def note(path: str) -> int:
    """The number of rows that it has written."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as db:
        sql = "insert into notes select 'x' where not exists (select 1 from notes)"
        return db.execute(sql).rowcount


def wait_for_ever() -> None:
    threading.Event().wait()


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "HUNG_SECONDS", 0.5)


@pytest.mark.usefixtures("short_patience")
def test_a_clean_run_that_hangs_ends_the_proof_of_one_schedule(app: Oncely, path: str) -> None:
    @app.job("handler")
    def handler(ctx: Context) -> None:
        note(path)
        wait_for_ever()

    with pytest.raises(InvalidInput, match=r"no end: delivery 1 .* seconds, after boundary 1 \(i"):
        prove(app, "handler", world=[Table(f"sqlite:///{path}", "notes")], schedule="crash@1")


@pytest.mark.usefixtures("short_patience")
def test_a_second_delivery_that_hangs_is_named(app: Oncely, path: str) -> None:
    @app.job("handler", retry=AT_ONCE)
    def handler(ctx: Context) -> None:
        if not note(path):
            wait_for_ever()

    world = [Table(f"sqlite:///{path}", "notes")]
    report = prove(app, "handler", world=world, schedule="crash@2")
    assert [each.verdict for each in report.violations] == ["stuck"]
    assert "came to no end: delivery 2 " in str(report)
    assert "seconds, after boundary 1 (insert into notes" in str(report)


def test_in_a_debugger_it_may_stand_still(
    app: Oncely, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "HUNG_SECONDS", 0.1)

    @app.job("handler")
    def handler(ctx: Context) -> None:
        debugger = bdb.Bdb()
        debugger.set_trace()
        select.select([], [], [], 2.0)
        debugger.set_quit()
        note(path)

    world = [Table(f"sqlite:///{path}", "notes")]
    assert prove(app, "handler", world=world, schedule="crash@0").verdict == "sound"


@pytest.mark.usefixtures("short_patience")
def test_a_snapshot_that_hangs_is_given_up(app: Oncely, path: str) -> None:
    @app.job("handler")
    def handler(ctx: Context) -> None:
        note(path)

    with pytest.raises(InvalidInput, match="a snapshot of the world stood still for"):
        prove(app, "handler", world=[wait_for_ever])


@pytest.mark.usefixtures("short_patience")
def test_a_template_that_hangs_is_ended() -> None:
    def prepare(_: int) -> NoReturn:
        wait_for_ever()
        raise AssertionError

    template = Template(prepare)
    with pytest.raises(InvalidInput, match="starts the deliveries stood still"):
        template.start(0, b"")
    template.close()
    with pytest.raises(ChildProcessError):
        os.waitpid(template._pid, 0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_a_handler_forks_tells_though_a_thread_was_telling() -> None:
    line, child_line = os.pipe()
    watch = Watch(Hosts(frozenset(), frozenset()))
    holds, ended = threading.Event(), threading.Event()

    def hold() -> None:
        with watch._lock:
            holds.set()
            ended.wait()

    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        watch.begin(child_line, None)
        threading.Thread(target=hold, daemon=True).start()
        holds.wait()
        inner = os.fork()
        if inner == 0:
            signal.alarm(20)
            watch.note("unobserved", "told")
            os._exit(0)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) != 0)
    os.close(child_line)
    assert os.waitpid(pid, 0)[1] == 0
    with os.fdopen(line, "rb") as told:
        assert b"told" in told.read()
