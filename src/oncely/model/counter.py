"""Counters: what is counted, and how it is labelled."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Name = Literal[
    "enqueued",
    "executions",
    "deduplicated",
    "key_conflicts",
    "effects",
    "effect_renamed",
    "held",
    "resolved",
    "drills",
    "drill_effects",
]
SECOND_LABEL: Final[dict[Name, str | None]] = {
    "enqueued": None,
    "executions": "outcome",
    "deduplicated": "boundary",
    "key_conflicts": None,
    "effects": "source",
    "effect_renamed": None,
    "held": None,
    "resolved": "answer",
    "drills": "outcome",
    "drill_effects": "answer",
}
"""Beside `kind`, which every counter has."""
KINDS_LIMIT: Final = 1_000
"""Number of kinds that the store counts by name. All others are counted as `OTHER_KINDS`, so that
whoever may enqueue cannot make the counters grow without end. Jobs keep their own kind."""
OTHER_KINDS: Final = "(other)"
"""No kind has this name: parentheses are not allowed in one."""


class Counter(msgspec.Struct, frozen=True):
    """It never goes down, also when the jobs that it counted are pruned."""

    name: str
    labels: dict[str, str]
    value: int


class Delta(msgspec.Struct, frozen=True):
    """The field names are those of the document that the store's statement unpacks."""

    name: Name
    kind: str
    label: str = ""
    n: int = 1


def counter(name: Name, kind: str, label: str, value: int) -> Counter:
    second = SECOND_LABEL[name]
    labels = {"kind": kind} if second is None else {second: label, "kind": kind}
    return Counter(f"oncely_{name}_total", labels, value)
