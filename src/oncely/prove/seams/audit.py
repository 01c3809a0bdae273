"""What no library has told: seen only as an event of the interpreter. It is a boundary where it can
be one, and what it did cannot be compared."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

from oncely.prove.copies import Copies
from oncely.prove.open_files import is_writable, tell_mapping
from oncely.prove.seams.drivers import driver_in
from oncely.prove.seams.files import WRITES
from oncely.prove.seams.paths import is_of_a_proof, of_the_user, path_of, plain_file
from oncely.prove.watch import Watch, is_of_the_store, known, users_line

_PROCESSES: Final = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec")
_FORKS: Final = ("os.fork", "os.forkpty")
_CONNECTS: Final = ("socket.connect", "socket.sendto", "socket.sendmsg")
_CHANGES: Final[dict[str, tuple[tuple[int, int | None], ...]]] = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.setxattr": ((0, None),),
    "os.removexattr": ((0, None),),
    "shutil.rmtree": ((0, 1),),
}
"""Where the arguments of an event have the paths that it changes, and the folders that these are
relative to."""


def install(watch: Watch, copies: Copies) -> None:
    def hook(event: str, args: Any) -> None:
        if known.get():
            return
        if event in _PROCESSES:
            _tell_process(watch, event, args)
        elif event in _FORKS:
            watch.note("process", event)
            watch.note(
                "unobserved", "a process that the handler forks: what it does cannot be seen"
            )
        elif event in _CONNECTS:
            _tell_connect(watch, args)
        elif event == "open":
            _tell_open(watch, copies, args)
        elif event in _CHANGES:
            _tell_change(watch, copies, event, args)
        elif event == "mmap.__new__":
            _tell_mapping(watch, args)

    sys.addaudithook(hook)


def _tell_connect(watch: Watch, args: Any) -> None:
    address = args[1] if len(args) > 1 else None
    if address is None or _of_http():
        return
    driver = driver_in(sys._getframe(2))
    if driver is not None:
        watch.refuse(driver)
    if users_line(sys._getframe(2)) is None:
        return
    if isinstance(address, tuple) and not watch.hosts.may_be_called(str(address[0])):
        watch.refuse(
            f"the handler connects to {_address(address)}, which is not on this "
            "machine: what it does there would be done for real, many times. Let it "
            "connect to a stand-in, or name the host in allow_hosts=[…]"
        )
    if _address(address) not in watch.hosts.accepted:
        watch.note(
            "unobserved",
            f"a connection to {_address(address)} through no library that is known here; if that "
            f"does no harm: accept=[{_address(address)!r}]",
        )
    watch.pass_by("process", f"connect to {_address(address)}")


def _of_http() -> bool:
    """Whether it is http.client, or what is built on it, that connects: its requests are told."""
    frame = sys._getframe(3)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__") == "http.client":
            return True
        frame = frame.f_back
    return False


def _tell_process(watch: Watch, event: str, args: Any) -> None:
    """`os.system` is given a line for the shell, the others a program and its arguments."""
    if event == "os.system":
        told = os.fsdecode(args[0])
        program = os.path.basename(told.split()[0]) if told.strip() else "sh"
    else:
        told = " ".join(os.fsdecode(each) for each in (args[1] or [args[0]]))
        program = os.path.basename(os.fsdecode(args[0]))
    if program not in watch.hosts.accepted:
        watch.refuse(
            f"the handler runs {told:.80}: what that does would be done for real, many times, "
            f"and cannot be seen. If it does no harm: accept=[{program!r}]"
        )
    watch.note("process", told)
    watch.pass_by("process", f"run {told:.60}")


def _tell_open(watch: Watch, copies: Copies, args: Any) -> None:
    path, _, flags = args
    writes = isinstance(flags, int) and flags & WRITES
    if not writes or not isinstance(path, str | bytes) or is_of_a_proof(path):
        return
    if is_of_the_store(sys._getframe(2)):
        return
    copies.files.save_content(os.fsdecode(path))
    if of_the_user(path):
        watch.note("unobserved", f"the file {os.fsdecode(path)}: only that it was opened was seen")
        watch.pass_by("file", f"open {os.fsdecode(path)} to write")


def _tell_change(watch: Watch, copies: Copies, event: str, args: Any) -> None:
    """Saved in any case, also in a thread that has no line of the user's."""
    if is_of_the_store(sys._getframe(2)):
        return
    paths = list(_changed(event, args))
    for path in paths:
        if event in ("os.rename", "shutil.rmtree"):
            copies.files.save_tree(path)
        else:
            copies.files.save_content(path)
    if paths and of_the_user(paths[0]):
        watch.pass_by("file", f"{event.partition('.')[2]} {' '.join(paths)}")


def _tell_mapping(watch: Watch, args: Any) -> None:
    number, _, access, _ = args
    path = plain_file(number) if access not in (mmap.ACCESS_READ, mmap.ACCESS_COPY) else None
    if path is not None and is_writable(number) and of_the_user(path):
        tell_mapping(watch, path)


def _changed(event: str, args: Any) -> Iterator[str]:
    for at, folder_at in _CHANGES[event]:
        path = path_of(args[at], -1 if folder_at is None else args[folder_at])
        if path is not None and not is_of_a_proof(path):
            yield path


def _address(address: Any) -> str:
    return ":".join(map(str, address[:2])) if isinstance(address, tuple) else str(address)
