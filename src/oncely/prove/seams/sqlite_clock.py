"""SQLite's own clock: its functions of date and time tell the time of the proof.

Not `strftime`, by which our store and our ledger read the real one: what they have written is made
older instead.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

_FUNCTIONS: Final = ("datetime", "date", "time", "julianday", "unixepoch")
_WORDS: Final = {
    "current_timestamp": "datetime",
    "current_date": "date",
    "current_time": "time",
}
_FINER: Final = ("subsec", "subsecond")


class SqliteClock:
    """Answers by a connection of its own, whose functions are SQLite's."""

    def __init__(self, connect: Callable[..., sqlite3.Connection]) -> None:
        self._lock = threading.Lock()
        self._real = connect(":memory:", check_same_thread=False)
        self._functions = [name for name in _FUNCTIONS if self._has(name)]

    def move(self, connection: sqlite3.Connection) -> bool:
        """Whether it could: a schema that trusts no function would fail with these."""
        if not connection.execute("pragma trusted_schema").fetchone()[0]:
            return False
        for name in self._functions:
            # Deterministic as SQLite's own: an index may be made of them.
            connection.create_function(name, -1, self._answer(name), deterministic=True)
        for word, name in _WORDS.items():
            connection.create_function(word, 0, self._answer(name))
        return True

    def _answer(self, name: str) -> Callable[..., Any]:
        def answer(*args: Any) -> Any:
            first = args[0].lower() if args and isinstance(args[0], str) else None
            if not args or first == "now":
                args = (_now(), *args[1:])
            elif first in _FINER:
                args = (_now(), *args)
            return self._ask(name, args)

        return answer

    def _ask(self, name: str, args: tuple[Any, ...]) -> Any:
        marks = ", ".join("?" * len(args))
        with self._lock:
            return self._real.execute(f"select {name}({marks})", args).fetchone()[0]

    def _has(self, name: str) -> bool:
        try:
            self._ask(name, ("now",))
        except sqlite3.OperationalError:
            return False
        return True


def _now() -> str:
    moment = datetime.fromtimestamp(time.time(), UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
