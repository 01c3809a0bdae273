"""Claims where jobs have groups or a queue has limits: fair between groups, and never too many.

Jobs of a group wait in a lane of their own, so those of a full group cost the others one step in
the index, however many they are. Who claims goes round the lanes, and goes on where it stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from oncely.model.flow import UNLIMITED, Limit, share
from oncely.store.claim import Claimed, claimed_rows
from oncely.store.limits import Named, hold, spend
from oncely.store.plan import Plan, Statement, Together, document

PLAIN: Final = ""
_FIRST: Final = "g:"
_LAST: Final = "h"
_FILE_LIMIT: Final = 1_000
_VISIT_LIMIT: Final = 1_000
_WINDOW: Final = 8
_WINDOW_LIMIT: Final = 256


class Claim(msgspec.Struct, frozen=True):
    """Who wants how many jobs of which queue, and for how long. The first `begun` of them (all, if
    not said) begin at once. `apart`: each has a lease of its own. By the `nonce` its leases are
    found, so no other claim has it."""

    queue: str
    worker: str
    nonce: int
    lease_us: int
    limit: int
    begun: int | None = None
    apart: bool = False
    since: int = 0
    """Its leases up to this epoch are known."""

    def after(self, found: Sequence[Claimed]) -> Claim:
        """What is left of it."""
        return msgspec.structs.replace(
            self,
            limit=self.limit - len(found),
            begun=None if self.begun is None else max(0, self.begun - len(found)),
            since=max((job.fence.epoch for job in found), default=self.since),
        )


class Outlook(msgspec.Struct):
    """What a worker remembers of the queues between two looks at them. Nothing in it is relied
    upon: it only says where it is worth to claim, and how."""

    levels: dict[str, list[int]] = {}
    shared: set[str] = set()
    limited: set[str] = set()
    """The queues in which the last claim met a limit: two at once would be in each other's way."""
    tight: set[str] = set()
    """The queues in which it met one with little room."""
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
    outlook.unfinished = False
    limits = _Limits(claim.queue)
    found: list[Claimed] = []
    for priority in outlook.levels[claim.queue]:
        if len(found) < claim.limit and limits.of_queue.room(1):
            found += yield from _claim_level(outlook, limits, claim.after(found), priority)
    yield from limits.spend()
    limits.tell(outlook)
    return found


class _Limits:
    """The limits that a claim has met: that of the queue, and of the lanes of groups."""

    def __init__(self, queue: str) -> None:
        self._queue: Named = ("queue", queue)
        self._known: dict[Named, Limit] = {}
        self._taken: Counter[Named] = Counter()
        self._held: set[Named] = set()

    @property
    def of_queue(self) -> Limit:
        return self._known.get(self._queue, UNLIMITED)

    def of_lanes(self, lanes: Iterable[str]) -> dict[str, Limit]:
        return {lane: self._known[name] for lane in lanes if (name := _group(lane)) in self._known}

    def hold(self, lanes: Iterable[str]) -> Plan[None]:
        names = [self._queue, *(_group(lane) for lane in lanes if lane != PLAIN)]
        wanted = [name for name in names if name not in self._held]
        self._held.update(wanted)
        if wanted:
            self._known.update((yield from hold(wanted)))

    def take(self, lane: str, jobs: int) -> None:
        for name in (self._queue, _group(lane)):
            if name in self._known:
                self._known[name] = self._known[name].taken(jobs)
                self._taken[name] += jobs

    def spend(self) -> Plan[None]:
        yield from spend({name: self._known[name] for name in self._taken})

    def tell(self, outlook: Outlook) -> None:
        """When it is worth to look again, and how."""
        for limit in self._known.values():
            if not limit.room(1):
                outlook.wait(limit.wait_seconds())
        queue = self._queue[1]
        tight = any(limit.is_tight(self._taken[name]) for name, limit in self._known.items())
        for queues, is_so in ((outlook.limited, bool(self._known)), (outlook.tight, tight)):
            (queues.add if is_so else queues.discard)(queue)


