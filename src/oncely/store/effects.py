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
    StoreError,
    StoreUnavailable,
)
from oncely.store.claim import Fence
from oncely.store.plan import Form, Plan, Row, Statement, Together, document
from oncely.store.trail import Trail, write

_ROUNDS = 10
Place = tuple[str, str, int, int]
"""Job, name, epoch and nonce: one intent of one execution."""


class Effect(msgspec.Struct, frozen=True):
    """One effect of one execution, as it is written down."""

    id: str
    fence: Fence
    name: str
    verb: Verb
    fingerprint: str
    arguments: str
    was: tuple[str, ...] = ()
    """The names that it had before."""

    @property
    def place(self) -> Place:
        return self.id, self.name, self.fence.epoch, self.fence.nonce

    def record(self) -> dict[str, Any]:
        """As the statements take it."""
        return {
            "id": self.id,
            "name": self.name,
            "epoch": self.fence.epoch,
            "nonce": self.fence.nonce,
            "verb": self.verb,
            "fingerprint": self.fingerprint,
            "arguments": self.arguments,
        }

    def params(self, *names: str) -> dict[str, Any]:
        known = self.record()
        return {name: known[name] for name in names}


_FENCED = ("id", "epoch", "nonce", "name")


class Written(msgspec.Struct, frozen=True):
    """The intent is written, and it is new to a job that has other effects on record."""

    earlier: tuple[str, ...]
    """The names that earlier executions of the job have on record."""


class Renamed(msgspec.Struct, frozen=True):
    """Effects on record that an execution did not ask for, although it began others."""

    names: list[str]
    begun: list[str]


class Evidence(msgspec.Struct, frozen=True):
    """That an effect happened, and how that is known."""

    effect: Effect
    source: Source
    result: str | None

    def record(self) -> dict[str, Any]:
        record = self.effect.record()
        record["source"] = self.source
        record["result"] = self.result
        return record


def begin_all(
    intents: Sequence[Effect], *, again: bool = False
) -> Plan[list[Entry | Written | LeaseLost | StoreUnavailable | None]]:
    """Write down intents of several executions; for each what the ledger has already, or None if
    this is the first effect of its job, or why it may not be begun.

    `again` says that these were sent before and the answer was lost: an intent of this execution
    is the one it wrote, and the effect has not run since.
    """
    answers: dict[Place, Entry | Written | LeaseLost | StoreUnavailable | None] = {}
    if any(effect.was for effect in intents):
        return (yield from _begin_renamed(intents, again=again))
    waiting = list(intents)
    for _ in range(_ROUNDS):
        rows = yield document("effect_begin", [effect.record() for effect in waiting])
        changing: set[Place] = set()
        asked = {effect.place for effect in waiting} if rows else set()
        for id, name, epoch, nonce, held, *row, earlier in rows:
            place = id, name, epoch, nonce
            if place not in asked:
                raise StoreError(f"the store spoke of effect {name!r} of job {id}, in other words")
            written = None if earlier is None else Written(_names(earlier))
            if not held:
                answers[place] = LeaseLost(id, epoch)
            elif row[0] is None:
                answers[place] = written
                if written is None:
                    changing.add(place)
            else:
                entry = Entry(*row)
                mine = again and entry.state == "begun" and entry.epoch == epoch
                answers[place] = written if mine else entry
        waiting = [effect for effect in waiting if effect.place in changing]
        if not waiting:
            break
    for effect in waiting:
        answers[effect.place] = _kept_changing(effect)
    # What is not told of was written.
    return [answers.get(effect.place) for effect in intents] if answers else [None] * len(intents)


def _names(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])


def _begin_renamed(
    intents: Sequence[Effect], *, again: bool
) -> Plan[list[Entry | Written | LeaseLost | StoreUnavailable | None]]:
    """Begin each under the name that it is on record under, if that is an old one."""
    current = yield from _under_recorded_names(intents)
    answers = yield from begin_all(current, again=again)
    return [
        msgspec.structs.replace(answer, old_name=now.name)
        if isinstance(answer, Entry) and now.name != effect.name
        else answer
        for effect, now, answer in zip(intents, current, answers, strict=True)
    ]


