"""The invariants of the store, checked from its tables with plain SQL.

Nothing of oncely is used here: what checks the plans must not be made of them. Tests call
`check(url)` after every fault run; it raises with all violations, or returns what it counted.
"""

import json
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import unquote

import psycopg

ACTIVE = ("scheduled", "pending", "running", "in_doubt")
OUTCOMES = ("completed", "failed", "cancelled", "in_doubt")
SHOWN = 50


class Violated(AssertionError):
    """`violations` are all that were found."""

    def __init__(self, violations: list[str], jobs: int) -> None:
        self.violations = violations
        more = len(violations) - SHOWN
        shown = [*violations[:SHOWN], *([f"... and {more} more"] if more > 0 else [])]
        super().__init__(
            f"{len(violations)} violations in a store of {jobs} jobs:\n  " + "\n  ".join(shown)
        )


class Job(NamedTuple):
    id: str
    kind: str
    queue: str
    priority: int
    idempotency_key: str | None
    unique_key: str | None
    group_key: str | None


class Standing(NamedTuple):
    state: str
    due_at: Any
    attempts: int


class Ready(NamedTuple):
    id: str
    queue: str
    priority: int
    due_at: Any
    attempts: int
    lane: str


class Lease(NamedTuple):
    epoch: int
    ids: list[str]
    worker: str
    overdue_seconds: float
    """Since it ran out, by the clock of the store; below 0 while it lasts."""


class Outcome(NamedTuple):
    job_id: str
    state: str
    epoch: int | None
    result: Any


class Execution(NamedTuple):
    job_id: str
    epoch: int
    ended_at: Any
    outcome: str


class IdempotencyKey(NamedTuple):
    queue: str
    key: str
    job_id: str
    lent: bool
    state: str | None
    expires_at: Any


class UniqueKey(NamedTuple):
    kind: str
    key: str
    job_id: str


class Effect(NamedTuple):
    job_id: str
    name: str
    state: str
    expires_at: Any


@dataclass
class Census:
    """All rows of a store at one moment, and how its jobs stand."""

    jobs: dict[str, Job]
    standings: list[tuple[str, Standing]]
    ready: list[Ready]
    leases: list[Lease]
    outcomes: list[Outcome]
    executions: list[Execution]
    idempotency_keys: list[IdempotencyKey]
    unique_keys: list[UniqueKey]
    effects: list[Effect]
    states: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.states = {id: standing.state for id, standing in self.standings}

    def count(self, state: str) -> int:
        return sum(found == state for found in self.states.values())


def check(url: str, schema: str = "oncely", *, sweep_seconds: float | None = None) -> Census:
    """Raise `Violated` unless the store keeps every invariant.

    `sweep_seconds` says that there are workers, each of which takes back the jobs of the dead at
    least this often: then no lease may be overdue by more than two sweeps.
    """
    with connect(url) as connection:
        census = look(connection, schema)
        found = violations(census) + damage(connection)
    if sweep_seconds is not None:
        found += overdue(census, sweep_seconds)
    if found:
        raise Violated(found, len(census.jobs))
    return census


def violations(census: Census) -> list[str]:
    return [violation for rule in RULES for violation in rule(census)]


def overdue(census: Census, sweep_seconds: float) -> list[str]:
    return [
        f"lease {lease.epoch} of worker {lease.worker} ran out {lease.overdue_seconds:.1f} s ago, "
        f"more than two sweeps of {sweep_seconds:g} s, and still holds {len(lease.ids)} jobs"
        for lease in census.leases
        if lease.overdue_seconds > 2 * sweep_seconds
    ]


def damage(connection: sqlite3.Connection | psycopg.Connection) -> list[str]:
    """What SQLite finds wrong with its own file."""
    if not isinstance(connection, sqlite3.Connection):
        return []
    return [
        f"file: {row[0]}" for row in connection.execute("pragma integrity_check") if row[0] != "ok"
    ]


@contextmanager
def connect(url: str) -> Iterator[sqlite3.Connection | psycopg.Connection]:
    """A connection in a transaction that sees one moment, and is rolled back."""
    if url.startswith("sqlite:///"):
        connection = sqlite3.connect(unquote(url.removeprefix("sqlite:///")), isolation_level=None)
        try:
            connection.execute("begin")
            yield connection
        finally:
            connection.close()
        return
    with psycopg.connect(url) as server:
        server.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        yield server
        server.rollback()


def look(connection: sqlite3.Connection | psycopg.Connection, schema: str = "oncely") -> Census:
    """Read the whole store."""
    if isinstance(connection, sqlite3.Connection):
        return _read(
            lambda text: connection.execute(text).fetchall(),
            "oncely_",
            ids="ids",
            overdue=f"({time.time_ns() // 1000} - expires_at) / 1e6",
        )
    return _read(
        lambda text: connection.execute(text.encode()).fetchall(),
        f'"{schema}".',
        ids="to_json(ids)",
        overdue="extract(epoch from clock_timestamp() - expires_at)::float8",
    )


