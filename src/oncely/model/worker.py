"""Workers as the store knows them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

ALIVE_SECONDS: Final = 30.0
"""A worker says every few seconds that it is there. One that was silent for longer than this is
taken for dead, until it is heard of again."""
GONE_SECONDS: Final = 3_600.0
"""So long one that died is still told of."""


class Worker(msgspec.Struct, frozen=True):
    """A worker that was heard of in the last hour. What it does not say itself (it may be in any
    language) is None; without `queues` it takes from all."""

    name: str
    host: str | None
    pid: int | None
    queues: list[str] | None
    concurrency: int | None
    version: str | None
    pushes: bool
    """Whether it is a server's, and sends the jobs of a queue to their target."""
    started_at: datetime
    seen_at: datetime
    running: int
    """So many executions it was at when it was last heard of."""
    alive: bool


class About(msgspec.Struct, frozen=True):
    """What a worker says of itself."""

    name: str
    host: str | None = None
    pid: int | None = None
    queues: list[str] | None = None
    concurrency: int | None = None
    version: str | None = None
    pushes: bool = False
