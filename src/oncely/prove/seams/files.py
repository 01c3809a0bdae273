"""Files: opening one to write, and writing to it. Each is saved before it is first touched."""

from __future__ import annotations

import builtins
import os
import sys
from typing import Any, Final

from oncely.prove.copies import Copies
from oncely.prove.seams.file_writes import FileWrites
from oncely.prove.seams.paths import is_of_a_proof, of_the_user, path_of, plain_file
from oncely.prove.watch import Watch, is_of_the_store, knowing, known, users_line

WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def install(watch: Watch, copies: Copies) -> None:
    writes = FileWrites(watch, copies)
    _watch_open(watch, copies, writes)
    _watch_os(watch, copies, writes)


def _watch_open(watch: Watch, copies: Copies, writes: FileWrites) -> None:
    real = builtins.open

    def watched_open(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if not set(mode) & set("wax+"):
            return real(file, mode, *args, **options)
        if isinstance(file, int):
            opened = real(file, mode, *args, **options)
            path = plain_file(file)
            if path is not None and of_the_user(path):
                writes.follow_file(opened, path)
            return opened
        if not of_the_user(file):
            return real(file, mode, *args, **options)
        path = os.fsdecode(file)
        if len(args) > 5:
            args, options = args[:5], {**options, "opener": args[5]}
        opener = options.get("opener")
        if opener is None:
            copies.files.save_content(path)
            watch.pass_by("file", f"open {path} to write")
        else:
            options["opener"] = _unknowing(opener)
        with knowing():
            opened = real(file, mode, *args, **options)
        writes.follow_file(opened, path if opener is None else plain_file(opened.fileno()) or path)
        return opened

    copies.everywhere.replace(real, watched_open)


def _unknowing(opener: Any) -> Any:
    """An opener may open something else than it was given, as that of a temporary file does: that
    is seen by itself."""

    def watched_opener(path: Any, flags: int) -> Any:
        token = known.set(False)
        try:
            return opener(path, flags)
        finally:
            known.reset(token)

    return watched_opener


def _watch_os(watch: Watch, copies: Copies, writes: FileWrites) -> None:
    """What has no event of the interpreter, or one that does not name the folder."""
    real_open: Any = os.open

    def watched_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        place = None if known.get() or not flags & WRITES else path_of(path, dir_fd)
        if place is None or is_of_a_proof(place) or is_of_the_store(sys._getframe(1)):
            return int(real_open(path, flags, mode, dir_fd=dir_fd))
        copies.files.save_content(place)
        is_seen = users_line(sys._getframe(1)) is not None
        if is_seen:
            watch.pass_by("file", f"open {place} to write")
        with knowing():
            number = int(real_open(path, flags, mode, dir_fd=dir_fd))
        if is_seen and (opened := plain_file(number)) is not None:
            writes.follow_descriptor(number, opened)
        return number

    def saving(real: Any) -> Any:
        def make(path: Any, *args: Any, dir_fd: int | None = None) -> Any:
            place = path_of(path, dir_fd)
            if place is not None:
                copies.files.save(place)
            return real(path, *args, dir_fd=dir_fd)

        return make

    copies.everywhere.replace(real_open, watched_open)
    os.mkfifo, os.mknod = saving(os.mkfifo), saving(os.mknod)
