"""The ledger outside jobs: step and fence, on every place that it can be kept."""

import asyncio
import inspect
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

import pytest

from oncely import (
    EffectMismatch,
    EffectNotFound,
    InDoubt,
    InProgress,
    InvalidInput,
    Ledger,
    SchemaError,
)
from oncely.flow.entries import intend
from oncely.model.errors import OncelyError
from oncely.store.ledger import plans
from tests.engine.ledger_places import Place, everywhere, where_calls_meet
from tests.waiting import PATIENCE_SECONDS

pytest_plugins = ["tests.engine.ledger_fixtures"]


class World:
    """What was done, in order."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def do(self, *args: Any) -> Any:
        self.done.append(args)
        return {"n": len(self.done)}

    async def ado(self, *args: Any) -> Any:
        return self.do(*args)


@pytest.fixture(params=["sync", "async"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Act = Callable[..., Any]


@pytest.fixture
def act(form: str) -> Act:
    """Call a verb of a ledger, or its async twin."""

    def act(ledger: Ledger, verb: str, *args: Any, **options: Any) -> Any:
        if form == "sync":
            return getattr(ledger, verb)(*args, **options)

        async def on_loop() -> Any:
            return await getattr(ledger, f"a{verb}")(*args, **options)

        return asyncio.run(on_loop())

    return act


def boom(*_: Any) -> Any:
    raise TimeoutError("no answer")


def refuse(*_: Any) -> Any:
    raise ConnectionRefusedError(111, "refused")


def leave_behind(ledger: Ledger, key: str, verb: Any, *args: Any) -> None:
    """As a call that was ended in the middle: its intent, and a lease that has run out."""
    intent = intend(key, verb, args)
    ledger._engine.run(lambda _: plans.begin(intent, 0), "transaction")


@everywhere
def test_a_step_is_done_once_and_its_result_comes_back(place: Place, act: Act) -> None:
    ledger, world = place.ledger(), World()
    key = place.key("invoice:7")
    for _ in range(3):
        assert act(ledger, "step", key, world.do, 7, "pdf") == {"n": 1}
    assert world.done == [(7, "pdf")]
    assert act(place.ledger(), "step", key, world.do, 7, "pdf") == {"n": 1}
    assert act(ledger, "step", place.key("invoice:8"), world.do, 7, "pdf") == {"n": 2}


@everywhere
def test_a_step_that_failed_is_repeated(place: Place, act: Act) -> None:
    ledger, world = place.ledger(), World()
    key = place.key("k")
    for _ in range(2):
        with pytest.raises(TimeoutError):
            act(ledger, "step", key, boom)
    assert act(ledger, "step", key, world.do) == {"n": 1}
    assert act(ledger, "step", key, boom) == {"n": 1}


@everywhere
def test_a_step_past_its_key_ttl_is_in_doubt(place: Place, act: Act) -> None:
    ledger, world = place.ledger(), World()
    key = place.key("k")
    leave_behind(ledger, key, "step")
    threading.Event().wait(0.1)
    with pytest.raises(InDoubt, match=r"remembers its key"):
        act(ledger, "step", key, world.do, key_ttl=0.05)
    assert world.done == []
    assert key in [doubt.key for doubt in ledger.in_doubt()]
    ledger.resolve(key, happened=False)
    assert act(ledger, "step", key, world.do, key_ttl=0.05) == {"n": 1}


@everywhere
def test_a_fence_is_done_once(place: Place, act: Act) -> None:
    ledger, world = place.ledger(), World()
    key = place.key("welcome:42")
    assert act(ledger, "fence", key, world.do, "ann") == {"n": 1}
    assert act(ledger, "fence", key, boom, "ann") == {"n": 1}
    assert world.done == [("ann",)]


@everywhere
def test_a_fence_that_timed_out_is_held_until_somebody_says(place: Place, act: Act) -> None:
    ledger, world = place.ledger(), World()
    key, other = place.key("k"), place.key("other")
    for name in (key, other):
        with pytest.raises(TimeoutError) as caught:
            act(ledger, "fence", name, boom)
        assert "in doubt now" in caught.value.__notes__[0]
        for _ in range(2):
            with pytest.raises(InDoubt, match=r"ledger.resolve\('"):
                act(ledger, "fence", name, world.do)
    assert world.done == []
    act(ledger, "resolve", key, happened=True, result="sent", note="I asked", by="ann")
    assert act(ledger, "fence", key, world.do) == "sent"
    act(ledger, "resolve", other, happened=False)
    assert act(ledger, "fence", other, world.do) == {"n": 1}


@everywhere
def test_a_fence_whose_caller_is_gone_is_in_doubt(place: Place, act: Act) -> None:
    """Nobody had the time to say so: whoever comes next finds the intent."""
    ledger, world = place.ledger(), World()
    key = place.key("k")
    leave_behind(ledger, key, "fence", "ann")
    [doubt] = [doubt for doubt in ledger.in_doubt() if doubt.key == key]
    assert (doubt.verb, doubt.arguments) == ("fence", '["ann"]')
    with pytest.raises(InDoubt):
        act(ledger, "fence", key, world.do, "ann")
    assert world.done == []


@everywhere
def test_in_doubt_verify_decides(place: Place, act: Act) -> None:
    ledger, world = place.ledger(), World()
    key, other = place.key("k"), place.key("other")
    leave_behind(ledger, key, "fence", 1)
    asked: list[Any] = []

    def found(*args: Any) -> Any:
        asked.append(args)
        return "found"

    assert act(ledger, "fence", key, world.do, 1, verify=found) == "found"
    assert act(ledger, "fence", key, world.do, 1, verify=found) == "found"
    assert (asked, world.done) == ([(1,)], [])
    leave_behind(ledger, other, "fence", 2)
    assert act(ledger, "fence", other, world.do, 2, verify=lambda _: None) == {"n": 1}
    assert world.done == [(2,)]


@everywhere
def test_a_verify_that_fails_decides_nothing(place: Place, act: Act) -> None:
    ledger, world = place.ledger(), World()
    key = place.key("k")
    leave_behind(ledger, key, "fence")
    with pytest.raises(TimeoutError):
        act(ledger, "fence", key, world.do, verify=boom)
    with pytest.raises(InDoubt):
        act(ledger, "fence", key, world.do)
    assert world.done == []


@everywhere
@pytest.mark.parametrize(("policy", "done"), [("retry", 1), ("assume_done", 0)])
def test_in_doubt_as_declared(place: Place, act: Act, policy: Any, done: int) -> None:
    ledger, world = place.ledger(), World()
    key = place.key("k")
    leave_behind(ledger, key, "fence")
    value = act(ledger, "fence", key, world.do, in_doubt=policy)
    assert (value, len(world.done)) == ({"n": 1} if done else None, done)
    assert act(ledger, "fence", key, world.do, in_doubt=policy) == value
    assert len(world.done) == done


@everywhere
def test_an_error_that_proves_that_nothing_was_sent_clears_the_intent(
    place: Place, act: Act
) -> None:
    ledger, world = place.ledger(), World()
    key, other = place.key("k"), place.key("other")
    with pytest.raises(ConnectionRefusedError):
        act(ledger, "fence", key, refuse)
    assert act(ledger, "fence", key, world.do) == {"n": 1}
    with pytest.raises(TimeoutError):
        act(ledger, "fence", other, boom, not_done=(TimeoutError,))
    assert act(ledger, "fence", other, world.do) == {"n": 2}


@everywhere
def test_what_proves_this_time_says_nothing_of_an_earlier_one(place: Place, act: Act) -> None:
    ledger, world = place.ledger(), World()
    key = place.key("k")
    leave_behind(ledger, key, "fence")
    with pytest.raises(ConnectionRefusedError):
        act(ledger, "fence", key, refuse, in_doubt="retry")
    with pytest.raises(InDoubt):
        act(ledger, "fence", key, world.do)


@everywhere
def test_other_arguments_or_another_verb_are_refused(place: Place, act: Act) -> None:
    ledger, world = place.ledger(), World()
    key = place.key("k")
    leave_behind(ledger, key, "step", 1)
    for verb, argument in (("step", 2), ("fence", 1)):
        with pytest.raises(EffectMismatch):
            act(ledger, verb, key, world.do, argument)
    assert world.done == []
    assert act(ledger, "step", key, world.do, 1) == {"n": 1}
    with pytest.raises(EffectMismatch, match="other arguments"):
        act(ledger, "step", key, world.do, 2)


@everywhere
def test_a_result_that_cannot_be_kept_is_said_and_not_repeated(place: Place, act: Act) -> None:
    ledger = place.ledger()
    key = place.key("k")
    runs: list[int] = []

    def strange() -> object:
        runs.append(1)
        return object()

    for _ in range(2):
        with pytest.raises(InvalidInput, match="not a JSON value"):
            act(ledger, "step", key, strange)
    assert runs == [1]


@everywhere
@pytest.mark.parametrize(
    "result", [None, 0, "ü \N{PILE OF POO} / \\", [1, {"a": None}], 1.5, "x" * 99_999]
)
def test_results_come_back_as_they_were(place: Place, result: Any) -> None:
    ledger = place.ledger()
    key = place.key("k")
    assert ledger.step(key, lambda: result) == result
    assert ledger.step(key, boom) == result


@where_calls_meet
def test_the_second_caller_waits_for_the_first(place: Place, act: Act, form: str) -> None:
    world, begun, go_on = World(), threading.Event(), threading.Event()
    key = place.key("k")

    def slow() -> Any:
        begun.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return world.do()

    first, second = place.ledger(), place.ledger()
    with ThreadPoolExecutor() as threads:
        one = threads.submit(act, first, "fence", key, slow)
        assert begun.wait(PATIENCE_SECONDS)
        two = threads.submit(act, second, "fence", key, world.do)
        impatient = place.ledger(wait_seconds=0.1)
        with pytest.raises(InProgress, match="Repeat it later"):
            act(impatient, "fence", key, world.do)
        with pytest.raises(InProgress):
            act(impatient, "resolve", key, happened=True)
        assert not two.done()
        go_on.set()
        assert one.result(PATIENCE_SECONDS) == two.result(PATIENCE_SECONDS) == {"n": 1}
    assert len(world.done) == 1


@where_calls_meet
def test_while_its_function_runs_the_entry_is_renewed(place: Place) -> None:
    """The function outlasts its lease, and nobody takes its place."""
    world, begun, go_on = World(), threading.Event(), threading.Event()
    key = place.key("k")
    lease_us = 6_000_000

    def slow() -> Any:
        begun.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return world.do()

    first = place.ledger(lease_seconds=lease_us / 1e6)
    renewed = threading.Event()
    real = first._engine.run

    def counted(make: Any, access: Any) -> Any:
        value = real(make, access)
        if threading.current_thread().name == "oncely-ledger":
            renewed.set()
        return value

    first._engine.run = counted  # type: ignore[method-assign]
    with ThreadPoolExecutor() as threads:
        one = threads.submit(first.fence, key, slow)
        assert begun.wait(PATIENCE_SECONDS)
        assert renewed.wait(PATIENCE_SECONDS)
        go_on.set()
        assert one.result(PATIENCE_SECONDS) == {"n": 1}
    assert first.fence(key, world.do) == {"n": 1}


@where_calls_meet
def test_evidence_counts_however_late(place: Place) -> None:
    """The first call was taken for gone, and a second is held for its doubt: then the first one
    comes back and knows."""
    key = place.key("k")
    ledger = place.ledger()
    intent = intend(key, "fence", ())
    ledger._engine.run(lambda _: plans.begin(intent, 0), "transaction")
    with pytest.raises(InDoubt):
        ledger.fence(key, boom)
    ledger._engine.run(lambda _: plans.done(intent, "returned", '"sent"'), "transaction")
    assert ledger.fence(key, boom) == "sent"
    assert ledger.step(place.key("other"), lambda: 1) == 1


@where_calls_meet
def test_late_proof_that_nothing_happened_ends_the_doubt(place: Place) -> None:
    key = place.key("k")
    ledger, world = place.ledger(), World()
    intent = intend(key, "fence", ())
    ledger._engine.run(lambda _: plans.begin(intent, 0), "transaction")
    with pytest.raises(InDoubt):
        ledger.fence(key, boom)
    ledger._engine.run(lambda _: plans.clear(intent), "transaction")
    assert ledger.fence(key, world.do) == {"n": 1}


@where_calls_meet
def test_late_proof_of_one_call_says_nothing_of_the_next(place: Place) -> None:
    """The first was taken for gone, the second did it anew and is gone too: only it could know."""
    key = place.key("k")
    ledger = place.ledger()
    first, second = intend(key, "fence", ()), intend(key, "fence", ())
    for intent in (first, second):
        ledger._engine.run(lambda _, i=intent: plans.begin(i, 0), "transaction")  # type: ignore[misc]
    assert ledger._engine.run(lambda _: plans.retake(second), "transaction")
    assert not ledger._engine.run(lambda _: plans.retake(first), "transaction")
    ledger._engine.run(lambda _: plans.clear(first), "transaction")
    with pytest.raises(InDoubt):
        ledger.fence(key, boom)


@where_calls_meet
def test_of_two_that_find_a_dead_call_one_goes_on(place: Place) -> None:
    key = place.key("k")
    world = World()
    ledgers = [place.ledger() for _ in range(4)]
    leave_behind(ledgers[0], key, "step")
    with ThreadPoolExecutor() as threads:
        calls = [threads.submit(ledger.step, key, world.do) for ledger in ledgers]
        assert [call.result(PATIENCE_SECONDS) for call in calls] == [{"n": 1}] * 4
    assert len(world.done) == 1


@where_calls_meet
def test_what_a_cancelled_call_began_in_a_thread_is_recorded_when_it_ends(place: Place) -> None:
    key = place.key("k")
    ledger, world = place.ledger(), World()
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> Any:
        begun.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return world.do()

    async def cancelled() -> None:
        task = asyncio.create_task(ledger.afence(key, slow))
        assert await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    impatient = place.ledger(wait_seconds=0.1)
    with pytest.raises(InProgress):
        impatient.fence(key, world.do)
    go_on.set()
    assert place.ledger().fence(key, world.do) == {"n": 1}
    assert len(world.done) == 1


@everywhere
def test_an_async_function_is_awaited_and_its_cancellation_is_doubt(place: Place) -> None:
    ledger, world = place.ledger(), World()
    key, other = place.key("k"), place.key("other")

    async def run() -> None:
        begun = asyncio.Event()

        async def forever() -> None:
            begun.set()
            await asyncio.Event().wait()

        assert await ledger.astep(key, world.ado, 1) == {"n": 1}
        assert await ledger.astep(key, world.ado, 1) == {"n": 1}
        call = asyncio.create_task(ledger.afence(other, forever))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(run())
    with pytest.raises(InDoubt):
        ledger.fence(other, boom)
    with pytest.raises(InvalidInput, match="is async"):
        ledger.step(place.key("third"), world.ado)


@everywhere
def test_the_decorator(place: Place, form: str) -> None:
    ledger = place.ledger()
    seen: list[Any] = []
    prefix = place.key("event")

    def key(event: dict[str, Any], note: str = "") -> str:
        return f"{prefix}:{event['id']}"

    def plain(event: dict[str, Any], note: str = "") -> Any:
        seen.append((event, note))
        return event["id"]

    async def on_loop(event: dict[str, Any], note: str = "") -> Any:
        return plain(event, note)

    handle: Any = ledger.idempotent(key=key)(on_loop if form == "async" else plain)

    def call(*args: Any, **named: Any) -> Any:
        value = handle(*args, **named)
        return asyncio.run(value) if inspect.iscoroutine(value) else value

    assert call({"id": 1}, note="x") == 1
    assert call({"id": 1}, "x") == 1
    assert call({"id": 2}, "x") == 2
    assert seen == [({"id": 1}, "x"), ({"id": 2}, "x")]
    with pytest.raises(EffectMismatch):
        call({"id": 2}, "y")
    assert handle.__name__ == ("on_loop" if form == "async" else "plain")


@everywhere
def test_the_decorator_with_a_fence(place: Place) -> None:
    ledger = place.ledger()
    prefix = place.key("mail")
    asked: list[Any] = []

    @ledger.idempotent(
        key=lambda user: f"{prefix}:{user}", verb="fence", verify=lambda user: asked.append(user)
    )
    def welcome(user: str) -> str:
        if not asked:
            raise TimeoutError
        return f"sent to {user}"

    with pytest.raises(TimeoutError):
        welcome("ann")
    assert welcome("ann") == "sent to ann"
    assert asked == ["ann"]


@everywhere
def test_pruning_keeps_what_is_young_and_what_is_not_known(place: Place, act: Act) -> None:
    ledger = place.ledger()
    done, doubted = place.key("done"), place.key("doubted")
    ledger.step(done, lambda: 1)
    leave_behind(ledger, doubted, "fence")
    for days in (0.5, 0, -1, True, None, float("nan")):
        with pytest.raises(InvalidInput, match="older_than_days"):
            act(ledger, "prune", older_than_days=days)
    assert act(ledger, "prune", older_than_days=1) == 0
    assert ledger.step(done, boom) == 1
    # As if it had been done long ago: the plan takes any age.
    while ledger._engine.run(lambda _: plans.prune(-1_000_000), "transaction"):
        pass
    assert ledger.step(done, lambda: 2) == 2
    with pytest.raises(InDoubt):
        ledger.fence(doubted, boom)


@everywhere
def test_only_what_is_in_doubt_can_be_resolved(place: Place, act: Act) -> None:
    ledger = place.ledger()
    key = place.key("k")
    with pytest.raises(EffectNotFound, match="is not in doubt"):
        act(ledger, "resolve", key, happened=True)
    ledger.step(key, lambda: 1)
    with pytest.raises(EffectNotFound):
        act(ledger, "resolve", key, happened=False)
    assert ledger.step(key, boom) == 1
    for bad in ({"happened": 1}, {"happened": False, "result": 1}, {"happened": True, "by": ""}):
        with pytest.raises(InvalidInput):
            act(ledger, "resolve", key, **bad)


@pytest.mark.parametrize("empty", ["postgres_url", "mysql_database"])
def test_a_missing_table_is_said_with_the_call_that_makes_it(
    empty: str, act: Act, request: pytest.FixtureRequest
) -> None:
    url: str = request.getfixturevalue(empty)
    with Ledger(url) as ledger:
        with pytest.raises(SchemaError, match=r"ledger\.migrate\(\)"):
            act(ledger, "step", "k", boom)

        def migrate(_: int) -> list[str]:
            with Ledger(url) as other:
                return other.migrate()

        with ThreadPoolExecutor() as threads:
            assert ["0001_ledger"] in list(threads.map(migrate, range(4)))
        assert act(ledger, "migrate") == []
        assert act(ledger, "step", "k", lambda: 1) == 1


@where_calls_meet
def test_a_ledger_is_carried_over_a_fork(place: Place) -> None:
    ledger = place.ledger()
    key, other = place.key("k"), place.key("other")
    assert ledger.step(key, lambda: 1) == 1
    child = os.fork()
    if child == 0:
        try:
            ok = ledger.step(key, boom) == 1 and ledger.step(other, lambda: 2) == 2
            os._exit(0 if ok else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ledger.step(other, boom) == 2


def test_a_lent_connection_with_an_open_transaction_is_refused(sqlite_url: str) -> None:
    import sqlite3

    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    ledger = Ledger(connection)
    ledger.migrate()
    connection.execute("create table t (x)")
    connection.execute("insert into t values (1)")
    with pytest.raises(InvalidInput, match="open transaction"):
        ledger.step("k", boom)
    connection.commit()
    assert ledger.step("k", lambda: 1) == 1
    ledger.close()
    connection.close()


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nonsense://x", "nonsense"),
        ("mysql+nothing://x/y", "SQLAlchemy"),
        (None, "NoneType"),
        (7, "int"),
        ("", "expected the URL"),
    ],
)
def test_where_it_cannot_be(where: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Ledger(where)


@everywhere
def test_bad_input_is_refused_and_nothing_is_written(place: Place) -> None:
    ledger = place.ledger()
    bad: list[Callable[[], Any]] = [
        lambda: ledger.step("", boom),
        lambda: ledger.step(7, boom),  # type: ignore[arg-type]
        lambda: ledger.step("k", None),  # type: ignore[arg-type]
        lambda: ledger.step("k", boom, key_ttl=0),
        lambda: ledger.fence("k", boom, in_doubt="maybe"),  # type: ignore[arg-type]
        lambda: ledger.fence("k", boom, verify=7),  # type: ignore[arg-type]
        lambda: ledger.idempotent(key="k"),  # type: ignore[arg-type]
        lambda: ledger.idempotent(key=str, verb="do"),  # type: ignore[arg-type]
        lambda: ledger.idempotent(key=str, verb="transaction"),
    ]
    for call in bad:
        with pytest.raises(InvalidInput):
            call()
    assert "k" not in [doubt.key for doubt in ledger.in_doubt(limit=10_000)]


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_redis_has_no_transactions(place: Place) -> None:
    with pytest.raises(InvalidInput, match="Redis has no transactions"):
        place.ledger().transaction("k", tx=object())


def test_all_errors_are_ours() -> None:
    assert issubclass(InProgress, OncelyError)


@pytest.mark.parametrize("library", ["psycopg", "asyncpg", "sqlalchemy", "aiosqlite"])
def test_on_an_async_connection_that_is_lent(
    library: str, sqlite_url: str, postgres_url: str
) -> None:
    async def run() -> None:
        async with AsyncExitStack() as closing:
            connection = await _aconnect(library, sqlite_url, postgres_url, closing)
            ledger, world = Ledger(connection), World()
            await ledger.amigrate()
            for _ in range(2):
                assert await ledger.astep("k", world.ado, 1) == {"n": 1}
                assert await ledger.afence("f", world.do, 2) == {"n": 2}
            with pytest.raises(TimeoutError):
                await ledger.afence("g", boom)
            with pytest.raises(InDoubt):
                await ledger.afence("g", world.do)
            assert [doubt.key for doubt in await ledger.ain_doubt()] == ["g"]
            await ledger.aresolve("g", happened=True, result="sent")
            assert await ledger.afence("g", boom) == "sent"
            assert await ledger.aprune(older_than_days=1) == 0
            with pytest.raises(InvalidInput, match="async"):
                ledger.step("k", world.do, 1)

    asyncio.run(run())


async def _aconnect(library: str, sqlite: str, postgres: str, closing: AsyncExitStack) -> Any:
    import aiosqlite
    import asyncpg
    import psycopg
    from sqlalchemy.ext.asyncio import create_async_engine

    match library:
        case "psycopg":
            connecting = await psycopg.AsyncConnection.connect(postgres)
            return await closing.enter_async_context(connecting)
        case "asyncpg":
            connection = await asyncpg.connect(postgres)
            closing.push_async_callback(connection.close)
            return connection
        case "aiosqlite":
            path = sqlite.removeprefix("sqlite:///")
            return await closing.enter_async_context(aiosqlite.connect(path))
    engine = create_async_engine(postgres.replace("postgresql:", "postgresql+asyncpg:"))
    closing.push_async_callback(engine.dispose)
    return await closing.enter_async_context(engine.connect())
