"""Plans of the requests that came with an idempotency key."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from oncely.model.errors import InProgress, RequestNotFound, StoreUnavailable
from oncely.model.request import RequestInDoubt, Response, Seen
from oncely.store.look import moment
from oncely.store.plan import Plan, Statement
from oncely.store.trail import Trail, write

_ROUNDS: Final = 10


class Mark(msgspec.Struct, frozen=True):
    """One run of a request. `owner` is random: a run can only end what it began itself."""

    scope: str
    key: str
    owner: int
    hold_us: int
    """So long it is taken to be alive after it was last heard of."""
    keep_us: int
    """So long it is remembered after its end."""

    def params(self, *names: str, **more: Any) -> dict[str, Any]:
        wanted = ("scope", "key", "owner", *names)
        return {**{name: getattr(self, name) for name in wanted}, **more}


def begin(mark: Mark, fingerprint: str, *, run_unknown: bool, again: bool) -> Plan[Seen | None]:
    """Mark it as in flight; what is on record already, or None if it may run.

    With `run_unknown` a run that was given up is followed by this one. `again` says that this was
    sent before and the answer was lost: a mark of this owner is then the one it made.
    """
    for _ in range(_ROUNDS):
        begun = yield Statement(
            "request_begin",
            mark.params("hold_us", "keep_us", fingerprint=fingerprint, run_unknown=run_unknown),
        )
        if begun:
            return None
        rows = yield Statement("request_look", {"scope": mark.scope, "key": mark.key})
        if rows:
            seen = _seen(*rows[0])
            return None if again and seen.owner == mark.owner else seen
    raise StoreUnavailable("a request's record kept changing: try again")


def _seen(
    owner: int,
    fingerprint: str,
    state: Any,
    let_go: bool,
    status: int | None,
    headers: str | None,
    body: bytes | None,
) -> Seen:
    kept = None if body is None else bytes(body)
    return Seen(owner, fingerprint, state, bool(let_go), status, headers, kept)


def renew(mark: Mark) -> Plan[bool]:
    """It still runs; False if it is not this one's any more."""
    return bool((yield Statement("request_renew", mark.params("hold_us", "keep_us"))))


def done(mark: Mark, response: Response) -> Plan[bool]:
    """The answer to every repeat; False if another run has taken its place meanwhile."""
    return bool(
        (
            yield Statement(
                "request_done",
                mark.params(
                    "keep_us",
                    status=response.status,
                    headers=response.headers,
                    body=response.body,
                ),
            )
        )
    )


def let_go(mark: Mark) -> Plan[bool]:
    """It ended, and nobody knows what it did."""
    return bool((yield Statement("request_let_go", mark.params())))


def clear(mark: Mark) -> Plan[bool]:
    """A repeat may run."""
    return bool((yield Statement("request_clear", mark.params())))


def doubts(key: str | None, limit: int) -> Plan[list[RequestInDoubt]]:
    rows = yield Statement("request_doubts", {"key": key, "limit": limit})
    return [RequestInDoubt(caller, name, *map(moment, times)) for caller, name, *times in rows]


def resolve(
    caller: str,
    key: str,
    response: Response | None,
    *,
    again: bool,
    trail: Trail | None = None,
) -> Plan[None]:
    """A person's answer, in a transaction: what its client is to be told, or None if it had no
    effect. `again`: it was sent before, and no doubt is left then."""
    mine = {"scope": caller, "key": key}
    if response is None:
        resolved = yield Statement("request_did_not", mine)
    else:
        resolved = yield Statement("request_happened", {**mine, **msgspec.structs.asdict(response)})
    if resolved:
        details = {
            "caller": caller,
            "happened": response is not None,
            "status": None if response is None else response.status,
        }
        yield from write(trail, "resolve_request", "request", key, details=details)
    if resolved or again:
        return
    rows = yield Statement("request_look", mine)
    if rows and _seen(*rows[0]).state == "in_flight":
        raise InProgress(key, 0)
    raise RequestNotFound(key, [doubt.key for doubt in (yield from doubts(None, 10))])


def prune(limit: int) -> Plan[int]:
    return len((yield Statement("prune_requests", {"limit": limit})))
