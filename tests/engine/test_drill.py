"""Drills: a completed job is delivered once more. Nothing of it changes, and what would have been
repeated is told."""

import asyncio
import logging
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncely import (
    Context,
    Event,
    InvalidInput,
    Job,
    KeyConflict,
    NewJob,
    NotOverHttp,
    Oncely,
)
from oncely.worker.worker import Worker
from tests.engine.steps import let_days_pass, prune, sql
from tests.waiting import PATIENCE_SECONDS, wait_until

LATE_SECONDS = 0.05
"""So late a drill may begin: a lease would be too long to wait for."""


@contextmanager
def drilling(app: Oncely) -> Iterator[Worker]:
    worker = app.worker(drill=1.0, poll_seconds=0.05)
    drill = worker._drill
    assert drill is not None
    drill._kit = msgspec.structs.replace(drill._kit, late_seconds=LATE_SECONDS)
    thread = threading.Thread(target=lambda: asyncio.run(worker.arun()))
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join()


def is_at_rest(worker: Worker) -> bool:
    """Whether every job that was chosen for a drill has had it, or will have none."""

    async def look() -> bool:
        drill = worker._drill
        assert drill is not None
        return not (drill._chosen or drill._waiting or drill._running)

    assert worker._loop is not None
    return asyncio.run_coroutine_threadsafe(look(), worker._loop).result(PATIENCE_SECONDS)


def drilled(app: Oncely) -> int:
    return sum(sum(outcomes.values()) for outcomes in app.drills().outcomes.values())


def get(app: Oncely, job_id: str) -> Job:
    job = app.get(job_id)
    assert job is not None
    return job


