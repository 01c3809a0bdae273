"""What callers hand in and get back: new jobs, receipts, and jobs as they stand in the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

import msgspec

from oncely.model.effect import Source, Verb
from oncely.model.transition import State


class Options(TypedDict, total=False):
    """The options of `Oncely.enqueue`, explained there."""

    queue: str | None
    priority: int
    delay: float | timedelta | None
    run_at: datetime | None
    unique_key: str | None
    idempotency_key: str | None
    group_key: str | None
    max_attempts: int | None
    timeout: float | None
    tags: Sequence[str]


class NewJob(msgspec.Struct, frozen=True):
    """A job to enqueue, with the options of `Oncely.enqueue`."""

    kind: str
    payload: Any = None
    queue: str | None = None
    priority: int = 0
    delay: float | timedelta | None = None
    run_at: datetime | None = None
    unique_key: str | None = None
    idempotency_key: str | None = None
    group_key: str | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    tags: Sequence[str] = ()


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The answer to one enqueue: `inserted` is False if a repeat was recognised."""

    job_id: str
    inserted: bool
    state: State


class Receipts(msgspec.Struct, frozen=True):
    """The answer to `enqueue_many`; `receipts` are in the order of the input."""

    inserted: int
    skipped: int
    receipts: list[Receipt]


class Execution(msgspec.Struct, frozen=True):
    """One delivery of a job that has ended, and how."""

    epoch: int
    attempt: int
    outcome: str
    worker: str | None
    started_at: datetime | None
    ended_at: datetime
    error: Any = None


class Resolution(msgspec.Struct, frozen=True):
    """Somebody's word on an effect: whether it happened, or that a replay shall forget it."""

    at: datetime
    happened: bool
    """Of one that was forgotten: whether it was known to have happened."""
    by: str
    note: str | None = None
    forgotten: bool = False


class Effect(msgspec.Struct, frozen=True):
    """An effect of a job, as the ledger has it.

    `epoch` is that of the execution that began it last. `source` is how its end is known, None
    while it is not. `arguments` are the JSON text that is kept of them, cut if it is long.
    """

    name: str
    verb: Verb
    state: Literal["begun", "in_doubt", "done"]
    source: Source | None
    epoch: int
    begun_at: datetime
    ended_at: datetime | None
    arguments: str | None
    result: Any
    resolutions: list[Resolution] = []


class Brief(msgspec.Struct, frozen=True):
    """A job as a list shows it: without payload, result and traceback."""

    job_id: str
    kind: str
    queue: str
    state: State
    attempt: int
    max_attempts: int | None
    idempotency_key: str | None
    unique_key: str | None
    group_key: str | None
    tags: list[str]
    created_at: datetime
    due_at: datetime
    ended_at: datetime | None
    started_at: datetime | None
    error_type: str | None
    error_message: str | None


class Job(msgspec.Struct, frozen=True):
    """A job as it stands in the store."""

    job_id: str
    kind: str
    queue: str
    state: State
    payload: Any
    result: Any
    error: Any
    priority: int
    attempt: int
    max_attempts: int | None
    timeout: float | None
    idempotency_key: str | None
    unique_key: str | None
    group_key: str | None
    tags: list[str]
    created_at: datetime
    due_at: datetime
    ended_at: datetime | None
    executions: list[Execution] = []
    effects: list[Effect] = []
