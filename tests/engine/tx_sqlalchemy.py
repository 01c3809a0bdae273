"""SQLAlchemy, as its documentation shows it: Core and ORM, sync and async."""

from collections.abc import Callable
from typing import Any, ClassVar

from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from tests.engine.tx_party import Kit


class AlchemyConnection(Kit):
    driver: ClassVar[str] = "postgresql+psycopg"
    serialization_error = OperationalError

    @property
    def address(self) -> str:
        return self.driver + self.url[self.url.index(":") :]

    def open(self, **options: Any) -> None:
        self.engine = create_engine(self.address, poolclass=NullPool, **options)
        self.tx = self.engine.connect()

    def open_autocommit(self) -> None:
        self.open(isolation_level="AUTOCOMMIT")

    def execute(self, sql: str) -> Any:
        result = self.tx.execute(text(sql))
        return [tuple(row) for row in result] if result.returns_rows else []

    def commit(self) -> None:
        self.tx.commit()

    def rollback(self) -> None:
        self.tx.rollback()

    def nest(self) -> None:
        self._nested = self.tx.begin_nested()

    def unnest(self, *, keep: bool) -> None:
        if keep:
            self._nested.commit()
        else:
            self._nested.rollback()

    def trace(self, hear: Callable[[str], None]) -> None:
        self.tx.connection.driver_connection.set_trace_callback(hear)

    def close(self) -> None:
        self.tx.close()
        self.engine.dispose()


class AlchemyBegun(AlchemyConnection):
    """`with engine.begin()` and `with connection.begin()` begin before the first statement."""

    def begin(self) -> None:
        self.tx.begin()


class AlchemySession(AlchemyConnection):
    def open(self, **options: Any) -> None:
        self.engine = create_engine(self.address, poolclass=NullPool, **options)
        self.tx = Session(self.engine)

    def trace(self, hear: Callable[[str], None]) -> None:
        self.tx.connection().connection.driver_connection.set_trace_callback(hear)


class AlchemyScoped(AlchemySession):
    def open(self, **options: Any) -> None:
        self.engine = create_engine(self.address, poolclass=NullPool, **options)
        self.tx = scoped_session(sessionmaker(self.engine))

    def close(self) -> None:
        self.tx.remove()
        self.engine.dispose()


class AlchemyAsyncConnection(Kit):
    awaits = True
    driver: ClassVar[str] = "postgresql+psycopg"
    serialization_error = OperationalError

    @property
    def address(self) -> str:
        return self.driver + self.url[self.url.index(":") :]

    async def open(self, **options: Any) -> None:
        self.engine = create_async_engine(self.address, poolclass=NullPool, **options)
        self.tx = await self.engine.connect()

    async def open_autocommit(self) -> None:
        await self.open(isolation_level="AUTOCOMMIT")

    async def execute(self, sql: str) -> Any:
        result = await self.tx.execute(text(sql))
        return [tuple(row) for row in result] if result.returns_rows else []

    async def commit(self) -> None:
        await self.tx.commit()

    async def rollback(self) -> None:
        await self.tx.rollback()

    async def nest(self) -> None:
        self._nested = await self.tx.begin_nested()

    async def unnest(self, *, keep: bool) -> None:
        await (self._nested.commit() if keep else self._nested.rollback())

    async def trace(self, hear: Callable[[str], None]) -> None:
        raw = await self.tx.get_raw_connection()
        await raw.driver_connection.set_trace_callback(hear)

    async def close(self) -> None:
        await self.tx.close()
        await self.engine.dispose()


class AlchemyAsyncSession(AlchemyAsyncConnection):
    async def open(self, **options: Any) -> None:
        self.engine = create_async_engine(self.address, poolclass=NullPool, **options)
        self.tx = AsyncSession(self.engine)

    async def trace(self, hear: Callable[[str], None]) -> None:
        raw = await (await self.tx.connection()).get_raw_connection()
        await raw.driver_connection.set_trace_callback(hear)


class AlchemyAsyncScoped(AlchemyAsyncSession):
    async def open(self, **options: Any) -> None:
        self.engine = create_async_engine(self.address, poolclass=NullPool, **options)
        # One scope: each call of a test is another task.
        self.tx = async_scoped_session(async_sessionmaker(self.engine), scopefunc=lambda: 1)

    async def close(self) -> None:
        await self.tx.remove()
        await self.engine.dispose()


def on(driver: str, kit: type[Kit]) -> type[Kit]:
    """The same kit over another driver."""
    changed: dict[str, Any] = {"driver": driver}
    if driver == "postgresql+asyncpg":
        changed["serialization_error"] = DBAPIError
    return type(kit.__name__, (kit,), changed)
