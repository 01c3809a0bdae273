"""Any database of SQLAlchemy's that the ledger has statements for, MySQL and MariaDB among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from oncely.model.errors import InvalidInput, OncelyError, StoreError, StoreUnavailable
from oncely.store import schema
from oncely.store.caller import borrow, engine_of_vendor
from oncely.store.engine import Access
from oncely.store.plan import Plan, run
from oncely.store.sql import LEDGER, Library

T = TypeVar("T")
_TRIES: Final = 5
_DEADLOCK: Final = 1213
_RETRYABLE: Final = ("40001", "40P01")
_READ_ONLY: Final = "25006"


def connect(url: str) -> AlchemyBooks:
    try:
        from sqlalchemy import create_engine
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError
    except ImportError as error:
        raise InvalidInput(
            "MySQL and MariaDB need the extra: pip install 'oncely[sqlalchemy]', and a driver, "
            "such as pymysql"
        ) from error
    try:
        return AlchemyBooks(create_engine(url, pool_pre_ping=True), own=True)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise InvalidInput(f"the URL cannot be used by SQLAlchemy: {error}") from error


class AlchemyBooks:
    def __init__(self, engine: Any, *, own: bool = False) -> None:
        self._engine = engine
        self._own = own
        self._checked = False
        self.library = Library(engine_of_vendor("SQLAlchemy", engine.dialect.name), part=LEDGER)

    def run(self, make: Callable[[bool], Plan[T]], access: Access) -> T:  # noqa: ARG002
        from sqlalchemy.exc import DBAPIError

        again = False
        for remaining in reversed(range(_TRIES)):
            try:
                return self._once(self._checking(make(again)))
            except DBAPIError as error:
                if error.connection_invalidated and not again and remaining:
                    again = True
                elif not (remaining and _is_repeatable(error)):
                    raise _trouble(error) from error
        raise AssertionError("unreachable: the last try returns or raises")

    def _once(self, plan: Plan[T]) -> T:
        with self._engine.begin() as connection:
            caller = borrow(connection)
            return run(plan, lambda statement: caller.ask(self.library, statement))

    def _checking(self, plan: Plan[T]) -> Plan[T]:
        yield from self.vet()
        return (yield from plan)

    def vet(self) -> Plan[None]:
        if not self._checked:
            yield from schema.check(self.library)
            self._checked = True

    def migrate(self) -> list[str]:
        from sqlalchemy.exc import DBAPIError

        try:
            return self._once(schema.migrate(self.library))
        except DBAPIError as error:
            raise _trouble(error) from error

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def renew(self) -> None:
        """In the child of a fork: leave the parent's connections alone. For an Engine of the
        user's own that is the user's to do, as SQLAlchemy asks for."""
        if self._own:
            self._engine.dispose(close=False)

    def close(self) -> None:
        if self._own:
            self._engine.dispose()


def _sqlstate(error: Any) -> str | None:
    return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)


def _is_repeatable(error: Any) -> bool:
    return _sqlstate(error) in _RETRYABLE or error.orig.args[:1] == (_DEADLOCK,)


def _trouble(error: Any) -> OncelyError:
    from sqlalchemy.exc import InterfaceError, OperationalError

    first_line = str(error.orig).strip().partition("\n")[0]
    if isinstance(error, OperationalError | InterfaceError) or _sqlstate(error) == _READ_ONLY:
        return StoreUnavailable(f"the database cannot serve this call: {first_line}")
    return StoreError(f"the database refused a statement: {first_line}")
