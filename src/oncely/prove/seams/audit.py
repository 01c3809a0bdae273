"""What no library has told: seen only as an event of the interpreter. It is a boundary where it can
be one, and what it did cannot be compared."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from oncely.prove.copies import Copies
from oncely.prove.seams.files import of_the_user
from oncely.prove.watch import Watch, known, users_line

_PROCESSES: Final = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec")
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES: Final = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate")


def install(watch: Watch, copies: Copies) -> None:
    def hook(event: str, args: Any) -> None:
        if known.get():
            return
        if event in _PROCESSES:
            _tell_process(watch, event, args)
        elif event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            address = args[1] if len(args) > 1 else None
            if address is not None and not _of_http() and users_line(sys._getframe(1)) is not None:
                if isinstance(address, tuple) and not watch.hosts.may_be_called(str(address[0])):
                    watch.refuse(
                        f"the handler connects to {_address(address)}, which is not on this "
                        "machine: what it does there would be done for real, many times. Let it "
                        "connect to a stand-in, or name the host in allow_hosts=[…]"
                    )
                watch.note(
                    "unobserved",
                    f"a connection to {_address(address)} through no library that is known here",
                )
                watch.pass_by("process", f"connect to {_address(address)}")
        elif event == "open":
            _tell_open(watch, copies, args)
        elif event in _CHANGES and _is_path(args[0]) and of_the_user(args[0]):
            _tell_change(watch, copies, event, args)

    sys.addaudithook(hook)


def _of_http() -> bool:
    """Whether it is http.client, or what is built on it, that connects: its requests are told."""
    frame = sys._getframe(2)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__") == "http.client":
            return True
        frame = frame.f_back
    return False


def _tell_process(watch: Watch, event: str, args: Any) -> None:
    told = args[1] if event == "subprocess.Popen" and args[1] else args[0]
    if isinstance(told, list | tuple):
        told = " ".join(map(str, told))
    watch.note("unobserved", f"the process {told!s:.80}: what it does cannot be seen from here")
    watch.pass_by("process", f"run {told!s:.60}")


def _tell_open(watch: Watch, copies: Copies, args: Any) -> None:
    path, _, flags = args
    writes = isinstance(flags, int) and flags & _WRITES
    if not writes or not isinstance(path, str | bytes) or not of_the_user(path):
        return
    copies.save(os.path.abspath(os.fsdecode(path)))
    watch.note("unobserved", f"the file {os.fsdecode(path)}: only that it was opened was seen")
    watch.pass_by("file", f"open {os.fsdecode(path)} to write")


def _tell_change(watch: Watch, copies: Copies, event: str, args: Any) -> None:
    paths = [arg for arg in args[:2] if _is_path(arg)]
    for path in paths:
        copies.save(os.path.abspath(os.fsdecode(path)))
    told = " ".join(os.fsdecode(path) for path in paths)
    watch.pass_by("file", f"{event.removeprefix('os.')} {told}")


def _is_path(value: Any) -> bool:
    return isinstance(value, str | bytes | os.PathLike)


def _address(address: Any) -> str:
    return ":".join(map(str, address[:2])) if isinstance(address, tuple) else str(address)
