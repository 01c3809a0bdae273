"""Where the store is: from a URL to an engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from oncely.model.errors import InvalidInput
from oncely.model.keys import shown
from oncely.store.engine import Engine
from oncely.store.sql import QUEUE, Part

EXPECTED: Final = (
    "expected sqlite:///file.db, postgresql://user@host/database or https://host of a server"
)


def open_engine(url: str, *, schema: str, part: Part = QUEUE, api_key: str | None = None) -> Engine:
    if not isinstance(url, str):
        raise InvalidInput(f"the store's URL is {_shown(url)}; {EXPECTED}")
    url = without_driver(url)
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise InvalidInput(f"the store's URL is {_shown(url)}; {EXPECTED}")
    if scheme == "sqlite":
        from oncely.store.sqlite.engine import SqliteEngine

        return SqliteEngine(sqlite_path(rest, url), part)
    if scheme in ("postgresql", "postgres"):
        from oncely.store.postgres.engine import PostgresEngine

        return PostgresEngine(url, schema, part)
    if scheme in ("http", "https") and part is QUEUE:
        return _remote(url, api_key)
    raise InvalidInput(f"the store's URL begins with {scheme}://; {EXPECTED}")


def without_driver(url: str) -> str:
    """`postgresql+psycopg://…` is how SQLAlchemy writes the driver that we use. Another driver is
    refused: it would not be used."""
    scheme, separator, rest = url.partition("://")
    database, plus, driver = scheme.partition("+")
    if not separator or not plus or database not in ("postgresql", "postgres", "sqlite"):
        return url
    if database != "sqlite" and driver == "psycopg":
        return f"{database}://{rest}"
    ours = "Python's own sqlite3" if database == "sqlite" else "psycopg 3"
    raise InvalidInput(
        f"the store's URL begins with {scheme}://, and oncely connects with {ours}: write "
        f"{database}://… instead"
    )


def _remote(url: str, api_key: str | None) -> Engine:
    try:
        from oncely.store.remote.engine import RemoteEngine
    except ModuleNotFoundError as error:
        if error.name != "httpx2":
            raise
        raise InvalidInput(
            "a store behind a server needs an HTTP client: pip install 'oncely[server]'"
        ) from None
    return RemoteEngine(url, api_key)


def sqlite_path(rest: str, url: str) -> Path | None:
    """None is a store in memory. Three slashes lead to a relative path, four to an absolute one."""
    if rest in ("", "/", "/:memory:"):
        return None
    path = unquote(rest[1:])
    if not rest.startswith("/") or "?" in rest or "\0" in path:
        raise InvalidInput(
            f"the store's URL is {_shown(url)}; expected sqlite:///relative/file.db or "
            "sqlite:////absolute/file.db, without options"
        )
    return Path(path)


def _shown(url: object) -> str:
    """Without the password that a mistyped URL may carry."""
    return re.sub(r":[^:/@]*@", ":***@", shown(url))
