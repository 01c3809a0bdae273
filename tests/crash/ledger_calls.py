"""Calls of a ledger in processes that are ended at any of their boundaries.

The world is a file that grows by a line with each effect, or a table in the ledger's own database.
"""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psycopg

from oncely import Ledger
from tests.crash.fleet import CONTEXT, Gate
from tests.waiting import PATIENCE_SECONDS

KEY: Final = "order:1"
SHORT_LEASE_SECONDS: Final = 0.2
"""Of a process that will be ended: the next one does not have to wait for long."""
CRASHED: Final = 9


class Points:
    """The boundaries that the process passes; at one of them it is ended."""

    def __init__(self, last: int | None) -> None:
        self._left = last

    def __call__(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                os._exit(CRASHED)


def found(world: Path) -> list[str]:
    return world.read_text().split() if world.exists() else []


def effect(world: Path) -> str:
    with world.open("a") as file:
        file.write("done\n")
    return "result"


def verify(world: Path) -> Callable[[], Any]:
    return lambda: "result" if found(world) else None


def call(ledger: Ledger, verb: str, world: Path, point: Callable[[], None]) -> Any:
    run = ledger._engine.run

    def bounded(make: Any, access: Any) -> Any:
        if access == "read":  # a look at the holder, while it waits
            return run(make, access)
        point()
        value = run(make, access)
        point()
        return value

    def do() -> str:
        point()
        value = effect(world)
        point()
        return value

    ledger._engine.run = bounded  # type: ignore[method-assign]
    try:
        if verb == "step":
            value = ledger.step(KEY, do)
        else:
            value = ledger.fence(KEY, do, verify=verify(world) if verb == "verified" else None)
    finally:
        del ledger._engine.run
    point()
    return value


def transact(url: str, ledger: Ledger, point: Callable[[], None]) -> Any:
    connection: Any
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=PATIENCE_SECONDS)
    else:
        connection = psycopg.connect(url)
    point()
    with ledger.transaction(KEY, tx=connection) as entry:
        point()
        if entry.fresh:
            connection.execute("insert into effects values ('done')")
            point()
            entry.set_result("result")
    point()
    connection.commit()
    point()
    connection.close()
    return entry.result


def open_ledger(url: str, lease_seconds: float | None = None) -> Ledger:
    return Ledger(url, lease_seconds=lease_seconds, wait_seconds=PATIENCE_SECONDS)


def _crashing(url: str, verb: str, world: Path, last: int) -> None:
    with open_ledger(url, SHORT_LEASE_SECONDS) as ledger:
        if verb == "transaction":
            transact(url, ledger, Points(last))
        else:
            call(ledger, verb, world, Points(last))


def crash(url: str, verb: str, world: Path, last: int) -> bool:
    """Whether the process was ended at that boundary; False: it has no such one."""
    process = CONTEXT.Process(target=_crashing, args=(url, verb, world, last))
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode in (0, 1, CRASHED), process.exitcode
    return process.exitcode == CRASHED


def call_at_once(gate: Gate, url: str, verb: str, world: Path) -> Any:
    gate()
    with open_ledger(url) as ledger:
        if verb == "transaction":
            return transact(url, ledger, Points(None))
        return call(ledger, verb, world, Points(None))
