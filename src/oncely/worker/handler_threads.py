"""The threads in which `def` handlers run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class HandlerThreads(Executor):
    """As many as are busy at once, each used again. They are daemons: a handler that never returns
    must not keep its process from ending."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads = 0
        self._idle = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._threads += 1
                name = f"oncely-handler_{self._threads}"
                Thread(target=self._run, name=name, daemon=True).start()
        self._calls.put((future, lambda: fn(*args, **kwargs)))
        return future

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            self._answer(*call)
            del call  # what it holds must not live until the next one comes

    def _answer(self, future: Future[Any], call: Callable[[], Any]) -> None:
        result, error = None, None
        if future.set_running_or_notify_cancel():
            try:
                result = call()
            except BaseException as raised:
                error = raised
        with self._lock:
            self._idle += 1
        if error is not None:
            future.set_exception(error)
        elif not future.cancelled():
            future.set_result(result)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Nobody is waited for."""
        with self._lock:
            for _ in range(self._threads):
                self._calls.put(None)
