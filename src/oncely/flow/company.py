"""Group commit on an event loop: callers that come while a write is under way share the next one.

What `store/gather.py` is for threads this is for coroutines. One hop to a thread and back serves
all who wait; through a gather each of them would be woken from the thread, one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Final, Generic, TypeVar

from oncely.flow.aside import aside
from oncely.model.errors import StoreUnavailable
from oncely.store.engine import StoreClosed

Item = TypeVar("Item")
Answer = TypeVar("Answer")
_LIMIT: Final = 1_000


class Company(Generic[Item, Answer]):
    """`write` takes a batch and gives an answer to each of its items. From any event loop: each has
    a line of its own."""

    def __init__(
        self, write: Callable[[Sequence[Item]], Sequence[Answer]], executor: Executor
    ) -> None:
        self._write = write
        self._executor = executor
        self._lines: dict[asyncio.AbstractEventLoop, _Line[Item, Answer]] = {}
        self._closed = False

    def close(self) -> None:
        """Take no more. Those who wait already are still written for."""
        self._closed = True

    async def put(self, item: Item) -> Answer:
        if self._closed:
            raise StoreClosed()
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            self._lines = {k: v for k, v in self._lines.items() if not k.is_closed()}
            line = self._lines[loop] = _Line(self._write, self._executor, loop)
        return await line.join(item)


class _Line(Generic[Item, Answer]):
    def __init__(
        self,
        write: Callable[[Sequence[Item]], Sequence[Answer]],
        executor: Executor,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._write = write
        self._executor = executor
        self._loop = loop
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._writer: asyncio.Task[None] | None = None

    def join(self, item: Item) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting.append((item, future))
        if self._writer is None:
            self._writer = self._loop.create_task(self._write_until_empty())
        return future

    async def _write_until_empty(self) -> None:
        try:
            while self._waiting:
                taken, self._waiting = self._waiting[:_LIMIT], self._waiting[_LIMIT:]
                # Who was cancelled before the write began wants none.
                batch = [each for each in taken if not each[1].done()]
                if batch:
                    self._tell(batch, await self._answers([item for item, _ in batch]))
        finally:
            self._writer = None

    async def _answers(self, items: list[Item]) -> Sequence[Answer | Exception]:
        try:
            return await aside(self._executor, self._write, items)
        except Exception:
            return await aside(self._executor, self._each, items)

    def _each(self, items: list[Item]) -> Sequence[Answer | Exception]:
        """One of them may be the reason that they failed together, and the others must not suffer
        for it. But if the store is the reason, they must not wait for it one after another."""
        answers: list[Any] = []
        for item in items:
            try:
                answers += self._write([item])
            except StoreUnavailable as error:
                return [*answers, *[error] * (len(items) - len(answers))]
            except Exception as error:
                answers.append(error)
        return answers

    def _tell(
        self,
        batch: list[tuple[Item, asyncio.Future[Answer]]],
        answers: Sequence[Answer | Exception],
    ) -> None:
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
