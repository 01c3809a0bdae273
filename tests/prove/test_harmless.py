"""Whatever a handler does, after a proof everything is as it was, or the proof was refused."""

import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, suppress
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
import redis

from oncely import Context, Oncely
from oncely.model.errors import InvalidInput
from oncely.prove import Report, Table, copies, prove
from oncely.prove.abandoned import FOLDER
from tests.prove.schedules import one_schedule
from tests.waiting import wait_until

pytest_plugins = ["tests.engine.ledger_fixtures"]


class Yard:
    """A folder of a user's with files, folders and links, an app, and a handler to prove."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "yard"
        (self.folder / "deep" / "deeper").mkdir(parents=True)
        (self.folder / "deep" / "a").write_text("a")
        (self.folder / "deep" / "deeper" / "b").write_text("b")
        (self.folder / "deep" / "deeper" / "b").chmod(0o640)
        (self.folder / "file").write_text("first")
        (self.folder / "empty").mkdir()
        (self.folder / "link").symlink_to("file")
        self.path = str(folder / "shop.db")
        with closing(sqlite3.connect(self.path)) as db:
            db.execute("create table notes (text text)")
        self.app = Oncely(f"sqlite:///{folder / 'jobs.db'}")

    def note(self) -> None:
        """The handler's one effect that is compared: the proof has something to see."""
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=60)) as db:
            db.execute("insert into notes select 'x' where not exists (select 1 from notes)")

    def fingerprint(self) -> dict[str, tuple[Any, ...]]:
        found: dict[str, tuple[Any, ...]] = {}
        for folder, folders, files in os.walk(self.folder):
            for name in (*folders, *files):
                path = Path(folder, name)
                status = path.lstat()
                content = os.readlink(path) if path.is_symlink() else ""
                if path.is_file() and not path.is_symlink():
                    content = path.read_text()
                found[str(path)] = (status.st_mode, status.st_uid, status.st_nlink, content)
        return found

    def prove(self, handler: Callable[[Path], None], **options: Any) -> Report:
        def run(ctx: Context) -> None:
            handler(self.folder)
            self.note()

        self.app.job("handler")(run)
        world = [Table(f"sqlite:///{self.path}", "notes")]
        options = {"max_faults": 1, "budget_seconds": math.inf, **options}
        return prove(self.app, "handler", world=world, **options)


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    yard = Yard(tmp_path)
    yield yard
    yard.app.close()


def remove_all(folder: Path) -> None:
    shutil.rmtree(folder / "deep", ignore_errors=True)


def remove_by_descriptors(folder: Path) -> None:
    """As other programs do it: nothing is named by its whole path."""
    top = os.open(folder / "deep", os.O_RDONLY)
    with suppress(FileNotFoundError):  # it was begun before
        inner = os.open("deeper", os.O_RDONLY, dir_fd=top)
        os.unlink("b", dir_fd=inner)
        made = os.open("c", os.O_CREAT | os.O_WRONLY, dir_fd=inner)
        os.write(made, b"c")
        os.close(made)
        os.chmod("c", 0o600, dir_fd=inner)
        os.unlink("c", dir_fd=inner)
        os.rmdir("deeper", dir_fd=top)
        os.close(inner)
    os.close(top)


def make_and_move_folders(folder: Path) -> None:
    (folder / "new" / "newer").mkdir(parents=True, exist_ok=True)
    if (folder / "deep").exists():
        (folder / "deep").rename(folder / "moved")
    if (folder / "empty").exists():
        (folder / "empty").rmdir()


def make_links(folder: Path) -> None:
    for make, name in ((os.symlink, "soft"), (os.link, "hard")):
        if not (folder / name).exists():
            make(folder / "file", folder / name)
    (folder / "soft").write_text("through the link")
    (folder / "hard").write_text("through the other")
    (folder / "link").write_text("through the old one")


