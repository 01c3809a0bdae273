"""No statement of the ledger reads its table whole, however many entries there are."""

import re
import sqlite3
from contextlib import closing
from typing import Any

import psycopg
import pytest

from oncely import Ledger
from oncely.store.postgres.engine import PostgresEngine
from oncely.store.sql import LEDGER, Library

PARAMS: dict[str, Any] = {
    "name": "k", "owner": "o", "verb": "step", "fingerprint": "1:0", "arguments": "[]",
    "lease_us": 1, "source": "returned", "result": None, "doubt": True, "limit": 10, "age_us": 1,
    "happened": True, "by_whom": "ann", "note": None,
}  # fmt: skip
SEEKING = (
    "begin", "look", "retake", "renew", "leave", "done", "clear", "resolve_look", "resolve",
    "doubts", "prune", "take", "keep_result",
)  # fmt: skip


@pytest.mark.parametrize("name", SEEKING)
def test_sqlite_seeks(name: str, sqlite_url: str) -> None:
    with Ledger(sqlite_url) as ledger:
        ledger.migrate()
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        for prepared in Library("sqlite", part=LEDGER).get(name, ":{name}"):
            params = {param: PARAMS[param] for param in prepared.names}
            for *_, detail in connection.execute(f"explain query plan {prepared.text}", params):
                assert not re.match(r"SCAN (oncely_ledger|e)\b(?!.*USING INDEX)", detail), detail


@pytest.fixture(scope="module")
def filled(cluster: Any) -> Any:
    url = cluster.create_database("ledger_plans")
    with Ledger(url) as ledger, PostgresEngine(url, "oncely", LEDGER)._connect() as connection:
        ledger.migrate()
        connection.execute(
            "insert into oncely.ledger (name, verb, state, fingerprint, begun_by, holder,"
            " held_until, begun_at, ended_at) select 'e' || n, 'step', 'done', '1', 'o', 'o',"
            " clock_timestamp(), clock_timestamp(), clock_timestamp()"
            " from generate_series(1, 20000) n"
        )
        connection.execute("analyze")
        yield connection
    cluster.drop_database("ledger_plans")


@pytest.mark.parametrize("name", SEEKING)
def test_postgres_seeks(name: str, filled: psycopg.Connection[Any]) -> None:
    for prepared in Library("postgres", part=LEDGER).get(name, "%({name})s"):
        params = {param: PARAMS[param] for param in prepared.names}
        rows = filled.execute(f"explain (costs off) {prepared.text}".encode(), params)
        plan = "\n".join(row[0] for row in rows)
        assert "Seq Scan on ledger" not in plan, plan
        assert not re.search(r"Index (Only )?Scan using \w+ on ledger.*\n(?! *Index Cond)", plan), (
            plan
        )
