"""An app carried over a fork works in the child, and goes on working in the parent."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from oncely import Oncely, StoreUnavailable
from oncely.store.sqlite import engine as sqlite_engine
from tests.engine.steps import counts
from tests.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def fork(work: Callable[[], object]) -> int:
    """The id of a child that does the work; it ends with 0 if that went well."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(90)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def went_well(*pids: int) -> None:
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(pids)


def work_a_little(app: Oncely, name: str) -> None:
    receipt = app.enqueue(name, unique_key=name, idempotency_key=name)
    assert receipt.inserted
    assert not app.enqueue(name, unique_key=name, idempotency_key=name).inserted
    job = app.get(receipt.job_id)
    assert job is not None
    assert job.state == "pending"
    assert len(app.jobs(kind=name)) == 1


def test_an_app_used_before_a_fork_works_in_the_child_and_the_parent(app: Oncely) -> None:
    work_a_little(app, "before")
    pids = [fork(lambda n=n: work_a_little(app, f"child.{n}")) for n in range(3)]  # type: ignore[misc]
    work_a_little(app, "parent")
    went_well(*pids)
    work_a_little(app, "after")
    assert counts(app)["job"] == 6


def test_an_app_not_used_before_a_fork_works_too(url: str) -> None:
    with Oncely(url) as app:
        app.migrate()
    with Oncely(url) as app:
        went_well(fork(lambda: work_a_little(app, "child")))
        work_a_little(app, "parent")


def test_a_grandchild_can_use_it_and_the_child_again(app: Oncely) -> None:
    work_a_little(app, "before")

    def child() -> None:
        went_well(fork(lambda: work_a_little(app, "grandchild")))
        work_a_little(app, "child")

    went_well(fork(child))
    work_a_little(app, "parent")
    assert counts(app)["job"] == 4


def test_a_child_that_closes_it_does_not_close_it_for_the_parent(app: Oncely) -> None:
    work_a_little(app, "before")

    def child() -> None:
        work_a_little(app, "child")
        app.close()

    went_well(fork(child), fork(app.close))
    work_a_little(app, "parent")
    assert counts(app)["job"] == 3


def test_a_parent_that_closes_it_does_not_close_it_for_the_child(url: str) -> None:
    """On SQLite the last to close a file removes its log: it must not be the last by mistake."""
    ready, done = os.pipe(), os.pipe()
    with Oncely(url) as app:
        app.migrate()
        app.enqueue("before")

        def child() -> None:
            app.enqueue("child")
            os.write(ready[1], b".")
            os.read(done[0], 1)
            for _ in range(3):
                app.enqueue("child")
            assert len(app.jobs()) == 6

        pid = fork(child)
        os.read(ready[0], 1)
        app.enqueue("parent")
    os.write(done[1], b".")
    went_well(pid)
    for end in (*ready, *done):
        os.close(end)
    with Oncely(url) as app:
        kinds = [job.kind for job in app.jobs()]
    assert kinds == ["child"] * 3 + ["parent", "child", "before"]


def test_an_app_closed_before_the_fork_is_closed_in_the_child(app: Oncely) -> None:
    app.enqueue("k")
    app.close()

    def child() -> None:
        with pytest.raises(StoreUnavailable, match="was closed"):
            app.enqueue("k")

    went_well(fork(child))


def test_a_fork_while_threads_are_enqueuing(app: Oncely) -> None:
    stop = threading.Event()
    acknowledged = [0] * 3
    begun = threading.Barrier(4)

    def publish(number: int) -> None:
        begun.wait()
        while not stop.is_set():
            app.enqueue("thread")
            if acknowledged[number] % 3 == 0:
                app.jobs(limit=1)
            acknowledged[number] += 1

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    begun.wait()
    try:
        children = 12
        for number in range(children):
            went_well(fork(lambda n=number: work_a_little(app, f"child.{n}")))  # type: ignore[misc]
            app.enqueue("parent")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert counts(app)["job"] == sum(acknowledged) + 2 * children


def test_a_fork_while_a_thread_opens_the_file(tmp_path: Path) -> None:
    """The thread holds the lock that the fork waits for when it goes on to open the file."""

    def child() -> None:
        app = Oncely(f"sqlite:///{tmp_path / 'jobs.db'}")
        app.migrate()
        engine = app._engine
        assert isinstance(engine, sqlite_engine.SqliteEngine)
        opens = threading.Event()

        def hold(frame: FrameType, _event: str, _: object) -> None:
            if frame.f_code is sqlite_engine._create_private.__code__:
                opens.set()
                wait_until(engine._write_lock.locked, "nobody forks")

        def read() -> None:
            sys.settrace(hold)
            app.jobs(limit=1)

        went_well(fork(lambda: None))  # A fork closes the file; the next read opens it again.
        thread = threading.Thread(target=read)
        thread.start()
        opens.wait()
        went_well(fork(lambda: work_a_little(app, "grandchild")))
        thread.join()
        work_a_little(app, "child")

    went_well(fork(child))


def test_a_store_in_memory_stays_with_the_process_that_made_it() -> None:
    with Oncely("sqlite:///:memory:") as app:
        app.enqueue("k")

        def child() -> None:
            with pytest.raises(StoreUnavailable, match="belongs to the process that made it"):
                app.enqueue("k")

        went_well(fork(child))
        app.enqueue("k")
        assert len(app.jobs()) == 2


def test_two_apps_on_one_store_survive_a_fork(app: Oncely, url: str) -> None:
    with Oncely(url) as other:
        work_a_little(app, "one")
        work_a_little(other, "two")

        def child() -> None:
            work_a_little(app, "child.one")
            work_a_little(other, "child.two")

        went_well(fork(child))
        work_a_little(app, "after.one")
        work_a_little(other, "after.two")
        assert counts(app)["job"] == 6
