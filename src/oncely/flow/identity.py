"""Job ids: UUIDs of version 7, made here and not by the database.

The store can be restored or recreated, but an id is never made twice, because 62 of its bits are
fresh randomness from the operating system, also after a fork. Ids made by one process rise, so
jobs enqueued together keep their order.
"""

from __future__ import annotations

import os
import time
from threading import Lock

_HOUR = 3_600_000 << 12
_VARIANT = {f"{n:x}": "89ab"[n & 3] for n in range(16)}
_lock = Lock()
_last = 0


def new_job_ids(count: int) -> list[str]:
    global _last
    with _lock:
        # Steps of 1/4096 ms: 48 bits of milliseconds and the 12 bits below them in the format.
        now = (time.time_ns() << 12) // 1_000_000
        # A clock that was far ahead and is right again must not leave wrong times for ever.
        first = _last + 1 if 0 <= _last + 1 - now < _HOUR else now
        _last = first + count - 1
    noise = os.urandom(8 * count).hex()
    return [_uuid7(first + n, noise[16 * n : 16 * n + 16]) for n in range(count)]


def _uuid7(ticks: int, noise: str) -> str:
    """`noise`: 16 hexadecimal digits, of which two bits make way for the variant."""
    time = f"{ticks >> 12:012x}"
    return (
        f"{time[:8]}-{time[8:]}-7{ticks & 0xFFF:03x}-{_VARIANT[noise[0]]}{noise[1:4]}-{noise[4:]}"
    )


# A child that forked while another thread held the lock must not wait for a thread it has not got.
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
