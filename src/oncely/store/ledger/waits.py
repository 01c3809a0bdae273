"""What the drivers raise when a wait for a lock was too long."""

from __future__ import annotations

import sqlite3
from typing import Final

_LOCK_NOT_AVAILABLE: Final = "55P03"
_LOCK_WAIT_TIMEOUT: Final = 1205


def is_wait_over(error: BaseException) -> bool:
    """Not a deadlock, nor a snapshot that is too old: those end the caller's transaction, and it
    is the caller's to repeat."""
    cause: BaseException | None = error
    while cause is not None:
        code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if code == _LOCK_NOT_AVAILABLE or cause.args[:1] == (_LOCK_WAIT_TIMEOUT,):
            return True
        if isinstance(cause, sqlite3.OperationalError):
            return cause.sqlite_errorcode == sqlite3.SQLITE_BUSY
        cause = cause.__cause__
    return False
