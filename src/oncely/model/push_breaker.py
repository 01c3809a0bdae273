"""The circuit breaker of a push target: a receiver that is down is not asked with every job."""

from __future__ import annotations

from typing import Final

OPENS_AFTER: Final = 5
FIRST_SECONDS: Final = 1.0
LIMIT_SECONDS: Final = 60.0


class Breaker:
    """After so many failures in a row nothing is sent for a while, then one job as a probe. If the
    probe fails too, the while is twice as long. `now` is a moment of any clock that only rises."""

    def __init__(self) -> None:
        self.is_open = False
        self._failures = 0
        self._seconds = FIRST_SECONDS
        self._until = 0.0

    def room(self, wanted: int, running: int, now: float) -> int:
        """How many of the jobs that are wanted may be sent now."""
        if not self.is_open:
            return wanted
        return 0 if running or now < self._until else min(wanted, 1)

    def wait_seconds(self, now: float) -> float:
        """How long until a probe may be sent."""
        return max(0.0, self._until - now) if self.is_open else 0.0

    def succeeded(self) -> None:
        self.is_open = False
        self._failures = 0
        self._seconds = FIRST_SECONDS

    def failed(self, now: float, asked_seconds: float = 0.0) -> None:
        """`asked_seconds` is how long the receiver wants to be left alone."""
        self._failures += 1
        if self.is_open and now < self._until:
            return  # sent before it opened
        if self.is_open:
            self._seconds = min(self._seconds * 2, LIMIT_SECONDS)
        elif self._failures < OPENS_AFTER:
            return
        self.is_open = True
        self._until = now + max(self._seconds, min(asked_seconds, LIMIT_SECONDS))
