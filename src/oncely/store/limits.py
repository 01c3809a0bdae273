"""Plans of flow: set, look at, hold and spend the limits of queues and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from oncely.model.flow import Group, Limit, Queue, Rate
from oncely.model.outcome import NO_HANDLER
from oncely.model.push import Push, PushTarget
from oncely.model.redact import masked_url
from oncely.model.retry import Retry
from oncely.store import push_targets
from oncely.store.plan import Plan, Statement, Together, document
from oncely.store.trail import Trail, write

Scope = Literal["queue", "group"]
Named = tuple[Scope, str]
COUNT_LIMIT: Final = 10_001
LANE_LIMIT: Final = 2_000


_LOOKED_AT: Final = 1_000


def kinds_without_handler() -> Plan[dict[str, int]]:
    """Kinds that wait because no worker has met them with a handler, and the number of their jobs,
    or at least of those that were looked at."""
    asked = {"limit": _LOOKED_AT, "error": NO_HANDLER}
    return dict((yield Statement("kinds_without_handler", asked)))


class Change(msgspec.Struct, frozen=True):
    """What is to be changed: the options that are named in `given`."""

    given: frozenset[str]
    concurrency: int | None = None
    rate: Rate | None = None
    paused: bool | None = None
    retry: Retry | None = None
    timeout_seconds: float | None = None
    require_key: bool | None = None
    push: Push | None = None


def change(scope: Scope, name: str, new: Change, *, trail: Trail | None = None) -> Plan[None]:
    """In a transaction."""
    if new.given & {"concurrency", "rate", "paused"}:
        count, seconds = new.rate or (None, None)
        yield Statement(
            "limits_set",
            {
                "scope": scope,
                "name": name,
                "paused": new.paused,
                "set_concurrency": "concurrency" in new.given,
                "concurrency": new.concurrency,
                "set_rate": "rate" in new.given,
                "rate_count": count,
                "rate_seconds": seconds,
            },
        )
        yield Statement("limits_drop", {"scope": scope, "name": name})
    if new.given & {"retry", "timeout", "require_key"}:
        retry = new.retry and new.retry.stored()
        yield Statement(
            "queue_set",
            {
                "name": name,
                "set_retry": "retry" in new.given,
                "retry": None if retry is None else msgspec.json.encode(retry).decode(),
                "set_timeout": "timeout" in new.given,
                "timeout_seconds": new.timeout_seconds,
                "require_key": new.require_key,
            },
        )
    if "push" in new.given:
        yield from push_targets.change(name, new.push)
    if new.paused is not None:
        yield from write(trail, "pause" if new.paused else "resume", scope, name)
    else:
        yield from write(trail, f"set_{scope}", scope, name, details=_told(new))


def _told(new: Change) -> dict[str, Any]:
    """What the audit trail keeps of it: never a secret."""
    known: dict[str, Any] = {
        "concurrency": new.concurrency,
        "rate": new.rate,
        "retry": new.retry and new.retry.stored(),
        "timeout": new.timeout_seconds,
        "require_key": new.require_key,
        "push": new.push and {"url": masked_url(new.push.url), "mode": new.push.mode},
    }
    told = {option: known[option] for option in sorted(new.given) if option in known}
    if new.push is not None and new.push.secrets is not None:
        told["push"]["secret"] = "set"
    return told


def requires_key(queue: str) -> Plan[bool]:
    rows = yield Statement("queue_requires_key", {"name": queue})
    return bool(rows and rows[0][0])


def queues() -> Plan[list[Queue]]:
    rows = yield Statement("queues_list", {"count_limit": COUNT_LIMIT})
    return [
        Queue(
            name,
            bool(paused),
            concurrency,
            _rate(count, seconds),
            None if retry is None else msgspec.json.decode(retry, type=Retry),
            timeout,
            waiting,
            running,
            bool(require_key),
            None if url is None else PushTarget(url, mode),
        )
        for (
            name,
            paused,
            concurrency,
            count,
            seconds,
            retry,
            timeout,
            waiting,
            running,
            require_key,
            url,
            mode,
        ) in rows
    ]


def ages() -> Plan[dict[str, float]]:
    """Of each queue in which jobs wait: for how many seconds the oldest of them is due."""
    rows = yield Statement("ages", {"lane_limit": LANE_LIMIT})
    return {name: age_us / 1_000_000 for name, age_us in rows}


def resting() -> Plan[dict[str, int]]:
    """How many jobs failed, were cancelled or are in doubt; counted as those that wait are."""
    return dict((yield Statement("resting", {"count_limit": COUNT_LIMIT})))


def groups() -> Plan[list[Group]]:
    rows = yield Statement("groups_list")
    return [
        Group(key, bool(paused), concurrency, _rate(count, seconds), running)
        for key, paused, concurrency, count, seconds, running in rows
    ]


def hold(names: Iterable[Named]) -> Plan[dict[Named, Limit]]:
    """The limits among these, ours until the end of the transaction.

    What runs is counted in a statement of its own: one that begins before the lock is there may
    not see the claim that held it before.
    """
    wanted = list(names)
    (held,), (running,) = yield Together(
        parts=[limits_hold(wanted), document("limits_running", _records(wanted))]
    )
    count_of = {(scope, name): running for scope, name, running in running}
    return {
        (scope, name): Limit(
            True,
            bool(paused),
            concurrency,
            _rate(count, seconds),
            tokens or 0.0,
            count_of.get((scope, name), 0),
            at_us,
        )
        if is_held
        else Limit(held=False)
        for scope, name, is_held, paused, concurrency, count, seconds, tokens, at_us in held
    }


def limits_hold(names: Iterable[Named]) -> Statement:
    return document("limits_hold", _records(names))


def _records(names: Iterable[Named]) -> list[dict[str, str]]:
    return [{"scope": scope, "name": name} for scope, name in names]


def spend(limits: Mapping[Named, Limit]) -> Plan[None]:
    """Write down what is left of the rates that were used."""
    spent = [
        {"scope": scope, "name": name, "tokens": limit.tokens, "at_us": limit.at_us}
        for (scope, name), limit in limits.items()
        if limit.rate is not None
    ]
    if spent:
        yield document("limits_spend", spent)


def give_back(jobs: Mapping[Named, int]) -> Plan[None]:
    """Number of jobs that were claimed under each limit in this transaction and do not run: their
    rates get it back."""
    known = yield from hold(jobs)
    yield from spend({name: limit.taken(-jobs[name]) for name, limit in known.items()})


def limit_names(queue: str, group_key: str | None) -> list[Named]:
    """The limits that a job of that queue and group may be under."""
    names: list[Named] = [("queue", queue)]
    return names if group_key is None else [*names, ("group", group_key)]


def _rate(count: int | None, seconds: float | None) -> Rate | None:
    return None if count is None or seconds is None else (count, seconds)
