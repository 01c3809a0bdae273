"""Claims where jobs have groups or a queue has limits: fair between groups, and never too many.

Jobs of a group wait in a lane of their own, so those of a full group cost the others one step in
the index, however many they are. Who claims goes round the lanes, and goes on where it stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from oncely.model.flow import UNLIMITED, Limit, share
from oncely.store.claim import GROUPS, PLAIN, Claimed, claimed_rows
from oncely.store.limits import Named, hold, limits_hold, spend
from oncely.store.plan import Plan, Statement, Together, document

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
    bounds: Mapping[tuple[int, str], int] = {}
    """For a priority and a lane, how many microseconds ago the first of its jobs can have been
    due."""
    payload_limit: int | None = None
    """Payloads of more bytes are not read."""
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
    rings: dict[tuple[str, int], list[str]] = {}
    """All lanes of a level, in order, in which jobs were when it was looked at."""
    even: dict[tuple[str, int], list[str]] = {}
    """The lanes of a level that may run, if all of them gave their part the last time."""
    wait_seconds: float | None = None
    """When something changes by time alone: a job becomes due, a rate allows another one."""
    busy: bool = False
    """A limit was in somebody else's hands, so there may be jobs that were not seen."""
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
    outlook.wait_seconds, outlook.unfinished, outlook.busy = None, False, False
    outlook.rings, outlook.even = {}, {}
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
        self._used: set[Named] = set()
        self._asked: set[Named] = set()

    @property
    def of_queue(self) -> Limit:
        return self._known.get(self._queue, UNLIMITED)

    def of_lanes(self, lanes: Iterable[str]) -> dict[str, Limit]:
        return {lane: self._known[name] for lane in lanes if (name := _group(lane)) in self._known}

    def hold(self, lanes: Iterable[str]) -> Plan[None]:
        names = [self._queue, *(_group(lane) for lane in lanes if lane != PLAIN)]
        wanted = [name for name in names if name not in self._asked]
        self._asked.update(wanted)
        if wanted:
            self._known.update((yield from hold(wanted)))

    def take(self, lane: str, jobs: int) -> None:
        for name in (self._queue, _group(lane)):
            if name in self._known:
                self._known[name] = self._known[name].taken(jobs)
                self._used.add(name)

    def spend(self) -> Plan[None]:
        yield from spend({name: self._known[name] for name in self._used})

    def tell(self, outlook: Outlook) -> None:
        """When it is worth to look again, and how."""
        for limit in self._known.values():
            if not limit.room(1):
                outlook.wait(limit.wait_seconds())
            outlook.busy = outlook.busy or not limit.held
        queue = self._queue[1]
        tight = any(limit.is_tight for limit in self._known.values())
        for queues, is_so in ((outlook.limited, bool(self._known)), (outlook.tight, tight)):
            (queues.add if is_so else queues.discard)(queue)


def _claim_level(
    outlook: Outlook, limits: _Limits, claim: Claim, priority: int
) -> Plan[list[Claimed]]:
    ring = _Ring(outlook, claim.queue, priority)
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
    if ring.is_remembered and len(found) < claim.limit:
        outlook.unfinished = True
        outlook.rings.pop((claim.queue, priority), None)
    ring.tell(found, claim.limit, limits)
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
        counts = Counter(job.lane for job in got)
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
    return claimed_rows((yield _claim_lanes(claim, priority, quotas, limited, is_checked=True)))


def _claim_lanes(
    claim: Claim,
    priority: int,
    quotas: dict[str, int],
    limited: Container[str],
    *,
    is_checked: bool,
) -> Statement:
    lanes = [
        {
            "lane": lane,
            "quota": quota,
            "is_limited": lane in limited,
            "ago_us": claim.bounds.get((priority, lane)),
        }
        for lane, quota in quotas.items()
    ]
    has_groups = any(lane != PLAIN and lane not in limited for lane in quotas)
    return document(
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
        payload_limit=claim.payload_limit,
        worker=claim.worker,
        nonce=claim.nonce,
        lease_us=claim.lease_us,
        is_checked=is_checked,
    )


