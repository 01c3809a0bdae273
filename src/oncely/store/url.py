"""Where the store is: from a URL to an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote

from oncely.model.errors import InvalidInput
from oncely.store.engine import Engine

_EXPECTED: Final = "expected sqlite:///file.db or postgresql://user@host/database"


def open_engine(url: str, *, schema: str) -> Engine:
    if not isinstance(url, str):
        raise InvalidInput(f"the store's URL is {url!r}; {_EXPECTED}")
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise InvalidInput(f"the store's URL is {url!r}; {_EXPECTED}")
    if scheme == "sqlite":
        from oncely.store.sqlite.engine import SqliteEngine

        return SqliteEngine(sqlite_path(rest, url))
    if scheme in ("postgresql", "postgres"):
        from oncely.store.postgres.engine import PostgresEngine

        return PostgresEngine(url, schema)
    raise InvalidInput(f"the store's URL begins with {scheme}://; {_EXPECTED}")


def sqlite_path(rest: str, url: str) -> Path | None:
    """None is a store in memory. Three slashes lead to a relative path, four to an absolute one."""
    if rest in ("", "/", "/:memory:"):
        return None
    if not rest.startswith("/") or "?" in rest:
        raise InvalidInput(
            f"the store's URL is {url!r}; expected sqlite:///relative/file.db or "
            "sqlite:////absolute/file.db, without options"
        )
    return Path(unquote(rest[1:]))
