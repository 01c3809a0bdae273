"""Files: opening one to write, and closing it. Each is saved before it is first touched."""

from __future__ import annotations

import builtins
import os
import sys
from typing import Any

from oncely.prove.copies import FOLDER, Copies
from oncely.prove.watch import Watch, knowing, users_line


def install(watch: Watch, copies: Copies) -> None:
    real = builtins.open

    def watched_open(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if not set(mode) & set("wax+") or isinstance(file, int) or not of_the_user(file):
            return real(file, mode, *args, **options)
        path = os.path.abspath(os.fspath(file))
        copies.save(os.fsdecode(path))
        watch.pass_by("file", f"open {os.fsdecode(file)!s} to write")
        with knowing():
            opened = real(file, mode, *args, **options)
        close = opened.close

        def watched_close() -> None:
            if not opened.closed:
                watch.pass_by("file", f"write {os.fsdecode(file)!s}")
            close()

        # `with` calls it by its name, also on an instance.
        vars(opened)["close"] = watched_close
        return opened

    copies.everywhere.replace(real, watched_open)


def of_the_user(file: Any) -> bool:
    """Not a cache, a device or a copy of ours, and asked for by a line of the user's."""
    text = os.fsdecode(os.fspath(file))
    if text.startswith("/dev/") and not text.startswith("/dev/shm/"):
        return False
    if "__pycache__" in text or FOLDER in text:
        return False
    return users_line(sys._getframe(1)) is not None
