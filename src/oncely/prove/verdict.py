"""Verdicts: the world after a schedule against the world after one clean run."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final, Literal

import msgspec

from oncely.prove.numbers import compare, describe
from oncely.prove.stand_ins import REFERENCES
from oncely.prove.world import Snapshot

Verdict = Literal["sound", "held", "lost", "doubled", "stuck", "diverged"]
_PLAIN_FIRST: Final[tuple[Verdict, ...]] = ("lost", "doubled", "diverged")


class Difference(msgspec.Struct, frozen=True):
    """In one part of the world: what is missing, and what is there in excess."""

    label: str
    missing: list[str]
    extra: list[str]

    @property
    def lines(self) -> list[str]:
        """For a report. A number that differs is one line."""
        return describe(self.missing, self.extra) or [
            *(f"missing  {line}" for line in self.missing),
            *(f"too many {line}" for line in self.extra),
        ]


def differences(wanted: Snapshot, found: Snapshot) -> list[Difference]:
    told: list[Difference] = []
    for label in wanted:
        missing, extra = wanted[label] - found[label], found[label] - wanted[label]
        if (missing or extra) and not (label == REFERENCES and told):
            told.append(Difference(label, sorted(missing.elements()), sorted(extra.elements())))
    return told


def judge(before: Snapshot, wanted: Snapshot, found: Snapshot) -> Verdict:
    """Less than one run would leave is lost, more is doubled, anything else diverged."""
    names = wanted.keys() - {REFERENCES}
    kinds = {_kind(before[name], wanted[name], found[name]) for name in names} - {"sound"}
    if not kinds:
        return "sound" if wanted.get(REFERENCES) == found.get(REFERENCES) else "diverged"
    if {"lost", "doubled"} <= kinds:
        return "diverged"
    # What is plain in one part of the world explains what is strange in another.
    return next(kind for kind in _PLAIN_FIRST if kind in kinds)


def _kind(before: Counter[str], wanted: Counter[str], found: Counter[str]) -> Verdict:
    missing, extra = wanted - found, found - wanted
    if not missing and not extra:
        return "sound"
    if not extra or found == before:
        return "lost"
    if not missing:
        return "doubled"
    return compare(before, missing, extra) or _of_change(before, missing, extra)


def _of_change(before: Counter[str], missing: Counter[str], extra: Counter[str]) -> Verdict:
    """A number in a row that moved twice as far was changed twice. In a row that was not there
    before, as an upsert adds it, the number began at 0."""
    if missing.total() != 1 or extra.total() != 1:
        return "diverged"
    wanted, found = _fields(next(iter(missing))), _fields(next(iter(extra)))
    if wanted is None or found is None or wanted.keys() != found.keys():
        return "diverged"
    added = {name: value if found[name] == value else 0 for name, value in wanted.items()}
    for start in (*map(_fields, before), added):
        if start is None or start.keys() != wanted.keys():
            continue
        moved = {name for name in start if start[name] != wanted[name]}
        if not moved or any(start[name] != found.get(name) for name in start.keys() - moved):
            continue
        if all(
            _number(start[name])
            and _number(wanted[name])
            and _number(found[name])
            and found[name] - wanted[name] == wanted[name] - start[name]
            for name in moved
        ):
            return "doubled"
    return "diverged"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fields(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
