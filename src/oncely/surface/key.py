"""`key`: keys that name the operation, the same in every retry."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from oncely.model import payload
from oncely.model.errors import InvalidInput
from oncely.model.keys import Part, join


class _KeyMaker:
    def __call__(self, *parts: Part) -> str:
        """`key("order", 9482, "charge")` is `"order:9482:charge"`."""
        return join(parts)

    def per_day(self, *parts: Part, timezone: str = "UTC", day: date | None = None) -> str:
        """The parts and the date: once per day, `key.per_day("digest", user_id)`.

        Today is today in `timezone`. A retry after midnight would get another key: where that
        matters, fix the `day` before the first try.
        """
        if day is None:
            day = datetime.now(UTC if timezone == "UTC" else _zone(timezone)).date()
        elif isinstance(day, datetime) or not isinstance(day, date):
            raise InvalidInput(f"day is {day!r}; expected a date, without a time")
        return join((*parts, day))

    def of(self, value: Any) -> str:
        """A hash of any payload; key order, number forms and Unicode forms do not matter."""
        return payload.digest(value)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except Exception:
        raise InvalidInput(
            f"timezone is {name!r}; expected a name such as 'UTC' or 'Europe/Berlin'"
        ) from None


key = _KeyMaker()
