"""The statements of the ledger: the same names and parameters in every dialect."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import pytest

from oncely.store.sql import LEDGER, EngineName, Library

ENGINES: Final[list[EngineName]] = ["postgres", "sqlite", "mysql"]
ONLY_SQLITE = {"place", "write_lock"}
NOT_ON_REDIS = re.compile(r"schema_|savepoint|wait_|take$|keep_result|migrations/|place|write_lock")
NOTHING_TO_SET = {"wait_begin", "wait_end"}
"""On SQLite."""


def folder(engine: str) -> Any:
    return files("oncely.store").joinpath("ledger", engine)


def statements(engine: str, suffix: str = ".sql") -> set[str]:
    names = {file.name for file in folder(engine).iterdir()}
    if suffix == ".sql":
        names |= {f"migrations/{file.name}" for file in (folder(engine) / "migrations").iterdir()}
    return {name.removesuffix(suffix) for name in names if name.endswith(suffix)}


def parameters(engine: EngineName, name: str) -> set[str]:
    library = Library(engine, part=LEDGER)
    return {param for part in library.get(name, ":{name}") for param in part.names}


COMMON = sorted(statements("postgres"))


def test_every_dialect_has_the_same_statements() -> None:
    assert statements("sqlite") - ONLY_SQLITE == statements("postgres") == statements("mysql")
    on_redis = {name for name in COMMON if not NOT_ON_REDIS.match(name)}
    assert statements("redis", ".lua") == on_redis | {"_head"}


@pytest.mark.parametrize("name", [name for name in COMMON if name not in NOTHING_TO_SET])
def test_a_statement_has_the_same_parameters_in_every_dialect(name: str) -> None:
    wanted = [parameters(engine, name) for engine in ENGINES]
    assert wanted[0] == wanted[1] == wanted[2]


@pytest.mark.parametrize("name", sorted(statements("redis", ".lua") - {"_head"}))
def test_a_script_takes_no_other_parameters(name: str) -> None:
    text = (folder("redis") / f"{name}.lua").read_text()
    known = parameters("postgres", name) | {"name", "owner"}
    assert set(re.findall(r"\bp\.(\w+)", text)) <= known


def test_every_statement_is_asked_for_somewhere() -> None:
    source = Path(str(files("oncely")))
    code = "\n".join(path.read_text() for path in source.rglob("*.py"))
    names = statements("sqlite") | statements("redis", ".lua") - {"_head"}
    assert {n for n in names if f'"{n}"' not in code and not n.startswith("migrations/")} == set()


@pytest.mark.parametrize("engine", ENGINES)
def test_no_statement_is_cut_by_a_semicolon(engine: EngineName) -> None:
    for name in statements(engine):
        for part in Library(engine, part=LEDGER).get(name, ":{name}"):
            assert ";" not in part.text.removesuffix(";"), name
            assert part.text.count("'") % 2 == 0, name
            assert part.text.count("(") == part.text.count(")"), name
