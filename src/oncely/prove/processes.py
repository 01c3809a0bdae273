"""The processes of a proof: a delivery, and whatever it starts. All of them end with it, also those
that have left its group, and also if the prover itself was killed."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

_PROC: Final = Path("/proc")
_PR_SET_PDEATHSIG: Final = 1
HUNG_SECONDS: Final = 30.0
"""A process that tells nothing and uses no processor time for this long stands still."""
LOOK_SECONDS: Final = 0.05
"""A process that tells nothing is looked at this often."""
MARK: Final = "ONCELY_PROVE"
"""A variable of the environment: the folder of the proof that a process belongs to."""


def begin(alive: Path) -> None:
    """In the child: it and its descendants are known by a file that they hold open, those that run
    another program by their environment."""
    lead_group()
    os.environ[MARK] = str(alive.parent)
    os.open(alive, os.O_RDONLY)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def lead_group() -> None:
    """In the child: it has a group of its own, and on Linux it dies with its parent; elsewhere the
    next proof ends it."""
    with suppress(PermissionError):
        os.setpgid(0, 0)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def fork(work: Callable[[], NoReturn]) -> int:
    with warnings.catch_warnings():
        # Other threads may run here; the child touches nothing of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    return pid


def processor_time(process: int) -> list[bytes]:
    """What it has used so far, where the system says that."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[11:13]
    except OSError:
        return []


def await_while_moving(process: int, is_there: Callable[[float], bool]) -> bool:
    """Whether it came before the process stood still. `is_there` waits for it, for at most the
    seconds that it is given. A busy machine makes a process slow, which is not standing still."""
    used, moved_at = processor_time(process), time.monotonic()
    while not is_there(LOOK_SECONDS):
        now = time.monotonic()
        before, used = used, processor_time(process)
        if used != before:
            moved_at = now
        elif now - moved_at > HUNG_SECONDS:
            return False
    return True


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """A signal that would end this process at once ends the proof first, which puts everything
    back. Handlers that somebody has set stay."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    ours = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, end)
                ours.append(number)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def end_group(leader: int) -> None:
    """The delivery and what it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def end_all(folder: Path) -> None:
    """Whoever belongs to the proof in this folder, wherever it has gone."""
    for _ in range(3):  # one of them may be starting another
        found = list(_of_proof(folder))
        for process in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if not found:
            return


def _of_proof(folder: Path) -> Iterator[int]:
    mark = f"{MARK}={folder}".encode()
    alive = str(folder / "alive")
    for process in _PROC.glob("[0-9]*"):
        number = int(process.name)
        if number == os.getpid():
            continue
        with suppress(OSError):
            if process.stat().st_uid != os.geteuid():
                continue
            if mark in (process / "environ").read_bytes().split(b"\0") or any(
                os.readlink(file) == alive for file in (process / "fd").iterdir()
            ):
                yield number
