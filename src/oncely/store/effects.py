"""Plans of the ledger: intent, outcome, doubt and its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from oncely.model.effect import Entry, Source, Verb
from oncely.model.errors import (
    EffectNotFound,
    InDoubt,
    JobNotFound,
    LeaseLost,
    StoreUnavailable,
)
from oncely.store.claim import Fence
from oncely.store.plan import Plan, Statement, document

_ROUNDS = 10


class Effect(msgspec.Struct, frozen=True):
    """One effect of one execution, as it is written down."""

    id: str
    fence: Fence
    name: str
    verb: Verb
    fingerprint: str
    arguments: str

    def params(self, *names: str, **more: Any) -> dict[str, Any]:
        known = {
            "id": self.id,
            "epoch": self.fence.epoch,
            "nonce": self.fence.nonce,
            "name": self.name,
            "verb": self.verb,
            "fingerprint": self.fingerprint,
            "arguments": self.arguments,
        }
        return {**{name: known[name] for name in names}, **more}


_FENCED = ("id", "epoch", "nonce", "name")
_WHOLE = (*_FENCED, "verb", "fingerprint", "arguments")


def begin(effect: Effect, *, again: bool = False) -> Plan[Entry | None]:
    """Write down the intent; what the ledger has already, or None if this is the first time.

    `again` says that this was sent before and the answer was lost: an intent of this execution is
    the one it wrote, and the effect has not run since.
    """
    for _ in range(_ROUNDS):
        [(held, new, *row)] = yield Statement("effect_begin", effect.params(*_WHOLE))
        if not held:
            raise LeaseLost(effect.id, effect.fence.epoch)
        if new:
            return None
        if row[0] is not None:
            entry = Entry(*row)
            mine = again and entry.state == "begun" and entry.epoch == effect.fence.epoch
            return None if mine else entry
    raise _kept_changing(effect)


def retake(effect: Effect) -> Plan[Entry | None]:
    """This execution does anew what an earlier one began. If that one has told its end meanwhile,
    the end is given back and nothing is to do."""
    for _ in range(_ROUNDS):
        if (yield Statement("effect_retake", effect.params(*_FENCED))):
            return None
        [(held, _, *row)] = yield Statement("effect_look", effect.params(*_FENCED))
        if not held:
            raise LeaseLost(effect.id, effect.fence.epoch)
        if row[0] == "done":
            return Entry(*row)
        if row[0] is None and (yield from begin(effect)) is None:
            return None
    raise _kept_changing(effect)


def _kept_changing(effect: Effect) -> StoreUnavailable:
    return StoreUnavailable(f"effect {effect.name!r} of job {effect.id} kept changing: try again")


class Recorded(msgspec.Struct, frozen=True):
    entry: Entry
    held: bool
    """Whether the execution that brought the evidence still holds its job."""


def done(effect: Effect, source: Source, result: str | None) -> Plan[Recorded]:
    """Record that it happened, in a transaction; what is recorded, which may be what another
    execution knew. Evidence counts, whoever brings it: also from one that lost its lease."""
    yield Statement(
        "effect_done",
        effect.params(
            "id", "epoch", "name", "verb", "fingerprint", "arguments", source=source, result=result
        ),
    )
    [(held, _, *row)] = yield Statement("effect_look", effect.params(*_FENCED))
    if not held:
        yield from go_on(effect.id)
    return Recorded(Entry(*row), bool(held))


def clear(effect: Effect) -> Plan[None]:
    """Forget the intent, in a transaction: it is known that nothing happened."""
    yield Statement("effect_clear", effect.params("id", "name", "epoch"))
    yield from go_on(effect.id)


def go_on(job_id: str) -> Plan[bool]:
    """Put a held job back in line if nothing of it is in doubt any more.

    In a transaction that has locked or changed the job's effects: a hold and an answer that come
    at the same time would otherwise each miss the other.
    """
    return bool((yield Statement("go_on", {"id": job_id})))


def hold_for(job_id: str, names: Sequence[str]) -> Plan[None]:
    """A job comes to rest in doubt. What an execution that was late has told meanwhile counts."""
    yield Statement("effects_hold", {"id": job_id})
    doubted = [{"id": job_id, "name": name} for name in names]
    yield document("effects_doubt", doubted, id=job_id)
    yield from go_on(job_id)


def forget(job_id: str, by_whom: str) -> Plan[list[str]]:
    """Begin the ledger of a job anew, in a transaction; the names of what it will do again."""
    for name, state in (yield Statement("effects_hold", {"id": job_id})):
        if state == "in_doubt":
            raise InDoubt(job_id, name, "it cannot be forgotten before somebody has said")
    rows = yield Statement("effects_forget", {"id": job_id, "by_whom": by_whom})
    return [name for (name,) in rows]


def resolve(
    job_id: str,
    name: str,
    *,
    happened: bool,
    result: str | None,
    by_whom: str,
    note: str | None,
    again: bool = False,
) -> Plan[None]:
    """A person's answer, in a transaction. The job goes on when its last doubt is over.

    `again` says that this was sent before and the answer was lost: no doubt is left then.
    """
    states: dict[str, str] = dict((yield Statement("effects_hold", {"id": job_id})))
    if states.get(name) != "in_doubt":
        if again:
            return
        if not (yield document("find_jobs", [{"id": job_id}])):
            raise JobNotFound(job_id)
        doubted = [effect for effect, state in states.items() if state == "in_doubt"]
        raise EffectNotFound(job_id, name, doubted)
    yield Statement(
        "effect_resolve",
        {
            "id": job_id,
            "name": name,
            "happened": happened,
            "result": result,
            "by_whom": by_whom,
            "note": note,
        },
    )
    yield from go_on(job_id)
