"""The places at which the demo may strike: between intent, effect, outcome and settle.

A handler that comes to one says so and waits: it is let on, or its process is killed right there.
"""

from __future__ import annotations

import os
import sys
from itertools import count
from threading import Condition
from typing import Literal

import msgspec

EffectName = Literal["charge", "receipt"]
After = Literal["intent", "effect", "outcome"]


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """A handler waits here. `after` is what was written down or done last."""

    ticket: int
    execution_id: str
    order: int
    effect: EffectName
    after: After


class Left(msgspec.Struct, frozen=True, tag="left"):
    """A handler is at its end, whichever."""

    execution_id: str


class Gate:
    """In the worker: standard output says who waits, standard input who may go on."""

    def __init__(self) -> None:
        self._tickets = count(1)
        self._let_on: set[int] = set()
        self._is_open = False
        self._changed = Condition()

    def stop(self, execution_id: str, order: int, effect: EffectName, after: After) -> None:
        with self._changed:
            ticket = next(self._tickets)
            _say(Stop(ticket, execution_id, order, effect, after))
            self._changed.wait_for(lambda: self._is_open or ticket in self._let_on)
            self._let_on.discard(ticket)

    def leave(self, execution_id: str) -> None:
        _say(Left(execution_id))

    def keep(self) -> None:
        """Until the input ends: the demo is over, or whoever runs it is gone. Then all may go."""
        # Not `sys.stdin`: its lock, held by a thread that waits, would be in the way at our end.
        with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as lines:
            while line := lines.readline():
                with self._changed:
                    self._let_on.add(int(line))
                    self._changed.notify_all()
        with self._changed:
            self._is_open = True
            self._changed.notify_all()


def _say(what: Stop | Left) -> None:
    # One system call: the line is there in full or not at all.
    os.write(sys.stdout.fileno(), msgspec.json.encode(what) + b"\n")
