"""Jobs that are alike and all new take a short way in; the others see no difference."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from oncely import InvalidInput, NewJob, Oncely, Receipt
from oncely.flow.identity import new_job_ids
from oncely.model.draft import Draft, draft
from oncely.store.admit import Answer, admit, admit_all
from oncely.store.plan import Quick
from oncely.store.postgres.engine import PostgresEngine
from tests.engine.steps import claim_one, counts, found, sql
from tests.waiting import wait_until

PAYLOADS: list[Any] = [None, "é\0\"'{}[],\\", {"b": [1, {"a": None}]}, 1.5, -(2**60)]


def made(jobs: list[NewJob]) -> list[Draft]:
    ids = new_job_ids(len(jobs))
    return [
        draft(job, id, queue_of=lambda _: "default", max_payload_bytes=1_000)
        for job, id in zip(jobs, ids, strict=True)
    ]


def send(app: Oncely, jobs: list[Draft]) -> list[Answer]:
    return app._engine.run(lambda again: admit(jobs, again=again), "write")


def enqueued(app: Oncely) -> int:
    return sum(counter.value for counter in app.counters() if "enqueued" in counter.name)


@pytest.mark.parametrize("keyed", [True, False])
def test_one_by_one_every_field_arrives_as_it_was_said(app: Oncely, keyed: bool) -> None:
    keys = [f'"{n}, é' if keyed else None for n in range(len(PAYLOADS))]
    receipts = [
        app.enqueue("k", payload, queue="q", priority=-7, idempotency_key=key)
        for payload, key in zip(PAYLOADS, keys, strict=True)
    ]
    jobs = [found(app, receipt.job_id) for receipt in receipts]
    assert [job.payload for job in jobs] == PAYLOADS
    assert [job.idempotency_key for job in jobs] == keys
    assert {(job.kind, job.queue, job.priority, job.state) for job in jobs} == {
        ("k", "q", -7, "pending")
    }
    assert all(job.created_at == job.due_at for job in jobs)
    assert [claim_one(app, "q").job_id for _ in jobs] == [job.job_id for job in jobs]
    assert enqueued(app) == len(PAYLOADS)
    if keyed:
        with pytest.raises(Exception, match="another kind or payload"):
            app.enqueue("k", "other", queue="q", idempotency_key=keys[0])


@pytest.mark.parametrize("size", [1, 3])
def test_known_and_new_ones_take_turns(app: Oncely, size: int) -> None:
    """The short way fails where a key is known, and is left alone for a while: both times it must
    have left nothing."""
    first: dict[int, list[Receipt]] = {}
    for turn in (0, 0, 1, 0, 1, 2):
        jobs = [NewJob("k", n, idempotency_key=f"{turn}:{n}") for n in range(size)]
        receipts = app.enqueue_many(jobs).receipts
        before = first.setdefault(turn, receipts)
        assert [receipt.job_id for receipt in receipts] == [job.job_id for job in before]
        assert {receipt.inserted for receipt in receipts} == {receipts is before}
    stored = counts(app)
    assert (stored["job"], stored["ready"], stored["idempotency_key"]) == (3 * size,) * 3
    assert enqueued(app) == 3 * size


def test_for_nobody_nothing_is_asked(app: Oncely) -> None:
    assert send(app, []) == []
    assert [*admit([])] == []


def test_what_is_not_like_the_one_before_is_checked(app: Oncely) -> None:
    for wrong in (
        NewJob("k", 2, "q", priority=True),
        NewJob("k", 2, "q\n", priority=1),
        NewJob("", 2, "q", priority=1),
        NewJob("k", 2, "q", priority=1, max_attempts=0),
        NewJob("k", 2, "q", priority=1, idempotency_key=""),
    ):
        with pytest.raises(InvalidInput, match=r"^item 1: "):
            app.enqueue_many([NewJob("k", 1, "q", priority=1), wrong])
    various = [
        NewJob("k", 1, "q"),
        NewJob("k", 2, "q", max_attempts=3),
        NewJob("k", 3, "q"),
        NewJob("l", 4, "q"),
        NewJob("l", 5),
        NewJob("l", 6, priority=2),
        NewJob("l", 7, priority=2, tags=["a"]),
    ]
    jobs = [found(app, receipt.job_id) for receipt in app.enqueue_many(various).receipts]
    assert [(job.kind, job.queue, job.priority, job.max_attempts, job.tags) for job in jobs] == [
        ("k", "q", 0, None, []),
        ("k", "q", 0, 3, []),
        ("k", "q", 0, None, []),
        ("l", "q", 0, None, []),
        ("l", "default", 0, None, []),
        ("l", "default", 2, None, []),
        ("l", "default", 2, None, ["a"]),
    ]


class TestPostgres:
    @pytest.fixture
    def app(self, postgres_url: str) -> Any:
        with Oncely(postgres_url) as app:
            app.migrate()
            yield app

    @pytest.mark.parametrize("size", [1, 2])
    @pytest.mark.parametrize("key", ["k", None])
    def test_all_new_is_one_statement(self, app: Oncely, size: int, key: str | None) -> None:
        jobs = made([NewJob("k", n, idempotency_key=key and f"{key}:{n}") for n in range(size)])
        first = next(admit_all(jobs))
        assert isinstance(first, Quick)
        form = first.whole() or first.quicker()
        assert form is not None
        name = ("admit_one" if size == 1 else "admit_new") + ("_keyed" if key else "")
        assert form.statement.name == name

    @pytest.mark.parametrize("key", ["k", None])
    @pytest.mark.parametrize("size", [1, 3])
    def test_what_is_there_already_under_its_id_is_told_as_new(
        self, app: Oncely, size: int, key: str | None
    ) -> None:
        """A write for many that failed without an answer is repeated for each of them; on SQLite
        such a one was rolled back."""
        jobs = made([NewJob("k", n, idempotency_key=key and f"{key}:{n}") for n in range(size)])
        wanted = [Receipt(job.id, True, "pending") for job in jobs]
        assert send(app, jobs) == wanted
        assert send(app, jobs) == wanted
        stored = counts(app)
        assert (stored["job"], stored["ready"]) == (size, size)
        assert enqueued(app) == size

    @pytest.mark.parametrize("size", [1, 2])
    def test_whatever_encoding_a_client_is_set_to(self, app: Oncely, size: int) -> None:
        jobs = [NewJob("k", "né", idempotency_key=f"é:{n}") for n in range(size)]
        with Oncely(f"{app.url}?client_encoding=latin1") as other:
            receipts = other.enqueue_many(jobs).receipts
        stored = [found(app, receipt.job_id) for receipt in receipts]
        assert [(job.payload, job.idempotency_key) for job in stored] == [
            (job.payload, job.idempotency_key) for job in jobs
        ]

    def test_a_server_that_ends_the_session_in_the_middle_is_asked_again(self, app: Oncely) -> None:
        with psycopg.connect(app.url) as holder, ThreadPoolExecutor(1) as threads:
            app.enqueue("k", 1, idempotency_key="k", tx=holder)
            sending = threads.submit(app.enqueue, "k", 1, idempotency_key="k")
            wait_until(lambda: waiting(app) == 1, "it waits for the key")
            sql(
                app,
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and wait_event_type = 'Lock'",
            )
            holder.rollback()
            assert sending.result().inserted
        assert counts(app)["ready"] == 1

    def test_a_statement_that_the_session_has_forgotten_is_prepared_again(
        self, app: Oncely
    ) -> None:
        known = NewJob("k", 1, idempotency_key="k")
        kept = app.enqueue_many([known]).receipts[0]
        engine = app._engine
        assert isinstance(engine, PostgresEngine)
        for connection in engine._idle:
            connection.execute("deallocate all")
        # In a transaction there would be no second try.
        assert app._enqueuer.rehearse(known) == Receipt(kept.job_id, False, "pending")
        assert app._enqueuer.rehearse(NewJob("k", 1, idempotency_key="l")).inserted
        for n in range(2):
            assert app.enqueue("k", n, idempotency_key=f"n:{n}").inserted
        assert counts(app)["job"] == 3

    def test_two_batches_in_opposite_orders_do_not_wait_for_each_other(self, app: Oncely) -> None:
        """Both want three keys, of which somebody holds the middle one."""
        engine = app._engine
        assert isinstance(engine, PostgresEngine)
        forwards = [NewJob("k", name, idempotency_key=name) for name in ("a", "m", "z")]

        def enqueue(jobs: list[NewJob]) -> int:
            with engine._connect() as connection:
                answers = engine._run_on(connection, admit(made(jobs)), "transaction")
            return sum(isinstance(answer, Receipt) and answer.inserted for answer in answers)

        with psycopg.connect(app.url) as holder, ThreadPoolExecutor(2) as threads:
            app.enqueue("k", "m", idempotency_key="m", tx=holder)
            sending = []
            for number, jobs in enumerate((forwards, forwards[::-1]), 1):
                sending.append(threads.submit(enqueue, jobs))
                wait_until(lambda number=number: waiting(app) == number, "it waits for a key")  # type: ignore[misc]
            holder.rollback()
            # A deadlock would be raised: it is not tried again here.
            assert sorted(each.result() for each in sending) == [0, 3]
        assert counts(app)["ready"] == 3


def waiting(app: Oncely) -> int:
    [(number,)] = sql(
        app,
        "select count(*) from pg_stat_activity "
        "where datname = current_database() and wait_event_type = 'Lock'",
    )
    return int(number)
