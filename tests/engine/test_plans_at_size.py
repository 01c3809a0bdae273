"""The hot path does as much for a batch however much lies in the store: work is counted, not time.

What runs is the product itself: the statements are watched on their way to the database. On
PostgreSQL each is run by EXPLAIN ANALYZE first, with the plan that the server keeps for it, and
undone; on SQLite the steps of its virtual machine are counted.
"""

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from oncely import Context, NewJob, Oncely, Retry
from oncely.store import dead, deliver, listing
from oncely.store.listing import Wanted
from oncely.store.plan import Row, Statement, Together
from oncely.store.upkeep import BEGINNING, prune_effects, prune_jobs, prune_keys
from oncely.worker import hands
from tests.cluster import Cluster
from tests.crash.load import TORTURE
from tests.engine import many
from tests.engine.paces import AN_HOUR
from tests.engine.steps import claim, engine_of, sql

FINISHED = 100_000 if TORTURE == 1 else 1_000_000
BLOCKED = 20_000 if TORTURE == 1 else 100_000
BATCH = 100
GROWING = {
    "job", "ready", "outcome", "execution", "idempotency_key", "unique_key", "repeat", "effect",
    "resolution", "request",
}  # fmt: skip
ROWS_PER_JOB = 4
SLACK = 10 * BATCH
"""Blocks, or tens of steps, that a statement may cost beside what it costs in an empty store: for
deeper indexes, and for a seek for each job where few rows are read at once."""


class Seen(msgspec.Struct):
    """One statement on its way to the database."""

    name: str
    work: int
    nodes: list[dict[str, Any]] = []
    """Of PostgreSQL's plan, with what each really did."""
    scans: list[str] = []
    """What SQLite says that it reads whole."""


@contextmanager
def watched(app: Oncely) -> Iterator[list[Seen]]:
    engine: Any = app._engine
    seen: list[Seen] = []
    ask = engine._ask
    watch = _in_sqlite if engine_of(app) == "sqlite" else _in_postgres

    def asked(connection: Any, statement: Statement) -> list[Row]:
        if isinstance(statement, Together):
            return [(asked(connection, part),) for part in statement.parts]
        before = watch(app, connection, statement)
        rows: list[Row] = ask(connection, statement)
        seen.append(before())
        return rows

    engine._ask = asked
    try:
        yield seen
    finally:
        del engine._ask


def _in_sqlite(app: Oncely, connection: sqlite3.Connection, statement: Statement) -> Any:
    scans = []
    for prepared in app._engine.library.get(statement.name, ":{name}"):
        for *_, detail in connection.execute(
            f"explain query plan {prepared.text}", statement.params
        ):
            found = re.match(r"SCAN oncely_(\w+)(?!.*USING (?:COVERING )?INDEX)", detail)
            if found and found[1] in GROWING:
                scans.append(detail)
    tens = 0

    def count() -> int:
        nonlocal tens
        tens += 1
        return 0

    connection.set_progress_handler(count, 10)

    def end() -> Seen:
        connection.set_progress_handler(None, 0)
        return Seen(statement.name, tens, scans=scans)

    return end


def _in_postgres(app: Oncely, connection: psycopg.Connection[Row], statement: Statement) -> Any:
    nodes: list[dict[str, Any]] = []
    work = 0
    for prepared in app._engine.library.get(statement.name, "${n}"):
        given = [statement.params[name] for name in prepared.names]
        values = f"({', '.join(['%s'] * len(given))})" if given else ""
        name = f"watched_{next(_numbers)}"
        connection.execute(f"prepare {name} as {prepared.text}".encode(), prepare=False)
        # The plan for any parameters is the one that counts: it is what the server keeps.
        text = f"explain (analyze, buffers, format json) execute {name} {values}"
        with connection.transaction(force_rollback=True):
            row = psycopg.ClientCursor(connection).execute(text.encode(), given).fetchone()
        assert row is not None
        top = row[0][0]["Plan"]
        work += top["Shared Hit Blocks"] + top["Shared Read Blocks"]
        nodes += _flat(top)
    return lambda: Seen(statement.name, work, nodes=nodes)


def _flat(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(each for part in node.get("Plans", []) for each in _flat(part))]


class Meeting:
    """All handlers of a batch go on in the same turn of the loop, so they write together."""

    def __init__(self) -> None:
        self._there: list[asyncio.Future[None]] = []

    async def all_of(self, batch: int) -> None:
        me: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._there.append(me)
        if len(self._there) == batch:
            there, self._there = self._there, []
            for each in there:
                each.set_result(None)
        await me


