"""Functions that were imported by name: found in the parent, replaced in the children."""

from __future__ import annotations

import asyncio
import builtins
import os
import sqlite3
import sys
import time
from typing import Any, Final

from oncely.prove.seams import drivers, psycopg2
from oncely.prove.seams.file_writes import BY_DESCRIPTOR

_CLOCKS: Final = (
    "time time_ns monotonic monotonic_ns clock_gettime clock_gettime_ns localtime gmtime ctime "
    "asctime strftime sleep"
)
_FUNCTIONS: Final[tuple[Any, ...]] = (
    sqlite3.connect,
    builtins.open,
    asyncio.sleep,
    *(getattr(time, name) for name in _CLOCKS.split()),
    *(getattr(os, name) for name in ("open", *BY_DESCRIPTOR) if hasattr(os, name)),
)


class Everywhere:
    """Looking through all modules takes longer than a delivery, so it is done once."""

    def __init__(self) -> None:
        self._places: list[tuple[dict[str, Any], str, Any]] = []
        wanted = {id(each): each for each in (*_FUNCTIONS, *drivers.entries(), *psycopg2.entries())}
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", None)
            if isinstance(names, dict) and names is not globals():
                self._places += [
                    (names, name, wanted[id(value)])
                    for name, value in list(names.items())
                    if id(value) in wanted
                ]

    def replace(self, before: Any, after: Any) -> None:
        for names, name, value in self._places:
            if value is before:
                names[name] = after
