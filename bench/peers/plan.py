"""The order of a run: measure by measure, the peers one after the other with ours in between."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from bench.peers.records import Step
from bench.peers.roster import (
    BESIDE_OURS,
    HTTP,
    LIMIT,
    LONG,
    ON_SQLITE,
    OURS,
    OURS_SQLITE,
    PEER_MEASURES,
    PEERS,
    System,
)

EVERY: Final = 4
"""Ours comes again after so many peers."""
# What a goal compares stands side by side.
BESIDE: Final = {
    "enqueue": ((LIMIT, "commit"), (OURS, "callers")),
    "drain": ((LIMIT, "statements"), (OURS, "steps")),
}
OWN: Final = (
    (LIMIT, "commit16"),
    (OURS, "transactions"),
    (OURS, "fleet"),
    ("fastapi", "publish"),
    (HTTP, "publish"),
    (HTTP, "bare"),
    (HTTP, "push"),
)
ONCE: Final = ((OURS, "idle_memory"), (OURS, "prefetched_memory"))


def plan(rounds: int, *, only: Collection[str] = (), long: bool = False) -> list[Step]:
    """The steps of a run. `only` keeps some systems, and ours where they need it for a ratio."""
    steps = [step for number in range(1, rounds + 1) for step in _round(number, only)]
    if long and _wanted(OURS, only):
        steps += [Step(1, measure, OURS) for measure in LONG]
    return steps


def _wanted(system: str, only: Collection[str]) -> bool:
    return not only or system in only


def _round(number: int, only: Collection[str]) -> Iterator[Step]:
    for measure in PEER_MEASURES:
        peers = [p for p in PEERS if measure in p.jobs and _wanted(p.name, only)]
        yield from _measure(number, measure, only, [p for p in peers if p.store != "sqlite"])
        files = [p for p in peers if p.store == "sqlite"]
        yield from (Step(number, measure, peer.name) for peer in files)
        if measure in ON_SQLITE.jobs and (files or _wanted(OURS_SQLITE, only)):
            yield Step(number, measure, OURS_SQLITE)
    for system, measure in OWN:
        if _wanted(system, only) or (measure == "publish" and "fastapi" in only):
            yield Step(number, measure, system)
    if number == 1 and _wanted(OURS, only):
        yield from (Step(number, measure, system) for system, measure in ONCE)


def _measure(
    number: int, measure: str, only: Collection[str], peers: Sequence[System]
) -> Iterator[Step]:
    if peers or _wanted(OURS, only):
        yield Step(number, measure, OURS)
    for system, own in BESIDE.get(measure, ()):
        if _wanted(system, only):
            yield Step(number, own, system)
    since = 0
    for peer in peers:
        yield Step(number, measure, peer.name)
        since += 1
        if peer.name in BESIDE_OURS or since == EVERY:
            yield Step(number, measure, OURS)
            since = 0
