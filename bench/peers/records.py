"""What was measured, kept in a file as it comes in, so that a run that was cut short goes on."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RATES = ("rate", "p50_ms", "p99_ms", "megabytes")
"""What a measure is about: the first of these that it has."""


@dataclass(frozen=True)
class Step:
    """One measure of one system in one round."""

    round: int
    measure: str
    system: str


@dataclass(frozen=True)
class Record:
    at: int
    """Its place in the run: two records that are near to each other met the same machine."""
    round: int
    measure: str
    system: str
    jobs: int
    found: dict[str, float] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class Spread:
    median: float
    least: float
    most: float


def spread(values: Iterable[float]) -> Spread | None:
    found = sorted(values)
    return Spread(statistics.median(found), found[0], found[-1]) if found else None


class Records:
    def __init__(self, records: Sequence[Record] = ()) -> None:
        self._all = list(records)

    def add(self, record: Record) -> None:
        self._all.append(record)

    def has(self, at: int) -> bool:
        return any(record.at == at for record in self._all)

    def of(self, system: str, measure: str) -> list[Record]:
        return [
            record
            for record in self._all
            if (record.system, record.measure) == (system, measure) and record.error is None
        ]

    def errors(self) -> list[Record]:
        return [record for record in self._all if record.error is not None]

    def systems(self) -> list[str]:
        """Those that have a figure."""
        return list(dict.fromkeys(r.system for r in self._all if r.error is None))

    def spread(self, system: str, measure: str, what: str = "rate") -> Spread | None:
        return spread(r.found[what] for r in self.of(system, measure) if what in r.found)

    def ratio(
        self, this: tuple[str, str], other: tuple[str, str], what: str = "rate"
    ) -> float | None:
        """This one's figure in units of the other's: the median over all of the other's, each with
        the nearest of this one's in the same round."""
        found = []
        mine = [r for r in self.of(*this) if what in r.found]
        for theirs in self.of(*other):
            same = [r for r in mine if r.round == theirs.round]
            if same and theirs.found.get(what):
                _, near = min((abs(r.at - theirs.at), r.found[what]) for r in same)
                found.append(near / theirs.found[what])
        return statistics.median(found) if found else None

    def as_json(self) -> list[dict[str, Any]]:
        return [asdict(record) for record in self._all]


class Kept:
    """The file of a run: its plan, what has come in, and who could not be had."""

    def __init__(self, path: Path, plan: Sequence[Step], *, fresh: bool) -> None:
        self._path = path
        self._plan = [f"{step.round} {step.measure} {step.system}" for step in plan]
        self.records = Records()
        self.absent: dict[str, str] = {}
        if not fresh and path.exists():
            self._go_on(json.loads(path.read_text()))

    def _go_on(self, kept: dict[str, Any]) -> None:
        """Only with the same plan, and only if it was not finished: ratios are of one run. What
        failed is tried again."""
        if kept["plan"] == self._plan and len(kept["records"]) < len(self._plan):
            records = [Record(**record) for record in kept["records"]]
            self.records = Records([record for record in records if record.error is None])

    def save(self) -> None:
        whole = {
            "plan": self._plan,
            "absent": self.absent,
            "records": self.records.as_json(),
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(whole, indent=1))
        os.replace(part, self._path)
