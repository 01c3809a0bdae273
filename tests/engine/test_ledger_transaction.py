"""`ledger.transaction`: the entry and the effect in the caller's own transaction."""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from oncely import EffectMismatch, InProgress, InvalidInput, Ledger, LedgerEntry, SchemaError
from tests.engine.tx_party import Party
from tests.engine.tx_scene import (
    Scene,
    everywhere,
    on_lent_sqlite,
    on_postgres,
    on_sqlite,
    where_it_begins_by_itself,
)
from tests.waiting import PATIENCE_SECONDS

pytest_plugins = ["tests.engine.tx_fixtures", "tests.engine.ledger_fixtures"]

Body = Callable[[LedgerEntry], Any]


@pytest.fixture
def ledger(scene: Scene) -> Iterator[Ledger]:
    with Ledger(scene.url) as ledger:
        ledger.migrate()
        yield ledger


class Refused(Exception):
    pass


def later(party: Party, ledger: Ledger, key: str, body: Body) -> Future[Any]:
    """The block, in the party's own thread and form."""
    tx = party.kit.tx

    async def on_loop() -> Any:
        async with ledger.transaction(key, tx=tx) as entry:
            done = body(entry)
            if inspect.isawaitable(done):
                await done
        return entry

    def in_thread() -> Any:
        with ledger.transaction(key, tx=tx) as entry:
            body(entry)
        return entry

    return party.later(on_loop if party.kit.awaits else in_thread)


def within(party: Party, ledger: Ledger, key: str, body: Body) -> LedgerEntry:
    entry: LedgerEntry = later(party, ledger, key, body).result(PATIENCE_SECONDS)
    return entry


def placing(party: Party, name: str) -> Body:
    """An order, once, with a result."""

    def body(entry: LedgerEntry) -> Any:
        if not entry.fresh:
            return None
        entry.set_result({"order": name})
        return party.kit.execute(f"insert into orders values ('{name}')")

    return body


def failing(party: Party, name: str) -> Body:
    async def on_loop(_: LedgerEntry) -> None:
        await party.kit.execute(f"insert into orders values ('{name}')")
        raise Refused

    def in_thread(_: LedgerEntry) -> None:
        party.kit.execute(f"insert into orders values ('{name}')")
        raise Refused

    return on_loop if party.kit.awaits else in_thread


@everywhere
def test_entry_and_effect_are_committed_together_and_once(scene: Scene, ledger: Ledger) -> None:
    key = scene.fresh("webhook")
    for turn in range(3):
        party = scene.party()
        party.begin()
        entry = within(party, ledger, key, placing(party, key))
        assert (entry.fresh, entry.result) == (turn == 0, {"order": key})
        party.commit()
    assert scene.rows(f"select count(*) from orders where name = '{key}'") == [(1,)]


@everywhere
def test_after_a_rollback_it_is_fresh_again(scene: Scene, ledger: Ledger) -> None:
    key = scene.fresh("webhook")
    party = scene.party()
    party.begin()
    assert within(party, ledger, key, placing(party, key)).fresh
    party.rollback()
    assert not scene.has_order(key)
    party.begin()
    assert within(party, ledger, key, placing(party, key)).fresh
    party.commit()
    assert scene.has_order(key)


@everywhere
def test_an_exception_undoes_the_block_and_nothing_else(scene: Scene, ledger: Ledger) -> None:
    """Also for a caller that catches it and commits: an entry without its effect would lose it."""
    key, mine = scene.fresh("webhook"), scene.fresh("mine")
    party = scene.party()
    party.begin()
    party.order(mine)
    with pytest.raises(Refused):
        within(party, ledger, key, failing(party, key))
    party.commit()
    assert scene.has_order(mine)
    assert not scene.has_order(key)
    party.begin()
    assert within(party, ledger, key, placing(party, key)).fresh
    party.commit()


@everywhere
def test_blocks_can_be_nested_and_follow_each_other(scene: Scene, ledger: Ledger) -> None:
    outer, inner, third = scene.fresh("outer"), scene.fresh("inner"), scene.fresh("third")
    party = scene.party()
    party.begin()

    async def on_loop(_: LedgerEntry) -> None:
        await party.kit.execute(f"insert into orders values ('{outer}')")
        with suppress(Refused):
            async with ledger.transaction(inner, tx=party.kit.tx):
                await party.kit.execute(f"insert into orders values ('{inner}')")
                raise Refused

    def in_thread(_: LedgerEntry) -> None:
        party.kit.execute(f"insert into orders values ('{outer}')")
        with suppress(Refused), ledger.transaction(inner, tx=party.kit.tx):
            party.kit.execute(f"insert into orders values ('{inner}')")
            raise Refused

    assert within(party, ledger, outer, on_loop if party.kit.awaits else in_thread).fresh
    assert within(party, ledger, third, placing(party, third)).fresh
    assert not within(party, ledger, outer, lambda _: None).fresh
    party.commit()
    assert scene.has_order(outer)
    assert scene.has_order(third)
    assert not scene.has_order(inner)


