"""Columns that the database fills in: their values differ between two runs that did the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

Query = Callable[..., list[tuple[Any, ...]]]
Origin = tuple[str, str]
"""The table and the column that a value was generated for."""
_IDS: Final = re.compile(r"nextval\(|\w*(?:uuid|ulid|nanoid|random)\w*\s*\(", re.IGNORECASE)
_TIMES: Final = re.compile(
    r"\bcurrent_(?:timestamp|date|time)\b|\blocaltime|\bnow\(\)|'now'|_timestamp\(|timeofday\("
    r"|unixepoch\(\)",
    re.IGNORECASE,
)
_POSTGRES_COLUMNS: Final = """
select a.attname, a.attidentity <> '', coalesce(pg_get_expr(d.adbin, d.adrelid), '')
from pg_attribute a
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum and a.attgenerated = ''
where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""
_POSTGRES_KEYS: Final = """
select a.attname, c.confrelid::regclass::text, b.attname
from pg_constraint c
cross join unnest(c.conkey, c.confkey) as k (own, other)
join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.own
join pg_attribute b on b.attrelid = c.confrelid and b.attnum = k.other
where c.contype = 'f' and c.conrelid = %s::regclass
"""
_MYSQL_COLUMNS: Final = """
select column_name, coalesce(column_default, ''), extra from information_schema.columns
where table_schema = database() and table_name = %s order by ordinal_position
"""
_MYSQL_KEYS: Final = """
select column_name, referenced_table_name, referenced_column_name
from information_schema.key_column_usage
where table_schema = database() and table_name = %s and referenced_table_name is not null
"""


class TableColumns(msgspec.Struct, frozen=True):
    names: list[str]
    ids: frozenset[str]
    """Filled in by a sequence, or at random, where a statement does not give them."""
    times: frozenset[str]
    """Filled in with the time."""
    references: dict[str, Origin]


def read_columns(query: Query, table: str, engine: str) -> TableColumns:
    readers = {"sqlite": _of_sqlite, "postgres": _of_postgres, "mysql": _of_mysql}
    return readers[engine](query, table)


def _of_sqlite(query: Query, table: str) -> TableColumns:
    columns = query(
        "select name, type, coalesce(dflt_value, ''), pk from pragma_table_info(?)", table
    )
    sql = str(query("select max(sql) from sqlite_master where name = ?", table)[0][0] or "")
    ids, times = _filled_in((name, default) for name, _, default, _ in columns)
    keys = [(name, kind) for name, kind, _, pk in columns if pk]
    if len(keys) == 1 and keys[0][1].upper() == "INTEGER" and "without rowid" not in sql.lower():
        ids.add(keys[0][0])
    references = {}
    for parent, own, other in query(
        'select "table", "from", "to" from pragma_foreign_key_list(?)', table
    ):
        if other is None:  # the primary key, which has to be looked up
            found = query("select name from pragma_table_info(?) where pk = 1", parent)
            other = found[0][0] if found else "rowid"
        references[own] = (parent, other)
    return TableColumns(
        [name for name, *_ in columns], frozenset(ids), frozenset(times), references
    )


def _of_postgres(query: Query, table: str) -> TableColumns:
    columns = query(_POSTGRES_COLUMNS, table)
    ids, times = _filled_in((name, default) for name, _, default in columns)
    ids |= {name for name, is_identity, _ in columns if is_identity}
    references = {
        own: (parent.replace('"', ""), other) for own, parent, other in query(_POSTGRES_KEYS, table)
    }
    return TableColumns(
        [name for name, *_ in columns], frozenset(ids), frozenset(times), references
    )


def _of_mysql(query: Query, table: str) -> TableColumns:
    columns = query(_MYSQL_COLUMNS, table)
    ids, times = _filled_in((name, str(default)) for name, default, _ in columns)
    ids |= {name for name, _, extra in columns if "auto_increment" in extra.lower()}
    times |= {name for name, _, extra in columns if "on update" in extra.lower()}
    references = {own: (parent, other) for own, parent, other in query(_MYSQL_KEYS, table)}
    return TableColumns(
        [name for name, *_ in columns], frozenset(ids), frozenset(times), references
    )


def _filled_in(defaults: Iterable[tuple[str, str]]) -> tuple[set[str], set[str]]:
    """The columns whose default is an id, and those whose default is the time."""
    ids, times = set(), set()
    for name, default in defaults:
        if _IDS.search(default):
            ids.add(name)
        elif _TIMES.search(default):
            times.add(name)
    return ids, times