def test_what_a_second_delivery_would_repeat_is_told_and_not_done(app: Oncely) -> None:
    sql(app, "create table shop (note text)")
    ran: Counter[str] = Counter()
    marked: list[tuple[str, str]] = []
    told: list[Event] = []
    app.on_event(told.append)

    def effect(name: str) -> int:
        ran[name] += 1
        return ran[name]

    @app.job("verbs", drill=True)
    def verbs(ctx: Context, payload: Any) -> int:
        marked.append((ctx.execution_id, "drill" if ctx.is_drill else "real"))
        ctx.enqueue("child", 1)
        ctx.fence("mail", effect, "mail")
        value: int = ctx.step("charge", effect, "charge")
        return value

    @app.job("transaction", drill=True)
    async def transaction(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            done = tx.execute("insert into shop values ('sold')")
            if hasattr(done, "__await__"):
                await done

    @app.job("new_name", drill=True)
    async def new_name(ctx: Context) -> None:
        await ctx.step(f"charge:{ctx.execution_id}", effect, "new_name")

    @app.job("other_arguments", drill=True)
    async def other_arguments(ctx: Context) -> None:
        await ctx.fence("send", lambda _: effect("other"), ctx.execution_id)

    @app.job("new_child", drill=True)
    def new_child(ctx: Context) -> None:
        ctx.enqueue("child", 2, idempotency_key=f"k:{ctx.is_drill}")

    @app.job("past_the_verbs", drill=True)
    def past_the_verbs(ctx: Context) -> None:
        app.enqueue("stray")

    @app.job("changes", drill=True)
    async def changes(ctx: Context) -> bool:
        return ctx.is_drill

    @app.job("raises", drill=True)
    async def raises(ctx: Context) -> None:
        if ctx.is_drill:
            raise ValueError("it is there already")

    @app.job("silent", drill=True)
    async def silent(ctx: Context) -> str:
        return "the same"

    @app.job("not_asked")
    async def not_asked(ctx: Context) -> None:
        ran["not_asked"] += 1

    app.set_queue("limited", concurrency=1)
    kinds = [*app._registry._handlers]
    for kind in kinds:
        app.enqueue(kind, queue="default")
    app.enqueue("silent", queue="limited")
    with drilling(app):
        wait_until(lambda: drilled(app) == 9)
        before = {job.job_id: job for job in app.jobs()}
    found = app.drills()
    assert found.outcomes == {
        "verbs": {"recognised": 1},
        "transaction": {"recognised": 1},
        "new_name": {"repeated": 1},
        "other_arguments": {"repeated": 1},
        "new_child": {"repeated": 1},
        "past_the_verbs": {"repeated": 1},
        "changes": {"diverged": 1},
        "raises": {"failed": 1},
        "silent": {"unseen": 1},
    }
    assert (found.recognised, found.repeated) == (4, 4)
    why = {each.kind: each.repeated for each in found.findings}
    assert why["past_the_verbs"] == ["enqueue 'stray' past ctx.enqueue"]
    assert why["other_arguments"] == ["fence 'send' with other arguments"]
    assert why["new_child"] == ["enqueue 'child'"]
    assert set(ran.items()) >= {("mail", 1), ("charge", 1), ("new_name", 1), ("other", 1)}
    assert ran["not_asked"] == 1
    assert sql(app, "select count(*) from shop") == [(1,)]

    jobs = {job.kind: job for job in app.jobs() if job.kind in kinds and job.queue == "default"}
    assert {job.state for job in jobs.values()} == {"completed"}
    assert {len(job.executions) for job in jobs.values()} == {1}
    assert (jobs["verbs"].result, jobs["changes"].result) == (1, False)
    assert Counter(job.kind for job in before.values())["child"] == 2
    assert [mark for _, mark in marked] == ["real", "drill"]
    assert len({execution for execution, _ in marked}) == 2
    story = app.explain(jobs["verbs"].job_id)
    assert [event.what for event in story][-2:] == ["completed", "drilled"]
    assert "recognised: enqueue 'child', fence 'mail', step 'charge'" in str(story)
    assert [event.drill for event in told if event.what == "drilled" and event.kind == "verbs"]
    counted = {(each.name, *each.labels.values()): each.value for each in app.counters()}
    assert counted["oncely_drills_total", "repeated", "new_name"] == 1
    assert counted["oncely_executions_total", "completed", "verbs"] == 1
    let_days_pass(app, 60)
    prune(app)
    assert sql(app, "select count(*) from oncely.drill") == [(0,)]


def test_a_child_is_rehearsed_and_never_stored(app: Oncely) -> None:
    known = app.enqueue("child", 1, idempotency_key="k:0")
    for n in range(5):
        receipt = app._enqueuer.rehearse(NewJob("child", 1, idempotency_key=f"k:{n}"))
        assert receipt.inserted is (n > 0)
    assert app._enqueuer.rehearse(NewJob("child", 1)).inserted
    with pytest.raises(KeyConflict):
        app._enqueuer.rehearse(NewJob("child", 2, idempotency_key="k:0"))
    assert [job.job_id for job in app.jobs()] == [known.job_id]
    assert app.enqueue("child", 1, idempotency_key="k:1").inserted


def test_the_switch_ends_drills_on_all_workers(app: Oncely) -> None:
    begun, ended = threading.Event(), threading.Event()

    @app.job("waits", drill=True)
    async def waits(ctx: Context) -> None:
        if ctx.is_drill:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    first = app.enqueue("waits")
    with drilling(app) as worker:
        assert begun.wait(PATIENCE_SECONDS)
        app.stop_drills(by="ann")
        assert ended.wait(PATIENCE_SECONDS)
        wait_until(lambda: is_at_rest(worker), "the drill is ended")
        begun.clear()
        second = app.enqueue("waits")
        app.result(second.job_id, timeout=PATIENCE_SECONDS)
        wait_until(lambda: is_at_rest(worker), "its drill is refused")
        assert not begun.is_set()
        found = app.drills()
        assert (found.stopped, found.by, found.outcomes) == (True, "ann", {})
        app.stop_drills(by="bob")
        assert app.drills().by == "ann"
        assert [entry.by for entry in app.audit(about="drills")] == ["ann"]
        app.start_drills()
        app.enqueue("waits")
        assert begun.wait(PATIENCE_SECONDS)
    assert ended.is_set()
    assert {get(app, each.job_id).state for each in (first, second)} == {"completed"}


DIES = """
import os, signal, sys
import msgspec
from oncely import Context, Oncely
app = Oncely(sys.argv[1])

@app.job("dies", drill=True)
def dies(ctx: Context) -> int:
    ctx.fence("once", lambda: open("effects", "a").write("x"))
    if ctx.is_drill:
        os.kill(os.getpid(), signal.SIGKILL)
    return 7

worker = app.worker(drill=1.0, poll_seconds=0.05)
worker._drill._kit = msgspec.structs.replace(worker._drill._kit, late_seconds=0.05)
worker.run()
"""


def test_a_worker_killed_in_a_drill_leaves_the_job_as_it_was(app: Oncely, tmp_path: Path) -> None:
    receipt = app.enqueue("dies")
    worker = subprocess.Popen([sys.executable, "-c", DIES, app.url], cwd=tmp_path)
    assert worker.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    job = get(app, receipt.job_id)
    assert (job.state, job.result, len(job.executions)) == ("completed", 7, 1)
    assert (tmp_path / "effects").read_text() == "x"
    assert app.drain() == 0
    assert drilled(app) == 0


def test_what_cannot_be_drilled_is_refused(sqlite_url: str) -> None:
    with Oncely(sqlite_url) as app:
        for share in (-0.1, 1.5, "all", True):
            with pytest.raises(InvalidInput, match="from 0 to 1"):
                app.worker(drill=share)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="expected True or False"):
            app.job("k", drill=0.1)(lambda ctx: None)  # type: ignore[arg-type]
    with Oncely("http://127.0.0.1:9") as remote, pytest.raises(NotOverHttp):
        remote.worker(drill=0.1)


def test_the_log_of_a_drill_says_so(app: Oncely, caplog: pytest.LogCaptureFixture) -> None:
    @app.job("logs", drill=True)
    async def logs(ctx: Context) -> None:
        ctx.log.warning("here")

    app.enqueue("logs")
    with drilling(app):
        wait_until(lambda: drilled(app) == 1)
    here = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [getattr(record, "drill", False) for record in here] == [False, True]
