"""Through a server that is cut off, killed or slow: one job each, one effect each."""

import asyncio
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from oncely import Context, KeyConflict, NewJob, Oncely, Retry
from tests.crash.cutting import Cut, Cutting
from tests.crash.ends import end
from tests.crash.fleet import start
from tests.crash.load import TORTURE, times
from tests.crash.remote_workers import work
from tests.crash.stopping import let_leases_run_out, send, stop
from tests.engine.steps import found, sql
from tests.surface.http.server import Client, as_process, in_thread
from tests.waiting import wait_until

LEASE_SECONDS = 600.0
"""Nobody loses a lease because the machine is busy: the tests let it run out."""
CUTS: dict[str, Cut | None] = {"a": "after", "b": "before", ".": None}


def each(wanted: Callable[[str], bool], pattern: str) -> Callable[[str], Cut | None]:
    """Of the requests that are wanted: `a` is cut after the answer, `b` before it is sent, `.` is
    let through; and so on from the beginning."""
    lock, count = threading.Lock(), 0

    def decide(line: str) -> Cut | None:
        nonlocal count
        if not wanted(line):
            return None
        with lock:
            count += 1
            letter = pattern[(count - 1) % len(pattern)]
        return CUTS[letter]

    return decide


def publishes(line: str) -> bool:
    return "/jobs" in line and line.startswith("POST")


def test_a_client_that_is_cut_off_after_the_commit_makes_one_job_each(app: Oncely) -> None:
    """Each client has a proxy of its own, which cuts off every first try."""
    clients, count = 10, times(2)

    def publish(server: str, client: int) -> list[str]:
        with Cutting(server, each(publishes, "a.")) as proxy, Oncely(proxy.url) as remote:
            receipts = [remote.enqueue("k", [client, n]) for n in range(count)]
            assert proxy.cuts == count
        assert all(receipt.inserted for receipt in receipts)
        return [receipt.job_id for receipt in receipts]

    with in_thread(app) as url, ThreadPoolExecutor(clients) as threads:
        made = list(threads.map(publish, [url] * clients, range(clients)))
    jobs = app.jobs(limit=10_000)
    wanted = [[client, n] for client in range(clients) for n in range(count)]
    assert sorted(job.payload for job in jobs) == wanted
    assert {job.job_id for job in jobs} == {job_id for ids in made for job_id in ids}


def test_cut_off_before_and_after_with_keys_and_batches(app: Oncely) -> None:
    with (
        in_thread(app) as url,
        Cutting(url, each(publishes, "ab.")) as proxy,
        Oncely(proxy.url) as remote,
    ):
        one = remote.enqueue("k", 1, idempotency_key="one").job_id
        made = remote.enqueue_many([NewJob("k", n) for n in range(5)])
        assert remote.enqueue("k", 1, idempotency_key="one").job_id == one
        with pytest.raises(KeyConflict):
            remote.enqueue("k", 2, idempotency_key="one")
    assert proxy.cuts >= 8
    assert len({receipt.job_id for receipt in made.receipts}) == 5
    assert len(app.jobs()) == 6


@pytest.mark.parametrize("pattern", ["a.", "b.", "ab."] if TORTURE > 1 else ["ab."])
def test_a_worker_that_is_cut_off_at_every_turn_does_everything_once(
    app: Oncely, pattern: str
) -> None:
    count = times(2)
    done: list[str] = []
    with (
        in_thread(app) as url,
        Cutting(url, each(lambda line: "reclaim" not in line, pattern)) as proxy,
        Oncely(proxy.url) as remote,
    ):

        @remote.job("k", retry=Retry(max_attempts=1))
        async def k(ctx: Context, n: int) -> Any:
            await ctx.fence("act", lambda: done.append(f"{n}"))
            await ctx.enqueue("child", n, delay=60)
            return n

        app.enqueue_many(NewJob("k", n) for n in range(count))
        # One after another, so that no request gets the share of another.
        asyncio.run(remote.worker(concurrency=1).drain())
    assert proxy.cuts > 10
    assert sorted(map(int, done)) == list(range(count))
    jobs = app.jobs(kind="k", state="completed", limit=1_000)
    assert sorted(job.result for job in jobs) == list(range(count))
    assert len(app.jobs(kind="child", limit=1_000)) == count
    assert sql(app, "select count(*) from oncely.lease")[0][0] == 0
    for job in jobs:
        assert [execution.outcome for execution in job.executions] == ["completed"]