def _under_recorded_names(effects: Sequence[Effect]) -> Plan[list[Effect]]:
    """Each with the one of its names that is on record, else with its own."""
    named = [
        [msgspec.structs.replace(effect, name=name, was=()) for name in (effect.name, *effect.was)]
        for effect in effects
    ]
    rows = yield document("effect_look", [each.record() for names in named for each in names])
    recorded = {tuple(place) for *place, _, state in (row[:6] for row in rows) if state is not None}
    return [next((each for each in names if each.place in recorded), names[0]) for names in named]


def look(effect: Effect) -> Plan[Entry | None]:
    """What the ledger has of it, whoever holds the job."""
    [now] = (yield from _under_recorded_names([effect])) if effect.was else [effect]
    [(_, _, _, _, _, *row)] = yield document("effect_look", [now.record()])
    if row[0] is None:
        return None
    entry = Entry(*row)
    return entry if now.name == effect.name else msgspec.structs.replace(entry, old_name=now.name)


def begin(effect: Effect, *, again: bool = False) -> Plan[Entry | Written | None]:
    """The same for one of them."""
    [answer] = yield from begin_all([effect], again=again)
    if isinstance(answer, Exception):
        raise answer
    return answer


def retake(effect: Effect) -> Plan[Entry | None]:
    """This execution does anew what an earlier one began. If that one has told its end meanwhile,
    the end is given back and nothing is to do."""
    for _ in range(_ROUNDS):
        if (yield Statement("effect_retake", effect.params(*_FENCED))):
            return None
        [(_, _, _, _, held, *row)] = yield document("effect_look", [effect.record()])
        if not held:
            raise LeaseLost(effect.id, effect.fence.epoch)
        if row[0] == "done":
            return Entry(*row)
        if row[0] is None and not isinstance((yield from begin(effect)), Entry):
            return None
    raise _kept_changing(effect)


def _kept_changing(effect: Effect) -> StoreUnavailable:
    return StoreUnavailable(f"effect {effect.name!r} of job {effect.id} kept changing: try again")


class Recorded(msgspec.Struct, frozen=True):
    entry: Entry
    held: bool
    """Whether the execution that brought the evidence still holds its job."""


def done_all(known: Sequence[Evidence]) -> Plan[list[Recorded | None]]:
    """Record that they happened, in a transaction; what is recorded, which may be what another
    execution knew. None for those of which it is as they were told, each by who holds its job."""
    records = [one.record() for one in known]
    answer = yield _recording(msgspec.json.encode(records).decode(), whole=True)
    return [*(yield from _recorded(known, answer))] if answer else [None] * len(known)


def done(effect: Effect, source: Source, result: str | None) -> Plan[Recorded]:
    """The same for one of them, and what the ledger has of it."""
    known = Evidence(effect, source, result)
    answer = yield _recording(msgspec.json.encode([known.record()]).decode())
    [recorded] = yield from _recorded([known], answer)
    return recorded


def _recording(doc: str, *, whole: bool = False) -> Statement:
    # Looked at by a statement of its own: the first one may have waited for somebody who ended the
    # lease, or wrote the same, and cannot see that.
    names = ("effect_done", "effect_look")
    usual = ("effect_done_whole", "effect_held")

    def together(names: Sequence[str], **more: Any) -> Together:
        return Together(parts=[Statement(name, {"doc": doc}) for name in names], **more)

    if not whole:
        return together(names)
    return together(names, whole=lambda: Form(together(usual), lambda _: []))


def _recorded(known: Sequence[Evidence], answer: Sequence[Row]) -> Plan[list[Recorded]]:
    """Evidence counts, whoever brings it: also from one that lost its lease, and then a job that is
    held for it goes on."""
    _, (rows,) = answer
    answers = {
        (id, name, epoch, nonce): Recorded(Entry(*row), bool(held))
        for id, name, epoch, nonce, held, *row in rows
    }
    for (job_id, *_), recorded in answers.items():
        if not recorded.held:
            yield from go_on(job_id)
    return [answers[evidence.effect.place] for evidence in known]


def clear(effect: Effect) -> Plan[None]:
    """Forget the intent, in a transaction: it is known that nothing happened."""
    yield Statement("effect_clear", effect.params(*_FENCED))
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
    trail: Trail | None = None,
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
    details = {"effect": name, "happened": happened}
    yield from write(trail, "resolve", "job", job_id, details=details)
    yield from go_on(job_id)
