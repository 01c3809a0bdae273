"""The order of the writers of one SQLite file, over all processes.

SQLite has one writer at a time and no queue: a writer that finds the file locked sleeps, longer
each time, and tries again, while others that come back at once find it free. Under load a writer
can starve that way. So the writer that waits holds a lock on a file beside the database, and the
others, also the one that has just committed, stay behind it. All of them look for that lock equally
often, whether they have waited long or not; a renewal of leases looks more often, and so goes
first.

It is a matter of fairness only: what may be written is decided by SQLite's own lock. The kernel
drops the lock of a process that ends. For one that was stopped nobody waits: now and then those in
the queue try without it.
"""

from __future__ import annotations

import fcntl
import math
import os
import random
import sqlite3
import time
from typing import Final

BUSY_SECONDS: Final = 30.0
_HEAD_SECONDS: Final = 0.001
_LOOK_SECONDS: Final = 0.002
_RENEWAL_SECONDS: Final = 0.0002
_LOOKS_BEFORE_A_TRY: Final = 32
_ABSENT_SECONDS: Final = 0.05
"""How long it is believed that there is no file: to look costs as much as all the rest."""


class WriteQueue:
    """For one connection, until it is closed. The lock is beside the file that the connection has
    opened, by whatever path."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._file: int | None = None
        self._absent_until = -math.inf

    def begin(self, connection: sqlite3.Connection, *, is_renewal: bool = False) -> None:
        """`begin immediate`, when it is our turn. The connection must not wait by itself."""
        self._path = self._path or opened_file(connection)
        is_head = self._come_to_head()
        try:
            if is_head and _begins(connection):
                return
            if self._file is None:  # nobody has waited before
                self._make()
                is_head = False
            deadline = time.monotonic() + BUSY_SECONDS
            looks = 0
            while time.monotonic() < deadline:
                looks += 1
                is_head = is_head or self._come_to_head()
                if (is_head or looks % _LOOKS_BEFORE_A_TRY == 0) and _begins(connection):
                    return
                if is_head:
                    time.sleep(_HEAD_SECONDS)
                else:
                    usual = _RENEWAL_SECONDS if is_renewal else _LOOK_SECONDS
                    time.sleep(random.uniform(0.5, 1.5) * usual)
            connection.execute("begin immediate")  # the last try says what is wrong
        finally:
            if is_head and self._file is not None:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _come_to_head(self) -> bool:
        """Whether nobody else is at the head of the queue; then we are."""
        if self._file is None:
            now = time.monotonic()
            if now < self._absent_until:
                return True
            try:
                self._file = os.open(f"{self._path}-queue", os.O_RDONLY)
            except OSError:
                self._absent_until = now + _ABSENT_SECONDS
                return True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without such locks: then there is no queue
            return True
        return True

    def _make(self) -> None:
        """The file is made by the first writer that has to wait, and stays."""
        if self._file is not None:
            return
        assert self._path is not None
        try:
            mode = os.stat(self._path).st_mode & 0o666
            self._file = os.open(f"{self._path}-queue", os.O_RDONLY | os.O_CREAT, mode)
        except OSError:
            return  # a folder that cannot be written: then there is no queue

    def close(self) -> None:
        """The next connection may be to another file."""
        if self._file is not None:
            os.close(self._file)
        self._path = self._file = None
        self._absent_until = -math.inf


def opened_file(connection: sqlite3.Connection) -> str:
    """By SQLite's own word: without links, and where a proof has led the connection to."""
    listed = connection.execute("pragma database_list")
    return next(str(file) for _, name, file in listed if name == "main")


def _begins(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("begin immediate")
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        return False
    return True
