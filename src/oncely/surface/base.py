"""What every verb of `Oncely` stands on: the store, its threads, and how it all ends."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import wraps
from threading import Lock
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from oncely.flow.aside import aside, in_own_thread
from oncely.flow.enqueue import Enqueuer
from oncely.flow.events import Events
from oncely.flow.execute import Middleware
from oncely.flow.handler import Registry
from oncely.flow.results import Results
from oncely.flow.schedule import Schedules
from oncely.flow.writes import Writes
from oncely.model.errors import JobNotFound
from oncely.model.retention import Retention
from oncely.store.engine import StoreClosed
from oncely.store.url import open_engine
from oncely.surface.closing import Closing

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Base")
DEFAULT_URL: Final = "sqlite:///oncely.db"
DEFAULT_RETENTION: Final = Retention()
MAX_PAYLOAD_BYTES: Final = 1024 * 1024
_THREADS: Final = 4
_JOB_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Forkable(Protocol):
    """What is carried over a fork. Whoever is one says so with `carry_over_forks`."""

    @property
    def _engine(self) -> Pausable: ...

    def _begin_after_fork(self) -> None: ...


class Pausable(Protocol):
    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Base(Closing):
    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str = "oncely",
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        retention: Retention = DEFAULT_RETENTION,
        api_key: str | None = None,
    ) -> None:
        self.url = url if url is not None else os.environ.get("ONCELY_URL") or DEFAULT_URL
        if api_key is None:
            api_key = os.environ.get("ONCELY_API_KEY") or None
        self._engine = open_engine(self.url, schema=schema, api_key=api_key)
        self._max_payload_bytes = max_payload_bytes
        self._retention = retention
        self._registry = Registry()
        self._schedules = Schedules(
            queue_of=self._registry.queue_of, max_payload_bytes=max_payload_bytes
        )
        self._middleware: list[Middleware] = []
        self._events = Events()
        self._closed = False
        self._begin()
        carry_over_forks(self)

    def _begin(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="oncely")
        self._enqueuer = Enqueuer(
            self._engine,
            self._executor,
            self._events,
            queue_of=self._registry.queue_of,
            max_payload_bytes=self._max_payload_bytes,
        )
        self._writes = Writes(self._engine, self._executor)
        self._results = Results(self._engine, self._executor)

    def _begin_after_fork(self) -> None:
        """The child has neither the parent's threads nor the right to its connections."""
        self._engine.renew()
        self._begin()

    def close(self) -> None:
        self._closed = True
        self._enqueuer.close()
        self._writes.close()
        self._results.close()
        self._executor.shutdown()
        self._engine.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreClosed


def twin(
    verb: Callable[Concatenate[S, P], T], *, own_thread: bool = False
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The async twin of a verb that does I/O: the same, beside the event loop. With `own_thread` it
    does not run in the threads of the store, which others wait for."""

    @wraps(verb)
    async def awaited(self: S, /, *args: P.args, **options: P.kwargs) -> T:
        here = copy_context()  # who acts is known there too
        if own_thread:
            return await in_own_thread(lambda: here.run(verb, self, *args, **options))
        return await aside(self._executor, lambda: here.run(verb, self, *args, **options))

    awaited.__name__ = f"a{verb.__name__}"
    awaited.__qualname__ = awaited.__qualname__.replace(verb.__name__, awaited.__name__)
    awaited.__doc__ = f"The async twin of `{verb.__name__}`."
    return awaited


def is_job_id(job_id: Any) -> bool:
    return isinstance(job_id, str) and _JOB_ID.fullmatch(job_id) is not None


def refuse_malformed(job_id: Any) -> None:
    if not is_job_id(job_id):
        raise JobNotFound(str(job_id))


_carried: WeakSet[Forkable] = WeakSet()
_forking: list[Forkable] = []
_fork_lock = Lock()


def carry_over_forks(thing: Forkable) -> None:
    _carried.add(thing)


def _before_fork() -> None:
    _fork_lock.acquire()
    _forking.extend(_carried)
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
