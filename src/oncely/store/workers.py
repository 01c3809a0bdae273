"""Plans of the workers that are there: they say so themselves, every few seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from oncely.model.worker import ALIVE_SECONDS, GONE_SECONDS, About, Worker
from oncely.store import counters, traffic
from oncely.store.look import moment
from oncely.store.plan import Plan, Statement
from oncely.store.traffic import Sample

_ALIVE_US: Final = round(ALIVE_SECONDS * 1_000_000)
_GONE_US: Final = round(GONE_SECONDS * 1_000_000)


def report(name: str, me: About | None, running: int, samples: Sequence[Sample]) -> Plan[int]:
    """That it is there (or, without `me`, that it is not), and how long its executions took; it
    also folds what was counted. In one transaction. How many deltas were folded."""
    if me is None:
        yield from leave(name, samples)
    else:
        yield from seen(me, running)
        if samples:
            yield from traffic.add(samples)
    return (yield from counters.fold())


def seen(me: About, running: int) -> Plan[None]:
    told = msgspec.structs.asdict(me)
    told["queues"] = None if me.queues is None else msgspec.json.encode(me.queues).decode()
    yield Statement("worker_seen", {**told, "running": running})


def leave(name: str, samples: Sequence[Sample]) -> Plan[None]:
    """It stops, and is not taken for dead."""
    yield Statement("worker_left", {"name": name})
    if samples:
        yield from traffic.add(samples)


def workers() -> Plan[list[Worker]]:
    return [
        Worker(
            name=name,
            host=host,
            pid=pid,
            queues=None if queues is None else msgspec.json.decode(queues, type=list[str]),
            concurrency=concurrency,
            version=version,
            pushes=bool(pushes),
            started_at=moment(started),
            seen_at=moment(seen_at),
            running=running,
            alive=silent_us < _ALIVE_US,
        )
        for (
            name,
            host,
            pid,
            queues,
            concurrency,
            version,
            pushes,
            started,
            seen_at,
            running,
            silent_us,
        ) in (yield Statement("workers_list"))
        if silent_us < _GONE_US
    ]


def forget() -> Plan[None]:
    """Those that died long ago."""
    yield Statement("workers_forget", {"gone_us": _GONE_US})
