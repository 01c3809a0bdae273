"""Group commit: callers that come while a write is under way share the next one.

A caller that finds nothing under way writes at once, in its own thread. Whoever comes meanwhile
waits together, and a thread of the store writes for all of them. Each gets its own answer, after
the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from threading import Lock
from typing import Final, Generic, TypeVar

from oncely.model.errors import StoreUnavailable
from oncely.store.engine import StoreClosed

Item = TypeVar("Item")
Answer = TypeVar("Answer")
_LIMIT: Final = 1_000


class Gather(Generic[Item, Answer]):
    """`write` takes a batch and gives an answer to each of its items."""

    def __init__(
        self, write: Callable[[Sequence[Item]], Sequence[Answer]], executor: Executor
    ) -> None:
        self._write = write
        self._executor = executor
        self._lock = Lock()
        self._waiting: list[tuple[Item, Future[Answer]]] = []
        self._busy = False
        self._closed = False

    def close(self) -> None:
        """Take no more. Those who wait already are still written for: else a busy store would
        never come to its end."""
        with self._lock:
            self._closed = True

    def put(self, item: Item) -> Answer:
        """If nothing is under way, the caller writes now."""
        future: Future[Answer] | None = None
        with self._lock:
            self._refuse_if_closed()
            if self._busy:
                future = Future()
                self._waiting.append((item, future))
            self._busy = True
        if future is not None:
            return future.result()
        try:
            return self._write([item])[0]
        finally:
            if self._more():
                self._hand_over()

    def put_later(self, item: Item) -> Future[Answer]:
        future: Future[Answer] = Future()
        with self._lock:
            self._refuse_if_closed()
            self._waiting.append((item, future))
            idle, self._busy = not self._busy, True
        if idle:
            self._hand_over()
        return future

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreClosed()

    def _hand_over(self) -> None:
        try:
            self._executor.submit(self._write_until_empty)
        except RuntimeError:
            # The store is being closed and its threads are gone: those who wait must hear of it.
            self._write_until_empty()

    def _write_until_empty(self) -> None:
        self._write_next()
        while self._more():
            self._write_next()

    def _more(self) -> bool:
        with self._lock:
            self._busy = bool(self._waiting)
            return self._busy

    def _write_next(self) -> None:
        with self._lock:
            taken, self._waiting = self._waiting[:_LIMIT], self._waiting[_LIMIT:]
        # An async caller that was cancelled before its write began wants none.
        batch = [(item, future) for item, future in taken if future.set_running_or_notify_cancel()]
        try:
            answers = self._write([item for item, _ in batch])
        except Exception:
            self._write_each(batch)
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                future.set_result(answer)

    def _write_each(self, batch: list[tuple[Item, Future[Answer]]]) -> None:
        """One of them may be the reason that they failed together, and the others must not suffer
        for it. But if the store is the reason, they must not wait for it one after another."""
        unavailable: StoreUnavailable | None = None
        for item, future in batch:
            try:
                if unavailable is not None:
                    raise unavailable
                future.set_result(self._write([item])[0])
            except Exception as error:
                if isinstance(error, StoreUnavailable):
                    unavailable = error
                future.set_exception(error)
