"""The plan that reads all that happened to a job."""

from __future__ import annotations

from typing import Any, Final, Literal, assert_never

import msgspec

from oncely.model.errors import JobNotFound
from oncely.model.story import (
    Act,
    Delivery,
    Enqueued,
    Lease,
    Now,
    Rehearsal,
    Renaming,
    Repeat,
    Story,
    Word,
    tell,
)
from oncely.store.look import moment, moment_of, value
from oncely.store.plan import Plan, Row, Statement

REPEATS: Final = 100
"""So many repeats of a job are kept, at each boundary: its story needs no more."""


class _Told(msgspec.Struct, frozen=True):
    """A row of the statement `story`; the fields that do not fit its source are None."""

    source: Literal[
        "now",
        "lease",
        "delivery",
        "rest",
        "repeat",
        "effect",
        "renamed",
        "resolution",
        "drill",
    ]
    at: int
    began: int | None
    until: int | None
    outcome: Any
    epoch: int | None
    attempt: Any
    worker: Any
    boundary: Any
    key: Any
    error: str | None


def story(job_id: str) -> Plan[Story]:
    enqueued = yield Statement("story_job", {"id": job_id})
    rows = yield Statement("story", {"id": job_id})
    now: Now | None = None
    lease: Lease | None = None
    deliveries: list[Delivery] = []
    repeats: list[Repeat] = []
    acts: list[Act] = []
    renamings: list[Renaming] = []
    words: list[Word] = []
    drills: list[Rehearsal] = []
    for row in rows:
        match _fact(_Told(*row)):
            case Now() as now:
                pass
            case Lease() as lease:
                pass
            case Delivery() as delivery:
                deliveries.append(delivery)
            case Repeat() as repeat:
                repeats.append(repeat)
            case Act() as act:
                acts.append(act)
            case Renaming() as renaming:
                renamings.append(renaming)
            case Word() as word:
                words.append(word)
            case Rehearsal() as drill:
                drills.append(drill)
    if not enqueued or now is None:
        raise JobNotFound(job_id)
    first = _enqueued(job_id, enqueued[0])
    return tell(first, now, lease, deliveries, repeats, acts, words, drills, renamings)


def _enqueued(job_id: str, row: Row) -> Enqueued:
    kind, queue, idempotency_key, unique_key, created, due = row
    return Enqueued(job_id, kind, queue, idempotency_key, unique_key, moment(created), moment(due))


def _fact(row: _Told) -> Now | Lease | Delivery | Repeat | Act | Renaming | Word | Rehearsal:
    at = moment(row.at)
    began = moment_of(row.began)
    until = moment_of(row.until)
    match row.source:
        case "now":
            return Now(at, row.outcome, until or at, row.attempt)
        case "lease":
            return Lease(row.epoch or 0, row.worker, at, until or at, row.outcome is not None)
        case "delivery" | "rest":
            error = value(row.error)
            return Delivery(
                row.outcome, row.epoch, row.attempt, row.worker, began, at, until, error
            )
        case "repeat":
            return Repeat(
                at, row.boundary, row.key, row.epoch, row.attempt, row.worker, row.outcome
            )
        case "effect":
            return Act(row.key, row.outcome, row.boundary, row.epoch or 0, at, until)
        case "renamed":
            return Renaming(at, row.key, row.epoch or 0, value(row.error))
        case "resolution":
            return Word(at, row.key, row.outcome, row.worker, value(row.error))
        case "drill":
            found = value(row.error)
            return Rehearsal(at, row.outcome, row.epoch, row.worker, **found)
        case _:
            assert_never(row.source)