class AtOnce(msgspec.Struct, frozen=True):
    """A claim from a queue with groups or limits that needs no answer in between: from the lanes
    that are known, the same part of each. What it finds no room for is left to another claim."""

    key: tuple[str, int]
    limit: int
    statements: list[Statement]

    def tell(self, outlook: Outlook, claimed: Sequence[Claimed]) -> None:
        if len(claimed) < self.limit:
            outlook.unfinished = True
            outlook.even.pop(self.key, None)


def at_once(outlook: Outlook, claim: Claim) -> AtOnce | None:
    """If the last claim was one that could have been made so. For PostgreSQL, outside of a
    transaction."""
    key = (claim.queue, outlook.levels[claim.queue][0])
    lanes = outlook.even.get(key)
    if lanes is None or claim.queue in outlook.tight:
        return None
    quotas = share(_around(lanes, outlook.cursors.get(key, PLAIN)), {}, claim.limit)
    outlook.cursors[key] = list(quotas)[-1]
    statements = [_claim_lanes(claim, key[1], quotas, (), is_checked=False)]
    if claim.queue in outlook.limited:
        names = [("queue", claim.queue), *(_group(lane) for lane in quotas if lane != PLAIN)]
        statements.insert(0, limits_hold(names))
    return AtOnce(key, claim.limit, statements)


def _around(ring: Iterable[str], cursor: str) -> list[str]:
    """From the one after the cursor to the cursor itself."""
    return sorted(ring, key=lambda lane: (lane <= cursor, lane))


def _group(lane: str) -> Named:
    return ("group", lane.removeprefix(GROUPS))


class _Ring:
    """The lanes of one level, from the one after the cursor around to the cursor itself. Few are
    remembered until the next look at everything: who searches them must step over all that was
    claimed meanwhile."""

    def __init__(self, outlook: Outlook, queue: str, priority: int) -> None:
        self._outlook = outlook
        self._key = (queue, priority)
        self._cursor = outlook.cursors.get(self._key, PLAIN)
        self._first = max(self._cursor, GROUPS)
        self._is_plain_left = True
        self._second = GROUPS
        self._is_begun = self._is_over = False
        self.is_remembered = False

    def window(self, size: int) -> Plan[list[str]]:
        if self._is_over:
            return []
        known = self._outlook.rings.get(self._key)
        if known is not None and not self._is_begun:
            self._is_begun = self._is_over = self.is_remembered = True
            return _around(known, self._cursor)
        lanes = yield from self._find(size)
        if len(lanes) < size:
            self._is_over = True
            if not self._is_begun:
                self._outlook.rings[self._key] = sorted(lanes)
        self._is_begun = True
        return lanes

    def tell(self, found: Sequence[Claimed], limit: int, limits: _Limits) -> None:
        """Whether all lanes that may run gave their part."""
        lanes = self._outlook.rings.get(self._key)
        counts = Counter(job.lane for job in found)
        silent = {lane for lane in lanes or () if lane not in counts}
        blocked = {lane for lane, each in limits.of_lanes(silent).items() if not each.room(1)}
        if (
            lanes is not None
            and len(found) == limit
            and max(counts.values()) - min(counts.values()) <= 1
            and silent == blocked
        ):
            self._outlook.even[self._key] = sorted(counts)
        else:
            self._outlook.even.pop(self._key, None)

    def _find(self, size: int) -> Plan[list[str]]:
        queue, priority = self._key
        level = {"queue": queue, "priority": priority}
        parts = [
            Statement(
                "ring",
                {
                    **level,
                    "first": self._first,
                    "plain": self._is_plain_left,
                    "second": self._second,
                    "until": self._cursor,
                    "limit": size,
                },
            )
        ]
        if not self._is_begun:
            parts.insert(0, Statement("file", {**level, "limit": _FILE_LIMIT}))
        *_, (rows,) = yield Together(parts=parts)
        lanes = [lane for (lane,) in rows]
        if lanes and lanes[-1] > self._cursor:
            self._first = lanes[-1]
        elif lanes:
            self._first, self._is_plain_left = _LAST, False
            self._second = max(lanes[-1], GROUPS)
        return lanes
