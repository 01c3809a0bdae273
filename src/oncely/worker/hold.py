"""Renews the entries of a ledger that the calls of this process are at work on."""

from __future__ import annotations

import logging
import threading
from typing import Final

from oncely.model.errors import OncelyError
from oncely.store.ledger import plans
from oncely.store.ledger.books import Books
from oncely.store.ledger.plans import Intent

_log: Final = logging.getLogger("oncely.ledger")


class Holder:
    """One thread, there while something is held. A renewal that fails is tried at the next turn:
    there are two more before the entry can be taken by others."""

    def __init__(self, books: Books, lease_seconds: float) -> None:
        self._books = books
        self._lease_us = round(lease_seconds * 1_000_000)
        self._every_seconds = lease_seconds / 3
        self._changed = threading.Condition()
        self._held: dict[str, tuple[Intent, threading.Event | None]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def hold(self, intent: Intent) -> None:
        with self._changed:
            self._held[intent.owner] = (intent, None)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="oncely-ledger", daemon=True)
                self._thread.start()

    def let_go(self, intent: Intent) -> None:
        with self._changed:
            self._held.pop(intent.owner, None)

    def let_go_after(self, intent: Intent, ended: threading.Event) -> None:
        with self._changed:
            self._held[intent.owner] = (intent, ended)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._held.clear()
            self._changed.notify()

    def _run(self) -> None:
        while intents := self._next():
            for intent in intents:
                try:
                    self._books.run(lambda _, i=intent: plans.renew(i, self._lease_us), "write")  # type: ignore[misc]
                except OncelyError as error:
                    _log.warning("the ledger's entry %r was not renewed: %s", intent.name, error)

    def _next(self) -> list[Intent]:
        """What is held after a third of the lease; none ends the thread."""
        with self._changed:
            self._changed.wait(self._every_seconds)
            for owner, (_, ended) in list(self._held.items()):
                if ended is not None and ended.is_set():
                    del self._held[owner]
            if not self._held:
                self._thread = None
            return [intent for intent, _ in self._held.values()]


class NoHolder:
    """For a connection that the user lends: nothing can be renewed on it beside what runs."""

    def hold(self, intent: Intent) -> None: ...

    def let_go(self, intent: Intent) -> None: ...

    def let_go_after(self, intent: Intent, ended: threading.Event) -> None: ...

    def close(self) -> None: ...
