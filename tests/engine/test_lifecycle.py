"""An app from open to close: threads, event loops, processes, lost connections."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from oncely import KeyConflict, NewJob, Oncely, Receipt, StoreUnavailable
from oncely.flow.company import _Line
from oncely.model.draft import Draft
from oncely.store.engine import Access, StoreClosed
from tests.engine.racers import enqueue_each, race
from tests.engine.steps import counts, sql
from tests.waiting import PATIENCE_SECONDS, wait_until

UNKNOWN = "01900000-0000-7000-8000-000000000000"
VERBS: dict[str, Callable[[Oncely], object]] = {
    "enqueue": lambda app: app.enqueue("k"),
    "enqueue_many": lambda app: app.enqueue_many([NewJob("k")]),
    "get": lambda app: app.get(UNKNOWN),
    "jobs": lambda app: app.jobs(),
    "cancel": lambda app: app.cancel(UNKNOWN),
    "replay": lambda app: app.replay(UNKNOWN),
    "migrate": lambda app: app.migrate(),
    "examine": lambda app: app.examine(),
    "aenqueue": lambda app: asyncio.run(app.aenqueue("k")),
    "aenqueue_many": lambda app: asyncio.run(app.aenqueue_many([NewJob("k")])),
    "aget": lambda app: asyncio.run(app.aget(UNKNOWN)),
    "ajobs": lambda app: asyncio.run(app.ajobs()),
    "acancel": lambda app: asyncio.run(app.acancel(UNKNOWN)),
    "areplay": lambda app: asyncio.run(app.areplay(UNKNOWN)),
    "amigrate": lambda app: asyncio.run(app.amigrate()),
}


def in_threads(count: int, work: Callable[[int], object]) -> list[Any]:
    """What each call gave, or raised. A thread that hangs fails the test."""
    answers: list[Any] = [None] * count

    def go(number: int) -> None:
        try:
            answers[number] = work(number)
        except Exception as error:
            answers[number] = error

    threads = [threading.Thread(target=go, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in threads), "a call hangs"
    return answers


@contextmanager
def first_write_held(app: Oncely, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The next write waits until the event is set: whoever comes meanwhile waits together."""
    gate = threading.Event()
    engine_run = app._engine.run
    first = iter([True])

    def run(make: Callable[[bool], Any], access: Access) -> Any:
        if access != "read" and next(first, False):
            assert gate.wait(PATIENCE_SECONDS)
        return engine_run(make, access)

    monkeypatch.setattr(app._engine, "run", run)
    try:
        yield gate
    finally:
        gate.set()
        monkeypatch.undo()


@pytest.mark.parametrize("verb", VERBS)
def test_a_closed_app_says_so(app: Oncely, verb: str) -> None:
    app.enqueue("k")
    app.close()
    app.close()
    [answer] = in_threads(1, lambda _: VERBS[verb](app))
    assert isinstance(answer, StoreUnavailable)
    assert "was closed: make a new one" in str(answer)
    # And none that came before makes the next one wait for ever.
    [answer] = in_threads(1, lambda _: app.enqueue("k"))
    assert isinstance(answer, StoreUnavailable)


def test_an_app_that_was_never_used_can_be_closed(url: str) -> None:
    Oncely(url).close()
    with Oncely(url):
        pass


def test_with_closes_also_after_an_error(url: str) -> None:
    app = Oncely(url)
    app.migrate()
    with pytest.raises(ZeroDivisionError), app:
        raise ZeroDivisionError
    with pytest.raises(StoreUnavailable):
        app.jobs()


@pytest.mark.anyio
async def test_async_with_closes(url: str) -> None:
    async with Oncely(url) as app:
        await app.amigrate()
        assert (await app.aenqueue("k")).inserted
    with pytest.raises(StoreUnavailable):
        await app.ajobs()
    await app.aclose()


