"""Processes that are stopped by SIGSTOP, with nothing in their hands that others would wait for."""

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psycopg

from oncely import Oncely
from oncely.store.deliver import reclaim
from tests.engine.steps import engine_of, sql
from tests.waiting import wait_until

_OPEN = """
select pid, xact_start from pg_stat_activity
where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()
"""
_SESSIONS = """
select pid from pg_stat_activity
where datname = current_database() and starts_with(application_name, 'oncely')
"""
_LOOKS = 20


def send(process: ForkServerProcess, number: signal.Signals) -> None:
    assert process.pid is not None
    os.kill(process.pid, number)


def stop(process: ForkServerProcess, url: str) -> None:
    """Not while it writes: it would keep others out until it wakes up."""

    def stopped_between_writes() -> bool:
        send(process, signal.SIGSTOP)
        wait_until(lambda: _is_stopped(process.pid or 0), "the process is stopped")
        if not _is_writing(url):
            return True
        send(process, signal.SIGCONT)
        return False

    wait_until(stopped_between_writes, "it is stopped between two writes")


def stop_at_work(process: ForkServerProcess, app: Oncely, top_up: Callable[[], None]) -> None:
    """While jobs are leased to it; `top_up` sees to it that there are some to be had."""

    def stopped_at_work() -> bool:
        stop(process, app.url)
        if holds_leases(process, app):
            return True
        send(process, signal.SIGCONT)
        top_up()
        return False

    wait_until(stopped_at_work, "it is stopped with jobs in hand")


def holds_leases(process: ForkServerProcess, app: Oncely) -> bool:
    held = "select 1 from oncely.lease where worker like :one limit 1"
    return bool(sql(app, held, one=f"%:{process.pid}:%"))


def end_sessions(app: Oncely) -> None:
    """What killed processes have sent may still be on its way to the server: it is not carried out
    after this. The app connects again."""
    if engine_of(app) == "sqlite":
        return
    with psycopg.connect(app.url, autocommit=True) as server:
        server.execute(f"select pg_terminate_backend(pid) from ({_SESSIONS}) s")
        wait_until(lambda: not server.execute(_SESSIONS).fetchall(), "the sessions are ended")


def let_leases_run_out(app: Oncely) -> None:
    """As if their time were over by now, and somebody had seen that. A worker that lives on must
    not renew them meanwhile."""
    past = "0" if engine_of(app) == "sqlite" else "clock_timestamp()"
    sql(app, f"update oncely.lease set expires_at = {past}")
    while app._engine.run(lambda _: reclaim(100), "transaction"):
        pass


def _is_stopped(pid: int) -> bool:
    """Each of its threads: the signal only begins to stop them."""
    if not Path("/proc/self/task").exists():
        return subprocess.check_output(["ps", "-o", "state=", "-p", str(pid)]).startswith(b"T")
    states = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return set(states) == {"T"}


def _is_writing(url: str) -> bool:
    """Whether somebody is, as long as we look; a stopped process stays in the middle of it."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=1)) as connection:
            try:
                connection.execute("begin immediate")
            except sqlite3.OperationalError:
                return True
            return False
    with psycopg.connect(url, autocommit=True) as server:
        still = set(server.execute(_OPEN).fetchall())
        for _ in range(_LOOKS):
            if not still:
                return False
            time.sleep(0.01)
            still &= set(server.execute(_OPEN).fetchall())
    return True
