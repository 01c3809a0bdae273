"""The ledger over HTTP, for whoever runs a job from afar: intent, outcome, and what is known.

The name of an effect is in the body: it may have characters that a path cannot carry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from oncely.model import payload
from oncely.model.effect import RESULT_LIMIT_BYTES, Entry, Source, check_name
from oncely.model.outcome import kept_text
from oncely.store import effects
from oncely.store.effects import Effect, Written
from oncely.store.remote.wire import (
    EffectAsked,
    EffectBegin,
    EffectDone,
    EffectFound,
    EntryTold,
)
from oncely.surface.http.endpoint import Answer, Call, Endpoint
from oncely.surface.http.work import ask, held


async def begin_effect(call: Call[EffectBegin, None]) -> Answer:
    again = call.body.again
    was = tuple(map(check_name, call.body.was))
    effect = msgspec.structs.replace(await _effect(call), was=was)
    entry = await ask(call, lambda lost: effects.begin(effect, again=again or lost))
    if isinstance(entry, Written):
        return Answer(EffectFound(None, earlier=list(entry.earlier)))
    return Answer(_told(entry))


async def retake_effect(call: Call[EffectAsked, None]) -> Answer:
    effect = await _effect(call)
    return Answer(_told(await ask(call, lambda _: effects.retake(effect))))


async def record_effect(call: Call[EffectDone, None]) -> Answer:
    effect = await _effect(call)
    source: Source = call.body.source
    result = None
    if source in ("returned", "verified"):
        result = payload.encode(call.body.result, max_bytes=RESULT_LIMIT_BYTES)
    recorded = await ask(call, lambda _: effects.done(effect, source, result))
    return Answer(msgspec.structs.replace(_told(recorded.entry), held=recorded.held))


async def clear_effect(call: Call[EffectAsked, None]) -> Answer:
    effect = await _effect(call)
    await ask(call, lambda _: effects.clear(effect))
    return Answer(_told(None))


async def _effect(call: Call[Any, None]) -> Effect:
    body: EffectAsked = call.body
    one = await held(call, body.execution_id)
    return Effect(
        id=one.job_id,
        fence=one.fence,
        name=check_name(body.name),
        verb=body.verb,
        fingerprint=body.fingerprint,
        arguments=kept_text(body.arguments),
    )


def _told(entry: Entry | None) -> EffectFound:
    if entry is None:
        return EffectFound(None)
    fields = msgspec.structs.asdict(entry)
    fields["result"] = None if entry.result is None else msgspec.Raw(entry.result.encode())
    return EffectFound(EntryTold(**fields))


def _verb(name: str, act: Callable[..., Any], body: type, summary: str) -> Endpoint:
    return Endpoint(
        "POST",
        f"/v1/jobs/{{id}}/effects/{name}",
        "work",
        act,
        summary,
        answer=EffectFound,
        body=body,
        statuses={200: "What the ledger has"},
        problems=("lease_lost",),
        tag="Effects",
    )


ENDPOINTS: Final = (
    _verb("begin", begin_effect, EffectBegin, "Write down the intent, before the effect"),
    _verb("retake", retake_effect, EffectAsked, "Do anew what an earlier execution began"),
    _verb("done", record_effect, EffectDone, "It happened; taken from anyone who knows"),
    _verb("clear", clear_effect, EffectAsked, "Nothing happened: forget the intent"),
)
