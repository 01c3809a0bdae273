"""Schedules: those this app declares, and one pass that fires what is due of them.

Any worker may make the pass. A tick becomes a job with the key `name@tick`, and is recorded as
dealt with, in one transaction: so it is fired once, whoever dies where.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final

import msgspec

from oncely.flow.identity import new_job_ids
from oncely.model import payload
from oncely.model.draft import Draft, check_name, draft
from oncely.model.errors import InvalidInput
from oncely.model.job import NewJob, Receipt
from oncely.model.schedule import CatchUp, Cron, check_catch_up, tick_key
from oncely.store import schedules as store
from oncely.store.admit import Conflict, Repeat, admit
from oncely.store.plan import Plan
from oncely.store.schedules import Definition, Standing

LOOK_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.1
_CONFIRM: Final = timedelta(seconds=10)
_GONE: Final = timedelta(seconds=store.GONE_SECONDS)
_INSTANT: Final = timedelta(microseconds=1)


class Declared(msgspec.Struct, frozen=True):
    name: str
    cron: Cron
    catch_up: CatchUp
    new: NewJob


class Tick(msgspec.Struct, frozen=True):
    """A tick that was fired; `inserted` is False if a key recognised it."""

    schedule: str
    at: datetime
    job_id: str
    inserted: bool


class Look(msgspec.Struct, frozen=True):
    """What a pass did. `elsewhere` are the schedules that other workers have in another form."""

    fired: list[Tick]
    elsewhere: list[str]
    wait_seconds: float


class Schedules:
    """The schedules that one app declares, by name."""

    def __init__(self, *, queue_of: Callable[[str], str], max_payload_bytes: int) -> None:
        self._queue_of = queue_of
        self._max_payload_bytes = max_payload_bytes
        self._declared: dict[str, Declared] = {}
        self._asked: dict[str, datetime] = {}

    def __bool__(self) -> bool:
        return bool(self._declared)

    def add(self, name: str, new: NewJob, *, cron: Any, timezone: Any, catch_up: Any) -> None:
        """The store hears of it from a worker. The same again changes nothing."""
        check_name(name, "the schedule's name")
        when = Cron(cron, timezone)
        checked = self._draft(new, "", name)
        # A copy in plain values: what the caller does to its own afterwards changes nothing.
        kept = NewJob(
            checked.kind,
            payload.decode(checked.payload),
            queue=new.queue,
            priority=checked.priority,
            unique_key=checked.unique_key,
            group_key=checked.group_key,
            max_attempts=checked.max_attempts,
            timeout=checked.timeout_seconds,
            tags=msgspec.json.decode(checked.tags or "[]"),
        )
        declared = Declared(name, when, check_catch_up(catch_up), kept)
        before = self._declared.setdefault(name, declared)
        if self._definition(before) != self._definition(declared):
            raise InvalidInput(
                f"schedule {name!r} is declared already, in another form; one name is one schedule"
            )

    def remember(self) -> Plan[None]:
        """Write down those that the store has never heard of."""
        if not self._declared:
            return
        now, found = yield from store.read(list(self._declared))
        missing = [
            (self._definition(d), now) for d in self._declared.values() if d.name not in found
        ]
        if missing:
            yield from store.define(missing)

    def look(self) -> Plan[Look]:
        """One pass, in a transaction."""
        declared = dict(self._declared)
        now, found = yield from store.read(list(declared))
        new: list[tuple[Definition, datetime]] = []
        ours: dict[str, Standing] = {}
        elsewhere = []
        wait_seconds = LOOK_SECONDS
        for name, item in declared.items():
            definition, standing = self._definition(item), found.get(name)
            if standing is None:
                new.append((definition, now))
            elif standing.definition == definition.definition:
                self._asked.pop(name, None)
                if _is_due(standing, now) or now - standing.seen_at > _CONFIRM:
                    ours[name] = standing
                elif not standing.paused:
                    wait_seconds = min(wait_seconds, (standing.due_at - now).total_seconds())
            else:
                asked = self._asked.setdefault(name, now)
                if now - standing.seen_at > _GONE:
                    new.append((definition, _since(definition, standing, asked)))
                else:
                    elsewhere.append(name)
        if new:
            yield from store.define(new)
        held = (yield from store.hold(ours)) if ours else []
        fired = yield from self._fire_due({name: ours[name] for name in held}, now)
        if new or ours:
            wait_seconds = _AGAIN_SECONDS
        return Look(fired, elsewhere, wait_seconds)

    def _fire_due(self, held: dict[str, Standing], now: datetime) -> Plan[list[Tick]]:
        ticks: list[tuple[str, datetime]] = []
        moves: list[tuple[str, datetime, datetime | None]] = []
        for name, standing in held.items():
            declared = self._declared[name]
            if not _is_due(standing, now):
                moves.append((name, standing.due_at, None))
                continue
            due = declared.cron.due(standing.due_at, now, declared.catch_up)
            ticks += [(name, tick) for tick in due]
            moves.append((name, declared.cron.after(now), due[-1] if due else None))
        drafts = [
            self._draft(self._declared[name].new, job_id, tick_key(name, tick))
            for (name, tick), job_id in zip(ticks, new_job_ids(len(ticks)), strict=True)
        ]
        answers = (yield from admit(drafts)) if drafts else []
        if moves:
            yield from store.advance(moves)
        return [
            # A conflict: somebody else used the key of this tick, so it is not ours to fire.
            Tick(name, tick, answer.job_id, isinstance(answer, Receipt) and answer.inserted)
            for (name, tick), answer in zip(ticks, answers, strict=True)
        ]

    def fire(
        self, name: str, job_id: str, idempotency_key: str | None, *, again: bool
    ) -> Plan[Receipt]:
        """A job at once, as the store knows the schedule. `again`: see `admit`."""
        new = yield from store.new_job(name)
        key = f"{name}@fire:{job_id}" if idempotency_key is None else idempotency_key
        [answer] = yield from admit([self._draft(new, job_id, key)], again=again)
        if isinstance(answer, Conflict):
            raise answer.error()
        return answer.plain() if isinstance(answer, Repeat) else answer

    def _draft(self, new: NewJob, job_id: str, key: str) -> Draft:
        return draft(
            msgspec.structs.replace(new, idempotency_key=key),
            job_id,
            queue_of=self._queue_of,
            max_payload_bytes=self._max_payload_bytes,
        )

    def _definition(self, declared: Declared) -> Definition:
        """Made anew each time: the kind's handler, with its queue, may be declared later."""
        checked = self._draft(declared.new, "", declared.name)
        options = msgspec.structs.asdict(declared.new)
        options["queue"] = checked.queue
        cron, catch_up = declared.cron, declared.catch_up
        job = {**options, "payload": msgspec.Raw(checked.payload.encode())}
        said = [cron.expression, cron.timezone, catch_up, checked.fingerprint]
        said += [value for name, value in options.items() if name != "payload"]
        return Definition(
            declared.name,
            cron.expression,
            cron.timezone,
            catch_up,
            job=msgspec.json.encode(job).decode(),
            definition=sha256(msgspec.json.encode(said)).hexdigest(),
        )


def _is_due(standing: Standing, now: datetime) -> bool:
    return not standing.paused and standing.due_at <= now


def _since(definition: Definition, before: Standing, asked: datetime) -> datetime:
    """From when on the ticks of a new definition count. With the same ticks as before, none is
    lost; with others, none comes from before it, and none that was fired comes again."""
    if (definition.cron, definition.timezone) == (before.cron, before.timezone):
        return before.due_at
    return asked if before.last_at is None else max(asked, before.last_at + _INSTANT)
