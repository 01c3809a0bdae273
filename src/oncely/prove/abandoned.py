"""Proofs whose process was killed: what they have touched is put back by the next proof.

Each proof has a folder, in which everything is recorded before it is touched, and holds a lock on a
file of it for as long as it lives.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from oncely.prove import processes, redis_keys
from oncely.prove.saved_files import SavedFiles

FOLDER: Final = "oncely-prove-"
"""How the name of the folder of a proof begins."""
PARTS: Final = ("first", "now", "files", "open", "databases", "redis")
_LOCK: Final = "lock"
_GONE_SECONDS: Final = 7 * 86_400.0
"""A server that has not answered for so long is taken for gone, with all that was on it."""


class CopiedDatabase(msgspec.Struct, frozen=True):
    """Copies on a server of PostgreSQL or MySQL, and how to reach it."""

    conninfo: str
    names: list[str]
    mysql_user: str | None = None
    """Made for the copies."""

    def record(self, folder: Path) -> None:
        (folder / "databases" / f"{self.names[0]}.json").write_bytes(msgspec.json.encode(self))


def make_folder(place: Path | None) -> tuple[Path, int]:
    """The folder of a new proof, and the descriptor that holds its lock."""
    folder = Path(tempfile.mkdtemp(prefix=FOLDER, dir=place))
    for name in PARTS:
        (folder / name).mkdir()
    (folder / "alive").touch()
    lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return folder, lock


@contextmanager
def own_folder() -> Iterator[Path]:
    """For files of the proof itself. If it is killed, the next proof removes them."""
    folder, lock = make_folder(None)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def put_back(places: Iterable[Path]) -> None:
    """What the proofs have left whose process is gone."""
    for folder in _folders(places):
        with _locked(folder) as is_abandoned:
            if is_abandoned:
                processes.end_all(folder)
                SavedFiles(folder / "files", folder).restore()
                # Once: by the next time the user may have changed them.
                shutil.rmtree(folder / "files", ignore_errors=True)
                has_keys = redis_keys.restore_from(folder / "redis")
                if (_drop_databases(folder) and has_keys) or _is_old(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _folders(places: Iterable[Path]) -> Iterator[Path]:
    for place in {*places}:
        for folder in place.glob(f"{FOLDER}*"):
            with suppress(OSError):
                if folder.stat().st_uid == os.geteuid() and (folder / _LOCK).exists():
                    yield folder


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Whether nobody else has the lock."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield folder.is_dir()
    finally:
        os.close(lock)


def _is_old(folder: Path) -> bool:
    return time.time() - folder.stat().st_mtime > _GONE_SECONDS


def _drop_databases(folder: Path) -> bool:
    """False if a server does not answer: its copies are still recorded."""
    is_done = True
    for record in (folder / "databases").glob("*.json"):
        copied = msgspec.json.decode(record.read_bytes(), type=CopiedDatabase)
        if copied.mysql_user is not None:
            from oncely.prove.mysql_databases import drop_abandoned

            is_dropped = drop_abandoned(copied.conninfo, copied.names, copied.mysql_user)
        else:
            is_dropped = _drop_on_postgres(copied)
        if is_dropped:
            record.unlink()
        is_done = is_done and is_dropped
    return is_done


def _drop_on_postgres(copied: CopiedDatabase) -> bool:
    import psycopg

    try:
        with psycopg.connect(copied.conninfo, autocommit=True, connect_timeout=2) as server:
            for name in copied.names:
                server.execute(f'drop database if exists "{name}" with (force)'.encode())
    except psycopg.Error:
        return False
    return True
