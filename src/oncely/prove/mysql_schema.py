"""What a MySQL or MariaDB database consists of: read from one, made in another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from oncely.model.errors import InvalidInput

Run = Callable[..., list[tuple[Any, ...]]]
"""Runs a statement, with values, and returns its rows."""
TRANSACTIONAL: Final = ("InnoDB", "ROCKSDB")
_ENGINES: Final = (*TRANSACTIONAL, "Aria", "MyISAM", "MEMORY", "CSV", "ARCHIVE")
"""Those that keep their rows in the database itself, and not on another server."""
_TABLES: Final = """
select table_name, table_type, engine from information_schema.tables
where table_schema = %s and table_type <> 'VIEW' order by table_name
"""
_COLUMNS: Final = """
select column_name from information_schema.columns
where table_schema = %s and table_name = %s and coalesce(generation_expression, '') = ''
order by ordinal_position
"""
_OBJECTS: Final = """
select routine_type, routine_name from information_schema.routines where routine_schema = %s
union all
select 'VIEW', table_name from information_schema.tables
where table_schema = %s and table_type = 'VIEW'
union all
select 'TRIGGER', trigger_name from information_schema.triggers where trigger_schema = %s
order by 1, 2
"""
_NEXT_ID: Final = re.compile(r" AUTO_INCREMENT=(\d+)")
_DEFINER: Final = re.compile(r"\bDEFINER\s*=\s*(`(?:[^`]|``)*`|\S+?)@(`(?:[^`]|``)*`|\S+)")


class SchemaTable(msgspec.Struct, frozen=True):
    statement: str
    """That makes it, without the next id."""
    next_id: int


class SchemaObject(msgspec.Struct, frozen=True):
    """A function, a procedure, a view or a trigger."""

    kind: str
    name: str
    sql_mode: str | None
    statement: str


def name_quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def read_tables(run: Run, database: str) -> dict[str, SchemaTable]:
    run(f"use {name_quoted(database)}")  # names in the statements are then without the database
    found = {}
    for name, kind, engine in run(_TABLES, database):
        if kind != "BASE TABLE" or engine not in _ENGINES:
            raise InvalidInput(
                f"{name!r} of the MySQL database {database!r} cannot be copied: it is a "
                f"{kind} with the engine {engine}; expected tables of {', '.join(_ENGINES)}"
            )
        statement = str(run(f"show create table {name_quoted(name)}")[0][1])
        next_id = _NEXT_ID.search(statement)
        found[name] = SchemaTable(
            _NEXT_ID.sub("", statement), int(next_id[1]) if next_id is not None else 1
        )
    return found


def plain_tables(run: Run, database: str) -> frozenset[str]:
    """Those without transactions: what is written to them stays, whatever comes after."""
    return frozenset(
        name.lower() for name, _, engine in run(_TABLES, database) if engine not in TRANSACTIONAL
    )


def copy_tables(run: Run, source: str, target: str) -> None:
    tables = read_tables(run, source)
    run(f"use {name_quoted(target)}")
    for name, table in tables.items():
        run(table.statement)
        copy_rows(run, source, target, name)
        if table.next_id > 1:
            set_next_id(run, target, name, table.next_id)


def copy_rows(run: Run, source: str, target: str, table: str) -> None:
    columns = ", ".join(name_quoted(name) for (name,) in run(_COLUMNS, source, table))
    run(
        f"insert into {name_quoted(target)}.{name_quoted(table)} ({columns}) "
        f"select {columns} from {name_quoted(source)}.{name_quoted(table)}"
    )


def set_next_id(run: Run, database: str, table: str, next_id: int) -> None:
    run(f"alter table {name_quoted(database)}.{name_quoted(table)} auto_increment = {next_id}")


def object_names(run: Run, database: str) -> list[tuple[Any, ...]]:
    return run(_OBJECTS, database, database, database)


def read_objects(run: Run, database: str, definer: str) -> list[SchemaObject]:
    """With another definer: what they do, they may do as that one."""
    run(f"use {name_quoted(database)}")
    return list(_objects(run, database, definer))


def _objects(run: Run, database: str, definer: str) -> Iterator[SchemaObject]:
    for kind, name in object_names(run, database):
        row = run(f"show create {kind} {name_quoted(name)}")[0]
        mode, statement = (None, row[1]) if kind == "VIEW" else (row[1], row[2])
        if statement is None:
            raise InvalidInput(
                f"the {kind.lower()} {name!r} of the MySQL database {database!r} cannot be copied: "
                "its user may not see how it is defined"
            )
        yield SchemaObject(
            kind, name, mode, _DEFINER.sub(f"DEFINER={definer}", str(statement), count=1)
        )


def make_objects(run: Run, database: str, objects: list[SchemaObject]) -> None:
    """Those that need others are tried again when these are there."""
    run(f"use {name_quoted(database)}")
    mode = run("select @@sql_mode")[0][0]
    waiting = objects
    while waiting:
        failed: list[tuple[SchemaObject, Exception]] = []
        for each in waiting:
            run("set sql_mode = %s", mode if each.sql_mode is None else each.sql_mode)
            try:
                run(each.statement)
            except Exception as error:
                failed.append((each, error))
        run("set sql_mode = %s", mode)
        if len(failed) == len(waiting):
            first, why = failed[0]
            raise InvalidInput(
                f"the {first.kind.lower()} {first.name!r} of a MySQL database cannot be copied: "
                f"{why}"
            ) from why
        waiting = [each for each, _ in failed]
