"""What ran, and when: one shared file that the publisher and every worker process write to.

Each job has a place for the time at which its handler began, and each process has a place for how
many it ran, so that the publisher sees how far they are without a question to the store.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time

PROCESSES = 64
_SLOT = struct.Struct("=qqq")  # the process, how many it ran, how many of these had run before
_TIME = struct.Struct("=q")
_TIMES_AT = PROCESSES * _SLOT.size


class Tally:
    def __init__(self, path: str, jobs: int = 0) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if jobs:
            os.ftruncate(self._fd, _TIMES_AT + jobs * _TIME.size)
        self._map = mmap.mmap(self._fd, 0)
        self.jobs = (len(self._map) - _TIMES_AT) // _TIME.size
        self._pid = 0
        self._slot = 0
        self._ran = 0
        self._doubled = 0

    def hit(self, n: int) -> None:
        """Job `n` runs in this process, now."""
        now = time.monotonic_ns()
        if os.getpid() != self._pid:
            self._take_slot()
        at = _TIMES_AT + n * _TIME.size
        if _TIME.unpack_from(self._map, at)[0]:
            self._doubled += 1
        else:
            _TIME.pack_into(self._map, at, now)
        self._ran += 1
        _SLOT.pack_into(self._map, self._slot, self._pid, self._ran, self._doubled)

    def _take_slot(self) -> None:
        """A slot of its own for each process, also for those that a worker forks."""
        self._pid, self._ran, self._doubled = os.getpid(), 0, 0
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            for n in range(PROCESSES):
                self._slot = n * _SLOT.size
                if _SLOT.unpack_from(self._map, self._slot)[0] == 0:
                    _SLOT.pack_into(self._map, self._slot, self._pid, 0, 0)
                    return
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)
        raise RuntimeError(f"more than {PROCESSES} processes run jobs")

    def counts(self) -> tuple[int, int]:
        """How many executions there were, and how many of them were of a job that had run."""
        slots = [_SLOT.unpack_from(self._map, n * _SLOT.size) for n in range(PROCESSES)]
        return sum(slot[1] for slot in slots), sum(slot[2] for slot in slots)

    def started_ns(self, n: int) -> int:
        """When job `n` began; 0 if it has not."""
        return int(_TIME.unpack_from(self._map, _TIMES_AT + n * _TIME.size)[0])

    def times_ns(self) -> list[int]:
        """When the jobs began, of those that did."""
        return [t for n in range(self.jobs) if (t := self.started_ns(n))]
