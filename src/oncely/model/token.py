"""Tokens: who may do what over HTTP. The key of a token is shown once; its hash is kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest
from typing import Final, Literal, get_args

import msgspec

from oncely.model.draft import check_name
from oncely.model.errors import InvalidInput
from oncely.model.keys import shown

Scope = Literal["publish", "work", "read", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
LIFE_LIMIT_SECONDS: Final = 100 * 366 * 86_400
_KEY: Final = re.compile(r"oncely_([0-9a-f]{12})_([0-9A-Za-z]{43})")
_QUEUES_LIMIT: Final = 100


class Token(msgspec.Struct, frozen=True):
    """A token without its key. No `queues` means all of them; `valid` is False once it was revoked
    or has expired."""

    token_id: str
    name: str | None
    scopes: tuple[Scope, ...]
    queues: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    valid: bool

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes

    def sees(self, queue: str) -> bool:
        return not self.queues or queue in self.queues


class Kept(msgspec.Struct, frozen=True):
    """A token as the store has it."""

    token: Token
    digest: str

    def opens_with(self, key: str) -> bool:
        """Compared in a time that says nothing of how much of it is right."""
        return compare_digest(digest(key), self.digest)


class NewToken(msgspec.Struct, frozen=True):
    """A token and its key, which cannot be had again."""

    token: Token
    key: str


def form(token_id: str, secret: str) -> str:
    """A key that says which token it is of, so that one row has to be looked at."""
    return f"oncely_{token_id}_{secret}"


def id_of(key: str) -> str | None:
    match = _KEY.fullmatch(key)
    return match[1] if match else None


def digest(key: str) -> str:
    """The secret part has 256 bits from the operating system: there is nothing to guess, and no
    slow hash is needed."""
    return sha256(key.encode()).hexdigest()


def check_scopes(scopes: Iterable[str]) -> tuple[Scope, ...]:
    asked = [scopes] if isinstance(scopes, str) else list(scopes)
    unknown = [scope for scope in asked if scope not in SCOPES]
    if unknown or not asked:
        wrong = f"the scopes are {shown(asked)}" if not unknown else f"scope {shown(unknown[0])}"
        raise InvalidInput(f"{wrong}; expected one or more of {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in asked)


def check_queues(queues: Iterable[str]) -> tuple[str, ...]:
    if isinstance(queues, str):
        raise InvalidInput(f"queues is {shown(queues)}; expected a list of names")
    names = tuple(sorted({check_name(name, "queue") for name in queues}))
    if len(names) > _QUEUES_LIMIT:
        raise InvalidInput(f"there are {len(names)} queues; expected at most {_QUEUES_LIMIT}")
    return names
