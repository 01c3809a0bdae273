"""The server goes away in the middle of everything, in every way it can, and comes back."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from oncely import NewJob, Oncely, Receipt, StoreUnavailable
from tests.cluster import Cluster, ClusterError
from tests.crash.checker import check
from tests.crash.fleet import thread

THREADS = 8
LIMIT_SECONDS = 60.0


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


class Publishers:
    """Threads of one app that publish until told to end, and repeat what was refused."""

    def __init__(self, app: Oncely) -> None:
        self._app = app
        self._end = threading.Event()
        self._lock = threading.Lock()
        self.acknowledged: dict[tuple[str, ...], list[str]] = {}
        self.refused = 0
        self._running = [thread(self._publish, n) for n in range(THREADS)]

    def _publish(self, who: int) -> None:
        number = 0
        while not self._end.is_set():
            number += 1
            keys = [f"{who}-{number}-{n}" for n in range(3 if number % 5 == 0 else 1)]
            receipts = self._until_done(keys, unique=who % 2 == 0)
            with self._lock:
                self.acknowledged[tuple(keys)] = [receipt.job_id for receipt in receipts]

    def _until_done(self, keys: list[str], *, unique: bool) -> list[Receipt]:
        deadline = time.monotonic() + LIMIT_SECONDS
        while True:
            try:
                if len(keys) == 1:
                    unique_key = keys[0] if unique else None
                    return [self._app.enqueue("k", idempotency_key=keys[0], unique_key=unique_key)]
                return self._app.enqueue_many(
                    [NewJob("k", idempotency_key=key) for key in keys]
                ).receipts
            except StoreUnavailable:
                # Nothing else may come out: that would end the thread, and with it the test.
                assert time.monotonic() < deadline, f"refused for {LIMIT_SECONDS:.0f} s"
                with self._lock:
                    self.refused += 1
                time.sleep(0.01)

    def progress(self, count: int) -> None:
        """Wait until so many more were acknowledged."""
        target = len(self.acknowledged) + count
        deadline = time.monotonic() + LIMIT_SECONDS
        while len(self.acknowledged) < target:
            failed = [future.exception() for future in self._running if future.done()]
            assert not failed, f"a publisher ended: {failed}"
            assert time.monotonic() < deadline, f"no progress in {LIMIT_SECONDS:.0f} s"
            time.sleep(0.005)

    def wait_until_refused(self) -> None:
        before = self.refused
        deadline = time.monotonic() + LIMIT_SECONDS
        while self.refused == before:
            assert time.monotonic() < deadline, "nobody was refused while the server was down"
            time.sleep(0.005)

    def finish(self) -> None:
        self._end.set()
        for future in self._running:
            future.result(LIMIT_SECONDS)


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
    for remaining in reversed(range(20)):
        try:
            return cluster.start()
        except ClusterError as error:
            if "shared memory" not in str(error) or not remaining:
                raise
            time.sleep(0.5)
    raise AssertionError("unreachable")


def kill_one_session(cluster: Cluster, publishers: Publishers) -> None:
    """The server ends all other sessions then, and recovers by itself."""
    os.kill(_sessions(cluster)[0], signal.SIGKILL)


def end_all_sessions(cluster: Cluster, publishers: Publishers) -> None:
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        for pid in _sessions(cluster):
            connection.execute("select pg_terminate_backend(%s)", [pid])


def _sessions(cluster: Cluster) -> list[int]:
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        with psycopg.connect(cluster.url(), autocommit=True) as connection:
            found = connection.execute(
                "select pid from pg_stat_activity where application_name = 'oncely'"
            ).fetchall()
        if found:
            return [row[0] for row in found]
    raise AssertionError("no session of ours")


def test_publishing_through_every_kind_of_stop(own: Cluster, own_app: Oncely) -> None:
    publishers = Publishers(own_app)
    rounds = [
        stop("immediate"),
        end_all_sessions,
        stop("fast"),
        kill_one_session,
        stop("immediate"),
        end_all_sessions,
        kill_server,
    ]
    try:
        publishers.progress(50)
        for interrupt in rounds:
            interrupt(own, publishers)
            publishers.progress(50)
    finally:
        publishers.finish()
    keys = [key for batch in publishers.acknowledged for key in batch]
    context = f"N={len(keys)} keys, {len(rounds)} stops, {publishers.refused} refusals"
    census = check(own_app.url)
    owner = {job.idempotency_key: id for id, job in census.jobs.items()}
    assert len(census.jobs) == len(keys), context
    for batch, ids in publishers.acknowledged.items():
        assert ids == [owner.get(key) for key in batch], context
    print(context)


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
