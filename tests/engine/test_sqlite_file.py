"""The file of an SQLite store: who may write when, and what if it is deleted or replaced."""

import ast
import asyncio
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from contextlib import closing as closing_of
from multiprocessing.synchronize import Event
from pathlib import Path
from threading import Thread

import pytest

from oncely import Context, InvalidInput, NewJob, Oncely, Retry, StoreUnavailable
from oncely.store.sqlite import write_queue
from tests.crash.fleet import CONTEXT
from tests.engine.steps import found
from tests.waiting import PATIENCE_SECONDS, wait_until

PUBLISHERS = 8
SUFFIXES = ("", "-wal", "-shm", "-queue")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def app(path: Path) -> Iterator[Oncely]:
    with Oncely(f"sqlite:///{path}") as app:
        app.migrate()
        yield app


def remove(path: Path) -> None:
    for suffix in SUFFIXES:
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)


def replace(path: Path) -> None:
    """By a new store that was made elsewhere."""
    new = path.with_name("new.db")
    with Oncely(f"sqlite:///{new}") as other:
        other.migrate()
    remove(path)
    new.rename(path)


def jobs_at(path: Path) -> list[str]:
    with Oncely(f"sqlite:///{path}") as other:
        return [job.job_id for job in other.jobs()]


ENQUEUES: dict[str, Callable[[Oncely], object]] = {
    "enqueue": lambda app: app.enqueue("k"),
    "enqueue_many": lambda app: app.enqueue_many([NewJob("k"), NewJob("k")]),
}
by_verb = pytest.mark.parametrize("verb", ENQUEUES)


@by_verb
def test_a_deleted_file_acknowledges_nothing(app: Oncely, path: Path, verb: str) -> None:
    app.enqueue("k")
    remove(path)
    for _ in range(3):
        with pytest.raises(
            StoreUnavailable, match=r"jobs\.db was deleted while .* not acknowledged"
        ):
            ENQUEUES[verb](app)
    with pytest.raises(StoreUnavailable, match="was deleted"):
        app.jobs()
    assert not path.exists(), "nothing makes a new store behind the operator's back"
    made = jobs_at(path)
    ENQUEUES[verb](app)
    assert len(made) == 0
    assert jobs_at(path) == [job.job_id for job in app.jobs()] != []


@by_verb
def test_a_replaced_file_acknowledges_nothing_that_is_not_in_it(
    app: Oncely, path: Path, verb: str
) -> None:
    app.enqueue("k")
    replace(path)
    with pytest.raises(StoreUnavailable, match=r"was replaced by another file.*Repeat the call"):
        ENQUEUES[verb](app)
    assert jobs_at(path) == []
    ENQUEUES[verb](app)
    assert jobs_at(path) == [job.job_id for job in app.jobs()] != []


def test_a_file_that_was_moved_away_and_put_back(app: Oncely, path: Path) -> None:
    first = app.enqueue("k", idempotency_key="a")
    away = path.with_name("away.db")
    path.rename(away)
    with pytest.raises(StoreUnavailable, match="was deleted"):
        app.enqueue("k")
    away.rename(path)
    assert app.enqueue("k", idempotency_key="a").job_id == first.job_id


def test_a_read_goes_to_the_file_at_the_path(app: Oncely, path: Path) -> None:
    lost = app.enqueue("k").job_id
    assert app.get(lost) is not None
    replace(path)
    assert app.get(lost) is None
    assert app.enqueue("k").inserted


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_job_is_not_completed_in_a_file_that_was_replaced(
    app: Oncely, path: Path, is_seen: bool
) -> None:
    """Also if the app has seen that, and opened the new file, before the handler ends."""
    errors: list[Exception] = []

    @app.job("k", retry=Retry(max_attempts=1))
    def handler(ctx: Context) -> None:
        try:
            with ctx.transaction() as tx:
                tx.execute("create table mine (n)")
                replace(path)
                if is_seen:
                    assert app.jobs() == []
        except StoreUnavailable as error:
            errors.append(error)
            raise

    job_id = app.enqueue("k").job_id
    app.drain()
    assert "was replaced" in str(errors[0])
    assert app.get(job_id) is None


def test_a_transaction_on_the_file_that_was_replaced(app: Oncely, path: Path) -> None:
    """Also after the app has opened the new file, and knew the old one."""
    connection = sqlite3.connect(path)
    app.enqueue("k", tx=connection)
    connection.commit()
    replace(path)
    with pytest.raises(StoreUnavailable, match="was replaced"):
        app.enqueue("k", tx=connection)
    connection.rollback()
    with pytest.raises(InvalidInput, match="on another store"):
        app.enqueue("k", tx=connection)
    connection.close()
    connection = sqlite3.connect(path)
    receipt = app.enqueue("k", tx=connection)
    connection.commit()
    connection.close()
    assert jobs_at(path) == [receipt.job_id]


def publish(url: str, stop: Event) -> None:
    with Oncely(url) as app:
        while not stop.is_set():
            app.enqueue_many([NewJob("other", n, "elsewhere") for n in range(200)])


