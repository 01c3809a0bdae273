"""Traffic: what was counted in each step of time, and how long jobs waited and ran in it."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from typing import Final, Literal

import msgspec

from oncely.model.counter import Name
from oncely.model.errors import InvalidInput
from oncely.model.keys import shown

Last = Literal["hour", "day", "month"]
Measure = Literal["waited", "ran"]
Buckets = Mapping[int, int]
"""How many there were in each bucket, by its number. Those of several steps, queues and kinds are
added up, and the percentiles are those of all of them."""

STEPS: Final[dict[Last, tuple[int, int]]] = {
    "hour": (60, 60),
    "day": (900, 96),
    "month": (21_600, 120),
}
"""How long a step is, in seconds, and how many there are."""
KEEP_SECONDS: Final = {60: 25 * 3600, 900: 49 * 3600, 21_600: 31 * 86_400}
"""For how long steps of each length are kept."""

_LEAST_SECONDS: Final = 0.0001
_PER_OCTAVE: Final = 4
_OCTAVES: Final = 35
BOUNDS: Final = [_LEAST_SECONDS * 2 ** (n / _PER_OCTAVE) for n in range(_OCTAVES * _PER_OCTAVE + 1)]
"""Where the buckets end: four for each doubling, from a tenth of a millisecond to forty days. So a
percentile is at most a tenth off."""


def buckets(seconds: Iterable[float]) -> Counter[int]:
    return Counter(map(bisect_right, repeat(BOUNDS), seconds))


class Latency(msgspec.Struct, frozen=True):
    """In seconds, of `count` executions."""

    count: int
    p50: float
    p95: float
    p99: float


def merged(found: Iterable[Buckets]) -> dict[int, int]:
    total: dict[int, int] = {}
    for each in found:
        for number, n in each.items():
            total[number] = total.get(number, 0) + n
    return total


def latency(found: Iterable[Buckets]) -> Latency | None:
    """Of all of them together; None if there was nothing."""
    total = merged(found)
    count = sum(total.values())
    if not count:
        return None
    numbers = sorted(total)
    p50, p95, p99 = (_percentile(total, numbers, count * part) for part in (0.5, 0.95, 0.99))
    return Latency(count, p50, p95, p99)


def _percentile(total: Buckets, numbers: Sequence[int], rank: float) -> float:
    """Within the bucket that it falls in, as if what is there were spread evenly."""
    below = 0
    number = numbers[-1]
    for each in numbers:
        if below + total[each] >= rank:
            number = each
            break
        below += total[each]
    low = BOUNDS[number - 1] if number else 0.0
    high = BOUNDS[min(number, len(BOUNDS) - 1)]
    return low + (high - low) * min(1.0, max(0.0, (rank - below) / total[number]))


class Counted(msgspec.Struct, frozen=True):
    """One counter over time; `values` has a number for each step."""

    name: Name
    kind: str
    label: str
    values: list[int]


class Taken(msgspec.Struct, frozen=True):
    """How long jobs of one kind from one queue took; `steps` has the buckets of those steps in
    which there were any, by their place."""

    measure: Measure
    queue: str
    kind: str
    steps: dict[int, dict[int, int]]


class Traffic(msgspec.Struct, frozen=True):
    """The last `steps` steps of `seconds` each, from `since` on; the last one is under way."""

    since: datetime
    seconds: int
    steps: int
    counted: list[Counted]
    taken: list[Taken]

    @property
    def kinds(self) -> list[str]:
        return sorted({each.kind for each in self.counted} | {each.kind for each in self.taken})

    @property
    def queues(self) -> list[str]:
        return sorted({each.queue for each in self.taken})

    def values(self, name: Name, *, label: str | None = None, kind: str | None = None) -> list[int]:
        """How many in each step: `enqueued`, `executions` (labelled by outcome), `deduplicated` (by
        boundary), `key_conflicts`, `effects`, `held`, `resolved`."""
        wanted = [
            each.values
            for each in self.counted
            if each.name == name
            and (label is None or each.label == label)
            and (kind is None or each.kind == kind)
        ]
        return [sum(step) for step in zip(*wanted, strict=True)] if wanted else [0] * self.steps

    def latencies(
        self, measure: Measure, *, queue: str | None = None, kind: str | None = None
    ) -> list[Latency | None]:
        """In each step: how long jobs `waited` from when they were due to their start, or `ran`
        from there to their end."""
        return [latency([found]) for found in self.buckets(measure, queue=queue, kind=kind)]

    def buckets(
        self, measure: Measure, *, queue: str | None = None, kind: str | None = None
    ) -> list[dict[int, int]]:
        """The same before it is made into percentiles, to be added up further."""
        wanted = self._taken(measure, queue, kind)
        return [
            merged(each.steps[step] for each in wanted if step in each.steps)
            for step in range(self.steps)
        ]

    def latency(
        self, measure: Measure, *, queue: str | None = None, kind: str | None = None
    ) -> Latency | None:
        """Over all steps."""
        wanted = self._taken(measure, queue, kind)
        return latency(found for each in wanted for found in each.steps.values())

    def _taken(self, measure: Measure, queue: str | None, kind: str | None) -> list[Taken]:
        return [
            each
            for each in self.taken
            if each.measure == measure
            and (queue is None or each.queue == queue)
            and (kind is None or each.kind == kind)
        ]


def check_last(last: object) -> Last:
    for each in STEPS:
        if last == each:
            return each
    raise InvalidInput(f"last is {shown(last)}; expected one of {', '.join(STEPS)}")
