"""Where the tests of `tx=` play: every library, a store, and parties to its transactions."""

import itertools
import time
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import pytest

from oncely import NewJob, Oncely
from tests.engine.tx_django import Django, DjangoOther
from tests.engine.tx_drivers import Aiosqlite, Asyncpg, AsyncpgPool, Psycopg, PsycopgAsync, Sqlite3
from tests.engine.tx_party import EngineName, Kit, Party
from tests.engine.tx_sqlalchemy import (
    AlchemyAsyncConnection,
    AlchemyAsyncScoped,
    AlchemyAsyncSession,
    AlchemyBegun,
    AlchemyConnection,
    AlchemyScoped,
    AlchemySession,
    on,
)
from tests.waiting import PATIENCE_SECONDS

POSTGRES: dict[str, type[Kit]] = {
    "psycopg": Psycopg,
    "psycopg-async": PsycopgAsync,
    "asyncpg": Asyncpg,
    "asyncpg-pool": AsyncpgPool,
    "sqlalchemy-connection": AlchemyConnection,
    "sqlalchemy-begun": AlchemyBegun,
    "sqlalchemy-session": AlchemySession,
    "sqlalchemy-scoped": AlchemyScoped,
    "sqlalchemy-async-connection-psycopg": AlchemyAsyncConnection,
    "sqlalchemy-async-connection-asyncpg": on("postgresql+asyncpg", AlchemyAsyncConnection),
    "sqlalchemy-async-session-psycopg": AlchemyAsyncSession,
    "sqlalchemy-async-session-asyncpg": on("postgresql+asyncpg", AlchemyAsyncSession),
    "sqlalchemy-async-scoped-asyncpg": on("postgresql+asyncpg", AlchemyAsyncScoped),
    "django": Django,
    "django-other": DjangoOther,
}
SQLITE: dict[str, type[Kit]] = {
    "sqlite3": Sqlite3,
    "aiosqlite": Aiosqlite,
    "sqlalchemy-connection": on("sqlite", AlchemyConnection),
    "sqlalchemy-begun": on("sqlite", AlchemyBegun),
    "sqlalchemy-session": on("sqlite", AlchemySession),
    "sqlalchemy-scoped": on("sqlite", AlchemyScoped),
    "sqlalchemy-async-connection": on("sqlite+aiosqlite", AlchemyAsyncConnection),
    "sqlalchemy-async-session": on("sqlite+aiosqlite", AlchemyAsyncSession),
    "sqlalchemy-async-scoped": on("sqlite+aiosqlite", AlchemyAsyncScoped),
    "django": Django,
    "django-other": DjangoOther,
}
KITS = {f"postgres-{name}": kit for name, kit in POSTGRES.items()} | {
    f"sqlite-{name}": kit for name, kit in SQLITE.items()
}
_numbers = itertools.count(1)

everywhere = pytest.mark.parametrize("library", KITS)
on_postgres = pytest.mark.parametrize("library", [n for n in KITS if n.startswith("postgres")])
on_sqlite = pytest.mark.parametrize("library", [n for n in KITS if n.startswith("sqlite")])
on_lent_sqlite = pytest.mark.parametrize(
    "library",
    [
        name
        for name, kit in KITS.items()
        if name.startswith("sqlite") and kit.begins and not kit.awaits
    ],
)
"""Where the connection itself can be lent to a ledger."""
where_it_begins_by_itself = pytest.mark.parametrize(
    "library", [name for name, kit in KITS.items() if kit.begins]
)
where_it_awaits = pytest.mark.parametrize(
    "library", [name for name, kit in KITS.items() if kit.awaits]
)
where_it_blocks = pytest.mark.parametrize(
    "library", [name for name, kit in KITS.items() if not kit.awaits]
)


class Scene:
    def __init__(
        self, url: str, app: Oncely, kit: type[Kit], watcher: Any, closing: ExitStack
    ) -> None:
        self.url = url
        self.app = app
        self.kit = kit
        self.engine: EngineName = "sqlite" if url.startswith("sqlite") else "postgres"
        self._watcher = watcher
        self._closing = closing

    def fresh(self, name: str) -> str:
        """A name that no other test of this run has."""
        return f"{name}:{next(_numbers)}"

    def job(self, **options: Any) -> NewJob:
        """A job with both keys, each of them new, unless said otherwise."""
        keys = {"idempotency_key": self.fresh("key"), "unique_key": self.fresh("work")}
        return NewJob("charge", {"amount": 7}, **(keys | options))

    def party(self) -> Party:
        return self.enter(Party(self.kit(self.url)), "open")

    def party_in_autocommit(self) -> Party:
        return self.enter(Party(self.kit(self.url)), "open_autocommit")

    def enter(self, party: Party, verb: str) -> Party:
        party.do(getattr(party.kit, verb))
        self._closing.callback(party.close)
        return party

    def rows(self, sql: str) -> list[Any]:
        """What anybody else sees: that is, what was committed."""
        found: list[Any] = self._watcher.execute(sql).fetchall()
        return found

    def has_order(self, name: str) -> bool:
        return bool(self.rows(f"select 1 from orders where name = '{name}'"))

    def has_job(self, job_id: str) -> bool:
        return self.app.get(job_id) is not None

    def backend(self, party: Party) -> int:
        """On PostgreSQL: who the party is to the server."""
        return int(party.execute("select pg_backend_pid()")[0][0])

    def wait_until_blocked(self, backend: int, waiting: Future[Any]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.rows(
            f"select 1 from pg_stat_activity where pid = {backend} and wait_event_type = 'Lock'"
        ):
            assert not waiting.done(), f"did not wait: {waiting.exception() or waiting.result()}"
            assert time.monotonic() < deadline
            time.sleep(0.01)
