"""What the processes of the demo report, and who is told of it while they run."""

from __future__ import annotations

from typing import Protocol

import msgspec

from oncely.model.errors import OncelyError
from oncely.surface.cli.demo.gate import After
from oncely.surface.cli.demo.publisher import Answer


class DemoFailed(OncelyError):
    """The demo did not come to its end, or its counts do not add up."""


class Record(msgspec.Struct):
    answers: list[Answer] = []
    publishers: list[str] = []
    publishers_killed: list[str] = []
    executions: set[str] = set()
    """Those that workers told of."""
    workers: list[str] = []
    workers_killed: list[After] = []
    """Each by the place it was killed at."""
    resolved: list[str] = []
    """The jobs that somebody gave an answer for."""


class Standing(msgspec.Struct, frozen=True):
    """How far the demo is."""

    publishes: int
    jobs: int
    completed: int
    recovered: int
    held: int
    resolved: int
    publishers_killed: int
    workers_killed: int


class Watcher(Protocol):
    """Whoever shows what happens."""

    def told(self, line: str) -> None: ...

    def stood(self, now: Standing) -> None: ...
