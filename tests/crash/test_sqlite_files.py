"""One SQLite file: many processes at once, and everything a file system can do to it."""

import gc
import json
import os
import pwd
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from oncely import NewJob, Oncely, SchemaError, StoreUnavailable
from oncely.store.sqlite.engine import SqliteEngine
from tests.crash.checker import check
from tests.crash.fleet import Fleet
from tests.crash.load import times
from tests.crash.publishers import fill, open_at_once
from tests.seed import dice
from tests.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]


def test_eight_processes_make_one_file(tmp_path: Path, fleet: Fleet) -> None:
    """Again and again: which of them is the first, and how far it gets, is chance."""
    for n in range(times(30, usually=10)):
        url = f"sqlite:///{tmp_path / f'{n}.db'}"
        applied = fleet.run(open_at_once, [(url,)] * fleet.size)
        assert sum(map(bool, applied)) == 1, f"file {n} was made by {applied}"


def test_eight_processes_fill_one_file(sqlite_url: str, fleet: Fleet) -> None:
    each = 100
    answers = fleet.run(fill, [(sqlite_url, each)] * fleet.size)
    ids = [id for answer in answers for id in answer]
    assert len(ids) >= fleet.size * each
    census = check(sqlite_url)
    assert sorted(ids) == sorted(census.jobs), f"N={len(ids)}"


def program(*command: str | Path) -> str:
    """What a program of ours prints."""
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, check=False, text=True, timeout=PATIENCE_SECONDS
    )
    assert ran.returncode == 0, f"{ran.args}\n{ran.stderr}"
    return ran.stdout


def works(*command: str | Path) -> bool:
    try:
        return not subprocess.run(command, capture_output=True, check=False).returncode
    except OSError:
        return False


def open_files() -> set[str]:
    """The files that this process has open."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the folder itself, as it was read
            found.add(os.readlink(each))
    return found


def test_an_app_that_nobody_closed_lets_go_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    app = Oncely(f"sqlite:///{path}")
    app.enqueue("k")
    assert str(path) in open_files()
    del app
    gc.collect()
    assert str(path) not in open_files()


def test_an_app_that_could_not_be_opened_leaves_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with Oncely(f"sqlite:///{path}") as app:
        app.migrate()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("insert into oncely_migration (number, name, checksum) values (9999, 'x', 'y')")
    with pytest.raises(SchemaError):
        Oncely(f"sqlite:///{path}").enqueue("k")
    assert str(path) not in open_files()


def test_a_full_disk(tmp_path: Path) -> None:
    """A real one, of twelve megabytes, which goes with the process that uses it."""
    mount = ("sh", "-c", 'mount -t tmpfs -o size=12m tmpfs "$0" && exec "$@"', tmp_path)
    for unshare in (("unshare", "--user", "--map-root-user", "--mount"), ("unshare", "--mount")):
        if works(*unshare, *mount, "true"):
            break
    else:
        pytest.skip("this machine lets us mount no small disk; a limit on the pages stands in")
    said = program(*unshare, *mount, sys.executable, "-m", "tests.crash.full_disk", tmp_path)
    found = json.loads(said)
    assert "the disk is full" in found.pop("said")
    assert "the disk is full" in found.pop("batch_said")
    assert found.pop("count") > 50
    assert found == {
        "lost": 0,
        "stored_though_refused": 0,
        "later": True,
        "later_lost": 0,
        "again": True,
        "last": 0,
    }


def limit_pages(app: Oncely, more: int) -> None:
    engine = app._engine
    assert isinstance(engine, SqliteEngine)
    assert engine._writer is not None
    (pages,) = engine._writer.execute("pragma page_count").fetchone()
    engine._writer.execute(f"pragma max_page_count = {pages + more}")


def test_a_file_that_may_not_grow(sqlite_url: str) -> None:
    with Oncely(sqlite_url) as app:
        first = app.enqueue("k", unique_key="u")
        limit_pages(app, 20)
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            app.enqueue_many([NewJob("k", "." * 9_000, idempotency_key=f"k{n}") for n in range(50)])
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            app.enqueue("k", "." * 900_000, idempotency_key="k0", unique_key="v")
        census = check(sqlite_url)
        assert list(census.jobs) == [first.job_id]
        assert census.idempotency_keys == []
        assert app.enqueue("k", idempotency_key="small").inserted
        limit_pages(app, 100_000)
        assert (
            app.enqueue_many(
                [NewJob("k", "." * 9_000, idempotency_key=f"k{n}") for n in range(50)]
            ).inserted
            == 50
        )
    assert len(check(sqlite_url).jobs) == 52


def tell(path: Path) -> str:
    """What an ordinary user is told on enqueueing. Root may do anything: it is asked as another
    user, or without that right."""
    nobody = pwd.getpwnam("nobody")
    rights = "-dac_override,-dac_read_search"
    for command in (
        (),
        ("unshare", "--user", f"--map-user={nobody.pw_uid}", f"--map-group={nobody.pw_gid}"),
        ("setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"),
    ):
        if works(*command, "sh", "-c", '! test -w "$0" || ! test -w "$(dirname "$0")"', path):
            return program(*command, sys.executable, "-m", "tests.crash.told", path)
    raise AssertionError("root may write everywhere, and this machine has no program that ends it")


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with Oncely(f"sqlite:///{path}") as app:
        app.enqueue("k")
    path.chmod(0o444)
    assert f"{path} cannot be written" in tell(path)
    path.chmod(0o644)
    tmp_path.chmod(0o555)
    assert f"{path} cannot be " in tell(path)
    tmp_path.chmod(0o755)
    assert len(check(f"sqlite:///{path}").jobs) == 1


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with Oncely(f"sqlite:///{path}") as app:
        app.migrate()
        path.chmod(0)
    assert f"{path} cannot be opened" in tell(path)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    text = "Dear diary, today I was mistaken for a database.\n" * 100
    path.write_text(text)
    with pytest.raises(StoreUnavailable, match=r"notes.txt is not an SQLite database"):
        Oncely(f"sqlite:///{path}").migrate()
    assert path.read_text() == text


def test_a_damaged_file(sqlite_url: str) -> None:
    """Whatever is wrong inside, the driver's own words do not come out bare."""
    with Oncely(sqlite_url) as app:
        app.enqueue_many([NewJob("k", "." * 500) for _ in range(200)])
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    content = bytearray(path.read_bytes())
    content[4096:] = dice("damage").randbytes(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreUnavailable, match="SQLite could not work with"):
        Oncely(sqlite_url).enqueue("k", unique_key="u")


