"""Charts of the traffic, each with a table of the same figures for whoever sees no chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, timedelta
from typing import Any, Final, Literal

import msgspec

from oncely.model.counter import Name
from oncely.model.traffic import Last, Latency, Measure, Traffic, latency, merged
from oncely.surface.dashboard.render import count, seconds

Tone = Literal["main", "good", "bad", "doubt", "other"]
ROW_STEPS: Final = {60: 5, 900: 4, 21_600: 4}
"""A row of the table stands for so many steps: five minutes, an hour, a day."""
EVERY: Final = {60: "per minute", 900: "per 15 minutes", 21_600: "per 6 hours"}
SPANS: Final[dict[Last, str]] = {"hour": "the last hour", "day": "the last day", "month": "30 days"}


class Line(msgspec.Struct, frozen=True):
    name: str
    tone: Tone
    values: Sequence[float | None]
    filled: bool = False


class Chart(msgspec.Struct, frozen=True):
    """`unit` is `seconds` where values are lengths of time."""

    title: str
    unit: str
    note: str
    times: list[int]
    series: list[Line]
    rows: list[list[str]]

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script draws."""
        return {
            "unit": self.unit,
            "times": self.times,
            "series": [msgspec.structs.asdict(each) for each in self.series],
        }


class Part(msgspec.Struct, frozen=True):
    """One line of a chart of counts."""

    name: str
    tone: Tone
    values: list[int]
    filled: bool = False


def counts(traffic: Traffic, title: str, parts: Sequence[Part]) -> Chart:
    rows = [
        [at, *(count(sum(part.values[step] for step in steps)) for part in parts)]
        for at, steps in _rows(traffic)
    ]
    # A step that is under way would look like a fall. It is drawn where there is nothing else yet.
    over = slice(-1) if any(any(part.values[:-1]) for part in parts) else slice(None)
    lines = [Line(part.name, part.tone, part.values[over], part.filled) for part in parts]
    return Chart(title, "", EVERY[traffic.seconds], _times(traffic)[over], lines, rows)


def times(traffic: Traffic, title: str, note: str, measure: Measure) -> Chart:
    steps = traffic.buckets(measure)
    found = [latency([each]) for each in steps]
    wanted: tuple[tuple[str, Tone], ...] = (("p50", "good"), ("p95", "main"), ("p99", "other"))
    lines = [Line(name, tone, [_of(each, name) for each in found]) for name, tone in wanted]
    rows = []
    for at, part in _rows(traffic):
        whole = latency(steps[step] for step in part)
        rows.append([at, *(seconds(_of(whole, name)) for name, _ in wanted)])
    return Chart(title, "seconds", note, _times(traffic), lines, rows)


class Totals:
    """What was counted and how long jobs took over all steps, added up in one pass for all that a
    page tells of it."""

    def __init__(self, traffic: Traffic) -> None:
        self._counted: Counter[tuple[Name, str, str | None]] = Counter()
        for each in traffic.counted:
            total = sum(each.values)
            self._counted[each.name, each.kind, each.label] += total
            self._counted[each.name, each.kind, None] += total
        self._taken: dict[tuple[Measure, str | None, str | None], Counter[int]] = {}
        for took in traffic.taken:
            found = merged(took.steps.values())
            for queue, kind in ((None, None), (took.queue, None), (None, took.kind)):
                self._taken.setdefault((took.measure, queue, kind), Counter()).update(found)

    def count(self, name: Name, kind: str, label: str | None = None) -> int:
        return self._counted[name, kind, label]

    def of(
        self, measure: Measure, *, queue: str | None = None, kind: str | None = None
    ) -> Latency | None:
        """Of all jobs, of those of one queue, or of those of one kind."""
        return latency([self._taken.get((measure, queue, kind), {})])


def _of(found: Latency | None, name: str) -> float | None:
    value: float | None = None if found is None else getattr(found, name)
    return value


def _times(traffic: Traffic) -> list[int]:
    first = int(traffic.since.timestamp())
    return [first + step * traffic.seconds for step in range(traffic.steps)]


def _rows(traffic: Traffic) -> list[tuple[str, range]]:
    """The latest first."""
    size = ROW_STEPS[traffic.seconds]
    form = "%Y-%m-%d" if traffic.seconds == 21_600 else "%H:%M"
    rows = []
    for step in range(0, traffic.steps, size):
        at = traffic.since + timedelta(seconds=step * traffic.seconds)
        rows.append((at.astimezone(UTC).strftime(form), range(step, step + size)))
    return rows[::-1]
