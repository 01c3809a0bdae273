"""The workers that are there: they say so themselves, and are missed when they are not."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from importlib.metadata import version

from oncely import Oncely, Worker
from oncely.model.worker import About
from oncely.store import workers
from tests.crash.fleet import CONTEXT
from tests.crash.workers import run_worker
from tests.engine.steps import engine_of, sql
from tests.waiting import PATIENCE_SECONDS, wait_until


def until(app: Oncely, right: Callable[[list[Worker]], bool]) -> list[Worker]:
    wait_until(lambda: right(app.workers()), "the workers are as they should be")
    return app.workers()


def silent_for(app: Oncely, seconds: int) -> None:
    by = f"interval '{seconds} seconds'" if engine_of(app) == "postgres" else f"{seconds}000000"
    sql(app, f"update oncely.worker set seen_at = seen_at - {by}")


def forget(app: Oncely) -> None:
    app._engine.run(lambda _: workers.forget(), "transaction")


def test_a_worker_is_there_until_it_stops_or_dies(app: Oncely, url: str) -> None:
    assert app.workers() == []
    processes = [CONTEXT.Process(target=run_worker, args=(url, 60.0)) for _ in range(2)]
    for process in processes:
        process.start()
    try:
        both = until(app, lambda found: len(found) == 2)
        assert {each.pid for each in both} == {process.pid for process in processes}
        first = both[0]
        assert first.name.startswith(f"{first.host}:{first.pid}:")
        assert (first.host, first.version) == (socket.gethostname(), version("oncely"))
        assert (first.queues, first.concurrency, first.pushes) == (None, 8, False)
        assert (first.alive, first.running) == (True, 0)
        assert first.started_at <= first.seen_at
        killed, stopped = processes
        assert killed.pid is not None
        assert stopped.pid is not None
        # Whoever stops takes its leave; of whoever is killed nobody knows for a while.
        os.kill(stopped.pid, signal.SIGTERM)
        stopped.join(PATIENCE_SECONDS)
        [left] = until(app, lambda found: len(found) == 1)
        assert left.pid == killed.pid
        until(app, lambda found: found[0].alive)
        os.kill(killed.pid, signal.SIGKILL)
        killed.join(PATIENCE_SECONDS)
        assert app.workers()[0].alive
        silent_for(app, 31)
        [left] = app.workers()
        assert (left.pid, left.alive) == (killed.pid, False)
        forget(app)
        assert len(app.workers()) == 1
        silent_for(app, 3_600)
        assert asyncio.run(app.aworkers()) == []
        forget(app)
        assert sql(app, "select count(*) from oncely.worker") == [(0,)]
    finally:
        for process in processes:
            process.kill()


def test_what_a_worker_says_again_is_the_same_worker(app: Oncely) -> None:
    me = About("till-2", "till", 7, ["mail", "pdf"], 4, "1.0", pushes=True)
    for running in (1, 3):
        app._engine.run(lambda _, n=running: workers.seen(me, n), "transaction")  # type: ignore[misc]
    app._engine.run(lambda _: workers.seen(About("stranger"), 0), "transaction")
    found = {each.name: each for each in app.workers()}
    one, other = found["till-2"], found["stranger"]
    assert (one.queues, one.concurrency, one.pushes, one.running) == (["mail", "pdf"], 4, True, 3)
    assert (other.host, other.pid, other.queues, other.concurrency) == (None, None, None, None)
    app._engine.run(lambda _: workers.leave("till-2", []), "transaction")
    assert [each.name for each in app.workers()] == ["stranger"]


def test_a_drain_is_not_a_worker(app: Oncely) -> None:
    app.job("k")(lambda ctx: None)
    app.enqueue("k")
    assert app.drain() == 1
    assert app.workers() == []
