"""Processes for the tests: to be released at once, or to be killed; and threads.

The processes are forked from a server process that has only imported things, so one starts in about
20 milliseconds and shares no connection, thread or lock with the tests.
"""

import multiprocessing
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Barrier
from threading import Thread
from typing import Any, Self, TypeVar

from tests.waiting import PATIENCE_SECONDS

T = TypeVar("T")

CONTEXT = multiprocessing.get_context("forkserver")
# There is one such server process for all of a run, so what anybody needs of it is here.
CONTEXT.set_forkserver_preload(
    [
        "pytest",
        "psycopg",
        "uvloop",
        "oncely",
        "oncely.store.postgres.engine",
        "oncely.store.sqlite.engine",
        "oncely.store.ledger.on_alchemy",
        "oncely.store.ledger.on_redis",
        "oncely.store.remote.server",
        "pymysql",
        "tests.crash.effect_scenes",
        "tests.crash.publishers",
        "tests.crash.example_scenes",
        "tests.crash.ledger_calls",
        "tests.crash.ledger_holders",
        "tests.crash.original_scenes",
        "tests.crash.remote_workers",
        "tests.crash.tickers",
        "tests.crash.workers",
        "tests.crash.zombies",
        "tests.engine.racers",
    ]
)

Gate = Callable[[], None]


def start(function: Callable[..., None], *args: Any) -> ForkServerProcess:
    """A process that runs a function of a module, and ends when the tests do."""
    process = CONTEXT.Process(target=function, args=args, daemon=True)
    process.start()
    return process


def thread(function: Callable[..., T], *args: Any) -> "Future[T]":
    """A thread for a call that may hang: then the test fails, but the run goes on and ends."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future


class Fleet:
    """Processes that run the same function at the same time, again and again."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = CONTEXT.Barrier(size)
        self._ends: list[Connection[Any, Any]] = []
        self._processes: list[ForkServerProcess] = []
        for _ in range(size):
            ours, theirs = CONTEXT.Pipe()
            self._ends.append(ours)
            self._processes.append(start(_serve, theirs, self._barrier))
            theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(5)
            process.kill()

    def run(self, function: Callable[..., Any], each: list[tuple[Any, ...]]) -> list[Any]:
        """Process n runs `function(gate, *each[n])`; a call of `gate()` waits for all others.

        What they return, in order. All must call the gate equally often.
        """
        assert len(each) == self.size
        self._barrier.reset()
        for end, args in zip(self._ends, each, strict=True):
            end.send((function, args))
        answers = []
        for number, end in enumerate(self._ends):
            if not end.poll(PATIENCE_SECONDS):
                raise AssertionError(f"process {number} is not done after {PATIENCE_SECONDS:.0f} s")
            answers.append(end.recv())
        failed = [text for done, text in answers if not done]
        # The first that fails breaks the barrier for the others, so theirs says nothing.
        failed = [text for text in failed if "BrokenBarrierError" not in text] or failed
        assert not failed, f"{len(failed)} of {self.size} processes failed:\n" + "\n".join(failed)
        return [value for _, value in answers]


def _serve(end: "Connection[Any, Any]", barrier: Barrier) -> None:
    while True:
        try:
            function, args = end.recv()
        except EOFError:
            return
        try:
            end.send((True, function(lambda: barrier.wait(PATIENCE_SECONDS), *args)))
        except Exception:
            barrier.abort()
            end.send((False, traceback.format_exc()))
