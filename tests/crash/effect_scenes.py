"""Handlers with effects, and a worker that ends itself at the boundary it is told.

The boundaries are found by running: each statement that belongs to the delivery of a job, before
and after it; each commit; each call of the other side, before and after it.
"""

import asyncio
import json
import logging
import os
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg

from oncely import Context, Oncely, Retry
from oncely.store.caller import Caller
from oncely.store.plan import Statement, Together
from tests.crash.other_side import look, post
from tests.waiting import PATIENCE_SECONDS

ENDED = 9
AT_ONCE = Retry(base=0, max_attempts=5)
_OF_DELIVERY = ("claim", "effect", "settle", "go_on")


class Boundaries:
    """Named as they come by. At the one with the number `end_at` the process is over."""

    def __init__(self, end_at: int | None) -> None:
        self.names: list[str] = []
        self._end_at = end_at

    def pass_by(self, name: str) -> None:
        if self._end_at == len(self.names):
            os._exit(ENDED)
        self.names.append(name)


_here = Boundaries(None)
_in_run = threading.local()
"""Whether the run of this thread has asked for something of a delivery. Others look after leases
meanwhile, when they see fit."""


def write(tx: Any, name: str) -> Any:
    """A row of the user's own; the table has no key that would hide a second one."""
    _here.pass_by("before effect")
    return tx.execute(f"insert into written values ('{name}')")


def send(port: int, name: str, key: str | None = None) -> Any:
    _here.pass_by("before effect")
    answer = post(port, name, key)
    _here.pass_by("after effect")
    return answer


async def asend(port: int, name: str, key: str | None = None) -> Any:
    return await asyncio.to_thread(send, port, name, key)


@contextmanager
def own_connection(url: str) -> Iterator[Any]:
    """As a user would open one, next to ours."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, timeout=PATIENCE_SECONDS)) as connection, connection:
            yield connection
    else:
        with psycopg.connect(url) as server:
            yield server
    _here.pass_by("after commit of the caller")


@asynccontextmanager
async def own_async_connection(url: str) -> AsyncIterator[Any]:
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        async with aiosqlite.connect(path, timeout=PATIENCE_SECONDS) as connection:
            yield connection
            await connection.commit()
    else:
        async with await psycopg.AsyncConnection.connect(url) as server:
            yield server
    _here.pass_by("after commit of the caller")


def make_app(url: str, port: int) -> Oncely:
    app = Oncely(url)

    @app.job("transaction_async", retry=AT_ONCE)
    async def transaction_async(ctx: Context, name: str) -> None:
        async with ctx.transaction() as tx:
            await write(tx, name)
            _here.pass_by("after effect")

    @app.job("transaction_def", retry=AT_ONCE)
    def transaction_def(ctx: Context, name: str) -> None:
        with ctx.transaction() as tx:
            write(tx, name)
            _here.pass_by("after effect")

    @app.job("complete_async", retry=AT_ONCE)
    async def complete_async(ctx: Context, name: str) -> None:
        async with own_async_connection(url) as tx:
            await write(tx, name)
            _here.pass_by("after effect")
            await ctx.complete("written", tx=tx)

    @app.job("complete_def", retry=AT_ONCE)
    def complete_def(ctx: Context, name: str) -> None:
        with own_connection(url) as tx:
            write(tx, name)
            _here.pass_by("after effect")
            ctx.complete("written", tx=tx)

    @app.job("step_async", retry=AT_ONCE)
    async def step_async(ctx: Context, name: str) -> Any:
        return await ctx.step("send", asend, port, name, ctx.key("send"), key_ttl=3600)

    @app.job("step_def", retry=AT_ONCE)
    def step_def(ctx: Context, name: str) -> Any:
        return ctx.step("send", send, port, name, ctx.key("send"))

    @app.job("fence_async", retry=AT_ONCE)
    async def fence_async(ctx: Context, name: str) -> Any:
        return await ctx.fence("send", send, port, name)

    @app.job("fence_def", retry=AT_ONCE)
    def fence_def(ctx: Context, name: str) -> Any:
        return ctx.fence("send", send, port, name)

    @app.job("verified", retry=AT_ONCE)
    async def verified(ctx: Context, name: str) -> Any:
        return await ctx.fence("send", send, port, name, verify=look)

    @app.job("cleared", retry=AT_ONCE)
    def cleared(ctx: Context, name: str) -> Any:
        """The first attempt finds nobody there."""
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))  # taken, but nobody listens there
            reached = nobody.getsockname()[1] if ctx.attempt == 1 else port
            return ctx.fence("send", lambda name: send(reached, name), name)

    return app


def deliver(url: str, port: int, queue: str, end_at: int | None, told: Path) -> None:
    """Run in a process of its own: all that is due in the queue, up to the boundary."""
    logging.disable(logging.CRITICAL)
    global _here
    _here = Boundaries(end_at)
    app = make_app(url, port)
    _watch(app)
    asyncio.run(app.worker(queues=[queue], concurrency=1).drain())
    told.write_text(json.dumps(_here.names))
    os._exit(0)


def _watch(app: Oncely) -> None:
    """Around the real engine, in this process: what it does stays as it is."""
    engine: Any = app._engine
    ask, run, transactions = engine._ask, engine.run, engine.transactions
    engine._ask = lambda connection, statement: _around(
        statement, lambda: ask(connection, statement)
    )

    def run_and_tell(make: Any, access: Any) -> Any:
        _in_run.counts = False
        value = run(make, access)
        if _in_run.counts:
            _here.pass_by("after commit")
        return value

    engine.run = run_and_tell
    caller_ask, caller_aask = Caller.ask, Caller.aask

    def ask_of_caller(self: Caller, library: Any, statement: Statement) -> Any:
        return _around(statement, lambda: caller_ask(self, library, statement))

    async def aask_of_caller(self: Caller, library: Any, statement: Statement) -> Any:
        counts = statement.name.startswith(_OF_DELIVERY)
        if counts:
            _here.pass_by(f"before {statement.name} of the caller")
        rows = await caller_aask(self, library, statement)
        if counts:
            _here.pass_by(f"after {statement.name} of the caller")
        return rows

    Caller.ask, Caller.aask = ask_of_caller, aask_of_caller  # type: ignore[method-assign]
    sync, on_loop = transactions.sync, transactions.on_loop

    @contextmanager
    def sync_and_tell() -> Iterator[Any]:
        with sync() as tx:
            yield tx
        _here.pass_by("after commit of the handler")

    @asynccontextmanager
    async def on_loop_and_tell() -> AsyncIterator[Any]:
        async with on_loop() as tx:
            yield tx
        _here.pass_by("after commit of the handler")

    transactions.sync, transactions.on_loop = sync_and_tell, on_loop_and_tell


def _around(statement: Statement, ask: Callable[[], Any]) -> Any:
    names = [statement.name]
    if isinstance(statement, Together):
        names = [part.name for part in statement.parts]
    if not any(name.startswith(_OF_DELIVERY) for name in names):
        return ask()
    _in_run.counts = True
    _here.pass_by(f"before {'+'.join(names)}")
    rows = ask()
    _here.pass_by(f"after {'+'.join(names)}")
    return rows
