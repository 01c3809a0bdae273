"""Where a ledger is kept: from what the user gave to something that runs plans."""

from __future__ import annotations

from typing import Any, Final, Protocol

from oncely.model.errors import InvalidInput
from oncely.model.keys import shown
from oncely.store.engine import Runs
from oncely.store.plan import Plan
from oncely.store.sql import LEDGER, Library
from oncely.store.url import open_engine, without_driver

EXPECTED: Final = (
    "expected the URL of a database (postgresql://…, sqlite:///…, mysql+driver://…, redis://…), an "
    "Engine of SQLAlchemy, or a connection as tx= takes it"
)


class Books(Runs, Protocol):
    """An engine of the store is one too."""

    @property
    def library(self) -> Library | None:
        """None where there are no transactions to be a part of."""

    def vet(self) -> Plan[None]: ...

    def migrate(self) -> list[str]: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def renew(self) -> None: ...

    def close(self) -> None: ...


def open_books(where: Any) -> Books:
    if isinstance(where, str):
        return _by_url(where)
    kinds = {(cls.__module__.partition(".")[0], cls.__name__) for cls in type(where).__mro__}
    if ("redis", "Redis") in kinds:
        from oncely.store.ledger.on_redis import RedisBooks

        return RedisBooks(where)
    if ("sqlalchemy", "Engine") in kinds:
        from oncely.store.ledger.on_alchemy import AlchemyBooks

        return AlchemyBooks(where)
    if ("sqlalchemy", "AsyncEngine") in kinds:
        raise InvalidInput(
            "the ledger got an AsyncEngine: give it the URL or a sync Engine (its async verbs run "
            "beside the loop), and your async connections as tx="
        )
    from oncely.store.ledger.lent import Lent

    return Lent(where)


def _by_url(url: str) -> Books:
    url = without_driver(url)
    scheme = url.partition("://")[0]
    if scheme in ("redis", "rediss"):
        from oncely.store.ledger.on_redis import connect

        return connect(url)
    if scheme.partition("+")[0] in ("mysql", "mariadb"):
        from oncely.store.ledger.on_alchemy import connect as connect_alchemy

        return connect_alchemy(url)
    if scheme in ("sqlite", "postgresql", "postgres"):
        return open_engine(url, schema="oncely", part=LEDGER)
    raise InvalidInput(f"the ledger got {shown(scheme)}; {EXPECTED}")
