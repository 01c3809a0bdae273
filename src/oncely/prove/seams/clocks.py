"""Clocks that a proof cannot move: that a handler reads one is told, once, from the clean run."""

from __future__ import annotations

import datetime
import re
import sys
import threading
from types import FrameType
from typing import Any, Final

from oncely.prove.watch import Watch, is_the_users

_OF_A_DAY: Final = ("now", "utcnow")
_IN_SQL: Final = re.compile(
    r"\b(now|curdate|curtime|sysdate|utc_timestamp|clock_timestamp|statement_timestamp|transaction_timestamp|unixepoch)\s*\(\s*\)"
    r"|\b(current_timestamp|current_date|current_time|localtimestamp|localtime)\b|'now'",
    re.IGNORECASE,
)


def install(watch: Watch) -> None:
    """In the child, where `datetime.now` could not be replaced. Costly, for the interpreter tells
    of every call: not in every delivery."""

    def profile(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and _is_clock(called) and is_the_users(frame.f_code.co_filename):
            owner = getattr(called, "__self__", None)
            name = getattr(owner, "__name__", "datetime")
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            watch.note("clock", place, [f"{name}.{called.__name__}"])

    threading.setprofile(profile)
    sys.setprofile(profile)


def _is_clock(called: Any) -> bool:
    if getattr(called, "__name__", None) not in _OF_A_DAY:
        return False
    owner = getattr(called, "__self__", None)
    return isinstance(owner, type) and issubclass(owner, datetime.date)


def clock_in(statement: str) -> str | None:
    """The clock that a statement of the user's reads."""
    if "oncely" in statement:
        return None
    match = _IN_SQL.search(statement)
    return None if match is None else match[0]
