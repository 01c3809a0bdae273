"""The file that a call is about, and whose it is."""

from __future__ import annotations

import os
import stat
import sys
from typing import Any, Final

from oncely.prove.abandoned import FOLDER
from oncely.prove.watch import users_line

_DESCRIPTORS: Final = "/proc/self/fd"


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


def plain_file(number: int) -> str | None:
    """The path of a descriptor, if it is that of a file of the user's."""
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return None
    except OSError:
        return None
    path = _path_of_descriptor(number)
    return None if path is None or is_of_a_proof(path) or not os.path.isfile(path) else path
