"""The ground of a proof: copies of the databases that a handler uses, put back after a schedule.

The originals of databases are never written. Plain files cannot be redirected, so they are saved
before they are first touched, and put back.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from oncely.prove import abandoned, processes
from oncely.prove.databases import Databases
from oncely.prove.redis_keys import RedisKeys
from oncely.prove.rows import Rows
from oncely.prove.saved_files import SavedFiles
from oncely.prove.seams.everywhere import Everywhere
from oncely.prove.watch import knowing

_MEMORY: Final = Path("/dev/shm")
_ROOM_BYTES: Final = 1024**3
"""With less room the copies go to the disk: a container has 64 MB of such memory, or none."""
_SIDES: Final = ("-wal", "-shm", "-journal")
_REAL: Final[tuple[Any, ...]] = (sqlite3.connect,)
"""In a tuple, where the children do not find it to replace it."""


class Copies:
    """`file` and `conninfo` are asked in the children, by the libraries that open connections."""

    def __init__(self) -> None:
        place = _memory_with_room()
        abandoned.put_back([_MEMORY, Path(tempfile.gettempdir())])
        self._folder, self._lock = abandoned.make_folder(place)
        self.databases = Databases(self._folder)
        self._open()

    @property
    def alive(self) -> Path:
        """Held open by every process of the proof but this one."""
        return self._folder / "alive"

    @property
    def fresh(self) -> Path:
        """What a fresh interpreter is told."""
        return self._folder / "fresh"

    @property
    def open_files(self) -> Path:
        return self._folder / "open"

    def __getstate__(self) -> dict[str, Any]:
        return {"_folder": self._folder, "databases": self.databases}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In another process of the same proof."""
        vars(self).update(state)
        self._open()

    def _open(self) -> None:
        self.files = SavedFiles(self._folder / "files", self._folder)
        self.redis = RedisKeys(self._folder / "redis")
        self.everywhere = Everywhere()

    def enter_child(self) -> None:
        """The lock is this process's own."""
        os.close(self._lock)

    def end_processes(self) -> None:
        processes.end_all(self._folder)

    def file(self, path: str) -> str:
        """The copy of an SQLite file, made when it is first asked for."""
        real = os.path.realpath(os.path.abspath(path))
        if real.startswith(f"{self._folder}{os.sep}") or not os.path.isdir(os.path.dirname(real)):
            return path
        name = _name(real)
        first, now = f"{self._folder}/first/{name}", f"{self._folder}/now/{name}"
        if not os.path.exists(f"{first}.known"):
            with knowing():
                if os.path.exists(real):
                    _copy_database(real, first)
                    shutil.copyfile(first, now)
                Path(f"{first}.known").write_text(real)
        return now

    def keep_copy(self, now: str) -> None:
        """What this copy holds now is what every schedule begins with."""
        first = self.first_file(now)
        Path(first).unlink(missing_ok=True)
        _copy_database(now, first)

    def first_file(self, now: str) -> str:
        """What this copy holds at the beginning of every schedule."""
        return str(self._folder / "first" / Path(now).name)

    def sqlite_files(self) -> list[str]:
        """The originals of which there are copies."""
        return sorted(mark.read_text() for mark in (self._folder / "first").glob("*.known"))

    def conninfo(self, conninfo: str) -> str | None:
        return self.databases.conninfo(conninfo)

    def database(self, port: int | None, name: str) -> str | None:
        return self.databases.database(port, name)

    def restore(self, release: Callable[[], None]) -> None:
        """`release` closes what is connected to the copies on PostgreSQL."""
        self._restore_files(None)
        self.files.restore()
        self.redis.restore()
        self.databases.restore(release)

    def _restore_files(self, saved: Path | None) -> None:
        """The copies of SQLite files: as they were saved, or else as a schedule finds them."""
        for mark in (self._folder / "first").glob("*.known"):
            first = mark.with_suffix("")
            now = self._folder / "now" / first.name
            for side in _SIDES:
                Path(f"{now}{side}").unlink(missing_ok=True)
            if saved is not None and (saved / first.name).exists():
                for path in saved.glob(f"{first.name}*"):
                    shutil.copyfile(path, now.with_name(path.name))
            elif first.exists():
                shutil.copyfile(first, now)
            else:
                now.unlink(missing_ok=True)

    @property
    def checkpoints(self) -> Path:
        return self._folder / "checkpoints"

    def save_files(self, folder: Path) -> int:
        """The copies as they would be found if the processes that use them ended; their size."""
        folder.mkdir(parents=True)
        size = 0
        for path in (self._folder / "now").iterdir():
            if not path.name.endswith("-shm"):  # which is made anew from the log
                shutil.copyfile(path, folder / path.name)
                size += path.stat().st_size
        return size

    def load(self, files: Path, rows: Sequence[Rows], release: Callable[[], None]) -> None:
        self._restore_files(files)
        self.databases.load_rows(rows, release)

    @property
    def has_saved_files(self) -> bool:
        """Whether a handler has touched files of the user's, or keys of Redis."""
        return self.files.is_used or self.redis.is_used

    def stores(self) -> list[str]:
        """The copies in use, of SQLite files."""
        return [str(path) for path in (self._folder / "now").iterdir() if len(path.name) == 16]

    def close(self) -> None:
        self.end_processes()
        self.files.restore()
        self.redis.close()
        self.databases.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)


def _name(path: str) -> str:
    return sha256(path.encode()).hexdigest()[:16]


def _copy_database(source: str, target: str) -> None:
    """Also while somebody writes to it, and with what is only in its log yet."""
    with (
        closing(_REAL[0](source, timeout=30)) as one,
        closing(_REAL[0](target)) as other,
    ):
        one.backup(other)


def _memory_with_room() -> Path | None:
    if not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _ROOM_BYTES:
        return None
    return _MEMORY
