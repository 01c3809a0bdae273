"""Keys that came back with other content, counted beside the call that was refused for it."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Executor
from contextlib import suppress
from threading import Lock

from oncely.model.counter import Delta
from oncely.model.errors import StoreError
from oncely.store.counters import count
from oncely.store.engine import Engine


class Conflicts:
    """What was refused was rolled back, so it is counted on a connection of our own, and as well as
    that can be: a process that ends before loses the count, and no more."""

    def __init__(self, engine: Engine, executor: Executor) -> None:
        self._engine = engine
        self._executor = executor
        self._lock = Lock()
        self._kinds: Counter[str] = Counter()

    def note(self, kind: str, *, in_callers: bool) -> None:
        with self._lock:
            self._kinds[kind] += 1
        # The caller's transaction may be the one writer that SQLite has: then it is written down
        # together with what this process writes next.
        if not (in_callers and self._engine.library.engine == "sqlite"):
            self.write_down()

    def write_down(self) -> None:
        """Nobody waits for it."""
        if self._kinds:
            with suppress(RuntimeError):  # the store is being closed
                self._executor.submit(self._write)

    def _write(self) -> None:
        with self._lock:
            kinds, self._kinds = self._kinds, Counter()
        deltas = [Delta("key_conflicts", kind, n=n) for kind, n in kinds.items()]
        if deltas:
            with suppress(StoreError):
                # Those that may have arrived are not counted again.
                self._engine.run(lambda lost: count([] if lost else deltas), "write")
