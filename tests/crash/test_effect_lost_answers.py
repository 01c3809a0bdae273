"""Effects on PostgreSQL whose answers do not arrive: the connection is cut at every COMMIT.

Before it, nothing was written; after it, all was. Late, it is carried out after the call has sent
everything once more.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from oncely import InDoubt, Ledger, Oncely
from oncely.flow.drive import adrive, drive
from oncely.flow.effect import Effects
from oncely.flow.entries import intend
from oncely.flow.protocol import Terms
from oncely.model.effect import Verb
from oncely.store.claim import Claimed
from oncely.store.ledger import plans
from tests.cluster import Cluster
from tests.crash.fleet import thread
from tests.crash.proxy import Fault, Proxy, back_at_the_first_wait
from tests.engine.steps import claim_one
from tests.waiting import PATIENCE_SECONDS, wait_until

COMMIT = "COMMIT"
KEY = "order:1"
whens = pytest.mark.parametrize("when", ["before", "after", "late"])


class World:
    def __init__(self) -> None:
        self.done = 0

    def do(self) -> str:
        self.done += 1
        return "result"

    def find(self) -> str | None:
        return "result" if self.done else None

    def boom(self) -> str:
        self.done += 1
        raise TimeoutError("no answer")


@pytest.fixture(scope="module")
def database(cluster: Cluster) -> Iterator[str]:
    name = f"test_{uuid4().hex}"
    url = cluster.create_database(name)
    with Oncely(url) as app, Ledger(url) as ledger, psycopg.connect(url) as connection:
        app.migrate()
        ledger.migrate()
        connection.execute("create table effects (name text)")
    yield url
    cluster.drop_later(name)


@pytest.fixture
def near(database: str) -> Iterator[Ledger]:
    """Past the proxy, and empty."""
    with psycopg.connect(database) as connection:
        connection.execute("truncate oncely.ledger, effects")
    with Ledger(database) as ledger:
        yield ledger


@pytest.fixture
def proxy(near: Ledger, database: str) -> Iterator[Proxy]:
    with Proxy(database) as proxy:
        yield proxy


@pytest.fixture
def far(proxy: Proxy) -> Iterator[Ledger]:
    """Through the proxy, with a connection that is open already."""
    with Ledger(proxy.url) as ledger:
        ledger.in_doubt()
        yield ledger


@pytest.fixture(params=["def", "async"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def call(form: str) -> Callable[..., Any]:
    def called(ledger: Ledger, verb: str, *args: Any, **options: Any) -> Any:
        if form == "def":
            return getattr(ledger, verb)(*args, **options)
        return asyncio.run(getattr(ledger, f"a{verb}")(*args, **options))

    return called


def somebody_waits(url: str) -> bool:
    """For a row that another transaction has."""
    with psycopg.connect(url, autocommit=True) as connection:
        query = (
            "select 1 from pg_stat_activity where datname = current_database()"
            " and cardinality(pg_blocking_pids(pid)) > 0"
        )
        return connection.execute(query).fetchone() is not None


def fault(when: Any, skip: int, url: str) -> Fault:
    """A late COMMIT comes when the call that was cut off waits for its own rows."""
    made = Fault(COMMIT, when, skip=skip)
    if when == "late":
        made.hook = lambda: wait_until(lambda: somebody_waits(url), "it is sent again")
    return made


@whens
@pytest.mark.parametrize("commit", ["intent", "outcome"])
@pytest.mark.parametrize("verb", ["step", "fence"])
def test_it_is_done_once(
    near: Ledger,
    far: Ledger,
    proxy: Proxy,
    database: str,
    call: Callable[..., Any],
    verb: str,
    commit: str,
    when: Any,
) -> None:
    world = World()
    proxy.arm(fault(when, ["intent", "outcome"].index(commit), database))
    assert call(far, verb, KEY, world.do) == "result"
    assert proxy.pending == 0
    assert call(near, verb, KEY, world.boom) == "result"
    assert call(far, verb, KEY, world.boom) == "result"
    assert world.done == 1
    assert near.in_doubt() == []


@whens
@pytest.mark.parametrize("commit", ["taken over", "retaken", "outcome"])
@pytest.mark.parametrize("verb", ["step", "fence"])
def test_after_a_call_that_is_gone(
    near: Ledger,
    far: Ledger,
    proxy: Proxy,
    database: str,
    verb: Any,
    commit: str,
    when: Any,
) -> None:
    """What the dead call had not done is done once by the one that came after it."""
    world = World()
    gone = intend(KEY, verb, ())
    near._engine.run(lambda _: plans.begin(gone, 0), "transaction")
    options = {"verify": world.find} if verb == "fence" else {}
    skip = ["taken over", "retaken", "outcome"].index(commit)
    proxy.arm(fault(when, skip, database))
    assert getattr(far, verb)(KEY, world.do, **options) == "result"
    assert proxy.pending == 0
    assert getattr(near, verb)(KEY, world.boom, **options) == "result"
    assert world.done == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_doubt_of_a_time_out_is_written_down(
    near: Ledger, far: Ledger, proxy: Proxy, call: Callable[..., Any], when: Any
) -> None:
    world = World()
    proxy.arm(Fault(COMMIT, when, skip=1))
    with pytest.raises(TimeoutError):
        call(far, "fence", KEY, world.boom)
    assert proxy.pending == 0
    with pytest.raises(InDoubt):
        call(near, "fence", KEY, world.do)
    assert world.done == 1
    proxy.arm(Fault(COMMIT, when))
    call(far, "resolve", KEY, happened=True, result="result")
    assert call(near, "fence", KEY, world.do) == "result"
    assert world.done == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_proof_that_nothing_happened_arrives(
    near: Ledger, far: Ledger, proxy: Proxy, call: Callable[..., Any], when: Any
) -> None:
    world = World()

    def refuse() -> None:
        raise ConnectionRefusedError(111, "refused")

    proxy.arm(Fault(COMMIT, when, skip=1))
    with pytest.raises(ConnectionRefusedError):
        call(far, "fence", KEY, refuse)
    assert proxy.pending == 0
    assert call(near, "fence", KEY, world.do) == "result"


def test_the_outcome_waits_for_a_store_that_is_gone_for_a_moment(
    near: Ledger,
    far: Ledger,
    proxy: Proxy,
    call: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    waits = back_at_the_first_wait(proxy, monkeypatch)

    def do() -> str:
        proxy.refuse()
        return world.do()

    assert call(far, "fence", KEY, do) == "result"
    assert waits == [0.1]
    assert call(near, "fence", KEY, world.do) == "result"
    assert world.done == 1


def effects(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("select count(*) from effects").fetchone()
        assert row is not None
        return int(row[0])


def transact(ledger: Ledger, url: str) -> bool:
    with (
        psycopg.connect(url) as connection,
        ledger.transaction(KEY, tx=connection) as entry,
    ):
        if entry.fresh:
            connection.execute("insert into effects values ('done')")
    return entry.fresh


@pytest.mark.parametrize(
    ("text", "when", "is_there"),
    [
        ('insert into "oncely".ledger', "before", False),
        ('insert into "oncely".ledger', "after", False),
        ("insert into effects", "before", False),
        ("insert into effects", "after", False),
        (COMMIT, "before", False),
        (COMMIT, "after", True),
    ],
)
def test_a_transaction_is_there_with_its_effect_or_neither_is(
    near: Ledger, proxy: Proxy, database: str, text: str, when: Any, is_there: bool
) -> None:
    proxy.arm(Fault(text, when))
    with pytest.raises(psycopg.OperationalError):
        transact(near, proxy.url)
    assert proxy.pending == 0
    assert effects(database) == is_there
    assert transact(near, database) is not is_there
    assert effects(database) == 1
    assert transact(near, database) is False


def test_a_transaction_whose_commit_is_late_is_waited_for(
    near: Ledger, proxy: Proxy, database: str
) -> None:
    late = fault("late", 0, database)
    proxy.arm(late)
    with pytest.raises(psycopg.OperationalError):
        transact(near, proxy.url)
    again = thread(transact, near, database)
    assert again.result(PATIENCE_SECONDS) is False
    assert effects(database) == 1


WRITES = {"intent": 'insert into "oncely".effect', "outcome": 'update "oncely".effect'}


@whens
@pytest.mark.parametrize("commit", ["intent", "outcome"])
@pytest.mark.parametrize("verb", ["step", "fence"])
def test_an_effect_of_a_job_is_done_once(
    database: str, form: str, verb: Verb, commit: str, when: Any
) -> None:
    """The same, under the lease of an execution. Each write is one message, its commit with it: a
    late one is carried out when all is over."""
    world = World()
    with Oncely(database) as near, ThreadPoolExecutor() as threads:
        queue = f"{form}-{verb}-{commit}-{when}"
        near.enqueue("k", queue=queue)
        claimed = claim_one(near, queue)
        with Proxy(database) as proxy, Oncely(proxy.url) as far:
            far.jobs()
            over = threading.Event()
            cut = Fault(WRITES[commit], when)
            if when == "late":
                cut.hook = lambda: wait_until(over.is_set, "the call is over")
            proxy.arm(cut)
            assert _perform(far, threads, form, claimed, verb, world.do) == "result"
            over.set()
            assert cut.happened.wait(PATIENCE_SECONDS)
            assert proxy.pending == 0
        [(state, epoch)] = _ledger(database, claimed.job_id)
        assert (state, epoch) == ("done", claimed.fence.epoch)
        assert _perform(near, threads, form, claimed, verb, world.boom) == "result"
    assert world.done == 1


def _ledger(url: str, job_id: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        query = "select state, epoch from oncely.effect where job_id = %s"
        return connection.execute(query, (job_id,)).fetchall()


def _perform(
    app: Oncely, threads: Executor, form: str, claimed: Claimed, verb: Verb, function: Any
) -> Any:
    effects = Effects(claimed.job_id, claimed.fence, app._writes)
    steps = effects.perform(Terms(verb, "send", function))
    if form == "def":
        return drive(steps, app._engine)
    return asyncio.run(adrive(steps, app._engine, threads))
