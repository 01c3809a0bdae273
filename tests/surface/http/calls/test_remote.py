"""`Oncely("http://…")`: the same verbs through a server as at the store itself."""

import asyncio
import http.server
import inspect
import sqlite3
import threading
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oncely import (
    AccessRefused,
    EffectNotFound,
    InvalidInput,
    JobFailed,
    JobNotFound,
    KeyConflict,
    KeyWarning,
    Nack,
    NewJob,
    NotOverHttp,
    Oncely,
    Retry,
    StoreUnavailable,
    UniqueKeyTaken,
    WrongState,
)
from oncely.flow.context import Context
from oncely.store.remote.carry import CARRIED
from oncely.store.remote.engine import RemoteEngine
from tests.surface.http.server import Client, in_thread


@pytest.fixture
def remote(client: Client) -> Iterator[Oncely]:
    with Oncely(str(client.base_url)) as remote:
        yield remote


def test_a_carrier_takes_only_what_its_plan_has() -> None:
    assert CARRIED
    for carrier in CARRIED.values():
        assert set(carrier.wanted) <= set(inspect.signature(carrier.plan).parameters), carrier


def test_enqueue_with_every_option(remote: Oncely, app: Oncely) -> None:
    at = datetime.now(UTC).replace(microsecond=123_000) + timedelta(hours=1)
    receipt = remote.enqueue(
        "k",
        {"a": [1, None, "ü", 1.5]},
        queue="q",
        priority=5,
        run_at=at,
        unique_key="u",
        idempotency_key="i",
        group_key="g",
        max_attempts=3,
        timeout=7,
        tags=["t", "ü"],
    )
    assert (receipt.inserted, receipt.state) == (True, "scheduled")
    job = app.get(receipt.job_id)
    assert job is not None
    assert (job.payload, job.priority, job.due_at) == ({"a": [1, None, "ü", 1.5]}, 5, at)
    assert (job.unique_key, job.idempotency_key, job.group_key) == ("u", "i", "g")
    assert (job.max_attempts, job.timeout, job.tags) == (3, 7.0, ["t", "ü"])
    again = remote.enqueue("k", {"a": [1, None, "ü", 1.5]}, queue="q", idempotency_key="i")
    assert (again.job_id, again.inserted) == (receipt.job_id, False)
    other = remote.enqueue("k", queue="p", unique_key="u")
    assert (other.job_id, other.inserted) == (receipt.job_id, False)


def test_each_call_without_a_key_is_a_job_of_its_own(remote: Oncely, app: Oncely) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", KeyWarning)
        receipts = [remote.enqueue("k", 1, delay=timedelta(minutes=1)) for _ in range(2)]
    assert all(receipt.inserted for receipt in receipts)
    assert len({receipt.job_id for receipt in receipts}) == len(app.jobs()) == 2


def test_a_key_conflict_names_the_first_job(remote: Oncely) -> None:
    first = remote.enqueue("k", 1, idempotency_key="i", queue="q")
    for call in (
        lambda: remote.enqueue("k", 2, idempotency_key="i", queue="q"),
        lambda: remote.enqueue_many([NewJob("k", 2, idempotency_key="i", queue="q")]),
    ):
        with pytest.raises(KeyConflict) as caught:
            call()
        error = caught.value
        assert (error.key, error.queue, error.job_id) == ("i", "q", first.job_id)


def test_many_at_once_all_or_none(remote: Oncely, app: Oncely) -> None:
    made = remote.enqueue_many(NewJob("k", n, idempotency_key=f"k{n % 3}") for n in (0, 1, 2, 0))
    assert (made.inserted, made.skipped) == (3, 1)
    assert made.receipts[0].job_id == made.receipts[3].job_id
    assert remote.enqueue_many([]).receipts == []
    with pytest.raises(KeyConflict):
        remote.enqueue_many([NewJob("k", 9), NewJob("k", 9, idempotency_key="k0")])
    with pytest.raises(InvalidInput, match="item 1"):
        remote.enqueue_many([NewJob("k"), NewJob("k", priority=10**9)])
    assert len(app.jobs()) == 3


