"""Steer through a server."""

from __future__ import annotations

from typing import Any

import msgspec

from oncely.model.errors import EffectNotFound, JobNotFound, WrongState
from oncely.model.flow import Group, Queue
from oncely.model.push import Push
from oncely.model.retry import Retry
from oncely.store import effects, limits, steer
from oncely.store.limits import Change, Scope
from oncely.store.remote import wire
from oncely.store.remote.carry import carries, restored
from oncely.store.remote.look import get
from oncely.store.remote.mirror import camel
from oncely.store.remote.server import Server


@carries(steer.cancel)
def cancel(server: Server, job_id: str) -> None:
    try:
        server.post(f"/v1/jobs/{job_id}/cancel", {}, job_id=job_id)
    except WrongState as error:
        error.state = _state(server, job_id)
        raise


@carries(steer.replay)
def replay(server: Server, job_id: str, forgotten_by: str | None, again: bool) -> list[str]:
    """Who forgets a ledger is the owner of the key: the server knows that better than we do."""
    body = {"freshLedger": forgotten_by is not None}
    try:
        answer = server.post(f"/v1/jobs/{job_id}/replay", body, job_id=job_id, name=None)
    except WrongState as error:
        error.state = _state(server, job_id)
        if again and error.state in ("pending", "running"):
            return []  # what the first try has forgotten is told in the story
        raise
    return msgspec.json.decode(answer, type=_Replayed).forgotten


class _Replayed(msgspec.Struct):
    forgotten: list[str]


def _state(server: Server, job_id: str) -> str:
    job = get(server, job_id)
    if job is None:
        raise JobNotFound(job_id)
    return job.state


@carries(effects.resolve)
def resolve(
    server: Server,
    job_id: str,
    name: str,
    happened: bool,
    result: str | None,
    note: str | None,
    again: bool,
) -> None:
    """Who says so is the owner of the key."""
    body: dict[str, Any] = {"effect": name, "happened": happened}
    if note is not None:
        body["note"] = note
    if result is not None:
        body["result"] = msgspec.Raw(result.encode())
    try:
        server.post(f"/v1/jobs/{job_id}/resolve", body, job_id=job_id, name=name)
    except EffectNotFound:
        if not again:
            raise


@carries(limits.change)
def change(server: Server, scope: Scope, name: str, new: Change) -> None:
    rate = new.rate
    known: dict[str, Any] = {
        "concurrency": new.concurrency,
        "rate": None if rate is None else {"count": rate[0], "seconds": rate[1]},
        "paused": new.paused,
        "retry": None if new.retry is None else _retry(new.retry),
        "timeout": new.timeout_seconds,
        "require_key": new.require_key,
        "push": None if new.push is None else _push(new.push),
    }
    sent = {camel(option): known[option] for option in new.given}
    server.put("/v1/limits", {"scope": scope, "name": name, **sent})


def _push(push: Push) -> dict[str, Any]:
    return {"url": push.url, "secret": push.secrets, "mode": push.mode}


def _retry(retry: Retry) -> dict[str, Any]:
    return {camel(name): value for name, value in retry.stored().items()}


@carries(limits.queues)
def queues(server: Server) -> list[Queue]:
    told = msgspec.json.decode(server.get("/v1/limits"), type=wire.Limits)
    return [restored(Queue, each) for each in told.queues]


@carries(limits.groups)
def groups(server: Server) -> list[Group]:
    told = msgspec.json.decode(server.get("/v1/limits"), type=wire.Limits)
    return [restored(Group, each) for each in told.groups]
