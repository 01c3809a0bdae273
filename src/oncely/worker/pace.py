"""How far ahead of its handlers a worker claims."""

from __future__ import annotations

from typing import Final

AHEAD_LIMIT: Final = 1_000
HAND_SECONDS: Final = 1.0
"""What was fetched ahead and not begun by then is handed back: others may have room for it."""
LINGER_SECONDS: Final = 0.05
"""So long the end of a quick job waits for the rest of its lease, which costs a fraction if it is
settled as a whole."""


class Pace:
    """A worker fetches ahead what its handlers are going to begin while the store answers, and no
    more. So quick jobs never wait for the store, and slow ones never wait for their worker."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._rates = (0.0, 0.0)
        self._exchange_seconds = 0.0
        self._ended = 0
        self._ran_seconds = 0.0

    def ended(self, ran_seconds: float) -> None:
        self._ended += 1
        self._ran_seconds += ran_seconds

    def exchanged(self, seconds: float) -> None:
        """The store took so long. What has ended since the last time says how many handlers come
        and go in a second, if they have enough to do."""
        rate = 0.0
        if self._ended:
            rate = self._concurrency * self._ended / max(self._ran_seconds, 1e-6)
        self._rates = (self._rates[1], rate)
        self._exchange_seconds = seconds
        self._ended, self._ran_seconds = 0, 0.0

    @property
    def ahead(self) -> int:
        # The slower of the last two: one slow job is enough to hold back.
        return min(AHEAD_LIMIT, round(2 * min(self._rates) * self._exchange_seconds))
