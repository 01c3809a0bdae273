"""Claims where jobs have groups or a queue has limits: fair between groups, and never too many.

Jobs of a group wait in a lane of their own, so those of a full group cost the others one step in
the index, however many they are. Who claims goes round the lanes, and goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from oncely.model.flow import UNLIMITED, Take, share
from oncely.store.claim import Claimed, claimed_rows
from oncely.store.limits import hold, spend
from oncely.store.plan import Plan, Statement, document

PLAIN: Final = ""
_FIRST: Final = "g:"
_LAST: Final = "h"
_FILE_LIMIT: Final = 1_000
_VISIT_LIMIT: Final = 1_000
_WINDOW: Final = 8
_WINDOW_LIMIT: Final = 256


class Claim(msgspec.Struct, frozen=True):
    """Who wants how many jobs of which queue, and for how long."""

    queue: str
    worker: str
    nonce: int
    lease_us: int
    limit: int


class Outlook(msgspec.Struct):
    """What a worker remembers of the queues between two looks at them. Nothing in it is relied
    upon: it only says where it is worth to claim, and how."""

    levels: dict[str, list[int]] = {}
    shared: set[str] = set()
    due: set[str] = set()
    cursors: dict[tuple[str, int], str] = {}
    wait_seconds: float | None = None
    """When something changes by time alone: a job becomes due, a rate allows another one."""
    unfinished: bool = False
    """There are more lanes than one claim goes through; the next one goes on."""

    def wait(self, seconds: float | None) -> None:
        if seconds is not None:
            self.wait_seconds = min(seconds, self.wait_seconds or seconds)


def survey(outlook: Outlook, queues: Sequence[str] | None, *, pushed: bool = False) -> Plan[None]:
    """Look at what waits, without touching it: in the queues whose jobs are `pushed`, or in the
    others. Whoever claims meanwhile sees the old or the new."""
    rows = yield Statement("survey")
    levels: dict[str, list[int]] = {}
    shared, due = set(), set()
    outlook.wait_seconds, outlook.unfinished = None, False
    for queue, priority, due_us, grouped, filed, limited, to_push in rows:
        if bool(to_push) != pushed or (queues is not None and queue not in queues):
            continue
        levels.setdefault(queue, []).append(priority)
        if grouped or limited:
            shared.add(queue)
        if filed or (due_us is not None and due_us <= 0):
            due.add(queue)
        elif due_us is not None:
            outlook.wait(due_us / 1_000_000)
    outlook.levels, outlook.shared, outlook.due = levels, shared, due


def claim_shared(outlook: Outlook, claim: Claim) -> Plan[list[Claimed]]:
    """Claim from a queue with groups or limits, the highest level first."""
    queue = claim.queue
    outlook.unfinished = False
    limit = (yield from hold("queue", [queue])).get(queue, UNLIMITED)
    room = limit.room(claim.limit)
    if not room:
        outlook.wait(limit.wait_seconds())
        return []
    found: list[Claimed] = []
    for priority in outlook.levels[queue]:
        if len(found) < room:
            part = msgspec.structs.replace(claim, limit=room - len(found))
            found += yield from _claim_level(outlook, part, priority)
    if found:
        yield from spend("queue", {queue: limit.taken(len(found))})
    return found


def _claim_level(outlook: Outlook, claim: Claim, priority: int) -> Plan[list[Claimed]]:
    yield Statement("file", {"queue": claim.queue, "priority": priority, "limit": _FILE_LIMIT})
    ring = _Ring(claim.queue, priority, outlook.cursors.get((claim.queue, priority), PLAIN))
    found: list[Claimed] = []
    size, visited = max(_WINDOW, claim.limit), 0
    while len(found) < claim.limit and visited < _VISIT_LIMIT:
        window = yield from ring.window(size)
        if not window:
            break
        visited += len(window)
        size = min(size * 4, max(size, _WINDOW_LIMIT))
        part = msgspec.structs.replace(claim, limit=claim.limit - len(found))
        got, last = yield from _claim_window(outlook, part, priority, window)
        found += got
        outlook.cursors[claim.queue, priority] = last
    else:
        outlook.unfinished = outlook.unfinished or not found
    return found


def _claim_window(
    outlook: Outlook, claim: Claim, priority: int, window: list[str]
) -> Plan[tuple[list[Claimed], str]]:
    """What was claimed, and the lane after which the next claim goes on."""
    groups = [lane.removeprefix(_FIRST) for lane in window if lane != PLAIN]
    held = (yield from hold("group", groups)) if groups else {}
    limits = {f"{_FIRST}{group}": limit for group, limit in held.items()}
    found: list[Claimed] = []
    hungry = window
    last = window[-1]
    used: set[str] = set()
    while hungry and len(found) < claim.limit:
        counts: dict[str, int] = {}
        quotas: dict[str, int] = {}
        for take in share(hungry, limits, claim.limit - len(found)):
            room = claim.limit - len(found)
            if not room:
                break
            quotas.update(dict.fromkeys(take.lanes, take.quota))
            jobs = yield from _take(claim, priority, take, room)
            found += jobs
            for job in jobs:
                lane = PLAIN if job.group_key is None else f"{_FIRST}{job.group_key}"
                counts[lane] = counts.get(lane, 0) + 1
        for lane, count in counts.items():
            if lane in limits:
                limits[lane] = limits[lane].taken(count)
                used.add(lane)
        hungry = [lane for lane in hungry if counts.get(lane, 0) == quotas.get(lane)]
    if len(found) == claim.limit:
        last = next(lane for lane in reversed(window) if lane in counts)
    for limit in limits.values():
        if not limit.room(1):
            outlook.wait(limit.wait_seconds())
    yield from spend("group", {lane.removeprefix(_FIRST): limits[lane] for lane in used})
    return found, last


def _take(claim: Claim, priority: int, take: Take, room: int) -> Plan[list[Claimed]]:
    (lane, *others) = take.lanes
    if take.limited:
        label: str | None = lane.removeprefix(_FIRST)
    else:
        label = None if lane == PLAIN and not others else ""
    rows = yield document(
        "claim_lanes",
        take.lanes,
        queue=claim.queue,
        priority=priority,
        group_key=label,
        quota=min(take.quota, room),
        limit=room,
        worker=claim.worker,
        nonce=claim.nonce,
        lease_us=claim.lease_us,
    )
    return claimed_rows(rows)


class _Ring:
    """The lanes of one level, from the one after the cursor around to the cursor itself."""

    def __init__(self, queue: str, priority: int, cursor: str) -> None:
        self._queue = queue
        self._priority = priority
        self._stretches = [(max(cursor, _FIRST), _LAST), (PLAIN, PLAIN)]
        if cursor > _FIRST:
            self._stretches.append((_FIRST, cursor))

    def window(self, size: int) -> Plan[list[str]]:
        lanes: list[str] = []
        while self._stretches and len(lanes) < size:
            after, until = self._stretches.pop(0)
            if until == PLAIN:
                lanes.append(PLAIN)
                continue
            asked = size - len(lanes)
            rows = yield Statement(
                "lanes",
                {
                    "queue": self._queue,
                    "priority": self._priority,
                    "after": after,
                    "until": until,
                    "limit": asked,
                },
            )
            lanes += [row[0] for row in rows]
            if len(rows) == asked:
                self._stretches.insert(0, (lanes[-1], until))
        return lanes
