"""Many jobs in one call: all or none, positional receipts, repeats recognised inside it too."""

from collections.abc import Iterator
from threading import Barrier, Thread
from typing import Any

import psycopg
import pytest

from oncely import KeyConflict, NewJob, Oncely, Receipt, Receipts
from oncely.store import admit
from tests.engine.racers import enqueue_batches, race
from tests.engine.steps import claim_one, counts, end, found
from tests.seed import dice


def flags(receipts: Receipts) -> list[bool]:
    return [receipt.inserted for receipt in receipts.receipts]


def ids(receipts: Receipts) -> list[str]:
    return [receipt.job_id for receipt in receipts.receipts]


@pytest.fixture(params=[admit.CHUNK, 3, 1], ids=lambda size: f"parts of {size}")
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is sent in parts of this size."""
    monkeypatch.setattr(admit, "CHUNK", request.param)


def test_ten_thousand_jobs_in_one_call(app: Oncely) -> None:
    jobs = [
        NewJob(
            "k",
            {"n": n},
            idempotency_key=f"i:{n}" if n % 2 else None,
            unique_key=f"u:{n}" if n % 3 else None,
        )
        for n in range(10_000)
    ]
    receipts = app.enqueue_many(jobs)
    assert (receipts.inserted, receipts.skipped) == (10_000, 0)
    made = ids(receipts)
    assert made == sorted(set(made))
    stored = counts(app)
    assert (stored["job"], stored["ready"]) == (10_000, 10_000)
    assert stored["idempotency_key"] == 5_000
    assert stored["unique_key"] == sum(1 for n in range(10_000) if n % 3)
    for n in (0, 1, 999, 1_000, 1_001, 4_999, 9_999):
        assert found(app, made[n]).payload == {"n": n}
    again = app.enqueue_many(jobs)
    repeats = [bool(n % 2 or n % 3) for n in range(10_000)]
    assert flags(again) == [not repeat for repeat in repeats]
    assert all(
        one == two for one, two, repeat in zip(made, ids(again), repeats, strict=True) if repeat
    )
    assert again.inserted + again.skipped == 10_000


def test_more_than_one_statements_worth_with_repeats_far_apart(app: Oncely) -> None:
    jobs = [NewJob("k", n % 12_000, unique_key=f"u:{n % 12_000}") for n in range(13_000)]
    receipts = app.enqueue_many(jobs)
    assert (receipts.inserted, receipts.skipped) == (12_000, 1_000)
    assert ids(receipts)[12_000:] == ids(receipts)[:1_000]


@pytest.mark.parametrize("is_keyed", [True, False])
def test_jobs_that_differ_only_in_payload_and_key(app: Oncely, is_keyed: bool) -> None:
    """The short ways in: each field arrives as it was said, and a batch that is half known stores
    the other half, once."""
    payloads: list[Any] = [
        "é\0\"'{}[],\\",
        {"b": [1, {"a": None}]},
        None,
        1.5,
        "a,b",
        -(2**60),
        [],
        True,
    ]
    jobs = [
        NewJob("k", payload, "q", priority=-7, idempotency_key=f'"{n}, é' if is_keyed else None)
        for n, payload in enumerate(payloads)
    ]
    first = app.enqueue_many(jobs[:5])
    assert first.inserted == 5
    rest = app.enqueue_many(jobs[3:] if is_keyed else jobs[5:])
    assert (rest.inserted, rest.skipped) == (3, 2 if is_keyed else 0)
    made = [found(app, id) for id in [*ids(first), *ids(rest)[rest.skipped :]]]
    assert [job.payload for job in made] == payloads
    assert [job.idempotency_key for job in made] == [job.idempotency_key for job in jobs]
    assert {(job.kind, job.queue, job.priority, job.state) for job in made} == {
        ("k", "q", -7, "pending")
    }
    stored = counts(app)
    assert (stored["job"], stored["ready"]) == (8, 8)
    assert [claim_one(app, "q").job_id for _ in made] == [job.job_id for job in made]


def test_large_payloads_in_a_batch(app: Oncely) -> None:
    size = 1024 * 1024 - 2
    jobs = [NewJob("k", letter * size, idempotency_key=f"big:{letter}") for letter in "abcde" * 8]
    receipts = app.enqueue_many(jobs)
    assert (receipts.inserted, receipts.skipped) == (5, 35)
    for letter, job_id in zip("abcde", ids(receipts)[:5], strict=True):
        assert found(app, job_id).payload == letter * size


def test_a_generator_and_an_empty_list(app: Oncely) -> None:
    def jobs() -> Iterator[NewJob]:
        for n in range(3):
            yield NewJob("k", n)

    assert app.enqueue_many(jobs()).inserted == 3
    assert app.enqueue_many([]) == Receipts(0, 0, [])
    assert app.enqueue_many(iter(())) == Receipts(0, 0, [])
    assert len(app.jobs()) == 3


def test_a_batch_of_one_is_like_a_single_call(app: Oncely) -> None:
    [receipt] = app.enqueue_many([NewJob("k", 1, idempotency_key="i")]).receipts
    assert app.enqueue("k", 1, idempotency_key="i") == Receipt(receipt.job_id, False, "pending")


def test_states_are_positional_too(app: Oncely) -> None:
    done = app.enqueue("k", 0, idempotency_key="done")
    assert end(app, claim_one(app), "completed")
    receipts = app.enqueue_many(
        [
            NewJob("k", 1, delay=60, unique_key="u"),
            NewJob("k", 0, idempotency_key="done"),
            NewJob("k", 2),
            NewJob("k", 3, unique_key="u"),
        ]
    )
    assert [receipt.state for receipt in receipts.receipts] == [
        "scheduled",
        "completed",
        "pending",
        "scheduled",
    ]
    assert flags(receipts) == [True, False, True, False]
    assert ids(receipts)[1] == done.job_id
    assert ids(receipts)[3] == ids(receipts)[0]


def job(text: str) -> NewJob:
    """`a/i1/u2` is payload a, idempotency key i1, unique key u2; keys may be left out."""
    payload, *keys = text.split("/")
    return NewJob(
        "k",
        payload,
        idempotency_key=next((key for key in keys if key.startswith("i")), None),
        unique_key=next((key for key in keys if key.startswith("u")), None),
    )


@pytest.mark.parametrize(
    ("batch", "same_as"),
    [
        # The same idempotency key, the same content.
        ("a/i1 a/i1 a/i1", [0, 0, 0]),
        ("a/i1 b/i2 a/i1 b/i2", [0, 1, 0, 1]),
        # The same unique key, whatever the content.
        ("a/u1 b/u1 c/u1", [0, 0, 0]),
        ("a/u1 b b/u2 c/u1", [0, 1, 2, 0]),
        # Both keys on each.
        ("a/i1/u1 a/i1/u1", [0, 0]),
        ("a/i1/u1 b/i2/u1 b/i2/u1", [0, 0, 0]),
        # The first call wins the unique key; the second is remembered under it.
        ("a/u1 b/i1/u1 b/i1", [0, 0, 0]),
        ("a/i1 a/i1/u1 b/u1", [0, 0, 2]),
        ("a/i1/u1 b/u1 a/i1/u2 c/u2", [0, 0, 0, 3]),
        ("a/u1 b/i1/u1 b/i1/u2 c/u2", [0, 0, 0, 3]),
        ("a/i1/u1 b/i2/u2 c/i3/u1 d/i4/u2 c/i3 d/i4/u9 e/u9", [0, 1, 0, 1, 0, 1, 6]),
        # A call that repeats the first, and comes before it by its other key.
        ("a/i1/u9 a/i1/u1 b/i2/u1 c/u9", [0, 0, 2, 0]),
        ("a/i9/u9 b/i1/u9 c/i5 d/u9 a/i9/u1 b/i1/u1", [0, 0, 2, 0, 0, 0]),
        # Jobs without keys are never repeats.
        ("a a a/i1 a a/i1", [0, 1, 2, 3, 2]),
    ],
)
@pytest.mark.usefixtures("parts")
def test_repeats_inside_a_batch_are_as_if_the_calls_came_one_by_one(
    app: Oncely, batch: str, same_as: list[int]
) -> None:
    jobs = [job(text) for text in batch.split()]
    receipts = app.enqueue_many(jobs)
    made = ids(receipts)
    assert [made.index(id) for id in made] == same_as
    assert flags(receipts) == [index == first for index, first in enumerate(same_as)]
    again = app.enqueue_many(item for item in jobs if item.idempotency_key or item.unique_key)
    known = [id for id, item in zip(made, jobs, strict=True) if item.idempotency_key]
    answered = [
        id
        for id, item in zip(
            ids(again), [j for j in jobs if j.idempotency_key or j.unique_key], strict=True
        )
        if item.idempotency_key
    ]
    assert answered == known
    # One by one in a second store of the same shape: another kind and queue.
    single = [
        app.enqueue(
            "other",
            item.payload,
            queue="other",
            idempotency_key=item.idempotency_key,
            unique_key=item.unique_key,
        )
        for item in jobs
    ]
    alone = [receipt.job_id for receipt in single]
    assert [alone.index(id) for id in alone] == same_as
    assert [receipt.inserted for receipt in single] == flags(receipts)


@pytest.mark.parametrize(
    "batch",
    [
        "a/i1 b/i1",
        "a/i1 a/i1 b/i1",
        "x a/i1/u1 y/u2 b/i1/u2 z",
        "a/u1 b/i1/u2 c/i1/u1",
        "a/i1 b/u1 c/i2 d/i2/u1",
    ],
)
@pytest.mark.usefixtures("parts")
def test_a_conflict_inside_the_batch_names_no_job_and_stores_nothing(
    app: Oncely, batch: str
) -> None:
    app.enqueue("k", "before", unique_key="u9", idempotency_key="i9")
    before = counts(app)
    with pytest.raises(KeyConflict) as caught:
        app.enqueue_many(job(text) for text in batch.split())
    assert caught.value.job_id is None
    assert "an earlier item of the same call" in str(caught.value)
    assert counts(app) == before


def test_a_conflict_with_a_stored_job_names_it_and_stores_nothing(app: Oncely) -> None:
    first = app.enqueue("k", "a", idempotency_key="i1")
    before = counts(app)
    for batch in ("b/i1", "x y/u1 b/i1", "a/i1 b/i1", "z/i2/u2 b/i1/u2 c/i2"):
        with pytest.raises(KeyConflict) as caught:
            app.enqueue_many(job(text) for text in batch.split())
        assert (caught.value.job_id, caught.value.key) == (first.job_id, "i1")
        assert counts(app) == before


def test_a_conflict_under_a_lent_key_names_the_holder(app: Oncely) -> None:
    holder = app.enqueue("k", "h", unique_key="u1")
    before = counts(app)
    with pytest.raises(KeyConflict) as caught:
        app.enqueue_many([job("a/i1/u1"), job("b/i1")])
    assert caught.value.job_id == holder.job_id
    assert counts(app) == before


def test_the_last_of_many_may_spoil_all(app: Oncely) -> None:
    first = app.enqueue("k", "a", idempotency_key="last")
    before = counts(app)
    jobs = [NewJob("k", n, idempotency_key=f"i{n}", unique_key=f"u{n}") for n in range(2_500)]
    with pytest.raises(KeyConflict) as caught:
        app.enqueue_many([*jobs, NewJob("k", "b", idempotency_key="last")])
    assert caught.value.job_id == first.job_id
    assert counts(app) == before
    assert app.enqueue_many(jobs).inserted == 2_500


def shared_batches(name: str, *, rounds: int, size: int) -> list[list[list[NewJob]]]:
    """For each of two callers a batch per round: the same jobs, in opposite orders. Some of them
    repeat one of the keys of another."""
    pick = dice(name)
    mine, theirs = [], []
    for turn in range(rounds):
        batch = []
        for n in range(size):
            call, work = f"i:{turn}:{n}", f"u:{turn}:{(n * 7919) % size}"
            which = pick.choice(["i", "u", "iu", "u iu", "i iu u", "iu iu"])
            batch += [
                NewJob(
                    "k",
                    {"turn": turn, "n": n},
                    idempotency_key=call if "i" in keys else None,
                    unique_key=work if "u" in keys else None,
                )
                for keys in which.split()
            ]
        mine.append(batch)
        theirs.append(batch[::-1])
    return [mine, theirs]


def one_job_per_key(
    app: Oncely, batches: list[list[list[NewJob]]], answers: list[list[list[tuple[str, bool]]]]
) -> None:
    """Both callers got the same job for the same call, and only one of them inserted it."""
    inserted = 0
    made: set[str] = set()
    for turn in range(len(batches[0])):
        mine, theirs = answers[0][turn], answers[1][turn][::-1]
        assert [id for id, _ in mine] == [id for id, _ in theirs]
        made.update(id for id, _ in mine)
        assert not any(one and two for (_, one), (_, two) in zip(mine, theirs, strict=True))
        inserted += sum(flag for _, flag in mine) + sum(flag for _, flag in theirs)
    assert inserted == len(made) == counts(app)["job"]


def test_batches_with_shared_keys_in_opposite_order_from_two_threads(app: Oncely) -> None:
    batches = shared_batches("two threads", rounds=12, size=200)
    barrier = Barrier(2)
    answers: list[list[list[tuple[str, bool]]]] = [[], []]

    def go(number: int) -> None:
        for batch in batches[number]:
            barrier.wait()
            receipts = app.enqueue_many(batch).receipts
            answers[number].append([(r.job_id, r.inserted) for r in receipts])

    threads = [Thread(target=go, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    one_job_per_key(app, batches, answers)


def test_batches_with_shared_keys_in_opposite_order_from_two_processes(app: Oncely) -> None:
    batches = shared_batches("two processes", rounds=12, size=200)
    answers = race(enqueue_batches, [(app.url, batch) for batch in batches])
    one_job_per_key(app, batches, answers)


@pytest.mark.parametrize(("size", "part"), [(300, 10_000), (2_500, 10_000), (300, 60)])
def test_no_deadlock_between_transactions_of_the_callers(
    postgres_url: str, size: int, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the caller's transaction nothing is retried, so that a deadlock would be seen here."""
    monkeypatch.setattr(admit, "CHUNK", part)
    with Oncely(postgres_url) as app:
        app.migrate()
        batches = shared_batches(f"batches of {size}", rounds=4, size=size)
        barrier = Barrier(2)
        answers: list[list[list[tuple[str, bool]]]] = [[], []]
        errors: list[Exception] = []

        def go(number: int) -> None:
            with psycopg.connect(postgres_url) as connection:
                for batch in batches[number]:
                    barrier.wait()
                    try:
                        receipts = app.enqueue_many(batch, tx=connection).receipts
                    except psycopg.errors.DeadlockDetected as error:
                        errors.append(error)
                        connection.rollback()
                    else:
                        connection.commit()
                        answers[number].append([(r.job_id, r.inserted) for r in receipts])

        threads = [Thread(target=go, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        one_job_per_key(app, batches, answers)
