"""A store behind a server: plans are not run here, the server runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NoReturn, TypeVar

from oncely.model.errors import NotOverHttp, OncelyError
from oncely.store.engine import Access, Finding, StoreClosed, Transactions
from oncely.store.listen import RESULT, Ear, Listener, Tell
from oncely.store.plan import Plan
from oncely.store.remote import enqueue, ledger, look, steer, work
from oncely.store.remote.carry import carry
from oncely.store.remote.listen import RemoteSource
from oncely.store.remote.server import Server
from oncely.store.sql import Library

T = TypeVar("T")
_CARRIERS: Final = (enqueue, look, steer, work, ledger)
"""Imported, they have told what they carry."""
_RESULT_SECONDS: Final = 0.2
"""A server tells of no results, so those who wait look so often."""


class RemoteEngine:
    is_parallel: Final = False

    def __init__(self, url: str, api_key: str | None) -> None:
        self._server = Server(url, api_key)
        self._begin()

    def _begin(self) -> None:
        self._listener = Listener(RemoteSource(self._server))

    def run(self, make: Callable[[bool], Plan[T]], access: Access) -> T:  # noqa: ARG002
        """A request without an answer is repeated: what a repeat means the plan knows, and the key
        of an enqueue was made before."""
        return self._server.insist(lambda again: carry(make(again), self._server))

    @property
    def library(self) -> Library:
        raise NotOverHttp("a transaction of yours (tx=)")

    @property
    def transactions(self) -> Transactions:
        raise NotOverHttp("ctx.transaction()")

    def listen(
        self, topics: Iterable[str], tell: Tell, *, every_seconds: float | None = None
    ) -> Ear:
        wanted = frozenset(topics)
        if RESULT in wanted:
            every_seconds = _RESULT_SECONDS
        return self._listener.ear(wanted, tell, every_seconds=every_seconds)

    def migrate(self) -> NoReturn:
        raise NotOverHttp("migrate")

    def vet(self) -> Plan[None]:
        raise NotOverHttp("a transaction of yours (tx=)")

    def store_id(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def renew(self) -> None:
        self._server.begin()
        self._begin()

    def tidy(self) -> float | None:
        """The server's own workers see to that."""
        return None

    def examine(self) -> list[Finding]:
        try:
            self._server.get("/readyz")
        except StoreClosed:
            raise
        except OncelyError as error:
            return [Finding("server", "error", str(error))]
        return [Finding("server", "ok", f"{self._server.url} answers, and so does its store")]

    def close(self) -> None:
        self._listener.close()
        self._server.close()
