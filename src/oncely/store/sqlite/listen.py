"""What happens in an SQLite file: said at once by a commit of this process, and seen from the
file's data version within a moment if it was another's."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Iterable
from typing import Final

from oncely.store.listen import ready

LOOK_SECONDS: Final = 0.03
_PAUSE_SECONDS: Final = 0.01
Version = tuple[sqlite3.Connection, int]
"""What `pragma data_version` says on a connection; of two connections it says nothing."""


class SqliteSource:
    """`version` is None for a store in memory, which no other process can reach."""

    def __init__(self, version: Callable[[], Version | None]) -> None:
        self.news_per_second = math.inf
        self._version = version
        self._seen: Version | None = None
        self._topics: frozenset[str] = frozenset()
        self._heard_at = -math.inf
        self.committed = False

    def hold(self, topics: frozenset[str]) -> bool:
        if topics and not self._topics:
            self._seen = self._version()
        self._topics = topics
        return True

    def wait(self, seconds: float | None, alarm: int) -> Iterable[tuple[str, str]]:
        """Which topic a commit was about is not known: all hear of it, so not too often."""
        if not self._topics:
            ready([alarm], seconds)
            return []
        time.sleep(max(0.0, self._heard_at + _PAUSE_SECONDS - time.monotonic()))
        ready([alarm], LOOK_SECONDS if seconds is None else min(seconds, LOOK_SECONDS))
        committed, self.committed = self.committed, False
        seen, self._seen = self._seen, self._version()
        if not committed and self._is_same(seen):
            return []
        self._heard_at = time.monotonic()
        return [(topic, "") for topic in self._topics]

    def _is_same(self, seen: Version | None) -> bool:
        """Another connection than before has seen nothing of what was between the two."""
        if seen is None or self._seen is None:
            return seen is self._seen
        return seen[0] is self._seen[0] and seen[1] == self._seen[1]

    def drop(self) -> None:
        self._topics = frozenset()
        self._seen = None
