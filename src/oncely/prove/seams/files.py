"""Files: opening one to write, and closing it. Each is saved before it is first touched."""

from __future__ import annotations

import builtins
import os
import sys
from contextlib import nullcontext
from typing import Any, Final

from oncely.prove.abandoned import FOLDER
from oncely.prove.copies import Copies
from oncely.prove.seams.torn import TornFile
from oncely.prove.watch import Watch, knowing, known, users_line

_DESCRIPTORS: Final = "/proc/self/fd"


def install(watch: Watch, copies: Copies) -> None:
    _watch_open(watch, copies)
    _watch_os(copies)


def _watch_open(watch: Watch, copies: Copies) -> None:
    real = builtins.open

    def watched_open(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if not set(mode) & set("wax+") or isinstance(file, int) or not of_the_user(file):
            return real(file, mode, *args, **options)
        path = os.fsdecode(file)
        # An opener may open something else, and makes its own events.
        opener = options.get("opener") or (args[5] if len(args) > 5 else None)
        if opener is None:
            copies.files.save_content(path)
            watch.pass_by("file", f"open {path} to write")
        with knowing() if opener is None else nullcontext():
            opened = real(file, mode, *args, **options)
        close = opened.close
        torn = TornFile(opened, path) if watch.may_strike("tear") else None

        def watched_close() -> None:
            if not opened.closed and watch.pass_by("file", f"write {path}") and torn is not None:
                torn.write_half()
                watch.crash()
            close()

        # `with` calls it by its name, also on an instance.
        vars(opened)["close"] = watched_close
        return opened

    copies.everywhere.replace(real, watched_open)


def _watch_os(copies: Copies) -> None:
    """What has no event of the interpreter, or one that does not name the folder."""
    real_open: Any = os.open

    def watched_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None and not known.get() and flags & (os.O_RDWR | os.O_WRONLY):
            place = path_of(path, dir_fd)
            if place is not None:
                copies.files.save_content(place)
            with knowing():
                return int(real_open(path, flags, mode, dir_fd=dir_fd))
        return int(real_open(path, flags, mode, dir_fd=dir_fd))

    def saving(real: Any) -> Any:
        def make(path: Any, *args: Any, dir_fd: int | None = None) -> Any:
            place = path_of(path, dir_fd)
            if place is not None:
                copies.files.save(place)
            return real(path, *args, dir_fd=dir_fd)

        return make

    os.open = watched_open
    os.mkfifo, os.mknod = saving(os.mkfifo), saving(os.mknod)


def path_of(file: Any, folder: int | None) -> str | None:
    """The path of what a call was given: a name, relative to an open folder if there is one, or a
    descriptor."""
    if isinstance(file, int):
        return _path_of_descriptor(file)
    if not isinstance(file, str | bytes | os.PathLike):
        return None
    text = os.fsdecode(file)
    if folder is None or folder < 0 or os.path.isabs(text):
        return os.path.abspath(text)
    base = _path_of_descriptor(folder)
    return None if base is None else os.path.join(base, text)


def _path_of_descriptor(number: int) -> str | None:
    try:
        path = os.readlink(f"{_DESCRIPTORS}/{number}")
    except OSError:
        return None
    return path if path.startswith(os.sep) else None


def is_of_a_proof(file: Any) -> bool:
    """A cache, a device or a copy of ours."""
    text = os.fsdecode(os.fspath(file))
    if text.startswith("/dev/") and not text.startswith("/dev/shm/"):
        return True
    return "__pycache__" in text or FOLDER in text


def of_the_user(file: Any) -> bool:
    """Not a cache, a device or a copy of ours, and asked for by a line of the user's."""
    return not is_of_a_proof(file) and users_line(sys._getframe(1)) is not None
