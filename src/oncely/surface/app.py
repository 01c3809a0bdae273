"""`Oncely`: the face of the queue in Python."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack
from weakref import WeakSet

from oncely.flow.aside import aside
from oncely.flow.enqueue import Enqueuer
from oncely.flow.execute import Middleware
from oncely.flow.handler import Registry
from oncely.flow.replay import replay_failed
from oncely.model.draft import check_name
from oncely.model.errors import InvalidInput, JobNotFound
from oncely.model.job import Job, NewJob, Options, Receipt, Receipts
from oncely.model.keys import shown
from oncely.model.retention import Retention
from oncely.model.retry import Retry
from oncely.model.transition import STATES, State
from oncely.store import look, steer
from oncely.store.engine import Finding
from oncely.store.url import open_engine
from oncely.worker.worker import Worker, WorkerOptions

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_RETRY: Final = Retry()
DEFAULT_RETENTION: Final = Retention()
DEFAULT_URL: Final = "sqlite:///oncely.db"
MAX_PAYLOAD_BYTES: Final = 1024 * 1024
LIST_LIMIT: Final = 10_000
_THREADS: Final = 4
_JOB_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Oncely:
    """A queue in a store: `sqlite:///jobs.db`, or `postgresql://…` for production.

    Without a URL it is `$ONCELY_URL`, else `sqlite:///oncely.db`. On SQLite the tables make
    themselves; on PostgreSQL `migrate()` makes them, in `schema`. Every verb that does I/O has an
    async twin, `a` + name. Workers prune what is over after its `retention`. Safe to share between
    threads, and to carry over a fork.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str = "oncely",
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        retention: Retention = DEFAULT_RETENTION,
    ) -> None:
        self.url = url if url is not None else os.environ.get("ONCELY_URL") or DEFAULT_URL
        self._engine = open_engine(self.url, schema=schema)
        self._max_payload_bytes = max_payload_bytes
        self._retention = retention
        self._registry = Registry()
        self._middleware: list[Middleware] = []
        self._begin()
        _apps.add(self)

    def _begin(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="oncely")
        self._enqueuer = Enqueuer(
            self._engine,
            self._executor,
            queue_of=self._registry.queue_of,
            max_payload_bytes=self._max_payload_bytes,
        )

    def _begin_after_fork(self) -> None:
        """The child has neither the parent's threads nor the right to its connections."""
        self._engine.renew()
        self._begin()

    def enqueue(
        self,
        kind: str,
        payload: Any = None,
        *,
        tx: Any = None,
        **options: Unpack[Options],
    ) -> Receipt:
        """Put a job in, durably; the receipt comes after the commit. The options:

        - `queue`: the lane it waits in; if not said, the one that the kind's handler declares,
          else `default`.
        - `idempotency_key`: the identity of this call, per queue. A repeat returns the first
          job's id, also after that job has ended; with another kind or payload it raises
          `KeyConflict`.
        - `unique_key`: the identity of the work, per kind. While a job with it is active, a
          repeat is skipped and returns that job's id.
        - `priority`: higher runs first. `delay` in seconds or as a timedelta, or `run_at` with a
          time zone: not before that.
        - `group_key`: the label that limits go by. `max_attempts` (1 to 20) and `timeout` (in
          seconds) go before the policy of the kind and the queue. `tags`: labels to look for.
        - `tx`: your own open transaction. The job exists if and only if you commit.
        """
        return self._enqueuer.one(NewJob(kind, payload, **options), tx)

    async def aenqueue(
        self,
        kind: str,
        payload: Any = None,
        *,
        tx: Any = None,
        **options: Unpack[Options],
    ) -> Receipt:
        """The async twin of `enqueue`; `tx` may be an async connection."""
        return await self._enqueuer.aone(NewJob(kind, payload, **options), tx)

    def enqueue_many(self, jobs: Iterable[NewJob], *, tx: Any = None) -> Receipts:
        """Put many jobs in at once, all or none; the receipts are in the order of the input.

        Repeats, also of a job earlier in the same call, are skipped. A `KeyConflict` stores
        nothing.
        """
        return self._enqueuer.many(jobs, tx)

    async def aenqueue_many(self, jobs: Iterable[NewJob], *, tx: Any = None) -> Receipts:
        return await self._enqueuer.amany(jobs, tx)

    def get(self, job_id: str) -> Job | None:
        """The job as it stands now, or None."""
        if not _is_job_id(job_id):
            return None
        return self._engine.run(lambda _: look.get(job_id), "read")

    async def aget(self, job_id: str) -> Job | None:
        return await self._aside(self.get, job_id)

    def jobs(
        self,
        *,
        state: State | None = None,
        kind: str | None = None,
        queue: str | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Jobs, the newest first, at most `limit` of them."""
        if state is not None and state not in STATES:
            raise InvalidInput(f"state is {shown(state)}; expected one of {', '.join(STATES)}")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIST_LIMIT:
            raise InvalidInput(
                f"limit is {shown(limit)}; expected a number from 1 to {LIST_LIMIT:,}"
            )
        for option, name in (("kind", kind), ("queue", queue)):
            if name is not None:
                check_name(name, option)
        return self._engine.run(lambda _: look.jobs(state, kind, queue, limit), "read")

    async def ajobs(
        self,
        *,
        state: State | None = None,
        kind: str | None = None,
        queue: str | None = None,
        limit: int = 100,
    ) -> list[Job]:
        return await self._aside(
            lambda: self.jobs(state=state, kind=kind, queue=queue, limit=limit)
        )

    def cancel(self, job_id: str) -> None:
        """End a job that waits or runs, and free its unique key. Cancelling it again changes
        nothing. A running handler is cancelled once its worker notices; its writes are refused
        from now on."""
        _refuse_malformed(job_id)
        self._engine.run(lambda _: steer.cancel(job_id), "transaction")

    async def acancel(self, job_id: str) -> None:
        await self._aside(self.cancel, job_id)

    def replay(self, job_id: str) -> None:
        """Put a failed job back, with the same id and its attempts renewed.

        `UniqueKeyTaken` names the job that holds its unique key meanwhile, if one does.
        """
        _refuse_malformed(job_id)
        self._engine.run(lambda again: steer.replay(job_id, again=again), "transaction")

    async def areplay(self, job_id: str) -> None:
        await self._aside(self.replay, job_id)

    def replay_all(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        error: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Replay the failed jobs that match, the oldest first; how many that were.

        `error` is a part of the error's type and message. A job whose unique key another one holds
        meanwhile stays where it is. With `dry_run` nothing is changed, and the number is that of
        the jobs that match. `progress` is told the number from time to time.
        """
        for option, name in (("kind", kind), ("queue", queue)):
            if name is not None:
                check_name(name, option)
        return replay_failed(
            self._engine,
            queue=queue,
            kind=kind,
            error=error,
            limit=limit,
            dry_run=dry_run,
            progress=progress or (lambda _: None),
        )

    async def areplay_all(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        error: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> int:
        return await self._aside(
            lambda: self.replay_all(
                queue=queue, kind=kind, error=error, limit=limit, dry_run=dry_run
            )
        )

    def job(
        self,
        kind: str,
        *,
        queue: str = "default",
        retry: Retry = DEFAULT_RETRY,
        timeout: float | None = None,
    ) -> Callable[[F], F]:
        """The decorated function, `async def` or `def`, handles jobs of this kind.

        It takes a `Context` and, if it wants it, the payload, converted to the type of its
        annotation. What it returns is kept as the result.
        """

        def register(function: F) -> F:
            self._registry.add(kind, function, queue=queue, retry=retry, timeout=timeout)
            return function

        return register

    def middleware(self, function: Middleware) -> Middleware:
        """`async def around(ctx, call): ...; return await call(ctx)`, around every handler. The
        first one that was added is the outermost."""
        self._middleware.append(function)
        return function

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """A worker: `.run()` runs it until SIGTERM or SIGINT. The options:

        - `queues`: the lanes it takes from; without it, all.
        - `concurrency`: so many handlers at once, 16. `def` handlers run in threads.
        - `lease_seconds`: so long after a worker died its jobs go to others; 60.
        - `poll_seconds`: an idle worker looks at least this often; 1.
        - `grace_seconds`: so long running handlers may go on when it is told to stop; 30.
        """
        return Worker(
            self._engine,
            self._registry,
            self._middleware,
            self._executor,
            self._retention,
            **options,
        )

    async def run_worker(self, **options: Unpack[WorkerOptions]) -> None:
        """`worker(...)` in the running event loop."""
        await self.worker(**options).arun()

    def drain(self, *, queues: Sequence[str] | None = None) -> int:
        """Run all that is due, in this process, and return how many executions there were."""
        return asyncio.run(self.adrain(queues=queues))

    async def adrain(self, *, queues: Sequence[str] | None = None) -> int:
        return await self.worker(queues=queues).drain()

    def migrate(self) -> list[str]:
        """Bring the schema up to date; the names of what was applied. Safe to repeat, and safe
        from many processes at once."""
        return self._engine.migrate()

    async def amigrate(self) -> list[str]:
        return await self._aside(self.migrate)

    def examine(self) -> list[Finding]:
        """What `oncely doctor` shows."""
        return self._engine.examine()

    def close(self) -> None:
        self._enqueuer.close()
        self._executor.shutdown()
        self._engine.close()

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _aside(self, verb: Callable[..., T], *args: Any) -> T:
        return await aside(self._executor, verb, *args)


def _is_job_id(job_id: Any) -> bool:
    return isinstance(job_id, str) and _JOB_ID.fullmatch(job_id) is not None


def _refuse_malformed(job_id: Any) -> None:
    if not _is_job_id(job_id):
        raise JobNotFound(str(job_id))


_apps: WeakSet[Oncely] = WeakSet()
_forking: list[Oncely] = []
_fork_lock = Lock()


def _before_fork() -> None:
    _fork_lock.acquire()
    _forking.extend(_apps)
    for app in _forking:
        app._engine.pause()


def _after_fork_in_parent() -> None:
    for app in _forking:
        app._engine.resume()
    _end_fork()


def _after_fork_in_child() -> None:
    for app in _forking:
        app._begin_after_fork()
    _end_fork()


def _end_fork() -> None:
    _forking.clear()
    _fork_lock.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
