"""The web apps of the examples: an order and its job are there together, or neither is."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from oncely import Oncely
from tests.engine.steps import engine_of, sql
from tests.surface.command import environment
from tests.waiting import PATIENCE_SECONDS, wait_until

EXAMPLES = Path(__file__).parents[3] / "examples/web"
COMMANDS = {
    "fastapi_app": ["uvicorn", "fastapi_app:web", "--port", "0"],
    "flask_app": ["flask", "--app", "flask_app:web", "run", "--port", "0"],
}
EMBEDDED = "fastapi_worker"
CLICKS = 8


@contextmanager
def running(app: Oncely, *command: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=EXAMPLES,
        env=environment(SHOP_URL=app.url, PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def shop(app: Oncely, name: str) -> Iterator[httpx2.Client]:
    with running(app, *COMMANDS[name]) as process, client_of(process) as client:
        yield client


def client_of(process: "subprocess.Popen[str]") -> httpx2.Client:
    assert process.stdout is not None
    said = ""
    while (found := re.search(r"http://127\.0\.0\.1:\d+", said)) is None:
        line = process.stdout.readline()
        assert line, said
        said += line
    threading.Thread(target=process.stdout.read, daemon=True).start()
    return httpx2.Client(base_url=found[0], trust_env=False, timeout=PATIENCE_SECONDS)


def stored(app: Oncely) -> tuple[list[Any], list[Any]]:
    orders = [tuple(row) for row in sql(app, "select id, cents from shop_order order by id")]
    return orders, [job.payload for job in app.jobs()]


@pytest.mark.parametrize("name", COMMANDS)
def test_an_order_and_its_job_are_stored_together_or_not_at_all(app: Oncely, name: str) -> None:
    with shop(app, name) as client:

        def click(_: int) -> httpx2.Response:
            return client.post("/orders", json={"id": 1, "cents": 990})

        with ThreadPoolExecutor(CLICKS) as threads:
            answers = list(threads.map(click, range(CLICKS)))
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.json()["job_id"] for answer in answers}) == 1
        assert sum(answer.json()["first"] for answer in answers) == 1
        wanted = ([(1, 990)], [{"order_id": 1, "cents": 990}])
        assert stored(app) == wanted

        assert client.post("/orders", json={"id": 2, "cents": 0}).status_code == 422
        assert client.post("/orders", json={"id": 1, "cents": 5}).status_code == 409
        assert stored(app) == wanted

    [job] = app.jobs()
    if engine_of(app) == "sqlite":  # once for each app: it costs a process
        with running(app, "oncely.surface.cli", "worker", f"{name}:jobs") as worker:
            assert app.result(job.job_id, timeout=PATIENCE_SECONDS) == "charged order 1"
            os.kill(worker.pid, signal.SIGTERM)
            worker.communicate(timeout=PATIENCE_SECONDS)
        assert worker.returncode == 0


def test_a_signal_reaches_the_web_server_that_a_worker_runs_in(app: Oncely) -> None:
    with (
        running(app, "uvicorn", f"{EMBEDDED}:web", "--port", "0") as process,
        client_of(process) as client,
    ):
        job_id = client.post("/orders/1").json()["job_id"]
        wait_until(lambda: app.jobs(state="running"))
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_SECONDS)  # the server has stopped, and the handler had its grace time
    job = app.get(job_id)
    assert job is not None
    assert (job.state, job.result) == ("completed", "confirmed order 1")
    assert app.workers() == []


def test_every_example_is_tested_here() -> None:
    assert {each.stem for each in EXAMPLES.glob("*.py")} == {*COMMANDS, EMBEDDED}