@on_postgres
@pytest.mark.parametrize("first_commits", [True, False])
def test_the_second_waits_for_the_first(scene: Scene, ledger: Ledger, first_commits: bool) -> None:
    key = scene.fresh("webhook")
    first, second = scene.party(), scene.party()
    first.begin()
    within(first, ledger, key, placing(first, key))
    second.begin()
    backend = scene.backend(second)
    waiting = later(second, ledger, key, placing(second, key))
    scene.wait_until_blocked(backend, waiting)
    if first_commits:
        first.commit()
    else:
        first.rollback()
    entry = waiting.result(PATIENCE_SECONDS)
    assert (entry.fresh, entry.result) == (not first_commits, {"order": key})
    second.commit()
    assert scene.rows(f"select count(*) from orders where name = '{key}'") == [(1,)]


@on_sqlite
def test_on_sqlite_the_second_waits_for_the_file(scene: Scene, ledger: Ledger) -> None:
    key = scene.fresh("webhook")
    first, second = scene.party(), scene.party()
    first.begin()
    within(first, ledger, key, placing(first, key))
    second.begin()
    waiting = later(second, ledger, key, placing(second, key))
    first.commit()
    entry = waiting.result(PATIENCE_SECONDS)
    assert (entry.fresh, entry.result) == (False, {"order": key})
    second.commit()


@everywhere
def test_who_waited_too_long_is_told_and_can_go_on(scene: Scene) -> None:
    key, mine = scene.fresh("webhook"), scene.fresh("mine")
    with Ledger(scene.url, wait_seconds=0.2) as ledger:
        ledger.migrate()
        first, second = scene.party(), scene.party()
        first.begin()
        within(first, ledger, key, placing(first, key))
        second.begin()
        if scene.engine == "postgres":
            second.order(mine)
        else:  # its own patience is that of the library
            second.execute("pragma busy_timeout = 50")
        with pytest.raises(InProgress):
            within(second, ledger, key, placing(second, key))
        if scene.engine == "postgres":
            [(timeout,)] = second.execute("select current_setting('lock_timeout')")
            assert timeout == "0"
        first.rollback()
        entry = within(second, ledger, key, placing(second, key))
        assert entry.fresh
        second.commit()
    assert scene.has_order(key)
    assert scene.has_order(mine) == (scene.engine == "postgres")


@on_postgres
def test_the_callers_own_lock_timeout_is_left_alone(scene: Scene, ledger: Ledger) -> None:
    key = scene.fresh("webhook")
    party = scene.party()
    party.begin()
    party.execute("select set_config('lock_timeout', '1234ms', true)")
    within(party, ledger, key, placing(party, key))
    assert party.execute("select current_setting('lock_timeout')") == [("1234ms",)]
    party.rollback()


@everywhere
def test_a_key_of_another_verb_is_refused(scene: Scene, ledger: Ledger) -> None:
    key, mine = scene.fresh("step"), scene.fresh("mine")
    ledger.step(key, lambda: 1)
    party = scene.party()
    party.begin()
    with pytest.raises(EffectMismatch):
        within(party, ledger, key, placing(party, key))
    party.order(mine)
    party.commit()
    assert scene.has_order(mine)
    assert ledger.step(key, lambda: 2) == 1


@everywhere
def test_a_transaction_that_is_not_open_is_refused(scene: Scene, ledger: Ledger) -> None:
    party = scene.party_in_autocommit()
    with pytest.raises(InvalidInput, match="no open transaction"):
        within(party, ledger, scene.fresh("k"), lambda _: None)


@where_it_begins_by_itself
def test_a_transaction_that_is_ended_inside_is_said(scene: Scene, ledger: Ledger) -> None:
    """The other libraries keep it open themselves."""
    party = scene.party()
    party.begin()
    with pytest.raises(InvalidInput, match="ended inside the block"):
        within(party, ledger, scene.fresh("k"), lambda _: party.kit.commit())


@everywhere
def test_the_decorator_finds_the_transaction_in_the_call(scene: Scene, ledger: Ledger) -> None:
    key = scene.fresh("event")
    party = scene.party()
    options: Any = {
        "key": lambda event, tx: event,
        "verb": "transaction",
        "tx": lambda event, tx: tx,
    }

    @ledger.idempotent(**options)
    async def on_loop(event: str, tx: Any) -> str:
        await party.kit.execute(f"insert into orders values ('{event}')")
        return f"placed {event}"

    @ledger.idempotent(**options)
    def in_thread(event: str, tx: Any) -> str:
        party.kit.execute(f"insert into orders values ('{event}')")
        return f"placed {event}"

    handle = on_loop if party.kit.awaits else in_thread
    for _ in range(2):
        party.begin()
        assert party.do(handle, key, tx=party.kit.tx) == f"placed {key}"
        party.commit()
    assert scene.has_order(key)


