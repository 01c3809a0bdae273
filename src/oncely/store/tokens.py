"""Plans of the tokens: made, listed, revoked, ended after a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from oncely.model.errors import TokenNotFound
from oncely.model.token import Kept, Scope, Token
from oncely.store.look import moment, moment_of
from oncely.store.plan import Plan, Statement
from oncely.store.trail import Trail, write


class Making(msgspec.Struct, frozen=True):
    """A token to be made. The id is random: a repeat of the statement finds its own row."""

    id: str
    digest: str
    name: str | None
    scopes: Sequence[Scope]
    queues: Sequence[str]
    life_us: int | None

    def params(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "digest": self.digest,
            "name": self.name,
            "scopes": msgspec.json.encode(self.scopes).decode(),
            "queues": msgspec.json.encode(self.queues).decode() if self.queues else None,
            "life_us": self.life_us,
        }


def make(making: Making, *, trail: Trail | None = None) -> Plan[Token]:
    yield Statement("token_make", making.params())
    details = {"name": making.name, "scopes": making.scopes, "queues": making.queues}
    yield from write(trail, "create_token", "token", making.id, details=details)
    return (yield from _only(making.id))


def rotate(
    token_id: str, making: Making, *, overlap_us: int, again: bool, trail: Trail | None = None
) -> Plan[Token]:
    """In a transaction: the new one, with the rights of the old one, which ends after the overlap.

    `again` says that this was sent before and the answer was lost: then the new one may be there.
    """
    if again and (there := (yield from find(making.id))) is not None:
        return there.token
    old = yield from find(token_id)
    if old is None or not (
        yield Statement("token_end", {"id": token_id, "overlap_us": overlap_us})
    ):
        raise TokenNotFound(token_id, valid=True)
    heir = msgspec.structs.replace(
        making,
        name=old.token.name,
        scopes=old.token.scopes,
        queues=old.token.queues,
    )
    details = {"name": heir.name, "new": heir.id}
    yield from write(trail, "rotate_token", "token", token_id, details=details)
    return (yield from make(heir))


def revoke(token_id: str, *, trail: Trail | None = None) -> Plan[None]:
    if not (yield Statement("token_revoke", {"id": token_id})):
        raise TokenNotFound(token_id)
    yield from write(trail, "revoke_token", "token", token_id)


def tokens() -> Plan[list[Token]]:
    return [_kept(*row).token for row in (yield Statement("tokens_list", {"id": None}))]


def find(token_id: str) -> Plan[Kept | None]:
    rows = yield Statement("tokens_list", {"id": token_id})
    return _kept(*rows[0]) if rows else None


def any_token() -> Plan[bool]:
    """Also one that is revoked or has expired, and a user as well."""
    [(found,)] = yield Statement("token_any")
    return bool(found)


def _only(token_id: str) -> Plan[Token]:
    kept = yield from find(token_id)
    if kept is None:
        raise TokenNotFound(token_id)
    return kept.token


def _kept(
    token_id: str,
    digest: str,
    name: str | None,
    scopes: str,
    queues: str | None,
    created: int,
    expires: int | None,
    revoked: int | None,
    valid: bool,
) -> Kept:
    token = Token(
        token_id=token_id,
        name=name,
        scopes=msgspec.json.decode(scopes, type=tuple[Scope, ...]),
        queues=() if queues is None else msgspec.json.decode(queues, type=tuple[str, ...]),
        created_at=moment(created),
        expires_at=moment_of(expires),
        revoked_at=moment_of(revoked),
        valid=bool(valid),
    )
    return Kept(token, digest)
