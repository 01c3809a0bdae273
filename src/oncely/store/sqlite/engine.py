"""SQLite: one writer and one reader connection per process, WAL, every commit synced to disk."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, TypeVar

from oncely.model.errors import InvalidInput, SchemaError, StoreUnavailable
from oncely.store import schema
from oncely.store.engine import Access, Finding, StoreClosed
from oncely.store.listen import Ear, Listener, Tell
from oncely.store.plan import Plan, Row, Statement, Together, run
from oncely.store.sql import QUEUE, Library, Part
from oncely.store.sqlite.listen import SqliteSource, Version
from oncely.store.sqlite.transaction import FileId, HandlerConnection, SqliteTransactions
from oncely.store.sqlite.write_queue import BUSY_SECONDS, WriteQueue, opened_file
from oncely.store.store_id import StoreId, read_store_id, refuse_other_store

T = TypeVar("T")
C = TypeVar("C", bound=sqlite3.Connection)
OLDEST_SQLITE: Final = (3, 35, 0)
WAL_RESET_FIXED: Final = (3, 51, 3)
_WAL_BYTES: Final = 4 * 1024 * 1024
_CHECKPOINT_WAIT_MS: Final = 100
_RETRY_SECONDS: Final = 0.005
_RENEWALS: Final = ("renew", "heartbeat", "revive")
"""Plans that begin with one of these renew leases: they go before all others that write."""
_leaked: list[object] = []
"""Stores in memory of a parent process: what is left of them in the child is not touched."""


class SqliteEngine:
    """`path` is None for a store in memory, which ends with the process."""

    is_parallel: Final = False

    def __init__(self, path: Path | None, part: Part = QUEUE) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreUnavailable(
                f"SQLite {sqlite3.sqlite_version} is too old: oncely needs "
                f"{'.'.join(map(str, OLDEST_SQLITE))} or newer. Use a newer Python build"
            )
        self.library = Library("sqlite", part=part)
        self._part = part
        # A relative path means the same file after the process changes its folder.
        self.path = None if path is None else path.absolute()
        self._name = str(self.path)
        self._owner = os.getpid()
        self._closed = False
        self._has_schema = False
        self._applied: list[str] = []
        self._begin()
        self._file: FileId | None = None
        self._store_id: StoreId | None = None
        self._is_lost = False

    def __del__(self) -> None:
        """An app that nobody closed lets go of its file; Python 3.13 would warn of it."""
        if hasattr(self, "_writer"):
            self._disconnect()

    def _begin(self) -> None:
        self._queue = None if self.path is None else WriteQueue()
        self._write_lock = threading.Lock()
        self._read_lock = self._write_lock if self.path is None else threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._checkpoint_bytes = _WAL_BYTES
        self._source = SqliteSource(self._version)
        self._listener = Listener(self._source)
        self.transactions = SqliteTransactions(
            self._connect_for_handler, lambda: _translated(self.path), self._check_path
        )

    def pause(self) -> None:
        """A child that inherited an open file would take the parent's locks for its own: it would
        wait for ever for one held by a thread it has not got, and lose its log to a parent that
        closes the file as the last one. So no file is open during a fork."""
        for lock in self._locks():
            lock.acquire()
        if self.path is not None:
            self._disconnect()

    def resume(self) -> None:
        for lock in self._locks():
            lock.release()

    def renew(self) -> None:
        _leaked.extend((self._writer, self._reader, self._listener))
        self._file = None
        self._begin()

    def _locks(self) -> Iterable[threading.Lock]:
        return dict.fromkeys((self._write_lock, self._read_lock))

    def _disconnect(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None
        if self._queue is not None:
            self._queue.close()

    def _connection(self, access: Access) -> sqlite3.Connection:
        if self._closed:
            raise StoreClosed()
        if self.path is None and self._owner != os.getpid():
            raise StoreUnavailable(
                "a store in memory belongs to the process that made it: use a file"
            )
        if access == "read" and self.path is not None:
            self._check_file()
            self._reader = self._reader or self._connect()
            return self._reader
        if self._writer is None:
            self._writer = self._connect()
            self._writer.execute("pragma busy_timeout = 0")  # it waits in the queue
        return self._writer

    def _check_file(self) -> None:
        """Whether the path still leads to the file that we have open: what is written to another
        one nobody will see."""
        if self._file is not None:
            self._check_path(self._file)

    def _check_path(self, opened: FileId) -> None:
        assert self.path is not None
        found = _file_at(self._name)
        if found != opened:
            raise FileMoved(self.path, is_gone=found is None)

    def _let_go(self) -> None:
        """Of the file that is no longer at the path."""
        self._disconnect_locked()
        self._is_lost = True

    def _disconnect_locked(self) -> None:
        """The next use opens the file that is at the path then."""
        with ExitStack() as held:
            for lock in self._locks():
                held.enter_context(lock)
            self._disconnect()
            self._file = self._store_id = None
            self._has_schema = False

    def _open(self) -> None:
        """Before the first use: `Oncely(url)` touches no file. A file that is gone is not ours to
        make anew."""
        if self._has_schema:
            return
        if self._is_lost and self.path is not None and _file_at(self._name) is None:
            raise FileMoved(self.path, is_gone=True)
        self._make_schema()
        self._is_lost = False

    def _connect_for_handler(self) -> HandlerConnection:
        if self._closed:
            raise StoreClosed()
        if self.path is None:
            raise InvalidInput(
                "ctx.transaction() needs a connection of its own, and a store in memory has only "
                "one: use a file"
            )
        connection = self._connect(HandlerConnection)
        connection.queue = WriteQueue()
        return connection

    def _connect(self, factory: type[C] = sqlite3.Connection) -> C:  # type: ignore[assignment]
        self._check_file()  # SQLite would make a new one
        if self.path is not None:
            _create_private(self.path)
        with _translated(self.path):
            connection = sqlite3.connect(
                self.path or ":memory:",
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                factory=factory,
            )
            try:
                _use_wal(connection)
                connection.execute("pragma synchronous = full")
                # Checkpoints are ours to take, under the write lock: see checkpoint().
                connection.execute("pragma wal_autocheckpoint = 0")
                if self.path is not None:
                    file = self._keep_file(connection)
                    if isinstance(connection, HandlerConnection):
                        connection.file = file
            except BaseException:
                connection.close()
                raise
            return connection

    def _keep_file(self, connection: sqlite3.Connection) -> FileId:
        """Which file was opened just now. It is the one at our path, unless a proof has led the
        connection to a copy."""
        assert self.path is not None
        opened = opened_file(connection)
        file = _file_at(opened)
        self._name = str(self.path) if _file_at(str(self.path)) == file else opened
        if file is None or self._file not in (None, file):
            raise FileMoved(self.path, is_gone=file is None)
        self._file = file
        return file

    def run(self, make: Callable[[bool], Plan[T]], access: Access) -> T:
        self._open()
        try:
            return self._run(make, access)
        except FileMoved:
            self._let_go()
            if access != "read":
                raise
        self._open()
        return self._run(make, access)

    def _run(self, make: Callable[[bool], Plan[T]], access: Access) -> T:
        lock = self._read_lock if access == "read" else self._write_lock
        with lock, _translated(self.path):
            connection = self._connection(access)
            changes = connection.total_changes
            plan = make(False)
            try:
                first = next(plan)
            except StopIteration as end:
                done: T = end.value
                return done
            if access == "read":
                connection.execute("begin deferred")
            elif self._queue is None:
                connection.execute("begin immediate")
            else:
                self._queue.begin(connection, is_renewal=first.name in _RENEWALS)
            with _transaction(connection):
                value = run(plan, lambda statement: self._ask(connection, statement), first)
            if access != "read":
                self._check_file()
            if connection.total_changes != changes:
                self._source.committed = True
                self._listener.ring()
            if access != "read":
                self._checkpoint(connection)
            return value

    def _ask(self, connection: sqlite3.Connection, statement: Statement) -> list[Row]:
        if isinstance(statement, Together):
            return [(self._ask(connection, part),) for part in statement.parts]
        rows: list[Row] = []
        for prepared in self.library.get(statement.name, ":{name}"):
            cursor = connection.execute(prepared.text, statement.params)
            if cursor.description:
                rows = cursor.fetchall()
        return rows

    def listen(
        self, topics: Iterable[str], tell: Tell, *, every_seconds: float | None = None
    ) -> Ear:
        return self._listener.ear(topics, tell, every_seconds=every_seconds)

    def _version(self) -> Version | None:
        """Changes when another connection has committed; no table is read, no lock is taken that
        a writer could meet."""
        if self.path is None:
            return None
        with self._read_lock, _translated(self.path):
            reader = self._connection("read")
            return reader, reader.execute("pragma data_version").fetchone()[0]

    def _checkpoint(self, writer: sqlite3.Connection) -> None:
        """TRUNCATE takes the write lock, so that no commit runs beside the checkpoint (the
        WAL-reset bug of SQLite up to 3.51.2 needs one), and leaves a log whose size says how full
        it is. Readers that are in the way are not waited for long: the next try comes when the
        log has grown by as much again."""
        if self.path is None or _size(f"{self.path}-wal") < self._checkpoint_bytes:
            return
        writer.execute(f"pragma busy_timeout = {_CHECKPOINT_WAIT_MS}")
        try:
            writer.execute("pragma wal_checkpoint(truncate)").fetchall()
            self._checkpoint_bytes = _size(f"{self.path}-wal") + _WAL_BYTES
        except sqlite3.Error:
            # The commit before it stands, and that is what the caller must hear.
            pass
        finally:
            writer.execute("pragma busy_timeout = 0")

    def migrate(self) -> list[str]:
        """What the first use of the store applied is named by the first call: nobody else has said
        it."""
        self._make_schema()
        applied, self._applied = self._applied, []
        return applied

    def _make_schema(self) -> None:
        """It is checked by a read first: a store that is up to date must not wait for somebody's
        write."""
        try:
            try:
                self._run(lambda _: schema.check(self.library), "read")
            except SchemaError:
                self._applied += self._run(lambda _: schema.migrate(self.library), "transaction")
        except BaseException:
            self._disconnect_locked()
            raise
        self._has_schema = True

    def _make_schema_unless_locked(self) -> None:
        """Beside a transaction of the caller's, which ours must not wait for."""
        try:
            with closing(sqlite3.connect(str(self.path), timeout=0, isolation_level=None)) as probe:
                probe.execute("begin exclusive")
                probe.execute("rollback")
        except sqlite3.OperationalError:
            return
        self._make_schema()

    def store_id(self) -> None:
        """`vet` has compared it."""

    def tidy(self) -> float | None:
        """Deleted rows leave nothing behind here."""
        return None

    def vet(self) -> Plan[None]:
        """Nothing is read before the write lock is there: who has read cannot wait for it."""
        try:
            if self._is_lost:
                self._open()
            self._check_file()
        except FileMoved:
            self._let_go()
            raise
        file = next(file for _, name, file in (yield Statement("place")) if name == "main")
        if not _is_same(file, self.path):
            raise InvalidInput(
                f"tx is a transaction on {file or 'a database in memory'}, the store is "
                f"{self.path or 'in memory'}: both must be one database file"
            )
        if not self._has_schema:
            self._make_schema_unless_locked()
        if self._has_schema:
            yield Statement("write_lock")
            yield from schema.check(self.library)
            if self._part is QUEUE:
                # The path of the caller's file says nothing of a file that was deleted since.
                self._store_id = self._store_id or self.run(lambda _: read_store_id(), "read")
                yield from refuse_other_store(self._store_id)
        else:
            # The caller has locked a new file: the tables are made in its transaction.
            yield Statement("schema_begin")
            yield Statement("write_lock")
            yield from schema.migrate(self.library)

    def examine(self) -> list[Finding]:
        self._make_schema()
        with self._write_lock, _translated(self.path):
            connection = self._connection("write")
            settings = {
                name: connection.execute(f"pragma {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous")
            }
        newest = self.library.migrations[-1].label
        return [
            Finding("store", "ok", f"SQLite file {self.path}" if self.path else "SQLite in memory"),
            Finding("schema", "ok", f"up to date, migration {newest}"),
            _examine_version(),
            Finding("durability", "ok", "WAL, synchronous=FULL: a commit survives power loss")
            if settings == {"journal_mode": "wal", "synchronous": 2}
            else Finding("durability", "warning", f"not safe against power loss: {settings}"),
            Finding("clock", "ok", "the clock of this machine, which is the store's own"),
        ]

    def close(self) -> None:
        self._listener.close()
        with ExitStack() as held:
            for lock in self._locks():
                held.enter_context(lock)
            self._closed = True
            self._disconnect()


