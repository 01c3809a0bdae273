"""Waiting for results: one look for all who wait, and nobody in a thread meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor, Future
from functools import partial
from threading import Lock
from typing import Final

from oncely.model.errors import JobNotFound, StoreUnavailable
from oncely.model.job import Job
from oncely.store import look
from oncely.store.engine import Engine, StoreClosed
from oncely.store.listen import RESULT, Ear
from oncely.store.plan import Plan

_POLL_SECONDS: Final = 1.0


class Results:
    """Who waits for which job."""

    def __init__(self, engine: Engine, executor: Executor) -> None:
        self._engine = engine
        self._executor = executor
        self._lock = Lock()
        self._waiting: dict[str, list[Future[Job]]] = {}
        self._unseen: set[str] = set()
        self._looking = False
        self._ear: Ear | None = None
        self._closed = False

    def of(self, job_id: str) -> Future[Job]:
        """The job, once it has come to rest. To be given to `leave` in the end."""
        future: Future[Job] = Future()
        with self._lock:
            if self._closed:
                raise StoreClosed()
            self._waiting.setdefault(job_id, []).append(future)
            if self._ear is None:
                self._ear = self._engine.listen([RESULT], self._told, every_seconds=_POLL_SECONDS)
            self._ear.rest()
        # After rest(): what it did not see will be told.
        self._look_at([job_id])
        return future

    def leave(self, job_id: str, future: Future[Job]) -> None:
        with self._lock:
            waiting = self._waiting.get(job_id, [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._waiting.pop(job_id, None)
            if not self._waiting and self._ear is not None:
                self._ear.stir()

    def close(self) -> None:
        """Those who wait hear of it."""
        with self._lock:
            self._closed = True
            left = list(self._waiting)
            if self._ear is not None:
                self._ear.close()
        self._fail(left, StoreClosed())

    def _told(self, detail: str) -> None:
        self._look_at(detail.split() or tuple(self._waiting))

    def _look_at(self, ids: Iterable[str]) -> None:
        """One look at a time. Whoever comes meanwhile shares the next one."""
        with self._lock:
            self._unseen.update(self._waiting.keys() & ids)
            if self._looking or not self._unseen:
                return
            self._looking = True
        try:
            self._executor.submit(self._look)
        except RuntimeError:  # closed meanwhile, which is what those who wait hear
            self._looking = False

    def _look(self) -> None:
        while True:
            with self._lock:
                ids = list(self._unseen)
                self._unseen.clear()
                self._looking = bool(ids)
            if not ids:
                return
            try:
                ended, missing = self._engine.run(partial(_at_rest, ids), "read")
            except StoreUnavailable:
                continue  # the next look comes by itself
            except Exception as error:
                self._fail(ids, error)
                continue
            for job in ended:
                for future in self._taken(job.job_id):
                    future.set_result(job)
            for job_id in missing:
                self._fail([job_id], JobNotFound(job_id))

    def _fail(self, ids: Iterable[str], error: Exception) -> None:
        for job_id in ids:
            for future in self._taken(job_id):
                future.set_exception(error)

    def _taken(self, job_id: str) -> list[Future[Job]]:
        """Those who wait for the job and have not given up; they wait no longer."""
        with self._lock:
            waiting = self._waiting.pop(job_id, [])
        return [future for future in waiting if future.set_running_or_notify_cancel()]


def _at_rest(ids: list[str], _: bool) -> Plan[tuple[list[Job], list[str]]]:
    return look.at_rest(ids)
