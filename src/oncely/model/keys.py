"""Keys: how parts become one, what is a valid one, and which ones look like a mistake."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from oncely.model.errors import InvalidInput

KEY_LIMIT: Final = 255
PART_LIMIT: Final = 1_000
Part = str | int | UUID | date | Decimal | Enum


def join(parts: tuple[Any, ...]) -> str:
    """The parts with colons between them; a colon inside a part is escaped, so that no two
    different lists of parts make the same key."""
    if not parts:
        raise InvalidInput("a key needs parts, such as key('order', order_id, 'charge')")
    return check_key(":".join(_part(part) for part in parts), "key")


def _part(part: Any) -> str:
    if isinstance(part, Enum):
        part = part.value
    if isinstance(part, bool) or not isinstance(part, str | int | UUID | date | Decimal):
        raise InvalidInput(
            f"a part of a key is {shown(part)}; expected a str, int, UUID, date or Decimal that "
            "names the operation (a missing id would make different operations share one key)"
        )
    text = part.isoformat() if isinstance(part, date) else str(part)
    if not text:
        raise InvalidInput("a part of a key is empty, so different operations would share one key")
    return text.replace("%", "%25").replace(":", "%3A")


def shown(value: Any) -> str:
    """A value as an error message can show it: short, and whatever it is."""
    try:
        text = ascii(value)
    except Exception:
        text = f"<{type(value).__name__} that cannot be shown>"
    return text if len(text) <= 80 else f"{text[:77]}..."


def check_key(key: Any, option: str) -> str:
    """`key` if it can be stored as one; `option` is what the caller knows it by."""
    usual = type(key) is str and 1 <= len(key) <= KEY_LIMIT and key.isprintable()
    if usual and key[0] != " " and key[-1] != " ":  # the only white space that is printable
        return str(key)
    if not isinstance(key, str):
        raise InvalidInput(
            f"{option} is {shown(key)}; expected a string of 1 to {KEY_LIMIT} characters"
        )
    if not 1 <= len(key) <= KEY_LIMIT:
        raise InvalidInput(
            f"{option} has {len(key)} characters; expected 1 to {KEY_LIMIT}. "
            "key.of(value) makes a short key of a long value"
        )
    if key != key.strip():
        raise InvalidInput(f"{option} {key!r} begins or ends with white space")
    if key.isprintable():
        return key
    bad = next((c for c in key if unicodedata.category(c) in ("Cc", "Cs")), None)
    if bad is not None:
        raise InvalidInput(f"{option} {key!r} has a control character or lone surrogate ({bad!a})")
    return key


def check_keys(keys: Sequence[str], option: str) -> None:
    """As each of them would be checked alone."""
    if {*map(type, keys)} == {str} and min(map(len, keys)) > 0 and max(map(len, keys)) <= KEY_LIMIT:
        joined = "".join(keys)
        if joined.isprintable() and " " not in joined:
            return
    for key in keys:
        check_key(key, option)


def check_part(text: Any, option: str) -> str:
    """`text` if it can be looked for in what is stored."""
    if not isinstance(text, str) or len(text) > PART_LIMIT:
        raise InvalidInput(
            f"{option} is {shown(text)}; expected a string of at most {PART_LIMIT:,} characters"
        )
    # PostgreSQL has no texts with a zero character, and UTF-8 none with half of a pair.
    if any(c == "\0" or unicodedata.category(c) == "Cs" for c in text):
        raise InvalidInput(
            f"{option} is {shown(text)}; no stored text has a zero character or a lone surrogate"
        )
    return text


_RANDOM_UUID: Final = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[1467][0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}", re.IGNORECASE
)
_TOKEN: Final = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z0-9_-]{20,}={0,2}")
_NAMED_ID: Final = re.compile(r"[a-z]{2,10}_")
_WORDS: Final = re.compile(r"(?:[A-Za-z]+|\d+)(?:[_-](?:[A-Za-z]+|\d+))*")
# Seconds, milliseconds, microseconds or nanoseconds, standing alone.
_EPOCH: Final = re.compile(r"(?<![^\W_])(\d{10}|\d{13}|\d{16}|\d{19})(?![^\W_])")
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?")
_DAY_SECONDS: Final = 86_400.0


def suspicion(key: str, now: float) -> str | None:
    """Why a repeat would hardly come with this key again, or None if nothing is wrong with it.

    Ids with a meaning are left alone: a UUID inside a longer key, a hash, `evt_…`, words.
    """
    if len(key) < 10:  # neither of them is so short
        return None
    if _RANDOM_UUID.fullmatch(key):
        return "looks random (a bare UUID)"
    if _TOKEN.fullmatch(key) and not (_NAMED_ID.match(key) or _WORDS.fullmatch(key)):
        return "looks random"
    if _reads_as_clock(key, now):
        return "looks like a clock reading"
    return None


def _reads_as_clock(key: str, now: float) -> bool:
    for digits in _EPOCH.findall(key):
        seconds = int(digits) / 10 ** (len(digits) - 10)
        if abs(seconds - now) < _DAY_SECONDS:
            return True
    for text in _MOMENT.findall(key):
        try:
            moment = datetime.fromisoformat(text + "+00:00")
        except ValueError:
            continue
        if abs(moment.timestamp() - now) < 2 * _DAY_SECONDS:  # whatever the caller's time zone
            return True
    return False
