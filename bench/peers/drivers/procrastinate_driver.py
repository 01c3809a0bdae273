"""Procrastinate on psycopg's pools; async workers with 50 jobs at once and a pool of 20."""

import asyncio

import procrastinate
import psycopg
from driving import Driver, hit, main


def _noop(app: procrastinate.App) -> procrastinate.tasks.Task:
    @app.task(name="noop", queue="bench")
    async def noop(n: int) -> None:
        hit(n)

    return noop


class ProcrastinateDriver(Driver):
    measures = (*Driver.measures, "bulk_keyed")

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._app = procrastinate.App(
            connector=procrastinate.SyncPsycopgConnector(conninfo=url, min_size=1, max_size=2)
        )
        self._task = _noop(self._app)
        self._opened = False

    def prepare(self) -> None:
        self._app.open()
        self._app.schema_manager.apply_schema()

    def enqueue(self, first: int, last: int) -> None:
        for n in range(first, last):
            self._task.defer(n=n)

    def keyed(self, first: int, last: int) -> None:
        for n in range(first, last):
            self._task.configure(queueing_lock=f"key:{n}").defer(n=n)

    def bulk(self, first: int, last: int) -> None:
        self._task.batch_defer(*({"n": n} for n in range(first, last)))

    def bulk_keyed(self, first: int, last: int) -> None:
        jobs = [
            self._task.configure(queueing_lock=f"key:{n}").make_new_job(n=n)
            for n in range(first, last)
        ]
        self._app.job_manager.batch_defer_jobs(jobs)

    def unsettled(self) -> int:
        with psycopg.connect(self.url) as connection:
            row = connection.execute(
                "select count(*) from procrastinate_jobs where status in ('todo', 'doing')"
            ).fetchone()
        return int(row[0])

    def work(self, *, processes: int, mode: str) -> None:
        app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(conninfo=self.url, min_size=5, max_size=20)
        )
        _noop(app)

        async def run() -> None:
            async with app.open_async():
                await app.run_worker_async(queues=["bench"], concurrency=50)

        asyncio.run(run())


main(ProcrastinateDriver)
