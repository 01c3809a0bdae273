"""What the processes of the demo report, and who is told of it while they run."""

from __future__ import annotations

from typing import Protocol

import msgspec

from oncely.model.errors import OncelyError
from oncely.surface.cli.demo.publisher import Answer
from oncely.surface.cli.demo.worker import Charge


class DemoFailed(OncelyError):
    """The demo did not come to its end, or its counts do not add up."""


class Record(msgspec.Struct):
    answers: list[Answer] = []
    publishers: list[str] = []
    publishers_killed: list[str] = []
    charges: list[Charge] = []
    workers: list[str] = []
    workers_killed: list[str] = []


class Standing(msgspec.Struct, frozen=True):
    """How far the demo is."""

    publishes: int
    jobs: int
    completed: int
    recovered: int
    publishers_killed: int
    workers_killed: int


class Watcher(Protocol):
    """Whoever shows what happens."""

    def told(self, line: str) -> None: ...

    def stood(self, now: Standing) -> None: ...