@pytest.mark.parametrize("place", ["missing/jobs.db", "missing/deeper/jobs.db", "file/jobs.db"])
def test_a_folder_that_is_not_there(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="cannot be opened: check that its folder exists"):
        Oncely(f"sqlite:///{tmp_path / place}").migrate()
    assert not (tmp_path / "missing").exists()


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        Oncely(f"sqlite:///{tmp_path}").migrate()


def test_the_log_is_emptied_now_and_then(sqlite_url: str) -> None:
    """About every four megabytes; not never, and not with every commit from then on."""
    log = Path(sqlite_url.removeprefix("sqlite:///") + "-wal")
    sizes = []
    with Oncely(sqlite_url) as app:
        for _ in range(60):
            app.enqueue_many([NewJob("k", "." * 25_000)] * 10)
            sizes.append(log.stat().st_size)
    emptied = sum(later < earlier for earlier, later in pairwise(sizes))
    assert 2 <= emptied <= 10, sizes
    check(sqlite_url)


def test_a_reader_in_the_way_of_emptying_the_log(sqlite_url: str) -> None:
    path = sqlite_url.removeprefix("sqlite:///")
    log = Path(path + "-wal")
    with Oncely(sqlite_url) as app:
        app.enqueue("k")
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("begin")
        assert reader.execute("select count(*) from oncely_job").fetchone() == (1,)
        for _ in range(30):
            app.enqueue_many([NewJob("k", "." * 25_000)] * 10)
        assert reader.execute("select count(*) from oncely_job").fetchone() == (1,)
        assert log.stat().st_size > 4 * 1024 * 1024
        reader.close()
        for _ in range(60):
            app.enqueue_many([NewJob("k", "." * 25_000)] * 10)
            if log.stat().st_size < 1024 * 1024:
                break
        else:
            pytest.fail(f"the log was not emptied: {log.stat().st_size} bytes")
    check(sqlite_url)
