"""The server goes away in the middle of everything, in every way it can, and comes back."""

import os
import signal
from collections.abc import Callable, Iterator

import psycopg
import pytest

from oncely import NewJob, Oncely, StoreUnavailable
from tests.cluster import Cluster, ClusterError
from tests.crash.checker import check
from tests.crash.load import TORTURE
from tests.crash.persistent import Publishers
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    with Cluster(own=True) as cluster:
        yield cluster


@pytest.fixture
def own_app(own: Cluster) -> Iterator[Oncely]:
    own.start()
    with Oncely(own.create_database("stopped")) as app:
        app.migrate()
        yield app
    own.start()
    own.drop_database("stopped")


def stop(how: str) -> Callable[[Cluster, Publishers], None]:
    def do(cluster: Cluster, publishers: Publishers) -> None:
        cluster.stop("immediate" if how == "immediate" else "fast")
        publishers.wait_until_refused()
        cluster.start()

    return do


def kill_server(cluster: Cluster, publishers: Publishers) -> None:
    """Its children outlive it for a moment, and until they are gone it cannot start again."""
    os.kill(cluster.pid, signal.SIGKILL)
    cluster.stop("immediate")
    publishers.wait_until_refused()

    def started() -> bool:
        try:
            cluster.start()
        except ClusterError as error:
            if "shared memory" not in str(error):
                raise
            return False
        return True

    wait_until(started, "the last of its children is gone")


def kill_one_session(cluster: Cluster, publishers: Publishers) -> None:
    """The server ends all other sessions then, and recovers by itself."""
    os.kill(_sessions(cluster)[0], signal.SIGKILL)


def end_all_sessions(cluster: Cluster, publishers: Publishers) -> None:
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        for pid in _sessions(cluster):
            connection.execute("select pg_terminate_backend(%s)", [pid])


def _sessions(cluster: Cluster) -> list[int]:
    with psycopg.connect(cluster.url(), autocommit=True) as connection:

        def found() -> list[int]:
            query = "select pid from pg_stat_activity where application_name = 'oncely'"
            return [pid for (pid,) in connection.execute(query).fetchall()]

        wait_until(found, "there are sessions of ours")
        return found()


def test_publishing_through_every_kind_of_stop(own: Cluster, own_app: Oncely) -> None:
    publishers = Publishers(own_app)
    rounds = [
        stop("immediate"),
        end_all_sessions,
        stop("fast"),
        kill_one_session,
        kill_server,
    ] * TORTURE
    try:
        publishers.progress(50)
        for interrupt in rounds:
            interrupt(own, publishers)
            publishers.progress(50)
    finally:
        publishers.finish()
    census = check(own_app.url)
    print(f"N={len(census.jobs)} jobs, {len(rounds)} stops, {publishers.refused} refusals")
    publishers.check(census)


def test_errors_while_the_server_is_down(own: Cluster, own_app: Oncely) -> None:
    own_app.enqueue("k")
    own.stop("immediate")
    try:
        for verb in (
            lambda: own_app.enqueue("k"),
            lambda: own_app.enqueue("k", idempotency_key="a", unique_key="b"),
            lambda: own_app.enqueue_many([NewJob("k"), NewJob("k")]),
            own_app.jobs,
            own_app.migrate,
            own_app.examine,
            lambda: own_app.get("00000000-0000-7000-8000-000000000000"),
            lambda: own_app.cancel("00000000-0000-7000-8000-000000000000"),
        ):
            with pytest.raises(StoreUnavailable, match="PostgreSQL cannot serve this call"):
                verb()
    finally:
        own.start()
    assert own_app.enqueue("k", idempotency_key="a", unique_key="b").inserted
    assert len(check(own_app.url).jobs) == 2
