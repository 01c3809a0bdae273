"""Push: the jobs of a queue go to a receiver, signed, and its answer settles them."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from standardwebhooks import Webhook

from oncely import InvalidInput, Job, NewJob, Oncely, Push, PushRefused, PushTarget, Retry, Worker
from oncely.flow.push import DEFAULT_SECONDS
from oncely.flow.push_target import Resolve
from oncely.worker.push import Pusher
from tests.engine.push_receiver import (
    OK,
    Receiver,
    Request,
    receiver,
    reset,
    silent,
    status,
)
from tests.engine.steps import let_days_pass, sql
from tests.moved_clock import MovedLoop, run_on
from tests.waiting import PATIENCE_SECONDS

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


@pytest.fixture(autouse=True)
def _loopback_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCELY_PUSH_ALLOW", "127.0.0.0/8")


def send_all(app: Oncely, *, resolve: Resolve | None = None, concurrency: int = 8) -> int:
    """Push all that is due; how many executions there were."""
    pusher = Pusher(app._gear(), resolve=resolve, concurrency=concurrency)
    return asyncio.run(pusher.drain())


def to(app: Oncely, place: Receiver, **options: Any) -> None:
    """What fails comes back when the test lets time pass, and not while it runs."""
    push = Push(place.url, secret=SECRET, **options)
    app.set_queue("hooks", push=push, retry=Retry(base=3_600, jitter=False))


def put(app: Oncely, payload: Any = None, **options: Any) -> str:
    return app.enqueue("order.paid", payload, queue="hooks", **options).job_id


def job(app: Oncely, job_id: str) -> Job:
    found = app.get(job_id)
    assert found is not None
    return found


def make_due(app: Oncely) -> None:
    let_days_pass(app, 2)


async def until(app: Oncely, pusher: Pusher, reached: Callable[[], bool]) -> None:
    running = asyncio.create_task(pusher.arun())
    while not reached() and not running.done():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    pusher.stop()
    await running


def test_the_request_is_as_the_contract_says(app: Oncely) -> None:
    with receiver() as there:
        to(app, there)
        job_id = put(app, {"order": "9482", "sum": [1, 2.5, None, "ü"]})
        assert send_all(app) == 1
        [request] = there.requests
    assert request.line == "POST /hook?v=1 HTTP/1.1"
    found = job(app, job_id)
    execution_id = request.headers["oncely-execution-id"]
    assert request.job == {
        "id": job_id,
        "executionId": execution_id,
        "epoch": found.executions[0].epoch,
        "attempt": 1,
        "kind": "order.paid",
        "queue": "hooks",
        "payload": {"order": "9482", "sum": [1, 2.5, None, "ü"]},
    }
    assert execution_id.startswith(f"{job_id}.")
    assert request.headers["host"] == f"127.0.0.1:{there.port}"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["webhook-id"] == job_id
    assert request.headers["idempotency-key"] == job_id
    assert request.headers["oncely-attempt"] == "1"
    assert request.previous == "none"
    Webhook(SECRET).verify(request.body, request.headers)
    assert (found.state, found.result) == ("completed", {"status": 200})


def test_two_secrets_sign_while_the_receiver_changes_over(app: Oncely) -> None:
    with receiver() as there:
        app.set_queue("hooks", push=Push(there.url, secret=[OTHER, SECRET]))
        put(app)
        send_all(app)
        app.set_queue("hooks", push=Push(there.url, secret=OTHER))
        put(app)
        send_all(app)
        both, one = there.requests
    for secret in (SECRET, OTHER):
        Webhook(secret).verify(both.body, both.headers)
    assert len(both.headers["webhook-signature"].split()) == 2
    Webhook(OTHER).verify(one.body, one.headers)
    assert len(one.headers["webhook-signature"].split()) == 1


def test_a_secret_that_is_not_named_stays(app: Oncely) -> None:
    with receiver() as there:
        with pytest.raises(InvalidInput, match="no push secret yet"):
            app.set_queue("hooks", push=Push(there.url), concurrency=3)
        assert app.queues() == []
        to(app, there)
        app.set_queue("hooks", push=Push(there.url, mode="sync"))
        put(app)
        send_all(app)
        [request] = there.requests
    Webhook(SECRET).verify(request.body, request.headers)


def test_no_secret_is_ever_shown_or_logged(
    app: Oncely, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with receiver(status(500), OK) as there:
        to(app, there)
        job_id = put(app)
        send_all(app)
        make_due(app)
        send_all(app)
    shown = [app.queues(), app.get(job_id), app.explain(job_id), caplog.text, capsys.readouterr()]
    assert "MfKQ9r8G" not in repr(shown)
    assert "MfKQ9r8G" not in str(app.explain(job_id))
    [queue] = app.queues()
    assert queue.push == PushTarget(there.url, "sync")


def test_no_worker_takes_the_jobs_of_a_queue_that_is_pushed(app: Oncely) -> None:
    app.job("order.paid", queue="hooks")(lambda ctx: "by a worker")
    with receiver() as there:
        to(app, there)
        job_id = put(app)
        elsewhere = app.enqueue("order.paid", queue="default").job_id
        assert app.drain() == 1
        assert app.drain(queues=["hooks"]) == 0
        assert job(app, job_id).state == "pending"
        assert send_all(app) == 1
        assert len(there.requests) == 1
        assert job(app, elsewhere).result == "by a worker"
        app.set_queue("hooks", push=None)
        last = put(app)
        assert send_all(app) == 0
        assert app.drain() == 1
        assert len(there.requests) == 1
    assert job(app, last).result == "by a worker"
    assert [queue.push for queue in app.queues()] == [None]


COMPLETED = [200, 201, 202, 204, 299]
DEFERRED = [429, 503, 529]
FAILED = [400, 410, 413, 415, 422]
RETRIED = [300, 301, 302, 303, 307, 308, 401, 403, 404, 405, 408, 409, 418, 425, 500, 502, 504, 599]


@pytest.mark.parametrize(
    ("codes", "state", "outcome", "attempts"),
    [
        (COMPLETED, "completed", "completed", 0),
        (DEFERRED, "scheduled", "deferred", 0),
        (FAILED, "failed", "failed", 0),
        (RETRIED, "scheduled", "retried", 1),
    ],
    ids=["completed", "deferred", "failed", "retried"],
)
def test_the_table_of_answers(
    app: Oncely, codes: list[int], state: str, outcome: str, attempts: int
) -> None:
    """Between two of them goes one that is well, so that the breaker stays shut."""

    def as_told(peer: Any, request: Request) -> None:
        code = request.job["payload"] or 200
        body = b"" if code == 204 else b"told"
        status(code, "Retry-After: 60", "Location: http://127.0.0.1:1/", body=body)(peer, request)

    with receiver(as_told) as there:
        to(app, there)
        ids = {}
        for code in codes:
            ids[code] = put(app, code)
            put(app)
        assert send_all(app, concurrency=1) == 2 * len(codes)
        assert there.connections == 1
    for code, job_id in ids.items():
        found = job(app, job_id)
        assert (code, found.state) == (code, state)
        [execution] = found.executions
        assert (code, execution.outcome) == (code, outcome)
        if state == "scheduled":
            waits = (found.due_at - execution.ended_at).total_seconds()
            assert waits == (60 if code in DEFERRED else 3_600)
            [(counted,)] = sql(app, "select attempts from oncely.ready where id = :id", id=job_id)
            assert counted == attempts


def test_retry_after_as_a_date_defers_too(app: Oncely) -> None:
    with receiver(status(503, "Retry-After: Fri, 31 Dec 2999 23:59:59 GMT")) as there:
        to(app, there)
        job_id = put(app)
        send_all(app)
    found = job(app, job_id)
    waits = (found.due_at - found.executions[0].ended_at).total_seconds()
    assert waits == 86_400  # no receiver can put a job off for longer


def test_a_redirect_is_not_followed(app: Oncely) -> None:
    with receiver() as elsewhere, receiver(status(307, f"Location: {elsewhere.url}")) as there:
        to(app, there)
        job_id = put(app)
        send_all(app)
        assert len(there.requests) == 1
        assert elsewhere.connections == 0
    assert "redirect" in job(app, job_id).executions[0].error["message"]


def test_what_is_known_of_the_last_delivery_is_told(app: Oncely) -> None:
    """Each delivery tells of the one before it; one that was never sent hides nothing."""
    with receiver(reset, status(500), status(429), OK) as there:
        to(app, there)
        job_id = put(app)
        closed = "http://127.0.0.1:9/"
        app.set_queue("hooks", push=Push(closed))
        send_all(app)
        assert job(app, job_id).executions[-1].error["type"] == "NotSent"
        app.set_queue("hooks", push=Push(there.url))
        for n in range(4):
            make_due(app)
            if n == 1:
                app.set_queue("hooks", push=Push(closed))
                send_all(app)
                app.set_queue("hooks", push=Push(there.url))
                make_due(app)
            assert send_all(app) == 1
        told = [request.previous for request in there.requests]
        attempts = [request.headers["oncely-attempt"] for request in there.requests]
    assert told == ["not_sent", "unknown", "failed", "failed"]
    assert attempts == ["2", "4", "5", "5"]
    assert job(app, job_id).state == "completed"


def test_a_time_out_is_unknown(app: Oncely) -> None:
    loop = MovedLoop()

    def silent_for_long(peer: Any, request: Request) -> None:
        loop.move(DEFAULT_SECONDS)
        silent(peer, request)

    with receiver(silent_for_long, OK) as there:
        to(app, there)
        job_id = put(app)
        run_on(loop, app.pusher().drain())
        assert job(app, job_id).executions[-1].error["type"] == "Unanswered"
        make_due(app)
        send_all(app)
        assert [request.previous for request in there.requests] == ["none", "unknown"]


PUSHER = """
import asyncio, sys
from oncely import Oncely
asyncio.run(Oncely(sys.argv[1]).pusher().arun())
"""


def test_a_pusher_that_dies_between_send_and_settle_leaves_it_unknown(
    app: Oncely, tmp_path: Any
) -> None:
    child: list[subprocess.Popen[bytes]] = []

    def kill(peer: Any, request: Request) -> None:
        os.kill(child[0].pid, signal.SIGKILL)
        child[0].wait()
        OK(peer, request)

    with receiver(kill, OK) as there:
        to(app, there)
        job_id = put(app)
        child.append(subprocess.Popen([sys.executable, "-c", PUSHER, app.url], cwd=tmp_path))
        assert child[0].wait(PATIENCE_SECONDS) == -signal.SIGKILL
        make_due(app)
        asyncio.run(until(app, app.pusher(), lambda: job(app, job_id).state == "completed"))
        first, second = there.requests
    assert (first.previous, second.previous) == ("none", "unknown")
    assert first.headers["oncely-execution-id"] != second.headers["oncely-execution-id"]
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert [e.outcome for e in job(app, job_id).executions] == ["crashed", "completed"]


def test_many_pushers_at_once_send_each_job_once(app: Oncely) -> None:
    with receiver() as there:
        to(app, there)
        app.enqueue_many(NewJob("k", n, queue="hooks") for n in range(60))

        async def both() -> None:
            with Oncely(app.url) as other:
                await asyncio.gather(*_runs([app, other], lambda: len(there.requests) >= 60))

        asyncio.run(both())
        sent = sorted(request.job["payload"] for request in there.requests)
    assert sent == list(range(60))


def _runs(apps: list[Oncely], reached: Callable[[], bool]) -> list[Awaitable[None]]:
    return [until(app, app.pusher(concurrency=4), reached) for app in apps]


def test_a_running_pusher_follows_what_is_set(app: Oncely) -> None:
    with receiver() as first, receiver() as second:

        async def change() -> None:
            pusher = app.pusher()
            running = asyncio.create_task(pusher.arun())
            for place in (first, second):
                await app.aset_queue("hooks", push=Push(place.url, secret=SECRET))
                while not place.requests:
                    put(app)
                    await asyncio.sleep(0.1)
            pusher.stop()
            await running

        asyncio.run(change())
        sent = len(first.requests) + len(second.requests)
    assert len(app.jobs(state="completed", limit=1_000)) == sent


def test_the_limits_of_the_queue_hold_for_what_is_pushed(app: Oncely) -> None:
    with receiver() as there:
        to(app, there)
        app.set_queue("hooks", rate=(3, 3_600))
        for n in range(5):
            put(app, n)
        with Oncely(app.url) as other:  # of all servers together
            assert send_all(app) + send_all(other) == 3
        app.set_queue("hooks", rate=None)
        app.pause("hooks")
        assert send_all(app) == 0
        app.resume("hooks")
        assert send_all(app) == 2


def test_the_concurrency_of_a_target_holds_over_all_servers(app: Oncely) -> None:
    lock, at_once, most = threading.Lock(), 0, 0
    two = threading.Barrier(2)

    def slowly(peer: socket.socket, request: Request) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
            number = len(there.requests)
        if number <= 2:  # so many are let come together
            two.wait(PATIENCE_SECONDS)
        time.sleep(0.01)
        with lock:
            at_once -= 1
        OK(peer, request)

    with receiver(slowly) as there:
        to(app, there)
        app.set_queue("hooks", concurrency=2)
        app.enqueue_many(NewJob("k", n, queue="hooks") for n in range(20))

        async def both() -> None:
            with Oncely(app.url) as other:
                await asyncio.gather(*_runs([app, other], lambda: len(there.requests) >= 20))

        asyncio.run(both())
    assert most == 2


def test_after_failures_in_a_row_nothing_is_sent(app: Oncely) -> None:
    with receiver(status(500)) as there:
        to(app, there)
        for n in range(20):
            put(app, n)
        assert send_all(app, concurrency=1) == 5
        assert len(there.requests) == 5


def test_a_receiver_that_is_back_is_found_by_one_probe(app: Oncely) -> None:
    with receiver(*[status(500)] * 5, OK) as there:
        to(app, there)
        app.set_queue("hooks", retry=Retry(backoff="fixed", base=0, jitter=False))
        app.enqueue_many(NewJob("k", n, queue="hooks") for n in range(20))
        pusher = app.pusher(concurrency=1)
        asyncio.run(until(app, pusher, lambda: len(there.requests) == 25))
        assert len(there.requests) == 25
    assert len(app.jobs(state="completed", limit=30)) == 20


def test_a_target_that_may_not_be_is_refused_when_it_is_set(app: Oncely) -> None:
    for target in (
        "http://10.0.0.1/",
        "http://[::1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://2130706433/",
        "https://user:secret@127.0.0.1/",
        "ftp://127.0.0.1/",
    ):
        with pytest.raises(PushRefused):
            app.set_queue("hooks", push=Push(target, secret=SECRET), concurrency=3)
    for push in ("http://127.0.0.1/", {"url": "http://127.0.0.1/"}, 7, True):
        with pytest.raises(InvalidInput, match="expected Push"):
            app.set_queue("hooks", push=push)  # type: ignore[arg-type]
    assert app.queues() == []


def test_a_target_is_checked_again_when_it_is_sent_to(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as there:
        to(app, there)
        job_id = put(app)
        monkeypatch.setenv("ONCELY_PUSH_ALLOW", "127.0.0.2/32")
        send_all(app)
        assert there.connections == 0
        error = job(app, job_id).executions[-1].error
    assert error["type"] == "NotSent"
    assert "not a public address" in error["message"]


def test_a_resolver_that_changes_its_answer_does_not_win(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Allowed is the address of the one, and not that of the other. The name leads to the first
    when it is asked once, to the second when it is asked again."""
    monkeypatch.setenv("ONCELY_PUSH_ALLOW", "127.0.0.2/32")
    asked = []
    with receiver() as forbidden, receiver(host="127.0.0.2", port=forbidden.port) as allowed:

        def changing(host: str, port: int) -> list[str]:
            asked.append((host, port))
            return ["127.0.0.2"] if len(asked) == 1 else ["127.0.0.1"]

        app.set_queue("hooks", push=Push(allowed.url, secret=SECRET))
        name = f"http://hooks.example:{allowed.port}/"
        sql(app, "update oncely.queue set push_url = :url", url=name)
        put(app)
        send_all(app, resolve=changing)
        assert asked == [("hooks.example", allowed.port)]
        assert len(allowed.requests) == 1
        assert allowed.requests[0].headers["host"] == f"hooks.example:{allowed.port}"
        job_id = put(app)
        send_all(app, resolve=changing)
        assert len(asked) == 2
        assert forbidden.connections == 0
    assert job(app, job_id).executions[-1].error["type"] == "NotSent"


