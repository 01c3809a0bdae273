"""The recipes of `examples/originals`, in a worker that ends or pauses at the boundary it is told.

The boundaries are those of the recipe: each statement of its database, each command of its Redis,
each call of the service, before and after it.
"""

import asyncio
import importlib
import json
import logging
import os
import signal
import sqlite3
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from redis import Redis

from oncely import Context, Oncely, Retry

ENDED = 9
AT_ONCE = Retry(base=0, max_attempts=5)
ORIGINALS = Path(__file__).parents[2] / "examples" / "originals"
Verdict = Literal["ok", "unrecorded", "lost", "doubled", "none"]
COLUMNS: Final = ("mark", "effect", "503", "timeout", ">24h", "zombie")


@dataclass(frozen=True)
class Recipe:
    """What becomes of it, by column; and which boundary is its effect."""

    payload: Any
    truth: tuple[Verdict, ...]
    effect: str = "call"
    pause: str = "before call"


RECIPES: Final = {
    "look_then_send": Recipe(
        "ann@example.org", ("ok", "doubled", "ok", "doubled", "doubled", "doubled")
    ),
    "key_to_the_service": Recipe("9482", ("ok", "ok", "ok", "ok", "doubled", "ok")),
    "lock_that_expires": Recipe(
        "2026-10", ("lost", "unrecorded", "ok", "doubled", "doubled", "doubled")
    ),
    "fence_row": Recipe("ann", ("lost", "unrecorded", "ok", "doubled", "lost", "ok")),
    "completion_row": Recipe("mail ann", ("lost", "ok", "lost", "ok", "lost", "ok")),
    "row_then_charge": Recipe("9482", ("lost", "ok", "lost", "ok", "lost", "ok")),
    "mark_then_send": Recipe("ann", ("lost", "ok", "lost", "ok", "doubled", "ok")),
    "run_row": Recipe("acme", ("ok", "doubled", "ok", "doubled", "doubled", "doubled")),
    "change_where_old": Recipe(
        "t1", ("ok", "ok", "none", "none", "ok", "ok"), effect="update", pause="before update"
    ),
    "ledger_row": Recipe(
        "ann", ("ok", "ok", "none", "none", "ok", "ok"), effect="commit", pause="before begin"
    ),
    "change_then_tell": Recipe("t1", ("lost", "ok", "lost", "ok", "lost", "ok")),
    "put_by_id": Recipe("7", ("ok", "ok", "ok", "ok", "ok", "ok")),
}
"""Beside these there is `key_while_active`, which breaks in front of the queue."""


def load(name: str) -> Any:
    if str(ORIGINALS) not in sys.path:
        sys.path.insert(0, str(ORIGINALS))
    return importlib.import_module(name)


def make_places(database: str, service: str, redis: str) -> Any:
    return load("places").Places(database, service, redis)


def make_app(name: str, url: str, places: Any) -> Oncely:
    app = Oncely(url)
    handler = load(name).handler

    @app.job("original", retry=AT_ONCE)
    def original(ctx: Context, payload: Any) -> Any:
        return handler(ctx, payload, places)

    return app


class Boundaries:
    """Named as they come by. At `end_at` the process is over, at `pause_at` it is stopped
    until what it told is taken away."""

    def __init__(self, end_at: int | None, pause_at: int | None, told: Path) -> None:
        self.names: list[str] = []
        self._end_at = end_at
        self._pause_at = pause_at
        self._told = told

    def pass_by(self, name: str) -> None:
        if self._end_at == len(self.names):
            os._exit(ENDED)
        if self._pause_at == len(self.names):
            self._told.touch()
            while self._told.exists():
                os.kill(os.getpid(), signal.SIGSTOP)
                time.sleep(0.01)
        self.names.append(name)

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **options: Any) -> Any:
            self.pass_by(f"before {name}")
            value = call(*args, **options)
            self.pass_by(f"after {name}")
            return value

        return watched


def perform(
    name: str,
    url: str,
    places: tuple[str, str, str],
    end_at: int | None,
    pause_at: int | None,
    told: Path,
) -> None:
    """Run in a process of its own: all that is due, up to the boundary."""
    logging.disable(logging.CRITICAL)
    here = Boundaries(end_at, pause_at, told)
    app = make_app(name, url, make_places(*places))
    _watch(here, load("places"), places[0])
    asyncio.run(app.worker(concurrency=1).drain())
    told.write_text(json.dumps(here.names))
    os._exit(0)


def _watch(here: Boundaries, places: Any, database: str) -> None:
    """Around what the recipe uses, in this process: what it does stays as it is."""

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            run = here.around(sql.split()[0], super().execute)
            cursor: sqlite3.Cursor = run(sql, *parameters)
            return cursor

    connect: Any = sqlite3.connect

    def connect_and_watch(path: Any, **options: Any) -> Any:
        factory = {"factory": Watched} if str(path) == database else {}
        return connect(path, **options, **factory)

    sqlite3.connect = connect_and_watch  # type: ignore[assignment]
    urllib.request.urlopen = here.around("call", urllib.request.urlopen)
    for store in (Redis, places.Rows):
        for command in ("set", "delete"):
            setattr(store, command, here.around(command, getattr(store, command)))


def receive_and_end(url: str, event: dict[str, str]) -> None:
    """An endpoint that ends when the event is in, before it has answered."""
    load("key_while_active").receive(Oncely(url), event)
    os._exit(ENDED)


def as_tuple(places: Any) -> tuple[str, str, str]:
    database, service, redis = astuple(places)
    return database, service, redis
