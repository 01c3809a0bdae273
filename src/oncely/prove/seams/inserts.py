"""Which columns an INSERT gives a value to: the database fills in the others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_INSERT: Final = re.compile(
    r"\b(?:insert\s+(?:(?:or\s+)?\w+\s+){0,2}?into|replace\s+into)\s+([\w.\"`\[\]]+)"
    r"(?:\s+as\s+\w+)?\s*(?:\(([^()]*)\))?\s*(?:overriding\s+\w+\s+value\s+)?"
    r"(values\s*\(|default\s+values|select\b|with\b|set\b)?",
    re.IGNORECASE,
)
_SET: Final = re.compile(r"(?:,|\bset\b)\s*(`?\w+`?)\s*=", re.IGNORECASE)
_FILLED_IN: Final = ("null", "default")
_QUOTES: Final = '"`[]'


def given_columns(statement: str) -> Iterator[str]:
    """For each INSERT in a statement `table:column,column`; a column that is not named is its place
    in the row, as `#1`."""
    for match in _INSERT.finditer(statement):
        table = _bare(match[1].rpartition(".")[2])
        names = [_bare(name) for name in match[2].split(",")] if match[2] else None
        form = (match[3] or "").lower()
        values = _values(statement, match.end()) if form.startswith("values") else None
        if form.startswith("default"):
            continue
        if form == "set":  # of MySQL: `insert into t set a = 1, b = 2`
            names = [_bare(name) for name in _SET.findall(statement, match.start(3))]
        if names is None:
            names = [f"#{at}" for at in range(1, 1 + len(values or range(100)))]
        given = [
            name
            for at, name in enumerate(names)
            if values is None or at >= len(values) or values[at].lower() not in _FILLED_IN
        ]
        yield f"{table}:{','.join(given)}"


def _values(statement: str, at: int) -> list[str]:
    """The first row after `values (`."""
    values, depth, begin, quoted = list[str](), 0, at, False
    for place in range(at, len(statement)):
        character = statement[place]
        if character == "'":
            quoted = not quoted
        elif quoted:
            continue
        elif character == "(":
            depth += 1
        elif character in ",)" and depth == 0:
            values.append(statement[begin:place].strip())
            begin = place + 1
            if character == ")":
                break
        elif character == ")":
            depth -= 1
    return values


def _bare(name: str) -> str:
    return name.strip().strip(_QUOTES).lower()
