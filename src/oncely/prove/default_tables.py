"""The tables that are compared without being named: all of a database of which none is named."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from oncely.prove.copies import Copies
from oncely.prove.generated_values import GeneratedValues
from oncely.prove.readers import DatabaseReader, Readers, quoted
from oncely.prove.world import Table

_MOST_ROWS: Final = 10_000
"""A larger table is compared only if it is named: each schedule reads all of it."""


class DefaultTable(Table):
    """Nobody has named it, so it may come and go, and columns that vary are left out of it."""

    def rows(
        self,
        readers: Readers,
        generated: GeneratedValues | None = None,
        *,
        first: bool = False,
    ) -> list[str]:
        if not self.reader(readers, first=first).has(self.name):
            return []
        return super().rows(readers, generated, first=first)


def find_default_tables(
    copies: Copies, named: Sequence[Table], looked_at: set[str], schema: str
) -> Iterator[DefaultTable]:
    """Those of the databases that were not looked at yet."""
    urls = [url for url in _urls(copies) if url not in looked_at]
    if not urls:
        return
    looked_at.update(urls)
    with Readers(copies) as readers:
        chosen = {table.reader(readers).key for table in named}
        for url in urls:
            database = DefaultTable(url, "")
            now, first = database.reader(readers), database.reader(readers, first=True)
            if now.key not in chosen:
                for name in sorted({*now.tables(schema), *first.tables(schema)}):
                    if not (_is_large(now, name) or _is_large(first, name)):
                        yield DefaultTable(url, name)


def _urls(copies: Copies) -> list[str]:
    """Of the databases of which there are copies."""
    files = [path for path in copies.sqlite_files() if os.path.exists(copies.file(path))]
    servers = [database.url for database in copies.databases.all]
    return [*(f"sqlite:///{quote(path)}" for path in files), *servers]


def _is_large(reader: DatabaseReader, table: str) -> bool:
    if not reader.has(table):
        return False
    return bool(reader.query(f"select 1 from {quoted(table)} limit 1 offset {_MOST_ROWS}"))


def varying_columns(one: Iterable[str], other: Iterable[str]) -> set[str]:
    """The columns in which two clean runs do not leave the same values."""
    values: list[dict[str, Counter[str]]] = [{}, {}]
    for found, lines in zip(values, (one, other), strict=True):
        for line in lines:
            for name, value in msgspec.json.decode(line).items():
                found.setdefault(name, Counter())[str(value)] += 1
    names = values[0].keys() | values[1].keys()
    return {name for name in names if values[0].get(name) != values[1].get(name)}


def without_columns(lines: Counter[str], columns: set[str]) -> Counter[str]:
    """As they are once a table ignores these columns."""
    found: Counter[str] = Counter()
    for line, count in lines.items():
        row = msgspec.json.decode(line)
        kept = {name: value for name, value in row.items() if name not in columns}
        found[msgspec.json.encode(kept, order="sorted").decode()] += count
    return found
