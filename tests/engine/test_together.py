"""What goes to PostgreSQL in one message, on a connection that has something behind it."""

from collections.abc import Callable, Iterator

import pytest

from oncely import NewJob, Oncely, StoreError
from oncely.store.claim import claim_statement, claimed_rows
from oncely.store.plan import Plan, Statement, Together
from oncely.store.postgres.engine import PostgresEngine
from oncely.store.postgres.wire import WireConnection
from tests.engine.steps import sql

COUNT = Statement("dead")


@pytest.fixture
def app(postgres_url: str) -> Iterator[Oncely]:
    with Oncely(postgres_url) as app:
        app.migrate()
        app.enqueue_many(NewJob("k", n) for n in range(3))
        yield app


def claim_one(nonce: int) -> Statement:
    return claim_statement("default", worker="w", nonce=nonce, lease_seconds=60, limit=1, started=1)


def claims(app: Oncely, parts: list[Statement], runs: list[bool]) -> list[str]:
    """The payloads that were claimed. `runs` tells of each run whether it was a second try."""

    def plan(again: bool) -> Plan[list[str]]:
        runs.append(again)
        answers = [rows for (rows,) in (yield Together(parts=parts))]
        return [job.payload for job in claimed_rows(answers[-1])]

    return app._engine.run(plan, "write")


def idle(app: Oncely) -> list[WireConnection]:
    assert isinstance(app._engine, PostgresEngine)
    return app._engine._idle


def forget_what_is_prepared(app: Oncely) -> None:
    for connection in idle(app):
        connection.execute("deallocate all")


def prepare_nothing(app: Oncely) -> None:
    """As behind a pooler."""
    for connection in idle(app):
        connection.prepare_threshold = None


def end_sessions(app: Oncely) -> None:
    for connection in idle(app):
        pid = connection.info.backend_pid
        sql(app, "select pg_terminate_backend(:pid, 5000)", pid=pid)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("happens", "runs"),
    [
        (lambda _: None, [False]),
        (forget_what_is_prepared, [False]),
        (prepare_nothing, [False]),
        (end_sessions, [False, True]),
    ],
)
def test_it_is_done_once_whatever_became_of_the_connection(
    app: Oncely, happens: Callable[[Oncely], None], runs: list[bool], alone: bool
) -> None:
    for nonce in range(2):
        parts = [claim_one(nonce)] if alone else [COUNT, claim_one(nonce)]
        seen: list[bool] = []
        assert claims(app, parts, seen) == [str(nonce)]
        assert seen == (runs if nonce else [False])
        assert len(idle(app)) == 1
        happens(app)
    assert sql(app, "select count(*) from oncely.lease") == [(2,)]


@pytest.mark.parametrize("before", [lambda _: None, prepare_nothing])
def test_it_is_done_whole_or_not_at_all(app: Oncely, before: Callable[[Oncely], None]) -> None:
    assert claims(app, [COUNT, claim_one(1)], []) == ["0"]
    before(app)
    with pytest.raises(StoreError, match="out of range"):
        claims(app, [claim_one(2), claim_one(2**70)], [])
    assert sql(app, "select nonce from oncely.lease") == [(1,)]


def test_one_that_is_gone_beside_one_that_is_new(app: Oncely) -> None:
    """All are taken for gone then, and prepared again."""
    app._engine.run(lambda _: _together(COUNT), "write")
    forget_what_is_prepared(app)
    assert claims(app, [COUNT, claim_one(1)], []) == ["0"]
    assert claims(app, [COUNT, claim_one(2)], []) == ["1"]


def _together(*parts: Statement) -> Plan[None]:
    yield Together(parts=parts)


def test_transactions_leave_the_session_alone_in_which_claims_are_planned(app: Oncely) -> None:
    """To plan one takes several times as long as to make it."""

    def beside(_: bool) -> Plan[None]:
        yield COUNT
        assert claims(app, [claim_one(1)], []) == ["0"]

    app._engine.run(beside, "transaction")
    assert claims(app, [claim_one(2)], []) == ["1"]
    assert ["claim" in connection._known for connection in idle(app)] == [False, True]