def test_a_target_that_was_stored_in_another_way_stops_no_other(app: Oncely) -> None:
    with receiver() as there:
        to(app, there)
        app.set_queue("broken", push=Push(there.url, secret=SECRET))
        bad = json.dumps("x")
        sql(app, "update oncely.queue set push_url = :url where name = 'broken'", url=bad)
        app.enqueue("k", queue="broken")
        put(app)
        assert send_all(app) == 1


def test_a_pusher_that_stops_lets_its_requests_come_to_their_end(app: Oncely) -> None:
    arrived, go_on = threading.Event(), threading.Event()

    def slow(peer: Any, request: Request) -> None:
        arrived.set()
        go_on.wait()
        OK(peer, request)

    with receiver(slow) as there:
        to(app, there)
        job_id = put(app)

        async def stop_early() -> None:
            pusher = app.pusher()
            running = asyncio.create_task(pusher.arun())
            await asyncio.to_thread(arrived.wait)
            pusher.stop()
            await asyncio.sleep(0.3)
            assert not running.done()
            go_on.set()
            await running

        asyncio.run(stop_early())
    assert [e.outcome for e in job(app, job_id).executions] == ["completed"]


def test_a_second_stop_does_not_wait(app: Oncely) -> None:
    with receiver(silent) as there:
        to(app, there)
        job_id = put(app)

        async def stop_twice() -> None:
            pusher = app.pusher()
            running = asyncio.create_task(pusher.arun())
            while not there.requests:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            pusher.stop()
            await asyncio.sleep(0.1)
            pusher.stop()
            await running

        asyncio.run(stop_twice())
    assert [e.outcome for e in job(app, job_id).executions] == ["released"]


