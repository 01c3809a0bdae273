"""The world of a proof: what is compared after a schedule with what one clean run leaves."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from oncely.model.errors import InvalidInput
from oncely.prove.copies import Copies
from oncely.prove.downstream import Downstream
from oncely.prove.mailbox import Mailbox
from oncely.store.url import sqlite_path, without_driver

Snapshot = dict[str, Counter[str]]
_NO_ACTION: Final = {"NO ACTION", "RESTRICT"}
_TRIGGERS: Final = """
select exists (select from pg_trigger where not tgisinternal) or exists (
    select from pg_constraint
    where conrelid = %s::regclass and contype = 'f'
        and (confdeltype not in ('a', 'r') or confupdtype not in ('a', 'r'))
)
"""


@runtime_checkable
class Snapshots(Protocol):
    def snapshot(self) -> Any: ...


class Table:
    """The rows of a table, on SQLite or PostgreSQL. Columns that no two runs share are ignored."""

    def __init__(self, url: str, name: str, *, ignore: Sequence[str] = ()) -> None:
        if isinstance(url, str):
            url = without_driver(url)
        if not isinstance(url, str) or url.partition("://")[0] not in (
            "sqlite",
            "postgresql",
            "postgres",
        ):
            raise InvalidInput(
                f"the URL of a Table is {url!r}; expected sqlite:///path or postgresql://…"
            )
        self.url = url
        self.name = name
        self.ignore = frozenset([ignore] if isinstance(ignore, str) else ignore)

    @property
    def path(self) -> str | None:
        """The file, on SQLite."""
        if not self.url.startswith("sqlite"):
            return None
        path = sqlite_path(self.url.partition("://")[2], self.url)
        if path is None:
            raise InvalidInput(
                f"the Table {self.name!r} is in memory, where no other process sees it: use a file"
            )
        return str(path)

    def rows(self, copies: Copies) -> list[str]:
        query = f"select * from {_quoted(self.name)}"
        if self.path is not None:
            with closing(sqlite3.connect(copies.file(self.path), timeout=30)) as db:
                cursor: Any = db.execute(query)
                return self._told(cursor)
        import psycopg

        with psycopg.connect(str(copies.conninfo(self.url)), autocommit=True) as server:
            return self._told(server.execute(query.encode()))

    def _told(self, cursor: Any) -> list[str]:
        names = [column[0] for column in cursor.description]
        missing = self.ignore - set(names)
        if missing:
            raise InvalidInput(
                f"the table {self.name!r} has no column {', '.join(sorted(missing))} to ignore; it "
                f"has {', '.join(names)}"
            )
        return [
            _line({n: v for n, v in zip(names, row, strict=True) if n not in self.ignore})
            for row in cursor.fetchall()
        ]

    def may_change_by_itself(self, copies: Copies) -> bool:
        """Whether a trigger, or a key that refers to another table, can write to it."""
        if self.path is not None:
            with closing(sqlite3.connect(copies.file(self.path), timeout=30)) as db:
                keys = db.execute("select * from pragma_foreign_key_list(?)", [self.name])
                triggers = "select count(*) from sqlite_master where type = 'trigger'"
                (found,) = db.execute(triggers).fetchone()
                return found > 0 or any({*row[5:7]} - _NO_ACTION for row in keys.fetchall())
        import psycopg

        with psycopg.connect(str(copies.conninfo(self.url)), autocommit=True) as server:
            found = server.execute(_TRIGGERS, [_quoted(self.name)]).fetchone()
            return bool(found and found[0])

    def check(self, copies: Copies) -> None:
        """That it is there, said before anything is run."""
        try:
            self.rows(copies)
        except InvalidInput:
            raise
        except Exception as error:
            told = str(error).partition("\n")[0]
            raise InvalidInput(f"the table {self.name!r} cannot be read: {told}") from error


WorldItem = Table | Downstream | Mailbox | Snapshots | Callable[[], Any]


def labels(world: Sequence[WorldItem]) -> list[str]:
    found = []
    for number, item in enumerate(world):
        match item:
            case Table():
                found.append(f"table {item.name}")
            case Downstream():
                found.append(f"downstream {item.url}")
            case Mailbox():
                found.append(f"mailbox {item.address}")
            case Snapshots():
                found.append(f"{type(item).__name__} {number}")
            case _ if callable(item):
                found.append(f"{getattr(item, '__name__', 'callable')} {number}")
            case _:
                raise InvalidInput(
                    f"world[{number}] is {item!r}; expected a Table, a Downstream, a Mailbox, "
                    "something with snapshot(), or a function"
                )
    return found


def counted(value: Any) -> Counter[str]:
    """Whatever a snapshot gave, as lines that can be counted."""
    if isinstance(value, Counter):
        return Counter({_line(each): count for each, count in value.items()})
    if isinstance(value, dict):
        return Counter(f"{name}: {_line(each)}" for name, each in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return Counter(_line(each) for each in value)
    return Counter([_line(value)])


def _line(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value, order="sorted", enc_hook=str).decode()
    except (TypeError, ValueError):
        return repr(value)


def _quoted(name: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))
