"""Executions that come too late, and what they know: real processes, stopped and woken up."""

import asyncio
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from oncely import Context, Oncely, Retry
from oncely.model.effect import fingerprint
from oncely.model.outcome import Doubted, Failure, Standing, decide
from oncely.store import deliver, effects
from oncely.store.claim import Fence
from oncely.store.effects import Effect
from tests.crash.ends import end
from tests.crash.fleet import start
from tests.crash.proxy import Proxy
from tests.crash.zombies import make_app, work
from tests.engine.steps import claim_one, found, sql
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.usefixtures("migrated")
LEASE_SECONDS = 0.6
KINDS = ("fence_def", "fence_async", "fence_thread")


@pytest.fixture
def app(url: str, tmp_path: Path) -> Iterator[Oncely]:
    with make_app(url, tmp_path) as app:
        app.migrate()
        yield app


def stop(zombie: ForkServerProcess, url: str) -> None:
    """Not while it writes: of SQLite it would keep everybody out until it wakes up."""
    while True:
        os.kill(zombie.pid or 0, signal.SIGSTOP)
        if not url.startswith("sqlite"):
            return
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=1)) as connection:
            try:
                connection.execute("begin immediate")
                return
            except sqlite3.OperationalError:
                os.kill(zombie.pid or 0, signal.SIGCONT)
                time.sleep(0.05)


def state(app: Oncely, job_id: str) -> str:
    return found(app, job_id).state


def ledger(app: Oncely) -> list[tuple[str, str]]:
    return [(name, state) for name, state in sql(app, "select name, state from oncely.effect")]