def _made(cluster: Cluster, folder: Path, engine: str, name: str) -> Oncely:
    if engine == "sqlite":
        app = Oncely(f"sqlite:///{folder / name}.db")
    else:
        app = Oncely(cluster.create_database(f"at_size_{name}"))
    app.migrate()

    @app.job("k")
    async def nothing(ctx: Context) -> None: ...

    meeting = Meeting()

    @app.job("step", queue="plain")
    async def step(ctx: Context, batch: int) -> None:
        await meeting.all_of(batch)
        await ctx.step("charge", str)

    @app.job("retry", queue="plain", retry=Retry(backoff="fixed", base=86_400))
    async def fail(ctx: Context) -> None:
        raise ConnectionError

    app.set_group("free", concurrency=1_000)
    app.pause(group="blocked")
    return app


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def stores(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Oncely, Oncely]]:
    """One that is empty, and one with many jobs that are over, many that are blocked, and many
    that are due later."""
    folder = tmp_path_factory.mktemp("at_size")
    names = ("empty", "full")
    empty, full = (_made(cluster, folder, request.param, name) for name in names)
    with empty, full:
        many.finish(full, FINISHED)
        many.block(full, BLOCKED, group="blocked")
        for app in (empty, full):
            many.tidy(app)
        yield empty, full
    if request.param == "postgres":
        for name in names:
            cluster.drop_database(f"at_size_{name}")


def enqueue(app: Oncely, batch: int) -> list[Seen]:
    first = next(_numbers)
    keys = [f"at-size:{first}:{n}" for n in range(batch)]
    jobs = [NewJob("k", n, idempotency_key=keys[n], unique_key=keys[n]) for n in range(batch)]
    with watched(app) as seen:
        assert app.enqueue_many(jobs).inserted == batch
        assert app.enqueue_many(jobs).skipped == batch
    app.drain()
    return seen


def deliver_plain(app: Oncely, batch: int) -> list[Seen]:
    return _delivered(app, batch, queue="plain")


def deliver_shared(app: Oncely, batch: int) -> list[Seen]:
    """Past the blocked jobs, which are in the same queue and came before."""
    return _delivered(app, batch, group_key="free")


def deliver_steps(app: Oncely, batch: int) -> list[Seen]:
    return _delivered(app, batch, kind="step", queue="plain")


def deliver_failing(app: Oncely, batch: int) -> list[Seen]:
    """They go back, and are due tomorrow."""
    return _delivered(app, batch, kind="retry", queue="plain")


def _delivered(app: Oncely, batch: int, *, kind: str = "k", **options: Any) -> list[Seen]:
    app.enqueue_many(NewJob(kind, batch, **options) for _ in range(batch))
    queues = [options.get("queue", "default")]
    with watched(app) as seen:
        assert asyncio.run(app.worker(queues=queues, concurrency=batch).drain()) == batch
    return seen


def recover(app: Oncely, batch: int) -> list[Seen]:
    app.enqueue_many(NewJob("k", n, queue="plain") for n in range(batch))
    claimed = claim(app, "plain", limit=batch)
    known = {job.fence for job in claimed}
    with watched(app) as seen:
        held = app._engine.run(lambda _: deliver.renew("worker-1", known, 60), "write")
        assert len(held) == batch
        sql(app, "update oncely.lease set expires_at = claimed_at")
        assert len(app._engine.run(lambda _: deliver.reclaim(batch), "transaction")) == batch
    app.drain()
    return seen


def prune(app: Oncely, batch: int) -> list[Seen]:
    """A step over jobs that are kept, one over jobs that are not, and one for their keys."""
    receipts = app.enqueue_many(
        NewJob("k", n, queue="plain", idempotency_key=f"prune:{next(_numbers)}")
        for n in range(batch)
    )
    app.drain()
    after = receipts.receipts[0].job_id  # all but the first
    with watched(app) as seen:
        for days, start in ((9_999.0, BEGINNING), (0.0, after)):
            gone = app._engine.run(
                lambda _, days=days, start=start: prune_jobs(  # type: ignore[misc]
                    {"completed": days}, key_retention_days=0, after=start, limit=batch
                ),
                "transaction",
            )
        assert gone.jobs >= batch - 1
        assert app._engine.run(lambda _: prune_keys(batch), "transaction") >= batch - 1
        app._engine.run(lambda _: prune_effects(batch), "transaction")
    return seen


