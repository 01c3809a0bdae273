"""Executions that come too late, and what they know: real processes, stopped and woken up."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oncely import Context, Oncely, Retry
from oncely.flow.execute import with_doubt
from oncely.model.effect import described
from oncely.model.outcome import Doubted, Failure, Standing, decide
from oncely.store import deliver, effects
from oncely.store.claim import Fence
from oncely.store.effects import Effect
from oncely.worker import hands
from tests.crash.ends import end
from tests.crash.fleet import start
from tests.crash.proxy import Proxy, back_at_the_first_wait
from tests.crash.stopping import let_leases_run_out, send, stop
from tests.crash.zombies import make_app, work
from tests.engine.steps import claim_one, found, sql
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.usefixtures("migrated")
LEASE_SECONDS = 600.0
"""Nobody loses a lease because the machine is busy: the tests let it run out."""
Act = Callable[[], None]
KINDS = ("fence_def", "fence_async", "fence_thread")


@pytest.fixture
def app(url: str, tmp_path: Path) -> Iterator[Oncely]:
    with make_app(url, tmp_path) as app:
        app.migrate()
        yield app


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
    let_leases_run_out(app)
    successor = start(work, url, tmp_path, LEASE_SECONDS)
    try:
        wait_until(lambda: state(app, job_id) == "in_doubt", "the successor holds the job")
        (tmp_path / "go on").touch()
        send(zombie, signal.SIGCONT)
        wait_until(lambda: state(app, job_id) == "completed", "it goes on by itself")
    finally:
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
        end([worker])
        let_leases_run_out(app)
    else:
        send(worker, signal.SIGTERM)
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

    def __init__(self, time_out: "TimeOut | None" = None) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()
        self.times = 0
        self.error: Exception | None = None
        self._time_out = time_out

    def send(self) -> str:
        self.times += 1
        self.entered.set()
        if self._time_out is not None and self.times == 1:
            self._time_out.strike()
        assert self.let_go.wait(PATIENCE_SECONDS)
        if self.error:
            raise self.error
        return "sent"


class TimeOut:
    """The time that handlers have: it is over when the test says so."""

    seconds = 12_345.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._limits: list[tuple[asyncio.Timeout, asyncio.AbstractEventLoop]] = []
        timeout = asyncio.timeout

        def timeout_and_note(delay: float | None) -> asyncio.Timeout:
            limit = timeout(delay)
            if delay == self.seconds:
                self._limits.append((limit, asyncio.get_running_loop()))
            return limit

        monkeypatch.setattr(asyncio, "timeout", timeout_and_note)

    def strike(self) -> None:
        limit, loop = self._limits[-1]
        loop.call_soon_threadsafe(limit.reschedule, 0)


@pytest.fixture
def time_out(monkeypatch: pytest.MonkeyPatch) -> TimeOut:
    return TimeOut(monkeypatch)


@pytest.mark.parametrize("form", ["async", "def"])
@pytest.mark.parametrize("order", ["held first", "evidence first"])
def test_a_time_out_inside_a_fence_and_then_the_evidence(
    url: str, form: str, order: str, time_out: TimeOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(time_out)
    with Oncely(url) as app:
        app.migrate()

        def with_doubt_after_evidence(ending: Any, context: Any) -> Any:
            """The handler is given up, and what becomes of its job is not written down yet."""
            doubted = with_doubt(ending, context)
            slow.let_go.set()
            wait_until(lambda: ledger(app) == [("send", "done")], "the evidence is there")
            return doubted

        if order == "evidence first":
            monkeypatch.setattr(hands, "with_doubt", with_doubt_after_evidence)

        @app.job("async", timeout=time_out.seconds, retry=Retry(base=0))
        async def on_loop(ctx: Context) -> Any:
            return await ctx.fence("send", slow.send)

        @app.job("def", timeout=time_out.seconds, retry=Retry(base=0))
        def in_thread(ctx: Context) -> Any:
            return ctx.fence("send", slow.send)

        job_id = app.enqueue(form).job_id
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


def test_a_late_proof_that_nothing_happened_counts_too(url: str, time_out: TimeOut) -> None:
    slow = Slow(time_out)
    slow.error = ConnectionRefusedError(111, "Connection refused")
    with Oncely(url) as app:
        app.migrate()

        @app.job("k", timeout=time_out.seconds, retry=Retry(base=0))
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
        worker = app.worker(poll_seconds=0.05)
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


def hold_and_tell(app: Oncely, other: Oncely, queue: str) -> tuple[str, Act, Act]:
    """A job with an effect under way; one holds it in doubt, the other knows how it ended."""
    job_id = app.enqueue("k", queue=queue).job_id
    claimed = claim_one(app, queue)
    effect = Effect(job_id, claimed.fence, "send", "fence", described(())[0], "[]")
    app._engine.run(lambda _: effects.begin(effect), "transaction")
    ending = Doubted(["send"], Failure("InDoubt", "nobody knows"))
    held = deliver.settlement(claimed, decide(ending, Standing(1, 3, 0, 0), Retry(), 0))

    def hold() -> None:
        app._engine.run(lambda _: deliver.settle([held]), "transaction")

    def tell() -> None:
        other._engine.run(lambda _: effects.done(effect, "returned", "1"), "transaction")

    return job_id, hold, tell


def test_evidence_and_hold_at_the_same_moment_do_not_miss_each_other(url: str) -> None:
    """Whichever commits first, the job goes on: it is never left held with nothing in doubt."""
    rounds = 10
    at_once = threading.Barrier(2)

    def act_at_once(act: Act) -> None:
        at_once.wait(PATIENCE_SECONDS)
        act()

    with Oncely(url) as app, Oncely(url) as other, ThreadPoolExecutor(2) as threads:
        app.migrate()
        other.jobs()  # connected before
        for n in range(rounds):
            job_id, *acts = hold_and_tell(app, other, f"queue-{n}")
            list(threads.map(act_at_once, acts))
            assert state(app, job_id) == "pending", n
        assert ledger(app) == [("send", "done")] * rounds


@pytest.mark.parametrize("first", ["hold", "tell"])
def test_evidence_and_hold_in_either_order(url: str, first: str) -> None:
    with Oncely(url) as app:
        app.migrate()
        job_id, hold, tell = hold_and_tell(app, app, "default")
        for act in (hold, tell) if first == "hold" else (tell, hold):
            act()
        assert state(app, job_id) == "pending"


def test_evidence_waits_for_a_store_that_is_gone_for_a_moment(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart of the server in the middle of an effect is no reason to ask a person."""
    with Oncely(postgres_url) as near:
        near.migrate()
        with Proxy(postgres_url) as proxy, Oncely(proxy.url) as app:
            waits = back_at_the_first_wait(proxy, monkeypatch)

            def send() -> str:
                proxy.refuse()
                return "sent"

            @app.job("def")
            def in_thread(ctx: Context) -> Any:
                return ctx.fence("send", send)

            @app.job("async")
            async def on_loop(ctx: Context) -> Any:
                return await ctx.fence("send", send)

            for form in ("def", "async"):
                job_id = app.enqueue(form).job_id
                asyncio.run(app.worker().drain())
                job = found(near, job_id)
                assert (job.state, job.result) == ("completed", "sent")
            assert waits == [0.1, 0.1]