def test_closing_under_callers_leaves_none_waiting_and_loses_nothing(url: str) -> None:
    for _ in range(5):
        with Oncely(url) as app:
            app.migrate()
            before = counts(app)["job"]
            begun = threading.Semaphore(0)

            def publish(
                _: int, app: Oncely = app, begun: threading.Semaphore = begun
            ) -> tuple[int, Exception]:
                acknowledged = 0
                try:
                    while True:
                        app.enqueue("k")
                        acknowledged += 1
                        begun.release()
                except Exception as error:
                    return acknowledged, error

            def close(number: int, app: Oncely = app, begun: threading.Semaphore = begun) -> object:
                if number:
                    return publish(number)
                for _ in range(20):
                    begun.acquire()
                app.close()
                return None

            _, *answers = in_threads(6, close)
        acknowledged = sum(answer[0] for answer in answers)
        assert [type(answer[1]) for answer in answers] == [StoreClosed] * 5
        with Oncely(url) as app:
            assert counts(app)["job"] - before == acknowledged


def test_threads_share_an_app(app: Oncely) -> None:
    def work(number: int) -> list[Receipt]:
        mine = [app.enqueue("k", (number, n)) for n in range(20)]
        shared = [app.enqueue("k", n, idempotency_key=f"shared:{n}") for n in range(5)]
        assert app.get(mine[0].job_id) is not None
        assert app.jobs(limit=5)
        batch = app.enqueue_many(NewJob("k", n, unique_key=f"u:{n}") for n in range(5))
        app.cancel(mine[1].job_id)
        return [*mine, *shared, *batch.receipts]

    answers = in_threads(8, work)
    assert all(isinstance(answer, list) for answer in answers), answers
    receipts = [receipt for answer in answers for receipt in answer]
    inserted = [receipt.job_id for receipt in receipts if receipt.inserted]
    assert len(inserted) == len(set(inserted)) == 8 * 20 + 5 + 5 == counts(app)["job"]


def test_one_app_in_several_event_loops(app: Oncely) -> None:
    async def some(tag: str) -> list[Receipt]:
        return list(
            await asyncio.gather(
                *(app.aenqueue("k", n, unique_key=f"{tag}:{n}") for n in range(20))
            )
        )

    made = [asyncio.run(some(tag)) for tag in ("a", "b", "a")]
    assert [sum(receipt.inserted for receipt in receipts) for receipts in made] == [20, 20, 0]
    assert [r.job_id for r in made[0]] == [r.job_id for r in made[2]]
    in_parallel = in_threads(3, lambda n: asyncio.run(some(f"t{n}")))
    assert all(isinstance(answer, list) for answer in in_parallel), in_parallel
    assert counts(app)["job"] == 100


@pytest.mark.anyio
async def test_many_at_once_in_one_event_loop(app: Oncely) -> None:
    calls = [app.aenqueue("k", n % 50, idempotency_key=f"i:{n % 50}") for n in range(300)]
    receipts = await asyncio.gather(*calls)
    assert sum(receipt.inserted for receipt in receipts) == 50
    for n in range(50):
        assert len({receipt.job_id for receipt in receipts[n::50]}) == 1