def test_a_killed_worker_is_followed_by_another(app: Oncely, tmp_path: Path) -> None:
    job_id = app.enqueue("stuck", "ann").job_id
    with in_thread(app) as url:
        first = start(work, url, tmp_path, LEASE_SECONDS)
        wait_until((tmp_path / "in the middle").exists, "the first delivery")
        end([first])
        let_leases_run_out(app)
        second = start(work, url, tmp_path, LEASE_SECONDS)
        try:
            wait_until(lambda: found(app, job_id).state == "completed", "the second delivery")
        finally:
            end([second])
    job = found(app, job_id)
    assert [execution.outcome for execution in job.executions] == ["crashed", "completed"]
    assert (tmp_path / "begun").read_text() == "ann\n"
    assert job.result == "begun ann"


def test_a_zombie_is_refused(app: Oncely, tmp_path: Path) -> None:
    job_id = app.enqueue("stuck", "bob").job_id
    with in_thread(app) as url:
        zombie = start(work, url, tmp_path, LEASE_SECONDS)
        wait_until((tmp_path / "in the middle").exists, "the first delivery")
        stop(zombie, app.url)
        let_leases_run_out(app)
        other = start(work, url, tmp_path, LEASE_SECONDS)
        try:
            wait_until(lambda: found(app, job_id).state == "completed", "the second delivery")
            before = found(app, job_id)
            (tmp_path / "go on").touch()
            send(zombie, signal.SIGCONT)
            wait_until((tmp_path / "over").exists, "the zombie's next write")
        finally:
            end([zombie, other])
    assert (tmp_path / "refused").read_text() == "LeaseLost\n"
    assert not (tmp_path / "late").exists()
    after = found(app, job_id)
    assert (after.state, after.result, after.executions) == (
        "completed",
        before.result,
        before.executions,
    )


def test_a_claim_is_repeated_by_another_server_after_the_first_was_killed(
    app: Oncely, url: str
) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(3))
    body = {"workerId": "w", "max": 2, "requestId": "r1"}

    def claim(address: str) -> Any:
        with Client(address) as client:
            return client.post("/v1/queues/default/claim", json=body).json()

    with as_process(url) as first:
        jobs = claim(first.url)
        first.end(signal.SIGKILL)
        with pytest.raises(httpx2.HTTPError):
            claim(first.url)
    with as_process(url) as second:
        assert claim(second.url) == jobs
        with Client(second.url) as client:
            for job in jobs["jobs"]:
                path = f"/v1/jobs/{job['id']}/ack"
                answer = client.post(path, json={"executionId": job["executionId"]})
                assert answer.status_code == 200
    assert [job.state for job in app.jobs()] == ["pending", "completed", "completed"]


def test_a_worker_outlives_a_server_that_is_killed_and_started_again(
    app: Oncely, url: str, tmp_path: Path
) -> None:
    with as_process(url) as first, Cutting(first.url, lambda _: None) as proxy:
        worker = start(work, proxy.url, tmp_path, LEASE_SECONDS)
        try:
            one = app.enqueue("step", 1).job_id
            wait_until(lambda: found(app, one).state == "completed", "the first job")
            first.end(signal.SIGKILL)
            two = app.enqueue("step", 2).job_id
            with as_process(url) as second:
                proxy.lead_to(second.url)
                wait_until(lambda: found(app, two).state == "completed", "the second job")
        finally:
            end([worker])
    assert (tmp_path / "steps").read_text() == "1\n2\n"
