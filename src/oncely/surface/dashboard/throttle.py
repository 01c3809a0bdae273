"""Wrong passwords, counted: whoever guesses has to wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_WINDOW_SECONDS: Final = 300.0
_OF_ONE_FROM_ONE: Final = 5
_FROM_ONE: Final = 30
_OF_ONE: Final = 50
"""More than from one address: otherwise anybody could keep a user out by guessing."""
_KNOWN_LIMIT: Final = 20_000


class Throttle:
    """In this process: with several of them there are so many more guesses, and still few."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._wrong: dict[tuple[str, str | None], list[float]] = {}

    def wait_seconds(self, name: str, address: str | None) -> int:
        """How long until the next guess is taken; 0: now."""
        now = self._now()
        waits = [
            times[-limit] + _WINDOW_SECONDS - now
            for place, limit in _limits(name, address)
            if len(times := self._recent(place, now)) >= limit
        ]
        return max((int(wait) + 1 for wait in waits), default=0)

    def wrong(self, name: str, address: str | None) -> None:
        now = self._now()
        if len(self._wrong) >= _KNOWN_LIMIT:
            self._wrong = {
                place: times for place in list(self._wrong) if (times := self._recent(place, now))
            }
        if len(self._wrong) >= _KNOWN_LIMIT:
            self._wrong.clear()
        for place, limit in _limits(name, address):
            self._wrong[place] = [*self._recent(place, now), now][-limit:]

    def right(self, name: str, address: str | None) -> None:
        self._wrong.pop((name, address or ""), None)

    def _recent(self, place: tuple[str, str | None], now: float) -> list[float]:
        return [at for at in self._wrong.get(place, ()) if now - at < _WINDOW_SECONDS]


def _limits(name: str, address: str | None) -> tuple[tuple[tuple[str, str | None], int], ...]:
    """A name is never empty, so the places do not meet."""
    return (
        ((name, address or ""), _OF_ONE_FROM_ONE),
        (("", address or ""), _FROM_ONE),
        ((name, None), _OF_ONE),
    )