def test_whoever_looks_sees_the_pusher_as_one_worker(app: Oncely) -> None:
    seen: list[Worker] = []
    with receiver() as there:
        to(app, there)
        app.set_queue("more", push=Push(there.url, secret=SECRET))
        put(app)

        def reached() -> bool:
            seen.extend(app.workers())
            return bool(seen and there.requests)

        pusher = app.pusher(concurrency=5)
        assert pusher._about() is None, "a server without a target is no worker"
        asyncio.run(until(app, pusher, reached))
    assert len({each.name for each in seen}) == 1
    assert (seen[0].queues, seen[0].pushes, seen[0].concurrency) == (["hooks", "more"], True, 5)
    assert app.workers() == []
    ran = app.traffic().latency("ran", queue="hooks", kind="order.paid")
    assert ran is not None
    assert ran.count == 1


def test_a_name_server_that_is_silent_delays_no_other_target_and_no_other_work(
    app: Oncely,
) -> None:
    asked: list[str] = []
    answers = threading.Event()

    def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        if host == "silent.example":
            answers.wait()
        return ["127.0.0.1"]

    async def push_to_both(there: Receiver) -> None:
        pusher = Pusher(app._gear(), resolve=resolve)
        running = asyncio.create_task(pusher.arun())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while "silent.example" not in asked:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(put, app)  # as a sign-in has its password checked
                while not there.requests:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            answers.set()
        assert asked.count("silent.example") == 1, "one thread waits for the name server"
        pusher.stop()
        pusher.stop()
        await running

    with receiver() as there:
        to(app, there)
        app.set_queue("silent", push=Push(there.url, secret=SECRET))
        silent_url = f"http://silent.example:{there.port}/"
        sql(app, "update oncely.queue set push_url = :url where name = 'silent'", url=silent_url)
        other_url = f"http://other.example:{there.port}/"
        sql(app, "update oncely.queue set push_url = :url where name = 'hooks'", url=other_url)
        app.enqueue_many(NewJob("k", n, queue="silent") for n in range(50))
        asyncio.run(push_to_both(there))


def test_targets_whose_names_are_slow_to_resolve_hold_no_thread_of_the_store(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def resolve(_host: str, _port: int) -> list[str]:
        answers.wait()
        return ["127.0.0.1"]

    monkeypatch.setattr("oncely.flow.push_target._resolve", resolve)

    async def set_many() -> None:
        push = Push("http://silent.example/", secret=SECRET)
        sets = [asyncio.create_task(app.aset_queue(f"q{n}", push=push)) for n in range(40)]
        await asyncio.sleep(0)
        try:
            await asyncio.wait_for(app.aenqueue("k"), PATIENCE_SECONDS)
            assert not any(task.done() for task in sets)
        finally:
            answers.set()
        await asyncio.gather(*sets)

    asyncio.run(set_many())
    assert len([queue for queue in app.queues() if queue.push]) == 40
