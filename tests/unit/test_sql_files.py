"""The statements of the two engines: the same names, the same parameters."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from oncely.store.sql import EngineName, Library

ENGINES: list[EngineName] = ["sqlite", "postgres"]

ONLY_ONE_ENGINE = {
    "place": "sqlite: which file a transaction is on; on PostgreSQL the schema answers that",
    "dead": "postgres: deleted rows stay until a vacuum; on SQLite they are gone at once",
    "vacuum_lease": "postgres: as before",
    "vacuum_ready": "postgres: as before",
    "tidy_lead": "postgres: as before",
    "listen_channel": "postgres: NOTIFY; on SQLite the file's version is looked at",
    "listen_hold": "postgres: as before",
    "listen_release": "postgres: as before",
    "migrations/0003_wake": "postgres: as before",
    "migrations/0020_locked_leases": "postgres: on SQLite no lease is locked",
    "schema_drop": "postgres: an SQLite store is a file, which is deleted",
    "admit_alike": "postgres: a quicker form of admit; on SQLite the document costs little",
    "admit_alike_keyed": "postgres: as before",
    "admit_new": "postgres: as before",
    "admit_new_keyed": "postgres: as before",
    "admit_one": "postgres: as before",
    "admit_one_keyed": "postgres: as before",
    "effect_done_whole": "postgres: a whole transaction in one message; on SQLite there is no wire",
    "effect_held": "postgres: as before",
    "settle_last": "postgres: in one message with the commit; on SQLite there is no wire",
    "write_lock": "sqlite: one writer at a time; on PostgreSQL the rows are locked",
}

ONLY_POSTGRES = {
    # SQLite has no dead entries to step over, and one writer at a time in any case
    "claim": {"bounds", "apart"},
    "claim_lanes": {"apart", "is_checked"},
}

ONLY_SQLITE = {
    # it cannot limit by a column, nor return what it has inserted from many statements
    "claim_lanes": {"quota", "most", "since"},
}


def statements(engine: EngineName) -> set[str]:
    folder = files("oncely.store") / engine
    top = {file.name for file in folder.iterdir()}
    migrations = {f"migrations/{file.name}" for file in (folder / "migrations").iterdir()}
    return {name.removesuffix(".sql") for name in top | migrations if name.endswith(".sql")}


def parameters(engine: EngineName, name: str) -> set[str]:
    return {param for part in Library(engine).get(name, ":{name}") for param in part.names}


COMMON = sorted(statements("sqlite") & statements("postgres"))


def test_both_engines_have_the_same_statements() -> None:
    assert statements("sqlite") ^ statements("postgres") == set(ONLY_ONE_ENGINE)


@pytest.mark.parametrize("name", [name for name in COMMON if not name.startswith("migrations/")])
def test_a_statement_has_the_same_parameters_on_both_engines(name: str) -> None:
    wanted = {engine: parameters(engine, name) for engine in ENGINES}
    # SQLite takes and ignores a parameter too many, psycopg too; one too few is an error.
    assert wanted["postgres"] - wanted["sqlite"] == ONLY_POSTGRES.get(name, set())
    assert wanted["sqlite"] - wanted["postgres"] == ONLY_SQLITE.get(name, set())


@pytest.mark.parametrize("engine", ENGINES)
def test_every_statement_is_asked_for_somewhere(engine: EngineName) -> None:
    source = Path(str(files("oncely")))
    code = "\n".join(path.read_text() for path in source.rglob("*.py"))
    unused = {
        name
        for name in statements(engine)
        if f'"{name}"' not in code and not name.startswith("migrations/")
    }
    assert unused == set()


def test_migrations_are_numbered_without_gaps_from_1() -> None:
    """Over both engines: one may have nothing to do. That the labels are the same where both have
    a number, and what one lacks, is shown with the statements."""
    labels = {m.label for engine in ENGINES for m in Library(engine).migrations}
    assert all(re.fullmatch(r"\d{4}_[a-z_]+", label) for label in labels)
    assert sorted(int(label[:4]) for label in labels) == list(range(1, len(labels) + 1))


def test_tables_and_columns_are_the_same_on_both_engines() -> None:
    def tables(engine: EngineName) -> dict[str, list[str]]:
        found = {}
        for part in Library(engine).get("migrations/0001_jobs", ":{name}"):
            match = re.match(r"create table oncely[._](\w+) \((.*?)\n\)", part.text, re.DOTALL)
            if match:
                lines = [line.strip() for line in match[2].splitlines()]
                names = [line.partition(" ")[0] for line in lines if line]
                found[match[1]] = [name for name in names if name != "primary"]
        return found

    assert tables("sqlite") == tables("postgres")
    assert len(tables("sqlite")) == 7


@pytest.mark.parametrize("engine", ENGINES)
def test_no_statement_is_cut_by_a_semicolon_or_percent_sign(engine: EngineName) -> None:
    """Files are split at `;` before a line's end; `%` is the driver's on PostgreSQL."""
    for name in statements(engine):
        for part in Library(engine).get(name, ":{name}"):
            assert ";" not in part.text.removesuffix(";"), name
            assert part.text, name
            assert part.text.count("'") % 2 == 0, name
            assert part.text.count("(") == part.text.count(")"), name


def test_a_colon_pair_is_a_cast_and_not_a_parameter() -> None:
    for name in COMMON:
        assert not parameters("postgres", name) & {"text", "json", "uuid", "bigint"}, name


def test_postgres_statements_double_the_percent_sign_that_is_theirs() -> None:
    for name in COMMON:
        for part in Library("postgres").get(name, "%({name})s"):
            rest = re.sub(r"%\([a-z_]+\)s|%%", "", part.text)
            assert "%" not in rest, name
