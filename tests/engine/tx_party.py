"""A party to a test: one connection of a library, in a thread of its own.

What a test does to it reads the same for sync and async libraries, and a party that waits for a
lock does not keep the test from going on.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Literal

from oncely import NewJob, Oncely, Receipt, Receipts
from tests.waiting import PATIENCE_SECONDS

EngineName = Literal["sqlite", "postgres"]


class Kit:
    """How one library is used. A verb gives its value, or an awaitable of it if `awaits`."""

    awaits: ClassVar[bool] = False
    begins: ClassVar[bool] = True
    """Whether the library begins a transaction by itself."""
    serialization_error: ClassVar[type[BaseException]]
    """What a transaction that read an old snapshot gets, in the library's own words."""

    tx: Any

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def path(self) -> Path:
        return Path(self.url.removeprefix("sqlite:///"))

    def open(self) -> Any:
        """Connect, with the library's defaults."""
        raise NotImplementedError

    def open_autocommit(self) -> Any:
        """Connect so that every statement is a transaction of its own."""
        raise NotImplementedError

    def begin(self) -> Any:
        """Begin a transaction, in the library's own way. Nothing where that is to do nothing."""

    def execute(self, sql: str) -> Any:
        """Run a statement of the caller's own; the rows, as tuples, if it has any."""
        raise NotImplementedError

    def commit(self) -> Any:
        raise NotImplementedError

    def rollback(self) -> Any:
        raise NotImplementedError

    def nest(self) -> Any:
        """Begin a transaction inside the transaction."""
        raise NotImplementedError

    def unnest(self, *, keep: bool) -> Any:
        raise NotImplementedError

    def trace(self, hear: Callable[[str], None]) -> Any:
        """On SQLite: call `hear` with every statement as it begins to run."""
        raise NotImplementedError

    def close(self) -> Any:
        raise NotImplementedError


class Party:
    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self._thread = ThreadPoolExecutor(1)
        self._runner: asyncio.Runner | None = None
        self._task: asyncio.Task[Any] | None = None

    def later(self, verb: Callable[..., Any], *args: Any, **options: Any) -> Future[Any]:
        return self._thread.submit(self._call, verb, args, options)

    def do(self, verb: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self.later(verb, *args, **options).result(PATIENCE_SECONDS)

    def _call(self, verb: Callable[..., Any], args: Any, options: Any) -> Any:
        answer = verb(*args, **options)
        if inspect.isawaitable(answer):
            self._runner = self._runner or asyncio.Runner()
            answer = self._runner.run(self._wait(answer))
        return answer

    async def _wait(self, answer: Any) -> Any:
        self._task = asyncio.current_task()
        return await answer

    def cancel(self) -> None:
        """Cancel what the party is waiting for, as a time-out of the caller's would."""
        assert self._task is not None
        self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def begin(self) -> None:
        self.do(self.kit.begin)

    def execute(self, sql: str) -> list[Any]:
        rows: list[Any] = self.do(self.kit.execute, sql)
        return rows

    def commit(self) -> None:
        self.do(self.kit.commit)

    def rollback(self) -> None:
        self.do(self.kit.rollback)

    def order(self, name: str) -> None:
        """Write a row of the caller's own."""
        self.execute(f"insert into orders values ('{name}')")

    def enqueue(self, app: Oncely, job: NewJob) -> Receipt:
        receipt: Receipt = self.enqueue_later(app, job).result(PATIENCE_SECONDS)
        return receipt

    def enqueue_later(self, app: Oncely, job: NewJob) -> Future[Any]:
        options = {name: getattr(job, name) for name in job.__struct_fields__}
        verb = app.aenqueue if self.kit.awaits else app.enqueue
        return self.later(lambda: verb(**options, tx=self.kit.tx))

    def enqueue_many(self, app: Oncely, jobs: Sequence[NewJob]) -> Receipts:
        receipts: Receipts = self.enqueue_many_later(app, jobs).result(PATIENCE_SECONDS)
        return receipts

    def enqueue_many_later(self, app: Oncely, jobs: Sequence[NewJob]) -> Future[Any]:
        verb = app.aenqueue_many if self.kit.awaits else app.enqueue_many
        return self.later(lambda: verb(jobs, tx=self.kit.tx))

    def hear_store(self) -> threading.Event:
        """On SQLite: set once the party has begun to run a statement on our tables."""
        heard = threading.Event()

        def hear(sql: str) -> None:
            if "oncely_" in sql:
                heard.set()

        self.do(self.kit.trace, hear)
        return heard

    def close(self) -> None:
        try:
            self.do(self.kit.close)
        finally:
            if self._runner is not None:
                self._thread.submit(self._runner.close).result(PATIENCE_SECONDS)
            self._thread.shutdown()
