"""The world of a proof: what is compared after a schedule with what one clean run leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from oncely.model.errors import InvalidInput
from oncely.prove.copies import Copies
from oncely.prove.downstream import Downstream
from oncely.prove.generated_values import GeneratedValues
from oncely.prove.mailbox import Mailbox
from oncely.prove.numbers import ONLY, numbers
from oncely.prove.readers import DatabaseReader, Readers, quoted
from oncely.store.url import sqlite_path

Snapshot = dict[str, Counter[str]]
_NO_ACTION: Final = {"NO ACTION", "RESTRICT"}
_TRIGGERS: Final = """
select exists (select from pg_trigger where not tgisinternal) or exists (
    select from pg_constraint
    where conrelid = %s::regclass and contype = 'f'
        and (confdeltype not in ('a', 'r') or confupdtype not in ('a', 'r'))
)
"""
_MYSQL_TRIGGERS: Final = """
select 1 from information_schema.triggers where trigger_schema = database()
union all
select 1 from information_schema.referential_constraints
where constraint_schema = database() and table_name = %s and not (
    delete_rule in ('NO ACTION', 'RESTRICT') and update_rule in ('NO ACTION', 'RESTRICT')
)
limit 1
"""


@runtime_checkable
class Snapshots(Protocol):
    def snapshot(self) -> Any: ...


class Table:
    """The rows of a table, on SQLite, PostgreSQL, MySQL or MariaDB. Columns that no two runs share
    are ignored.

    What the database generates in a new row is not compared (ids of a sequence, random ids, times),
    and neither are keys that refer to such an id; with `compare_generated=True` it is.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        ignore: Sequence[str] = (),
        compare_generated: bool = False,
    ) -> None:
        scheme, _, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
        server = scheme.partition("+")[0]  # without the driver that SQLAlchemy writes there
        if server not in ("sqlite", "postgresql", "postgres", "mysql", "mariadb"):
            raise InvalidInput(
                f"the URL of a Table is {url!r}; expected sqlite:///path, postgresql://… or "
                "mysql://…"
            )
        self.url = f"{server}://{rest}"
        self.name = name
        self.ignore = frozenset([ignore] if isinstance(ignore, str) else ignore)
        self.compare_generated = compare_generated

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

    def reader(self, readers: Readers, *, first: bool = False) -> DatabaseReader:
        if self.path is not None:
            return readers.file(self.path, first=first)
        return readers.server(self.url, first=first)

    def rows(
        self,
        readers: Readers,
        generated: GeneratedValues | None = None,
        *,
        first: bool = False,
    ) -> list[str]:
        """As they are now, or as they were at the beginning; new values of `generated` marked."""
        now = self.reader(readers, first=first)
        marks = {}
        if generated is not None:
            marks = generated.origins(self.name, now, lambda: self.reader(readers, first=True))
        cursor = now.cursor(f"select * from {quoted(self.name)}")
        names = [column[0] for column in cursor.description]
        missing = self.ignore - set(names)
        if missing:
            raise InvalidInput(
                f"the table {self.name!r} has no column {', '.join(sorted(missing))} to ignore; it "
                f"has {', '.join(names)}"
            )

        def cell(name: str, value: Any) -> Any:
            if generated is None or name not in marks:
                return value
            return generated.mark(self.name, name, value, *marks[name])

        return [
            _line({n: cell(n, v) for n, v in zip(names, row, strict=True) if n not in self.ignore})
            for row in cursor.fetchall()
        ]

    def may_change_by_itself(self, copies: Copies) -> bool:
        """Whether a trigger, or a key that refers to another table, can write to it."""
        with Readers(copies) as readers:
            reader = self.reader(readers)
            query = reader.query
            if reader.engine == "mysql":
                return bool(query(_MYSQL_TRIGGERS, self.name))
            if reader.engine == "postgres":
                return bool(query(_TRIGGERS, quoted(self.name))[0][0])
            keys = query("select * from pragma_foreign_key_list(?)", self.name)
            triggers = query("select 1 from sqlite_master where type = 'trigger'")
            return bool(triggers) or any({*row[5:7]} - _NO_ACTION for row in keys)

    def check(self, copies: Copies) -> None:
        """That it is there, said before anything is run."""
        try:
            with Readers(copies) as readers:
                self.rows(readers)
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
        return Counter(_named_lines(value))
    if isinstance(value, list | tuple | set | frozenset):
        return Counter(_line(each) for each in value)
    named = f"{ONLY}: {_line(value)}"
    return Counter([named if numbers([named]) else _line(value)])


def _named_lines(value: dict[Any, Any]) -> Iterator[str]:
    """With a line for each value inside, so that a number there is judged as one, and a value that
    is twice in a list is seen to be there twice."""
    for name, each in value.items():
        if isinstance(each, dict) and each:
            yield from (f"{name}: {line}" for line in _named_lines(each))
        elif isinstance(each, list | tuple | set | frozenset) and each:
            yield from (f"{name}: {_line(one)}" for one in each)
        else:
            yield f"{name}: {_line(each)}"


def _line(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value, order="sorted", enc_hook=str).decode()
    except (TypeError, ValueError):
        return repr(value)
