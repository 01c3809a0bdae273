"""The verbs of tokens: who may do what over HTTP."""

from __future__ import annotations

import secrets
import string
from collections.abc import Iterable
from typing import Any, Final

from oncely.model.errors import InvalidInput, TokenNotFound
from oncely.model.keys import check_key, shown
from oncely.model.token import (
    LIFE_LIMIT_SECONDS,
    NewToken,
    Scope,
    Token,
    check_queues,
    check_scopes,
    digest,
    form,
)
from oncely.store import tokens
from oncely.store.tokens import Making
from oncely.surface.acting import trail
from oncely.surface.base import Base, twin

_LETTERS: Final = string.ascii_letters + string.digits
_SECRET_LETTERS: Final = 43
"""Of 62 letters each: 256 bits."""
OVERLAP_SECONDS: Final = 86_400.0


class Tokening(Base):
    def create_token(
        self,
        scopes: Iterable[Scope],
        *,
        queues: Iterable[str] = (),
        name: str | None = None,
        expires_in: float | None = None,
    ) -> NewToken:
        """A token for the HTTP server, with its key, which is shown only now: the store keeps a
        hash of it. Without `queues` it is for all of them. `expires_in` is in seconds."""
        making, key = _making(
            check_scopes(scopes),
            check_queues(queues),
            None if name is None else check_key(name, "name"),
            None if expires_in is None else _microseconds(expires_in, "expires_in"),
        )
        who = trail()
        token = self._engine.run(lambda _: tokens.make(making, trail=who), "transaction")
        return NewToken(token, key)

    def tokens(self) -> list[Token]:
        """All tokens that were ever made, the oldest first, without their keys."""
        return self._engine.run(lambda _: tokens.tokens(), "read")

    def revoke_token(self, token_id: str) -> None:
        """Refuse its key from now on. Revoking it again changes nothing."""
        if not _can_be(token_id):
            raise TokenNotFound(token_id)
        who = trail()
        self._engine.run(lambda _: tokens.revoke(token_id, trail=who), "transaction")

    def rotate_token(self, token_id: str, *, overlap: float = OVERLAP_SECONDS) -> NewToken:
        """A new token with the same rights; the old one is good for `overlap` more seconds."""
        if not _can_be(token_id):
            raise TokenNotFound(token_id, valid=True)
        overlap_us = _microseconds(overlap, "overlap")
        making, key = _making(check_scopes(["read"]), (), None, None)
        who = trail()
        token = self._engine.run(
            lambda again: tokens.rotate(
                token_id, making, overlap_us=overlap_us, again=again, trail=who
            ),
            "transaction",
        )
        return NewToken(token, key)

    acreate_token = twin(create_token)
    atokens = twin(tokens)
    arevoke_token = twin(revoke_token)
    arotate_token = twin(rotate_token)


def _making(
    scopes: tuple[Scope, ...], queues: tuple[str, ...], name: str | None, life_us: int | None
) -> tuple[Making, str]:
    token_id = secrets.token_hex(6)
    key = form(token_id, "".join(secrets.choice(_LETTERS) for _ in range(_SECRET_LETTERS)))
    return Making(token_id, digest(key), name, scopes, queues, life_us), key


def _can_be(token_id: Any) -> bool:
    """Whether the store can be asked for it."""
    return isinstance(token_id, str) and token_id.isascii() and token_id.isprintable()


def _microseconds(value: Any, option: str) -> int:
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    if not usable or not 0 <= value <= LIFE_LIMIT_SECONDS:
        raise InvalidInput(
            f"{option} is {shown(value)}; expected seconds from 0 to {LIFE_LIMIT_SECONDS:,}"
        )
    return round(float(value) * 1_000_000)