@pytest.mark.parametrize("kind", ["fence_def", "fence_thread"])
def test_a_zombie_wakes_up_and_its_evidence_lets_the_held_job_go_on(
    app: Oncely, url: str, tmp_path: Path, kind: str
) -> None:
    """An async effect on the loop would be cancelled when its worker sees that the lease is lost;
    one in a thread comes to its end."""
    job_id = app.enqueue(kind, "ann").job_id
    zombie = start(work, url, tmp_path, LEASE_SECONDS)
    wait_until((tmp_path / "in the middle").exists, "the effect is under way")
    stop(zombie, url)
    successor = start(work, url, tmp_path, LEASE_SECONDS)
    try:
        wait_until(lambda: state(app, job_id) == "in_doubt", "the successor holds the job")
        (tmp_path / "go on").touch()
        os.kill(zombie.pid or 0, signal.SIGCONT)
        wait_until(lambda: state(app, job_id) == "completed", "it goes on by itself")
    finally:
        os.kill(zombie.pid or 0, signal.SIGCONT)
        end([zombie, successor])
    assert found(app, job_id).result == "sent ann"
    assert (tmp_path / "sent").read_text() == "ann\n"
    assert ledger(app) == [("send", "done")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_worker_that_ends_in_the_middle_leaves_a_doubt(
    app: Oncely, url: str, tmp_path: Path, kind: str, how: str
) -> None:
    job_id = app.enqueue(kind, "ann").job_id
    worker = start(work, url, tmp_path, LEASE_SECONDS)
    wait_until((tmp_path / "in the middle").exists, "the effect is under way")
    if how == "killed":
        worker.kill()
    else:
        os.kill(worker.pid or 0, signal.SIGTERM)
        wait_until(lambda: state(app, job_id) != "running", "it is handed back")
    end([worker])
    successor = start(work, url, tmp_path, LEASE_SECONDS)
    try:
        wait_until(lambda: state(app, job_id) == "in_doubt", "the successor holds the job")
    finally:
        end([successor])
    (tmp_path / "go on").touch()
    app.resolve(job_id, "send", happened=True, result="sent ann")
    app.drain()
    assert found(app, job_id).result == "sent ann"
    assert (tmp_path / "sent").read_text() == "ann\n"


class Slow:
    """An effect in a thread that the handler does not wait for any longer."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()
        self.times = 0
        self.error: Exception | None = None

    def send(self) -> str:
        self.times += 1
        self.entered.set()
        assert self.let_go.wait(PATIENCE_SECONDS)
        if self.error:
            raise self.error
        return "sent"


@pytest.mark.parametrize("form", ["async", "def"])
@pytest.mark.parametrize("order", ["held first", "evidence first"])
def test_a_time_out_inside_a_fence_and_then_the_evidence(url: str, form: str, order: str) -> None:
    slow = Slow()
    with Oncely(url) as app:
        app.migrate()

        @app.job("async", timeout=0.3, retry=Retry(base=0))
        async def on_loop(ctx: Context) -> Any:
            return await ctx.fence("send", slow.send)

        @app.job("def", timeout=0.3, retry=Retry(base=0))
        def in_thread(ctx: Context) -> Any:
            return ctx.fence("send", slow.send)

        job_id = app.enqueue(form).job_id
        if order == "evidence first":
            # It ends at about the time at which the handler is given up.
            threading.Timer(0.3, slow.let_go.set).start()
        worker = app.worker(poll_seconds=0.05)
        running = threading.Thread(target=worker.run)
        running.start()
        try:
            if order == "held first":
                wait_until(lambda: state(app, job_id) == "in_doubt", "it is held")
                slow.let_go.set()
            wait_until(lambda: state(app, job_id) == "completed", "it goes on by itself")
        finally:
            slow.let_go.set()
            worker.stop()
            running.join()
        assert found(app, job_id).result == "sent"
        assert slow.times == 1


def test_a_late_proof_that_nothing_happened_counts_too(url: str) -> None:
    slow = Slow()
    slow.error = ConnectionRefusedError(111, "Connection refused")
    with Oncely(url) as app:
        app.migrate()

        @app.job("k", timeout=0.3, retry=Retry(base=0))
        async def handle(ctx: Context) -> Any:
            return await ctx.fence("send", slow.send)

        job_id = app.enqueue("k").job_id
        app.drain()
        assert state(app, job_id) == "in_doubt"
        slow.let_go.set()
        wait_until(lambda: state(app, job_id) == "pending", "it goes on")
        slow.error = None
        app.drain()
        assert (found(app, job_id).result, slow.times) == ("sent", 2)


@pytest.mark.parametrize("form", ["async", "def"])
def test_a_job_that_is_cancelled_inside_a_fence_keeps_the_evidence(url: str, form: str) -> None:
    slow = Slow()
    with Oncely(url) as app:
        app.migrate()

        @app.job("async")
        async def on_loop(ctx: Context) -> Any:
            return await ctx.fence("send", slow.send)

        @app.job("def")
        def in_thread(ctx: Context) -> Any:
            return ctx.fence("send", slow.send)

        job_id = app.enqueue(form).job_id
        worker = app.worker(poll_seconds=0.05, lease_seconds=0.3)
        running = threading.Thread(target=worker.run)
        running.start()
        try:
            assert slow.entered.wait(PATIENCE_SECONDS)
            app.cancel(job_id)
            slow.let_go.set()
            wait_until(lambda: ledger(app) == [("send", "done")], "the evidence is there")
        finally:
            slow.let_go.set()
            worker.stop()
            running.join()
        assert state(app, job_id) == "cancelled"


def test_an_execution_cannot_retake_what_has_an_end_meanwhile(url: str) -> None:
    """Its predecessor, long given up, tells its end while the other side is being asked."""
    with Oncely(url) as app:
        app.migrate()
        asked = []

        def verify(name: str) -> None:
            asked.append(name)
            [(job_id, epoch, print_)] = sql(
                app, "select job_id, epoch, fingerprint from oncely.effect"
            )
            late = Effect(str(job_id), Fence(epoch, 0), "send", "fence", print_, "[]")
            app._engine.run(lambda _: effects.done(late, "returned", '"late"'), "transaction")

        def never(name: str) -> None:
            raise AssertionError("it was done already")

        def boom(name: str) -> None:
            raise TimeoutError("no answer")

        @app.job("k", retry=Retry(base=0, max_attempts=2))
        def handle(ctx: Context) -> Any:
            return ctx.fence("send", boom if ctx.attempt == 1 else never, "ann", verify=verify)

        job_id = app.enqueue("k").job_id
        app.drain()
        assert (state(app, job_id), found(app, job_id).result) == ("completed", "late")
        assert asked == ["ann"]


def test_who_loses_the_lease_while_asking_does_nothing(url: str) -> None:
    with Oncely(url) as app:
        app.migrate()
        done: list[str] = []

        def verify(name: str) -> None:
            [(job_id,)] = sql(app, "select job_id from oncely.effect")
            app.cancel(str(job_id))

        def boom(name: str) -> None:
            raise TimeoutError("no answer")

        @app.job("k", retry=Retry(base=0))
        def handle(ctx: Context) -> None:
            ctx.fence("send", boom if ctx.attempt == 1 else done.append, "ann", verify=verify)

        job_id = app.enqueue("k").job_id
        app.drain()
        assert (state(app, job_id), done) == ("cancelled", [])


@pytest.mark.parametrize("round_", range(10))
def test_evidence_and_hold_at_the_same_moment_do_not_miss_each_other(url: str, round_: int) -> None:
    """Whichever commits first, the job goes on: it is never left held with nothing in doubt."""
    with Oncely(url) as app, Oncely(url) as other:
        app.migrate()
        job_id = app.enqueue("k").job_id
        claimed = claim_one(app)
        effect = Effect(job_id, claimed.fence, "send", "fence", fingerprint(()), "[]")
        app._engine.run(lambda _: effects.begin(effect), "transaction")
        ending = Doubted(["send"], Failure("InDoubt", "nobody knows"))
        held = deliver.settlement(claimed, decide(ending, Standing(1, 3, 0, 0), Retry(), 0))
        at_once = threading.Barrier(2)

        def hold() -> None:
            at_once.wait()
            app._engine.run(lambda _: deliver.settle([held]), "transaction")

        def tell() -> None:
            at_once.wait()
            other._engine.run(lambda _: effects.done(effect, "returned", "1"), "transaction")

        for one in (app, other):
            one.jobs()  # connected before
        threads = [threading.Thread(target=act) for act in (hold, tell)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert state(app, job_id) == "pending"
        assert ledger(app) == [("send", "done")]


@pytest.mark.parametrize("first", ["hold", "tell"])
def test_evidence_and_hold_in_either_order(url: str, first: str) -> None:
    with Oncely(url) as app:
        app.migrate()
        job_id = app.enqueue("k").job_id
        claimed = claim_one(app)
        effect = Effect(job_id, claimed.fence, "send", "fence", fingerprint(()), "[]")
        app._engine.run(lambda _: effects.begin(effect), "transaction")
        ending = Doubted(["send"], Failure("InDoubt", "nobody knows"))
        held = deliver.settlement(claimed, decide(ending, Standing(1, 3, 0, 0), Retry(), 0))

        def hold() -> None:
            app._engine.run(lambda _: deliver.settle([held]), "transaction")

        def tell() -> None:
            app._engine.run(lambda _: effects.done(effect, "returned", "1"), "transaction")

        for act in (hold, tell) if first == "hold" else (tell, hold):
            act()
        assert state(app, job_id) == "pending"


def test_evidence_waits_for_a_store_that_is_gone_for_a_moment(postgres_url: str) -> None:
    """A restart of the server in the middle of an effect is no reason to ask a person."""
    with Oncely(postgres_url) as near:
        near.migrate()
        with Proxy(postgres_url) as proxy, Oncely(proxy.url) as app:
            timers: list[threading.Timer] = []

            def send() -> str:
                proxy.refusing = True
                proxy.cut()
                time.sleep(0.1)  # what was about to be accepted
                proxy.cut()
                timers.append(threading.Timer(1, lambda: setattr(proxy, "refusing", False)))
                timers[-1].start()
                return "sent"

            @app.job("def")
            def in_thread(ctx: Context) -> Any:
                return ctx.fence("send", send)

            @app.job("async")
            async def on_loop(ctx: Context) -> Any:
                return await ctx.fence("send", send)

            for form in ("def", "async"):
                job_id = app.enqueue(form).job_id
                asyncio.run(app.worker(lease_seconds=30).drain())
                timers[-1].join()
                job = found(near, job_id)
                assert (job.state, job.result) == ("completed", "sent")
