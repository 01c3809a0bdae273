"""How Oncely's workers are set up in the benchmark: the one place for it."""

from __future__ import annotations

from typing import Any, Final

DRAIN: Final[dict[str, Any]] = {"concurrency": 500}
LATENCY: Final[dict[str, Any]] = {"concurrency": 16}
TRANSACTIONS: Final[dict[str, Any]] = {"concurrency": 16}
FLEET: Final = 50
FLEET_PROCESSES: Final = 2
FLEET_WORKER: Final[dict[str, Any]] = {"concurrency": 4}
FLEET_JOB_SECONDS: Final = 0.05
PREFETCHED: Final = 10_000
CALLERS: Final = 64
SETTINGS: Final = (
    f"`concurrency={DRAIN['concurrency']}` for the drain, {LATENCY['concurrency']} for the "
    f"latency; uvloop where it is installed; history, fence and durability as they always are"
)
