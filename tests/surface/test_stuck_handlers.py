"""`oncely worker` ends when it is told to, also with handlers that never return."""

import signal
import subprocess
from pathlib import Path

import pytest

from oncely import Oncely
from tests.surface.command import SCRIPT, environment
from tests.waiting import PATIENCE_SECONDS, wait_until

APP = """
import threading
from oncely import Oncely

app = Oncely()


@app.job("stuck")
def stuck(ctx):
    threading.Event().wait()


@app.job("late", timeout=0.05)
def late(ctx):
    threading.Event().wait()
"""


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
            wait_until(lambda: app.jobs(state="running"))
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
