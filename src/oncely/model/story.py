"""The story of a job, put together from what the store remembers of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from oncely.model.drill import DrillOutcome
from oncely.model.effect import Source
from oncely.model.event import Boundary, Event, Key, What
from oncely.model.transition import ACTIVE, State
from oncely.model.words import line, shown

Make = Callable[..., Event]


class Enqueued(msgspec.Struct, frozen=True):
    """What the enqueue said."""

    job_id: str
    kind: str
    queue: str
    idempotency_key: str | None
    unique_key: str | None
    at: datetime
    due_at: datetime


class Now(msgspec.Struct, frozen=True):
    """How the job stands, and by which moment."""

    at: datetime
    state: State
    due_at: datetime
    attempts: int


class Lease(msgspec.Struct, frozen=True):
    """Who runs it now, or has fetched it ahead: then it is not known to have `begun`."""

    epoch: int
    worker: str
    claimed_at: datetime
    expires_at: datetime
    begun: bool


class Delivery(msgspec.Struct, frozen=True):
    """An end. `began_at` is None if the job was ended while it waited; `due_at` is when it was due
    again, None if it came to rest."""

    what: What
    epoch: int | None
    attempt: int
    worker: str | None
    began_at: datetime | None
    ended_at: datetime
    due_at: datetime | None
    error: Any


class Repeat(msgspec.Struct, frozen=True):
    """`outcome` is what an end that came too late wanted to say, or the effect that was found."""

    at: datetime
    boundary: Boundary
    key: Key | None
    epoch: int | None
    attempt: int | None
    worker: str | None
    outcome: Any


class Act(msgspec.Struct, frozen=True):
    """An effect in the ledger."""

    name: str
    state: str
    source: Source | None
    epoch: int
    begun_at: datetime
    ended_at: datetime | None


class Renaming(msgspec.Struct, frozen=True):
    """An execution did not ask for an effect on record, and began others."""

    at: datetime
    name: str
    epoch: int
    begun: list[str]


class Word(msgspec.Struct, frozen=True):
    """A person's, on an effect."""

    at: datetime
    name: str
    said: str
    by: str
    note: str | None


class Rehearsal(msgspec.Struct, frozen=True):
    """A drill of the job, after it was completed."""

    at: datetime
    outcome: DrillOutcome
    epoch: int | None
    worker: str | None
    recognised: list[str]
    repeated: list[str]
    error: Any


class Story(msgspec.Struct, frozen=True):
    """What happened to a job, in order; `str(story)` has a line for each event.

    `now` says in words what the job waits for, or where it runs.
    """

    job_id: str
    kind: str
    queue: str
    state: State
    events: list[Event]
    now: str

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def __str__(self) -> str:
        head = f"job {self.job_id}, kind {self.kind}, queue {self.queue}"
        return "\n".join([head, *map(line, self.events), f"now: {self.now}"])


def tell(
    enqueued: Enqueued,
    now: Now,
    lease: Lease | None,
    deliveries: Sequence[Delivery],
    repeats: Sequence[Repeat],
    acts: Sequence[Act] = (),
    words: Sequence[Word] = (),
    drills: Sequence[Rehearsal] = (),
    renamings: Sequence[Renaming] = (),
) -> Story:
    """In the order of the epochs, which no clock can turn round; what is beside them goes by its
    moment."""
    event = partial(Event, job_id=enqueued.job_id, kind=enqueued.kind, queue=enqueued.queue)
    events = [_enqueue(enqueued, event)]
    due_at = enqueued.due_at
    for delivery in sorted(deliveries, key=_order):
        events += _delivery(delivery, due_at, event)
        due_at = delivery.due_at or due_at
    if lease is not None:
        events.append(_claim(lease, now, due_at, event))
    beside = [
        *(_repeat(repeat, event) for repeat in repeats),
        *(told for act in sorted(acts, key=_began) for told in _act(act, event)),
        *(_renaming(renaming, event) for renaming in renamings),
        *(_word(word, event) for word in words),
        *(_drill(drill, event) for drill in drills),
    ]
    for other in sorted(
        beside, key=lambda other: (other.at, _RANKS.get(_class(other), _WORD_RANK))
    ):
        place, at = _place(other, events)
        events.insert(place, msgspec.structs.replace(other, at=at))
    return Story(
        enqueued.job_id, enqueued.kind, enqueued.queue, now.state, events, _now(now, lease, acts)
    )


def _order(delivery: Delivery) -> float:
    """A job that was ended while it waited has had its last delivery."""
    return float("inf") if delivery.epoch is None else delivery.epoch


def _enqueue(enqueued: Enqueued, event: Make) -> Event:
    return event(
        what="enqueued",
        at=enqueued.at,
        idempotency_key=enqueued.idempotency_key,
        unique_key=enqueued.unique_key,
        due_at=_later(enqueued.due_at, enqueued.at),
    )


def _delivery(delivery: Delivery, due_at: datetime, event: Make) -> Iterator[Event]:
    who = {"epoch": delivery.epoch, "attempt": delivery.attempt, "worker": delivery.worker}
    ran = None
    if delivery.began_at is not None:
        ran = (delivery.ended_at - delivery.began_at).total_seconds()
        waited = (delivery.began_at - due_at).total_seconds()
        yield event(what="claimed", at=delivery.began_at, waited_seconds=max(0.0, waited), **who)
    replayed = delivery.what == "failed" and delivery.due_at is not None
    yield event(
        what=delivery.what,
        at=delivery.ended_at,
        due_at=None if replayed else _later(delivery.due_at, delivery.ended_at),
        error=delivery.error,
        ran_seconds=ran,
        **who,
    )
    if replayed:
        yield event(what="replayed", at=delivery.due_at)


