"""The ledger of a job through a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from oncely.model.effect import Entry, Source
from oncely.model.errors import JobNotFound, LeaseLost, StoreUnavailable
from oncely.store import effects
from oncely.store.effects import Effect, Evidence, Recorded, Written
from oncely.store.remote.carry import carries
from oncely.store.remote.server import Server


@carries(effects.begin_all)
def begin_all(
    server: Server, intents: Sequence[Effect], again: bool
) -> list[Entry | Written | LeaseLost | StoreUnavailable | None]:
    """One request each: they come from one worker, and may be few."""
    return [_begun(server, effect, again) for effect in intents]


def _begun(server: Server, effect: Effect, again: bool) -> Entry | Written | LeaseLost | None:
    more = {"was": effect.was} if effect.was else {}
    try:
        told = _ledger(server, "begin", effect, again=again, **more)
    except LeaseLost as error:
        return error
    return Written(told.earlier) if told.earlier else _entry(told)


@carries(effects.retake)
def retake(server: Server, effect: Effect) -> Entry | None:
    return _entry(_ledger(server, "retake", effect))


@carries(effects.done_all)
def done_all(server: Server, known: Sequence[Evidence]) -> list[Recorded]:
    return [done(server, one.effect, one.source, one.result) for one in known]


@carries(effects.done)
def done(server: Server, effect: Effect, source: Source, result: str | None) -> Recorded:
    kept = None if result is None else msgspec.Raw(result.encode())
    told = _ledger(server, "done", effect, source=source, result=kept)
    entry = _entry(told)
    if entry is None:
        raise JobNotFound(effect.id)
    return Recorded(entry, told.held)


@carries(effects.clear)
def clear(server: Server, effect: Effect) -> None:
    _ledger(server, "clear", effect)


class _Told(msgspec.Struct):
    entry: dict[str, msgspec.Raw] | None
    held: bool
    earlier: tuple[str, ...] = ()


def _ledger(server: Server, verb: str, effect: Effect, **more: Any) -> _Told:
    body = {
        "executionId": f"{effect.id}.{effect.fence.epoch}.{effect.fence.nonce:x}",
        "name": effect.name,
        "verb": effect.verb,
        "fingerprint": effect.fingerprint,
        "arguments": effect.arguments,
        **more,
    }
    path = f"/v1/jobs/{effect.id}/effects/{verb}"
    answer = server.post(path, body, job_id=effect.id, name=effect.name, epoch=effect.fence.epoch)
    return msgspec.json.decode(answer, type=_Told)


def _entry(told: _Told) -> Entry | None:
    if told.entry is None:
        return None
    result = bytes(told.entry["result"]).decode()
    known = {name: msgspec.json.decode(raw) for name, raw in told.entry.items() if name != "result"}
    return Entry(
        state=known["state"],
        verb=known["verb"],
        fingerprint=known["fingerprint"],
        epoch=known["epoch"],
        age_seconds=known["ageSeconds"],
        source=known["source"],
        result=None if known["source"] in (None, "unkept") else result,
        old_name=known.get("oldName"),
    )
