"""What a delivery leaves in the store: the job's result, and the jobs that it enqueued. Values that
differ between two clean runs say nothing of a repeat, and are left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from oncely.model.job import Job

Place = tuple[str, ...]
"""Names from the outside to the inside; `*` is every item of a list."""
_LEFT_OUT: Final = "…"
_COMPARED: Final = (
    "queue",
    "payload",
    "idempotency_key",
    "unique_key",
    "group_key",
    "priority",
    "timeout",
    "max_attempts",
    "tags",
)


def as_line(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def as_lines(jobs: Iterable[Job], left_out: dict[str, set[Place]]) -> Counter[str]:
    """One for each job that was enqueued, in that order. What is empty is not told."""
    lines: Counter[str] = Counter()
    for job in jobs:
        told = {name: value for name in _COMPARED if (value := getattr(job, name)) not in (None, 0)}
        told = {"kind": job.kind, **{name: value for name, value in told.items() if value != []}}
        lines[as_line(without(told, left_out.get(job.kind, set())))] += 1
    return lines


def varying_children(first: Counter[str], second: Counter[str]) -> dict[str, set[Place]]:
    """By kind. If two runs do not enqueue as many of a kind, that is no matter of values."""
    found: dict[str, set[Place]] = {}
    one, other = _by_kind(first), _by_kind(second)
    for kind in one.keys() & other.keys():
        if len(one[kind]) == len(other[kind]):
            places = {
                place
                for left, right in zip(one[kind], other[kind], strict=True)
                for place in varying(left, right)
            }
            if places:
                found[kind] = places
    return found


def leave_out(lines: Counter[str], left_out: dict[str, set[Place]]) -> Counter[str]:
    masked: Counter[str] = Counter()
    for line, count in lines.items():
        value = msgspec.json.decode(line)
        masked[as_line(without(value, left_out.get(value["kind"], set())))] += count
    return masked


def varying(first: Any, second: Any, place: Place = ()) -> Iterator[Place]:
    """Where two values differ."""
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        for name in first:
            yield from varying(first[name], second[name], (*place, str(name)))
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for one, other in zip(first, second, strict=True):
            yield from varying(one, other, (*place, "*"))
    elif first != second:
        yield place


def without(value: Any, places: set[Place]) -> Any:
    if () in places:
        return _LEFT_OUT
    if not places:
        return value
    inner: dict[str, set[Place]] = {}
    for name, *rest in places:
        inner.setdefault(name, set()).add(tuple(rest))
    if isinstance(value, dict):
        return {name: without(each, inner.get(str(name), set())) for name, each in value.items()}
    if isinstance(value, list):
        return [without(each, inner.get("*", set())) for each in value]
    return value


def _by_kind(lines: Counter[str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for line in lines.elements():
        value = msgspec.json.decode(line)
        found.setdefault(value["kind"], []).append(value)
    return found