def test_publishers_do_not_starve_a_worker_of_its_leases(app: Oncely) -> None:
    """Its handlers run for longer than a lease, while eight processes write without a pause."""
    stop = CONTEXT.Event()
    publishers = [CONTEXT.Process(target=publish, args=(app.url, stop)) for _ in range(PUBLISHERS)]

    @app.job("slow", queue="mine", retry=Retry(max_attempts=1))
    async def slow(ctx: Context) -> None:
        await asyncio.sleep(5)

    ids = [app.enqueue("slow", queue="mine").job_id for _ in range(4)]
    for publisher in publishers:
        publisher.start()
    try:
        wait_until(lambda: app.jobs(queue="elsewhere", limit=1), "somebody publishes")
        worker = app.worker(queues=["mine"], concurrency=4, lease_seconds=3)
        asyncio.run(worker.drain())
    finally:
        stop.set()
        for publisher in publishers:
            publisher.join()
    jobs = [found(app, job_id) for job_id in ids]
    assert [(job.state, len(job.executions)) for job in jobs] == [("completed", 1)] * len(ids)


def test_a_writer_waits_behind_one_that_waits_already(app: Oncely, path: Path) -> None:
    """Also if the file is free just then: whoever comes back at once does not go first."""
    with ExitStack() as closing:
        other = closing.enter_context(Oncely(app.url))
        holder = closing.enter_context(closing_of(sqlite3.connect(path, isolation_level=None)))
        holder.execute("begin immediate")
        first = Thread(target=lambda: app.enqueue("first"))
        first.start()
        queue = path.with_name("jobs.db-queue")
        wait_until(lambda: queue.exists() and is_locked(queue), "the first waits")
        second = Thread(target=lambda: other.enqueue("second"))
        second.start()
        holder.execute("commit")
        for thread in (first, second):
            thread.join()
        assert sorted(job.kind for job in app.jobs()) == ["first", "second"]
        assert not is_locked(queue)


def is_locked(path: Path) -> bool:
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def hold_for_ever(path: str, ready: Event) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CREAT)
    fcntl.flock(file, fcntl.LOCK_EX)
    ready.set()
    signal.pause()


@pytest.mark.parametrize("sent", [signal.SIGSTOP, signal.SIGKILL])
def test_a_process_that_is_stopped_at_the_head_of_the_queue_stops_nobody(
    app: Oncely, path: Path, sent: signal.Signals
) -> None:
    ready = CONTEXT.Event()
    process = CONTEXT.Process(target=hold_for_ever, args=(f"{path}-queue", ready))
    process.start()
    try:
        assert ready.wait(PATIENCE_SECONDS)
        assert process.pid is not None
        os.kill(process.pid, sent)
        assert app.enqueue("k").inserted
        app.job("k")(lambda ctx: None)
        assert app.drain() == 1
    finally:
        process.kill()
        process.join()


def test_without_a_queue_file_the_store_works_all_the_same(app: Oncely, path: Path) -> None:
    """A folder in which it cannot be made, or a file that may not be read."""
    path.with_name("jobs.db-queue").mkdir()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin immediate")
    waiting = Thread(target=lambda: app.enqueue("k"))
    waiting.start()
    holder.execute("commit")
    holder.close()
    waiting.join()
    assert len(app.jobs()) == 1


def test_the_lock_of_a_transaction_that_never_ends_is_an_error_in_the_end(
    app: Oncely, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_queue, "BUSY_SECONDS", 0.05)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin immediate")
    with pytest.raises(StoreUnavailable, match="was locked by another transaction"):
        app.enqueue("k")
    holder.execute("rollback")
    holder.close()
    assert app.enqueue("k").inserted


MAKE_STORE = """
import os, sys, threading
from oncely import Oncely

def modes(path):
    folder = os.path.dirname(path)
    return {name: oct(os.stat(f"{folder}/{name}").st_mode & 0o777) for name in os.listdir(folder)}

path = sys.argv[1]
with Oncely(f"sqlite:///{path}") as one, Oncely(f"sqlite:///{path}") as other:
    one.enqueue("k")
    other._engine._connection("write").execute("begin immediate")  # so that the next one waits
    waits = threading.Thread(target=one.enqueue, args=("k",))
    waits.start()
    while not os.path.exists(f"{path}-queue"):
        pass
    other._engine._writer.execute("rollback")
    waits.join()
    print(modes(path))
"""


def modes_of_a_store(path: Path) -> dict[str, str]:
    """Of its files while it is open, in a process whose umask takes nothing away."""
    done = subprocess.run(
        [sys.executable, "-c", MAKE_STORE, str(path)],
        umask=0,
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    found: dict[str, str] = ast.literal_eval(done.stdout)
    return found


def test_the_files_of_a_new_store_are_for_their_owner_alone(path: Path) -> None:
    path.parent.chmod(0o755)
    names = [f"{path.name}{suffix}" for suffix in SUFFIXES]
    assert modes_of_a_store(path) == dict.fromkeys(names, "0o600")


def test_a_new_store_behind_a_link_is_for_its_owner_alone(path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    with Oncely(f"sqlite:///{link}") as app:
        app.enqueue("k")
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_exists_keeps_its_mode(path: Path) -> None:
    path.touch()
    path.chmod(0o640)
    names = [f"{path.name}{suffix}" for suffix in SUFFIXES]
    assert modes_of_a_store(path) == dict.fromkeys(names, "0o640")
