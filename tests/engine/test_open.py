"""Making an `Oncely` or a `Ledger` touches no file and no network; the first use does."""

import os
import socket
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oncely import Ledger, NewJob, Oncely, SchemaError, StoreUnavailable
from tests.cluster import free_port
from tests.surface.command import migrations

KINDS = {"app": Oncely, "ledger": Ledger}
NAMES = ("jobs.db", "jobs.db-wal", "jobs.db-shm")


def files(url: str) -> list[str]:
    path = Path(url.removeprefix("sqlite:///"))
    return [each.name for each in path.parent.iterdir() if each.name in NAMES]


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_is_opened_without_a_file(sqlite_url: str, kind: str) -> None:
    with KINDS[kind](sqlite_url):
        assert files(sqlite_url) == []
    assert files(sqlite_url) == []


@pytest.mark.parametrize("kind", KINDS)
def test_and_without_a_folder(tmp_path: Path, kind: str) -> None:
    opened = KINDS[kind](f"sqlite:///{tmp_path}/missing/jobs.db")
    with opened, pytest.raises(StoreUnavailable, match="check that its folder exists"):
        opened.migrate()


@pytest.mark.parametrize("scheme", ["postgresql", "http"])
def test_and_without_a_server(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as server:
        server.setblocking(False)
        with (
            Oncely(f"{scheme}://127.0.0.1:{server.getsockname()[1]}/x"),
            pytest.raises(BlockingIOError),
        ):
            server.accept()


FIRST: dict[str, Callable[[Oncely], Any]] = {
    "enqueue": lambda app: app.enqueue("k"),
    "enqueue_many": lambda app: app.enqueue_many([NewJob("k")]),
    "jobs": lambda app: app.jobs(),
    "drain": lambda app: app.drain(),
    "examine": lambda app: app.examine(),
}


@pytest.mark.parametrize("first", FIRST)
def test_whatever_comes_first_makes_the_tables(sqlite_url: str, first: str) -> None:
    with Oncely(sqlite_url) as app:
        FIRST[first](app)
        assert app.migrate() == migrations(sqlite_url)  # nobody else has said it
        assert app.migrate() == []
        assert app.enqueue("k").inserted


def test_migrate_first_names_what_it_applied(sqlite_url: str) -> None:
    with Oncely(sqlite_url) as app:
        assert app.migrate() == migrations(sqlite_url)
        assert app.migrate() == []
    with Oncely(sqlite_url) as again:
        assert again.migrate() == []


def test_a_store_in_memory_is_made_at_its_first_use() -> None:
    with Oncely("sqlite:///:memory:") as app:
        assert app.enqueue("k").inserted
        assert app.migrate() == migrations("sqlite")


def test_threads_that_use_a_new_store_at_once_all_succeed(sqlite_url: str) -> None:
    with Oncely(sqlite_url) as app, ThreadPoolExecutor(8) as threads:
        receipts = list(threads.map(lambda _: app.enqueue("k"), range(8)))
        assert all(receipt.inserted for receipt in receipts)
        assert app.migrate() == migrations(sqlite_url)


def test_a_fork_before_the_first_use_and_its_parent_share_one_store(sqlite_url: str) -> None:
    with Oncely(sqlite_url) as app:
        child = os.fork()
        if child == 0:
            os._exit(0 if app.enqueue("k").inserted else 1)
        assert app.enqueue("k").inserted
        assert os.waitpid(child, 0)[1] == 0
        assert len(app.jobs()) == 2


@pytest.mark.parametrize(
    "begin", ["begin", "begin immediate", "begin; select * from sqlite_master"]
)
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_first_use_may_be_in_a_transaction_of_the_callers(
    sqlite_url: str, begin: str, end: str
) -> None:
    path = sqlite_url.removeprefix("sqlite:///")
    connection = sqlite3.connect(path, isolation_level=None)
    with Oncely(sqlite_url) as app:
        for each in begin.split(";"):
            connection.execute(each).fetchall()
        receipt = app.enqueue("k", tx=connection)
        connection.execute(end)
        assert (app.get(receipt.job_id) is not None) == (end == "commit")
        assert app.enqueue("k").inserted
    connection.close()


def test_a_ledger_may_begin_in_a_transaction_of_the_callers(sqlite_url: str) -> None:
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    with Ledger(sqlite_url) as ledger:
        for fresh in (True, False):
            connection.execute("begin immediate")
            with ledger.transaction("k", tx=connection) as entry:
                assert entry.fresh == fresh
            connection.execute("commit")
    connection.close()


def newer(path: Path) -> None:
    with Oncely(f"sqlite:///{path}") as app:
        app.migrate()
    connection = sqlite3.connect(path)
    connection.execute("insert into oncely_migration values (9999, 'later', 'x', '')")
    connection.commit()
    connection.close()


BROKEN: dict[str, Callable[[Path], object]] = {
    "no database": lambda path: path.write_text("x" * 4096),
    "a folder": lambda path: path.mkdir(),
    "a newer schema": newer,
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_store_that_cannot_be_opened_leaves_no_connection(tmp_path: Path, kind: str) -> None:
    """Python 3.13 and later warn of every connection that is not closed."""
    path = tmp_path / "jobs.db"
    BROKEN[kind](path)
    app = Oncely(f"sqlite:///{path}")
    for verb in (app.jobs, app.migrate, app.examine):
        with pytest.raises(SchemaError if kind == "a newer schema" else StoreUnavailable):
            verb()
    assert [app._engine._reader, app._engine._writer] == [None, None]  # type: ignore[attr-defined]
    assert not any(name.startswith(str(path)) for name in open_files())


def open_files() -> list[str]:
    return [os.readlink(each.path) for each in os.scandir("/proc/self/fd") if os.path.islink(each)]