_numbers = count()
Operation = Callable[[Oncely, int], list[Seen]]
HOT: dict[Operation, set[str]] = {
    enqueue: {"admit", "find_keys"},
    deliver_plain: {"survey", "claim", "settle"},
    deliver_shared: {"survey", "claim_lanes", "settle"},
    deliver_steps: {"effect_begin", "effect_done"},
    deliver_failing: {"settle"},
    recover: {"renew", "reclaim"},
    prune: {"prune_look", "prune_drop", "prune_keys", "prune_effects"},
}


def _by_name(seen: list[Seen]) -> dict[str, int]:
    """The most that a statement of each name did."""
    most: dict[str, int] = {}
    for one in seen:
        most[one.name] = max(one.work, most.get(one.name, 0))
    return most


@pytest.mark.parametrize("operation", HOT, ids=lambda operation: operation.__name__)
def test_a_batch_costs_the_same_however_many_jobs_there_are(
    stores: tuple[Oncely, Oncely], operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A batch that runs in several turns of the loop is settled in as many parts as it takes turns.
    monkeypatch.setattr(hands, "_TURN_SECONDS", AN_HOUR)
    empty, full = stores
    alone = _by_name(operation(empty, BATCH))
    few = _by_name(operation(full, BATCH // 10))
    seen = operation(full, BATCH)
    for name, work in _by_name(seen).items():
        assert work < alone.get(name, 0) * 2 + SLACK, (name, "beside an empty store")
        assert work < few.get(name, 0) * 10 + SLACK, (name, "beside a tenth of the batch")
    for one in seen:
        assert one.scans == [], one.name
        for node in one.nodes:
            _check(one.name, node)
    # A statement that is no longer asked for is no longer guarded.
    for prefix in HOT[operation]:
        assert any(one.name.startswith(prefix) for one in seen), prefix


LISTS = {
    "any": Wanted(),
    "rare": Wanted(kind="none", tag="none"),
    "rare completed": Wanted(state="completed", kind="none"),
    "rare failed": Wanted(state="failed", group_key="none"),
    "pending": Wanted(state="pending"),
    "rare pending": Wanted(state="pending", queue="none"),
    "scheduled": Wanted(state="scheduled"),
    "key": Wanted(key="past:500"),
    "no key": Wanted(key="none"),
}


@pytest.mark.parametrize("wanted", LISTS.values(), ids=LISTS)
def test_a_page_of_a_list_looks_at_so_many_jobs_and_no_more(
    stores: tuple[Oncely, Oncely], wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing matches, and from the middle on."""
    _, full = stores
    for limit in ("LOOKED", "LOOKED_JOINED", "FEW"):
        monkeypatch.setattr(listing, limit, BATCH)
    middle = full._engine.run(lambda _: listing.page(Wanted(), BATCH * 4), "read").last
    with watched(full) as seen:
        for before in (None, middle):
            full._engine.run(
                lambda _, before=before: listing.brief_page(wanted, 50, before),  # type: ignore[misc]
                "read",
            )
    assert seen
    for one in seen:
        assert one.scans == [], one.name
        assert one.work < 2 * SLACK, one.name
        for node in one.nodes:
            _check(one.name, node)


def test_the_newest_dead_letters_are_read_and_no_others(stores: tuple[Oncely, Oncely]) -> None:
    _, full = stores
    with watched(full) as seen:
        found = full._engine.run(lambda _: dead.newest_failed(BATCH), "read")
        full._engine.run(lambda _: dead.failed_from(found[-1].job_id, BATCH), "read")
        full._engine.run(lambda _: dead.will_do([job.job_id for job in found]), "read")
    assert len(found) == BATCH
    for one in seen:
        assert one.scans == [], one.name
        assert one.work < 2 * SLACK, one.name
        for node in one.nodes:
            _check(one.name, node)


def _check(name: str, node: dict[str, Any]) -> None:
    told = (name, json.dumps({k: v for k, v in node.items() if k != "Plans"}))
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    rows = (node["Actual Rows"] + removed) * node["Actual Loops"]
    if node.get("Relation Name") in GROWING:
        assert node["Node Type"] not in ("Seq Scan", "Bitmap Heap Scan"), told
        assert rows <= ROWS_PER_JOB * BATCH, told
    if node["Node Type"] in ("Sort", "Incremental Sort", "Hash", "Materialize"):
        assert rows <= ROWS_PER_JOB * BATCH, told