def _claim_level(
    outlook: Outlook, limits: _Limits, claim: Claim, priority: int
) -> Plan[list[Claimed]]:
    ring = _Ring(claim.queue, priority, outlook.cursors.get((claim.queue, priority), PLAIN))
    found: list[Claimed] = []
    size, visited = max(_WINDOW, min(claim.limit, _WINDOW_LIMIT)), 0
    while len(found) < claim.limit and visited < _VISIT_LIMIT:
        window = yield from ring.window(size)
        if not window:
            break
        visited += len(window)
        size = min(size * 4, _WINDOW_LIMIT)
        yield from limits.hold(window)
        if not limits.of_queue.room(1):
            break
        got, last = yield from _claim_window(limits, claim.after(found), priority, window)
        found += got
        outlook.cursors[claim.queue, priority] = last
    else:
        outlook.unfinished = outlook.unfinished or not found
    return found


def _claim_window(
    limits: _Limits, claim: Claim, priority: int, window: list[str]
) -> Plan[tuple[list[Claimed], str]]:
    """What was claimed, and the lane after which the next claim goes on."""
    found: list[Claimed] = []
    hungry, last = window, window[-1]
    while room := limits.of_queue.room(claim.limit - len(found)):
        quotas = share(hungry, limits.of_lanes(hungry), room)
        if not quotas:
            break
        got = yield from _take(claim.after(found), limits, priority, quotas)
        counts = Counter(map(_lane, got))
        for lane, count in counts.items():
            limits.take(lane, count)
        found += got
        # Who has given all that it was asked for may have more.
        hungry = [lane for lane in hungry if counts[lane] >= quotas.get(lane, 0)]
        if counts:
            last = next(lane for lane in reversed(window) if lane in counts)
    is_enough = len(found) == claim.limit or not limits.of_queue.room(1)
    return found, last if is_enough else window[-1]


def _take(
    claim: Claim, limits: _Limits, priority: int, quotas: dict[str, int]
) -> Plan[list[Claimed]]:
    limited = limits.of_lanes(quotas)
    lanes = [
        {"lane": lane, "quota": quota, "is_limited": lane in limited}
        for lane, quota in quotas.items()
    ]
    has_groups = any(lane != PLAIN and lane not in limited for lane in quotas)
    rows = yield document(
        "claim_lanes",
        lanes,
        queue=claim.queue,
        priority=priority,
        rest="" if has_groups else None,
        quota=max(quotas.values()),
        most=len(lanes) + 1,
        since=claim.since,
        started=claim.limit if claim.begun is None else claim.begun,
        apart=claim.apart,
        worker=claim.worker,
        nonce=claim.nonce,
        lease_us=claim.lease_us,
    )
    return claimed_rows(rows)


def _lane(job: Claimed) -> str:
    return PLAIN if job.group_key is None else f"{_FIRST}{job.group_key}"


def _group(lane: str) -> Named:
    return ("group", lane.removeprefix(_FIRST))


class _Ring:
    """The lanes of one level, from the one after the cursor around to the cursor itself."""

    def __init__(self, queue: str, priority: int, cursor: str) -> None:
        self._level = {"queue": queue, "priority": priority}
        self._cursor = cursor
        self._first = max(cursor, _FIRST)
        self._is_plain_left = True
        self._second = _FIRST
        self._is_begun = self._is_over = False

    def window(self, size: int) -> Plan[list[str]]:
        if self._is_over:
            return []
        parts = [
            Statement(
                "ring",
                {
                    **self._level,
                    "first": self._first,
                    "plain": self._is_plain_left,
                    "second": self._second,
                    "until": self._cursor,
                    "limit": size,
                },
            )
        ]
        if not self._is_begun:
            parts.insert(0, Statement("file", {**self._level, "limit": _FILE_LIMIT}))
        *_, (rows,) = yield Together(parts=parts)
        lanes = [lane for (lane,) in rows]
        self._is_begun, self._is_over = True, len(lanes) < size
        if lanes and lanes[-1] > self._cursor:
            self._first = lanes[-1]
        elif lanes:
            self._first, self._is_plain_left = _LAST, False
            self._second = max(lanes[-1], _FIRST)
        return lanes
