"""Sleeps of a handler take no time where nothing else can happen meanwhile."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from oncely import Context
from oncely.prove import Table, prove
from tests.prove.test_honest import Bench, bench

__all__ = ["bench"]

NEVER_SECONDS = 100_000.0
"""More than a delivery may take."""


def by_sleep(bench: Bench) -> None:
    time.sleep(NEVER_SECONDS)


def by_event(bench: Bench) -> None:
    assert not threading.Event().wait(NEVER_SECONDS)


@pytest.mark.parametrize("sleep", [by_sleep, by_event])
def test_a_sleep_moves_the_clock(bench: Bench, sleep: Callable[[Bench], None]) -> None:
    def handler(ctx: Context) -> None:
        began, began_at = time.monotonic(), time.time()
        sleep(bench)
        assert time.monotonic() - began >= NEVER_SECONDS
        assert time.time() - began_at >= NEVER_SECONDS
        bench.write("update accounts set cents = 0")

    report = bench.prove(handler, schedule="crash@2")
    assert report.verdict == "sound", str(report)


def test_a_sleep_of_a_coroutine_moves_the_clock(bench: Bench) -> None:
    async def handler(ctx: Context) -> None:
        began_at = time.time()
        assert await asyncio.sleep(NEVER_SECONDS, "result") == "result"
        assert time.time() - began_at >= NEVER_SECONDS
        bench.write("update accounts set cents = 0")

    report = bench.prove(handler, schedule="crash@2")
    assert report.verdict == "sound", str(report)


def test_what_is_doubled_after_a_sleep_is_found(bench: Bench) -> None:
    def handler(ctx: Context) -> None:
        bench.write("insert into notes values ('begun')")
        time.sleep(NEVER_SECONDS)
        bench.write("update accounts set cents = 0")

    report = bench.prove(handler, schedule="crash@2")
    assert report.violations[0].verdict == "doubled"


async def with_timeout(bench: Bench) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await asyncio.sleep(NEVER_SECONDS)


async def with_task(bench: Bench) -> None:
    """A virtual second would pass before the other one has begun."""
    done: list[int] = []

    async def other() -> None:
        for _ in range(3):
            await asyncio.to_thread(time.sleep, 0.01)
        done.append(1)

    task = asyncio.create_task(other())
    while not done:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await task


@pytest.mark.parametrize("wait", [with_timeout, with_task])
def test_a_wait_of_a_coroutine_that_something_ends(
    bench: Bench, wait: Callable[[Bench], Awaitable[Any]]
) -> None:
    async def handler(ctx: Context) -> None:
        began_at = time.time()
        await wait(bench)
        assert time.time() - began_at < NEVER_SECONDS / 2
        bench.write("update accounts set cents = 0")

    report = bench.prove(handler, schedule="crash@1")
    assert report.verdict == "sound", str(report)


def for_thread(bench: Bench) -> None:
    """With a deadline that a virtual sleep would pass at once."""
    done = threading.Event()
    go = threading.Lock()
    go.acquire()

    def work() -> None:
        go.acquire()
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    go.release()
    end = time.time() + NEVER_SECONDS
    while not done.is_set() and time.time() < end:
        time.sleep(NEVER_SECONDS if not thread.is_alive() else 0.01)
    assert done.is_set()
    assert done.wait(NEVER_SECONDS)
    thread.join()


def for_process(bench: Bench) -> None:
    program = subprocess.Popen([sys.executable, "-c", ""])
    end = time.time() + NEVER_SECONDS
    while program.poll() is None and time.time() < end:
        time.sleep(0.05)
    assert time.time() < end
    assert program.returncode == 0


@pytest.mark.parametrize("wait", [for_thread, for_process])
def test_a_wait_for_another_is_real(bench: Bench, wait: Callable[[Bench], None]) -> None:
    def handler(ctx: Context) -> None:
        wait(bench)
        bench.write("update accounts set cents = 0")

    bench.app.job("handler")(handler)
    world = [Table(bench.url, "accounts")]
    program = sys.executable.rpartition("/")[2]
    report = prove(bench.app, "handler", world=world, accept=[program], schedule="crash@1")
    assert report.verdict == "sound", str(report)
