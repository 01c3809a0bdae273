"""What the processes of these tests do: in a module of its own, for them to import."""

import os
import secrets
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import NamedTuple

from oncely import NewJob, Oncely, Receipt
from oncely.store.claim import Claimed, claim
from oncely.store.deliver import Settlement, settle
from tests.crash.fleet import Gate
from tests.seed import dice


class Call(NamedTuple):
    """One enqueue, told by its keys."""

    idempotency_key: str | None = None
    unique_key: str | None = None

    def job(self) -> NewJob:
        return NewJob("race", {"n": 1}, queue="races", **self._asdict())

    def send(self, app: Oncely) -> Receipt:
        return app.enqueue("race", {"n": 1}, queue="races", **self._asdict())


def calls(shape: str, number: int, name: str = "race") -> list[Call]:
    """`number` calls that do not repeat each other: with one key, the other, both, or neither."""
    make = {
        "none": lambda n: Call(),
        "idempotency": lambda n: Call(idempotency_key=f"{name}-{n}"),
        "unique": lambda n: Call(unique_key=f"{name}-{n}"),
        "both": lambda n: Call(f"{name}-both-{n}", f"{name}-both-{n}"),
    }
    return [make[shape](n) for n in range(number)]


def open_at_once(gate: Gate, url: str) -> list[str]:
    gate()
    with Oncely(url) as app:
        return app.migrate()


def send_one_by_one(gate: Gate, url: str, sent: Sequence[Call]) -> list[Receipt]:
    """The gate is passed before each call: all processes make it at once."""
    with Oncely(url) as app:
        app.get("no such job")
        receipts = []
        for call in sent:
            gate()
            receipts.append(call.send(app))
        return receipts


def send_in_batches(gate: Gate, url: str, batches: Sequence[Sequence[Call]]) -> list[list[Receipt]]:
    with Oncely(url) as app:
        answers = []
        for batch in batches:
            gate()
            answers.append(app.enqueue_many([call.job() for call in batch]).receipts)
        return answers


def send_by_threads(gate: Gate, url: str, batches: Sequence[Sequence[Call]]) -> list[list[Receipt]]:
    """Each batch as single calls, made by eight threads."""
    with Oncely(url) as app, ThreadPoolExecutor(8) as threads:
        answers = []
        for batch in batches:
            gate()
            answers.append(list(threads.map(lambda call: call.send(app), batch)))
        return answers


def send_either(
    gate: Gate, number: int, url: str, batches: Sequence[Sequence[Call]]
) -> list[list[Receipt]]:
    return (send_by_threads if number % 2 else send_in_batches)(gate, url, batches)


def send_while_claimed(
    gate: Gate, url: str, sent: Sequence[Call], name: str
) -> list[tuple[Call, Receipt]]:
    """Send, and now and then claim and complete: keys change hands all the time."""
    chance = dice(name)
    with Oncely(url) as app:
        gate()
        receipts = []
        for call in sent:
            receipts.append((call, call.send(app)))
            if chance.random() < 0.5:
                work(app, limit=chance.randint(1, 3))
        return receipts


def work(app: Oncely, *, limit: int, queue: str = "races") -> list[Claimed]:
    """Claim and complete in two steps, as a worker does."""
    nonce = secrets.randbits(62)
    claimed = app._engine.run(
        lambda _: claim(queue, worker="test", nonce=nonce, lease_seconds=60, limit=limit), "write"
    )
    if claimed:
        done = [
            Settlement(job.job_id, job.attempt, state="completed").under(job.fence)
            for job in claimed
        ]
        assert app._engine.run(lambda _: settle(done), "transaction") == []
    return claimed


MOST_AT_ONCE = 4
"""So many publishes, at most, before the moment of the end is set, and so many after that."""


def publish(url: str, log: str, batches: Sequence[Sequence[Call]], name: str) -> None:
    """Ended in the middle, unless it is done first. What has a line in the log was acknowledged;
    the rest is sent, from the first.

    A line has the number of the batch, how many of it were known already, and the ids. It
    goes out with one system call after the receipts came: there in full or not at all.
    """
    done = {int(line.split()[0]) for line in acknowledged(log)}
    out = os.open(log, os.O_WRONLY | os.O_APPEND)
    chance = dice(name)
    first = chance.randrange(MOST_AT_ONCE)
    with Oncely(url) as app:
        left = [(number, batch) for number, batch in enumerate(batches) if number not in done]
        for sent, (number, batch) in enumerate(left):
            if sent == first:
                # Nobody handles that signal: it ends the process as abruptly as SIGKILL, and from
                # within, so that the moment does not depend on how busy the tests are.
                signal.setitimer(signal.ITIMER_REAL, 0.0001 + chance.random() * 0.004)
            elif sent == first + MOST_AT_ONCE:
                signal.pause()
            if len(batch) == 1:
                receipts = [batch[0].send(app)]
            else:
                receipts = app.enqueue_many([call.job() for call in batch]).receipts
            ids = " ".join(receipt.job_id for receipt in receipts)
            known = sum(not receipt.inserted for receipt in receipts)
            os.write(out, f"{number} {known} {ids}\n".encode())
        signal.setitimer(signal.ITIMER_REAL, 0)


def acknowledged(log: str) -> Iterator[str]:
    with open(log) as lines:
        return iter([line for line in lines if line.endswith("\n")])


BATCH = 100


def publish_batches(url: str, log: str, name: str) -> None:
    """To be killed: batches without keys and without end, named in the log once acknowledged.

    They are large, so that SQLite has a checkpoint to take every few of them.
    """
    out = os.open(log, os.O_WRONLY | os.O_APPEND)
    with Oncely(url) as app:
        for number in count():
            payload = {"batch": f"{name}-{number}", "padding": "." * 4_000}
            app.enqueue_many([NewJob("batch", payload)] * BATCH)
            os.write(out, f"{name}-{number}\n".encode())


def fill(gate: Gate, url: str, number: int) -> list[str]:
    """Jobs without keys into a store that may not be there yet: singles, and batches of ten."""
    gate()
    ids: list[str] = []
    with Oncely(url) as app:
        while len(ids) < number:
            if len(ids) % 3:
                ids += [r.job_id for r in app.enqueue_many([NewJob("fill")] * 10).receipts]
            else:
                ids.append(app.enqueue("fill").job_id)
    return ids
