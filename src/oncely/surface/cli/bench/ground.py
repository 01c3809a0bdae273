"""Where it is measured: stores of its own, beside the one that is named, gone afterwards."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import quote

import msgspec

from oncely.model.errors import InvalidInput, StoreUnavailable
from oncely.store.measure import drop_schema
from oncely.store.url import without_driver
from oncely.surface.app import Oncely
from oncely.surface.base import DEFAULT_URL
from oncely.surface.cli.options import Options
from oncely.surface.cli.place import address, file_of, masked

_SCHEMA_CHARS: Final = 40
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]*")


class Store(msgspec.Struct, frozen=True):
    url: str
    schema: str

    @property
    def path(self) -> Path | None:
        """The file of an SQLite store."""
        return file_of(self.url)

    @contextmanager
    def opened(self, url: str | None = None) -> Iterator[Oncely]:
        """With `url`: by another way to the same database."""
        with Oncely(url or self.url, schema=self.schema) as app:
            yield app


class Ground(msgspec.Struct, frozen=True):
    """Makes stores that nobody else knows."""

    shown: str
    url: str
    """A folder for SQLite files, or a database of PostgreSQL."""
    schema: str
    number: Iterator[int]

    @contextmanager
    def store(self) -> Iterator[Store]:
        if self.url.startswith("sqlite:"):
            file = Store(f"{self.url}/{next(self.number)}.db", self.schema)
            with file.opened() as app:
                app.migrate()
            yield file
            return
        made = Store(self.url, f"{self.schema}_{next(self.number)}")
        with made.opened() as app:
            try:
                app.migrate()
                yield made
            finally:
                app._engine.run(lambda _: drop_schema(), "write")


@contextmanager
def ground(options: Options, purpose: str = "bench") -> Iterator[Ground]:
    """Jobs of others are never touched: on PostgreSQL it works in schemas with names of its own, on
    SQLite in files of its own, in the folder of the file that is named."""
    named = options.url is not None or os.environ.get("ONCELY_URL")
    url = without_driver(address(options.url)) if named else DEFAULT_URL
    scheme = url.partition("://")[0]
    if scheme == "sqlite":
        path = file_of(url) if named else None
        folder = None if path is None else path.absolute().parent
        if folder is not None and not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise StoreUnavailable(
                f"{folder} is no folder that can be written: oncely {purpose} makes files of its "
                "own beside the store that is named"
            )
        with TemporaryDirectory(prefix=f"oncely-{purpose}-", dir=folder) as made:
            where = folder or "a temporary folder"
            shown = f"SQLite {sqlite3.sqlite_version}, files in {where}"
            yield Ground(shown, f"sqlite:///{quote(made)}", options.schema, count(1))
        return
    if scheme not in ("postgresql", "postgres"):
        raise InvalidInput(
            f"the store's URL is {masked(url)}; expected the database itself, sqlite:///file.db or "
            f"postgresql://user@host/database: oncely {purpose} works on that"
        )
    if not _SCHEMA.fullmatch(options.schema):
        raise InvalidInput(
            f"--schema is {options.schema!r}; expected lower-case letters, digits or _"
        )
    schema = f"{options.schema[:_SCHEMA_CHARS]}_{purpose}_{token_hex(4)}"
    with Oncely(url, schema=schema) as app:
        # Also shows at once whether the database answers.
        shown = next(finding.detail for finding in app.examine() if finding.name == "store")
    yield Ground(shown, url, schema, count(1))
