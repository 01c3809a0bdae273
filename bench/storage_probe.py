"""How the storage design holds up: the product's own statements, round after round.

    .venv/bin/python -m bench.storage_probe postgres --rounds 10 --jobs 100000

Enqueues and drains a number of jobs several times on a fresh store, and prints for each round the
rates, and on PostgreSQL the WAL bytes per job. Nothing runs beside it and no handler is called, so
these are limits of the statements. The figures of docs/adr/0002 come from here.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from oncely import NewJob, Oncely
from oncely.store import claim as claims
from oncely.store import deliver
from tests.cluster import Cluster

BATCH = 1_000


@contextmanager
def store(engine: str) -> Iterator[tuple[Oncely, psycopg.Connection | None]]:
    if engine == "sqlite":
        with (
            tempfile.TemporaryDirectory() as folder,
            Oncely(f"sqlite:///{folder}/probe.db") as app,
        ):
            yield app, None
        return
    with (
        Cluster() as cluster,
        Oncely(cluster.create_database("probe")) as app,
        psycopg.connect(cluster.url("probe"), autocommit=True) as side,
    ):
        app.migrate()
        yield app, side


def fill(app: Oncely, jobs: int, mark: str) -> float:
    started = time.perf_counter()
    for first in range(0, jobs, BATCH):
        app.enqueue_many(
            NewJob("probe", {"n": n}, idempotency_key=f"{mark}:{n}")
            for n in range(first, first + BATCH)
        )
    return time.perf_counter() - started


def drain(app: Oncely, side: psycopg.Connection | None, claim: int) -> float:
    started = swept = time.perf_counter()
    while True:
        claimed = app._engine.run(
            lambda _: claims.claim(
                "default",
                worker="probe",
                nonce=random.getrandbits(62),
                lease_seconds=60,
                limit=claim,
            ),
            "write",
        )
        if not claimed:
            return time.perf_counter() - started
        settlements = [
            deliver.Settlement(job.job_id, job.attempt, state="completed", result="null").under(
                job.fence
            )
            for job in claimed
        ]
        app._engine.run(lambda _, s=settlements: deliver.settle(s), "write")
        if side is not None and time.perf_counter() - swept > 2:
            side.execute("vacuum (truncate off) oncely.ready")
            side.execute("vacuum (truncate off) oncely.lease")
            swept = time.perf_counter()


def wal(side: psycopg.Connection | None) -> int:
    if side is None:
        return 0
    row = side.execute("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint").fetchone()
    assert row is not None
    return int(row[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=["sqlite", "postgres"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--claim", type=int, default=500)
    args = parser.parse_args()
    with store(args.engine) as (app, side):
        for number in range(args.rounds):
            before = wal(side)
            filled = fill(app, args.jobs, str(number))
            between = wal(side)
            drained = drain(app, side, args.claim)
            print(
                f"round {number + 1}: enqueue {args.jobs / filled:,.0f}/s, "
                f"claim and settle {args.jobs / drained:,.0f}/s, WAL per job "
                f"{(between - before) / args.jobs:.0f} + {(wal(side) - between) / args.jobs:.0f} B",
                flush=True,
            )


if __name__ == "__main__":
    main()
