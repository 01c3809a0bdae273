"""A draft: a new job after every check, in the form in which the store takes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from oncely.model import payload
from oncely.model.errors import InvalidInput
from oncely.model.job import NewJob
from oncely.model.keys import check_key, shown

_Terms = tuple[int, int | None, str | None, str | None, int | None, float | None, str | None]
MAX_ATTEMPTS: Final = 20
PRIORITIES: Final = range(-32_768, 32_768)
DELAY_LIMIT_SECONDS: Final = 100 * 366 * 86_400
TIMEOUT_LIMIT_SECONDS: Final = 7 * 86_400
TAG_LIMIT: Final = 50
OPTIONS: Final = ("delay", "run_at", "unique_key", "group_key", "max_attempts", "timeout", "tags")
NO_OPTIONS: Final = (*(None,) * 6, ())
_options: Final = attrgetter(*OPTIONS)
_NO_TERMS: Final[_Terms] = (0, None, None, None, None, None, None)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}")


class Draft(msgspec.Struct, frozen=True, gc=False):
    """The field names are those of the documents that the store's statements unpack."""

    id: str
    kind: str
    queue: str
    payload: str
    priority: int
    delay_us: int
    run_at_us: int | None
    idempotency_key: str | None
    fingerprint: str | None
    unique_key: str | None
    group_key: str | None
    max_attempts: int | None
    timeout_seconds: float | None
    tags: str | None
    traceparent: str | UnsetType = UNSET


def draft(
    new: NewJob,
    job_id: str,
    *,
    queue_of: Callable[[str], str],
    max_payload_bytes: int,
    traceparent: str | UnsetType = UNSET,
) -> Draft:
    """`queue_of` tells where jobs of a kind go unless the caller says otherwise."""
    kind = check_name(new.kind, "kind")
    queue = queue_of(kind) if new.queue is None else check_name(new.queue, "queue")
    priority = _whole(new.priority, "priority", PRIORITIES)
    is_usual = _options(new) == NO_OPTIONS
    delay_us, run_at_us, unique_key, group_key, max_attempts, timeout_seconds, tags = (
        _NO_TERMS if is_usual else _terms(new)
    )
    text = payload.encode(new.payload, max_bytes=max_payload_bytes)
    key = new.idempotency_key
    fingerprint = None
    if key is not None:
        check_key(key, "idempotency_key")
        fingerprint = payload.fingerprint(kind, new.payload)
    return Draft(
        job_id,
        kind,
        queue,
        text,
        priority,
        delay_us,
        run_at_us,
        key,
        fingerprint,
        unique_key,
        group_key,
        max_attempts,
        timeout_seconds,
        tags,
        traceparent,
    )


def _terms(new: NewJob) -> _Terms:
    if new.delay is not None and new.run_at is not None:
        raise InvalidInput("delay and run_at are both given; expected one of them")
    return (
        0 if new.delay is None else _delay(new.delay),
        None if new.run_at is None else _moment(new.run_at),
        _optional_key(new.unique_key, "unique_key"),
        _optional_key(new.group_key, "group_key"),
        None
        if new.max_attempts is None
        else _whole(new.max_attempts, "max_attempts", range(1, MAX_ATTEMPTS + 1)),
        check_timeout(new.timeout),
        _tags(new.tags),
    )


_is_name: Final = lru_cache(1_000)(NAME.fullmatch)
"""The same few names come again and again."""


def check_name(value: Any, option: str) -> str:
    if not isinstance(value, str) or not _is_name(value):
        raise InvalidInput(
            f"{option} is {shown(value)}; expected 1 to 128 letters, digits or the characters "
            "_ . : - with a letter, digit or _ first"
        )
    return value


def _optional_key(value: Any, option: str) -> str | None:
    return None if value is None else check_key(value, option)


def _whole(value: Any, option: str, allowed: range) -> int:
    if type(value) is int and value in allowed:
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
        raise InvalidInput(
            f"{option} is {shown(value)}; expected a whole number from {allowed[0]} "
            f"to {allowed[-1]}"
        )
    return value


def _seconds(value: Any, option: str, limit: int) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    if not usable or not 0 <= value <= limit:
        raise InvalidInput(
            f"{option} is {shown(value)}; expected seconds as a number or timedelta, "
            f"from 0 to {limit:,}"
        )
    return float(value)


def _delay(value: Any) -> int:
    return round(_seconds(value, "delay", DELAY_LIMIT_SECONDS) * 1_000_000)


def check_timeout(value: Any) -> float | None:
    if value is None:
        return None
    seconds = _seconds(value, "timeout", TIMEOUT_LIMIT_SECONDS)
    if seconds == 0:
        raise InvalidInput("timeout is 0; expected more than 0 seconds, or None for no limit")
    return seconds


def _moment(value: Any) -> int:
    if not isinstance(value, datetime):
        raise InvalidInput(f"run_at is {shown(value)}; expected a datetime with a time zone")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidInput(
            f"run_at {value.isoformat()} has no time zone, so it names no moment: "
            "use datetime(..., tzinfo=...) or datetime.now(timezone.utc)"
        )
    try:
        since = value.astimezone(UTC) - _EPOCH
    except OverflowError:
        raise InvalidInput(
            f"run_at {value.isoformat()} is not between the years 1 and 9999 in UTC"
        ) from None
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _tags(value: Any) -> str | None:
    if value == ():
        return None
    if isinstance(value, str | bytes | dict) or not hasattr(value, "__iter__"):
        raise InvalidInput(f"tags is {shown(value)}; expected a list of strings")
    tags = [check_key(tag, "a tag") for tag in value]
    if len(tags) > TAG_LIMIT:
        raise InvalidInput(f"there are {len(tags)} tags; expected at most {TAG_LIMIT}")
    return msgspec.json.encode(tags).decode() if tags else None