def test_many_of_several_queues_are_stored_together(remote: Oncely, app: Oncely) -> None:
    app.set_queue("strict", require_key=True)
    new = [NewJob("k", n, queue=f"q{n % 3}", tags=[f"t{n}"]) for n in range(9)]
    made = remote.enqueue_many([*new, NewJob("k", 9, queue="strict", unique_key="u")])
    assert (made.inserted, made.skipped) == (10, 0)
    for n, receipt in enumerate(made.receipts[:9]):
        job = app.get(receipt.job_id)
        assert job is not None
        assert (job.payload, job.queue, job.tags) == (n, f"q{n % 3}", [f"t{n}"])
    remote.enqueue("k", 1, queue="b", idempotency_key="i")
    before = len(app.jobs())
    with pytest.raises(KeyConflict) as caught:
        remote.enqueue_many([NewJob("k", queue=q, idempotency_key="i") for q in ("a", "b")])
    assert (caught.value.key, caught.value.queue) == ("i", "b")
    assert len(app.jobs()) == before


def test_more_than_one_request_takes_goes_in_parts_if_it_can_be_repeated(
    remote: Oncely, app: Oncely
) -> None:
    new = [NewJob("k", n, queue=f"q{n % 2}", idempotency_key=f"k{n}") for n in range(1_001)]
    with pytest.raises(InvalidInput, match="idempotency key"):
        remote.enqueue_many([*new, NewJob("k", "without", queue="q0")])
    remote.enqueue("k", "other", queue="q0", idempotency_key="k1000")
    with pytest.raises(KeyConflict, match="the first 1,000 jobs of this call are stored") as caught:
        remote.enqueue_many(new)
    assert caught.value.key == "k1000"
    new[-1] = NewJob("k", "other", queue="q0", idempotency_key="k1000")
    made = remote.enqueue_many(new)
    assert (made.inserted, made.skipped, len(made.receipts)) == (0, 1_001, 1_001)
    assert len(app.jobs(limit=2_000)) == 1_001


def test_many_callers_at_once_each_get_their_own_answer(app: Oncely) -> None:
    """They share requests, and what is wrong with one of them reaches no other: each good one is
    told that it was inserted, though the batch that it was first in was refused."""
    app.enqueue("k", "first", queue="q0", idempotency_key="taken")
    key = app.create_token(["publish"], queues=["q0", "q1"]).key

    async def call(remote: Oncely) -> list[Any]:
        return await asyncio.gather(
            *(remote.aenqueue("k", n, queue=f"q{n % 2}") for n in range(0, 30, 2)),
            *(
                remote.aenqueue("k", n, queue=f"q{n % 4 // 2}", idempotency_key=f"k{n}")
                for n in range(1, 30, 2)
            ),
            remote.aenqueue("k", "other", queue="q0", idempotency_key="taken"),
            remote.aenqueue("k", "hidden", queue="theirs"),
            remote.aenqueue("k", "this", queue="q1", idempotency_key="both"),
            remote.aenqueue("k", "that", queue="q1", idempotency_key="both"),
            return_exceptions=True,
        )

    with in_thread(app) as url, Oncely(url, api_key=key) as remote:
        sent = counted(remote)
        *good, conflict, refused, one, two = asyncio.run(call(remote))
    assert isinstance(conflict, KeyConflict)
    assert (conflict.key, conflict.queue) == ("taken", "q0")
    assert isinstance(refused, AccessRefused)
    assert [type(each) for each in (one, two)].count(KeyConflict) == 1
    assert all(receipt.inserted for receipt in good)
    jobs = {job.job_id: job.payload for job in app.jobs(limit=1_000)}
    assert {jobs[receipt.job_id] for receipt in good} == set(range(30))
    assert len(jobs) == 32
    assert len(sent) < 30


def counted(remote: Oncely) -> list[str]:
    """The paths that it sends to from now on."""
    sent: list[str] = []
    server = remote._engine._server  # type: ignore[attr-defined]
    send = server._send

    def note(method: str, path: str, *rest: Any, **more: Any) -> bytes:
        sent.append(path)
        answer: bytes = send(method, path, *rest, **more)
        return answer

    server._send = note
    return sent


