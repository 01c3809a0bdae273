"""Plans of the ledger outside jobs: who has an entry, and what is known of its end.

Every call has a name of its own, `owner`. So a statement that was sent again after a lost answer
finds what it wrote itself, and what another call wrote is never taken for it.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from oncely.model.effect import Entry, Source, Verb
from oncely.model.errors import EffectNotFound, InProgress, StoreUnavailable
from oncely.store.plan import Plan, Row, Statement

_ROUNDS: Final = 10
_BATCH: Final = 1_000


class Intent(msgspec.Struct, frozen=True):
    """What one call wants done, as it is written down."""

    name: str
    verb: Verb
    fingerprint: str
    arguments: str
    owner: str


class Found(msgspec.Struct, frozen=True):
    """An entry as it stands. `begun`: the asking call did begin it; `held`: it has it now;
    `live`: whoever has it is not known to be gone."""

    begun: bool
    held: bool
    live: bool
    entry: Entry


class Taken(msgspec.Struct, frozen=True):
    """What a transaction found under its key."""

    fresh: bool
    verb: Verb
    fingerprint: str
    state: str
    source: Source | None
    result: str | None


class Doubt(msgspec.Struct, frozen=True):
    """An entry that began, and nobody knows whether it happened."""

    key: str
    verb: Verb
    age_seconds: float
    arguments: str | None


def begin(intent: Intent, lease_us: int) -> Plan[Found]:
    """Write down the intent, in a transaction; or take over one whose holder is gone."""
    for _ in range(_ROUNDS):
        rows = yield Statement("begin", {**_whole(intent), "lease_us": lease_us})
        if rows:
            return _found(rows[0])
    raise StoreUnavailable(f"entry {intent.name!r} of the ledger kept changing: try again")


def look(intent: Intent) -> Plan[Found | None]:
    rows = yield Statement("look", _mine(intent))
    return _found(rows[0]) if rows else None


def retake(intent: Intent) -> Plan[bool]:
    """The holder does anew what another call began; False if it has it no more."""
    return bool((yield Statement("retake", _mine(intent))))


def renew(intent: Intent, lease_us: int) -> Plan[None]:
    yield Statement("renew", {**_mine(intent), "lease_us": lease_us})


def leave(intent: Intent, *, doubt: bool) -> Plan[None]:
    """The holder lets it go without knowing its end; with `doubt` somebody has to say."""
    yield Statement("leave", {**_mine(intent), "doubt": doubt})


def done(intent: Intent, source: Source, result: str | None) -> Plan[Found]:
    """Record that it happened; what is recorded, which may be what another call knew."""
    [row] = yield Statement("done", {**_whole(intent), "source": source, "result": result})
    return _found(row)


def clear(intent: Intent) -> Plan[None]:
    """Forget the intent: it is known that nothing happened."""
    yield Statement("clear", _mine(intent))


def resolve(
    name: str,
    *,
    happened: bool,
    result: str | None,
    by_whom: str,
    note: str | None,
    again: bool,
) -> Plan[None]:
    """A person's answer, in a transaction. Also about one that nobody came back to: it is in doubt
    although nobody said so. `again`: it was sent before, and no doubt is left then."""
    rows = yield Statement("resolve_look", {"name": name})
    if not rows or rows[0][0] == "done":
        if again:
            return
        raise EffectNotFound(None, name, [doubt.key for doubt in (yield from doubts(10))])
    if rows[0][1]:
        raise InProgress(name, 0)
    answer = {"happened": happened, "result": result, "by_whom": by_whom, "note": note}
    yield Statement("resolve", {"name": name, **answer})


def doubts(limit: int) -> Plan[list[Doubt]]:
    rows = yield Statement("doubts", {"limit": limit})
    return [Doubt(name, verb, float(age), arguments) for name, verb, age, arguments in rows]


def prune(age_us: int) -> Plan[int]:
    """A batch of what is done and that old; how many that were."""
    rows = yield Statement("prune", {"age_us": age_us, "limit": _BATCH})
    return sum(int(row[0]) for row in rows)


def take(intent: Intent, wait_seconds: float) -> Plan[Taken]:
    """The entry of the caller's own transaction, behind a savepoint: what is written after it can
    be undone with it. Waits for others, and not for longer than that."""
    yield Statement("savepoint")
    before: list[Row] = []
    try:
        before = yield Statement(
            "wait_begin",
            {
                "wait_ms": str(max(1, round(wait_seconds * 1_000))),
                "wait_seconds": max(1, math.ceil(wait_seconds)),
            },
        )
        taken = yield from _take(intent)
    except GeneratorExit:
        raise
    except BaseException:
        yield from undo()
        yield from _wait_as(before)
        raise
    yield from _wait_as(before)
    return taken


def _take(intent: Intent) -> Plan[Taken]:
    mine = {"name": intent.name, "owner": intent.owner, "fingerprint": intent.fingerprint}
    for _ in range(_ROUNDS):
        rows = yield Statement("take", mine)
        if rows:
            fresh, *rest = rows[0]
            return Taken(bool(fresh), *rest)
    raise StoreUnavailable(f"entry {intent.name!r} of the ledger kept changing: try again")


def _wait_as(before: list[Row]) -> Plan[None]:
    if before:
        try:
            yield Statement("wait_end", {"before": before[0][0]})
        except Exception:
            # The transaction is lost, and the error that ended it says why.
            return


def keep(intent: Intent, result: str | None) -> Plan[None]:
    """The block is over: with its result, as a part of the caller's transaction."""
    if result is not None:
        mine = {"name": intent.name, "owner": intent.owner}
        yield Statement("keep_result", {**mine, "result": result})
    yield Statement("savepoint_release")


def undo() -> Plan[None]:
    """All that was written since the entry, and the entry. An error here means that the whole
    transaction is lost, and the one that ended it says why."""
    try:
        yield Statement("savepoint_undo")
    except Exception:
        return


def _mine(intent: Intent) -> dict[str, Any]:
    return {"name": intent.name, "owner": intent.owner}


def _whole(intent: Intent) -> dict[str, Any]:
    return msgspec.structs.asdict(intent)


def _found(row: Row) -> Found:
    begun, held, live, state, verb, fingerprint, age, source, result = row
    entry = Entry(state, verb, fingerprint, 0, float(age), source, result)
    return Found(bool(begun), bool(held), bool(live), entry)
