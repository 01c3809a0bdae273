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
_STEPS = 0xFFF
_VARIANT = bytes(0x80 | n & 0x3F for n in range(256))
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
    if count == 1:  # the most common, and for it all the lists would cost twice as much
        moment, end = f"{first:015x}", noise.hex()
        top = "89ab"[noise[0] >> 6]
        return [f"{moment[:8]}-{moment[8:12]}-7{moment[12:]}-{top}{end[1:4]}-{end[4:]}"]
    # Of each the first two of its bits make way for the variant.
    tops = noise[:count].translate(_VARIANT).hex(" ").split(" ")
    middles = noise[count : 2 * count].hex(" ").split(" ")
    ends = noise[2 * count :].hex(" ", 6).split(" ")
    parts = zip(_moments(first, count), tops, middles, ends, strict=False)
    return [f"{moment}{top}{middle}-{end}" for moment, top, middle, end in parts]


def _moments(first: int, count: int) -> list[str]:
    """Each step's part of an id; those of one millisecond have most of it in common."""
    moments: list[str] = []
    while len(moments) < count:
        now = first + len(moments)
        time = f"{now >> 12:012x}"
        common = f"{time[:8]}-{time[8:]}-7"
        start = now & _STEPS
        steps = range(start, min(start + count - len(moments), _STEPS + 1))
        moments += [f"{common}{step:03x}-" for step in steps]
    return moments


# A child that forked while another thread held the lock must not wait for a thread it has not got.
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