def test_what_is_seen_is_what_the_store_has(remote: Oncely, app: Oncely) -> None:
    @app.job("work")
    def work(ctx: Context) -> Any:
        ctx.step("one", lambda: {"n_n": 1})
        return {"snake_case": [1]}

    @app.job("fail")
    def fail(ctx: Context) -> None:
        raise Nack("no", retryable=False)

    done = remote.enqueue("work", {"snake_key": {"x_y": 1}}, idempotency_key="order:1")
    failed = remote.enqueue("fail", queue="other")
    waits = remote.enqueue("wait", delay=60)
    app.drain()
    for receipt in (done, failed, waits):
        there, here = app.get(receipt.job_id), remote.get(receipt.job_id)
        assert there is not None
        assert here is not None
        created = there.created_at - here.created_at
        assert abs(created) < timedelta(seconds=1)  # the server says when the id was made
        assert _without_moment(here) == _without_moment(there)
        assert str(remote.explain(receipt.job_id)) == str(app.explain(receipt.job_id))
    assert [job.job_id for job in remote.jobs(limit=2)] == [waits.job_id, failed.job_id]
    assert [job.job_id for job in remote.jobs(state="failed")] == [failed.job_id]
    assert [job.job_id for job in remote.jobs(kind="work", queue="default")] == [done.job_id]
    assert remote.result(done.job_id) == {"snake_case": [1]}
    with pytest.raises(JobFailed, match="no"):
        remote.result(failed.job_id)
    assert remote.counters() == app.counters()
    assert remote.key_health() == app.key_health()
    assert remote.queues() == app.queues()


def _without_moment(job: Any) -> Any:
    return {name: getattr(job, name) for name in job.__struct_fields__ if name != "created_at"}


def test_a_result_is_waited_for(remote: Oncely, app: Oncely) -> None:
    app.job("k")(lambda _: 42)
    receipt = remote.enqueue("k")

    async def both() -> Any:
        waiting = asyncio.create_task(remote.aresult(receipt.job_id, timeout=30))
        await asyncio.sleep(0)
        await app.adrain()
        return await waiting

    assert asyncio.run(both()) == 42


def test_steering(remote: Oncely, app: Oncely) -> None:
    tries: list[int] = []

    @app.job("k")
    def k(ctx: Context) -> None:
        ctx.step("once", lambda: 1)
        tries.append(ctx.payload)
        raise Nack("out of luck", retryable=False)

    for n in range(3):
        remote.enqueue("k", n, unique_key=f"u{n}")
    app.drain()
    oldest = app.jobs()[-1].job_id
    assert remote.replay_all(error="luck", dry_run=True) == 3
    assert remote.replay(oldest) == []
    with pytest.raises(WrongState) as wrong:
        remote.replay(oldest)
    assert wrong.value.state == "pending"
    app.drain()
    assert remote.replay(oldest, fresh_ledger=True) == ["once"]
    assert remote.replay_all(kind="k", limit=1) == 1
    app.drain()
    assert sorted(tries) == [0, 0, 0, 1, 1, 2]
    holder = remote.enqueue("k", 9, unique_key="u0").job_id
    with pytest.raises(UniqueKeyTaken) as taken:
        remote.replay(oldest)
    assert taken.value.holder_id == holder
    remote.cancel(holder)
    remote.cancel(holder)
    found = remote.get(holder)
    assert found is not None
    assert found.state == "cancelled"
    with pytest.raises(WrongState) as ended:
        remote.cancel(oldest)
    assert ended.value.state == "failed"
    missing = "0199a0f0-0000-7000-8000-000000000000"
    for call in (remote.cancel, remote.replay, remote.explain, remote.result):
        with pytest.raises(JobNotFound):
            call(missing)
    assert remote.get(missing) is None


def test_resolving_a_doubt(remote: Oncely, app: Oncely) -> None:
    @app.job("k")
    def k(ctx: Context) -> Any:
        def send() -> None:
            raise TimeoutError

        return ctx.fence("send", send)

    receipt = remote.enqueue("k")
    app.drain()
    with pytest.raises(EffectNotFound):
        remote.resolve(receipt.job_id, "other", happened=True)
    remote.resolve(receipt.job_id, "send", happened=True, result={"id_id": 7}, note="asked them")
    app.drain()
    assert remote.result(receipt.job_id, timeout=10) == {"id_id": 7}
    found = remote.get(receipt.job_id)
    assert found is not None
    assert found.effects[0].resolutions[0].note == "asked them"


