"""A worker with handlers that never return: it says so, ends when it is told to, and ends by itself
when no place is left."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncely import Context, JobFailed, Oncely
from tests.surface.command import SCRIPT, environment
from tests.time_outs import HeldTimers
from tests.waiting import PATIENCE_SECONDS, wait_until

APP = """
import threading
from pathlib import Path
from oncely import Oncely
from tests.time_outs import HeldTimers

app = Oncely()


@app.job("stuck")
def stuck(ctx):
    Path("begun").touch()
    threading.Event().wait()


timers = HeldTimers(app, "late")


@app.job("late", timeout=0.05)
def late(ctx):
    timers.let_go(ctx)
    threading.Event().wait()


@app.job("quick")
def quick(ctx):
    pass
"""
SCRIPT_OF_A_USER = """
import asyncio
from jobs import app

asyncio.run(app.run_worker(concurrency=2, grace_seconds=0.1))
"""


@pytest.fixture(autouse=True)
def tests_in_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of the tests import what holds their time-outs."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)


@pytest.mark.parametrize("signals", [1, 2])
def test_the_worker_hands_the_job_back_and_ends(folder: Path, url: str, signals: int) -> None:
    (folder / "jobs.py").write_text(APP)
    with Oncely(url) as app:
        app.migrate()
        receipt = app.enqueue("stuck")
        grace = "0.2" if signals == 1 else "3600"
        process = subprocess.Popen(
            [SCRIPT, "worker", "jobs:app", "--grace-seconds", grace],
            cwd=folder,
            env=environment(ONCELY_URL=url),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_until((folder / "begun").exists)
            # Two of a kind would be one to a process that had no time in between.
            for number in (signal.SIGTERM, signal.SIGINT)[:signals]:
                process.send_signal(number)
            _, said = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0
        assert "1 handler has not returned" in said.splitlines()[-1]
        job = app.get(receipt.job_id)
        assert job is not None
        assert (job.state, [e.outcome for e in job.executions]) == ("pending", ["released"])


def test_a_handler_that_outlived_its_timeout_does_not_keep_the_process(
    folder: Path, sqlite_url: str
) -> None:
    (folder / "jobs.py").write_text(APP)
    with Oncely(sqlite_url) as app:
        receipt = app.enqueue("late", max_attempts=1)
        process = subprocess.Popen(
            [SCRIPT, "worker", "jobs:app", "--json"],
            cwd=folder,
            env=environment(ONCELY_URL=sqlite_url),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_until(lambda: app.jobs(state="failed"))
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0
        assert '"warning":"HandlerStuck"' in said.splitlines()[-1]
        job = app.get(receipt.job_id)
        assert job is not None
        assert job.state == "failed"


@contextmanager
def started(command: list[object], folder: Path, url: str) -> Iterator["subprocess.Popen[str]"]:
    (folder / "jobs.py").write_text(APP)
    (folder / "script.py").write_text(SCRIPT_OF_A_USER)
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=folder,
        env=environment(ONCELY_URL=url),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


COMMANDS: dict[str, list[object]] = {
    "oncely worker": [SCRIPT, "worker", "jobs:app", "--concurrency", "2", "--grace-seconds", "0.1"],
    "run_worker": [sys.executable, "script.py"],
}


@pytest.mark.parametrize(
    ("store", "command"), [("sqlite_url", "run_worker"), ("postgres_url", "oncely worker")]
)
def test_a_worker_without_a_place_hands_back_and_ends_with_an_error(
    folder: Path, request: pytest.FixtureRequest, store: str, command: str
) -> None:
    url: str = request.getfixturevalue(store)
    with Oncely(url) as app:
        app.migrate()
        stuck = [app.enqueue("late", max_attempts=1).job_id for _ in range(2)]
        with started(COMMANDS[command], folder, url) as process:
            wait_until(lambda: len(app.jobs(state="failed")) == 2)
            later = app.enqueue("quick").job_id
            _, said = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 1
        assert "2 handlers have not returned after their time-out" in said
        if command == "oncely worker":
            warned = [line for line in said.splitlines() if "handler does not return" in line]
            assert len(warned) == 2
            assert all("kind=late" in line and "ran_seconds=" in line for line in warned)
            assert all(any(job_id in line for line in warned) for job_id in stuck)
        job = app.get(later)
        assert job is not None
        assert (job.state, job.executions) == ("pending", [])
        assert app.workers() == []


def test_a_handler_that_does_not_return_counts_as_running(folder: Path, sqlite_url: str) -> None:
    with Oncely(sqlite_url) as app:
        app.enqueue("late", max_attempts=1)
        with started([SCRIPT, "worker", "jobs:app"], folder, sqlite_url):
            wait_until(lambda: app.jobs(state="failed"))
            wait_until(lambda: [worker.running for worker in app.workers()] == [1])


@pytest.mark.anyio
async def test_a_handler_that_returns_late_gives_its_place_back(app: Oncely) -> None:
    end, timers = threading.Event(), HeldTimers(app, "late")

    @app.job("late", timeout=0.01)
    def late(ctx: Context) -> None:
        timers.let_go(ctx)
        end.wait()

    @app.job("quick")
    def quick(ctx: Context) -> int:
        return 1

    async with app.running(concurrency=1, poll_seconds=0.01):
        first = await app.aenqueue("late", max_attempts=1)
        with pytest.raises(JobFailed):
            await app.aresult(first.job_id, timeout=PATIENCE_SECONDS)
        second = await app.aenqueue("quick")
        end.set()
        assert await app.aresult(second.job_id, timeout=PATIENCE_SECONDS) == 1
