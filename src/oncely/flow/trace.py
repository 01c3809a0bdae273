"""Traces: which one a job belongs to travels in the job, from the enqueue to its effects.

Where the program has set up OpenTelemetry there are spans. Where it has not, nothing of it is
imported, and what came with a request or a job is passed on as it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType, TracebackType
from typing import Any, Final, Self

from oncely.model.job import Receipt
from oncely.model.outcome import Doubted, Ending, Raised, StoreFailed
from oncely.store.claim import Claimed

_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
)
_carried: ContextVar[str | None] = ContextVar("oncely_traceparent", default=None)


class Span:
    """One that nobody records."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def tell(self, **attributes: Any) -> None: ...

    def enqueued(self, receipts: Sequence[Receipt]) -> None: ...

    def ended(self, ending: Ending) -> None: ...


UNRECORDED: Final = Span()


class _Recorded(Span):
    def __init__(
        self, otel: ModuleType, name: str, role: str, parent: str | None, attributes: dict[str, Any]
    ) -> None:
        self._otel = otel
        self._context = None if parent is None else _remote(otel, parent)
        self._span = otel.get_tracer("oncely").start_span(
            name,
            context=self._context,
            kind=otel.SpanKind[role],
            attributes={"messaging.system": "oncely", **attributes},
        )

    def __enter__(self) -> Self:
        from opentelemetry.context import attach

        self._token = attach(self._otel.set_span_in_context(self._span, self._context))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        from opentelemetry.context import detach

        if error is not None and kind is not GeneratorExit:
            self._fail(type(error).__name__)
            self._span.record_exception(error)
        self._span.end()
        detach(self._token)

    def tell(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            self._span.set_attribute(f"oncely.{name}", value)

    def enqueued(self, receipts: Sequence[Receipt]) -> None:
        if len(receipts) == 1:
            self._span.set_attribute("messaging.message.id", receipts[0].job_id)
        else:
            self._span.set_attribute("messaging.batch.message_count", len(receipts))
        self.tell(deduplicated=sum(not each.inserted for each in receipts))

    def ended(self, ending: Ending) -> None:
        store_failed = isinstance(ending, StoreFailed)
        self.tell(ending="store_failed" if store_failed else type(ending).__name__.lower())
        if isinstance(ending, Raised | Doubted | StoreFailed):
            self._fail(f"{ending.failure.type}: {ending.failure.message}")

    def _fail(self, told: str) -> None:
        self._span.set_status(self._otel.StatusCode.ERROR, told)


def current() -> str | None:
    """The `traceparent` of what goes on now, for what it sets going."""
    otel = _otel()
    return (otel and _of_span(otel)) or _carried.get()


@contextmanager
def carrying(traceparent: str | None) -> Iterator[None]:
    """What is inside belongs to that trace. One that is malformed is as good as none."""
    if traceparent is not None and _TRACEPARENT.fullmatch(traceparent) is None:
        traceparent = None
    token = _carried.set(traceparent)
    try:
        yield
    finally:
        _carried.reset(token)


def record_exception(error: BaseException) -> None:
    """In the span that is current: the type, the message and the lines where it was raised."""
    otel = _otel()
    if otel is not None:
        otel.get_current_span().record_exception(error)


def carry_on(claimed: Claimed) -> None:
    """What this task does belongs to the trace of the job."""
    if claimed.traceparent is not None:
        _carried.set(claimed.traceparent)


def enqueueing(kind: Any = "") -> Span:
    otel = _otel()
    if otel is None:
        return UNRECORDED
    parent = None if _of_span(otel) else _carried.get()
    attributes = {"messaging.operation.type": "send", "messaging.operation.name": "enqueue"}
    return _Recorded(otel, f"enqueue {kind}".strip(), "PRODUCER", parent, attributes)


def executing(claimed: Claimed) -> Span:
    """Of the trace that the job was enqueued in, whatever the worker itself is part of."""
    otel = _otel()
    if otel is None:
        return UNRECORDED
    attributes = {
        "messaging.operation.type": "process",
        "messaging.operation.name": "execute",
        "messaging.destination.name": claimed.queue,
        "messaging.message.id": claimed.job_id,
        "oncely.kind": claimed.kind,
        "oncely.execution_id": claimed.execution_id,
        "oncely.attempt": claimed.attempt,
        "oncely.epoch": claimed.fence.epoch,
    }
    name = f"execute {claimed.kind}"
    return _Recorded(otel, name, "CONSUMER", claimed.traceparent, attributes)


def effecting(verb: str, name: str, job_id: str | None = None) -> Span:
    otel = _otel()
    if otel is None:
        return UNRECORDED
    attributes = {"oncely.verb": verb, "oncely.effect": name}
    if job_id is not None:
        attributes["messaging.message.id"] = job_id
    return _Recorded(otel, f"{verb} {name}".strip(), "INTERNAL", None, attributes)


def _otel() -> ModuleType | None:
    """OpenTelemetry, if the program has set it up. Then it has imported it, so we need not."""
    otel = sys.modules.get("opentelemetry.trace")
    # While another thread is at importing it, it is there and not whole.
    find = getattr(otel, "get_tracer_provider", None)
    if otel is None or find is None or isinstance(find(), otel.ProxyTracerProvider):
        return None
    return otel


def _of_span(otel: ModuleType) -> str | None:
    found = otel.get_current_span().get_span_context()
    if not found.is_valid:
        return None
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


def _remote(otel: ModuleType, traceparent: str) -> Any:
    from opentelemetry.context import Context

    parts = _TRACEPARENT.fullmatch(traceparent)
    if parts is None:
        return Context()
    trace_id, span_id, flags = (int(part, 16) for part in parts.groups())
    parent = otel.SpanContext(trace_id, span_id, True, otel.TraceFlags(flags))
    return otel.set_span_in_context(otel.NonRecordingSpan(parent), Context())
