"""A process that delivers the job, seen from the process that proves."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

from oncely.model.errors import InvalidInput
from oncely.prove import processes
from oncely.prove.seams import bring_in
from oncely.prove.timeline import short
from oncely.prove.watch import (
    CRASHED,
    IMPORTS,
    REFUSED,
    Act,
    Boundary,
    Message,
    Note,
    read_message,
)

if TYPE_CHECKING:
    from oncely.prove.delivery import Ground

_QUIET_SECONDS: Final = 1.5
"""A delivery that tells nothing for so long may wait for another."""
_ENDLESS_TIMES: Final = 10
"""A delivery that makes progress may take this many times the patience."""
End = Literal["done", "crashed", "paused", "imports"]
"""`imports`: it asked for a library that was not watched, and must be begun anew."""


class Delivery:
    """What a delivery has told so far."""

    def __init__(self, messages: list[Message], began: float) -> None:
        self.messages = messages
        self.began = began
        self.went_on = 0.0
        self.resumed_at: int | None = None
        """How many messages had come by then."""

    @property
    def boundaries(self) -> list[Boundary]:
        return [each for each in self.messages if isinstance(each, Boundary)]

    @property
    def was_struck(self) -> bool:
        return self._has_told("struck")

    @property
    def has_started_processes(self) -> bool:
        return self._has_told("process")

    def _has_told(self, what: str) -> bool:
        return any(isinstance(each, Note) and each.what == what for each in self.messages)

    def kill(self) -> None:
        """If its process is still there, with all that it has started."""


class Child(Delivery):
    """A delivery by a process of its own."""

    def __init__(self, ground: Ground, act: Act | None, fresh: str | None = None) -> None:
        """`fresh`: the kind, if it is delivered in a fresh interpreter."""
        super().__init__([], time.monotonic())
        self.is_fresh = fresh is not None
        self.standstill = ""
        """What is known of it, if it was given up."""
        self._buffer = b""
        self._line, child_line = os.pipe()
        self._template, self._pid = ground.start(child_line, act, fresh)
        os.close(child_line)
        self._code: int | None = None

    @property
    def process(self) -> int:
        return self._pid

    def wait(self, seconds: float, is_blocked: Callable[[], bool] = lambda: False) -> End | None:
        """Until it ends or stops; None if it stands still for `seconds`, or moves and comes to no
        end. A machine that is busy makes it slow, and that is not the same. `is_blocked` is asked
        now and then when it tells nothing new; None if it is. In a debugger it may stand still for
        as long as a person likes."""
        began = moved_at = told_at = time.monotonic()
        progress, told = self._progress(), len(self.messages)
        while True:
            has_moved = self._read(processes.LOOK_SECONDS)
            if self._code is not None:
                self._read_rest()
                return self._end(self._code)
            if self._stopped:
                self._read_all()
                return "paused"
            now = time.monotonic()
            if not has_moved:
                before, progress = progress, self._progress()
                has_moved = progress != before
            if has_moved:
                moved_at = now
            if len(self.messages) != told:
                told, told_at = len(self.messages), now
            elif now - told_at > _QUIET_SECONDS:
                told_at = now
                if is_blocked():
                    return None
            if self._has_told("debugger"):
                continue
            if now - moved_at > seconds:
                self._give_up(f"stood still for {seconds:.0f} seconds")
                return None
            if now - began > _ENDLESS_TIMES * seconds:
                self._give_up(f"did not end within {_ENDLESS_TIMES * seconds:.0f} seconds")
                return None

    def _give_up(self, what: str) -> None:
        last = self.boundaries[-1:]
        if not last:
            self.standstill = f"{what}, before its first boundary"
            return
        place = f" at {short(last[0].where)}" if last[0].where else ""
        self.standstill = f"{what}, after boundary {last[0].number} ({last[0].name}{place})"

    def _progress(self) -> tuple[int, list[bytes]]:
        """What it has told, and the processor time that it has used."""
        return len(self.messages), processes.processor_time(self._pid)

    _stopped = False

    def _read(self, seconds: float) -> bool:
        """What it tells, and what became of it; whether there was any of that in time."""
        if self._take_status():
            return True
        lines: list[Any] = [self._template] if self._line < 0 else [self._line, self._template]
        ready, _, _ = select.select(lines, [], [], seconds)
        if self._line in ready:
            data = os.read(self._line, 65_536)
            if data:
                self._take(data)
            else:
                self._close_line()
        if self._template in ready:
            self._template.receive()
            self._take_status()
        return bool(ready)

    def _take_status(self) -> bool:
        status = self._template.statuses.pop(self._pid, None)
        if status is None:
            return False
        if os.WIFSTOPPED(status):
            self._stopped = True
        else:
            self._code = os.waitstatus_to_exitcode(status)
        return True

    def _read_rest(self) -> None:
        if self._line < 0:
            return
        self._read_all()
        self._close_line()

    def _read_all(self) -> None:
        """What it has told by now. A grandchild may hold the other end, so there may be no end."""
        while self._line >= 0 and select.select([self._line], [], [], 0)[0]:
            data = os.read(self._line, 65_536)
            if not data:
                return
            self._take(data)

    def _close_line(self) -> None:
        if self._line >= 0:
            os.close(self._line)
            self._line = -1

    def _take(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        self.messages += [read_message(line) for line in lines]

    def _end(self, code: int) -> End:
        if code == REFUSED:
            raise InvalidInput(f"this cannot be proved: {_last(self.messages, 'refused')}")
        if code == IMPORTS:
            bring_in(_last(self.messages, "imports"))
            return "imports"
        if code == CRASHED:
            return "crashed"
        if code != 0:
            told = _last(self.messages, "end") or f"it ended with {code}"
            raise InvalidInput(f"a delivery under proof came to no end of its own: {told}")
        return "done"

    def resume(self) -> None:
        """Past its lease."""
        self.resumed_at = len(self.messages)
        self.went_on = time.monotonic()
        self.go_on()

    def go_on(self) -> None:
        self._stopped = False
        os.kill(self._pid, signal.SIGCONT)

    def kill(self) -> None:
        if self._code is None:
            self._template.kill(self._pid)
            self._code = -signal.SIGKILL
        processes.end_group(self._pid)
        self._close_line()


def _last(messages: list[Message], what: str) -> str:
    found = [each.text for each in messages if isinstance(each, Note) and each.what == what]
    return found[-1] if found else ""
