"""A claim over HTTP ends at a size, and what it leaves out waits for the next claim."""

from typing import Any

import pytest

from oncely import NewJob, Oncely
from oncely.store import executions
from tests.engine.steps import engine_of, sql
from tests.surface.http.calls.test_work import EXCHANGE, claim
from tests.surface.http.server import Client

LIMIT = 100_000
SIZES = [10, 40_000, 10, 10, 90_000, *[10] * 30, *[20_000] * 20]


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executions, "CLAIM_BYTES", LIMIT)


def exchange(client: Client, nonce: int, **fields: Any) -> list[dict[str, Any]]:
    asked = {**EXCHANGE, "nonce": nonce * 10_000, "limit": 1_000, **fields}
    answer = client.post("/v1/worker/exchange", json=asked)
    assert answer.status_code == 200, answer.text
    assert len(answer.content) < 2.5 * LIMIT
    claimed: list[dict[str, Any]] = answer.json()["claimed"]
    return claimed


def waiting(app: Oncely) -> set[str]:
    return {job.job_id for job in app.jobs(state="pending", limit=1_000)}


def enqueue(app: Oncely, groups: str, sizes: list[int]) -> list[str]:
    """Jobs without a group, of three groups, or of three groups that have limits."""
    if groups == "limited":
        for n in range(3):
            app.set_group(f"g{n}", concurrency=1_000)
    names = [None if groups == "none" else f"g{n % 3}" for n in range(len(sizes))]
    new = (
        NewJob("k", "ü" * (size // 2), group_key=name)
        for size, name in zip(sizes, names, strict=True)
    )
    return [receipt.job_id for receipt in app.enqueue_many(new).receipts]


def test_a_claim_ends_at_a_size(client: Client, app: Oncely) -> None:
    ids = enqueue(app, "none", SIZES)
    taken: list[str] = []
    claims = 0
    while jobs := claim(client, max=100):
        assert sum(len(job["payload"]) * 2 for job in jobs) < 2 * LIMIT
        taken += [job["id"] for job in jobs]
        assert waiting(app) == {*ids} - {*taken}
        claims += 1
    assert taken == ids
    assert claims > 2


@pytest.mark.parametrize("groups", ["none", "free", "limited"])
def test_an_exchange_ends_at_a_size(client: Client, app: Oncely, groups: str) -> None:
    ids = enqueue(app, groups, SIZES)
    taken: list[str] = []
    exchanges = 0
    while jobs := exchange(client, exchanges + 1):
        for job in jobs:
            assert (job["attempts"], job["crashes"], job["handBacks"]) == (0, 0, 0)
            assert len(job["payload"].encode()) == SIZES[ids.index(job["id"])] + 2
        taken += [job["id"] for job in jobs]
        assert waiting(app) == {*ids} - {*taken}
        exchanges += 1
    assert sorted(taken) == sorted(ids)
    if groups == "none":
        assert taken == ids
    assert exchanges > 2


@pytest.mark.parametrize("is_exchange", [False, True])
def test_the_first_job_is_given_whatever_its_size(
    client: Client, app: Oncely, is_exchange: bool
) -> None:
    enqueue(app, "none", [150_000, 10])
    jobs = exchange(client, 1) if is_exchange else claim(client, max=100)
    assert [len(job["payload"].encode()) for job in jobs] == [150_000 + 2 * is_exchange]


def test_large_jobs_of_the_highest_priority_come_first(client: Client, app: Oncely) -> None:
    for priority, size in ((0, 80_000), (5, 60_000), (1, 60_000)):
        app.enqueue("k", "x" * size, priority=priority, group_key=f"g{priority}")
    assert [job["priority"] for job in exchange(client, 1)] == [5, 1]


def test_a_repeated_exchange_gets_the_same_jobs(client: Client, app: Oncely) -> None:
    enqueue(app, "limited", [30_000] * 10)
    first = exchange(client, 1)
    again = exchange(client, 1, again=True)
    assert {job["id"] for job in again} == {job["id"] for job in first}
    assert [job["payload"] for job in again] == [job["payload"] for job in first]
    assert len(waiting(app)) == 10 - len(first)


def test_a_number_that_is_used_twice_makes_no_answer_larger(client: Client, app: Oncely) -> None:
    enqueue(app, "none", [30_000] * 20)
    for _ in range(5):
        exchange(client, 1)
    exchange(client, 1, again=True)


def test_what_does_not_fit_uses_up_no_rate(client: Client, app: Oncely) -> None:
    app.set_queue("default", rate=(20, 3_600))
    app.set_group("g0", rate=(20, 3_600))
    enqueue(app, "free", [30_000] * 20)
    taken = 0
    for n in range(20):
        taken += len(exchange(client, n + 1))
    assert taken == 20


def test_a_lease_has_no_more_jobs_than_were_given(client: Client, app: Oncely) -> None:
    enqueue(app, "none", [30_000] * 10)
    given = exchange(client, 1)
    assert [(job["place"], job["of"]) for job in given] == [(n, len(given)) for n in range(4)]
    size = "json_array_length" if engine_of(app) == "sqlite" else "cardinality"
    assert sql(app, f"select {size}(ids), started from oncely.lease") == [(4, 4)]


def test_a_remote_worker_runs_jobs_that_come_in_several_answers(
    client: Client, app: Oncely
) -> None:
    enqueue(app, "none", SIZES)
    with Oncely(str(client.base_url)) as remote:
        remote.job("k")(lambda ctx: len(ctx.payload) * 2)
        assert remote.drain() == len(SIZES)
    done = [job.result for job in app.jobs(state="completed", limit=1_000)]
    assert sorted(done) == sorted(SIZES)
