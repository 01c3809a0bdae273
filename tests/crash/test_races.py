"""One job per key, however many ask at once: processes, threads, tasks, batches."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import psycopg
import pytest

from oncely import Oncely, Receipt
from tests.crash.checker import Census, check
from tests.crash.fleet import Fleet
from tests.crash.load import times
from tests.crash.publishers import (
    Call,
    calls,
    open_at_once,
    send_either,
    send_in_batches,
    send_one_by_one,
    send_while_claimed,
)
from tests.seed import dice
from tests.waiting import PATIENCE_SECONDS

EACH = times(60, usually=25)
KEYED = ("idempotency", "unique", "both")
Sent = Iterable[tuple[Call, Receipt]]


def assert_once(url: str, sent: Sent) -> Census:
    """Each call, however often it was made, was inserted once and always answered with one id."""
    answers: defaultdict[Call, list[Receipt]] = defaultdict(list)
    for call, receipt in sent:
        answers[call].append(receipt)
    wrong = [
        f"{call}: {sum(r.inserted for r in receipts)} inserted, ids {ids}"
        for call, receipts in answers.items()
        if len(ids := {r.job_id for r in receipts}) != 1 or sum(r.inserted for r in receipts) != 1
    ]
    assert not wrong, f"{len(wrong)} of N={len(answers)} keys:\n" + "\n".join(wrong)
    census = check(url)
    ids = {receipt.job_id for receipts in answers.values() for receipt in receipts}
    assert ids == census.jobs.keys(), f"N={len(answers)}"
    assert {row.id for row in census.ready} == ids
    return census


def deadlocks(url: str) -> int:
    """How often PostgreSQL had to end a transaction of this database to free the others."""
    if not url.startswith("postgresql"):
        return 0
    with psycopg.connect(url) as connection:
        connection.execute("select pg_stat_force_next_flush()")
        row = connection.execute(
            "select deadlocks from pg_stat_database where datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_eight_processes_make_the_schema(url: str, fleet: Fleet) -> None:
    applied = fleet.run(open_at_once, [(url,)] * fleet.size)
    assert sorted(map(bool, applied)) == [False] * 7 + [True]
    assert check(url).jobs == {}


def test_eight_processes_one_key(app: Oncely, fleet: Fleet) -> None:
    sent = [call for shape in KEYED for call in calls(shape, 20)]
    answers = fleet.run(send_one_by_one, [(app.url, sent)] * fleet.size)
    census = assert_once(
        app.url,
        (pair for receipts in answers for pair in zip(sent, receipts, strict=True)),
    )
    assert len(census.jobs) == len(sent)


@pytest.mark.parametrize("shape", KEYED)
def test_sixteen_threads_one_key(app: Oncely, shape: str) -> None:
    sent = calls(shape, 20)
    barrier = Barrier(16)

    def send(_: int) -> list[Receipt]:
        receipts = []
        for call in sent:
            barrier.wait(PATIENCE_SECONDS)
            receipts.append(call.send(app))
        return receipts

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(send, range(16)))
    assert_once(app.url, (pair for found in answers for pair in zip(sent, found, strict=True)))


def test_sixteen_threads_many_keys(app: Oncely) -> None:
    """Each in an order of its own, so callers with different keys share a write."""
    sent = mixed(20, "thread")

    def send(number: int) -> list[tuple[Call, Receipt]]:
        return [(call, call.send(app)) for call in dice(f"thread {number}").sample(sent, len(sent))]

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(send, range(16)))
    assert_once(app.url, (pair for found in answers for pair in found))


@pytest.mark.parametrize("shape", KEYED)
def test_tasks_of_one_loop(app: Oncely, shape: str) -> None:
    sent = calls(shape, 16) * 4

    async def send_all() -> list[Receipt]:
        return await asyncio.gather(
            *(app.aenqueue("race", {"n": 1}, queue="races", **call._asdict()) for call in sent)
        )

    receipts = asyncio.run(send_all())
    assert len(receipts) == 64
    assert_once(app.url, zip(sent, receipts, strict=True))


def mixed(count: int, name: str) -> list[Call]:
    return [call for shape in KEYED for call in calls(shape, count, name)]


def orders(batches: Sequence[list[Call]], number: int) -> list[list[Call]]:
    """The same batches for every process, in another order in each: forwards, backwards, any."""
    chance = dice(f"process {number}")
    if number < 2:
        return [batch if number else batch[::-1] for batch in batches]
    return [chance.sample(batch, len(batch)) for batch in batches]


def flat(batches: Sequence[list[Call]], answers: Sequence[list[Receipt]]) -> Sent:
    for batch, receipts in zip(batches, answers, strict=True):
        yield from zip(batch, receipts, strict=True)


def test_batches_in_opposite_orders(app: Oncely, fleet: Fleet) -> None:
    batches = [mixed(40, f"round-{n}") for n in range(5)]
    theirs = [orders(batches, number) for number in range(fleet.size)]
    answers = fleet.run(send_in_batches, [(app.url, batches) for batches in theirs])
    census = assert_once(
        app.url, (p for each in zip(theirs, answers, strict=True) for p in flat(*each))
    )
    assert len(census.jobs) == 5 * 3 * 40
    assert deadlocks(app.url) == 0


def test_batches_of_one_kind_of_key_each_in_opposite_orders(app: Oncely, fleet: Fleet) -> None:
    """No job has both keys, so nothing in a job says which table of keys comes first."""
    batches = [
        calls("idempotency", 40, f"round-{n}") + calls("unique", 40, f"round-{n}")
        for n in range(10)
    ]
    theirs = [orders(batches, number) for number in range(fleet.size)]
    answers = fleet.run(send_in_batches, [(app.url, batches) for batches in theirs])
    assert_once(app.url, (p for each in zip(theirs, answers, strict=True) for p in flat(*each)))
    assert deadlocks(app.url) == 0, f"N={len(batches)}"


def test_long_batches_in_opposite_orders(app: Oncely, fleet: Fleet) -> None:
    """Longer than what goes to the store in one statement."""
    batches = [mixed(600, "long")]
    theirs = [orders(batches, number) for number in range(fleet.size)]
    answers = fleet.run(send_in_batches, [(app.url, batches) for batches in theirs])
    census = assert_once(
        app.url, (p for each in zip(theirs, answers, strict=True) for p in flat(*each))
    )
    assert len(census.jobs) == 3 * 600
    assert deadlocks(app.url) == 0


def test_singles_beside_batches(app: Oncely, fleet: Fleet) -> None:
    batches = [mixed(20, f"round-{n}") for n in range(4)]
    theirs = [orders(batches, number) for number in range(fleet.size)]
    answers = fleet.run(
        send_either, [(number, app.url, batches) for number, batches in enumerate(theirs)]
    )
    census = assert_once(
        app.url, (p for each in zip(theirs, answers, strict=True) for p in flat(*each))
    )
    assert len(census.jobs) == 4 * 3 * 20
    assert deadlocks(app.url) == 0


def test_unique_keys_change_hands(app: Oncely, fleet: Fleet) -> None:
    """Jobs are claimed and completed while others ask for their keys: free, held, free again."""
    chance = dice("hot keys")
    theirs = []
    for number in range(fleet.size):
        only = [Call(unique_key=f"hot-{chance.randrange(3)}") for _ in range(EACH)]
        both = [Call(f"call-{number}-{n}", f"hot-{chance.randrange(3)}") for n in range(EACH)]
        theirs.append(chance.sample(only + both, 2 * EACH))
    answers = fleet.run(
        send_while_claimed, [(app.url, sent, f"claims {n}") for n, sent in enumerate(theirs)]
    )
    sent = [pair for each in answers for pair in each]
    census = check(app.url)
    ids = [receipt.job_id for _, receipt in sent]
    assert set(ids) == census.jobs.keys(), f"N={len(sent)}"
    inserted = Counter(receipt.job_id for _, receipt in sent if receipt.inserted)
    assert inserted == Counter(list(census.jobs)), f"N={len(sent)}"
    assert len(census.jobs) > 3, "no key ever changed hands"
    for call, receipt in sent:
        if call.idempotency_key:
            again = call.send(app)
            assert (again.job_id, again.inserted) == (receipt.job_id, False), call
    assert deadlocks(app.url) == 0