def _later(due_at: datetime | None, at: datetime) -> datetime | None:
    """None if it was due at once."""
    return due_at if due_at is not None and due_at > at else None


def _claim(lease: Lease, now: Now, due_at: datetime, event: Make) -> Event:
    return event(
        what="claimed",
        at=lease.claimed_at,
        epoch=lease.epoch,
        attempt=now.attempts + 1,
        worker=lease.worker,
        waited_seconds=max(0.0, (lease.claimed_at - due_at).total_seconds()),
    )


def _repeat(repeat: Repeat, event: Make) -> Event:
    return event(
        what="deduplicated",
        at=repeat.at,
        boundary=repeat.boundary,
        key=repeat.key,
        epoch=repeat.epoch,
        attempt=repeat.attempt,
        worker=repeat.worker,
        refused=repeat.outcome if repeat.boundary == "delivery" else None,
        effect=repeat.outcome if repeat.boundary == "effect" else None,
    )


def _began(act: Act) -> tuple[datetime, bool]:
    """Of two that began in one moment, the one that has no end came last."""
    return act.begun_at, act.ended_at is None


def _act(act: Act, event: Make) -> Iterator[Event]:
    yield event(what="effect_begun", at=act.begun_at, effect=act.name)
    if act.ended_at is not None and act.source != "resolved":
        yield event(
            what="effect_done",
            at=act.ended_at,
            effect=act.name,
            source=act.source,
            epoch=act.epoch,
        )


def _renaming(renaming: Renaming, event: Make) -> Event:
    return event(
        what="effect_renamed",
        at=renaming.at,
        effect=renaming.name,
        epoch=renaming.epoch,
        begun=renaming.begun,
    )


def _word(word: Word, event: Make) -> Event:
    forgotten = word.said == "forgotten"
    return event(
        what="forgotten" if forgotten else "resolved",
        at=word.at,
        effect=word.name,
        happened=None if forgotten else word.said == "happened",
        by=word.by,
        note=word.note,
    )


def _drill(drill: Rehearsal, event: Make) -> Event:
    return event(
        what="drilled",
        at=drill.at,
        drill=drill.outcome,
        epoch=drill.epoch,
        worker=drill.worker,
        recognised=drill.recognised,
        repeated=drill.repeated,
        error=drill.error,
    )


_RANKS: Final = {
    "enqueue": 0,
    "effect_begun": 1,
    "effect_done": 1,
    "effect": 2,
    "effect_renamed": 2,
    "delivery": 4,
}
_WORD_RANK: Final = 3
_BEFORE_EFFECTS: Final = ("claimed", "effect_begun", "effect_done")


def _class(event: Event) -> str:
    return event.boundary or event.what


def _place(event: Event, events: Sequence[Event]) -> tuple[int, datetime | None]:
    """After all that had happened by then. An effect that was found done, or was not asked for, is
    written together with the end of the execution, and came before it."""
    if event.boundary == "effect" or event.what == "effect_renamed":
        for place, end in enumerate(events):
            if end.epoch == event.epoch and _is_end(end):
                return place, end.at
    for place in range(len(events), 1, -1):
        before = events[place - 1]
        if before.at is None or event.at is None:
            continue
        if before.at < event.at or (before.at == event.at and _goes_before(before, event)):
            return place, event.at
    return 1, event.at


def _is_end(event: Event) -> bool:
    return event.attempt is not None and event.what not in ("claimed", "deduplicated")


def _goes_before(before: Event, event: Event) -> bool:
    """A store's clock may not tell two moments apart: then an end that came too late had its reason
    before it, a call most likely came first, an effect came between a claim and its end, and an
    answer after the doubt."""
    match _class(event):
        case "delivery" | "drilled":
            return True
        case "enqueue":
            return before.boundary == "enqueue"
        case "resolved" | "forgotten":
            return before.what != "claimed"
        case _:
            return before.what in _BEFORE_EFFECTS or before.boundary == "enqueue"


def _now(now: Now, lease: Lease | None, acts: Sequence[Act]) -> str:
    if now.state not in ACTIVE:
        return now.state
    if lease is not None:
        # What was fetched ahead begins without a word to the store, up to its first effect.
        known = lease.begun or any(act.epoch == lease.epoch for act in acts)
        begun = "running" if known else "fetched ahead, and perhaps begun,"
        return (
            f"{begun} since {shown(lease.claimed_at)} on worker {lease.worker}, whose lease lasts "
            f"until {shown(lease.expires_at)}"
        )
    if now.state == "scheduled":
        return f"waits, due in {(now.due_at - now.at).total_seconds():.0f} s"
    if now.state == "pending":
        return f"waits for a worker, due since {shown(now.due_at)}"
    doubted = [act for act in acts if act.state == "in_doubt"]
    told = " and ".join(f"{act.name!r} (begun {shown(act.begun_at)})" for act in doubted)
    return (
        f"in_doubt, held until somebody says whether effect {told} happened" if told else now.state
    )
