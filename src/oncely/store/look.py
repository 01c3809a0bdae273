"""Plans that read: jobs as they stand, with the deliveries that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from oncely.model import payload
from oncely.model.job import Effect, Execution, Job, Resolution
from oncely.model.transition import ENDED, State
from oncely.store.plan import Plan, Row, document

FIRST: Final = "00000000-0000-0000-0000-000000000000"
LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ENDED: Final = 12
"""The column with the end of the last execution."""


def get(job_id: str) -> Plan[Job | None]:
    jobs = yield from look_at([job_id])
    return jobs[0] if jobs else None


def at_rest(ids: Sequence[str]) -> Plan[tuple[list[Job], list[str]]]:
    """Those of the jobs that have ended, and the ids that are not in the store."""
    rows = yield document("find_jobs", [{"id": id} for id in ids])
    states: dict[str, State] = {row[0]: row[1] for row in rows}
    found = yield from look_at([id for id in ids if states.get(id) in ENDED])
    ended = [job for job in found if job.state in ENDED]
    return ended, [id for id in ids if id not in states]


def look_at(ids: Sequence[str]) -> Plan[list[Job]]:
    if not ids:
        return []
    records = [{"id": id} for id in ids]
    rows = yield document("look", records)
    executions: dict[str, list[Execution]] = {}
    for row in (yield document("look_executions", records)):
        executions.setdefault(row[0], []).append(_execution(*row[1:]))
    effects = yield from _effects(records)
    found = {row[0]: _job(row, executions.get(row[0], []), effects.get(row[0], [])) for row in rows}
    return [found[id] for id in ids if id in found]


def _effects(records: list[dict[str, str]]) -> Plan[dict[str, list[Effect]]]:
    rows = yield document("look_effects", records)
    answers: dict[tuple[str, str], list[Resolution]] = {}
    for job_id, name, at, happened, by, note, forgotten in (
        yield document("look_resolutions", records)
    ):
        answers.setdefault((job_id, name), []).append(
            Resolution(moment(at), bool(happened), by, note, bool(forgotten))
        )
    effects: dict[str, list[Effect]] = {}
    for job_id, name, verb, state, source, epoch, begun, ended, arguments, result in rows:
        effects.setdefault(job_id, []).append(
            Effect(
                name=name,
                verb=verb,
                state=state,
                source=source,
                epoch=epoch,
                begun_at=moment(begun),
                ended_at=moment_of(ended),
                arguments=arguments,
                result=value(result),
                resolutions=answers.get((job_id, name), []),
            )
        )
    return effects


def _job(row: Row, executions: list[Execution], effects: list[Effect]) -> Job:
    same, (started, text, result, error, priority, timeout, epoch, worker) = shared(row)
    if epoch is not None:
        last = Execution(
            epoch=epoch,
            attempt=same["attempt"],
            outcome=same["state"],
            worker=worker,
            started_at=moment_of(started),
            ended_at=moment(row[_ENDED]),
            error=value(error),
        )
        executions = [*executions, last]
    return Job(
        **same,
        payload=value(text),
        result=value(result),
        error=value(error),
        priority=priority,
        timeout=timeout,
        executions=executions,
        effects=effects,
    )


def shared(row: Row) -> tuple[dict[str, Any], Sequence[Any]]:
    """What a job and a brief one have in common, in the columns with which the rows of both begin;
    and the other columns."""
    job_id, kind, queue, state, attempt, max_attempts, *others = row
    idempotency_key, unique_key, group_key, tags, created, due, ended, *rest = others
    same = {
        "job_id": job_id,
        "kind": kind,
        "queue": queue,
        "state": state,
        "attempt": attempt,
        "max_attempts": max_attempts,
        "idempotency_key": idempotency_key,
        "unique_key": unique_key,
        "group_key": group_key,
        "tags": value(tags) or [],
        "created_at": moment(created),
        "due_at": moment(due),
        # One in doubt is held for a person: its execution has ended, and it has not.
        "ended_at": None if state == "in_doubt" else moment_of(ended),
    }
    return same, rest


def _execution(
    epoch: int,
    attempt: int,
    outcome: str,
    worker: str | None,
    started: int | None,
    ended: int,
    error: str | None,
) -> Execution:
    return Execution(
        epoch=epoch,
        attempt=attempt,
        outcome=outcome,
        worker=worker,
        started_at=moment_of(started),
        ended_at=moment(ended),
        error=value(error),
    )


def value(text: str | None) -> Any:
    return None if text is None else payload.decode(text)


def moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def moment_of(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else moment(microseconds)