_creating: Final = threading.Lock()
"""Held while a new file is open by something else than SQLite: to close that drops the locks that
SQLite has on the file in this process."""
# A fork does not acquire it: a fork waits for the locks of engines, and a thread that holds one of
# those may wait for this one.
os.register_at_fork(after_in_child=_creating._at_fork_reinit)  # type: ignore[attr-defined]


def _create_private(path: Path) -> None:
    """A new file is for its owner alone. SQLite gives `-wal` and `-shm` the mode of the file."""
    with _creating:
        if path.exists():
            return
        try:
            os.close(os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError:
            pass  # it exists by now, or SQLite says why it cannot be made


def _use_wal(connection: sqlite3.Connection) -> None:
    """While others do the same to a new file, SQLite gives up at once instead of waiting."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return


def _is_same(file: str, path: Path | None) -> bool:
    try:
        return path is not None and os.path.samefile(file, path)
    except OSError:
        return False


class FileMoved(StoreUnavailable):
    """The file of the store was deleted or replaced while it was open. Nothing is acknowledged."""

    def __init__(self, path: Path, *, is_gone: bool) -> None:
        if is_gone:
            told = (
                f"{path} was deleted while this app had it open: this call is not acknowledged, "
                "because there is no file that has it. Put the file back, or make a new store "
                "with `oncely migrate`, and the app opens it"
            )
        else:
            told = (
                f"{path} was replaced by another file while this app had it open: this call is "
                "not acknowledged, because the new file does not have it. Repeat the call: it "
                "goes to the new file"
            )
        super().__init__(told)


def _file_at(path: str) -> FileId | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_store(path: Path) -> bool:
    """Whether the file is there and has our tables. Looks only, and makes nothing."""
    if not path.exists():
        return False
    with (
        _translated(path),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection,
    ):
        (begun,) = Library("sqlite").get("schema_begun", ":{name}")
        return connection.execute(begun.text).fetchone() is not None


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _examine_version() -> Finding:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info >= WAL_RESET_FIXED:
        return Finding("sqlite version", "ok", version)
    return Finding(
        "sqlite version",
        "warning",
        f"{version} has the WAL-reset bug (3.7.0 to 3.51.2: two connections that write and "
        "checkpoint at once can damage the file). oncely takes its checkpoints under the write "
        "lock; other programs that write to this file should set `pragma wal_autocheckpoint = 0`, "
        "or use SQLite 3.51.3 or newer",
    )


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One that has begun."""
    try:
        yield
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


@contextmanager
def _translated(path: Path | None) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _trouble(error, path) from error


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _trouble(error: sqlite3.Error, path: Path | None) -> StoreUnavailable:
    code = _code(error)
    if code == sqlite3.SQLITE_BUSY:
        return StoreUnavailable(
            f"{path} was locked by another transaction for {BUSY_SECONDS:.0f} seconds. If this "
            "call was made inside an open transaction on the same file, pass that as tx=; if not, "
            "look for a program that keeps a write transaction open"
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreUnavailable(
            f"{path} cannot be opened: check that its folder exists and can be written"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return StoreUnavailable(f"{path} is not an SQLite database: check the URL")
    if code == sqlite3.SQLITE_READONLY:
        return StoreUnavailable(f"{path} cannot be written: check its owner and permissions")
    if code == sqlite3.SQLITE_FULL:
        return StoreUnavailable(f"{path} cannot grow: the disk is full")
    return StoreUnavailable(f"SQLite could not work with {path}: {error}")