def test_limits_and_pauses(remote: Oncely, app: Oncely) -> None:
    retry = Retry(max_attempts=3, base=2.5, jitter=False)
    remote.set_queue("q", concurrency=2, rate=(10, 1.5), retry=retry, timeout=9)
    remote.set_group("tenant: 1/2", concurrency=1)
    remote.pause("q")
    remote.pause(group="tenant: 1/2")
    assert (remote.queues(), remote.groups()) == (app.queues(), app.groups())
    [queue] = app.queues()
    assert (queue.concurrency, queue.rate, queue.retry, queue.timeout, queue.paused) == (
        2,
        (10, 1.5),
        retry,
        9.0,
        True,
    )
    remote.resume("q")
    remote.set_queue("q", concurrency=None)
    [queue] = app.queues()
    assert (queue.concurrency, queue.rate, queue.paused) == (None, (10, 1.5), False)
    remote.resume(group="tenant: 1/2")
    remote.set_group("tenant: 1/2", concurrency=None)
    assert remote.groups() == []
    with pytest.raises(InvalidInput):
        remote.set_queue("q", concurrency=0)


def test_the_async_twins(remote: Oncely) -> None:
    async def use() -> None:
        async with Oncely(remote.url) as other:
            receipt = await other.aenqueue("k", 1, delay=60)
            assert (await other.aenqueue_many([NewJob("k", 2)])).inserted == 1
            job = await other.aget(receipt.job_id)
            assert job is not None
            assert job.payload == 1
            assert len(await other.ajobs()) == 2
            await other.acancel(receipt.job_id)
            assert (await other.aexplain(receipt.job_id)).state == "cancelled"
            assert await other.aqueues()
            await other.apause("default")

    asyncio.run(use())


def test_what_takes_the_store_itself_is_one_clear_error(remote: Oncely) -> None:
    connection = sqlite3.connect(":memory:")
    remote.schedule("nightly", cron="0 9 * * *")
    for call in (
        lambda: remote.enqueue("k", tx=connection),
        lambda: remote.enqueue_many([NewJob("k")], tx=connection),
        remote.migrate,
        remote.schedules,
        remote.tokens,
    ):
        with pytest.raises(NotOverHttp, match="through a server"):
            call()
    connection.close()
    assert remote.jobs() == []


def test_keys_scopes_and_queues(app: Oncely) -> None:
    publish = app.create_token(["publish"], queues=["mine"]).key
    with in_thread(app) as url:
        for key, told in ((None, "valid key"), ("oncely_wrong", "valid key")):
            with Oncely(url, api_key=key) as remote, pytest.raises(AccessRefused, match=told):
                remote.enqueue("k")
        with Oncely(url, api_key=publish) as remote:
            assert remote.enqueue("k", queue="mine").inserted
            with pytest.raises(AccessRefused, match="queue"):
                remote.enqueue("k", queue="theirs")
            with pytest.raises(AccessRefused, match="scope"):
                remote.jobs()
            with pytest.raises(AccessRefused, match="scope"):
                remote.drain()


def test_the_key_comes_from_the_environment(app: Oncely, monkeypatch: pytest.MonkeyPatch) -> None:
    key = app.create_token(["publish"]).key
    with in_thread(app) as url:
        monkeypatch.setenv("ONCELY_URL", url)
        monkeypatch.setenv("ONCELY_API_KEY", key)
        with Oncely() as remote:
            assert remote.enqueue("k").inserted


def test_a_server_that_is_not_there_or_is_no_server() -> None:
    with Oncely("http://127.0.0.1:9") as remote:
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            remote.jobs()
        [finding] = remote.examine()
        assert finding.status == "error"
    with pytest.raises(StoreUnavailable, match="closed"):
        remote.jobs()

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404, "Nothing")

        def log_message(self, *_: Any) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with (
            Oncely(f"http://127.0.0.1:{server.server_port}") as remote,
            pytest.raises(StoreUnavailable, match="not an Oncely server"),
        ):
            remote.jobs()
        server.shutdown()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://", "expected https://host"),
        ("https://user:secret@host", "api_key="),
        ("https://host/?x=1", "expected https://host"),
        ("https://ho st", "expected https://host"),
        ("https://host:99999", "expected https://host"),
    ],
)
def test_a_url_that_is_none(url: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as caught:
        Oncely(url)
    assert "secret" not in str(caught.value)


def test_a_key_that_is_none() -> None:
    for key in ("", "two words", "line\nbreak", "ü"):
        with pytest.raises(InvalidInput, match="api_key"):
            Oncely("https://host", api_key=key)


def test_examine_looks_at_the_server(remote: Oncely) -> None:
    assert isinstance(remote._engine, RemoteEngine)
    [finding] = remote.examine()
    assert (finding.name, finding.status) == ("server", "ok")
