"""The ledger outside jobs, with processes that are ended at every boundary of every verb."""

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncely import InDoubt, Ledger
from tests.crash.fleet import Fleet
from tests.crash.ledger_calls import (
    KEY,
    Points,
    call,
    call_at_once,
    crash,
    found,
    open_ledger,
    transact,
)
from tests.crash.load import TORTURE

pytest_plugins = ["tests.engine.ledger_fixtures"]
NOWHERE = Points(None)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return tmp_path / "world"


@pytest.fixture(params=["sqlite_url", "postgres_url", "mysql_database", "redis_url"])
def place(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    with Ledger(url) as ledger:
        ledger.migrate()
    if request.param == "redis_url":
        from redis import Redis

        with Redis.from_url(url) as client:
            client.flushdb()
    return url


def forget(ledger: Ledger, world: Path) -> None:
    """A new start, for the next boundary."""
    world.unlink(missing_ok=True)
    while ledger._engine.run(lambda _: _forget(), "transaction"):
        pass


def _forget() -> Any:
    from oncely.store.ledger import plans

    return plans.prune(-1_000_000)


@pytest.fixture
def ledger(place: str) -> Iterator[Ledger]:
    """Of a process that lives, through all ends of others."""
    with open_ledger(place) as ledger:
        yield ledger


@pytest.mark.parametrize("verb", ["step", "fence", "verified"])
def test_ended_at_every_boundary(place: str, ledger: Ledger, world: Path, verb: str) -> None:
    """A step is repeated until it is recorded, a fence never. Its doubt is shown, and a person who
    looks ends it; one that can be asked about goes on by itself."""
    doubts = 0
    for last in itertools.count(step=1 if TORTURE > 1 or verb == "fence" else 2):
        if not crash(place, verb, world, last):
            break
        before = len(found(world))
        try:
            assert call(ledger, verb, world, NOWHERE) == "result"
        except InDoubt:
            doubts += 1
            assert verb == "fence"
            assert len(found(world)) == before
            assert [doubt.key for doubt in ledger.in_doubt()] == [KEY]
            result = "result" if before else None
            ledger.resolve(KEY, happened=bool(before), result=result)
            assert call(ledger, verb, world, NOWHERE) == "result"
        # The step was told apart by its key, had the other side taken one.
        assert len(found(world)) in ((1, 2) if verb == "step" else (1,)), (last, verb)
        assert call(ledger, verb, world, NOWHERE) == "result"
        forget(ledger, world)
    assert last >= 6
    assert (doubts > 0) == (verb == "fence")


@pytest.mark.torture
@pytest.mark.parametrize("verb", ["step", "fence", "verified"])
def test_ended_twice(url: str, world: Path, verb: str) -> None:
    """First with the intent written, or with the effect done; then anywhere, or under less
    torture at every fifth boundary."""
    with open_ledger(url) as ledger:
        ledger.migrate()
        pairs = 0
        for first in (2, 3):
            for second in itertools.count(step=1 if TORTURE > 1 else 5):
                assert crash(url, verb, world, first)
                if not crash(url, verb, world, second):
                    break
                pairs += 1
                try:
                    call(ledger, verb, world, NOWHERE)
                except InDoubt:
                    assert verb == "fence"
                    assert len(found(world)) <= 1
                    happened = bool(found(world))
                    ledger.resolve(KEY, happened=happened, result="result" if happened else None)
                    call(ledger, verb, world, NOWHERE)
                assert len(found(world)) >= 1
                if verb != "step":
                    assert len(found(world)) == 1, (first, second)
                forget(ledger, world)
            if ledger.in_doubt():
                ledger.resolve(KEY, happened=True)
            forget(ledger, world)
    assert pairs >= 2


def effects(url: str) -> list[Any]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return connection.execute("select * from effects").fetchall()
    with psycopg.connect(url) as other:
        return other.execute("select * from effects").fetchall()


def make_world(url: str) -> None:
    with Ledger(url) as ledger:
        ledger.migrate()
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute("create table effects (name text)")
            return
    with psycopg.connect(url) as other:
        other.execute("create table effects (name text)")


def test_a_transaction_ended_at_every_boundary(url: str, world: Path) -> None:
    make_world(url)
    with open_ledger(url) as ledger:
        for last in itertools.count():
            if not crash(url, "transaction", world, last):
                break
            assert transact(url, ledger, NOWHERE) == "result"
            assert effects(url) == [("done",)] * (last + 1)
            forget(ledger, world)
    assert last == 5


@pytest.mark.parametrize("verb", ["step", "fence", "verified"])
def test_eight_processes_with_one_key(place: str, world: Path, verb: str, fleet: Fleet) -> None:
    assert fleet.run(call_at_once, [(place, verb, world)] * 8) == ["result"] * 8
    assert found(world) == ["done"]


def test_eight_transactions_with_one_key(url: str, world: Path, fleet: Fleet) -> None:
    make_world(url)
    assert fleet.run(call_at_once, [(url, "transaction", world)] * 8) == ["result"] * 8
    assert effects(url) == [("done",)]