def _read(ask: Callable[[str], list[Any]], prefix: str, *, ids: str, overdue: str) -> Census:
    def rows(columns: str, table: str) -> Iterator[Any]:
        return iter(ask(f"select {columns} from {prefix}{table}"))

    return Census(
        jobs={
            str(id): Job(str(id), *rest)
            for id, *rest in rows(
                "id, kind, queue, priority, idempotency_key, unique_key, group_key", "job"
            )
        },
        standings=[
            (str(id), Standing(*rest))
            for id, *rest in rows("job_id, state, due_at, attempts", "standing")
        ],
        ready=[
            Ready(str(id), *rest)
            for id, *rest in rows("id, queue, priority, due_at, attempts, lane", "ready")
        ],
        leases=[
            Lease(epoch, members if isinstance(members, list) else json.loads(members), *rest)
            for epoch, members, *rest in rows(f"epoch, {ids}, worker, {overdue}", "lease")
        ],
        outcomes=[
            Outcome(str(id), state, epoch, None if text is None else json.loads(text))
            for id, state, epoch, text in rows(
                "job_id, state, epoch, cast(result as text)", "outcome"
            )
        ],
        executions=[
            Execution(str(id), *rest)
            for id, *rest in rows(
                "job_id, epoch, ended_at, outcome", "execution order by ended_at, epoch"
            )
        ],
        idempotency_keys=[
            IdempotencyKey(queue, key, str(id), bool(lent), *rest)
            for queue, key, id, lent, *rest in rows(
                "queue, key, job_id, lent, state, expires_at", "idempotency_key"
            )
        ],
        unique_keys=[
            UniqueKey(kind, key, str(id))
            for kind, key, id in rows("kind, key, job_id", "unique_key")
        ],
        effects=[
            Effect(str(id), *rest)
            for id, *rest in rows("job_id, name, state, expires_at", "effect")
        ],
    )


