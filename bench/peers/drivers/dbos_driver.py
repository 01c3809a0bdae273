"""DBOS: a queue polled every 10 ms, 20 workflows at once per process, a pool of 20."""

import threading
import uuid

import psycopg
from dbos import DBOS, DBOSClient
from driving import Driver, hit, main

QUEUE = "bench"
VERSION = "1"


class DbosDriver(Driver):
    measures = ("enqueue", "keyed", "drain", "drain2", "latency")

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._client: DBOSClient | None = None

    def _launch(self, *, listen: bool) -> None:
        DBOS(
            config={
                "name": "bench",
                "system_database_url": self.url,
                "sys_db_pool_size": 20,
                "application_version": VERSION,
                "executor_id": uuid.uuid4().hex,
                "log_level": "ERROR",
                "run_admin_server": False,
            }
        )

        @DBOS.workflow(name="noop")
        def noop(n: int) -> None:
            hit(n)

        if listen:
            DBOS.listen_queues([QUEUE])
        DBOS.launch()

    def prepare(self) -> None:
        self._launch(listen=False)
        DBOS.destroy()
        self._client = DBOSClient(system_database_url=self.url)
        self._client.register_queue(QUEUE, worker_concurrency=20, polling_interval_sec=0.01)

    def _enqueue(self, n: int, **options: str) -> None:
        self._client.enqueue(
            {"queue_name": QUEUE, "workflow_name": "noop", "app_version": VERSION, **options}, n
        )

    def enqueue(self, first: int, last: int) -> None:
        for n in range(first, last):
            self._enqueue(n)

    def keyed(self, first: int, last: int) -> None:
        for n in range(first, last):
            self._enqueue(n, deduplication_id=f"key:{n}")

    def unsettled(self) -> int:
        with psycopg.connect(self.url) as connection:
            row = connection.execute(
                "select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING')"
            ).fetchone()
        return int(row[0])

    def work(self, *, processes: int, mode: str) -> None:
        self._launch(listen=True)
        threading.Event().wait()


main(DbosDriver)
