"""Oncely itself, on PostgreSQL or SQLite, with its own measures besides those of the peers."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import ours
import psycopg
from driving import Crew, Driver, WrongCountError, fill, hit, main

from oncely import Context, NewJob, Oncely
from oncely.worker.loop import run_alone

QUEUE = "bench"
# In a store that is full, to count what is settled takes so long that it would be the measure.
PACE = "handlers_rate"
EFFECTS = "create table if not exists bench_effect (n integer primary key)"


def run(work: Coroutine[Any, Any, Any]) -> None:
    """As `oncely worker` does it: on uvloop where it is installed, with the process for itself."""
    run_alone(work)


class OncelyDriver(Driver):
    measures = (
        *Driver.measures,
        "bulk_keyed",
        "callers",
        "steps",
        "transactions",
        "fleet",
        "idle_memory",
        "prefetched_memory",
        "lasting",
        "held",
    )
    kind = "noop"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.app = Oncely(url)
        self._is_postgres = url.startswith("postgresql:")

    def prepare(self) -> None:
        self.app.migrate()

    def enqueue(self, first: int, last: int) -> None:
        for n in range(first, last):
            self.app.enqueue(self.kind, n, queue=QUEUE)

    def keyed(self, first: int, last: int) -> None:
        for n in range(first, last):
            self.app.enqueue(self.kind, n, queue=QUEUE, idempotency_key=f"key:{n}")

    def bulk(self, first: int, last: int) -> None:
        self.app.enqueue_many(NewJob(self.kind, n, queue=QUEUE) for n in range(first, last))

    def bulk_keyed(self, first: int, last: int) -> None:
        self.app.enqueue_many(
            NewJob(self.kind, n, queue=QUEUE, idempotency_key=f"key:{n}")
            for n in range(first, last)
        )

    def unsettled(self) -> int:
        return self._count("job") - self._count("outcome")

    def _count(self, table: str) -> int:
        if self._is_postgres:
            with psycopg.connect(self.url) as connection:
                row = connection.execute(f"select count(*) from oncely.{table}").fetchone()
        else:
            path = self.url.removeprefix("sqlite:///")
            with sqlite3.connect(path, timeout=10) as file:
                row = file.execute(f"select count(*) from oncely_{table}").fetchone()
        assert row is not None
        return int(row[0])

    def work(self, *, processes: int, mode: str) -> None:
        app = self.app

        @app.job("noop")
        async def noop(_: Context, n: int) -> None:
            hit(n)

        @app.job("steps")
        async def steps(ctx: Context, n: int) -> None:
            await ctx.step("note", note, n)

        @app.job("transactions")
        async def transactions(ctx: Context, n: int) -> None:
            hit(n)
            async with ctx.transaction() as tx:
                await tx.execute("insert into bench_effect (n) values (%s)", (n,))

        @app.job("fleet")
        async def fleet(_: Context, n: int) -> None:
            hit(n)
            await asyncio.sleep(ours.FLEET_JOB_SECONDS)

        @app.job("prefetched_memory")
        async def wait(_: Context, n: int) -> None:
            hit(n)
            await asyncio.sleep(3600)

        if mode == "fleet":

            async def crowd() -> None:
                share = ours.FLEET // processes
                await asyncio.gather(
                    *(app.run_worker(queues=[QUEUE], **ours.FLEET_WORKER) for _ in range(share))
                )

            run(crowd())
            return
        options = {
            "latency": ours.LATENCY,
            "idle_memory": ours.LATENCY,
            "transactions": ours.TRANSACTIONS,
            "prefetched_memory": {"concurrency": ours.PREFETCHED},
        }.get(mode, ours.DRAIN)
        run(app.run_worker(queues=[QUEUE], **options))

    def callers(self, jobs: int) -> dict[str, float]:
        """Many callers at once in one process, each waiting for its own durable answer."""
        each = jobs // ours.CALLERS

        async def caller(number: int) -> None:
            for n in range(number * each, (number + 1) * each):
                await self.app.aenqueue(self.kind, n, queue=QUEUE)

        async def all_of_them() -> float:
            await self.app.aenqueue(self.kind, -1, queue=QUEUE)
            started = time.perf_counter()
            await asyncio.gather(*(caller(number) for number in range(ours.CALLERS)))
            return time.perf_counter() - started

        seconds = asyncio.run(all_of_them())
        stored = self.unsettled() - 1
        if stored != each * ours.CALLERS:
            raise WrongCountError(f"{stored} of {each * ours.CALLERS} jobs are in the store")
        return {"rate": stored / seconds}

    def _drained(self, mode: str, jobs: int, *, processes: int = 1) -> dict[str, float]:
        self.kind = mode
        fill(self, jobs)
        with Crew(self, jobs, processes=processes, mode=mode) as crew:
            return crew.drained(jobs)

    def steps(self, jobs: int) -> dict[str, float]:
        """Jobs with one step each."""
        return self._drained("steps", jobs)

    def transactions(self, jobs: int) -> dict[str, float]:
        """Jobs that write a row in `ctx.transaction()`, 16 at once."""
        with psycopg.connect(self.url) as connection:
            connection.execute(EFFECTS)
        found = self._drained("transactions", jobs)
        with psycopg.connect(self.url) as connection:
            row = connection.execute("select count(*) from bench_effect").fetchone()
        if row is None or row[0] != jobs:
            raise WrongCountError(f"{row} rows were written by {jobs} jobs")
        return found

    def fleet(self, jobs: int) -> dict[str, float]:
        """50 workers with concurrency 4, jobs of 50 ms."""
        found = self._drained("fleet", jobs, processes=ours.FLEET_PROCESSES)
        slots = ours.FLEET * int(ours.FLEET_WORKER["concurrency"])
        return {**found, "ideal": slots / ours.FLEET_JOB_SECONDS}

    def idle_memory(self, _: int) -> dict[str, float]:
        """A worker that has run one job and waits."""
        with Crew(self, 1, mode="idle_memory") as crew:
            self.enqueue(0, 1)
            crew.wait_for(1)
            time.sleep(3)
            return {"megabytes": _megabytes(crew.workers[0].pid)}

    def prefetched_memory(self, _: int) -> dict[str, float]:
        """A worker that holds 10,000 jobs, all of them begun."""
        self.kind = "prefetched_memory"
        fill(self, ours.PREFETCHED)
        with Crew(self, ours.PREFETCHED, mode="prefetched_memory") as crew:
            crew.wait_for(ours.PREFETCHED)
            return {"megabytes": _megabytes(crew.workers[0].pid)}

    def lasting(self, jobs: int) -> dict[str, float]:
        """Ten drains one after the other in one store that keeps what is over."""
        rates = []
        for _ in range(10):
            fill(self, jobs // 10)
            with Crew(self, jobs // 10) as crew:
                rates.append(crew.drained(jobs // 10)[PACE])
        return {"rate": rates[-1], "first": rates[0], "least": min(rates)} | self._bytes(jobs)

    def held(self, seconds: int) -> dict[str, float]:
        """Drains while somebody else's transaction stays open for so many seconds."""
        size = 50_000
        with psycopg.connect(self.url) as other:
            rates = []
            until = time.monotonic() + seconds
            while not rates or time.monotonic() < until:
                fill(self, size)
                with Crew(self, size) as crew:
                    rates.append(crew.drained(size)[PACE])
                if len(rates) == 1:
                    # After the first drain: it is the rate to compare with.
                    other.execute("set transaction isolation level repeatable read")
                    other.execute("select count(*) from oncely.job")
        last = sorted(rates[-3:])[len(rates[-3:]) // 2]
        return {"rate": last, "first": rates[0], "least": min(rates), "drains": len(rates)}

    def _bytes(self, jobs: int) -> dict[str, float]:
        with psycopg.connect(self.url) as connection:
            row = connection.execute("select pg_database_size(current_database())").fetchone()
        assert row is not None
        return {"bytes_per_job": row[0] / jobs}


async def note(n: int) -> int:
    hit(n)
    return n


def _megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise WrongCountError("the system does not say how much memory the worker has")


if __name__ == "__main__":
    main(OncelyDriver)