@on_lent_sqlite
def test_a_lent_connection_needs_no_tx(scene: Scene) -> None:
    key = scene.fresh("k")
    party = scene.party()

    def call() -> list[bool]:
        ledger = Ledger(party.kit.tx)
        ledger.migrate()
        seen = []
        for _ in range(2):
            party.kit.begin()
            with ledger.transaction(key) as entry:
                seen.append(entry.fresh)
            party.kit.commit()
        return seen

    assert party.do(call) == [True, False]


def test_what_is_not_a_transaction_of_this_ledger(sqlite_url: str, postgres_url: str) -> None:
    import sqlite3

    import psycopg

    with Ledger(sqlite_url) as ledger, psycopg.connect(postgres_url) as other:
        with pytest.raises(InvalidInput, match="both must be one database"):
            ledger.transaction("k", tx=other).__enter__()
        with pytest.raises(InvalidInput, match="needs tx="):
            ledger.transaction("k")
        with pytest.raises(InvalidInput, match="expected a psycopg"):
            ledger.transaction("k", tx=object()).__enter__()
        elsewhere = sqlite3.connect(":memory:")
        with pytest.raises(InvalidInput, match="one database file"):
            ledger.transaction("k", tx=elsewhere).__enter__()
        elsewhere.close()
        with Ledger(postgres_url) as missing, pytest.raises(SchemaError, match=r"ledger\.migrate"):
            missing.transaction("k", tx=other).__enter__()


def test_a_result_is_set_by_the_first_only(sqlite_url: str) -> None:
    import sqlite3

    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    with Ledger(sqlite_url) as ledger:
        with (
            connection,
            ledger.transaction("k", tx=connection) as entry,
            pytest.raises(InvalidInput),
        ):
            entry.set_result(object())
        with connection, ledger.transaction("k", tx=connection) as entry:
            assert (entry.fresh, entry.result) == (False, None)
            with pytest.raises(InvalidInput, match="not fresh"):
                entry.set_result(1)
    connection.close()


def test_on_mysql(mysql_database: str) -> None:
    engine = create_engine(mysql_database)
    with engine.begin() as connection:
        connection.execute(text("create table orders (name varchar(99) primary key)"))
    with Ledger(mysql_database, wait_seconds=1) as ledger:
        ledger.migrate()
        with engine.connect() as one, engine.connect() as two:
            one.execute(text("select 1")).all()
            two.execute(text("select * from orders")).all()  # a snapshot from before
            with ledger.transaction("k", tx=one) as entry:
                one.execute(text("insert into orders values ('a')"))
                entry.set_result("a")
            before = two.scalar(text("select @@innodb_lock_wait_timeout"))
            with pytest.raises(InProgress):
                ledger.transaction("k", tx=two).__enter__()
            assert two.scalar(text("select @@innodb_lock_wait_timeout")) == before
            one.commit()
            with ledger.transaction("k", tx=two) as entry:
                assert (entry.fresh, entry.result) == (False, "a")
            two.commit()
            with suppress(Refused), ledger.transaction("b", tx=one):
                with ledger.transaction("c", tx=one):
                    one.execute(text("insert into orders values ('c')"))
                raise Refused
            one.commit()
            with ledger.transaction("b", tx=one) as b, ledger.transaction("c", tx=one) as c:
                assert (b.fresh, c.fresh) == (True, True)
            with pytest.raises(InvalidInput, match="ended inside"), ledger.transaction("d", tx=one):
                one.commit()
            one.rollback()
            assert one.scalar(text("select count(*) from orders")) == 1
    engine.dispose()


def test_on_mysql_the_second_waits(mysql_database: str) -> None:
    engine = create_engine(mysql_database)
    with Ledger(mysql_database) as ledger:
        ledger.migrate()
        taken, seen = threading.Event(), []

        def second() -> None:
            assert taken.wait(PATIENCE_SECONDS)
            with engine.begin() as connection, ledger.transaction("k", tx=connection) as entry:
                seen.append((entry.fresh, entry.result))

        thread = threading.Thread(target=second)
        thread.start()
        with engine.begin() as connection:
            with ledger.transaction("k", tx=connection) as entry:
                entry.set_result(1)
            taken.set()
            _wait_until_one_waits(engine)
        thread.join(PATIENCE_SECONDS)
        assert seen == [(False, 1)]
    engine.dispose()


def _wait_until_one_waits(engine: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    query = text("select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'")
    while True:
        with engine.connect() as connection:
            if connection.scalar(query):
                return
        assert time.monotonic() < deadline
        time.sleep(0.2)  # what is looked at more often than that is not brought up to date


def test_a_cancelled_wait_leaves_the_key_free(postgres_url: str) -> None:
    import psycopg

    async def run(ledger: Ledger) -> bool:
        async with (
            await psycopg.AsyncConnection.connect(postgres_url) as one,
            await psycopg.AsyncConnection.connect(postgres_url) as two,
        ):
            async with ledger.transaction("k", tx=one):
                pass
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), ledger.transaction("k", tx=two):
                    pass
            await two.rollback()
            await one.rollback()
            async with ledger.transaction("k", tx=two) as entry:
                pass
            return entry.fresh

    with Ledger(postgres_url) as ledger:
        ledger.migrate()
        assert asyncio.run(run(ledger))
