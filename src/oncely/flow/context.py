"""`Context`: what a handler knows of the execution it is, and the verbs of its effects."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, ClassVar, Protocol, Unpack

from msgspec import UNSET, Struct

from oncely.flow.complete import Completion
from oncely.flow.drive import adrive, drive
from oncely.flow.effect import Effects
from oncely.flow.issued_verbs import IssuedVerb
from oncely.flow.once import once
from oncely.flow.protocol import Terms, fence_terms, step_terms
from oncely.flow.writes import Writes
from oncely.model import payload
from oncely.model.effect import OnDoubt
from oncely.model.effect_options import Fence, NotDoneRule, Step, key_name
from oncely.model.errors import InvalidInput, StoreUnavailable
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
    issued: list[IssuedVerb] | None = None
    """The verbs that an async handler has called."""

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
        effects = self.effects if self.has_effects else None
        return effects is None or not (self.may_be_completed or effects.repeats or effects.renamed)

    @property
    def is_completed(self) -> bool:
        """Whether the handler has completed its job itself, and knows it."""
        return self._has_completion and self.completion.confirmed

    @property
    def may_be_completed(self) -> bool:
        """Whether the handler may have completed its job itself."""
        return self._has_completion and self.completion.begun

    @property
    def may_hold_lease(self) -> bool:
        """Whether the handler may have a transaction open in which it has completed its job."""
        return self.may_be_completed and not self.is_completed

    def is_store_error(self, error: BaseException) -> bool:
        """Whether the store failed under one of the verbs, so that the handler is not to blame."""
        if isinstance(error, StoreUnavailable):
            return True
        return self._has_completion and self.completion.store_error is error

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

    def key(self, effect: str | Step | Fence, /) -> str:
        """A key for the other side, the same in every delivery and replay of this job. For an
        effect with `was=` it is the key of its oldest name."""
        return join((self.job_id, key_name(effect)))

    def step(
        self,
        effect: str | Step,
        function: Callable[..., Any],
        /,
        *args: Any,
        key_ttl: float | None = None,
        **kwargs: Any,
    ) -> Any:
        """Do what may be repeated: `function(*args, **kwargs)`, until its result is recorded, then
        never again. `effect` is its name, or a `Step` with its options. `key_ttl` is how many
        seconds the other side remembers `ctx.key(effect)`: after that a repeat is in doubt."""
        return self._perform(step_terms(effect, function, args, kwargs, key_ttl))

    def fence(
        self,
        effect: str | Fence,
        function: Callable[..., Any],
        /,
        *args: Any,
        verify: Callable[..., Any] | None = None,
        in_doubt: OnDoubt | None = None,
        not_done: NotDoneRule | None = None,
        **kwargs: Any,
    ) -> Any:
        """Do what must not be repeated: `function(*args, **kwargs)`, at most once. `effect` is its
        name, or a `Fence` with its options.

        If an execution ended in the middle of it, `verify(*args, **kwargs)` is asked: None or False
        means that it did not happen, anything else that it did, and is its result. Without `verify`
        the job is held for a person (`hold`, the default), or it is done again (`retry`), or taken
        for done (`assume_done`). `NotDone`, `Defer`, `Nack` and `Cancel`, raised by the function,
        say that nothing happened. So does an exception that `not_done` names: types of exceptions,
        or a function of the exception such as `http_refused`.
        """
        return self._perform(
            fence_terms(
                effect,
                function,
                args,
                kwargs,
                verify=verify,
                in_doubt=in_doubt,
                not_done=not_done,
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
            return self._issue("ctx.complete()", self.completion.acomplete(result, tx))
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
        if self._is_async:
            return self._issue(f"ctx.enqueue({kind!r})", enqueuer.aone(new, tx))
        return enqueuer.one(new, tx)

    def _child_key(self, kind: str, queue: str | None) -> str:
        if not isinstance(kind, str):
            raise InvalidInput(f"kind is {kind!r}; expected a string")
        self._children[kind, queue] += 1
        return join((self.job_id, "child", kind, self._children[kind, queue]))

    def _perform(self, terms: Terms) -> Any:
        tools = self._tools
        steps = self.effects.perform(terms)
        if not self._is_async:
            return drive(steps, tools.engine)
        called = f"ctx.{terms.verb}({terms.name!r})"
        return self._issue(called, adrive(steps, tools.engine, tools.store_threads))

    def _issue(self, called: str, verb: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Remember a verb that the handler has to await, and the line of the call."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals is globals():
            frame = frame.f_back
        if self.issued is None:
            self.issued = []
        self.issued.append(IssuedVerb(called, verb, frame.f_code, frame.f_lasti))
        return verb
