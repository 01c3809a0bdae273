"""The life of one execution: from the claim to what the store is told of its end."""

from __future__ import annotations

import random
import time
from collections.abc import Coroutine
from concurrent.futures import Executor
from typing import Any, Final

import msgspec

from oncely.flow.context import Context
from oncely.flow.execute import execute
from oncely.model.outcome import NO_HANDLER, Ending, Failure, Unhandled, decide
from oncely.model.retry import Retry
from oncely.store import deliver
from oncely.store.claim import Claimed
from oncely.store.deliver import Settlement
from oncely.worker.gear import DEFAULT_RETRY, MAX_RESULT_BYTES, Gear

_NO_HANDLER_SECONDS: Final = 30.0


class Execution:
    __slots__ = ("_gear", "_retry", "claimed", "context", "handler", "timeout_seconds")

    def __init__(self, claimed: Claimed, gear: Gear) -> None:
        handler = gear.registry.get(claimed.kind)
        timeout = (
            claimed.timeout_seconds
            or (handler and handler.timeout_seconds)
            or claimed.queue_timeout_seconds
        )
        retry = (handler and handler.retry) or _retry_of_queue(claimed)
        self.claimed = claimed
        self.context = Context(
            claimed,
            max_attempts=claimed.max_attempts or retry.max_attempts,
            deadline=None if timeout is None else time.monotonic() + timeout,
            tools=gear,
            is_async=handler is None or handler.is_async,
        )
        self._gear = gear
        self.handler = handler
        self._retry = retry
        self.timeout_seconds = timeout

    def run(self, threads: Executor) -> Coroutine[Any, Any, Ending]:
        """Call the handler; a `def` runs in one of the threads."""
        if self.handler is None:
            return _unhandled(self.claimed.kind)
        return execute(
            self.handler,
            self.claimed,
            self.context,
            middleware=self._gear.middleware,
            threads=threads,
            timeout_seconds=self.timeout_seconds,
            max_result_bytes=MAX_RESULT_BYTES,
        )

    def settlement(self, ending: Ending) -> Settlement:
        claimed = self.claimed
        standing = claimed.standing(self.context.max_attempts)
        verdict = decide(ending, standing, self._retry, random.random())
        return deliver.settlement(claimed, verdict)


async def _unhandled(kind: str) -> Ending:
    failure = Failure(
        NO_HANDLER,
        f"this worker has no handler for kind {kind!r}: import the module that has it, or give "
        "such jobs a queue of their own",
    )
    return Unhandled(_NO_HANDLER_SECONDS, failure)


def _retry_of_queue(claimed: Claimed) -> Retry:
    if claimed.queue_retry is None:
        return DEFAULT_RETRY
    return msgspec.json.decode(claimed.queue_retry, type=Retry)
