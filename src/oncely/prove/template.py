"""The template: a process in which every library is watched already. Deliveries are forked from it.

It is small in what it does, so a fork of it is cheap, and the process that proves copies nothing.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from oncely.model.errors import InvalidInput
from oncely.prove import processes
from oncely.prove.watch import known

_COMMAND: Final = struct.Struct("=ci")
"""What to do, and the process that it is about: `s` starts one, `k` kills one."""
_REPLY: Final = struct.Struct("=cii")
"""What happened, the process, and its status for `e`: `b` one has begun, `e` one ended or stopped.
"""
Deliver = Callable[[int, int], NoReturn]
"""Given two descriptors: the line that it tells on, and the pipe that it reads its order from."""


class Template:
    """Seen from the process that proves. `prepare` runs once, in the template."""

    def __init__(self, prepare: Callable[[int], Deliver]) -> None:
        self._control, theirs = socket.socketpair()
        self.statuses: dict[int, int] = {}
        """Of the deliveries that have ended or stopped, as `os.waitpid` gives them."""
        self._pid = processes.fork(lambda: _Server(theirs, prepare).serve())
        theirs.close()

    def fileno(self) -> int:
        return self._control.fileno()

    def start(self, line: int, order: bytes) -> int:
        """A delivery, which tells on `line`; its process."""
        theirs, ours = os.pipe()
        try:
            socket.send_fds(self._control, [_COMMAND.pack(b"s", 0)], [line, theirs])
        finally:
            os.close(theirs)
        with os.fdopen(ours, "wb") as pipe:
            pipe.write(order)
        while (begun := self._await_reply()) is None:
            pass
        return begun

    def kill(self, pid: int) -> None:
        """With its group; it is gone then."""
        self._control.sendall(_COMMAND.pack(b"k", pid))
        while pid not in self.statuses or os.WIFSTOPPED(self.statuses[pid]):
            self._await_reply()

    def _await_reply(self) -> int | None:
        if not processes.await_while_moving(self._pid, self._is_readable):
            raise InvalidInput(
                f"the process that starts the deliveries stood still for "
                f"{processes.HUNG_SECONDS:.0f} seconds: was it stopped, or did another thread hold "
                "a lock when it was forked? Prove from a process without threads"
            )
        return self.receive()

    def _is_readable(self, seconds: float) -> bool:
        return bool(select.select([self._control], [], [], seconds)[0])

    def receive(self) -> int | None:
        """One reply: the process that has begun, or None for one that ended or stopped."""
        reply = self._control.recv(_REPLY.size, socket.MSG_WAITALL)
        if len(reply) < _REPLY.size:
            raise InvalidInput(
                "the process that starts the deliveries has ended: was it killed, or is there too "
                "little memory?"
            )
        kind, pid, status = _REPLY.unpack(reply)
        if kind == b"b":
            return int(pid)
        self.statuses[pid] = status
        return None

    def close(self) -> None:
        """Its deliveries end with it."""
        self._control.shutdown(socket.SHUT_WR)
        if not processes.await_while_moving(self._pid, self._has_ended):
            os.kill(self._pid, signal.SIGKILL)
        self._control.close()
        os.waitpid(self._pid, 0)

    def _has_ended(self, seconds: float) -> bool:
        return self._is_readable(seconds) and not self._control.recv(4096)


class _Server:
    """The template itself."""

    def __init__(self, control: socket.socket, prepare: Callable[[int], Deliver]) -> None:
        self._control = control
        self._deliver = prepare(control.fileno())
        self._running: set[int] = set()
        known.set(True)  # what follows is ours
        self._woken, waker = os.pipe()
        self._descriptors = (self._woken, waker)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self._before = signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> NoReturn:
        control = self._control.fileno()
        while True:
            ready, _, _ = select.select([control, self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 4096)
                for pid in list(self._running):
                    self._look(pid, os.WNOHANG | os.WUNTRACED)
            if control in ready:
                self._obey()

    def _obey(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._control, _COMMAND.size, 2)
        if not data:
            self._end()
        command, pid = _COMMAND.unpack(data)
        if command == b"s":
            self._start(*descriptors)
        elif pid in self._running:
            self._kill(pid)
        else:
            self._reply(b"e", pid, signal.SIGKILL)

    def _start(self, line: int, order: int) -> None:
        pid = processes.fork(lambda: self._begin(line, order))
        self._running.add(pid)
        self._reply(b"b", pid, 0)
        os.close(line)
        os.close(order)

    def _begin(self, line: int, order: int) -> NoReturn:
        """In the delivery."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, self._before)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._control.close()
        processes.lead_group()
        known.set(False)
        self._deliver(line, order)

    def _look(self, pid: int, how: int) -> None:
        found, status = os.waitpid(pid, how)
        if found:
            if not os.WIFSTOPPED(status):
                self._running.discard(pid)
            self._reply(b"e", pid, status)

    def _kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        processes.end_group(pid)
        self._look(pid, 0)

    def _reply(self, kind: bytes, pid: int, status: int) -> None:
        with suppress(OSError):  # nobody proves any more, which the next read tells
            self._control.sendall(_REPLY.pack(kind, pid, status))

    def _end(self) -> NoReturn:
        for pid in list(self._running):
            self._kill(pid)
        os._exit(0)
