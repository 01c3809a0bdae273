"""What a delivery under proof tells of itself, and where its fault strikes.

Everything here runs in the forked child. Each boundary is told to the parent before it is passed,
so that the story is whole however the child ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal, NoReturn

import msgspec

CRASHED: Final = 86
REFUSED: Final = 87
IMPORTS: Final = 88
Channel = Literal[
    "store", "sqlite", "postgres", "mysql", "http", "mail", "redis", "file", "process", "line"
]  # fmt: skip
Action = Literal[
    "crash", "pause", "raise", "refuse", "lose", "timeout", "drop", "outage", "throttle", "fail",
    "tear", "record",
]  # fmt: skip
_ONLY_AT: Final[dict[Action, tuple[Channel, ...]]] = {
    "refuse": ("http", "mail"),
    "lose": ("http", "mail", "sqlite", "postgres", "mysql"),
    "timeout": ("http", "mail"),
    "drop": ("http",),
    "outage": ("http",),
    "throttle": ("http",),
    "fail": ("sqlite", "postgres", "mysql", "redis"),
    "tear": ("file",),
}
"""The channels that can make a fault; at others it does not strike."""
_HERE: Final = str(Path(__file__).parents[1]) + os.sep
_PROVE: Final = str(Path(_HERE) / "prove") + os.sep
_STORE: Final = str(Path(_HERE) / "store") + os.sep
_STANDARD: Final = tuple(
    path + os.sep for name in ("stdlib", "platstdlib") if (path := sysconfig.get_path(name))
)
_NOT_THE_USERS: Final = tuple(
    path + os.sep
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)


class Simulated(Exception):
    """What a crash is often taken for: an exception, which `except` and `finally` see."""


class Act(msgspec.Struct, frozen=True):
    """What happens at the boundary with the number `at`. A delivery that is to `record` stands
    still at each one."""

    action: Action
    at: int


class Boundary(msgspec.Struct, frozen=True):
    """A point that a process can end at: right before something that others can see."""

    number: int
    channel: Channel
    name: str
    where: str | None = None
    holds: bool = False
    """Whether a transaction was open that others would wait for."""
    judged: bool = True
    """Whether the other side is part of the world."""
    repeatable: bool = False
    """Whether it only reads."""
    inside: bool = False
    """Whether what comes next is undone by a crash: a statement in a transaction."""


class Hosts(msgspec.Struct, frozen=True):
    """Who may be called: whoever is on this machine, or is allowed. The world's own are judged."""

    judged: frozenset[str]
    allowed: frozenset[str]
    accepted: frozenset[str] = frozenset()
    """Programs and addresses (`git`, `127.0.0.1:8125`) that may do what cannot be seen."""

    def may_be_called(self, host: str) -> bool:
        on_this_machine = host in ("localhost", "::1") or host.startswith("127.")
        return on_this_machine or host in self.allowed


class Note(msgspec.Struct, frozen=True):
    """Told beside the boundaries: what happened to one, or what could not be seen."""

    what: Literal[
        "unobserved",
        "written",
        "given",
        "struck",
        "refused",
        "process",
        "answer",
        "end",
        "imports",
        "clock",
        "ran",
        "debugger",
        "concurrent",
    ]
    text: str
    more: list[str] = []


Message = Boundary | Note
known: ContextVar[bool] = ContextVar("oncely_prove_known", default=False)
"""Whether a library that is watched is at work, so that what it opens is no surprise."""


@contextmanager
def knowing() -> Iterator[None]:
    token = known.set(True)
    try:
        yield
    finally:
        known.reset(token)


