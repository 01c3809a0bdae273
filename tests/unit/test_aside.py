"""Blocking work beside the event loop is done once, whatever happens to the threads."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from oncely.flow.aside import aside

NO_MACHINE_HAS_SO_MANY_BYTES = 1 << 46


def test_work_is_done_once_where_no_thread_can_be_started() -> None:
    """A pool takes the work into its line before it starts the thread for it."""
    done: list[str] = []
    go = threading.Event()

    def work() -> int:
        done.append("once")
        return len(done)

    with ThreadPoolExecutor(2) as threads:
        threads.submit(go.wait)
        before = threading.stack_size(NO_MACHINE_HAS_SO_MANY_BYTES)
        try:
            with pytest.raises(RuntimeError, match="start new thread"):
                threading.Thread(target=go.set).start()
            assert asyncio.run(aside(threads, work)) == 1
        finally:
            threading.stack_size(before)
            go.set()
    assert done == ["once"]


def test_work_is_done_here_where_the_threads_are_gone() -> None:
    threads = ThreadPoolExecutor(1)
    threads.shutdown()
    assert asyncio.run(aside(threads, threading.current_thread)) is threading.main_thread()
