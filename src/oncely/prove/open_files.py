"""What was open before the handler ran: it is shared with the process that proves, and no library
and no event tells when a handler writes to it."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_DESCRIPTORS: Final = Path("/proc/self/fd")
_SMALL_BYTES: Final = 16 * 1024 * 1024
_SQLITE: Final = b"SQLite format 3\0"
_SIDES: Final = ("-wal", "-shm", "-journal")
Positions = dict[str, int]
"""Of each file the place that is written next."""


def cut_connections(keep: int) -> None:
    """In the child. A connection that the parent has opened leads to somebody for real: here it is
    closed by the other side. Libraries that notice open another one, which is watched."""
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        for number, status, _ in _open():
            if stat.S_ISSOCK(status.st_mode) and number > 2 and number not in (keep, ours.fileno()):
                os.dup2(ours.fileno(), number, inheritable=False)


class OpenFiles:
    """The files that this process could write to when the proof began, with their content."""

    def __init__(self) -> None:
        self._content: dict[str, bytes | None] = {}
        self._numbers: dict[str, int] = {}
        self._written: set[str] = set()
        for number, status, path in _open():
            if stat.S_ISREG(status.st_mode) and _is_written(number) and os.path.isfile(path):
                self._keep(number, path, status.st_size)
        self._first = self.look()

    def _keep(self, number: int, path: str, size: int) -> None:
        if path.endswith(_SIDES):
            return
        with open(path, "rb") as file:
            start = file.read(len(_SQLITE))
            if start == _SQLITE:  # the handler has a copy of it
                return
            self._content[path] = start + file.read() if size <= _SMALL_BYTES else None
            self._numbers[path] = number

    def look(self) -> Positions:
        found: Positions = {}
        for path, number in self._numbers.items():
            with suppress(OSError):  # closed by now
                found[path] = os.lseek(number, 0, os.SEEK_CUR)
        return found

    def changed(self, before: Positions) -> list[str]:
        """Those that a delivery has written to: it shares the position in the file with this
        process, which waits for it meanwhile. What others write to the file does not move that."""
        changed = [path for path, position in self.look().items() if position != before.get(path)]
        self._written.update(changed)
        return changed

    def restore(self) -> None:
        """Those that deliveries have written to, and the position in each."""
        for path in self._written:
            content = self._content[path]
            if content is not None:
                with open(path, "r+b") as file:
                    file.write(content)
                    file.truncate()
                os.lseek(self._numbers[path], self._first[path], os.SEEK_SET)
        self._written.clear()


def _open() -> Iterator[tuple[int, os.stat_result, str]]:
    """Number, status and path of each open descriptor."""
    for each in sorted(_DESCRIPTORS.iterdir()) if _DESCRIPTORS.is_dir() else ():
        with suppress(OSError):
            yield int(each.name), os.fstat(int(each.name)), os.readlink(each)


def _is_written(number: int) -> bool:
    return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