class Watch:
    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self._lock = threading.RLock()
        self._count = 0
        self._inside = threading.local()
        self._is_undone = False
        """Whether a crash undoes what comes after the last boundary."""
        self._handler: tuple[int, Any] | None = None
        """The thread and the task that passed by a boundary that is not the store's."""
        self._told: set[tuple[str, str]] = set()
        self.open_transactions: list[Callable[[], bool]] = []
        self.before_end: list[Callable[[], None]] = []
        """Called before the process ends."""
        self.standing_still: Callable[[], AbstractContextManager[Any]] = nullcontext
        """No other thread is in the middle of a transaction of the store meanwhile."""

    def begin(self, line: int, act: Act | None) -> None:
        """In the process of the delivery, which tells on `line`."""
        self._line = line
        self._process = os.getpid()
        # What the handler forks tells too, and must not wait for a thread that it has not got.
        os.register_at_fork(after_in_child=self._lock._at_fork_reinit)  # type: ignore[attr-defined]
        self._act = act

    def pass_by(
        self,
        channel: Channel,
        name: str,
        *,
        judged: bool = True,
        repeatable: bool = False,
        inside: bool = False,
    ) -> Action | None:
        """Before something happens. What comes back is a fault for the caller to make."""
        if getattr(self._inside, "yes", False):
            return None
        if os.getpid() != self._process:
            return None  # of a process that the handler has forked
        self._inside.yes = True
        try:
            with self._lock:
                return self._pass_by(channel, name, judged, repeatable, inside)
        finally:
            self._inside.yes = False

    def _pass_by(
        self, channel: Channel, name: str, judged: bool, repeatable: bool, inside: bool
    ) -> Action | None:
        number = self._count
        self._count += 1
        self.tell(
            Boundary(
                number,
                channel,
                name,
                where=users_line(sys._getframe(2)),
                holds=any(is_open() for is_open in self.open_transactions),
                judged=judged,
                repeatable=repeatable,
                inside=inside,
            )
        )
        act = self._act
        if act is not None and act.action == "record":
            self._record(channel, inside=inside)
            return None
        if act is None or act.at != number or channel not in _ONLY_AT.get(act.action, (channel,)):
            return None
        self.tell(Note("struck", name))
        match act.action:
            case "crash":
                self.crash()
            case "pause":
                self._stand_still()
            case "raise":
                if channel == "sqlite":
                    self.refuse("no exception can be raised out of a statement of SQLite")
                raise Simulated("a crash, as an exception")
            case _:
                return act.action
        return None

    def _stand_still(self) -> None:
        with self.standing_still():
            # To this thread: it must not go on while the others are being stopped.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def _record(self, channel: Channel, *, inside: bool) -> None:
        if channel != "store":
            handler = threading.get_ident(), _current_task()
            if self._handler not in (None, handler):
                self.note("concurrent", "the handler does several things at once")
            self._handler = handler
        if not self._is_undone:
            self._stand_still()
        self._is_undone = inside

    def crash(self) -> NoReturn:
        self.end()
        os._exit(CRASHED)

    def may_strike(self, *actions: Action) -> bool:
        """Whether the fault of this delivery is one of these."""
        return self._act is not None and self._act.action in actions

    def end(self) -> None:
        for call in self.before_end:
            call()

    def tell(self, message: Message) -> None:
        data = msgspec.json.encode((type(message).__name__, message)) + b"\n"
        with self._lock:
            while data:
                data = data[os.write(self._line, data) :]

    def note(self, what: Any, text: str, more: list[str] | None = None) -> None:
        """Once, however often it happens."""
        with self._lock:
            if (what, text) in self._told:
                return
            self._told.add((what, text))
            self.tell(Note(what, text, more or []))

    @property
    def has_started_processes(self) -> bool:
        with self._lock:
            return any(what == "process" for what, _ in self._told)

    def tell_answer(self, status: int) -> None:
        self.tell(Note("answer", str(status)))

    def refuse(self, why: str) -> NoReturn:
        """The proof would not be one, or would touch what is not its own."""
        self.tell(Note("refused", why))
        os._exit(REFUSED)


def _current_task() -> Any:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return None


def users_line(frame: FrameType | None) -> str | None:
    """The innermost line that is neither ours nor a library's."""
    while frame is not None:
        if is_the_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def is_of_the_store(frame: FrameType | None) -> bool:
    """Whether it is our store that is at work, and not a function that was given to it."""
    while frame is not None and frame.f_code.co_filename.startswith((*_STANDARD, _PROVE, "<")):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_STORE)


def is_the_users(file: str) -> bool:
    return not file.startswith((_HERE, "<", *_NOT_THE_USERS))


def read_message(line: bytes) -> Message:
    kind, body = msgspec.json.decode(line, type=tuple[str, msgspec.Raw])
    if kind == "Boundary":
        return msgspec.json.decode(body, type=Boundary)
    return msgspec.json.decode(body, type=Note)
