"""The worker of one push target: its only handler, for every kind, is the request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from math import inf
from typing import Any, ClassVar

import msgspec

from oncely.flow.context import Context
from oncely.flow.events import log
from oncely.flow.handler import Handler, Registry
from oncely.flow.push import DEFAULT_SECONDS, push
from oncely.flow.push_target import Resolve, parse
from oncely.flow.push_wire import Wire
from oncely.model.errors import OncelyError
from oncely.model.outcome import Deferred, Ending, Failure, Returned, StoreFailed
from oncely.model.push import ACK_SECONDS, NOT_SENT, UNANSWERED, Previous, is_healthy
from oncely.model.push_breaker import Breaker
from oncely.model.retry import Retry
from oncely.store import push as plans
from oncely.store.claim import Claimed, Fence
from oncely.store.deliver import Settlement
from oncely.store.push_targets import Target
from oncely.worker.execution import Execution
from oncely.worker.gear import DEFAULT_RETRY, Gear
from oncely.worker.line import Line
from oncely.worker.report import Reporter, SharedReporter
from oncely.worker.worker import Worker


class PushWorker(Worker):
    """In mode `ack` it claims one job at a time, so that each has a lease of its own, which stands
    on for the receiver."""

    _pushes: ClassVar[bool] = True

    def __init__(
        self,
        gear: Gear,
        target: Target,
        *,
        resolve: Resolve | None,
        reporter: Reporter,
        **options: Any,
    ) -> None:
        self._shared = SharedReporter(reporter)
        handler = Handler(
            kind="",
            function=self._push,
            queue=target.queue,
            retry=None,
            timeout_seconds=None,
            takes_payload=True,
            payload_type=msgspec.Raw,
            is_async=True,
        )
        own = msgspec.structs.replace(gear, registry=_ForEveryKind(handler), middleware=())
        super().__init__(own, queues=[target.queue], **options)
        self._target = target
        self._wire = Wire(parse(target.url), resolve)
        self._breaker = Breaker()
        self._past = _Past(self._store)
        self._accepted: set[str] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._drains = False

    def _reports(self, concurrency: int) -> Reporter:  # noqa: ARG002
        return self._shared

    @property
    def running(self) -> int:
        return len(self._running)

    def take(self, target: Target) -> bool:
        """Go by this target from now on; False if that needs another worker."""
        changed = (target.url, target.mode) != (self._target.url, self._target.mode)
        if changed or target.problem is not None:
            return False
        self._target = target
        return True

    async def arun(self) -> None:
        try:
            await super().arun()
        finally:
            self._close()

    async def drain(self) -> int:
        """It does not wait for a receiver that is down."""
        self._drains = True
        try:
            return await super().drain()
        finally:
            self._close()

    def _close(self) -> None:
        self._wire.close()
        if self._alarm is not None:
            self._alarm.cancel()

    def _keepers(self, until_idle: bool) -> list[Coroutine[Any, Any, None]]:  # noqa: ARG002
        return [self._renew()]

    def _room(self) -> int:
        now = time.monotonic()
        room = self._breaker.room(super()._room(), len(self._running), now)
        if not room and self._breaker.is_open:
            if not self._drains:
                self._wake_in(self._breaker.wait_seconds(now))
            elif not self._stopping:  # a second stop would end what is under way
                self.stop()
        return min(room, 1) if self._target.mode == "ack" else room

    def _wake_in(self, seconds: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_later(seconds, self._wake.set)

    def _begin(self, claimed: Claimed, claimed_at: float) -> None:
        super()._begin(claimed, claimed_at)
        if self._target.mode == "ack" and self._room():
            self._wake.set()

    async def _push(self, context: Context, payload: msgspec.Raw) -> Ending:
        try:
            before = await self._past.of(context.job_id)
        except OncelyError as error:
            return StoreFailed(Failure(NOT_SENT, f"the store did not answer: {error}"))
        accepts = self._target.mode == "ack"
        limit = DEFAULT_SECONDS if accepts else inf
        ending = await push(self._wire, self._target.secrets, context, payload, before, limit)
        was_open = self._breaker.is_open
        if is_healthy(ending):
            self._breaker.succeeded()
        else:
            asked = ending.seconds if isinstance(ending, Deferred) else 0.0
            self._breaker.failed(time.monotonic(), asked)
        if self._breaker.is_open != was_open:
            told = "closed" if was_open else "opened"
            log(f"push breaker {told}", queue=self._target.queue)
        if accepts and isinstance(ending, Returned):
            try:
                await self._accept(context)
            except OncelyError as error:
                return StoreFailed(Failure(UNANSWERED, f"accepted, but not on record: {error}"))
        return ending

    async def _accept(self, context: Context) -> None:
        """Not to be cut short: who has accepted is not sent the job again before its time. If the
        lease is gone, a quick receiver has said already how the job ended."""
        fence = Fence(context.epoch, int(context.execution_id.rpartition(".")[2], 16))
        seconds = ACK_SECONDS
        if context.deadline is not None:
            seconds = context.deadline - context.begun
        asked = asyncio.ensure_future(
            self._store.ask(lambda again: plans.accept(context.job_id, fence, seconds, again=again))
        )
        try:
            await asyncio.shield(asked)
        except asyncio.CancelledError:
            await asked
            self._accepted.add(context.execution_id)
            raise
        self._accepted.add(context.execution_id)

    def _end(self, execution: Execution, ending: Ending, *, in_row: bool = False) -> None:
        """What was accepted goes on: how long it took is seen by whoever is told of its end."""
        context = execution.context
        if context.execution_id in self._accepted:
            self._settle(execution.claimed, execution.settlement(ending), context)
        else:
            super()._end(execution, ending, in_row=in_row)

    def _settle(self, claimed: Claimed, settlement: Settlement, context: Context) -> None:
        if context.execution_id in self._accepted:
            self._accepted.remove(context.execution_id)
            self._ends.leave(claimed)
            self._told.left(claimed)
        else:
            super()._settle(claimed, settlement, context)


class _ForEveryKind(Registry):
    def __init__(self, handler: Handler) -> None:
        super().__init__()
        self._handler = handler

    def get(self, kind: str) -> Handler | None:  # noqa: ARG002
        return self._handler


class _Past:
    """What is known of earlier deliveries, asked for all jobs that begin together at once."""

    def __init__(self, store: Line) -> None:
        self._store = store
        self._wanted: list[str] = []
        self._answer: asyncio.Task[dict[str, Previous]] | None = None

    async def of(self, job_id: str) -> Previous:
        self._wanted.append(job_id)
        if self._answer is None:
            self._answer = asyncio.create_task(self._ask())
        return (await asyncio.shield(self._answer)).get(job_id, "none")

    async def _ask(self) -> dict[str, Previous]:
        await asyncio.sleep(0)
        wanted, self._wanted, self._answer = self._wanted, [], None
        return await self._store.ask(lambda _: plans.known_before(wanted), "read")


def retry_of(claimed: Claimed) -> Retry:
    if claimed.queue_retry is None:
        return DEFAULT_RETRY
    return msgspec.json.decode(claimed.queue_retry, type=Retry)