def replace_links(folder: Path) -> None:
    (folder / "link").unlink(missing_ok=True)
    (folder / "link").symlink_to("deep")
    (folder / "file").chmod(0o600)
    os.truncate(folder / "file", 2)
    os.utime(folder / "file", (1, 1))


def leave_temporary_files(folder: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(b"left behind")
    tempfile.mkdtemp(dir=folder)
    os.mkfifo(folder / f"fifo-{time.time_ns()}")


def remove_in_a_thread(folder: Path) -> None:
    """No line of the user's is on the thread's stack."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(shutil.rmtree, folder / "deep", ignore_errors=True).result()


def remove_in_a_forked_process(folder: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        pool.submit(shutil.rmtree, folder / "deep", ignore_errors=True).result()


@pytest.mark.parametrize(
    ("handler", "in_the_middle"),
    [
        (remove_all, "crash@4"),
        (remove_by_descriptors, "crash@4"),
        (make_and_move_folders, "crash@4"),
        (make_links, "crash@4"),
        (replace_links, "crash@4"),
        (leave_temporary_files, "crash@4"),
        (remove_in_a_thread, "crash@1"),
        (remove_in_a_forked_process, "crash@1"),
    ],
)
def test_files_folders_and_links_are_put_back(
    yard: Yard, handler: Callable[[Path], None], in_the_middle: str
) -> None:
    before = yard.fingerprint()
    report = yard.prove(handler, schedule=one_schedule(in_the_middle))
    assert report.schedules > report.not_reached
    assert yard.fingerprint() == before


def test_a_file_that_was_open_before_is_named_and_put_back(yard: Yard) -> None:
    before = yard.fingerprint()
    with (yard.folder / "file").open("a") as file:

        def write(_: Path) -> None:
            file.write("more")
            file.flush()

        report = yard.prove(write, schedule=one_schedule("crash@1"))
    assert yard.fingerprint() == before
    assert report.verdict == "unobserved"
    assert "which was open before the handler ran" in str(report)


@pytest.mark.parametrize(
    "statement", ["attach '{0}' as other", "/* c */ attach ? as other", "vacuum into '{0}'"]
)
def test_another_file_of_sqlite_is_not_written(yard: Yard, statement: str) -> None:
    other = yard.folder / "other.db"
    values = [str(other)] if "?" in statement else []

    def attach(_: Path) -> None:
        with closing(sqlite3.connect(yard.path, isolation_level=None)) as db:
            db.execute(statement.format(other), values)

    with pytest.raises(InvalidInput, match="no copy can stand for it"):
        yard.prove(attach)
    assert not other.exists()


def test_a_database_in_memory_may_be_attached(yard: Yard) -> None:
    def attach(_: Path) -> None:
        with closing(sqlite3.connect(yard.path, isolation_level=None)) as db:
            db.execute("attach ':memory:' as other")

    assert yard.prove(attach, schedule=one_schedule("crash@1")).ok


class Client:
    @classmethod
    def default(cls) -> "Client":
        return cls()


class DerivedClient(Client):
    pass


@pytest.mark.parametrize("how", ["called", "by a function of it", "derived"])
def test_a_driver_that_is_not_watched_is_refused(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A library of that name, which is not installed here: what it does is not asked."""
    module: Any = ModuleType("pymemcache")
    module.Client = Client
    monkeypatch.setitem(sys.modules, "pymemcache", module)

    def connect(_: Path) -> None:
        if how == "derived":
            DerivedClient()
        elif how == "called":
            module.Client()
        else:
            module.Client.default()

    with pytest.raises(InvalidInput, match="connects through pymemcache"):
        yard.prove(connect)


def test_a_driver_that_comes_in_late_is_refused(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library of that name, which is not installed here: what it does is not asked."""
    (tmp_path / "lmdb.py").write_text(
        "def open(path):\n    import pathlib\n    pathlib.Path(path).write_text('written')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def write(folder: Path) -> None:
        import lmdb  # type: ignore[import-not-found]

        lmdb.open(folder / "file")

    before = yard.fingerprint()
    try:
        with pytest.raises(InvalidInput, match="connects through lmdb"):
            yard.prove(write)
    finally:
        sys.modules.pop("lmdb", None)
    assert yard.fingerprint() == before


def test_a_driver_that_cannot_be_imported_is_as_if_it_were_not_there(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are found, and the C library that it needs is not."""
    (tmp_path / "lmdb.py").write_text("from _lmdb_that_is_not_there import *\n")
    monkeypatch.syspath_prepend(tmp_path)

    def write(folder: Path) -> None:
        try:
            import lmdb  # noqa: F401
        except ImportError:
            (folder / "file").write_text("without it")

    assert yard.prove(write, schedule="crash@1").ok


def test_a_connection_from_before_leads_nowhere(yard: Yard, postgres_url: str) -> None:
    """It is one that nothing is known of: a socket with the protocol of PostgreSQL."""
    with psycopg.connect(postgres_url, autocommit=True) as old:
        old.execute("create table t (n int)")
        pgconn = old.pgconn

        def write(_: Path) -> None:
            pgconn.exec_(b"insert into t values (1)")

        yard.prove(write, schedule=one_schedule("crash@1"))
        assert old.execute("select count(*) from t").fetchone() == (0,)


MOVES: list[tuple[str, ...]] = [
    ("RENAME", "text", "new"),
    ("LMOVE", "list", "other", "LEFT", "RIGHT"),
    ("SMOVE", "set", "others", "a"),
    ("COPY", "text", "copied"),
    ("SORT", "list", "STORE", "sorted"),
    ("EVAL", "redis.call('DEL', KEYS[2])", "2", "list", "text"),
    ("SUNIONSTORE", "union", "set"),
    ("MSET", "text", "changed", "more", "new"),
    ("EXPIRE", "text", "5"),
]


def test_every_key_of_a_redis_command_is_put_back(yard: Yard, redis_url: str) -> None:
    address = redis_url.replace("/0", "/6")
    with redis.Redis.from_url(address) as cache:
        cache.flushdb()
        cache.set("text", b"\xff binary")
        cache.rpush("list", "2", "1")
        cache.sadd("set", "a")

        def keys() -> dict[bytes, tuple[bytes | None, int]]:
            return {name: (cache.dump(name), cache.ttl(name)) for name in cache.scan_iter()}

        before = keys()

        def move(_: Path) -> None:
            with redis.Redis.from_url(address) as own:
                for command in MOVES:
                    with suppress(redis.ResponseError):
                        own.execute_command(*command)
                with own.pipeline() as pipe:
                    pipe.rename("new", "newest").delete("set")
                    with suppress(redis.ResponseError):
                        pipe.execute()

        yard.prove(move, schedule=one_schedule("crash@5"))
        assert keys() == before


@pytest.mark.parametrize("command", [("FLUSHDB",), ("CONFIG SET", "maxmemory", "1")])
def test_a_redis_command_that_cannot_be_undone_is_refused(
    yard: Yard, redis_url: str, command: tuple[str, ...]
) -> None:
    def run(_: Path) -> None:
        with redis.Redis.from_url(redis_url) as own:
            own.execute_command(*command)

    with pytest.raises(InvalidInput, match="on Redis, which changes more than keys"):
        yard.prove(run)


def test_nothing_that_a_handler_started_goes_on(yard: Yard) -> None:
    """Neither in its group nor outside, whether it forks or runs a program."""
    pids, pids_end = os.pipe()

    def tell(pid: int) -> None:
        os.write(pids_end, f"{pid}\n".encode())

    def start(_: Path) -> None:
        for leaves in (True, False):
            if os.fork() == 0:
                if leaves:
                    os.setsid()
                tell(os.getpid())
                while True:
                    time.sleep(60)
        program = [sys.executable, "-c", "import time; time.sleep(3600)"]
        tell(subprocess.Popen(program, start_new_session=True).pid)

    report = yard.prove(start, accept=[os.path.basename(sys.executable)], schedule="crash@0")
    assert "a process that the handler forks" in str(report)
    os.close(pids_end)
    with os.fdopen(pids) as told:
        started = {int(line) for line in told}
    assert len(started) >= 6
    assert started & {pid for pid, _ in processes()} == set()


def processes() -> list[tuple[int, str]]:
    """The number and the command line of every process that is not over."""
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,stat=,args="], capture_output=True, text=True, check=True
    )
    rows = (line.split(None, 2) for line in listing.stdout.splitlines())
    return [(int(pid), "".join(args)) for pid, state, *args in rows if state[0] != "Z"]


SCRIPT = """
import os, pathlib, sqlite3, sys, time
import psycopg, redis
from oncely import Oncely
from oncely.prove import Table, copies, prove

copies._MEMORY = pathlib.Path("/proc")  # not where other proofs of this machine find it
folder, redis_url, url = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
app = Oncely(url)


@app.job("handler")
def handler(ctx):
    (folder / "file").write_text("changed")
    (folder / "new").mkdir()
    cache = redis.Redis.from_url(redis_url)
    cache.set("first", "changed")
    cache.rename("second", "third")
    with psycopg.connect(url) as connection:
        connection.execute("insert into notes values ('x')")
    if os.fork() == 0:
        os.setsid()
        while True:
            time.sleep(60)
    (folder.parent / "reached").touch()
    time.sleep(3600)


prove(app, "handler", world=[Table(url, "notes")])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_proof_that_is_ended_leaves_nothing(
    yard: Yard,
    tmp_path: Path,
    redis_url: str,
    postgres_url: str,
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    address = redis_url.replace("/0", "/5")
    with redis.Redis.from_url(address) as cache:
        cache.flushdb()
        cache.set("first", "1")
        cache.set("second", "2", ex=1000)
        with Oncely(postgres_url) as app:
            app.migrate()
        with psycopg.connect(postgres_url, autocommit=True) as server:
            server.execute("create table notes (text text)")
        before = yard.fingerprint()
        script = tmp_path / "script.py"
        script.write_text(SCRIPT)
        prover = subprocess.Popen(
            [sys.executable, script, yard.folder, address, postgres_url],
            env={**os.environ, "TMPDIR": str(place)},
        )
        wait_until((tmp_path / "reached").exists, "the handler did not come so far")
        assert yard.fingerprint() != before
        prover.send_signal(number)
        prover.wait()
        if number == signal.SIGKILL:
            assert yard.fingerprint() != before
            monkeypatch.setattr(copies, "_MEMORY", place)
            yard.prove(lambda _: None, schedule="crash@0")  # any other proof
        assert yard.fingerprint() == before
        assert {*cache.keys()} == {b"first", b"second"}
        assert (cache.get("first"), cache.get("second")) == (b"1", b"2")
        assert 0 < cache.ttl("second") <= 1000
    assert list(place.glob(f"{FOLDER}*")) == []
    assert [each for each in processes() if str(script) in each[1]] == []
    with psycopg.connect(postgres_url) as server:
        names = server.execute("select datname from pg_database").fetchall()
        assert [name for (name,) in names if name.startswith("oncely_prove_")] == []
        assert server.execute("select count(*) from notes").fetchone() == (0,)


def test_what_lives_is_not_put_back_by_another(yard: Yard) -> None:
    """A proof that goes on at the same time keeps its folder."""
    living = copies.Copies()
    try:
        living.files.save(str(yard.folder / "file"))
        (yard.folder / "file").write_text("changed")
        yard.prove(lambda _: None, schedule="crash@0")
        assert (yard.folder / "file").read_text() == "changed"
    finally:
        living.close()
    assert (yard.folder / "file").read_text() == "first"
