"""How far ahead of its handlers a worker claims."""

from __future__ import annotations

import math
from typing import Final

AHEAD_LIMIT: Final = 2_000
HAND_SECONDS: Final = 1.0
LINGER_SECONDS: Final = 0.05
"""So long the end of a quick job waits for the rest of its lease, which costs a fraction if it is
settled as a whole."""
_WAVE_SECONDS: Final = 2 * LINGER_SECONDS
"""Of jobs that take longer none waits behind another."""
_IDLE_SHARE: Final = 0.02


class Pace:
    """A worker fetches ahead what its handlers are going to begin while the store answers, and no
    more. So quick jobs never wait for the store, and slow ones never wait for their worker."""

    def __init__(self, concurrency: int) -> None:
        self.hand_seconds = HAND_SECONDS
        """What was fetched ahead and not begun by then is handed back: others may have room."""
        self._concurrency = concurrency
        self._rates = (0.0, 0.0)
        self._exchange_seconds = 0.0
        self._job_seconds = 0.0
        self._counted_at = -math.inf
        self._ended = 0
        self._ran_seconds = 0.0
        self._by_itself = 0.0

    def ended(self, ran_seconds: float, *, by_itself: bool = False) -> None:
        """`by_itself`: the handler has completed its job in a transaction."""
        self._by_itself += (by_itself - self._by_itself) / 16
        self._ended += 1
        self._ran_seconds += ran_seconds

    def exchanged(self, seconds: float, now: float, *, idle: bool = False) -> None:
        """The store took so long, until now. What has ended since the last time says how many
        handlers come and go in a second, if they have enough to do. If nothing has and all are
        `idle`, that says nothing of them."""
        self._exchange_seconds = max(seconds, 0.9 * self._exchange_seconds)
        if not self._ended and (idle or now - self._counted_at < 2 * self._job_seconds):
            return  # it is too early to say
        self._counted_at = now
        rate = 0.0
        if self._ended:
            rate = self._concurrency * self._ended / max(self._ran_seconds, 1e-6)
            self._job_seconds = self._ran_seconds / self._ended
        self._rates = (self._rates[1], rate)
        self._ended, self._ran_seconds = 0, 0.0

    @property
    def apart(self) -> bool:
        """Whether each job has a lease of its own: most handlers complete their jobs themselves, or
        nothing is fetched ahead. Then handlers take long, or nothing is known of them yet: a slow
        transaction of one would keep the lease of all from being renewed, and to write a lease for
        each costs little beside them."""
        return self._by_itself > 0.5 or not self.ahead

    @property
    def ahead(self) -> int:
        # The slower of the last two: one slow job is enough to hold back.
        seconds = min(2 * self._exchange_seconds, HAND_SECONDS / 2)
        ahead = min(AHEAD_LIMIT, round(min(self._rates) * seconds))
        return self._concurrency if self._waves(ahead) else ahead

    @property
    def in_waves(self) -> bool:
        """As many as begin together end together, and are settled as a whole: a lease is as large
        as there are places, and the next one is there when it is over."""
        return self._waves(self.ahead)

    @property
    def lease_limit(self) -> int:
        """Of more jobs than these the first would have to wait too long for the last, with which
        they are settled."""
        rounds = 1 + int(LINGER_SECONDS / max(2 * self._job_seconds, 1e-6))
        return self._concurrency * rounds

    def _waves(self, ahead: int) -> bool:
        if not min(self._rates) or ahead > self._concurrency:
            return False
        idle_share = self._exchange_seconds / max(self._job_seconds, 1e-6)
        return self._job_seconds <= _WAVE_SECONDS and idle_share > _IDLE_SHARE
