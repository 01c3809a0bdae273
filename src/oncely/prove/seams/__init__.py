"""Where a handler meets the world: each library watched at the narrowest place it has.

Installed in the forked child only, so that nothing has to be put back.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Final

from oncely.prove.copies import Copies
from oncely.prove.seams import (
    audit,
    drivers,
    files,
    http,
    mail,
    mysql,
    postgres,
    psycopg2,
    redis,
    sqlite,
    store,
)
from oncely.prove.watch import IMPORTS, Note, Watch

_SEAMS: Final = (store, sqlite, postgres, psycopg2, mysql, http, mail, redis, drivers, files, audit)
_LIBRARIES: Final = {
    "psycopg": ("psycopg", "oncely.store.postgres.handler"),
    "asyncpg": ("asyncpg",),
    "psycopg2": ("psycopg2", "psycopg2.extras"),
    "pymysql": ("pymysql",),
    "redis": ("redis", "redis.asyncio"),
    "httpcore": ("httpcore",),
    "httpcore2": ("httpcore2",),
    "aiohttp": ("aiohttp",),
    "aiosmtplib": ("aiosmtplib",),
}


def install(watch: Watch, copies: Copies) -> None:
    for seam in _SEAMS:
        seam.install(watch, copies)
    sys.meta_path.insert(0, _Late(watch))


def bring_in(library: str) -> None:
    """In the parent, before the next fork."""
    for name in _LIBRARIES.get(library, (library,)):
        importlib.import_module(name)


def libraries() -> list[str]:
    """Those that are there and are watched."""
    return [name for name in _LIBRARIES if name in sys.modules] + [
        name for name in drivers.DRIVERS if drivers.module_of(name) is not None
    ]


def bring_in_whole() -> None:
    """What is there already, with the parts of it that are watched."""
    for library in _LIBRARIES:
        if library in sys.modules:
            bring_in(library)


class _Late:
    """A library that is imported only now is not watched yet. The delivery ends before it can do
    anything, and begins anew with the library there."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._tried: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        del path, target
        is_watched = name in _LIBRARIES or name in drivers.DRIVERS
        if is_watched and name not in self._tried and self._can_be_imported(name):
            self._watch.tell(Note("imports", name))
            os._exit(IMPORTS)

    def _can_be_imported(self, name: str) -> bool:
        """Not everything that can be found: Python has a `dbm.ndbm` also without its library."""
        self._tried.add(name)
        try:
            importlib.import_module(name)
        except ImportError:
            return False
        return True
