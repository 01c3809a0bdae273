"""Publishers that go on while the server comes and goes."""

import threading
import time
from typing import Any

from oncely import NewJob, Oncely, Receipt, StoreUnavailable
from tests.crash.checker import Census
from tests.crash.fleet import thread
from tests.waiting import PATIENCE_SECONDS, wait_until

THREADS = 8


class Publishers:
    """Threads of one app that publish until told to end, and repeat what was refused.

    `payload` is that of every job; each thread pauses so long after each publish.
    """

    def __init__(
        self, app: Oncely, kind: str = "k", payload: Any = None, *, pause_seconds: float = 0
    ) -> None:
        self._app = app
        self._kind = kind
        self._payload = payload
        self._pause_seconds = pause_seconds
        self._end = threading.Event()
        self._lock = threading.Lock()
        self.acknowledged: dict[tuple[str, ...], list[str]] = {}
        self.refused = 0
        self._running = [thread(self._publish, n) for n in range(THREADS)]

    def _publish(self, who: int) -> None:
        number = 0
        while not self._end.is_set():
            number += 1
            keys = [f"{who}-{number}-{n}" for n in range(3 if number % 5 == 0 else 1)]
            receipts = self._until_done(keys, unique=who % 2 == 0)
            with self._lock:
                self.acknowledged[tuple(keys)] = [receipt.job_id for receipt in receipts]
            self._end.wait(self._pause_seconds)

    def _until_done(self, keys: list[str], *, unique: bool) -> list[Receipt]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                if len(keys) == 1:
                    unique_key = keys[0] if unique else None
                    return [
                        self._app.enqueue(
                            self._kind,
                            self._payload,
                            idempotency_key=keys[0],
                            unique_key=unique_key,
                        )
                    ]
                return self._app.enqueue_many(
                    [NewJob(self._kind, self._payload, idempotency_key=key) for key in keys]
                ).receipts
            except StoreUnavailable:
                # Nothing else may come out: that would end the thread, and with it the test.
                assert time.monotonic() < deadline, f"refused for {PATIENCE_SECONDS:.0f} s"
                with self._lock:
                    self.refused += 1
                time.sleep(0.01)

    def progress(self, count: int) -> None:
        """Wait until so many more were acknowledged."""
        target = len(self.acknowledged) + count

        def reached() -> bool:
            failed = [future.exception() for future in self._running if future.done()]
            assert not failed, f"a publisher ended: {failed}"
            return len(self.acknowledged) >= target

        wait_until(reached, f"{count} more are acknowledged")

    def wait_until_refused(self) -> None:
        before = self.refused
        wait_until(lambda: self.refused > before, "somebody is refused while the server is down")

    def finish(self) -> None:
        self._end.set()
        for future in self._running:
            future.result(PATIENCE_SECONDS)

    def check(self, census: Census) -> None:
        """Each acknowledged publish has its job, and there is no other."""
        owner = {job.idempotency_key: id for id, job in census.jobs.items()}
        keys = [key for batch in self.acknowledged for key in batch]
        assert len(census.jobs) == len(keys)
        for batch, ids in self.acknowledged.items():
            assert ids == [owner.get(key) for key in batch]