def test_a_conflict_in_a_group_is_raised_to_its_own_caller_only(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = app.enqueue("k", "mine", idempotency_key="taken")

    def work(number: int) -> Receipt:
        if number == 0:
            return app.enqueue("k", "opens the group")
        wait_until(lambda: app._enqueuer._gather._busy)
        if number % 3 == 0:
            return app.enqueue("k", "other", idempotency_key="taken", unique_key=f"u{number}")
        if number % 3 == 1:
            return app.enqueue("k", "mine", idempotency_key="taken")
        return app.enqueue("k", number, unique_key=f"u{number}")

    with first_write_held(app, monkeypatch) as gate:

        def open_gate() -> None:
            wait_until(lambda: len(app._enqueuer._gather._waiting) == 9)
            gate.set()

        opener = threading.Thread(target=open_gate)
        opener.start()
        answers = in_threads(10, work)
        opener.join()
    for number, answer in enumerate(answers):
        if number and number % 3 == 0:
            assert isinstance(answer, KeyConflict)
            assert answer.job_id == first.job_id
        elif number % 3 == 1:
            assert answer == Receipt(first.job_id, False, "pending")
        else:
            assert isinstance(answer, Receipt)
            assert answer.inserted
    assert counts(app)["job"] == 1 + 1 + 3
    assert counts(app)["unique_key"] == 3


def test_one_that_cannot_be_written_spoils_no_other_of_its_group(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    gather = app._enqueuer._gather
    write = gather._write

    def choosy(drafts: Sequence[Draft]) -> Sequence[Any]:
        if any(draft.kind == "poison" for draft in drafts):
            raise ValueError("not this one")
        return write(drafts)

    def work(number: int) -> Receipt:
        if number:
            wait_until(lambda: gather._busy)
        return app.enqueue("poison" if number == 3 else "k", number)

    with first_write_held(app, monkeypatch) as gate:
        monkeypatch.setattr(gather, "_write", choosy)

        def open_gate() -> None:
            wait_until(lambda: len(gather._waiting) == 5)
            gate.set()

        opener = threading.Thread(target=open_gate)
        opener.start()
        answers = in_threads(6, work)
        opener.join()
    assert [type(answer) for answer in answers] == [Receipt] * 3 + [ValueError] + [Receipt] * 2
    assert counts(app)["job"] == 5


def test_an_error_of_the_store_reaches_every_caller_of_the_group(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(make: Callable[[bool], Any], access: Access) -> Any:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(app._engine, "run", broken)
    answers = in_threads(6, lambda n: app.enqueue("k", n))
    assert [str(answer) for answer in answers] == ["the disk is full"] * 6
    monkeypatch.undo()
    assert app.enqueue("k").inserted


async def held_up(app: Oncely) -> tuple[asyncio.Task[Receipt], _Line[Any, Any]]:
    """A call whose write is held, and the line of those who come after it."""
    first = asyncio.create_task(app.aenqueue("k", "first"))
    await asyncio.sleep(0)
    line = app._enqueuer._company._lines[asyncio.get_running_loop()]
    await asyncio.sleep(0)
    assert not line._waiting
    return first, line


@pytest.mark.anyio
async def test_each_of_a_group_on_an_event_loop_gets_its_own_answer(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = await app.aenqueue("k", "mine", idempotency_key="taken")
    with first_write_held(app, monkeypatch) as gate:
        first, line = await held_up(app)
        write = line._write
        sizes: list[int] = []

        def choosy(drafts: Sequence[Draft]) -> Sequence[Any]:
            sizes.append(len(drafts))
            if any(draft.kind == "poison" for draft in drafts):
                raise ValueError("not this one")
            return write(drafts)

        monkeypatch.setattr(line, "_write", choosy)
        calls = [
            app.aenqueue("k", "other", idempotency_key="taken", unique_key="u"),
            app.aenqueue("k", "mine", idempotency_key="taken"),
            app.aenqueue("k", "new", unique_key="u"),
        ]
        good = asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0)
        gate.set()
        conflict, repeat, new = await good
        bad = await asyncio.gather(
            *[app.aenqueue("poison" if n == 2 else "k", n) for n in range(5)],
            return_exceptions=True,
        )
        assert (await first).inserted
    assert isinstance(conflict, KeyConflict)
    assert conflict.job_id == taken.job_id
    assert repeat == Receipt(taken.job_id, False, "pending")
    assert isinstance(new, Receipt)
    assert new.inserted
    assert [type(each) for each in bad] == [Receipt] * 2 + [ValueError] + [Receipt] * 2
    # Together if they can be, and each alone if not.
    assert sizes[:2] == [3, 5]
    assert counts(app)["job"] == 1 + 1 + 1 + 4


@pytest.mark.anyio
async def test_a_cancelled_call_disturbs_no_other(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    with first_write_held(app, monkeypatch) as gate:
        first, line = await held_up(app)
        tasks = [asyncio.create_task(app.aenqueue("k", n, unique_key=f"u{n}")) for n in range(10)]
        await asyncio.sleep(0)
        assert len(line._waiting) == 10
        for task in tasks[::2]:
            task.cancel()
        await asyncio.sleep(0)
        gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert (await first).inserted
    assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::2])
    assert all(isinstance(answer, Receipt) and answer.inserted for answer in answers[1::2])
    assert sorted(job.payload for job in app.jobs() if job.payload != "first") == [1, 3, 5, 7, 9]
    assert (await app.aenqueue("k", 0, unique_key="u0")).inserted


@pytest.mark.anyio
async def test_a_call_cancelled_during_its_write_is_stored_or_not_but_harms_nobody(
    app: Oncely,
) -> None:
    for turn in range(20):
        task = asyncio.create_task(app.aenqueue("k", turn, idempotency_key=f"i:{turn}"))
        for _ in range(turn % 4):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        again = await app.aenqueue("k", turn, idempotency_key=f"i:{turn}")
        assert (await app.aget(again.job_id)) is not None
    assert counts(app)["job"] == 20


def test_two_processes_share_a_store(app: Oncely) -> None:
    mine = [NewJob("k", ("a", n)) for n in range(60)]
    theirs = [NewJob("k", ("b", n)) for n in range(60)]
    shared = [NewJob("k", n, idempotency_key=f"i:{n}", unique_key=f"u:{n}") for n in range(60)]
    left, right = race(
        enqueue_each, [(app.url, [*mine, *shared]), (app.url, [*theirs, *shared[::-1]])]
    )
    assert [id for id, _ in left[60:]] == [id for id, _ in right[60:]][::-1]
    inserted = [id for id, new in (*left, *right) if new]
    assert len(inserted) == len(set(inserted)) == 180 == counts(app)["job"]


def test_eight_processes_with_one_key_make_one_job(app: Oncely) -> None:
    job = NewJob("k", {"order": 1}, idempotency_key="order:1", unique_key="order:1")
    answers = race(enqueue_each, [(app.url, [job])] * 8)
    assert len({id for [(id, _)] in answers}) == 1
    assert sorted(new for [(_, new)] in answers) == [False] * 7 + [True]


def test_a_store_in_memory_is_one_apps_own() -> None:
    with Oncely("sqlite:///:memory:") as one, Oncely("sqlite://") as two:
        assert one.enqueue("k", unique_key="u").inserted
        assert two.enqueue("k", unique_key="u").inserted
        assert len(one.jobs()) == 1
        answers = in_threads(4, lambda n: [one.enqueue("k", n), one.jobs()])
        assert all(isinstance(answer, list) for answer in answers), answers
        assert len(one.jobs()) == 5


def end_sessions(app: Oncely) -> int:
    """End every session of an Oncely on this database, as a restart of the server would."""
    return len(
        sql(
            app,
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
            " where application_name = 'oncely' and datname = current_database()",
        )
    )


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many", "get", "jobs", "migrate", "aenqueue"])
def test_a_lost_connection_is_survived_by_the_next_call(postgres_url: str, verb: str) -> None:
    with Oncely(postgres_url) as app:
        app.migrate()
        app.enqueue("k", "before")
        for _ in range(3):
            assert end_sessions(app) >= 1
            VERBS[verb](app)
        stored = {"enqueue": 4, "enqueue_many": 4, "aenqueue": 4}.get(verb, 1)
        assert counts(app)["job"] == stored


def test_all_idle_connections_lost_at_once_are_survived(postgres_url: str) -> None:
    with Oncely(postgres_url) as app:
        app.migrate()
        barrier = threading.Barrier(6)

        def work(number: int) -> Receipt:
            barrier.wait()
            app.jobs()
            return app.enqueue("k", number, unique_key=f"u:{number}")

        in_threads(6, work)
        ended = end_sessions(app)
        assert ended >= 1
        answers = in_threads(6, work)
        assert all(isinstance(answer, Receipt) for answer in answers), answers
        job_id = answers[0].job_id
        end_sessions(app)
        app.cancel(job_id)
        end_sessions(app)
        assert app.get(job_id) is not None
        assert counts(app)["job"] == 6


def test_a_server_that_is_not_there_is_an_error_of_ours() -> None:
    with (
        Oncely("postgresql://nobody@127.0.0.1:1/none") as app,
        pytest.raises(StoreUnavailable, match="PostgreSQL cannot serve this call") as caught,
    ):
        app.enqueue("k")
    assert isinstance(caught.value.__cause__, psycopg.Error)
