"""The limits that the goals speak of, on PostgreSQL.

- `commit`: one row per commit into a table with three indexes, one connection.
- `commit16`: the same with 16 connections at once.
- `statements`: our own statements that settle a batch and claim the next, in one thread and with no
  handler. Only the time in which the driver waits for the server counts, so that it is the limit of
  the statements and not of Python.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import psycopg
from driving import Driver, WrongCountError, fill, main
from oncely_driver import QUEUE, OncelyDriver

TABLE = """
create table one (
    id uuid primary key default gen_random_uuid(), queue text not null default 'bench',
    due_at timestamptz not null default now(), key text not null unique, payload json not null
);
create index on one (queue, due_at)
"""
BATCH = 500


class LimitDriver(Driver):
    measures = ("commit", "commit16", "statements")

    def commit(self, jobs: int) -> dict[str, float]:
        return self._commits(jobs, 1)

    def commit16(self, jobs: int) -> dict[str, float]:
        return self._commits(jobs, 16)

    def _commits(self, jobs: int, connections: int) -> dict[str, float]:
        with psycopg.connect(self.url) as connection:
            connection.execute(TABLE)
        each = jobs // connections
        ready = threading.Barrier(connections + 1)

        def insert(number: int) -> None:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.prepare_threshold = 1
                ready.wait()
                for n in range(each):
                    connection.execute(
                        "insert into one (key, payload) values (%s, %s)",
                        (f"{number}:{n}", '{"n": 1}'),
                    )

        threads = [threading.Thread(target=insert, args=(n,)) for n in range(connections)]
        for thread in threads:
            thread.start()
        ready.wait()
        started = time.perf_counter()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - started
        with psycopg.connect(self.url) as connection:
            row = connection.execute("select count(*) from one").fetchone()
        if row is None or row[0] != each * connections:
            raise WrongCountError(f"{row} rows of {each * connections}")
        return {"rate": each * connections / seconds}

    def statements(self, jobs: int) -> dict[str, float]:
        from oncely.store.claim import claim_statement
        from oncely.store.swap import Completed, swap

        driver = OncelyDriver(self.url)
        driver.prepare()
        fill(driver, jobs)
        engine = driver.app._engine
        waited = _Waited()
        over: list[list[Completed]] = []
        ran = 0
        while ran < jobs or over:
            claim = claim_statement(
                QUEUE,
                worker="limit",
                nonce=random.getrandbits(60),
                lease_seconds=60,
                limit=BATCH,
                started=BATCH,
            )
            swapped = engine.run(lambda _, leases=over, claim=claim: swap(leases, [claim]), "write")
            assert swapped is not None
            ran += len(swapped.claimed)
            over = [[Completed(claimed, "null") for claimed in swapped.claimed]]
            over = [lease for lease in over if lease]
        if left := driver.unsettled():
            raise WrongCountError(f"{left} of {jobs} jobs are not settled")
        return {"rate": jobs / waited.seconds}


class _Waited:
    """How long psycopg waits for the server from now on, over all connections."""

    def __init__(self) -> None:
        self.seconds = 0.0
        wait = psycopg.Connection.wait

        def timed(connection: psycopg.Connection, *args: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return wait(connection, *args, **options)
            finally:
                self.seconds += time.perf_counter() - started

        # In its place, for that is where a driver waits for the server.
        psycopg.Connection.wait = timed  # type: ignore[method-assign]


main(LimitDriver)
