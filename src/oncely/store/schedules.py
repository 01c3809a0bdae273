"""Plans of schedules: how they stand, who declares them, how far their ticks are dealt with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from oncely.model import payload
from oncely.model.errors import ScheduleDeclared, ScheduleNotFound
from oncely.model.job import NewJob
from oncely.model.schedule import CatchUp, Cron, Schedule
from oncely.store.plan import Plan, Row, Statement, document
from oncely.store.trail import Trail, write

GONE_SECONDS: Final = 30
"""A definition that no worker has confirmed for so long is nobody's."""
_GONE_US: Final = GONE_SECONDS * 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT: Final = timedelta(microseconds=1)


class Definition(msgspec.Struct, frozen=True):
    """What a worker's code says of a schedule. `job` is the new job as JSON text; `definition` is
    a hash of all of it."""

    name: str
    cron: str
    timezone: str
    catch_up: CatchUp
    job: str
    definition: str


class Standing(msgspec.Struct, frozen=True):
    """How a schedule stands in the store."""

    definition: str
    cron: str
    timezone: str
    due_at: datetime
    last_at: datetime | None
    seen_at: datetime
    paused: bool


def read(names: Sequence[str]) -> Plan[tuple[datetime, dict[str, Standing]]]:
    """The store's time, and those of the schedules that are there."""
    rows = yield document("schedule_read", [{"name": name} for name in names])
    found = {}
    for name, _, definition, cron, timezone, due, last, seen, paused in rows:
        if definition is not None:
            found[name] = Standing(
                definition, cron, timezone, _at(due), _at_if(last), _at(seen), bool(paused)
            )
    return _at(rows[0][1]), found


def define(definitions: Sequence[tuple[Definition, datetime]]) -> Plan[None]:
    """Write definitions down, each with the moment from which on its ticks count."""
    records = [
        {**msgspec.structs.asdict(definition), "due_us": _us(since)}
        for definition, since in definitions
    ]
    yield document("schedule_define", records, gone_us=_GONE_US)


def hold(standings: dict[str, Standing]) -> Plan[list[str]]:
    """Those that still stand so, for the rest of the transaction."""
    records = [
        {
            "name": name,
            "definition": standing.definition,
            "due_us": _us(standing.due_at),
            "paused": standing.paused,
        }
        for name, standing in standings.items()
    ]
    rows = yield document("schedule_hold", records)
    return [row[0] for row in rows]


def advance(moves: Sequence[tuple[str, datetime, datetime | None]]) -> Plan[None]:
    """Name, due from, last tick if there was one: what was held is moved on, and confirmed."""
    records = [
        {"name": name, "due_us": _us(due), "last_us": None if last is None else _us(last)}
        for name, due, last in moves
    ]
    yield document("schedule_advance", records)


def schedules() -> Plan[list[Schedule]]:
    rows = yield Statement("schedule_list", {"name": None, "gone_us": _GONE_US})
    return [_schedule(row) for row in rows]


def new_job(name: str) -> Plan[NewJob]:
    """What the schedule enqueues."""
    rows = yield Statement("schedule_list", {"name": name, "gone_us": _GONE_US})
    if not rows:
        raise ScheduleNotFound(name)
    return NewJob(**payload.decode(rows[0][4]))


def pause(name: str, *, trail: Trail | None = None) -> Plan[None]:
    if not (yield Statement("schedule_pause", {"name": name})):
        raise ScheduleNotFound(name)
    yield from write(trail, "pause_schedule", "schedule", name)


def resume(name: str, *, trail: Trail | None = None) -> Plan[None]:
    if not (yield Statement("schedule_resume", {"name": name})):
        raise ScheduleNotFound(name)
    yield from write(trail, "resume_schedule", "schedule", name)


def remove(name: str, *, again: bool, trail: Trail | None = None) -> Plan[None]:
    """`again` says that this was sent before and the answer was lost: what is gone was removed."""
    if (yield Statement("schedule_remove", {"name": name, "gone_us": _GONE_US})):
        yield from write(trail, "remove_schedule", "schedule", name)
        return
    if (yield Statement("schedule_list", {"name": name, "gone_us": _GONE_US})):
        raise ScheduleDeclared(name, GONE_SECONDS)
    if not again:
        raise ScheduleNotFound(name)


def _schedule(row: Row) -> Schedule:
    name, cron, timezone, catch_up, job, declared, paused, due, last = row
    new: dict[str, Any] = payload.decode(job)
    return Schedule(
        name=name,
        cron=cron,
        timezone=timezone,
        catch_up=catch_up,
        kind=new["kind"],
        queue=new["queue"],
        payload=new["payload"],
        declared=bool(declared),
        paused=bool(paused),
        next_at=None if paused else Cron(cron, timezone).after(_at(due) - _INSTANT),
        last_at=_at_if(last),
    )


def _at(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _at_if(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _at(microseconds)


def _us(value: datetime) -> int:
    return (value - _EPOCH) // _INSTANT
