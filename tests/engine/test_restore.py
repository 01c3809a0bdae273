"""A store restored from a backup that was made while it was in use: what still holds, and what the
guide says does not."""

import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from oncely import Context, Oncely
from tests.cluster import Cluster, system_bin, wheel_bin
from tests.engine.steps import claim_one, end, found

Restored = Callable[[], Oncely]


@pytest.fixture
def backup(
    app: Oncely, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[[], Restored]]:
    """Makes a backup as the guide says. What it gives makes a store of it, elsewhere."""
    opened: list[Oncely] = []
    names: list[str] = []

    def keep(url: str) -> Oncely:
        opened.append(Oncely(url))
        return opened[-1]

    def of_file() -> Restored:
        copy = tmp_path / "backup.db"
        source = sqlite3.connect(app.url.removeprefix("sqlite:///"))
        with closing(source), closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        return lambda: keep(f"sqlite:///{copy}")

    def of_database() -> Restored:
        programs = wheel_bin() or system_bin()
        assert programs is not None
        copy = tmp_path / "backup.dump"
        _run(programs / "pg_dump", "--format=custom", f"--file={copy}", f"--dbname={app.url}")

        def restore() -> Oncely:
            cluster: Cluster = request.getfixturevalue("cluster")
            names.append(f"restored_{uuid4().hex}")
            url = cluster.create_database(names[-1])
            _run(programs / "pg_restore", "--exit-on-error", f"--dbname={url}", str(copy))
            return keep(url)

        return restore

    yield of_file if app.url.startswith("sqlite") else of_database
    for each in opened:
        each.close()
    for name in names:
        request.getfixturevalue("cluster").drop_later(name)


def _run(program: Path, *args: str) -> None:
    done = subprocess.run([program, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_was_in_the_backup_is_there_and_known(
    app: Oncely, backup: Callable[[], Restored]
) -> None:
    first = app.enqueue("k", 1, idempotency_key="a")
    held = app.enqueue("k", 2, unique_key="u")
    restored = backup()()
    assert [finding for finding in restored.examine() if finding.status == "error"] == []
    again = restored.enqueue("k", 1, idempotency_key="a")
    assert (again.job_id, again.inserted) == (first.job_id, False)
    assert restored.enqueue("k", 2, unique_key="u").job_id == held.job_id
    restored.job("k")(lambda ctx: ctx.payload)
    assert restored.drain() == 2
    assert restored.result(first.job_id) == 1
    assert found(app, first.job_id).state == "pending"


def test_an_epoch_that_is_handed_out_again_opens_nothing_to_a_worker_from_before(
    app: Oncely, backup: Callable[[], Restored]
) -> None:
    app.enqueue("k")
    restore = backup()
    zombie = claim_one(app)
    restored = restore()
    now = claim_one(restored)
    assert (zombie.job_id, zombie.fence.epoch) == (now.job_id, now.fence.epoch)
    assert zombie.fence != now.fence
    assert not end(restored, zombie, "completed")
    assert found(restored, now.job_id).state == "running"
    assert end(restored, now, "completed")


def test_what_was_done_since_is_done_again_under_the_same_key(
    app: Oncely, backup: Callable[[], Restored]
) -> None:
    """The ledger is as old as the backup. The keys for the other side are the same."""
    asked: list[str] = []

    def declare(on: Oncely) -> None:
        @on.job("k")
        def handler(ctx: Context) -> None:
            ctx.step("pay", asked.append, ctx.key("pay"))

    job_id = app.enqueue("k").job_id
    restore = backup()
    for each in (app, restore()):
        declare(each)
        assert each.drain() == 1
        assert found(each, job_id).state == "completed"
    assert asked == [f"{job_id}:pay"] * 2


def test_jobs_made_since_share_no_id_with_those_before(
    app: Oncely, backup: Callable[[], Restored]
) -> None:
    restore = backup()
    lost = {app.enqueue("k").job_id for _ in range(50)}
    restored = restore()
    assert not lost & {restored.enqueue("k").job_id for _ in range(50)}
