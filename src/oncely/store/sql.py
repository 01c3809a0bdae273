"""The SQL files of the engines: one operation per file, in the words of each driver."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

import msgspec

EngineName = Literal["sqlite", "postgres", "mysql"]
_PARAM: Final = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_SCHEMA: Final = re.compile(r"\boncely\b")
_COMMENT: Final = re.compile(r"^\s*--.*\n", re.MULTILINE)


class Prepared(msgspec.Struct, frozen=True):
    """One SQL statement as a driver takes it, with the names of its parameters in order."""

    text: str
    names: tuple[str, ...]


class Migration(msgspec.Struct, frozen=True):
    number: int
    label: str
    checksum: str


class Part(msgspec.Struct, frozen=True):
    """Tables that belong together, with statements and migrations of their own."""

    folder: str
    remedy: str
    """What brings its tables up to date."""


QUEUE: Final = Part("", "run `oncely migrate` or call app.migrate()")
LEDGER: Final = Part("ledger", "call ledger.migrate()")


class Library:
    """All statements of one engine. A file may hold several, run in order as one operation."""

    def __init__(self, engine: EngineName, schema: str | None = None, part: Part = QUEUE) -> None:
        self.engine = engine
        self.remedy = part.remedy
        self._folder = Path(__file__).parent / part.folder / engine
        self._schema = schema
        self._prepared: dict[tuple[str, str], list[Prepared]] = {}

    def get(self, name: str, placeholder: str) -> list[Prepared]:
        """`placeholder` is how the driver writes a parameter: `:{name}`, `%({name})s`, `${n}`."""
        found = self._prepared.get((name, placeholder))
        if found is None:
            found = _read(self._folder, name, self._schema, placeholder)
            self._prepared[name, placeholder] = found
        return found

    def read_all(self, *placeholders: str) -> None:
        """Now, for processes that will be forked from this one."""
        for file in self._folder.glob("*.sql"):
            for placeholder in placeholders:
                self.get(file.stem, placeholder)

    def is_one_statement(self, name: str) -> bool:
        """Then it is done whole or not at all, also where nothing else sees to that."""
        return len(self.get(name, ":{name}")) == 1

    @property
    def migrations(self) -> list[Migration]:
        return _migrations(self._folder / "migrations")


# Kept for the whole process: a ledger of the caller's transaction is made anew for each of them.
@cache
def _read(folder: Path, name: str, schema: str | None, placeholder: str) -> list[Prepared]:
    source = _COMMENT.sub("", (folder / f"{name}.sql").read_text("utf-8"))
    if schema is not None:
        source = _SCHEMA.sub(f'"{schema}"', source)
    return [_prepare(part, placeholder) for part in source.strip().split(";\n") if part.strip()]


@cache
def _migrations(folder: Path) -> list[Migration]:
    found = []
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        label = file.name.removesuffix(".sql")
        checksum = sha256(file.read_bytes()).hexdigest()
        found.append(Migration(int(label.partition("_")[0]), label, checksum))
    return found


def _prepare(source: str, placeholder: str) -> Prepared:
    names: list[str] = []

    def place(match: re.Match[str]) -> str:
        name = match[1]
        if name not in names:
            names.append(name)
        return placeholder.format(name=name, n=names.index(name) + 1)

    if placeholder.startswith("%"):
        source = source.replace("%", "%%")
    return Prepared(_PARAM.sub(place, source.strip()), tuple(names))
