"""Plans of the dashboard's sessions: rows, so that every server knows them."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from oncely.model.token import Scope
from oncely.model.user import Role
from oncely.store.plan import Plan, Statement

IDLE_SECONDS: Final = 12 * 3_600
LIFE_SECONDS: Final = 7 * 86_400
_LIMITS: Final = {"idle_us": IDLE_SECONDS * 1_000_000, "life_us": LIFE_SECONDS * 1_000_000}
_SEEN_AGAIN_US: Final = 300 * 1_000_000
"""That it is in use is written down this often: not with every page."""

Kind = Literal["user", "token"]


class Held(msgspec.Struct, frozen=True):
    """Whose session it is, with the rights of now."""

    kind: Kind
    who: str
    role: Role | None
    """Of a user."""
    token_name: str | None
    scopes: tuple[Scope, ...]
    queues: tuple[str, ...]
    seen_long_ago: bool


def make(session_digest: str, kind: Kind, who: str, stamp: str) -> Plan[None]:
    """In a transaction. Those that are over go at the same time."""
    yield Statement("session_prune", _LIMITS)
    values = {"id": session_digest, "kind": kind, "who": who, "stamp": stamp}
    yield Statement("session_make", values)


def look(session_digest: str) -> Plan[Held | None]:
    """None if there is none, or its time is over, or its user or token has lost its right."""
    rows = yield Statement("session_look", {"id": session_digest, **_LIMITS})
    if not rows:
        return None
    kind, who, role, token_name, scopes, queues, unseen_us = rows[0]
    return Held(
        kind=kind,
        who=who,
        role=role,
        token_name=token_name,
        scopes=() if scopes is None else msgspec.json.decode(scopes, type=tuple[Scope, ...]),
        queues=() if queues is None else msgspec.json.decode(queues, type=tuple[str, ...]),
        seen_long_ago=unseen_us > _SEEN_AGAIN_US,
    )


def see(session_digest: str) -> Plan[None]:
    """It was used."""
    yield Statement("session_see", {"id": session_digest})


def end(session_digest: str) -> Plan[None]:
    yield Statement("session_end", {"id": session_digest})
