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
    noise = os.urandom(8 * count)
    return [_uuid7(first + n, noise[8 * n : 8 * n + 8]) for n in range(count)]


def _uuid7(ticks: int, noise: bytes) -> str:
    head = (ticks >> 12) << 16 | 0x7000 | (ticks & 0xFFF)
    tail = int.from_bytes(noise) & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000
    text = f"{head:016x}{tail:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


# A child that forked while another thread held the lock must not wait for a thread it has not got.
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
