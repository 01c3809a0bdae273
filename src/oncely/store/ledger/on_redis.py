"""Redis: each statement is a script, which the server runs whole. What it has not yet written to
disk, or to the replica that takes over, it forgets: so nothing here is as sure as a database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from oncely.model.errors import InvalidInput, StoreError, StoreUnavailable
from oncely.store.engine import Access
from oncely.store.plan import Plan, Row, Statement, run

T = TypeVar("T")
# In braces: all keys are in one slot of a cluster, as a script needs them.
_PREFIX: Final = "{oncely}:ledger:"
_INDEXES: Final = ("{oncely}:ledger-open", "{oncely}:ledger-over", "{oncely}:ledger-resolutions")


def connect(url: str) -> RedisBooks:
    try:
        from redis import Redis
    except ImportError as error:
        raise InvalidInput("Redis needs the extra: pip install 'oncely[redis]'") from error
    try:
        return RedisBooks(Redis.from_url(url), own=True)
    except ValueError as error:
        raise InvalidInput(f"the URL of Redis cannot be read: {error}") from None


class RedisBooks:
    library = None

    def __init__(self, client: Any, *, own: bool = False) -> None:
        self._client = client
        self._own = own
        self._folder = Path(__file__).parent / "redis"
        self._head = (self._folder / "_head.lua").read_text("utf-8")
        self._scripts: dict[str, Any] = {}

    def run(self, make: Callable[[bool], Plan[T]], access: Access) -> T:  # noqa: ARG002
        from redis import exceptions

        try:
            return run(make(False), self._ask)
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            raise StoreUnavailable(f"Redis cannot be reached: {error}") from error
        except exceptions.RedisError as error:
            raise StoreError(f"Redis refused a script: {error}") from error

    def _ask(self, statement: Statement) -> list[Row]:
        script = self._scripts.get(statement.name)
        if script is None:
            body = (self._folder / f"{statement.name}.lua").read_text("utf-8")
            script = self._scripts[statement.name] = self._client.register_script(self._head + body)
        entry = _PREFIX + str(statement.params.get("name", ""))
        params = msgspec.json.encode(statement.params).decode()
        answer = script(keys=[entry, *_INDEXES], args=[_PREFIX, params])
        return [tuple(row) for row in msgspec.json.decode(answer)] if answer else []

    def vet(self) -> Plan[None]:
        raise InvalidInput("Redis has no transaction that an entry could be a part of")

    def migrate(self) -> list[str]:
        return []

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def renew(self) -> None:
        """The client's pool sees that it is in another process."""

    def close(self) -> None:
        if self._own:
            self._client.close()
