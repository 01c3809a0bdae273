"""Requests with an idempotency key: what the key is, and what follows from what is on record."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final, Literal

import msgspec

from oncely.model.errors import InvalidInput
from oncely.model.keys import KEY_LIMIT, check_key

OnUnknown = Literal["refuse", "run"]
Headers = Iterable[tuple[bytes, bytes]]
Verdict = Literal["other_caller", "mismatch", "in_flight", "unknown", "not_kept", "replay"]

_QUOTED: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_BARE: Final = re.compile(r"[!-+\--~](?:[ -+\--~]*[!-+\--~])?")
_NOT_APPLIED: Final = frozenset({401, 425, 429})
"""By their definition these say that the request was not acted upon."""
_NOT_KEPT: Final = frozenset(
    {
        # Of one connection, and not of the response.
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        # The moment of the answer, which the server knows.
        b"date",
        # Credentials: they must not lie in a table, nor go to whoever sends the same key.
        b"authorization",
        b"set-cookie",
        b"token",
        # Ours.
        b"idempotent-replayed",
    }
)


class Response(msgspec.Struct, frozen=True):
    """A whole response; without a body if that was too large to keep."""

    status: int
    headers: str | None
    body: bytes | None


class Seen(msgspec.Struct, frozen=True):
    """What is on record of a key."""

    owner: int
    fingerprint: str
    state: Literal["in_flight", "done"]
    let_go: bool
    """In flight, but its owner has not been heard of for too long, or has given up."""
    status: int | None
    headers: str | None
    body: bytes | None


class RequestInDoubt(msgspec.Struct, frozen=True):
    """A request that began, and nobody knows what it did: its server died, or it ended without a
    response. `caller` is what the function `scope=` named it, empty if there was none."""

    caller: str
    key: str
    begun_at: datetime
    unknown_since: datetime
    forgotten_at: datetime


def parse_key(values: Sequence[bytes]) -> str:
    """The key in the header: a quoted string, as the IETF draft has it, or the same without the
    quotes, as most clients send it."""
    if len(values) != 1:
        raise InvalidInput(f"the header comes {len(values)} times; expected one")
    text = values[0].decode("latin-1").strip(" \t")
    quoted = _QUOTED.fullmatch(text)
    if quoted:
        text = re.sub(r'\\(["\\])', r"\1", quoted[1])
    elif text and (text.startswith('"') or not _BARE.fullmatch(text)):
        raise InvalidInput(
            "the header cannot be read as a key; expected printable ASCII characters, in double "
            "quotes if a comma is among them"
        )
    if not 1 <= len(text) <= KEY_LIMIT:
        raise InvalidInput(f"the key has {len(text)} characters; expected 1 to {KEY_LIMIT}")
    return check_key(text, "the key")


def fingerprint(
    method: str, path: bytes, query: bytes, body: bytes, credentials: Sequence[bytes] | None = None
) -> str:
    """Of what was asked for and, after an `@`, of the credentials that it was asked with, if these
    say who the caller is."""
    request = _hash((method.encode(), path, query, body))
    return request if credentials is None else f"{request}@{_hash(credentials)}"


def _hash(parts: Iterable[bytes]) -> str:
    """The length goes before each part, so that none runs into the next."""
    made = sha256()
    for part in parts:
        made.update(b"%d:" % len(part))
        made.update(part)
    return made.hexdigest()


def judge(seen: Seen, asked: str) -> Verdict:
    if _caller(seen.fingerprint) != _caller(asked):
        return "other_caller"
    if seen.fingerprint != asked:
        return "mismatch"
    if seen.state == "in_flight":
        return "unknown" if seen.let_go else "in_flight"
    return "not_kept" if seen.body is None else "replay"


def _caller(fingerprint: str) -> str:
    return fingerprint.partition("@")[2]


def is_kept(status: int, on_unknown: OnUnknown) -> bool:
    """Whether a response is the answer to every repeat. If not, a repeat runs.

    A 5xx does not say what was done before it: to repeat it is to guess.
    """
    if status in _NOT_APPLIED:
        return False
    return status < 500 or on_unknown == "refuse"


def kept_headers(headers: Headers) -> list[tuple[str, str]]:
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in headers
        if name.lower() not in _NOT_KEPT and not name.lower().endswith(b"-token")
    ]
