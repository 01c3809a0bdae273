"""Schedules: the ticks of a cron expression in a time zone, and which of them are to be fired."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, Literal, get_args
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from oncely.model.errors import InvalidInput
from oncely.model.keys import shown

CatchUp = Literal["latest", "all", "skip"]
ON_TIME: Final = timedelta(seconds=60)
"""A tick that is noticed this late is not missed yet: workers restart, stores fail over."""
CATCH_UP_LIMIT: Final = 100
CRON_LIMIT: Final = 255
_SECOND: Final = timedelta(seconds=1)
_INSTANT: Final = timedelta(microseconds=1)
_ANY_MOMENT: Final = datetime(2024, 1, 1, tzinfo=UTC)


class Schedule(msgspec.Struct, frozen=True):
    """A schedule as it stands in the store.

    `declared` says that a worker that runs now has it in its code: nobody else fires its ticks.
    `next_at` is the next tick to be fired, None in a pause; `last_at` the last one that was.
    """

    name: str
    cron: str
    timezone: str
    catch_up: CatchUp
    kind: str
    queue: str
    payload: Any
    declared: bool
    paused: bool
    next_at: datetime | None
    last_at: datetime | None


class Cron:
    """Moments are in UTC. Where the clock changes, ticks are those of Debian's cron: one at a set
    time comes once, also if that time exists twice or not at all (then right after the gap); one
    whose hour or minute begins with `*` follows the time that passes."""

    def __init__(self, expression: Any, timezone: Any) -> None:
        if not isinstance(expression, str) or len(expression) > CRON_LIMIT:
            raise InvalidInput(f"cron is {shown(expression)}; {_EXPECTED}")
        self.timezone, self._zone = timezone, _zone(timezone)
        fields = expression.split()
        self.expression = " ".join(fields)
        # A sixth field, in front, is one of seconds. We count them within the minutes of the other
        # five, which alone are treated as by Debian's cron.
        self._minutes = " ".join(fields[-5:])
        try:
            self._seconds = sorted(CronSim(self.expression, _ANY_MOMENT).seconds)
            self.after(_ANY_MOMENT)
        except CronSimError as error:
            raise InvalidInput(f"cron is {shown(expression)} ({error}); {_EXPECTED}") from None

    def after(self, moment: datetime) -> datetime:
        """The first tick after a moment."""
        start = moment.replace(second=0, microsecond=0) - _SECOND
        for minute in CronSim(self._minutes, start.astimezone(self._zone)):
            begin = minute.astimezone(UTC)
            for second in self._seconds:
                tick = begin + timedelta(seconds=second)
                # In the hour that exists twice cronsim may begin with ticks that are over.
                if tick > moment:
                    return tick
        raise InvalidInput(f"cron is {shown(self.expression)}, which never comes; {_EXPECTED}")

    def latest(self, since: datetime, until: datetime) -> datetime | None:
        """The last tick from `since` to `until`, found by halves: there may be millions."""
        tick = self.after(since - _INSTANT)
        if tick > until:
            return None
        low, high = 0, int((until - tick) / _SECOND)
        first = tick
        while low < high:
            middle = (low + high) // 2
            tick = self.after(first + timedelta(seconds=middle))
            if tick > until:
                high = middle
            else:
                low = int((tick - first) / _SECOND)
        return first + timedelta(seconds=low)

    def due(self, since: datetime, now: datetime, catch_up: CatchUp) -> list[datetime]:
        """The ticks from `since` on that are to be fired now, the oldest first."""
        ticks: list[datetime] = []
        until = now
        while len(ticks) < CATCH_UP_LIMIT and (tick := self.latest(since, until)):
            missed = now - tick > ON_TIME
            if missed and (catch_up == "skip" or (catch_up == "latest" and ticks)):
                break
            ticks.append(tick)
            until = tick - _SECOND
        return ticks[::-1]


_EXPECTED: Final = (
    "expected five fields, minute hour day month weekday, such as '0 9 * * MON-FRI', or six with "
    "seconds in front"
)


def tick_key(name: str, tick: datetime) -> str:
    """In UTC, so that a tick has one key, whatever the zone's offset is called."""
    return f"{name}@{tick.astimezone(UTC).isoformat()}"


def check_catch_up(value: Any) -> CatchUp:
    if value not in get_args(CatchUp):
        raise InvalidInput(
            f"catch_up is {shown(value)}; expected one of {', '.join(get_args(CatchUp))}"
        )
    found: CatchUp = value
    return found


def _zone(name: Any) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except Exception:  # whatever a name can do to a search through folders
        raise InvalidInput(
            f"timezone is {shown(name)}; expected a name such as 'UTC' or 'Europe/Berlin'"
        ) from None
