"""What a statement or a request is called in a report."""

from __future__ import annotations

import re
from typing import Final

_SPACE: Final = re.compile(r"\s+")
_WRITTEN: Final = re.compile(
    r"(?:\b(?:insert\s+(?:(?:or\s+)?\w+\s+){0,2}?into|replace\s+into|delete\s+from|merge\s+into"
    r"|(?<!key\s)update(?:\s+or\s+\w+|\s+ignore\b)?|truncate(?:\s+table)?)|^\s*copy)\s+"
    r"(?!(?:set|of|nowait|skip|cascade|restrict|no)\b)(?:only\s+)?[\"`\[]?([\w.\"]+)",
    re.IGNORECASE,
)
_READS: Final = re.compile(
    r"\s*(select|values|show|begin|start|savepoint|release)\b", re.IGNORECASE
)
_LOCKS: Final = re.compile(r"\bfor\s+(update|no\s+key|share)|\b(insert|update|delete)\b", re.I)
_BEGINS: Final = re.compile(r"\s*(begin|start\s+transaction)\b", re.IGNORECASE)
_COMMITS: Final = re.compile(r"\s*(commit|end)\b", re.IGNORECASE)
_ENDS: Final = re.compile(r"\s*(commit|end|rollback(?!\s+to))\b", re.IGNORECASE)
_WIDTH: Final = 60


def first_words(statement: str) -> str:
    words = _SPACE.sub(" ", statement.strip().rstrip(";"))
    return words if len(words) <= _WIDTH else words[: _WIDTH - 1] + "…"


def written_tables(statement: str) -> list[str]:
    """Also those of its parts: `with … as (insert …)`."""
    return [match[1].replace('"', "") for match in _WRITTEN.finditer(statement)]


def reads(statement: str) -> bool:
    return bool(_READS.match(statement)) and not _LOCKS.search(statement)


def begins_one(statement: str) -> bool:
    return bool(_BEGINS.match(statement))


def commits(statement: str) -> bool:
    return bool(_COMMITS.match(statement))


def ends_one(statement: str) -> bool:
    return bool(_ENDS.match(statement))
