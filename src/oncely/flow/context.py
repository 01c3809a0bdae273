"""`Context`: what a handler knows of the execution it is, and the verbs of its effects."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ClassVar, Protocol, Unpack

from msgspec import UNSET, Struct

from oncely.flow.complete import Completion
from oncely.flow.drive import Steps, adrive, drive
from oncely.flow.effect import Effects
from oncely.flow.once import once
from oncely.flow.writes import Writes
from oncely.model import payload
from oncely.model.effect import OnDoubt, check_name
from oncely.model.errors import InvalidInput
from oncely.model.job import NewJob, Options, Receipt
from oncely.model.keys import join
from oncely.store.claim import Claimed
from oncely.store.engine import Engine


class Enqueues(Protocol):
    """What children are put in with."""

    def one(self, new: NewJob, tx: Any) -> Receipt: ...

    async def aone(self, new: NewJob, tx: Any) -> Receipt: ...


class Tools(Struct, frozen=True, kw_only=True):
    """What the verbs of a context need, the same for all executions."""

    engine: Engine
    store_threads: Executor
    enqueuer: Enqueues
    writes: Writes


class Context:
    """The first argument of every handler.

    `job_id` is the same in every delivery and replay, `execution_id` new in each. `deadline` is
    the moment on the loop's clock (`time.monotonic`) at which the execution times out, or None.
    In an `async def` handler the verbs are awaited, in a `def` handler they are not. `is_drill` is
    True where a job that is completed is delivered once more, to see what that would repeat.
    """

    is_drill: ClassVar[bool] = False

    def __init__(
        self,
        claimed: Claimed,
        *,
        max_attempts: int,
        deadline: float | None,
        tools: Tools,
        is_async: bool,
    ) -> None:
        self.job_id = claimed.job_id
        self.max_attempts = max_attempts
        self.kind = claimed.kind
        self.queue = claimed.queue
        self.deadline = deadline
        self.begun = time.monotonic()
        self.thread: Future[Any] | None = None
        self._payload: Any = UNSET
        self._claimed = claimed
        self._tools = tools
        self._is_async = is_async

    @property
    def claimed(self) -> Claimed:
        return self._claimed

    @property
    def execution_id(self) -> str:
        return self._claimed.execution_id

    @property
    def attempt(self) -> int:
        return self._claimed.attempt

    @property
    def epoch(self) -> int:
        return self._claimed.fence.epoch

    @property
    def payload(self) -> Any:
        if self._payload is UNSET:
            self._payload = payload.decode(self._claimed.payload)
        return self._payload

    # Made when they are asked for: most executions need neither.
    @once
    def effects(self) -> Effects:
        return Effects(self.job_id, self._claimed.fence, self._tools.writes)

    @once
    def completion(self) -> Completion:
        tools = self._tools
        return Completion(tools.engine, tools.store_threads, self._claimed, self.effects)

    @property
    def has_effects(self) -> bool:
        """Whether it has used a verb of the effect layer."""
        return "effects" in self.__dict__

    @property
    def _has_completion(self) -> bool:
        return "completion" in self.__dict__

    @property
    def only_returned(self) -> bool:
        """Whether there is nothing to tell of it but its result."""
        return not self.has_effects or not (self.may_be_completed or self.effects.repeats)

    @property
    def is_completed(self) -> bool:
        """Whether the handler has completed its job itself, and knows it."""
        return self._has_completion and self.completion.confirmed

    @property
    def may_be_completed(self) -> bool:
        """Whether the handler may have completed its job itself."""
        return self._has_completion and self.completion.begun

    @once
    def _children(self) -> Counter[tuple[str, str | None]]:
        return Counter()

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that names the job."""
        return logging.LoggerAdapter(
            logging.getLogger("oncely.job"),
            {"job_id": self.job_id, "execution_id": self.execution_id, "kind": self.kind},
        )

    def key(self, name: str) -> str:
        """A key for the other side, the same in every delivery and replay of this job."""
        return join((self.job_id, check_name(name)))

    def step(
        self, name: str, function: Callable[..., Any], *args: Any, key_ttl: float | None = None
    ) -> Any:
        """Do what may be repeated: `function(*args)`, until its result is recorded, then never
        again. `key_ttl` is how many seconds the other side remembers `ctx.key(name)`: after that a
        repeat is in doubt."""
        return self._perform(self.effects.step(name, function, args, key_ttl))

    def fence(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        verify: Callable[..., Any] | None = None,
        in_doubt: OnDoubt = "hold",
        not_done: tuple[type[BaseException], ...] = (),
    ) -> Any:
        """Do what must not be repeated: `function(*args)`, at most once.

        If an execution ended in the middle of it, `verify(*args)` is asked: None or False means
        that it did not happen, anything else that it did, and is its result. Without `verify` the
        job is held for a person (`hold`), or it is done again (`retry`), or taken for done
        (`assume_done`). An exception that is one of `not_done` proves that nothing happened.
        """
        return self._perform(
            self.effects.fence(
                name, function, args, verify=verify, in_doubt=in_doubt, not_done=not_done
            )
        )

    def transaction(self) -> Any:
        """A transaction on the store's database, with `async with` or, in a `def` handler, `with`.
        At its end the job is completed in it, under the fence: all of it is there, or nothing."""
        return self.completion.atransaction() if self._is_async else self.completion.transaction()

    def complete(self, result: Any = None, *, tx: Any) -> Any:
        """Complete the job in your own open transaction on the store's database, or in that of
        `ctx.transaction()`. `LeaseLost` if the job is not this execution's any more: let it roll
        your transaction back."""
        if self._is_async:
            return self.completion.acomplete(result, tx)
        return self.completion.complete(result, tx)

    def enqueue(
        self, kind: str, payload: Any = None, *, tx: Any = None, **options: Unpack[Options]
    ) -> Any:
        """Enqueue a child. Without an idempotency key of its own it gets one that is derived from
        this job, the kind and how many such children came before: a rerun makes no second child."""
        if tx is None and self._has_completion and self.completion.is_inside:
            raise InvalidInput(
                f"a child of kind {kind!r} inside ctx.transaction(): give tx=tx, so that it is "
                "there if and only if the transaction commits"
            )
        if options.get("idempotency_key") is None:
            options["idempotency_key"] = self._child_key(kind, options.get("queue"))
        new = NewJob(kind, payload, **options)
        enqueuer = self._tools.enqueuer
        return enqueuer.aone(new, tx) if self._is_async else enqueuer.one(new, tx)

    def _child_key(self, kind: str, queue: str | None) -> str:
        if not isinstance(kind, str):
            raise InvalidInput(f"kind is {kind!r}; expected a string")
        self._children[kind, queue] += 1
        return join((self.job_id, "child", kind, self._children[kind, queue]))

    def _perform(self, steps: Steps[Any]) -> Any:
        if self._is_async:
            return adrive(steps, self._tools.engine, self._tools.store_threads)
        return drive(steps, self._tools.engine)
