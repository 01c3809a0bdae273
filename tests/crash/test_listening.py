"""Who listens for jobs and results goes on listening when its connection or the server is gone.

The worker here would look again after an hour, and so would who waits for a result: what they see
after the interruption they were told, by a listener that came back.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from oncely import Context, Oncely
from oncely.flow import results
from oncely.store.postgres.engine import PostgresEngine
from tests.cluster import Cluster
from tests.waiting import PATIENCE_SECONDS, wait_until

HOUR = 3600.0


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    with Cluster(own=True) as cluster:
        yield cluster


@pytest.fixture
def app(own: Cluster) -> Iterator[Oncely]:
    own.start()
    with Oncely(own.create_database("listening")) as app:
        app.migrate()
        yield app
    own.start()
    own.drop_database("listening")


def covered(app: Oncely) -> list[bool]:
    engine = app._engine
    assert isinstance(engine, PostgresEngine)
    return [ear.covered and ear.resting for ear in tuple(engine._listener._ears)]


def topics_heard(app: Oncely) -> list[str]:
    """What the listener is told of from now on."""
    engine = app._engine
    assert isinstance(engine, PostgresEngine)
    listener, topics = engine._listener, list[str]()
    spread = listener._spread

    def note_and_spread(heard: Iterable[tuple[str, str]]) -> None:
        heard = list(heard)
        topics.extend(topic for topic, _ in heard)
        spread(heard)

    listener._spread = note_and_spread  # type: ignore[method-assign]
    return topics


def stop_at_once(own: Cluster, app: Oncely) -> None:
    own.stop("immediate")
    wait_until(lambda: not any(covered(app)))
    own.start()


def end_the_listening_session(own: Cluster, app: Oncely) -> None:
    with psycopg.connect(app.url, autocommit=True) as connection:

        def listening() -> set[int]:
            rows = connection.execute(
                "select pid from pg_locks where locktype = 'advisory' and mode = 'ShareLock'"
            )
            return {row[0] for row in rows}

        [pid] = before = listening()
        connection.execute("select pg_terminate_backend(%s)", [pid])
        wait_until(lambda: listening() - before)


@pytest.mark.parametrize("interrupt", [stop_at_once, end_the_listening_session])
def test_a_listener_comes_back(
    own: Cluster,
    app: Oncely,
    interrupt: Callable[[Cluster, Oncely], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(results, "_POLL_SECONDS", HOUR)
    heard = topics_heard(app)
    ran: list[str] = []

    @app.job("k")
    async def handle(ctx: Context) -> str:
        ran.append(ctx.job_id)
        return "done"

    worker = app.worker(queues=["lane"], poll_seconds=HOUR, lease_seconds=HOUR)
    thread = threading.Thread(target=worker.run)
    thread.start()
    held = app.enqueue("k", queue="nobody")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(app.result, held.job_id)
        try:
            for _ in range(3):
                wait_until(lambda: covered(app) == [True, True])
                interrupt(own, app)
                wait_until(lambda: covered(app) == [True, True])
                heard.clear()
                receipt = app.enqueue("k", queue="lane")
                wait_until(lambda receipt=receipt: receipt.job_id in ran)  # type: ignore[misc]
                assert app.result(receipt.job_id, PATIENCE_SECONDS) == "done"
                # It may have been seen by the look that comes with the connection; told it was too.
                wait_until(lambda: {"queue:lane", "result"} <= set(heard), "the listener is told")
            assert not waiting.done()
            app.cancel(held.job_id)
            wait_until(waiting.done)
        finally:
            worker.stop()
            thread.join(PATIENCE_SECONDS)
            app.close()
    assert not thread.is_alive()
    assert len(ran) == 3


def test_an_app_can_be_closed_while_the_server_is_down(own: Cluster, app: Oncely) -> None:
    told = threading.Event()
    ear = app._engine.listen(["queue"], lambda _: told.set())
    wait_until(ear.rest)
    own.stop("immediate")
    wait_until(lambda: not ear.covered)
    app.close()
    assert not [t for t in threading.enumerate() if t.name == "oncely-listen"]
