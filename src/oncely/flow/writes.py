"""What concurrent executions write into the ledger shares commits: intents with intents, ends with
ends. Each goes on when its own is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Final, Generic, TypeVar

from oncely.flow.aside import aside
from oncely.model.effect import Entry
from oncely.model.errors import LeaseLost, StoreUnavailable
from oncely.store import effects
from oncely.store.effects import Effect, Evidence, Recorded, Written
from oncely.store.engine import Engine
from oncely.store.gather import Gather

Item = TypeVar("Item")
Answer = TypeVar("Answer")
_GROUP: Final = 250
"""So many share a commit. With more, all handlers would wait for the store and then the store for
all of them."""
Begun = Entry | Written | LeaseLost | StoreUnavailable | None


class Shared(Generic[Item, Answer]):
    """One kind of write, from threads and from an event loop. `write` takes a batch and gives an
    answer to each of its items."""

    def __init__(
        self, write: Callable[[Sequence[Item]], Sequence[Answer]], executor: Executor
    ) -> None:
        self._gather: Gather[Item, Answer] = Gather(write, executor)
        self._write = write
        self._executor = executor
        self._on_loop: dict[asyncio.AbstractEventLoop, _OnLoop] = {}
        self.put = self._gather.put
        self.close = self._gather.close

    async def aput(self, item: Item) -> Answer:
        """A cancellation must not come between a write and our knowing of it."""
        loop = asyncio.get_running_loop()
        on_loop = self._on_loop.get(loop)
        if on_loop is None:
            self._on_loop = {k: v for k, v in self._on_loop.items() if not k.is_closed()}
            on_loop = self._on_loop[loop] = _OnLoop(self._all, loop)
        place = on_loop.join(item)
        answer: Answer
        try:
            answer = await place.answer
        except asyncio.CancelledError:
            if place.over:
                raise
            place.answer = loop.create_future()
            await asyncio.wait([place.answer])
            raise
        return answer

    async def _all(self, items: Sequence[Item]) -> Sequence[Any]:
        """One of them may be the reason that they fail together: then each is written alone, by a
        gather that sees to that."""
        try:
            return await aside(self._executor, self._write, items)
        except StoreUnavailable as error:
            return [error] * len(items)
        except Exception:
            alone = [asyncio.wrap_future(self._gather.put_later(item)) for item in items]
            return await asyncio.gather(*alone, return_exceptions=True)


class _OnLoop:
    """Those who come while a write is under way share the next one."""

    def __init__(
        self,
        write: Callable[[Sequence[Any]], Any],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._write = write
        self._loop = loop
        self._waiting: list[_Place] = []
        self._writer: asyncio.Task[None] | None = None

    def join(self, item: Any) -> _Place:
        place = _Place(item, self._loop.create_future())
        self._waiting.append(place)
        if self._writer is None:
            self._writer = self._loop.create_task(self._write_until_empty())
        return place

    async def _write_until_empty(self) -> None:
        while self._waiting:
            await self._until_quiet()
            places, self._waiting = self._waiting[:_GROUP], self._waiting[_GROUP:]
            answers = await self._write([place.item for place in places])
            for place, answer in zip(places, answers, strict=True):
                place.end(answer)
        self._writer = None

    async def _until_quiet(self) -> None:
        """Whose handlers run in the same turn of the loop, or in the one after, come along."""
        count = 0
        while count < len(self._waiting) < _GROUP:
            count = len(self._waiting)
            await asyncio.sleep(0)


class _Place:
    __slots__ = ("answer", "item", "over")

    def __init__(self, item: Any, answer: asyncio.Future[Any]) -> None:
        self.item = item
        self.answer = answer
        self.over = False

    def end(self, answer: Any) -> None:
        self.over = True
        if self.answer.cancelled():
            return
        if isinstance(answer, BaseException):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class Writes:
    """Of one store."""

    def __init__(self, engine: Engine, executor: Executor) -> None:
        self._engine = engine
        self.begin: Shared[Effect, Begun] = Shared(self._begin, executor)
        self.done: Shared[Evidence, Recorded | None] = Shared(self._done, executor)

    def close(self) -> None:
        self.begin.close()
        self.done.close()

    def _begin(self, intents: Sequence[Effect]) -> list[Begun]:
        return self._engine.run(lambda again: effects.begin_all(intents, again=again), "write")

    def _done(self, known: Sequence[Evidence]) -> list[Recorded | None]:
        return self._engine.run(lambda _: effects.done_all(known), "transaction")
