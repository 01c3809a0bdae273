"""An event loop whose clock a test moves: what would take minutes is due at once, and nothing falls
due because the machine is busy."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class MovedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._ahead = 0.0
        super().__init__()

    def time(self) -> float:
        return super().time() + self._ahead

    def move(self, seconds: float) -> None:
        """From any thread: timers up to so far ahead are due."""
        self.call_soon_threadsafe(self._move, seconds)

    def _move(self, seconds: float) -> None:
        self._ahead += seconds


def run_on(loop: MovedLoop, work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work)
