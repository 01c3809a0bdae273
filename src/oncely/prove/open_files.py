"""What was open before the handler ran: a delivery shares it with the process that proves, and no
library and no event tells when a handler writes to it."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from oncely.prove.saved_files import SavedFiles
from oncely.prove.seams.paths import is_of_a_proof
from oncely.prove.watch import Watch, knowing

_DESCRIPTORS: Final = Path("/proc/self/fd")
_MAPPINGS: Final = Path("/proc/self/maps")
_LARGE_BYTES: Final = 64 * 1024 * 1024
_SQLITE: Final = b"SQLite format 3\0"
_SIDES: Final = ("-wal", "-shm", "-journal")


def cut_connections(keep: int) -> None:
    """In the child. A connection that the parent has opened leads to somebody for real: here it is
    closed by the other side. Libraries that notice open another one, which is watched."""
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        for number, status, _ in _open():
            if stat.S_ISSOCK(status.st_mode) and number not in (keep, ours.fileno()):
                os.dup2(ours.fileno(), number, inheritable=False)


def written_files() -> list[tuple[int, str]]:
    """Number and path of the files that this process could write to."""
    return [
        (number, path)
        for number, status, path in _open()
        if stat.S_ISREG(status.st_mode) and is_writable(number) and _is_plain(path)
    ]


def copy_open_files(files: list[tuple[int, str]], watch: Watch, folder: Path) -> None:
    """In the child. A file that the parent could write to is replaced by a copy of it, also where a
    handler has it in a variable. Whether the copy was written is told at the end."""
    copies: dict[str, tuple[int, os.stat_result]] = {}
    with knowing():
        for number, path in files:
            _copy(number, os.fstat(number).st_size, path, folder / f"{os.getpid()}-{number}")
            copies[path] = number, os.fstat(number)

    def tell() -> None:
        for path, (number, before) in copies.items():
            with suppress(OSError):  # the handler has closed it
                now = os.fstat(number)
                if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                    watch.note(
                        "unobserved",
                        f"the file {path}, which was open before the handler ran: what is written "
                        "to it cannot be seen",
                    )

    watch.before_end.append(tell)


def mapped_files() -> list[str]:
    """In the parent: those that are in its memory, where a write to it is a write to them."""
    if not _MAPPINGS.exists():
        return []
    parts = [line.split(None, 5) for line in _MAPPINGS.read_text().splitlines()]
    found = {each[5] for each in parts if len(each) == 6 and each[1].startswith("rw-s")}
    return sorted(path for path in found if _is_plain(path) and not is_of_a_proof(path))


def follow_mapped_files(watch: Watch, files: SavedFiles, paths: list[str]) -> None:
    """In the child. Whether one of them has changed is told at the end."""
    with knowing():
        before = {path: _content(path) for path in paths}
        for path in paths:
            files.save_content(path)

    def tell() -> None:
        with knowing():
            for path, content in before.items():
                if content != _content(path):
                    tell_mapping(watch, path)
                    # The system may not have changed its times yet, by which it is put back.
                    os.utime(path)

    watch.before_end.append(tell)


def tell_mapping(watch: Watch, path: str) -> None:
    watch.note(
        "unobserved", f"the file {path} is mapped to memory: what is written there cannot be seen"
    )


def _content(path: str) -> bytes | int:
    """As much as tells a change: of a large file its time."""
    status = os.stat(path)
    if status.st_size > _LARGE_BYTES:
        return status.st_mtime_ns
    return sha256(Path(path).read_bytes()).digest()


def _copy(number: int, size: int, path: str, copy: Path) -> None:
    if size > _LARGE_BYTES:  # with as much room in it
        copy.touch()
        os.truncate(copy, size)
    else:
        shutil.copyfile(path, copy)
    flags = fcntl.fcntl(number, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND)
    made = os.open(copy, flags)
    os.lseek(made, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
    os.dup2(made, number, inheritable=os.get_inheritable(number))
    os.close(made)


def _open() -> Iterator[tuple[int, os.stat_result, str]]:
    """Number, status and path of each open descriptor but the first three."""
    for each in sorted(_DESCRIPTORS.iterdir()) if _DESCRIPTORS.is_dir() else ():
        with suppress(OSError):
            if int(each.name) > 2:
                yield int(each.name), os.fstat(int(each.name)), os.readlink(each)


def is_writable(number: int) -> bool:
    return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY


def _is_plain(path: str) -> bool:
    """One that has a name, and is no database: of that the handler has a copy."""
    if path.endswith(_SIDES) or not os.path.isfile(path):
        return False
    with suppress(OSError), open(path, "rb") as file:
        return file.read(len(_SQLITE)) != _SQLITE
    return False
