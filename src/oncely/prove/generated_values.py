"""The values that a database has generated in a run: marked, so that they are not compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from oncely.prove.generated_columns import Origin, TableColumns, read_columns
from oncely.prove.readers import DatabaseReader, quoted
from oncely.prove.watch import Message, Note

BEGIN_MARK: Final = "\ue000"
END_MARK: Final = "\ue001"


class GeneratedValues:
    """`left_out` names the columns in which something was marked."""

    def __init__(self) -> None:
        self.left_out: set[str] = set()
        self._given: set[Origin] = set()
        self._columns: dict[tuple[str, str], TableColumns] = {}
        self._known: dict[tuple[str, Origin], set[str]] = {}

    def learn(self, messages: Iterable[Message]) -> None:
        """An id that a statement gives is the handler's own, and is compared."""
        for note in messages:
            if isinstance(note, Note) and note.what == "given":
                table, _, columns = note.text.partition(":")
                self._given |= {(table, column) for column in columns.split(",")}

    def compare(self, table: str) -> None:
        """The generated values of this table are compared after all."""
        self._given.add((_bare(table), "*"))

    def origins(
        self, table: str, now: DatabaseReader, first: Callable[[], DatabaseReader]
    ) -> dict[str, tuple[Origin, set[str]]]:
        """For each column that holds generated values: where they come from, and which of them were
        there before, as `first` tells. A key that refers to such a column holds them too."""

        def columns(name: str) -> TableColumns:
            if (now.key, name) not in self._columns:
                found = read_columns(now.query, name, now.engine)
                self._columns[now.key, name] = found
            return self._columns[now.key, name]

        def origin(name: str, column: str, passed: frozenset[Origin]) -> Origin | None:
            if (name, column) in passed or self._is_compared(name, "*"):
                return None
            found = columns(name)
            if column in found.references:
                return origin(*found.references[column], passed | {(name, column)})
            if column in found.times:
                return name, column
            place = f"#{found.names.index(column) + 1}" if column in found.names else "#0"
            given = self._is_compared(name, column) or self._is_compared(name, place)
            return (name, column) if column in found.ids and not given else None

        told = {}
        for column in columns(table).names:
            source = origin(table, column, frozenset())
            if source is not None:
                if (now.key, source) not in self._known:
                    self._known[now.key, source] = _values(first(), *source)
                told[column] = source, self._known[now.key, source]
        return told

    def mark(self, table: str, column: str, value: Any, origin: Origin, known: set[str]) -> Any:
        if value is None or str(value) in known:
            return value
        self.left_out.add(f"{table}.{column}")
        return f"{BEGIN_MARK}{origin[0]}.{origin[1]} {value}{END_MARK}"

    def _is_compared(self, table: str, column: str) -> bool:
        return (_bare(table), column.lower()) in self._given


def _values(first: DatabaseReader, table: str, column: str) -> set[str]:
    if not first.has(table):
        return set()
    return {str(value) for (value,) in first.query(f"select {quoted(column)} from {quoted(table)}")}


def _bare(table: str) -> str:
    return table.rpartition(".")[2].lower()
