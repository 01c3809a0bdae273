"""Who calls: the handler, through whatever library, or the worker that delivers its job."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Final

from oncely.prove.watch import is_the_users

_ONCELY: Final = str(Path(__file__).parents[1]) + os.sep
_PROVE: Final = str(Path(__file__).parent) + os.sep
_DELIVERY: Final = str(Path(__file__).with_name("delivery.py"))
_STANDARD: Final = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), "<")
_INSTALLED: Final = ("site-packages", "dist-packages")


def is_of_handler(frame: FrameType | None) -> bool:
    """Whether a line of the handler is on the stack. Below the delivery is who called `prove`."""
    while frame is not None and frame.f_code.co_filename != _DELIVERY:
        if is_the_users(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def is_for_handler(frame: FrameType | None) -> bool:
    """The same, and what asks is neither our own code nor the standard library at work for it."""
    while frame is not None and _is_standard(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None or is_own_file(frame.f_code.co_filename):
        return False
    return is_of_handler(frame)


def is_own_read(frame: FrameType | None) -> bool:
    """Whether the code that calls right there is not the standard library's, and is the
    handler's: the event loop, threads and queues measure their waits by the real clock."""
    while frame is not None and frame.f_code.co_filename.startswith(_PROVE):
        frame = frame.f_back
    if frame is None or _is_standard(frame.f_code.co_filename):
        return False
    return is_for_handler(frame)


def is_own_file(file: str) -> bool:
    return file.startswith(_ONCELY)


def _is_standard(file: str) -> bool:
    return file.startswith(_STANDARD) and not any(part in file for part in _INSTALLED)
