"""Where each fault is tried: only where it can make a difference, and once for each line of the
handler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from oncely.prove.schedule import Fault, Move, Schedule
from oncely.prove.seams.names import begins_one, commits, ends_one
from oncely.prove.watch import Boundary

_SQL: Final = ("sqlite", "postgres", "mysql")
_AT_REQUESTS: Final[tuple[Fault, ...]] = ("refuse", "lose", "timeout")


def singles(boundaries: Sequence[Boundary]) -> Iterator[Schedule]:
    """The schedules with one fault, but for that of a fresh interpreter."""
    crashes = unlike(boundaries)
    yield from at("crash", crashes)
    for fault in _AT_REQUESTS:
        yield from at(fault, filter(takes_request_fault, boundaries))
    yield from at("zombie", free_to_pause(boundaries))
    yield from of_files(boundaries)
    yield from of_databases(boundaries)
    yield from of_services(boundaries)
    yield from at("late", [one for one in crashes if one.name != "claim"])


def pairs(
    boundaries: Sequence[Boundary], seen_after: Mapping[Schedule, Sequence[Boundary]]
) -> Iterator[Schedule]:
    """Those with two; `seen_after` has the boundaries of the delivery that came after a first
    fault."""
    for first, repeated in seen_after.items():
        for each in unlike(repeated):
            yield Schedule((*first.moves, Move("crash", each.number)))
        yield from failing_reads(first, repeated)
    for paused in free_to_pause(boundaries):
        for ended in unlike(boundaries):
            if ended.name != "claim":
                yield Schedule((Move("overlap", paused.number), Move("crash", ended.number)))


def unlike(boundaries: Sequence[Boundary]) -> list[Boundary]:
    """Without those before which nothing came that a crash would not undo: it leaves the same there
    as one boundary earlier."""
    return [
        each
        for before, each in zip([None, *boundaries], boundaries, strict=False)
        if before is None or not before.inside
    ]


def free_to_pause(boundaries: Sequence[Boundary]) -> list[Boundary]:
    """Where a delivery can be paused without being in its successor's way."""
    return [one for one in boundaries if one.name != "claim" and not one.holds]


def takes_request_fault(boundary: Boundary) -> bool:
    return boundary.channel in ("http", "mail") and boundary.judged and not boundary.repeatable


def of_databases(boundaries: Sequence[Boundary]) -> Iterator[Schedule]:
    """The answer to a commit that is lost, and statements that fail."""
    yield from at("lose", _once_for_each_line(filter(_commits, boundaries)))
    yield from at("fail", _once_for_each_line(filter(_can_fail, boundaries)))


def of_services(boundaries: Sequence[Boundary]) -> Iterator[Schedule]:
    """A service that cannot be reached, and one in trouble, beside a single refusal."""
    requests = [each for each in boundaries if takes_request_fault(each) and each.channel == "http"]
    for fault in ("drop", "outage", "throttle"):
        yield from at(fault, _once_for_each_line(requests))


def of_files(boundaries: Sequence[Boundary]) -> Iterator[Schedule]:
    written = [
        each for each in boundaries if each.channel == "file" and each.name.startswith("write ")
    ]
    yield from at("tear", _once_for_each_line(written))


def of_interpreters(boundaries: Sequence[Boundary]) -> Iterator[Schedule]:
    """One: when all is done and the job is not settled, a repeat has the most to recognise."""
    yield from at("fresh", boundaries[-1:])


def failing_reads(first: Schedule, boundaries: Sequence[Boundary]) -> Iterator[Schedule]:
    """After a crash the repeat looks for what was done, and cannot."""
    reads = [each for each in boundaries if _can_fail(each) and each.repeatable]
    for each in _once_for_each_line(reads):
        yield Schedule((*first.moves, Move("fail", each.number)))


def at(fault: Fault, boundaries: Iterable[Boundary]) -> Iterator[Schedule]:
    return (Schedule((Move(fault, boundary.number),)) for boundary in boundaries)


def _can_fail(boundary: Boundary) -> bool:
    if boundary.channel == "redis":
        return True
    if boundary.channel not in _SQL or begins_one(boundary.name):
        return False
    return commits(boundary.name) or not ends_one(boundary.name)


def _commits(boundary: Boundary) -> bool:
    """A commit, or a statement that is a transaction of its own."""
    return (
        boundary.channel in _SQL
        and _can_fail(boundary)
        and not boundary.inside
        and not boundary.repeatable
    )


def _once_for_each_line(boundaries: Iterable[Boundary]) -> Iterator[Boundary]:
    """A loop makes the same boundary again and again, and meets its fault in the same way."""
    seen = set()
    for each in boundaries:
        place = each.where, each.name.split()[0].upper()
        if each.where is None or place not in seen:
            seen.add(place)
            yield each