def _in_one_place(census: Census) -> Iterator[str]:
    """ready, lease and outcome are disjoint and together cover all jobs, and nothing else."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for row in census.ready:
        places[row.id].append("ready")
    for lease in census.leases:
        if not lease.ids:
            yield f"lease {lease.epoch} holds no job"
        for id in lease.ids:
            places[id].append(f"lease {lease.epoch}")
    for outcome in census.outcomes:
        places[outcome.job_id].append("outcome")
    for id in census.jobs.keys() | places.keys():
        if id not in census.jobs:
            yield f"{_and(places[id])} has job {id}, which does not exist"
        elif not places[id]:
            yield f"job {id} is orphaned: not in ready, lease or outcome"
        elif len(places[id]) > 1:
            yield f"job {id} is in {_and(places[id])}"
    for id in (execution.job_id for execution in census.executions):
        if id not in census.jobs:
            yield f"execution has job {id}, which does not exist"


def _ready_as_standing(census: Census) -> Iterator[str]:
    """A row in ready says of its job what job and execution say."""
    standings = dict(census.standings)
    for row in census.ready:
        job, standing = census.jobs.get(row.id), standings.get(row.id)
        if job is None or standing is None:
            continue
        for name, expected in (
            ("queue", job.queue),
            ("priority", job.priority),
            ("due_at", standing.due_at),
            ("attempts", standing.attempts),
        ):
            found = getattr(row, name)
            if found != expected:
                yield f"ready says {name} {found} of job {row.id}; it is {expected}"
        lanes = ("",) if job.group_key is None else ("later", f"g:{job.group_key}")
        if row.lane not in lanes:
            allowed = " or ".join(map(repr, lanes))
            yield f"ready says lane {row.lane} of job {row.id}; it is {allowed}"


def _states_as_places(census: Census) -> Iterator[str]:
    expected: dict[str, tuple[str, ...]] = {}
    for outcome in census.outcomes:
        expected[outcome.job_id] = (outcome.state,)
        if outcome.state not in OUTCOMES:
            yield f"job {outcome.job_id} came to rest in state {outcome.state}"
    for lease in census.leases:
        for id in lease.ids:
            expected.setdefault(id, ("running",))
    for id, standing in census.standings:
        allowed = expected.get(id, ("scheduled", "pending"))
        if standing.state not in allowed:
            yield f"job {id} is shown as {standing.state}; it is {' or '.join(allowed)}"
    shown = Counter(id for id, _ in census.standings)
    for id in census.jobs:
        if shown[id] != 1:
            yield f"job {id} is shown {shown[id]} times"


def _one_outcome(census: Census) -> Iterator[str]:
    for id, count in _repeated(outcome.job_id for outcome in census.outcomes):
        yield f"job {id} has {count} outcomes"


def _one_job_per_key(census: Census) -> Iterator[str]:
    """Seen from the jobs: whatever the tables of keys say."""
    for (queue, key), count in _repeated(
        (job.queue, job.idempotency_key) for job in census.jobs.values() if job.idempotency_key
    ):
        yield f"{count} jobs have idempotency key {key!r} in queue {queue!r}"
    for (kind, key), count in _repeated(
        (job.kind, job.unique_key)
        for job in census.jobs.values()
        if job.unique_key and census.states.get(job.id) in ACTIVE
    ):
        yield f"{count} active jobs have unique key {key!r} of kind {kind!r}"


def _unique_keys(census: Census) -> Iterator[str]:
    """Exactly the active jobs hold their unique keys."""
    for row in census.unique_keys:
        job = census.jobs.get(row.job_id)
        name = f"unique key {row.key!r} of kind {row.kind!r}"
        if job is None:
            yield f"{name} is held by job {row.job_id}, which does not exist"
        elif (job.kind, job.unique_key) != (row.kind, row.key):
            yield f"{name} is held by job {job.id}, which has {job.unique_key!r} of {job.kind!r}"
        elif census.states.get(job.id) not in ACTIVE:
            yield f"{name} is held by job {job.id}, which is {census.states.get(job.id)}"
    for (kind, key), count in _repeated((row.kind, row.key) for row in census.unique_keys):
        yield f"unique key {key!r} of kind {kind!r} has {count} rows"
    holders = {(row.kind, row.key): row.job_id for row in census.unique_keys}
    for job in census.jobs.values():
        if not job.unique_key or census.states.get(job.id) not in ACTIVE:
            continue
        if holders.get((job.kind, job.unique_key)) != job.id:
            yield f"job {job.id} is active and does not hold its unique key {job.unique_key!r}"


def _idempotency_keys(census: Census) -> Iterator[str]:
    """A key leads to its job, or to the holder it was lent; a pruned job leaves an expiry."""
    for row in census.idempotency_keys:
        job = census.jobs.get(row.job_id)
        name = f"idempotency key {row.key!r} in queue {row.queue!r}"
        if (row.expires_at is None) != (row.state is None):
            yield f"{name} has state {row.state} and expires at {row.expires_at}"
        if job is None and row.expires_at is None:
            yield f"{name} leads to job {row.job_id}, which does not exist"
        if job is None or row.lent:
            continue
        if (job.queue, job.idempotency_key) != (row.queue, row.key):
            yield f"{name} leads to job {job.id}, which has {job.idempotency_key!r}"
    for (queue, key), count in _repeated((row.queue, row.key) for row in census.idempotency_keys):
        yield f"idempotency key {key!r} in queue {queue!r} has {count} rows"
    leads = {(row.queue, row.key): row.job_id for row in census.idempotency_keys}
    for job in census.jobs.values():
        if job.idempotency_key and leads.get((job.queue, job.idempotency_key)) != job.id:
            yield f"idempotency key {job.idempotency_key!r} does not lead to its job {job.id}"


def _epochs_rise(census: Census) -> Iterator[str]:
    """Of each job, in the order in which its deliveries ended; the one under way is the last.

    Deliveries that ended in one tick of the store's clock have no order to check."""
    epochs: defaultdict[str, list[int]] = defaultdict(list)
    for execution in census.executions:
        epochs[execution.job_id].append(execution.epoch)
    for outcome in census.outcomes:
        if outcome.epoch is not None:
            epochs[outcome.job_id].append(outcome.epoch)
    for lease in census.leases:
        for id in lease.ids:
            epochs[id].append(lease.epoch)
    for id, found in epochs.items():
        if any(later <= earlier for earlier, later in pairwise(found)):
            yield f"the epochs of job {id} do not rise: {found}"
    for epoch, count in _repeated(lease.epoch for lease in census.leases):
        yield f"epoch {epoch} was given to {count} leases"


def _ledger(census: Census) -> Iterator[str]:
    """A job is held if and only if something of it is in doubt; one that was given up leaves its
    doubt on record. What is in the ledger of a job that is there does not expire."""
    for effect in census.effects:
        name = f"effect {effect.name!r} of job {effect.job_id}"
        state = census.states.get(effect.job_id)
        if effect.state == "in_doubt" and state not in ("in_doubt", "cancelled", None):
            yield f"{name} is in doubt, and its job is {state}"
        if effect.expires_at is not None and state is not None:
            yield f"{name} expires, and its job is there"
        if effect.expires_at is None and state is None:
            yield f"{name} has no job, and does not expire"
    doubted = {effect.job_id for effect in census.effects if effect.state == "in_doubt"}
    for id, state in census.states.items():
        if state == "in_doubt" and id not in doubted:
            yield f"job {id} is held, and nothing of it is in doubt"


RULES: tuple[Callable[[Census], Iterator[str]], ...] = (
    _in_one_place,
    _ready_as_standing,
    _states_as_places,
    _one_outcome,
    _one_job_per_key,
    _unique_keys,
    _idempotency_keys,
    _epochs_rise,
    _ledger,
)


def _repeated(values: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    return ((value, count) for value, count in Counter(values).items() if count > 1)


def _and(places: list[str]) -> str:
    return " and ".join(places)
