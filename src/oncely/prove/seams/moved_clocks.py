"""The clocks of Python, which tell the time of the proof: `time` and `datetime`, and what is built
on them (Django, pendulum, arrow, identifiers that begin with the time)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from oncely.prove.c_methods import replace_c_function
from oncely.prove.callers import is_of_handler, is_own_read
from oncely.prove.clock import Clock
from oncely.prove.seams.everywhere import Everywhere

_SECOND_NS: Final = 1_000_000_000
_SINCE_BOOT: Final = tuple(
    getattr(time, name)
    for name in ("CLOCK_MONOTONIC", "CLOCK_MONOTONIC_RAW", "CLOCK_BOOTTIME")
    if hasattr(time, name)
)


def install(clock: Clock, everywhere: Everywhere) -> bool:
    """In the child. Whether `datetime.now` moves too, which takes CPython."""
    readings = _Readings(clock)
    _replace_in_names(readings, everywhere)
    for function, by in (
        (time.time, readings.time),
        (time.time_ns, readings.time_ns),
        (time.monotonic, readings.monotonic),
        (time.monotonic_ns, readings.monotonic_ns),
    ):
        if not replace_c_function(function, by):
            everywhere.replace(function, by)
    return replace_c_function(datetime.now, readings.now) and replace_c_function(
        datetime.utcnow, readings.utcnow
    )


class _Readings:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gettime_ns: Callable[[int], int] = time.clock_gettime_ns

    def time_ns(self) -> int:
        if not self._clock.was_read and is_of_handler(sys._getframe(1)):
            self._clock.mark_read()
        return self._gettime_ns(time.CLOCK_REALTIME) + round(self._clock.ahead_seconds * _SECOND_NS)

    def time(self) -> float:
        return self.time_ns() / _SECOND_NS

    def now(self, cls: type[datetime], tz: Any = None) -> datetime:
        return cls.fromtimestamp(self.time(), tz)

    def utcnow(self, cls: type[datetime]) -> datetime:
        return cls.fromtimestamp(self.time(), UTC).replace(tzinfo=None)

    def monotonic_ns(self) -> int:
        return self.since_boot(time.CLOCK_MONOTONIC, sys._getframe(1))

    def monotonic(self) -> float:
        return self.since_boot(time.CLOCK_MONOTONIC, sys._getframe(1)) / _SECOND_NS

    def since_boot(self, which: int, frame: Any) -> int:
        """Ahead by what has passed in this process: a deadline is made and looked at in one."""
        ahead = self._clock.ahead_seconds - self._clock.began_seconds
        moved = round(ahead * _SECOND_NS) if ahead and is_own_read(frame) else 0
        return self._gettime_ns(which) + moved


def _replace_in_names(readings: _Readings, everywhere: Everywhere) -> None:
    """Those that take arguments, and refuse some, where they were imported."""
    real_gettime, real_gettime_ns = time.clock_gettime, time.clock_gettime_ns
    real_localtime = time.localtime

    def clock_gettime_ns(which: int) -> int:
        if which == time.CLOCK_REALTIME:
            return readings.time_ns()
        if which in _SINCE_BOOT:
            return readings.since_boot(which, sys._getframe(1))
        return real_gettime_ns(which)

    def clock_gettime(which: int) -> float:
        moved = which == time.CLOCK_REALTIME or which in _SINCE_BOOT
        return clock_gettime_ns(which) / _SECOND_NS if moved else real_gettime(which)

    def of_seconds(real: Any) -> Any:
        def moved(seconds: float | None = None) -> Any:
            return real(readings.time() if seconds is None else seconds)

        return moved

    def of_parts(real: Any, at: int) -> Any:
        def moved(*args: Any) -> Any:
            return real(*args) if len(args) != at else real(*args, real_localtime(readings.time()))

        return moved

    everywhere.replace(real_gettime, clock_gettime)
    everywhere.replace(real_gettime_ns, clock_gettime_ns)
    for function in (time.gmtime, time.ctime, real_localtime):
        everywhere.replace(function, of_seconds(function))
    everywhere.replace(time.strftime, of_parts(time.strftime, 1))
    everywhere.replace(time.asctime, of_parts(time.asctime, 0))
